"""One-way delays by path and 10 s window, beside the clock error bounds of both ends. In the order of the log.

A record is added to its windows as it comes, early or late: histograms merge, so it does not matter how often and in
what portions, and nothing is open that a restart would have to read again. No verdict is built on these figures: two
clocks are compared, and what they differ by is in each of them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from collector.analysis.window import WINDOW_NS
from collector.model import OneWayDelays, OneWayWindow
from collector.store import spread

MAX_KEPT = 100_000  # windows in memory, about 1 kB each; others are read from the store when they are needed
Key = tuple[int, int]  # start, path id
Find = Callable[[int, int], OneWayWindow | None]  # what is stored of a start and path id


@dataclass(slots=True)
class _Way:
    """One direction."""

    least_ns: int = 1 << 62
    counts: Counter[int] = field(default_factory=Counter)  # by bin

    def add(self, delays_ns: Sequence[int], bins: Sequence[int]) -> None:
        self.least_ns = min(self.least_ns, *delays_ns)
        self.counts.update(bins)


@dataclass(slots=True)
class _Window:
    """One path and window as it fills."""

    forward: _Way = field(default_factory=_Way)
    reverse: _Way = field(default_factory=_Way)
    samples: int = 0
    our_error_ns: int = 0
    their_error_ns: int = 0

    def row(self, start_ns: int, path_id: int) -> OneWayWindow:
        return OneWayWindow(
            path_id=path_id,
            start_time_ns=start_ns,
            length_ns=WINDOW_NS,
            samples=self.samples,
            sender_clock_error_ns=self.our_error_ns,
            reflector_clock_error_ns=self.their_error_ns,
            forward_delay_min_ns=self.forward.least_ns,
            forward_delay_p50_ns=spread.quantile(self.forward.counts, 50) or 0,
            forward_delay_p99_ns=spread.quantile(self.forward.counts, 99) or 0,
            reverse_delay_min_ns=self.reverse.least_ns,
            reverse_delay_p50_ns=spread.quantile(self.reverse.counts, 50) or 0,
            reverse_delay_p99_ns=spread.quantile(self.reverse.counts, 99) or 0,
            forward_histogram=spread.pack(self.forward.counts),
            reverse_histogram=spread.pack(self.reverse.counts),
        )

    @staticmethod
    def restore(row: OneWayWindow) -> "_Window":
        return _Window(
            _Way(row.forward_delay_min_ns, Counter(spread.unpack([row.forward_histogram]))),
            _Way(row.reverse_delay_min_ns, Counter(spread.unpack([row.reverse_histogram]))),
            row.samples,
            row.sender_clock_error_ns,
            row.reflector_clock_error_ns,
        )


class OneWays:
    """Windows that changed, and those that are likely to change again."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._kept: dict[Key, _Window] = {}
        self._changed: set[Key] = set()

    def add(self, records: Sequence[OneWayDelays]) -> None:
        """Takes in the delays of one batch, all of paths of its sender."""
        for delays in records:
            starts = np.asarray(delays.send_times_ns) // WINDOW_NS * WINDOW_NS
            ids = np.asarray(delays.path_ids)
            order = np.lexsort((ids, starts))
            starts, ids = starts[order], ids[order]
            forward, reverse = np.asarray(delays.forward_delays_ns)[order], np.asarray(delays.reverse_delays_ns)[order]
            ways = [column.tolist() for way in (forward, reverse) for column in (way, spread.bins_of(way))]
            ours = np.asarray(delays.sender_clock_errors_ns)[order].tolist()
            theirs = np.asarray(delays.reflector_clock_errors_ns)[order].tolist()
            edges = np.flatnonzero((starts[1:] != starts[:-1]) | (ids[1:] != ids[:-1])) + 1
            for first, behind in zip([0, *edges.tolist()], [*edges.tolist(), len(order)], strict=True):
                there, there_bins, back, back_bins = (column[first:behind] for column in ways)
                window = self._window((int(starts[first]), int(ids[first])))
                window.forward.add(there, there_bins)
                window.reverse.add(back, back_bins)
                window.samples += behind - first
                window.our_error_ns = max(window.our_error_ns, *ours[first:behind])
                window.their_error_ns = max(window.their_error_ns, *theirs[first:behind])

    def take_changed(self) -> list[OneWayWindow]:
        """Windows that changed since last asked; the oldest of too many are let go once they are taken."""
        rows = [self._kept[key].row(*key) for key in sorted(self._changed)]
        self._changed.clear()
        if len(self._kept) > MAX_KEPT:
            for key in sorted(self._kept)[:-MAX_KEPT]:
                del self._kept[key]
        return rows

    def forget(self, before_ns: int) -> None:
        """Lets windows go that begin before a time and are written."""
        for key in [key for key in self._kept if key[0] < before_ns and key not in self._changed]:
            del self._kept[key]

    def _window(self, key: Key) -> _Window:
        window = self._kept.get(key)
        if window is None:
            stored = self._find(*key)
            window = self._kept[key] = _Window() if stored is None else _Window.restore(stored)
        self._changed.add(key)
        return window
