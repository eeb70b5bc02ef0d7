"""The log itself: appending from an event loop, reading from any thread.

A batch's future is done when its frame is synced and indexed, never before. Whoever had a batch in a group that failed
cannot go on with the same ``Appender``: otherwise batch n + 1 could become durable behind a lost batch n and be
acknowledged.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from pathlib import Path

from collector.log.day_files import DayFiles
from collector.log.disk import Disk
from collector.log.entry import Arrival, ChainKey, ChainState, Kept, LogError, LogUnavailableError
from collector.log.index import Index
from collector.log.reading import MAX_READ_BYTES, LogReader
from collector.log.recovery import Recovered, recover
from collector.log.writer import LogStatistics, Waiting, Writer
from collector.model import LogEntry

BACKLOG_LIMIT_BYTES = 64 * 1024 * 1024
GATHER_S = 0.002
_SHOWN_DAMAGES = 5

logger = logging.getLogger(__name__)
Future = asyncio.Future[int]


class Appender:
    """One writer's way into the log (a stream, the control chain): its batches become durable in their order, and
    after the first failure none does any more."""

    def __init__(self, log: "Log") -> None:
        self._log = log
        self.failure: LogError | None = None  # set by the writer thread before any future of the group fails

    def append(self, arrival: Arrival) -> Future:
        """Hands a batch over; the future gives its position once it is durable, or LogError. Never blocks."""
        return self._log.submit(arrival, self)


class Log:
    """An open log. ``append`` belongs to one event loop; reading is for any thread."""

    def __init__(self, directory: Path, index: Index, disk: Disk, lock: int, recovered: Recovered) -> None:
        """Use ``open``."""
        self.recovered = recovered
        self._lock = lock
        self._reader = LogReader(directory, directory / "index.sqlite")
        self._backlog_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._closing = False
        files = DayFiles(directory, disk, index.ends())
        self._writer = Writer(directory, index, files, gather_s=GATHER_S, settle=self._settle)

    @classmethod
    def open(cls, directory: Path, *, disk: Disk | None = None) -> "Log":
        """Opens or creates the log and puts it in order.

        Raises:
            LogUnavailableError: no right to write there, no room, or another collector has it open.
        """
        disk = disk or Disk()
        with contextlib.ExitStack() as undo:
            try:
                directory.mkdir(mode=0o750, parents=True, exist_ok=True)
                lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
                undo.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                index, damage = _open_index(directory / "index.sqlite")
                undo.callback(index.close)
                recovered = recover(directory, index, disk)
                recovered.damaged += damage
                log = cls(directory, index, disk, lock, recovered)
            except BlockingIOError:
                raise LogUnavailableError(f"{directory}: another collector has this log open") from None
            except (OSError, sqlite3.Error) as error:
                raise LogUnavailableError(f"{directory}: the log cannot be opened: {error}") from error
            undo.pop_all()
            return log

    @property
    def last_position(self) -> int:
        """Of the newest durable entry."""
        return self._writer.position

    @property
    def statistics(self) -> LogStatistics:
        return self._writer.statistics

    @property
    def failing(self) -> LogError | None:
        """Why the newest group could not be written; None while all is well."""
        return self._writer.failing

    @property
    def alive(self) -> bool:
        """Whether the writer thread runs."""
        return self._writer.alive

    @property
    def damages(self) -> list[str]:
        """What was found damaged at the start and since, in words; at most a few."""
        found = self.recovered.damaged
        more = [f"{len(found) - _SHOWN_DAMAGES} more at this start"] if len(found) > _SHOWN_DAMAGES else []
        unreadable = [f"{self.unreadable} entries could not be read back"] if self.unreadable else []
        return [*found[:_SHOWN_DAMAGES], *more, *unreadable]

    @property
    def unreadable(self) -> int:
        """Entries whose bytes turned out to be damaged or gone."""
        return self._reader.unreadable

    def appender(self) -> Appender:
        return Appender(self)

    async def room(self) -> None:
        """Returns once less than BACKLOG_LIMIT_BYTES wait: call it before taking in more."""
        await self._room.wait()

    def submit(self, arrival: Arrival, appender: Appender) -> Future:
        """See ``Appender.append``."""
        future: Future = asyncio.get_running_loop().create_future()
        if self._closing or not self.alive:
            appender.failure = LogError("closed", "the log is closed")
            future.set_exception(appender.failure)
            return future
        encoded = arrival.batch.SerializeToString()
        self._backlog_bytes += len(encoded)
        if self._backlog_bytes > BACKLOG_LIMIT_BYTES:
            self._room.clear()
        self._writer.put(Waiting(arrival, encoded, appender, future))
        return future

    def read(self, after_position: int, limit: int, max_bytes: int = MAX_READ_BYTES) -> list[LogEntry]:
        """Entries behind ``after_position`` in order: at most ``limit`` and about ``max_bytes``. Any thread."""
        return self._reader.after(after_position, limit, max_bytes)

    def newest_of(self, key: ChainKey, before_seq: int, limit: int) -> list[LogEntry]:
        """Entries of one chain with numbers below ``before_seq``, newest first. Any thread."""
        return self._reader.newest_of(key, before_seq, limit)

    def of_events(
        self, agent_id: str, batch_class: int, span: tuple[int, int], after: tuple[int, int], limit: int
    ) -> tuple[list[LogEntry], tuple[int, int] | None]:
        """Entries of an agent by event time, and where to go on; see ``LogReader.of_events``. Any thread."""
        return self._reader.of_events(agent_id, batch_class, span, after, limit)

    def header_hashes(self, after_position: int, limit: int) -> list[tuple[int, bytes]]:
        """Position and header hash of entries behind ``after_position``, in order. Any thread."""
        return self._reader.header_hashes(after_position, limit)

    def leaf_of(self, key: ChainKey, seq: int) -> tuple[int, bytes] | None:
        """Place among all entries (from 0) and hash of the first header with this number of a chain. Any thread."""
        return self._reader.leaf_of(key, seq)

    def kept(self, key: ChainKey, seq: int) -> list[Kept]:
        """Each durable entry with this number, in order. Any thread."""
        return self._reader.kept(key, seq)

    def tips(self) -> dict[ChainKey, ChainState]:
        """Where each chain ends. Any thread."""
        return self._reader.tips()

    def close(self) -> None:
        """Makes durable what waits, then closes everything. Blocks."""
        self._closing = True
        self._writer.close()
        self._reader.close()
        os.close(self._lock)

    def _settle(self, group: list[Waiting]) -> None:
        """In the writer thread."""
        loops: dict[asyncio.AbstractEventLoop, list[Waiting]] = {}
        for waiting in group:
            loops.setdefault(waiting.future.get_loop(), []).append(waiting)
        for loop, waited in loops.items():
            try:
                loop.call_soon_threadsafe(self._deliver, waited)
            except RuntimeError:  # the loop is closed: nobody waits any more
                logger.info("log: the fate of %d batches was known after their loop had ended", len(waited))

    def _deliver(self, waited: list[Waiting]) -> None:
        for waiting in waited:
            self._backlog_bytes -= len(waiting.encoded)
            if waiting.future.done():  # cancelled
                continue
            if waiting.position is not None:
                waiting.future.set_result(waiting.position)
            else:
                assert waiting.order.failure is not None
                waiting.future.set_exception(waiting.order.failure)
        if self._backlog_bytes <= BACKLOG_LIMIT_BYTES:
            self._room.set()


def _open_index(path: Path) -> tuple[Index, list[str]]:
    """The index; a damaged one is moved aside and built anew from the frames, and that is told."""
    try:
        return Index(path), []
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        words = f"the index is damaged ({error}); it is kept as {aside.name} and built anew"
        logger.error("log: %s", words)
        path.rename(aside)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        return Index(path), [words]
