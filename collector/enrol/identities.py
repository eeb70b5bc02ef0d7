"""Who may speak for a node: asked with every stream, changed by tokens, renewals and the operator.

Each change is written to the control chain first, then to the registry, and only then takes effect and is answered. A
process that ends in between finds it in the chain at its next start.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from bandwitness.chain import ChainError, read_header, read_payload
from bandwitness.v1.record_pb2 import (
    IDENTITY_EVENT_ADMITTED,
    IDENTITY_EVENT_ENROLLED,
    IDENTITY_EVENT_RENEWED,
    IDENTITY_EVENT_REVOKED,
    NodeIdentity,
    Record,
    SignedBatch,
)
from bandwitness.v1.uplink_pb2 import EnrolRequest, IssuedIdentity
from collector.clock import Clock
from collector.control import Control
from collector.enrol.authority import Authority, Issued, RequestError, facts_of, key_hash, nodes_of, public_key_of
from collector.enrol.registry import MAX_CERTIFICATES, Registry, RegistryError
from collector.enrol.tokens import Kind, Token, id_of, make
from collector.log import Log, LogError

_CHUNK = 200
MAX_REASON = 200

logger = logging.getLogger(__name__)


class RefusedError(Exception):
    """What was asked for is not granted; ``code`` and words are for whoever asked. Never holds a token's text."""

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


@dataclass(frozen=True, slots=True)
class Place:
    """Where agents connect once they have a certificate."""

    collector_id: str
    stream_port: int
    ca: bytes  # PEM, the whole of collector.tls.ca


