"""The spool's SQLite file: schema and statements. Blocking; used from one thread.

WAL with synchronous=FULL: a commit that returned survives power loss, and a batch is in the file whole or not at all.
The connection holds the file exclusively, so there is no shared-memory file beside it (which a full disk could turn
into SIGBUS) and a second agent on the same state directory is refused.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent import result
from agent.record import ChainState, SealedBatch
from bandwitness.chain import Tip
from bandwitness.v1.record_pb2 import SignedBatch

SCHEMA_VERSION = 1
QUICK_CHECK_MAX_BYTES = 64 * 1024 * 1024  # above it a check at start would take seconds; damage then shows when met
WAL_LIMIT_BYTES = 4 * 1024 * 1024
CACHE_KIB = 256  # pages held in memory: batches are written once and read once, so the 2 MB by default are for nothing
VACUUM_PAGES = 256  # given back to the file system per call, so that no call takes long

_SCHEMA = """
CREATE TABLE chain (
  class INTEGER PRIMARY KEY, chain_id BLOB NOT NULL, seq INTEGER NOT NULL, header_hash BLOB NOT NULL,
  last_event_ns INTEGER NOT NULL, acknowledged INTEGER NOT NULL, acknowledged_ns INTEGER
);
CREATE TABLE batch (
  class INTEGER NOT NULL, seq INTEGER NOT NULL, header BLOB NOT NULL, payload BLOB NOT NULL, signature BLOB NOT NULL,
  first_ns INTEGER NOT NULL, newest_ns INTEGER NOT NULL, records INTEGER NOT NULL, payload_bytes INTEGER NOT NULL,
  PRIMARY KEY (class, seq)
);
CREATE INDEX held ON batch (class, seq) WHERE payload_bytes > 0;
CREATE TABLE gap (
  id INTEGER PRIMARY KEY AUTOINCREMENT, class INTEGER NOT NULL, reason INTEGER NOT NULL, from_ns INTEGER NOT NULL,
  to_ns INTEGER NOT NULL, records INTEGER, detail TEXT NOT NULL
);
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO counter VALUES ('dropped', 0);
"""
_SIZE = "length(header) + payload_bytes + length(signature)"
_TOTAL = f"SELECT coalesce(sum({_SIZE}), 0) FROM batch"  # noqa: S608 - our own text


class SpoolError(Exception):
    """The spool cannot be used at all; the message says why and what to do."""


Connect = Callable[[Path], sqlite3.Connection]


def connect(path: Path) -> sqlite3.Connection:
    """The real file. Transactions are begun and ended by hand."""
    return sqlite3.connect(path, isolation_level=None, timeout=1.0)


def is_full(error: sqlite3.Error) -> bool:
    """No room: the file is as good as before."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def is_disk_trouble(error: sqlite3.Error) -> bool:
    """The disk is full, read-only or fails: a matter of time, not of the file or of our rights."""
    codes = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in codes


