"""Putting the log in order at the start: frames that the index does not know are indexed, a torn tail is cut.

A kill can fall between writing, syncing and indexing. Whatever was acknowledged is whole and synced; behind it there
may be whole frames that nobody was told of (kept: the agent sends them again and they are known) and one torn one
(cut, its bytes kept beside the file).
"""

import logging
import mmap
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError

from bandwitness.v1.record_pb2 import SignedBatch
from collector.log import frame
from collector.log.day_files import SUFFIX
from collector.log.disk import Disk
from collector.log.entry import arrival
from collector.log.frame import Damage, Frame
from collector.log.index import Index, Written

_CHUNK = 4096  # entries in one transaction

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Recovered:
    """What the start found."""

    indexed: int = 0
    cut_bytes: int = 0
    damaged: list[str] = field(default_factory=list)  # in words, for people


def recover(directory: Path, index: Index, disk: Disk) -> Recovered:
    """Brings index and day files together.

    Raises:
        OSError, sqlite3.Error: the disk does not let it.
    """
    result = Recovered()
    ends = index.ends()
    for path in sorted(directory.glob(f"*/*{SUFFIX}")):  # day after day in each class, so a chain is met in its order
        name = f"{path.parent.name}/{path.name}"
        damages = _index_file(path, name, ends.get(name, 0), index, result)
        for damage in damages:
            _set_aside(path, damage, disk, result)
    for name, end in ends.items():
        if end and not (directory / name).exists():
            result.damaged.append(f"{name} is gone: {end} bytes of it were indexed and cannot be read")
    for words in result.damaged:
        logger.warning("log: %s", words)
    return result


def _index_file(path: Path, name: str, indexed_end: int, index: Index, result: Recovered) -> list[Damage]:
    """Indexes what stands behind ``indexed_end``; gives back what is no frame."""
    size = path.stat().st_size
    if size < indexed_end:
        result.damaged.append(f"{name} has {size} bytes, {indexed_end} were indexed: what is missing cannot be read")
    start = max(indexed_end, len(frame.MAGIC))
    if size <= start:
        return []
    waiting: list[Written] = []
    damages: list[Damage] = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if not indexed_end and content[: len(frame.MAGIC)] != frame.MAGIC:
            result.damaged.append(f"{name} does not begin like a log file: its first bytes are damaged")
        for entry in frame.scan(content, start):
            if isinstance(entry, Damage):
                damages.append(entry)
            elif (written := _written(name, entry, result)) is not None:
                waiting.append(written)
            if len(waiting) == _CHUNK:
                index.add(waiting)
                result.indexed += len(waiting)
                waiting = []
    index.add(waiting)
    result.indexed += len(waiting)
    return damages


def _set_aside(path: Path, damage: Damage, disk: Disk, result: Recovered) -> None:
    """Keeps the bytes of ``damage`` in a file of their own; cuts them off where they are the tail."""
    aside = path.with_name(f"{path.name}.torn-{damage.offset}")
    with path.open("rb") as file:
        file.seek(damage.offset)
        torn = file.read(damage.length)
    with aside.open("wb") as file:
        file.write(torn)
    descriptor = disk.open(aside)
    disk.sync(descriptor)
    disk.close(descriptor)
    at_the_end = damage.offset + damage.length >= path.stat().st_size
    words = f"{path.parent.name}/{path.name}: {damage.length} bytes at {damage.offset}: {damage.reason}"
    fate = "cut off" if at_the_end else "the frames behind them are intact"
    result.damaged.append(f"{words}; kept in {aside.name}, {fate}")
    if at_the_end:
        descriptor = disk.open(path)
        try:
            disk.truncate(descriptor, damage.offset)
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)
        result.cut_bytes += damage.length


def _written(name: str, entry: Frame, result: Recovered) -> Written | None:
    try:
        batch = SignedBatch.FromString(entry.batch)
    except DecodeError as error:  # its checksum holds, so it was written like this
        result.damaged.append(f"{name}: the entry at {entry.offset} is no batch: {error}")
        return None
    return Written(
        arrival(entry.received_time_ns, entry.source, entry.quarantine, batch),
        entry.position,
        name,
        entry.offset,
        entry.length,
    )
