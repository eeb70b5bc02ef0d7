"""The writer thread: everything that waits becomes durable at once.

Everything that waits when the thread looks is one group: one write and one ``fdatasync`` a file, one index
transaction. When a group fails nothing of it is kept, and whoever had a batch in it is marked as failed before any of
its futures is.
"""

import asyncio
import errno
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from collector.log import frame
from collector.log.day_files import DayFiles, file_name
from collector.log.entry import Arrival, LogError
from collector.log.index import Index, Written

_GROUP_LIMIT = 2048
_GROUP_LIMIT_BYTES = 32 * 1024 * 1024

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LogStatistics:
    """Since the start."""

    entries: int = 0
    bytes: int = 0
    groups: int = 0
    failures: int = 0
    commit_s: float = 0.0  # spent on groups that became durable


class Order(Protocol):
    """Whose batches must become durable in their order, and none behind one that did not."""

    failure: LogError | None


@dataclass(slots=True)
class Waiting:
    """A batch on its way."""

    arrival: Arrival
    encoded: bytes
    order: Order
    future: "asyncio.Future[int]"  # the submitter's; only ``settle`` touches it
    position: int | None = None  # once it is durable


class Writer:
    """Owns the day files and the writing connection of the index."""

    def __init__(
        self,
        directory: Path,
        index: Index,
        files: DayFiles,
        *,
        gather_s: float,
        settle: Callable[[list[Waiting]], None],
    ) -> None:
        """
        Args:
            directory: for messages.
            index: used by the thread alone from here on.
            files: likewise.
            gather_s: the thread looks this often at most; batches that come in between share a sync.
            settle: called in the thread with each group once its fate is known: ``position`` is set, or
                ``order.failure``.
        """
        self.statistics = LogStatistics()
        self.failing: LogError | None = None  # why the newest group failed; None once one succeeded
        self.position = index.last_position()
        self._directory = directory
        self._index = index
        self._files = files
        self._gather_s = gather_s
        self._settle = settle
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def put(self, waiting: Waiting) -> None:
        self._queue.put(waiting)

    def close(self) -> None:
        """Makes durable what waits, then ends. Blocks."""
        self._queue.put(None)
        self._thread.join()
        self._index.close()
        self._files.abandon()

    def _run(self) -> None:
        look_at = 0.0
        while (first := self._queue.get()) is not None:
            if (early := look_at - time.monotonic()) > 0:
                time.sleep(early)
            group, last = self._gather(first)
            self._commit(group)
            self._settle(group)
            if last:
                return
            look_at = time.monotonic() + self._gather_s

    def _gather(self, first: Waiting) -> tuple[list[Waiting], bool]:
        """Everything that waits, within limits; and whether the log is to close behind it."""
        group, size = [first], len(first.encoded)
        while len(group) < _GROUP_LIMIT and size < _GROUP_LIMIT_BYTES:
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                break
            if waiting is None:
                return group, True
            group.append(waiting)
            size += len(waiting.encoded)
        return group, False

    def _commit(self, group: list[Waiting]) -> None:
        started = time.monotonic()
        live = [waiting for waiting in group if waiting.order.failure is None]
        if not live:
            return
        try:
            written = self._write(live)
            self._index.add(written)
        except (OSError, sqlite3.Error) as error:
            self._fail(error, live)
            return
        for waiting, entry in zip(live, written, strict=True):
            self._files.keep(entry.file, entry.offset + entry.length)
            waiting.position = entry.position
        self.position += len(live)
        self.statistics.entries += len(live)
        self.statistics.bytes += sum(entry.length for entry in written)
        self.statistics.groups += 1
        self.statistics.commit_s += time.monotonic() - started
        if self.failing is not None:
            logger.warning("log: writing goes on")
            self.failing = None

    def _write(self, batches: list[Waiting]) -> list[Written]:
        """Frames of all, in one write and one sync a file; places in the order of ``batches``."""
        frames: dict[str, list[tuple[int, bytes]]] = {}
        for number, waiting in enumerate(batches):
            arrival = waiting.arrival
            name = file_name(arrival.key.batch_class, arrival.received_time_ns)
            encoded = frame.encode(
                self.position + 1 + number,
                arrival.received_time_ns,
                arrival.source,
                arrival.quarantine,
                waiting.encoded,
            )
            frames.setdefault(name, []).append((number, encoded))
        written: dict[int, Written] = {}
        for name, of_file in frames.items():
            offset = self._files.write(name, [encoded for _, encoded in of_file])
            for number, encoded in of_file:
                written[number] = Written(
                    batches[number].arrival, self.position + 1 + number, name, offset, len(encoded)
                )
                offset += len(encoded)
        self._files.close_before(min(name.rpartition("/")[2] for name in frames))
        return [written[number] for number in range(len(batches))]

    def _fail(self, error: OSError | sqlite3.Error, live: list[Waiting]) -> None:
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "full" in str(error)
        failure = LogError("disk_full" if full else "write_failed", f"{self._directory}: {error}")
        if self.failing is None:
            logger.error("log: %s; nothing is acknowledged until it can be written again", failure)
        self.failing = failure
        self.statistics.failures += 1
        for waiting in live:
            waiting.order.failure = failure
        self._files.abandon()
        try:
            self._index.reload()
        except sqlite3.Error as again:
            logger.error("log: the index does not answer: %s", again)
