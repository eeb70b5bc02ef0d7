"""The rules of the spool: order, limits, a full disk, a damaged file. Blocking; runs in the spool's one thread.

What can go wrong with a disk is not allowed to stop measuring. While nothing can be written, batches wait in a bounded
buffer in memory; past its bound their payloads go (telemetry first), and past it with headers alone nothing more is
accepted. Every loss is noted as a gap, in the same transaction as the loss itself, and stays noted until the batch
with its record is in the file. Writing resumes with the first append that succeeds.

Where the file cannot even be opened at the start (a full or read-only disk), nobody knows which chains are to be
continued. Chains for the time being stand in then, nothing is sealed under them (``opened``), and each append tries
again.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agent import result
from agent.record import ChainState, SealedBatch
from agent.spool.database import (
    Connect,
    Database,
    SpoolError,
    connect,
    is_corrupt,
    is_disk_trouble,
    is_foreign,
    is_full,
)
from agent.spool.retention import DROP_ORDER, Limits, Notes, keep_limits, merge
from bandwitness.chain import ORIGIN, Tip, header_hash
from bandwitness.v1.record_pb2 import (
    GAP_REASON_DISK_FULL,
    GAP_REASON_SPOOL_FAULT,
    SignedBatch,
)

DELETE_COUNT = 20_000  # acknowledged batches deleted in one transaction


@dataclass(frozen=True, slots=True)
class SpoolStats:
    """How the spool stands after the last thing it did. ``state``: ok, disk_full or spool_fault."""

    bytes: int
    oldest_time_ns: int | None  # event time of the oldest batch that waits
    dropped: int  # records lost since the spool was made
    state: str = "ok"
    detail: str = ""
    gaps: int = 0  # noted and not yet in the chain


class StaleChainError(Exception):
    """A batch does not continue the chain of the spool: it was sealed before the chain was begun anew."""


class Core:
    """All of the spool but its thread. ``wall_ns``, ``random_bytes``, ``connect`` and ``free_bytes`` are the world."""

    def __init__(
        self,
        path: Path,
        limits: Limits,
        *,
        wall_ns: Callable[[], int],
        random_bytes: Callable[[int], bytes] = os.urandom,
        connect: Connect = connect,
        free_bytes: Callable[[Path], int],
    ) -> None:
        self._path = path
        self._limits = limits
        self._wall_ns = wall_ns
        self._random_bytes = random_bytes
        self._connect = connect
        self._free_bytes = free_bytes
        self._database: Database | None = None
        self._chains: dict[int, ChainState] = {}  # as the next batch must continue them: held ones included
        self._durable: dict[int, ChainState] = {}  # as the file should have them
        self._acknowledged: dict[int, tuple[int, int | None]] = {}  # seq and wall time, maybe ahead of the file
        self._held: list[SealedBatch] = []
        self._settled: set[int] = set()
        self._notes: Notes = {}  # gaps that are not in the file yet
        self._dropped = 0
        self._size_bytes = 0
        self._state, self._detail = "ok", ""
        self.stats = SpoolStats(0, None, 0)

    # ------------------------------------------------------------ opening

    def open(self) -> None:
        """Opens or makes the file; moves a damaged one aside. A disk that is full, fails or is read-only is waited for.

        Raises:
            SpoolError: there is no way to keep anything: no directory, no right, another agent.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connect_database()
            except sqlite3.DatabaseError as error:
                if not (is_corrupt(error) or is_foreign(error)):
                    raise
                self._replace_file(str(error))
        except sqlite3.Error as error:
            if not is_disk_trouble(error) or not self._may_write():
                raise SpoolError(f"cannot open the spool {self._path}: {error}") from error
            self._chains = {batch_class: self._new_chain(0) for batch_class in DROP_ORDER}
            self._acknowledged = dict.fromkeys(DROP_ORDER, (0, None))
            self._on_error(error)
        except OSError as error:
            raise SpoolError(f"cannot open the spool {self._path}: {error}") from error
        self._publish()

    def _may_write(self) -> bool:
        """Whether it is the disk and not our rights that stands in the way."""
        read_only = os.statvfs(self._path.parent).f_flag & os.ST_RDONLY
        return bool(read_only) or os.access(self._path.parent, os.W_OK)

    @property
    def opened(self) -> bool:
        """Whether the chains are those of the file. False only from a start on a bad disk until it is well."""
        return bool(self._durable)

    def close(self) -> None:
        """Tries once more to write what waits, then lets go of the file."""
        if self._held or self._notes:
            self._write()
        self._drop_connection()

    def _connect_database(self) -> None:
        database = Database(self._path, self._connect)
        try:
            kept = database.chains()
            missing = [batch_class for batch_class in DROP_ORDER if batch_class not in kept]
            if missing:
                database.begin()
                for batch_class in missing:
                    database.put_chain(batch_class, self._new_chain(0))
                database.commit()
                kept = database.chains()
            size_bytes, dropped = database.size_bytes(), database.dropped()
        except BaseException:
            database.close()
            raise
        self._database = database
        self._size_bytes, self._dropped = size_bytes, max(self._dropped, dropped)
        if self._durable:
            self._compare(database, {batch_class: state for batch_class, (state, _, _) in kept.items()})
        else:
            self._chains = {batch_class: state for batch_class, (state, _, _) in kept.items()}
            self._acknowledged = {batch_class: (seq, at_ns) for batch_class, (_, seq, at_ns) in kept.items()}
            self._durable = dict(self._chains)

    def _compare(self, database: Database, kept: dict[int, ChainState]) -> None:
        """After the file was opened anew: goes on where it is the one that was left, else begins new chains."""
        for batch_class, state in kept.items():
            if state == self._durable[batch_class]:
                continue
            if state == self._chains[batch_class]:  # the commit that reported a fault had reached the disk
                self._held = [batch for batch in self._held if batch.batch_class != batch_class]
                self._durable[batch_class] = state
            else:
                self._renew(database, batch_class, "the file of the spool is not the one that was being written")

    def _new_chain(self, last_event_time_ns: int) -> ChainState:
        return ChainState(self._random_bytes(16), ORIGIN, last_event_time_ns)

    def _drop_connection(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _replace_file(self, why: str) -> None:
        """Moves a damaged file aside, keeping one such, and begins new chains in a new one."""
        self._drop_connection()
        changed_ns = self._path.stat().st_mtime_ns
        for older in self._path.parent.glob(f"{self._path.name}.damaged-*"):
            older.unlink()
        aside = self._path.with_name(f"{self._path.name}.damaged-{self._wall_ns()}")
        self._path.rename(aside)
        for suffix in ("-wal", "-shm", "-journal"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        before, oldest_ns = self._chains, self.stats.oldest_time_ns
        held, self._held = self._held, []
        self._settled.clear()
        self._durable = {}
        self._connect_database()
        assert self._database is not None
        now_ns = self._wall_ns()
        detail = f"the spool was damaged ({why}) and moved to {aside.name}; what had not been acknowledged is lost"
        for batch_class in DROP_ORDER:
            was = before.get(batch_class)
            known_ns = min(at for at in (oldest_ns, was and was.last_event_time_ns, changed_ns, now_ns) if at)
            self._note(result.Gap(GAP_REASON_SPOOL_FAULT, batch_class, known_ns, now_ns, None, detail))
        self._dropped += sum(batch.records for batch in held)
        self._database.begin()
        for gap in self._notes.values():
            self._database.add_gap(gap)
        self._database.set_dropped(self._dropped)
        self._database.commit()
        self._notes.clear()

    # ------------------------------------------------------------ what the spool is asked to do

    def append(self, batches: Sequence[SealedBatch], settled_gaps: Sequence[int] = ()) -> None:
        """Keeps batches, in order. Durable on return, unless ``stats.state`` says otherwise.

        Args:
            batches: each behind the tip of its chain; none is fine: what waits in memory is tried again.
            settled_gaps: ids of gaps whose records are in these batches.

        Raises:
            StaleChainError: a batch does not continue its chain; nothing was taken.
        """
        tips = dict(self._chains)
        for batch in batches:
            state = tips[batch.batch_class]
            if (batch.chain_id, batch.seq, batch.previous_header_hash) != (
                state.chain_id,
                state.tip.seq + 1,
                state.tip.header_hash,
            ):
                raise StaleChainError(
                    f"seq {batch.seq} of class {batch.batch_class} does not continue the spool's chain"
                )
            tip = Tip(batch.seq, header_hash(batch.header))
            tips[batch.batch_class] = ChainState(state.chain_id, tip, batch.last_event_time_ns)
        self._chains = tips
        self._held.extend(batches)
        self._settled.update(settled_gaps)
        self._write()
        self._publish()

    def acknowledge(self, batch_class: int, chain_id: bytes, seq: int, time_ns: int) -> None:
        """Notes that the collector has everything up to ``seq``; deleted with the next append. Never goes back."""
        state = self._chains[batch_class]
        if state.chain_id == chain_id and self._acknowledged[batch_class][0] <= seq <= state.tip.seq:
            self._acknowledged[batch_class] = (seq, time_ns)

    def acknowledged(self) -> dict[int, tuple[int, int | None]]:
        """By class: newest acknowledged seq, and when (wall clock)."""
        return dict(self._acknowledged)

    def chains(self) -> dict[int, ChainState]:
        """By class: what the next batch continues."""
        return dict(self._chains)

    def unsent(self, batch_class: int, after_seq: int, max_bytes: int, max_count: int) -> list[tuple[int, SignedBatch]]:
        """Batches in the file behind ``after_seq`` and behind what was acknowledged."""
        try:
            if self._database is None:
                return []
            after_seq = max(after_seq, self._acknowledged[batch_class][0])
            return self._database.unsent(batch_class, after_seq, max_bytes, max_count)
        except sqlite3.Error as error:
            self._on_error(error)
            self._publish()
            return []

    def gaps(self) -> list[tuple[int, result.Gap]]:
        """What was lost and has no record in the chain yet; only where a record could now be written."""
        try:
            if self._database is None or self._state != "ok":
                return []
            return self._database.gaps()
        except sqlite3.Error as error:
            self._on_error(error)
            self._publish()
            return []

    def lose(self, gap: result.Gap) -> None:
        """Notes records that never became a batch, because none was accepted."""
        self._dropped += gap.records or 0
        self._note(gap)
        self._publish()

    def renew_chain(self, batch_class: int, why: str) -> None:
        """Begins a new chain because the old one cannot go on (the collector has more of it than we do)."""
        if self._database is None:
            return  # asked again at the next connection
        try:
            self._renew(self._database, batch_class, why)
        except sqlite3.Error as error:
            self._on_error(error)
        self._publish()

    def _renew(self, database: Database, batch_class: int, why: str) -> None:
        state = self._chains[batch_class]
        renewed = self._new_chain(state.last_event_time_ns)
        database.begin()
        records, first_ns, newest_ns = database.unsent_span(batch_class, self._acknowledged[batch_class][0])
        database.delete_oldest(batch_class, -1)
        database.put_chain(batch_class, renewed)
        lost = [batch for batch in self._held if batch.batch_class == batch_class]
        records += sum(batch.records for batch in lost if batch.payload)
        at_ns = state.last_event_time_ns
        gap = result.Gap(
            GAP_REASON_SPOOL_FAULT, batch_class, first_ns or at_ns, max(newest_ns or 0, at_ns), records, why
        )
        database.add_gap(gap)
        database.set_dropped(self._dropped + records)
        database.commit()
        self._dropped += records
        self._held = [batch for batch in self._held if batch.batch_class != batch_class]
        self._chains = self._chains | {batch_class: renewed}
        self._durable[batch_class] = renewed
        self._acknowledged = self._acknowledged | {batch_class: (0, None)}
        self._size_bytes = database.size_bytes()

    @property
    def accepting(self) -> bool:
        """False once even the headers that wait in memory fill it."""
        return self.opened and sum(batch.size_bytes for batch in self._held) < self._limits.memory_bytes

    # ------------------------------------------------------------ writing

    def _write(self) -> None:
        """One transaction with all that is due. On failure nothing of it has happened and the rest waits."""
        try:
            if self._database is None:
                self._connect_database()
            assert self._database is not None
            room = self._free_bytes(self._path.parent) >= self._limits.reserve_bytes
            size_bytes = self._transaction(self._database, with_batches=room)
        except (sqlite3.Error, SpoolError, OSError) as error:
            self._on_error(error)
            return
        self._size_bytes = size_bytes
        with suppress(sqlite3.Error):  # a full disk is met by the next write too
            self._database.give_back()
        if room:
            self._state, self._detail = "ok", ""
        else:
            self._wait_in_memory("disk_full", f"less than {self._limits.reserve_bytes} bytes are free")

    def _transaction(self, database: Database, *, with_batches: bool) -> int:
        notes = dict(self._notes)
        dropped = self._dropped
        database.begin()
        size_bytes = self._size_bytes
        for batch_class, (seq, at_ns) in self._acknowledged.items():
            if at_ns is not None:
                size_bytes -= database.acknowledge(batch_class, seq, at_ns, DELETE_COUNT)
        if with_batches:
            for batch in self._held:
                database.insert(batch)
                size_bytes += batch.size_bytes
            for batch_class, state in self._chains.items():
                database.move_chain(batch_class, state)
            database.settle_gaps(sorted(self._settled))
            acknowledged = {batch_class: seq for batch_class, (seq, _) in self._acknowledged.items()}
            size_bytes, lost = keep_limits(
                database, self._limits, size_bytes, acknowledged=acknowledged, now_ns=self._wall_ns(), notes=notes
            )
            dropped += lost
            for gap in notes.values():
                database.add_gap(gap)
            database.set_dropped(dropped)
        database.commit()
        if with_batches:
            self._held.clear()
            self._settled.clear()
            self._notes.clear()
            self._dropped = dropped
            self._durable = dict(self._chains)
        return size_bytes

    # ------------------------------------------------------------ what goes wrong

    def _on_error(self, error: Exception) -> None:
        if self._database is not None and isinstance(error, sqlite3.Error):
            try:
                self._database.rollback()
            except sqlite3.Error:
                self._drop_connection()
        if isinstance(error, sqlite3.Error) and is_corrupt(error):
            try:
                self._replace_file(str(error))
            except (sqlite3.Error, SpoolError, OSError) as second:
                self._wait_in_memory("spool_fault", f"the spool is damaged and cannot be replaced: {second}")
        elif isinstance(error, sqlite3.Error) and is_full(error):
            self._wait_in_memory("disk_full", str(error))
        else:
            # A disk that fails or went read-only: opened anew at the next try, which may be all it takes.
            self._drop_connection()
            self._wait_in_memory("spool_fault", str(error))

    def _wait_in_memory(self, state: str, detail: str) -> None:
        """Names the state and trims the buffer to its bound: payloads go, telemetry first, headers stay."""
        self._state, self._detail = state, detail
        over_bytes = sum(batch.size_bytes for batch in self._held) - self._limits.memory_bytes
        reason = GAP_REASON_DISK_FULL if state == "disk_full" else GAP_REASON_SPOOL_FAULT
        for batch_class in DROP_ORDER:
            for index, batch in enumerate(self._held):
                if over_bytes <= 0:
                    return
                if batch.batch_class != batch_class or not batch.payload:
                    continue
                self._held[index] = replace(batch, payload=b"")
                over_bytes -= len(batch.payload)
                self._dropped += batch.records
                first_ns, newest_ns = batch.first_event_time_ns, batch.newest_event_time_ns
                self._note(
                    result.Gap(reason, batch_class, first_ns, newest_ns, batch.records, "nothing could be written")
                )

    def _note(self, gap: result.Gap) -> None:
        merge(self._notes, gap)

    def _publish(self) -> None:
        oldest: list[int] = []
        gaps = len(self._notes)
        with suppress(sqlite3.Error):  # the next write meets the fault again, and names it
            if self._database is not None:
                for batch_class, (seq, _) in self._acknowledged.items():
                    at_ns = self._database.oldest_ns(batch_class, seq)
                    oldest += [] if at_ns is None else [at_ns]
                gaps += len(self._database.gaps())
        oldest += [batch.first_event_time_ns for batch in self._held]
        held_bytes = sum(batch.size_bytes for batch in self._held)
        self.stats = SpoolStats(
            bytes=self._size_bytes + held_bytes,
            oldest_time_ns=min(oldest, default=None),
            dropped=self._dropped,
            state=self._state,
            detail=self._detail,
            gaps=gaps,
        )