def is_corrupt(error: sqlite3.Error) -> bool:
    """The bytes in the file are not a database any more."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_foreign(error: sqlite3.Error) -> bool:
    """At opening: our own statements do not fit what is in the file, so it is no spool, or no longer one."""
    return isinstance(error, MissingRowError) or getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_ERROR


class MissingRowError(sqlite3.DatabaseError):
    """A row that every spool has is not there."""


@dataclass(frozen=True, slots=True)
class Held:
    """A batch that still has its payload."""

    row: int
    payload_bytes: int
    records: int
    first_ns: int
    newest_ns: int


class Database:
    """Statements over one open file. Raises sqlite3.Error; the caller begins and ends transactions.

    Raises:
        sqlite3.DatabaseError: the file is damaged.
        SpoolError: another process holds it, or a newer version made it.
    """

    def __init__(self, path: Path, connect: Connect) -> None:
        self._connection = connect(path)
        try:
            self._prepare(path)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, path: Path) -> None:
        execute = self._connection.execute
        try:
            execute("PRAGMA locking_mode = EXCLUSIVE")
            execute("PRAGMA auto_vacuum = INCREMENTAL")  # of effect only before the first table
            execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise SpoolError(f"another process holds {path}: is a second agent running?") from None
            raise
        execute("PRAGMA synchronous = FULL")
        execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        (version,) = execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        elif version != SCHEMA_VERSION:
            raise SpoolError(
                f"{path} has format {version}, this version knows {SCHEMA_VERSION}: was it made by a newer one?"
            )
        elif path.stat().st_size <= QUICK_CHECK_MAX_BYTES:
            (verdict,) = execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                damage = sqlite3.DatabaseError(verdict)
                damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise damage

    def close(self) -> None:
        """Writes the WAL back and lets go of the file."""
        self._connection.close()

    def begin(self) -> None:
        """Begins a transaction."""
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Ends it; what it wrote is durable once this returns."""
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        """Undoes it, where SQLite has not already done so."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    # ------------------------------------------------------------ chains

    def chains(self) -> dict[int, tuple[ChainState, int, int | None]]:
        """By class: where the chain stands, the newest acknowledged seq, and when (wall clock) that was."""
        rows = self._connection.execute(
            "SELECT class, chain_id, seq, header_hash, last_event_ns, acknowledged, acknowledged_ns FROM chain"
        )
        return {row[0]: (ChainState(row[1], Tip(row[2], row[3]), row[4]), row[5], row[6]) for row in rows}

    def put_chain(self, batch_class: int, state: ChainState) -> None:
        """Begins a chain, in place of the one of this class."""
        self._connection.execute(
            "INSERT OR REPLACE INTO chain VALUES (?, ?, ?, ?, ?, 0, NULL)",
            (batch_class, state.chain_id, state.tip.seq, state.tip.header_hash, state.last_event_time_ns),
        )

    def move_chain(self, batch_class: int, state: ChainState) -> None:
        """Moves the tip."""
        self._connection.execute(
            "UPDATE chain SET seq = ?, header_hash = ?, last_event_ns = ? WHERE class = ?",
            (state.tip.seq, state.tip.header_hash, state.last_event_time_ns, batch_class),
        )

    # ------------------------------------------------------------ batches

    def insert(self, batch: SealedBatch) -> None:
        """Adds a batch behind the others of its class."""
        self._connection.execute(
            "INSERT INTO batch VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                batch.batch_class,
                batch.seq,
                batch.header,
                batch.payload,
                batch.signature,
                batch.first_event_time_ns,
                batch.newest_event_time_ns,
                batch.records,
                len(batch.payload),
            ),
        )

    def unsent(self, batch_class: int, after_seq: int, max_bytes: int, max_count: int) -> list[tuple[int, SignedBatch]]:
        """The next batches behind ``after_seq``; at least one where there is one."""
        found: list[tuple[int, SignedBatch]] = []
        size = 0
        rows = self._connection.execute(
            "SELECT seq, header, payload, signature FROM batch WHERE class = ? AND seq > ? ORDER BY seq LIMIT ?",
            (batch_class, after_seq, max_count),
        )
        for seq, header, payload, signature in rows:
            size += len(header) + len(payload) + len(signature)
            if found and size > max_bytes:
                break
            found.append((seq, SignedBatch(header=header, payload=payload, signature=signature)))
        rows.close()
        return found

    def oldest_ns(self, batch_class: int, after_seq: int) -> int | None:
        """First event time of the oldest batch behind ``after_seq``."""
        row = self._connection.execute(
            "SELECT first_ns FROM batch WHERE class = ? AND seq > ? ORDER BY seq LIMIT 1", (batch_class, after_seq)
        ).fetchone()
        return None if row is None else int(row[0])

    def size_bytes(self) -> int:
        """Of all batches kept."""
        (size,) = self._connection.execute(_TOTAL).fetchone()
        return int(size)

    def acknowledge(self, batch_class: int, through_seq: int, time_ns: int, max_count: int) -> int:
        """Deletes up to ``max_count`` batches that the collector has; the bytes freed."""
        self._connection.execute(
            "UPDATE chain SET acknowledged = ?, acknowledged_ns = ? WHERE class = ?",
            (through_seq, time_ns, batch_class),
        )
        chosen = "SELECT rowid FROM batch WHERE class = ? AND seq <= ? ORDER BY seq LIMIT ?"
        return self._delete(chosen, (batch_class, through_seq, max_count))

    def delete_oldest(self, batch_class: int, count: int) -> int:
        """Deletes whole batches, headers too; the bytes freed."""
        return self._delete("SELECT rowid FROM batch WHERE class = ? ORDER BY seq LIMIT ?", (batch_class, count))

    def _delete(self, chosen: str, values: Sequence[int]) -> int:
        (size,) = self._connection.execute(
            f"SELECT coalesce(sum({_SIZE}), 0) FROM batch WHERE rowid IN ({chosen})",  # noqa: S608 - our own text
            values,
        ).fetchone()
        if size:
            self._connection.execute(f"DELETE FROM batch WHERE rowid IN ({chosen})", values)  # noqa: S608
        return int(size)

    def oldest_held(self, batch_class: int, after_seq: int) -> Held | None:
        """The oldest batch behind ``after_seq`` that still has a payload."""
        row = self._connection.execute(
            "SELECT rowid, payload_bytes, records, first_ns, newest_ns FROM batch"
            " WHERE class = ? AND seq > ? AND payload_bytes > 0 ORDER BY seq LIMIT 1",
            (batch_class, after_seq),
        ).fetchone()
        return None if row is None else Held(*row)

    def drop_payload(self, row: int) -> None:
        """Keeps the header, lets the payload go."""
        self._connection.execute("UPDATE batch SET payload = x'', payload_bytes = 0 WHERE rowid = ?", (row,))

    def unsent_span(self, batch_class: int, after_seq: int) -> tuple[int, int | None, int | None]:
        """Records with payload behind ``after_seq``, their oldest and newest event time."""
        row = self._connection.execute(
            "SELECT coalesce(sum(records), 0), min(first_ns), max(newest_ns) FROM batch"
            " WHERE class = ? AND seq > ? AND payload_bytes > 0",
            (batch_class, after_seq),
        ).fetchone()
        return int(row[0]), row[1], row[2]

    def give_back(self) -> None:
        """Returns some freed pages to the file system, once there are more than a flush or two will fill again."""
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        if free < 4 * VACUUM_PAGES:
            return
        # executescript runs the statement to its end; execute would free one page and stop.
        self._connection.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")

    # ------------------------------------------------------------ gaps and counts

    def add_gap(self, gap: result.Gap) -> None:
        """Notes what was lost, until a record of it is in the chain."""
        self._connection.execute(
            "INSERT INTO gap (class, reason, from_ns, to_ns, records, detail) VALUES (?, ?, ?, ?, ?, ?)",
            (gap.batch_class, gap.reason, gap.from_time_ns, gap.to_time_ns, gap.records, gap.detail),
        )

    def gaps(self) -> list[tuple[int, result.Gap]]:
        """What was lost and is not yet in the chain, by id."""
        rows = self._connection.execute(
            "SELECT id, reason, class, from_ns, to_ns, records, detail FROM gap ORDER BY id"
        )
        return [(row[0], result.Gap(*row[1:])) for row in rows]

    def settle_gaps(self, ids: Sequence[int]) -> None:
        """Forgets gaps whose record is in the chain."""
        self._connection.executemany("DELETE FROM gap WHERE id = ?", [(identity,) for identity in ids])

    def dropped(self) -> int:
        """Records lost since the spool was made."""
        row = self._connection.execute("SELECT value FROM counter WHERE name = 'dropped'").fetchone()
        if row is None:
            raise MissingRowError("the row 'dropped' is missing")
        (value,) = row
        return int(value)

    def set_dropped(self, value: int) -> None:
        """Keeps the count."""
        self._connection.execute("UPDATE counter SET value = ? WHERE name = 'dropped'", (value,))