class Identities:
    """See the module. One event loop."""

    def __init__(
        self,
        registry: Registry,
        control: Control,
        log: Log,
        clock: Clock,
        *,
        authority: Authority | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``authority`` None: certificates come from elsewhere. ``changed``: called after each change of who counts."""
        self.registry = registry
        self.authority = authority
        self.place = Place("", 0, b"")
        self.outcomes: Counter[str] = Counter()  # enrolled, renewed, or why not
        self._control = control
        self._log = log
        self._clock = clock
        self._changed = changed
        self._one = asyncio.Lock()

    # ------------------------------------------------------------ asked

    def refusal(self, node: str, certificate_sha256: bytes) -> str:
        """See ``Registry.refusal``."""
        return self.registry.refusal(node, certificate_sha256)

    def may_read(self, text: str) -> bool:
        """Whether ``text`` is a read token that counts."""
        token = self._token("read", text)
        return token is not None and token.state(self._clock.wall_ns()) == "open"

    def expiry_ns(self, node: str) -> int | None:
        """When the newest certificate that was issued here to ``node`` ends; None: none was."""
        valid = self.registry.valid_of(node, 0)
        return valid[-1].not_after_ns if valid else None

    def _token(self, kind: Kind, text: str) -> Token | None:
        token_id = id_of(kind, text)
        token = self.registry.tokens.get(token_id) if token_id is not None else None
        return token if token is not None and token.kind == kind and token.matches(text) else None

    # ------------------------------------------------------------ nodes ask

    async def enrol(self, request: EnrolRequest) -> IssuedIdentity:
        """A certificate for the node of a token that counts.

        Raises:
            RefusedError: it does not, the request is no good, or nothing can be put on record.
        """
        async with self._one:
            try:
                return await self._enrol(request)
            except RefusedError as error:
                self.outcomes[error.code.name.lower()] += 1
                raise

    async def _enrol(self, request: EnrolRequest) -> IssuedIdentity:
        now_ns = self._clock.wall_ns()
        token = self._token("enrol", request.token)
        if token is None:
            raise RefusedError(grpc.StatusCode.UNAUTHENTICATED, "no such token here: was it copied whole?")
        public = _public_key(request.certificate_request)
        state = token.state(now_ns)
        again = state == "used" and token.used_key == public and (token.expiry_ns or 0) > now_ns
        if state != "open" and not again:  # whoever lost the answer asks again with the same key
            raise RefusedError(grpc.StatusCode.UNAUTHENTICATED, f"the token is {state}: make a new one")
        if request.node and request.node != token.node:
            words = f"the token is for {token.node}, this agent is called {request.node}"
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, words)
        issued = self._issue(token.node, request.certificate_request, now_ns)
        event = _event(IDENTITY_EVENT_ENROLLED, token.node, issued, token_id=token.token_id)
        used = replace(token, used_ns=now_ns, used_key=public)
        await self._write(event, used=used)
        self.outcomes["enrolled"] += 1
        logger.info("enrol: %s has a certificate, by token %s", token.node, token.token_id)
        return self._answer(token.node, issued)

    async def renew(self, node: str, certificate_sha256: bytes, certificate_request: bytes) -> IssuedIdentity:
        """The next certificate of a node that shows one that counts.

        Raises:
            RefusedError: as ``enrol``.
        """
        async with self._one:
            now_ns = self._clock.wall_ns()
            refusal = self.refusal(node, certificate_sha256)
            if refusal:
                raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, refusal)
            if len(self.registry.valid_of(node, now_ns)) >= MAX_CERTIFICATES:
                words = f"{node} has {MAX_CERTIFICATES} certificates that count: wait until one has ended"
                raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
            _public_key(certificate_request)
            issued = self._issue(node, certificate_request, now_ns)
            await self._write(_event(IDENTITY_EVENT_RENEWED, node, issued))
            self.outcomes["renewed"] += 1
            logger.info("enrol: %s has a new certificate", node)
            return self._answer(node, issued)

    def _issue(self, node: str, request: bytes, now_ns: int) -> Issued:
        if self.authority is None:
            words = "this collector has no ca_key: certificates are made where its authority is"
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, words)
        try:
            return self.authority.issue(node, request, now_ns)
        except (RequestError, ValueError) as error:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None

    def _answer(self, node: str, issued: Issued) -> IssuedIdentity:
        return IssuedIdentity(
            node=node,
            certificate=issued.pem,
            ca=self.place.ca,
            collector_id=self.place.collector_id,
            stream_port=self.place.stream_port,
        )

    # ------------------------------------------------------------ the operator asks

    async def create_token(self, kind: Kind, node: str, ttl_ns: int | None) -> tuple[Token, str]:
        """A token and its text, told once.

        Raises:
            RefusedError: no such node, or enrolment is off.
            RegistryError: it cannot be kept.
        """
        if kind == "enrol" and self.authority is None:
            words = "enrolment is off: give collector.tls.ca_key, or bring certificates from elsewhere"
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, words)
        if kind == "enrol" and node not in self._control.nodes:
            raise RefusedError(grpc.StatusCode.NOT_FOUND, f"collector.yaml names no node {node!r}: add it under nodes")
        async with self._one:
            now_ns = self._clock.wall_ns()
            token, text = make(kind, node, now_ns, ttl_ns)
            await asyncio.to_thread(self.registry.put_token, token, now_ns=now_ns)
        return token, text

    async def revoke_token(self, token_id: str) -> Token:
        """From now on the token opens nothing.

        Raises:
            RefusedError: there is none of this id.
            RegistryError: it cannot be written.
        """
        async with self._one:
            token = self.registry.tokens.get(token_id)
            if token is None:
                raise RefusedError(grpc.StatusCode.NOT_FOUND, f"no token has the id {token_id!r}: see `token list`")
            now_ns = self._clock.wall_ns()
            revoked = replace(token, revoked_ns=token.revoked_ns or now_ns)
            await asyncio.to_thread(self.registry.put_token, revoked, now_ns=now_ns)
            return revoked

    async def revoke(self, node: str, reason: str) -> None:
        """From now on no certificate of ``node`` counts, and no open token enrols it.

        Raises:
            RefusedError: it could not be put on record, and did not happen.
        """
        async with self._one:
            event = NodeIdentity(node=node, event=IDENTITY_EVENT_REVOKED, reason=reason[:MAX_REASON])
            await self._write(event)
            now_ns = self._clock.wall_ns()
            for token in list(self.registry.tokens.values()):
                if token.kind == "enrol" and token.node == node and token.state(now_ns) != "revoked":
                    revoked = replace(token, revoked_ns=now_ns)
                    await asyncio.to_thread(self.registry.put_token, revoked, now_ns=now_ns)

    async def admit(self, node: str, pem: bytes) -> None:
        """From now on this certificate counts for ``node``, and no earlier one. For authorities that are not here.

        Raises:
            RefusedError: it names another node, or could not be put on record.
        """
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            certificate.public_bytes(Encoding.DER)
        except ValueError:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "no certificate in PEM") from None
        if nodes_of(certificate) != [node]:
            words = f"the certificate does not name {node} (URI bandwitness://node/{node})"
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, words)
        async with self._one:
            await self._write(_event(IDENTITY_EVENT_ADMITTED, node, facts_of(certificate)))

    # ------------------------------------------------------------ on record

    async def _record(self, event: NodeIdentity) -> tuple[bytes, int]:
        try:
            batch = await self._control.write([Record(node_identity=event)])
        except LogError as error:
            words = f"nothing can be put on record: {error}; ask again later"
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, words) from None
        return self._control.key.chain_id, read_header(batch.header).seq

    async def _write(self, event: NodeIdentity, *, used: Token | None = None) -> None:
        where = await self._record(event)
        try:
            await asyncio.to_thread(self.registry.apply, event, self._clock.wall_ns(), where, used=used)
        except RegistryError as error:
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, f"{error}; ask again later") from None
        self._changed()

    async def catch_up(self) -> None:
        """Takes up what the control chain has and the registry lacks. Once, before anybody is let in.

        Raises:
            RegistryError: it cannot be written.
        """
        key, before = self._control.key, self._control.next_seq
        applied = self.registry.applied_seq(key.chain_id)
        missing: list[tuple[NodeIdentity, int, int]] = []
        while before > applied + 1:
            entries = await asyncio.to_thread(self._log.newest_of, key, before, _CHUNK)
            if not entries:
                break
            for entry in entries:
                if entry.seq > applied:
                    batch = SignedBatch(header=entry.header, payload=entry.payload, signature=entry.signature)
                    missing += [(event, entry.received_time_ns, entry.seq) for event in _events(batch)]
            before = entries[-1].seq
        for event, at_ns, seq in reversed(missing):
            used = self.registry.tokens.get(event.token_id)
            if used is not None and used.used_ns is None:
                used = replace(used, used_ns=at_ns, used_key=event.public_key_sha256)
            await asyncio.to_thread(self.registry.apply, event, at_ns, (key.chain_id, seq), used=used)
        await self.note_passed()

    async def note_passed(self) -> None:
        """Notes how far the chain has been looked at, so that the next start need not look there again."""
        async with self._one:
            seq = self._control.next_seq - 1
            await asyncio.to_thread(self.registry.passed, self._control.key.chain_id, seq)


def _events(batch: SignedBatch) -> list[NodeIdentity]:
    """Newest first, as the entries that are read."""
    try:
        records = read_payload(read_header(batch.header), batch.payload)
    except ChainError:  # pruned, or damaged on disk
        return []
    read = [Record.FromString(encoded) for encoded in records]
    return [record.node_identity for record in reversed(read) if record.HasField("node_identity")]


def _event(event: "int", node: str, issued: Issued, *, token_id: str = "") -> NodeIdentity:
    return NodeIdentity(
        node=node,
        event=event,  # type: ignore[arg-type]
        certificate_sha256=issued.sha256,
        public_key_sha256=issued.public_key_sha256,
        not_after_time_ns=issued.not_after_ns,
        token_id=token_id,
    )


def _public_key(request: bytes) -> bytes:
    try:
        return key_hash(public_key_of(request))
    except RequestError as error:
        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
