"""What is usual on each path, learned window by window behind the moment that is judged."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from collector.analysis.baseline import Baselines
from collector.analysis.doubts import Doubts
from collector.analysis.loading import Loading
from collector.analysis.occasions import NO_BURSTS, Occasions, touched_mask
from collector.analysis.paths import PathIndex
from collector.analysis.rounds import Rounds
from collector.analysis.rules import delay, loss
from collector.analysis.window import BUCKET_NS, BUCKETS, SECOND, WINDOW_NS
from collector.config import Rules
from collector.model import Element, Incident

MINUTE_NS = 60 * SECOND
AFTER_NS = 120 * SECOND  # windows enter this late: what an incident is about to be raised for is not usual
Bools = NDArray[np.bool_]
Accused = tuple[list[Element], list[Element]]  # elements under open incidents of loss and of delay


def accused(incidents: Iterable[Incident]) -> Accused:
    """Elements that are accused by these incidents."""
    opened = list(incidents)
    return (
        [incident.element for incident in opened if incident.rule == loss.RULE],
        [incident.element for incident in opened if incident.rule == delay.RULE],
    )


def padded(values: NDArray[np.int64], size: int, filler: int) -> NDArray[np.int64]:
    """``values`` with exactly ``size`` entries."""
    extra = size - len(values)
    return np.concatenate([values, np.full(extra, filler, np.int64)]) if extra > 0 else values[:size]


class Usual:
    """Baselines, and what they say at the last full minute."""

    def __init__(
        self,
        paths: PathIndex,
        rounds: Rounds,
        loading: Loading,
        doubts: Doubts,
        rules: Rules,
        *,
        bursts: Occasions = NO_BURSTS,
    ) -> None:
        self._paths, self._rounds, self._loading, self._doubts, self._rules = paths, rounds, loading, doubts, rules
        self._bursts = bursts
        self._baselines = Baselines(rules.delay.baseline)
        self._accused: dict[int, Accused] = {}  # by minute, where anything was
        self._p99 = np.zeros(0, np.int64)
        self._loss_ratios = np.zeros(0)

    def first_needed(self, through_ns: int) -> int:
        """From when on windows and states are needed to take up at a moment."""
        return self._baselines.first_needed(through_ns // MINUTE_NS * MINUTE_NS)

    def take_up(self, through_ns: int, accused_before: Mapping[int, Accused], frozen_p99_ns: Mapping[int, int]) -> None:
        """Learns the trailing period again, in the order in which it was learned first."""
        self._accused = dict(accused_before)
        minute = through_ns // MINUTE_NS * MINUTE_NS
        start = self._rounds.next_start(self._baselines.first_needed(minute))
        refreshed = False
        while start is not None and start + WINDOW_NS + AFTER_NS <= through_ns:
            if not refreshed and start + WINDOW_NS + AFTER_NS > minute:
                self.refresh(minute, ())
                refreshed = True
            self.learn(start)
            start = self._rounds.next_start(start + WINDOW_NS)
        if not refreshed:
            self.refresh(minute, ())
        for pool_id, p99 in frozen_p99_ns.items():
            of_pool = self._paths.of_pool(pool_id)
            self._p99[of_pool[of_pool < len(self._p99)]] = p99

    def note(self, minute_ns: int, value: Accused) -> None:
        """Remembers who was accused at a full minute."""
        if any(value):
            self._accused[minute_ns] = value

    def learn(self, start_ns: int) -> None:
        """Takes in the window with this start."""
        window = self._rounds.find(start_ns)
        if window is None:
            return
        lossy: set[Element] = set()
        slow: set[Element] = set()
        first = -(-start_ns // MINUTE_NS) * MINUTE_NS
        for minute in range(first, start_ns + WINDOW_NS + AFTER_NS, MINUTE_NS):
            of_loss, of_delay = self._accused.get(minute, ((), ()))
            lossy.update(of_loss)
            slow.update(of_delay)
        loaded = self._loading.mask(start_ns, BUCKET_NS, BUCKETS)
        loaded |= touched_mask(
            self._paths, self._bursts, self._rules.burst_contention, start_ns, step_ns=BUCKET_NS, steps=BUCKETS
        )
        unfit = self.members(slow) | self._doubts.mask(start_ns, 1)[:, 0]
        self._baselines.add(window, loaded, self.members(lossy), unfit)

    def refresh(self, minute_ns: int, slow: Iterable[Element]) -> None:
        """Reads the baselines anew; paths of elements accused of delay (``slow``) keep theirs."""
        self._baselines.forget(minute_ns)
        size = len(self._paths)
        fresh = self._baselines.delay_p99_ns(self._paths.leaders, self._rules.delay.min_samples)
        self._p99 = np.where(self.members(slow), self.p99_ns(), fresh)
        self._loss_ratios = self._baselines.loss_ratios(size, self._rules.loss.floor)
        oldest = minute_ns - AFTER_NS - 2 * MINUTE_NS
        self._accused = {minute: value for minute, value in self._accused.items() if minute >= oldest}

    def members(self, elements: Iterable[Element]) -> Bools:
        """[path]: whether it crosses one of the elements."""
        mask = np.zeros(len(self._paths), np.bool_)
        for element in elements:
            mask[self._paths.membership.paths_of(element)] = True
        return mask

    def p99_ns(self) -> NDArray[np.int64]:
        """[path]: usual p99 of the delay, of its pool; -1 where it is not known. A source port that is new to its pair
        has the pair's at once."""
        return np.asarray(padded(self._p99, len(self._paths), -1)[self._paths.leaders])

    def loss_ratios(self) -> NDArray[np.float64]:
        """[path]: usual loss ratio, at least the rule's floor."""
        extra = len(self._paths) - len(self._loss_ratios)
        return np.concatenate([self._loss_ratios, np.full(extra, self._rules.loss.floor)])

    def frozen(self, slow: Iterable[Element]) -> dict[int, int]:
        """Pool id -> p99 of the paths that keep theirs."""
        p99 = self.p99_ns()
        indexes = np.flatnonzero(self.members(slow) & (p99 >= 0)).tolist()
        return {self._paths.pool_id(index): int(p99[index]) for index in indexes}
