"""Reads of one source that wait for the flush."""

from collections import deque
from collections.abc import Sequence

MAX_TICKS = 1_000  # kept for a drain that does not come
Columns = tuple[tuple[int, ...], tuple[tuple[int | None, ...], ...]]


class Series:
    """Ticks of some counters. What is not drained in time is dropped from the front, and counted."""

    def __init__(self, counters: Sequence[str]) -> None:
        self.counters = tuple(counters)
        self.dropped = 0
        self._ticks: deque[tuple[int, Sequence[int | None]]] = deque()

    def __len__(self) -> int:
        return len(self._ticks)

    def add(self, read_ns: int, values: Sequence[int | None]) -> None:
        """One read: monotonic time, and one value a counter."""
        assert len(values) == len(self.counters)
        if len(self._ticks) == MAX_TICKS:
            self._ticks.popleft()
            self.dropped += 1
        self._ticks.append((read_ns, values))

    def take(self) -> Columns | None:
        """Times, and values by counter and tick, since the last call; None where there are none."""
        if not self._ticks:
            return None
        times, rows = zip(*self._ticks, strict=True)
        self._ticks.clear()
        return times, tuple(zip(*rows, strict=True))
