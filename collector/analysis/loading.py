"""When our own throughput tests loaded which paths: our own queues must not accuse the network.

A path is loaded while a slot runs that shares a token with it. A slot loads from 100 ms before its start until all
it may use is over (duration, omitted seconds and margin). Once a run record tells the real end, that counts instead
if it is later, or earlier by more than two buckets; a test that was withdrawn or never started loads nothing. A record
may tell of the end long after it (the agent was away), and may be wrong: no slot loads for more than a minute longer
than planned.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collector.analysis.paths import PathIndex
from collector.analysis.rounds import Span, union
from collector.analysis.window import BUCKET_NS, SECOND, Window

BEFORE_NS = SECOND // 10
AFTER_NS = SECOND // 10
SHORTER_BY_NS = 2 * BUCKET_NS
LONGER_BY_NS = 60 * SECOND  # the agent ends a test that hangs long before
_CELL_NS = 600 * SECOND


@dataclass(frozen=True, slots=True)
class Load:
    """One slot's tokens and the stretch it loads."""

    slot_id: bytes
    tokens: frozenset[str]
    from_ns: int
    to_ns: int


def stretch(start_ns: int, planned_end_ns: int, actual_end_ns: int | None) -> Span:
    """What a slot loads, given when its run ended (None: not known)."""
    end = planned_end_ns
    if actual_end_ns is not None:
        actual = actual_end_ns + AFTER_NS
        if actual > end or end - actual > SHORTER_BY_NS:
            end = min(actual, planned_end_ns + LONGER_BY_NS)
    return start_ns - BEFORE_NS, end


class Loading:
    """All stretches, found by time."""

    def __init__(self, paths: PathIndex) -> None:
        self._paths = paths
        self._loads: dict[bytes, Load] = {}
        self._cells: dict[int, set[bytes]] = {}

    def put(self, slot_id: bytes, tokens: frozenset[str], span: Span | None) -> Span | None:
        """Sets what a slot loads (None: nothing). Gives back the stretch of time for which that changed anything."""
        before = self._loads.pop(slot_id, None)
        if before is not None:
            for cell in self._cells_of(before.from_ns, before.to_ns):
                self._cells[cell].discard(slot_id)
        if span is not None and span[1] > span[0]:
            self._loads[slot_id] = Load(slot_id, tokens, *span)
            for cell in self._cells_of(*span):
                self._cells.setdefault(cell, set()).add(slot_id)
        else:
            span = None
        old = (before.from_ns, before.to_ns) if before is not None else None
        if old is None or span is None:
            return union(old, span)
        if old == span:
            return None
        edges = [union((a, a), (b, b)) for a, b in zip(old, span, strict=True) if a != b]
        return union(edges[0], edges[-1])

    def overlapping(self, from_ns: int, to_ns: int) -> list[Load]:
        """Stretches that overlap ``[from, to)``, by slot id."""
        ids: set[bytes] = set()
        for cell in self._cells_of(from_ns, to_ns):
            ids |= self._cells.get(cell, set())
        loads = (self._loads[slot_id] for slot_id in sorted(ids))
        return [load for load in loads if load.from_ns < to_ns and load.to_ns > from_ns]

    def forget(self, before_ns: int) -> None:
        """Drops stretches that ended before a time."""
        for load in [load for load in self._loads.values() if load.to_ns < before_ns]:
            self.put(load.slot_id, load.tokens, None)
        for cell in [cell for cell, ids in self._cells.items() if not ids]:
            del self._cells[cell]

    def mask(self, from_ns: int, step_ns: int, steps: int) -> NDArray[np.bool_]:
        """[path, step]: whether the path was loaded at any time in that step."""
        loaded = np.zeros((len(self._paths), steps), np.bool_)
        for load in self.overlapping(from_ns, from_ns + steps * step_ns):
            first = max((load.from_ns - from_ns) // step_ns, 0)
            last = min(-((from_ns - load.to_ns) // step_ns), steps)
            loaded[self._paths.sharing(load.tokens), first:last] = True
        return loaded

    def label(self, window: Window) -> None:
        """Writes into a window which slot loaded each path; closed rows for which that is new count as changed."""
        labels: dict[int, bytes] = {}
        for load in self.overlapping(window.start_time_ns, window.end_time_ns):
            for index in self._paths.sharing(load.tokens).tolist():
                labels.setdefault(index, load.slot_id)
        if labels == window.loaded_by:
            return
        window.grow(len(self._paths))
        for index in labels.keys() | window.loaded_by.keys():
            if window.closed[index] and labels.get(index) != window.loaded_by.get(index):
                window.changed[index] = True
        window.loaded_by = labels

    @staticmethod
    def _cells_of(from_ns: int, to_ns: int) -> Iterable[int]:
        return range(from_ns // _CELL_NS, (max(to_ns, from_ns + 1) - 1) // _CELL_NS + 1)
