"""Which slots this node has begun and which are dealt with, through a restart: one small append-only file.

JSON lines: ``{"begun": slot_hex, "role": r, "time": wall_ns}`` before a process is started, ``{"done": slot_id_hex,
"role": r, "time": start_ns}`` when the record is in the spool. Rewritten without what is older than two days at
every start, and again each time it has grown by ``MAX_APPENDED`` lines. Not synced: it must outlive the process, which
the page cache does; after a power cut the slot's time is over before the host is up again, and the slot is recorded as
missed.
"""

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from bandwitness.v1.plan_pb2 import Slot

KEEP_NS = 2 * 86_400 * 1_000_000_000  # longer than any plan lives
MAX_LINES = 50_000
MAX_FILE_BYTES = 32 * 1024 * 1024  # read from the end: what is newest counts
MAX_APPENDED = 4_096  # lines; few, because the event loop waits while the file is rewritten

SlotKey = tuple[bytes, int]  # slot id, role


@dataclass(frozen=True, slots=True)
class Begun:
    """A slot whose process was started and whose end is not known."""

    slot: Slot
    role: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class JournalState:
    """``done``: slot and role -> start of the slot."""

    begun: tuple[Begun, ...]
    done: dict[SlotKey, int]


class FileJournal:
    """The file. A disk that is full or read-only costs what would have been remembered, never a test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._appended = 0  # lines since the file was written anew
        self.faults = 0  # reads and writes that failed

    def load(self, now_ns: int) -> JournalState:
        """Reads the file, dropping what is old or cannot be read (a torn line), and writes it anew."""
        begun: dict[SlotKey, Begun] = {}
        done: dict[SlotKey, int] = {}
        for line in self._lines():
            entry = _entry(line)
            if isinstance(entry, Begun):
                begun[(entry.slot.slot_id, entry.role)] = entry
            elif entry is not None:
                key, start_ns = entry
                done[key] = start_ns
                begun.pop(key, None)
        done = {key: start_ns for key, start_ns in done.items() if start_ns > now_ns - KEEP_NS}
        self._rewrite(begun.values(), done)
        return JournalState(tuple(begun.values()), done)

    def begun(self, slot: Slot, role: int, time_ns: int) -> None:
        """A slot is about to run."""
        if self._appended >= MAX_APPENDED:
            self.load(time_ns)
        self._append([_begun_line(slot, role, time_ns)])

    def done(self, keys: Iterable[tuple[SlotKey, int]]) -> None:
        """Records of these slots (with their starts) are in the spool."""
        self._append([_done_line(key, start_ns) for key, start_ns in keys])

    def _lines(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_FILE_BYTES))
                return file.read(MAX_FILE_BYTES).decode(errors="replace").splitlines()[-MAX_LINES:]
        except FileNotFoundError:
            return []
        except OSError:
            self.faults += 1
            return []

    def _rewrite(self, begun: Iterable[Begun], done: dict[SlotKey, int]) -> None:
        lines = [_done_line(key, start_ns) for key, start_ns in done.items()]
        lines += [_begun_line(entry.slot, entry.role, entry.time_ns) for entry in begun]
        self._appended = 0
        fresh = self._path.with_name(self._path.name + ".new")
        try:
            fresh.write_text("".join(lines), encoding="ascii")
            fresh.replace(self._path)
        except OSError:
            self.faults += 1

    def _append(self, lines: list[str]) -> None:
        if not lines:
            return
        self._appended += len(lines)
        try:
            with self._path.open("a", encoding="ascii") as file:
                file.write("".join(lines))
        except OSError:
            self.faults += 1


def _begun_line(slot: Slot, role: int, time_ns: int) -> str:
    return json.dumps({"begun": slot.SerializeToString().hex(), "role": role, "time": time_ns}) + "\n"


def _done_line(key: SlotKey, start_ns: int) -> str:
    return json.dumps({"done": key[0].hex(), "role": key[1], "time": start_ns}) + "\n"


# What a damaged line can make of json, int and hex: Infinity overflows, a wall of brackets recurses.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, DecodeError)


def _entry(line: str) -> Begun | tuple[SlotKey, int] | None:
    with contextlib.suppress(*_UNREADABLE):
        entry = json.loads(line)
        role, time_ns = int(entry["role"]), int(entry["time"])
        if "begun" in entry:
            return Begun(Slot.FromString(bytes.fromhex(entry["begun"])), role, time_ns)
        return (bytes.fromhex(entry["done"]), role), time_ns
    return None
