"""Tokens, and which certificates count for which node: ``identity.sqlite`` in the state directory, mode 0600.

What happened to nodes is also in the control chain, which is written first: what this file lacks of it is taken up
again at a start. Tokens are only here; who loses the file makes new ones. All of it is held in memory, for it is asked
with every connection.
"""

import os
import sqlite3
import stat
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from bandwitness.v1.record_pb2 import (
    IDENTITY_EVENT_RENEWED,
    IDENTITY_EVENT_REVOKED,
    NodeIdentity,
)
from collector.enrol.tokens import Token

MAX_TOKENS = 10_000
MAX_CERTIFICATES = 16  # of one node, that count at a time
KEEP_ENDED_NS = 30 * 86_400 * 1_000_000_000  # tokens and certificates are listed for so long behind their end
_TABLES = """
CREATE TABLE IF NOT EXISTS tokens (token_id TEXT PRIMARY KEY, kind TEXT NOT NULL, node TEXT NOT NULL,
  digest BLOB NOT NULL, created_ns INTEGER NOT NULL, expiry_ns INTEGER, used_ns INTEGER, used_key BLOB NOT NULL,
  revoked_ns INTEGER) STRICT;
CREATE TABLE IF NOT EXISTS nodes (node TEXT PRIMARY KEY, generation INTEGER NOT NULL, since_ns INTEGER NOT NULL,
  revoked INTEGER NOT NULL, reason TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS certificates (sha256 BLOB PRIMARY KEY, node TEXT NOT NULL, generation INTEGER NOT NULL,
  issued_ns INTEGER NOT NULL, not_after_ns INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS applied (chain_id BLOB PRIMARY KEY, seq INTEGER NOT NULL) STRICT;
"""


class RegistryError(RuntimeError):
    """The file cannot be used; the text names it and the cure."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node that was enrolled, admitted or revoked. Certificates of an older generation count no more."""

    node: str
    generation: int
    since_ns: int
    revoked: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Certificate:
    sha256: bytes
    node: str
    generation: int
    issued_ns: int
    not_after_ns: int


