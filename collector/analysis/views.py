"""What the rules look at, cut out of the windows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collector.analysis import statistics
from collector.analysis.doubts import Doubts
from collector.analysis.loading import Loading
from collector.analysis.paths import Indexes, PathIndex
from collector.analysis.rounds import Rounds, window_start
from collector.analysis.rules import delay, loss
from collector.analysis.usual import Usual
from collector.analysis.window import BUCKET_NS, BUCKETS, OUTCOMES, SECOND, WINDOW_NS, Window
from collector.config import DelayRule
from collector.model import Element

SPAN_NS = 60 * SECOND  # what the loss rule looks back over
_SHAPES = {"outcomes": (OUTCOMES,), "sent": (BUCKETS,), "lost": (BUCKETS,), "histogram": (statistics.BINS,)}


class Views:
    """Makes views of any moment."""

    def __init__(self, paths: PathIndex, rounds: Rounds, loading: Loading, doubts: Doubts, usual: Usual) -> None:
        self._paths, self._rounds, self._loading, self._doubts, self._usual = paths, rounds, loading, doubts, usual

    def any_lost(self, time_ns: int) -> bool:
        """Whether there is anything for the loss rule to look at."""
        return any(window is not None and window.lost.any() for window in self._windows(time_ns))

    def measured(self, time_ns: int, element: Element) -> bool:
        """Whether an element's paths were measured in the last 60 s, loaded or not."""
        indexes = self._paths.membership.paths_of(element)
        size = len(self._paths)
        return any(column(window, "sent", size)[indexes].any() for window in self._windows(time_ns))

    def loss(self, time_ns: int, over_until: Mapping[Element, int]) -> loss.LossView:
        """``over_until``: loss before that time belongs to an incident that is closed."""
        size, steps = len(self._paths), SPAN_NS // BUCKET_NS
        skip = (time_ns - SPAN_NS) % WINDOW_NS // BUCKET_NS
        windows = self._windows(time_ns)
        sent, lost = (
            np.concatenate([column(window, name, size) for window in windows], axis=1)[:, skip : skip + steps]
            for name in ("sent", "lost")
        )
        hidden = self._loading.mask(time_ns - SPAN_NS, BUCKET_NS, steps)
        for element, until in over_until.items():
            past = max((until - time_ns + SPAN_NS) // BUCKET_NS, 0)
            hidden[self._paths.membership.paths_of(element), :past] = True
        return loss.LossView(
            time_ns=time_ns,
            sent=np.where(hidden, 0.0, sent),
            lost=np.where(hidden, 0.0, lost),
            baseline=self._usual.loss_ratios(),
            membership=self._paths.membership,
            path_ids=self._paths.ids,
            doubtful=np.logical_or.reduce(
                self._doubts.mask(window_start(time_ns - SPAN_NS), SPAN_NS // WINDOW_NS + 1), axis=1
            ),
        )

    def delay(self, time_ns: int, rule: DelayRule) -> delay.DelayView | None:
        """None while no path has a baseline."""
        p99 = self._usual.p99_ns()
        if not (p99 >= 0).any():
            return None
        size, steps = len(self._paths), max(rule.over // WINDOW_NS, 1)
        first_ns = time_ns - steps * WINDOW_NS
        hidden = self._loading.mask(first_ns, WINDOW_NS, steps) | self._doubts.mask(first_ns, steps)
        hidden |= (p99 < 0)[:, None]
        first_slow = statistics.bins_above(delay.thresholds(p99, rule))
        above = np.arange(statistics.BINS)[None, :] >= first_slow[:, None]
        samples, slow = np.zeros((size, steps)), np.zeros((size, steps))
        histograms: list[NDArray[Any]] = []
        for step in range(steps):
            window = self._rounds.find(time_ns - (steps - step) * WINDOW_NS)
            histogram = np.where(hidden[:, step, None], 0, column(window, "histogram", size))
            histograms.append(histogram)
            samples[:, step] = histogram.sum(axis=1)
            slow[:, step] = np.where(above, histogram, 0).sum(axis=1)

        def p99_of(indexes: Indexes) -> int:
            total = np.sum([histogram[indexes].sum(axis=0) for histogram in histograms], axis=0)
            return int(statistics.histogram_quantiles(total[None, :], 99)[0])

        return delay.DelayView(time_ns, samples, slow, p99, self._paths.membership, self._paths.ids, p99_of)

    def _windows(self, time_ns: int) -> list[Window | None]:
        first = (time_ns - SPAN_NS) // WINDOW_NS * WINDOW_NS
        return [self._rounds.find(start) for start in range(first, first + SPAN_NS + WINDOW_NS, WINDOW_NS)]


def column(window: Window | None, name: str, size: int) -> NDArray[Any]:
    """A window's array with one row for each of ``size`` paths."""
    if window is None:
        return np.zeros((size, *_SHAPES[name]), np.int64)
    values: NDArray[Any] = getattr(window, name)
    if len(values) >= size:
        return values[:size]
    return np.concatenate([values, np.zeros((size - len(values), *_SHAPES[name]), values.dtype)])
