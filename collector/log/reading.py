"""Reading the log back while it is written. Any thread; one read at a time."""

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.message import DecodeError

from bandwitness.v1.record_pb2 import SignedBatch
from collector.log import frame
from collector.log.entry import ChainKey, ChainState, Kept
from collector.log.index import Index, Place, side_by_side
from collector.model import LogEntry

_MAX_OPEN_FILES = 16
MAX_READ_BYTES = 64 * 1024 * 1024

logger = logging.getLogger(__name__)


class LogReader:
    """A connection to the index and descriptors of day files."""

    def __init__(self, directory: Path, index_path: Path) -> None:
        self._directory = directory
        self._index = Index(index_path, read_only=True)
        self._descriptors: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()
        self.unreadable = 0  # entries whose bytes are damaged or gone

    def close(self) -> None:
        with self._lock:
            self._index.close()
            while self._descriptors:
                os.close(self._descriptors.popitem()[1])

    def after(self, position: int, limit: int, max_bytes: int = MAX_READ_BYTES) -> list[LogEntry]:
        """Entries behind ``position`` in order: at most ``limit`` and about ``max_bytes``, at least one if there is
        one. What can no longer be read (pruned or damaged) is left out and counted."""
        with self._lock:
            while True:
                places = _bounded(self._index.after(position, limit), max_bytes)
                entries = self._read(places)
                if entries or not places:
                    return entries
                position = places[-1].position  # nothing of these is left

    def newest_of(self, key: ChainKey, before_seq: int, limit: int) -> list[LogEntry]:
        """Entries of one chain with numbers below ``before_seq``, newest first."""
        with self._lock:
            entries = self._read(self._index.newest_of(key, before_seq, limit))
        return sorted(entries, key=lambda entry: -entry.seq)

    def of_events(
        self, agent_id: str, batch_class: int, span: tuple[int, int], after: tuple[int, int], limit: int
    ) -> tuple[list[LogEntry], tuple[int, int] | None]:
        """Entries of an agent that stand in their chains and whose newest event lies in ``[from, to)``, by that time
        and position, behind ``after``; and where to go on, None at the end. What cannot be read is left out."""
        with self._lock:
            places = self._index.of_events(agent_id, batch_class, span, after, limit)
            entries = {entry.position: entry for entry in self._read([place for _, place in places])}
        ordered = [entries[place.position] for _, place in places if place.position in entries]
        return ordered, (places[-1][0], places[-1][1].position) if len(places) == limit else None

    def header_hashes(self, after_position: int, limit: int) -> list[tuple[int, bytes]]:
        """Position and header hash of entries behind ``after_position``, in order."""
        with self._lock:
            return self._index.header_hashes(after_position, limit)

    def leaf_of(self, key: ChainKey, seq: int) -> tuple[int, bytes] | None:
        """Place among all entries (from 0) and hash of the first header with this number of a chain."""
        with self._lock:
            return self._index.leaf_of(key, seq)

    def kept(self, key: ChainKey, seq: int) -> list[Kept]:
        """Each entry with this number, in order."""
        with self._lock:
            return self._index.kept(key, seq)

    def tips(self) -> dict[ChainKey, ChainState]:
        """Where each chain ends."""
        with self._lock:
            return self._index.tips()

    def _read(self, places: Sequence[Place]) -> list[LogEntry]:
        entries = []
        for run in side_by_side(places):
            start = run[0].offset
            content = self._bytes(run[0].file, start, run[-1].offset + run[-1].length - start)
            for place in run:
                entry = _entry(place, content, place.offset - start)
                if entry is None:
                    self.unreadable += 1
                    logger.error("log: entry %d in %s at %d is damaged", place.position, place.file, place.offset)
                else:
                    entries.append(entry)
        entries.sort(key=lambda entry: entry.position)
        return entries

    def _bytes(self, name: str, offset: int, length: int) -> bytes:
        if name not in self._descriptors:
            try:
                self._descriptors[name] = os.open(self._directory / name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b""
            if len(self._descriptors) > _MAX_OPEN_FILES:
                os.close(self._descriptors.popitem(last=False)[1])
        self._descriptors.move_to_end(name)
        return os.pread(self._descriptors[name], length, offset)


def _bounded(places: list[Place], max_bytes: int) -> list[Place]:
    total = 0
    for count, place in enumerate(places):
        total += place.length
        if total > max_bytes and count:
            return places[:count]
    return places


def _entry(place: Place, content: bytes, offset: int) -> LogEntry | None:
    if offset >= len(content):
        return None
    found = frame.decode(memoryview(content)[: offset + place.length], offset)
    if not isinstance(found, frame.Frame) or found.position != place.position:
        return None
    try:
        batch = SignedBatch.FromString(found.batch)
    except DecodeError:
        return None
    return LogEntry(
        position=place.position,
        received_time_ns=place.received_time_ns,
        agent_id=place.agent_id,
        chain_id=place.chain_id,
        batch_class=place.batch_class,
        seq=place.seq,
        quarantine=place.quarantine,
        header=batch.header,
        payload=batch.payload,
        signature=batch.signature,
    )