class Registry:
    """See the module. Any thread may write; reading takes no lock."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it.

        Raises:
            RegistryError: others may read it, or it is damaged.
        """
        self.tokens: dict[str, Token] = {}
        self.nodes: dict[str, NodeState] = {}
        self.certificates: dict[bytes, Certificate] = {}
        self._lock = Lock()
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                raise RegistryError(f"{path}: open to others (mode {mode:04o}): chmod 600 it, and make new tokens")
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._connection.executescript("PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL;" + _TABLES)
            self._load()
        except (OSError, sqlite3.Error) as error:
            raise RegistryError(
                f"{path}: cannot be used: {error}. Moved away, it is made anew from the control chain, without tokens"
            ) from error

    def close(self) -> None:
        self._connection.close()

    def _load(self) -> None:
        ask = self._connection.execute
        self.tokens = {row[0]: Token(*row) for row in ask("SELECT * FROM tokens")}
        nodes = [NodeState(row[0], row[1], row[2], bool(row[3]), row[4]) for row in ask("SELECT * FROM nodes")]
        self.nodes = {state.node: state for state in nodes}
        self.certificates = {row[0]: Certificate(*row) for row in ask("SELECT * FROM certificates")}

    # ------------------------------------------------------------ asked

    def refusal(self, node: str, certificate_sha256: bytes) -> str:
        """Why a certificate that the authority vouches for does not count; empty: it does. A node that was never
        enrolled, admitted or revoked here has its certificates from elsewhere, and all of them count."""
        state = self.nodes.get(node)
        if state is None:
            return ""
        if state.revoked:
            why = f": {state.reason}" if state.reason else ""
            return f"the node {node} was revoked on {_when(state.since_ns)}{why}; it needs a new token to enrol again"
        known = self.certificates.get(certificate_sha256)
        if known is None or known.node != node or known.generation != state.generation:
            return f"this certificate of {node} counts no more: the node was enrolled anew on {_when(state.since_ns)}"
        return ""

    def valid_of(self, node: str, now_ns: int) -> list[Certificate]:
        """Certificates of ours that count for ``node``, oldest first."""
        state = self.nodes.get(node)
        if state is None or state.revoked:
            return []
        found = [
            one
            for one in list(self.certificates.values())  # a copy: another thread writes
            if one.node == node and one.generation == state.generation and one.not_after_ns > now_ns
        ]
        return sorted(found, key=lambda one: one.not_after_ns)

    def applied_seq(self, chain_id: bytes) -> int:
        """Up to where the control chain has been taken up."""
        row = self._connection.execute("SELECT seq FROM applied WHERE chain_id = ?", (chain_id,)).fetchone()
        return int(row[0]) if row else 0

    # ------------------------------------------------------------ written

    def put_token(self, token: Token, *, now_ns: int) -> None:
        """Adds or changes a token; those that ended long ago go.

        Raises:
            RegistryError: there are too many, or the disk fails.
        """
        gone = [one.token_id for one in self.tokens.values() if _long_over(one, now_ns)]
        if token.token_id not in self.tokens and len(self.tokens) - len(gone) >= MAX_TOKENS:
            raise RegistryError(f"there are {MAX_TOKENS} tokens already: revoke some; they go 30 days later")
        statements = [("DELETE FROM tokens WHERE token_id = ?", (one,)) for one in gone]
        self._write([*statements, _token_statement(token)])
        for one in gone:
            del self.tokens[one]
        self.tokens[token.token_id] = token

    def apply(self, event: NodeIdentity, at_ns: int, where: tuple[bytes, int], *, used: Token | None = None) -> None:
        """Takes up an event of the control chain (``where``: chain and seq), with the token that was used for it.

        Raises:
            RegistryError: the disk fails; nothing was taken up.
        """
        if event.event == IDENTITY_EVENT_RENEWED and event.node not in self.nodes:
            self.passed(*where)  # its certificates come from elsewhere, and go on counting
            return
        old = self.nodes.get(event.node, NodeState(event.node, 0, at_ns, revoked=False))
        state = _after(old, event, at_ns)
        statements: list[tuple[str, tuple[object, ...]]] = [
            ("REPLACE INTO nodes VALUES (?, ?, ?, ?, ?)", (*astuple(state)[:3], int(state.revoked), state.reason)),
            ("REPLACE INTO applied VALUES (?, ?)", where),
        ]
        gone = [
            one.sha256
            for one in self.certificates.values()
            if one.node == event.node and one.not_after_ns + KEEP_ENDED_NS < at_ns
        ]
        statements += [("DELETE FROM certificates WHERE sha256 = ?", (one,)) for one in gone]
        certificate = None
        if event.certificate_sha256:
            certificate = Certificate(
                event.certificate_sha256, event.node, state.generation, at_ns, event.not_after_time_ns
            )
            statements.append(("REPLACE INTO certificates VALUES (?, ?, ?, ?, ?)", astuple(certificate)))
        if used is not None:
            statements.append(_token_statement(used))
        self._write(statements)
        for sha in gone:
            del self.certificates[sha]
        if certificate is not None:
            self.certificates[certificate.sha256] = certificate
        self.nodes[event.node] = state
        if used is not None:
            self.tokens[used.token_id] = used

    def passed(self, chain_id: bytes, seq: int) -> None:
        """Notes that the control chain holds nothing more for us up to ``seq``.

        Raises:
            RegistryError: the disk fails.
        """
        self._write([("REPLACE INTO applied VALUES (?, ?)", (chain_id, seq))])

    def _write(self, statements: Iterable[tuple[str, tuple[object, ...]]]) -> None:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                for text, values in statements:
                    self._connection.execute(text, values)
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise RegistryError(f"identity.sqlite cannot be written: {error}") from error


def _after(old: NodeState, event: NodeIdentity, at_ns: int) -> NodeState:
    if event.event == IDENTITY_EVENT_RENEWED:
        return old
    if event.event == IDENTITY_EVENT_REVOKED:
        return NodeState(event.node, old.generation + 1, at_ns, revoked=True, reason=event.reason)
    return replace(old, generation=old.generation + 1, since_ns=at_ns, revoked=False, reason="")


def _token_statement(token: Token) -> tuple[str, tuple[object, ...]]:
    return "REPLACE INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(token)


def _long_over(token: Token, now_ns: int) -> bool:
    ends = [at_ns for at_ns in (token.used_ns, token.revoked_ns, token.expiry_ns) if at_ns is not None]
    return bool(ends) and min(ends) + KEEP_ENDED_NS < now_ns


def _when(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // 1_000_000_000, UTC):%Y-%m-%d %H:%M} UTC"
