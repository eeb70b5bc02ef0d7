"""What is usual on each path: the trailing hour of windows that were neither loaded nor part of an incident, and as to
delay not doubtful either. Pure.

Windows enter two minutes late, so that what an incident is about to be raised for is not yet usual. They are kept in
slabs of a sixth of the period; a slab leaves as a whole, so the period is between six and seven sixths long.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collector.analysis import statistics
from collector.analysis.window import BUCKETS, Window

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
SLABS = 6
MIN_LOSS_WINDOWS = 60  # ten minutes: before that only the floor is expected


@dataclass(slots=True)
class _Slab:
    histogram: NDArray[np.uint32]
    sent: Ints
    lost: Ints
    windows: Ints

    def grow(self, size: int) -> None:
        extra = size - len(self.sent)
        if extra > 0:
            self.histogram = np.concatenate([self.histogram, np.zeros((extra, statistics.BINS), np.uint32)])
            for name in ("sent", "lost", "windows"):
                setattr(self, name, np.concatenate([getattr(self, name), np.zeros(extra, np.int64)]))


class Baselines:
    """Delay histograms and loss counts of all paths over the trailing period."""

    def __init__(self, period_ns: int) -> None:
        self._length_ns = max(period_ns // SLABS, 1)
        self._slabs: dict[int, _Slab] = {}

    def first_needed(self, time_ns: int) -> int:
        """Start of the oldest slab that counts at a time."""
        return (time_ns // self._length_ns - SLABS) * self._length_ns

    def add(self, window: Window, loaded: Bools, accused_of_loss: Bools, delay_unfit: Bools) -> None:
        """Adds one window.

        Args:
            window: the window.
            loaded: [path, bucket]: a test of ours was running.
            accused_of_loss: [path]: part of an open incident of that rule.
            delay_unfit: [path]: part of an open incident of delay, or doubtful.
        """
        size = min(len(window), len(loaded))
        slab = self._slabs.setdefault(
            window.start_time_ns // self._length_ns * self._length_ns,
            _Slab(np.zeros((0, statistics.BINS), np.uint32), *(np.zeros(0, np.int64) for _ in range(3))),
        )
        slab.grow(size)
        quiet = ~loaded[:size] & ~accused_of_loss[:size, None]
        assert quiet.shape[1] == BUCKETS
        sent = np.where(quiet, window.sent[:size], 0).sum(axis=1)
        slab.sent[:size] += sent
        slab.lost[:size] += np.where(quiet, window.lost[:size], 0).sum(axis=1)
        slab.windows[:size] += sent > 0
        still = ~loaded[:size].any(axis=1) & ~delay_unfit[:size]
        slab.histogram[:size][still] += window.histogram[:size][still]

    def forget(self, time_ns: int) -> None:
        """Drops slabs that are too old at a time."""
        first = self.first_needed(time_ns)
        for start in [start for start in self._slabs if start < first]:
            del self._slabs[start]

    def delay_p99_ns(self, leaders: NDArray[np.intp], min_samples: int) -> Ints:
        """[path]: usual p99 over all samples of the path's pool, -1 where there are fewer than that.

        Args:
            leaders: [path]: one path of its pool, the same for all of them.
            min_samples: of a pool.
        """
        size = len(leaders)
        total = np.zeros((size, statistics.BINS), np.int64)
        for slab in self._slabs.values():
            total[: len(slab.histogram)] += slab.histogram
        others = np.flatnonzero(leaders != np.arange(size))
        np.add.at(total, leaders[others], total[others])
        p99 = statistics.histogram_quantiles(total, 99)
        return np.asarray(np.where(total.sum(axis=1) >= min_samples, p99, -1)[leaders])

    def loss_ratios(self, size: int, floor: float) -> NDArray[np.float64]:
        """[path]: usual loss ratio, ``floor`` where that is higher or too little is known."""
        sent, lost, windows = (np.zeros(size, np.int64) for _ in range(3))
        for slab in self._slabs.values():
            sent[: len(slab.sent)] += slab.sent
            lost[: len(slab.lost)] += slab.lost
            windows[: len(slab.windows)] += slab.windows
        ratios = lost / np.maximum(sent, 1)
        return np.where(windows >= MIN_LOSS_WINDOWS, np.clip(ratios, floor, 0.99), floor)
