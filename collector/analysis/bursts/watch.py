"""One NIC: what it carried, from read to read, into bursts. Pure, in event time.

Three signals, each with a detector of its own. A *save* is what is transmitted beyond what is received, where the one
exceeds what is usual both ways more than four times as far as the other; a *restore* is the same the other way; an
*exchange* is what goes both ways alike. So AllReduce traffic is no save however much it is, and a save on a rail is
found on top of it. What looks like a save and comes back within seconds, step after step, is an exchange too
(pipeline stages send one way only); and one-way excess that turns out to be none over the whole burst is withdrawn.
What passes in an exchange counts as usual all the same, so it soon is; what is one-way for an hour is, too.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from collector.analysis.bursts.detector import Crossed, Detector, Open
from collector.analysis.bursts.usual import EXCHANGE, MINUTE_NS, RESTORE, SAVE, SIGNALS, Usual, encode_steps
from collector.analysis.octets import Octets
from collector.config import BurstRule
from collector.model import Burst
from collector.store.rows import dump

SECOND = 1_000_000_000
MAX_SPAN_NS = 10 * SECOND  # over a longer one a rate says nothing about any second in it
ONE_WAY = 4.0  # a save transmits more than so many times what it receives
DEVIATIONS = 6.0
MARGIN = 0.25  # of the median, where the usual rate hardly varies
CLOSING = 0.5
LONGEST_NS = (3600 * SECOND, 3600 * SECOND, 600 * SECOND)  # by signal; then it is what is usual
LEARN_NS = 600 * SECOND  # for how long no burst of that signal opens then
REPEATS, REPEAT_NS = 3, 120 * SECOND  # as many bursts before, in this time: step after step
MAX_WAITING = 1200  # steps: two minutes at ten a second
Span = tuple[int, int]


class Ours(NamedTuple):
    """When our own throughput tests used a NIC."""

    spans: Sequence[Span]
    settled_before_ns: int | None  # from then on it is not known yet whether a test ran; None: all is known


class Change(NamedTuple):
    """A burst as it is now, or that there is none any more."""

    burst_id: str
    burst: Burst | None
    ended: bool


NOTHING = Ours((), None)


@dataclass(slots=True)
class Identity:
    """Which NIC, and what it can carry."""

    node: str
    nic: str
    lane: str
    speed_bps: int | None = None  # as configured, where the kernel's figure is not to be used


class Watch:
    """One NIC."""

    def __init__(self, identity: Identity, rule: BurstRule) -> None:
        self.identity, self._rule = identity, rule
        self.waited_out = 0  # steps judged though it was not known whether a test of ours ran
        self.through_ns = 0  # newest read known
        self._usual = Usual()
        self._detectors = [Detector() for _ in SIGNALS]
        self._learning_until_ns = [0 for _ in SIGNALS]
        self._starts: list[list[int]] = [[] for _ in SIGNALS]
        self._waiting: list[Octets] = []
        self._clock_error_ns: int | None = None
        self._floor = 0.0  # octets a second

    @property
    def minute(self) -> int:
        """Rises when what is usual was written anew."""
        return self._usual.minute

    # ------------------------------------------------------------ what comes in

    def add(
        self,
        steps: Sequence[Octets],
        *,
        speed_bps: int | None,
        clock_error_ns: int | None,
        ours: Callable[[int, int], Ours],
    ) -> list[Change]:
        """Takes in what passed between reads; what ends no later than what is known counts for nothing.

        Args:
            steps: of this NIC, in order.
            speed_bps: of the link; None: the kernel does not know, or says a number that is no limit.
            clock_error_ns: bound on the error of the agent's clock, if it has one.
            ours: tests of ours in a stretch of time.
        """
        if not steps or steps[-1].end_time_ns <= self.through_ns:
            return []
        if steps[0].end_time_ns <= self.through_ns:
            steps = [step for step in steps if step.end_time_ns > self.through_ns]
        self._clock_error_ns = clock_error_ns
        speed = self.identity.speed_bps or speed_bps
        self._floor = (speed * self._rule.above if speed else self._rule.floor) / 8
        self.through_ns = steps[-1].end_time_ns
        found = ours((self._waiting or steps)[0].start_time_ns, self.through_ns)
        if not self._waiting and found == NOTHING and self._add_quiet(steps):
            return []
        changes = self._take([*self._waiting, *steps], found)
        return changes + [self._change(which, burst) for which, burst in self._opened()]

    def _add_quiet(self, steps: Sequence[Octets]) -> bool:
        """Takes in steps with which nothing can open; False, and nothing done, where something could.

        It is worth this second way: of all steps of all NICs, nearly all are of this kind.
        """
        floor = self._floor / SECOND
        for step in steps:
            receive, transmit, span_ns = step.receive_bytes, step.transmit_bytes, step.span_ns
            if receive is None or transmit is None or span_ns > MAX_SPAN_NS:
                return False
            most = floor * span_ns
            if receive > most or transmit > most:
                return False
        for detector in self._detectors:
            if not detector.quiet:
                return False
        for detector in self._detectors:
            detector.rest()
        if steps[-1].end_time_ns // MINUTE_NS == self._usual.minute:
            self._usual.extend(steps)
        else:
            for step in steps:
                self._usual.add(step)
        return True

    def _take(self, steps: list[Octets], ours: Ours) -> list[Change]:
        """Goes on step by step, as far as it is known what was ours."""
        until = ours.settled_before_ns
        if until is not None and len(steps) > MAX_WAITING:
            self.waited_out += len(steps)
            until = None
        changes: list[Change] = []
        self._waiting = []
        for place, step in enumerate(steps):
            if until is not None and step.end_time_ns >= until:
                self._waiting = steps[place:]
                break
            if any(start < step.end_time_ns and end > step.start_time_ns for start, end in ours.spans):
                continue
            if step.receive_bytes is not None and step.transmit_bytes is not None and step.span_ns <= MAX_SPAN_NS:
                changes += self._sample(step, step.receive_bytes, step.transmit_bytes)
        return changes

    # ------------------------------------------------------------ samples

    def _sample(self, step: Octets, received: int, sent: int) -> list[Change]:
        end_ns = step.end_time_ns
        receive, transmit = received / step.span_ns * SECOND, sent / step.span_ns * SECOND
        values = (max(transmit - receive, 0.0), max(receive - transmit, 0.0), min(receive, transmit))
        changes = []
        self._usual.turn(end_ns // MINUTE_NS)
        for which, detector in enumerate(self._detectors):
            crossed = None
            if values[which] > self._floor and end_ns >= self._learning_until_ns[which]:
                crossed = self._crossed(which, end_ns, values[which], (receive, transmit))
            was_open = detector.open
            octets = (received, sent) if which == RESTORE else (sent, received)
            ended = detector.step(step, values[which], octets, crossed)
            if was_open is None and detector.open is not None:
                self._starts[which] = [*self._starts[which][-REPEATS:], detector.open.start_ns]
            if detector.open is not None and end_ns - detector.open.start_ns >= LONGEST_NS[which]:
                ended = detector.end()
                self._learning_until_ns[which] = end_ns + LEARN_NS
            if ended is not None:
                changes.append(self._end(which, ended))
        if all(self._detectors[which].open is None for which in (SAVE, RESTORE)):
            self._usual.add(step)
        return changes

    def _crossed(self, which: int, time_ns: int, value: float, rates: tuple[float, float]) -> Crossed | None:
        levels = self._usual.levels(time_ns // MINUTE_NS)
        if levels is None:
            return None  # what it has carried since it was first seen may be what it always carries
        median, mad = levels[which]
        threshold = max(self._floor, median + max(DEVIATIONS * mad, MARGIN * median))
        if value <= threshold:
            return None
        both_ways = levels[EXCHANGE].median
        receive, transmit = rates
        forward, back = (receive, transmit) if which == RESTORE else (transmit, receive)
        if which != EXCHANGE and not _one_way(forward, back, both_ways):
            return None
        kind = SIGNALS[which]
        recent = [start for start in self._starts[which] if time_ns - start < REPEAT_NS]
        if which != EXCHANGE and len(recent) >= REPEATS:
            kind = SIGNALS[EXCHANGE]
        closing = median + CLOSING * (threshold - median)
        return Crossed(threshold, closing, median, both_ways, kind)

    def _opened(self) -> list[tuple[int, Open]]:
        return [(which, detector.open) for which, detector in enumerate(self._detectors) if detector.open is not None]

    def _end(self, which: int, burst: Open) -> Change:
        change = self._change(which, burst, ended=True)
        assert change.burst is not None
        return change if change.burst.confirmed else change._replace(burst=None)

    def _change(self, which: int, burst: Open, *, ended: bool = False) -> Change:
        """The burst as it stands. One that is not one-way over its whole length is not confirmed."""
        identity = self.identity
        text = f"{identity.node}\n{identity.nic}\n{SIGNALS[which]}\n{burst.start_ns}"
        burst_id = sha256(text.encode()).hexdigest()[:32]
        seconds = max(burst.duration_ns, 1) / SECOND
        large = burst.forward >= self._rule.min_bytes or burst.duration_ns >= self._rule.min_duration
        one_way = which == EXCHANGE or _one_way(burst.forward / seconds, burst.back / seconds, burst.both_ways)
        row = Burst(
            burst_id=burst_id,
            node=identity.node,
            nic=identity.nic,
            lane=identity.lane,
            kind=burst.kind,
            start_time_ns=burst.start_ns,
            end_time_ns=burst.last_ns if ended else None,
            opened_time_ns=burst.opened_ns,
            last_time_ns=burst.last_ns,
            error_ns=max(burst.first_span_ns, burst.last_span_ns) + (self._clock_error_ns or 0),
            clock_error_ns=self._clock_error_ns,
            bytes=burst.forward,
            other_bytes=burst.back,
            peak_bps=max(burst.peak, burst.mean) * 8,
            mean_bps=burst.mean * 8,
            usual_bps=burst.usual * 8,
            threshold_bps=burst.threshold * 8,
            confirmed=large and one_way,
        )
        return Change(burst_id, row, ended)

    # ------------------------------------------------------------ for the store

    def encode(self) -> str:
        """All that the next record goes on from."""
        return dump([
            self.through_ns,
            self._usual.encode(),
            [detector.encode() for detector in self._detectors],
            self._learning_until_ns,
            self._starts,
            encode_steps(self._waiting),
        ])  # fmt: skip

    @staticmethod
    def decode(identity: Identity, rule: BurstRule, text: str) -> "Watch":
        """And back."""
        found = Watch(identity, rule)
        found.through_ns, usual, detectors, found._learning_until_ns, found._starts, waiting = json.loads(text)
        found._usual = Usual.decode(usual)
        found._detectors = [Detector.decode(values) for values in detectors]
        found._waiting = [Octets(*step) for step in waiting]
        return found


def _one_way(forward: float, back: float, both_ways: float) -> bool:
    """Whether a direction exceeds what is usual both ways more than four times as far as the other."""
    return forward - both_ways > ONE_WAY * max(back - both_ways, 0.0)
