"""What a contention test shows: the uplink's capacity, the share of what hosts could send that arrives, and whether
hosts or leaf were the limit instead. Pure.

S is the sum of the hosts' solo rates, C(k) what k of them deliver at once. Ratios are of goodput, which both sides of a
ratio have alike; the capacity is told in octets of the link layer too, from the NICs' counters, because that is what an
uplink is sold in. "N:1 oversubscribed" is not said: C(H)/S is how much of it is delivered.

The interval of the delivered fraction is Student's over the repeats of one test: each repeat is a mean over seconds and
flows, so nearly normal, and there are too few repeats to resample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, stdev

from bandwitness.v1.record_pb2 import (
    GROUP_PART_CONCURRENT,
    GROUP_PART_CONTROL,
    GROUP_PART_ONE_FLOW,
    GROUP_PART_SOLO,
)

PLATEAU = 0.95  # of the largest sum: from here on more hosts bring no more
CLEAN = 0.95  # of S, that the control must reach
# Quantile 0.975 of Student's t by degrees of freedom (1 … 30); beyond, that of the normal distribution.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupFigure:
    """One group: what its hosts delivered while they sent at once. None: that host's run gave no result."""

    part: int  # GroupPart
    senders: int
    repeat: int
    goodput_bps: Mapping[str, float | None]  # by sending host
    link_bps: float | None = None  # of all of them, from the NICs' counters

    @property
    def total_bps(self) -> float | None:
        """Of all hosts; None unless each has a figure, because a host that stayed out leaves room to others."""
        values = list(self.goodput_bps.values())
        if len(values) < self.senders or any(value is None for value in values):
            return None
        return sum(value for value in values if value is not None)


@dataclass(frozen=True, slots=True)
class Step:
    """``senders`` hosts at once, means over the repeats that were complete."""

    senders: int
    repeats: int
    goodput_bps: float
    link_bps: float | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """The result of one test. None: not enough came to say it."""

    hosts: int
    solo_bps: Mapping[str, float]  # goodput by host, means over repeats
    solo_sum_bps: float | None
    steps: Sequence[Step]  # by number of senders; 1 is the mean host alone
    knee_senders: int | None  # from so many hosts on the sum no longer grows
    uplink_goodput_bps: float | None
    uplink_link_bps: float | None  # octets of the link layer, from the NICs' counters
    at_least: bool  # the sum still grew: the uplink carries that much or more
    delivered_ratio: float | None  # C(H) / S
    delivered_low: float | None  # 95 % interval
    delivered_high: float | None
    repeats: int  # behind that interval
    one_flow_bps: float | None
    collision_loss_ratio: float | None  # 1 - one flow a host / many
    control_bps: float | None  # of the same hosts at once inside the rack
    control: str  # clean, hosts_or_leaf, unknown
    incomplete_groups: int  # left out: not every host had a result
    verdict: str = field(default="")


def capacity_of(groups: Sequence[GroupFigure]) -> Capacity:
    """The result of all groups of one test, in any order."""
    whole = [group for group in groups if group.total_bps is not None]
    solo = _solo(whole)
    hosts = max((group.senders for group in groups), default=0)
    solo_sum = sum(solo.values()) if solo and len(solo) == hosts else None
    steps = _steps(whole, solo)
    knee, at_least = _knee(steps)
    plateau = [step for step in steps if knee is not None and step.senders >= knee]
    ratios = _ratios(whole, hosts)
    low, high = interval(ratios)
    ratio = fmean(ratios) if ratios else None
    many = _mean(whole, GROUP_PART_CONCURRENT, hosts)
    one_flow = _mean(whole, GROUP_PART_ONE_FLOW, hosts)
    control = _mean(whole, GROUP_PART_CONTROL, hosts)
    word = "unknown"
    if control is not None and solo_sum is not None:
        word = "clean" if control >= CLEAN * solo_sum else "hosts_or_leaf"
    linked = [step.link_bps for step in plateau if step.link_bps is not None]
    return Capacity(
        hosts=hosts,
        solo_bps=solo,
        solo_sum_bps=solo_sum,
        steps=steps,
        knee_senders=knee,
        uplink_goodput_bps=fmean(step.goodput_bps for step in plateau) if plateau else None,
        uplink_link_bps=fmean(linked) if linked else None,
        at_least=at_least,
        delivered_ratio=ratio,
        delivered_low=low,
        delivered_high=high,
        repeats=len(ratios),
        one_flow_bps=one_flow,
        collision_loss_ratio=max(0.0, 1 - one_flow / many) if one_flow is not None and many else None,
        control_bps=control,
        control=word,
        incomplete_groups=len(groups) - len(whole),
        verdict=_verdict(word, high, ratio, at_least=at_least),
    )


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Student's 95 % interval of the mean; none of fewer than two values. Cut at 0."""
    if len(values) < 2:
        return None, None
    degrees = len(values) - 1
    half = (_T[degrees - 1] if degrees <= len(_T) else 1.96) * stdev(values) / sqrt(len(values))
    return max(0.0, fmean(values) - half), fmean(values) + half


def _verdict(control: str, high: float | None, ratio: float | None, *, at_least: bool) -> str:
    if ratio is None or control == "unknown":
        return "unknown"
    if control != "clean":
        return control
    if at_least:
        return "not_limited"
    if high is None:
        return "too_few_repeats"
    return "uplink_limited" if high < 1 else "not_limited"


def _solo(groups: Sequence[GroupFigure]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for group in groups:
        if group.part == GROUP_PART_SOLO:
            for host, value in group.goodput_bps.items():
                if value is not None:
                    found.setdefault(host, []).append(value)
    return {host: fmean(values) for host, values in sorted(found.items())}


def _steps(groups: Sequence[GroupFigure], solo: Mapping[str, float]) -> list[Step]:
    alone = [group for group in groups if group.part == GROUP_PART_SOLO]
    steps = [_step(1, alone, len({group.repeat for group in alone}))] if solo else []
    concurrent = [group for group in groups if group.part == GROUP_PART_CONCURRENT]
    for senders in sorted({group.senders for group in concurrent}):
        mine = [group for group in concurrent if group.senders == senders]
        steps.append(_step(senders, mine, len(mine)))
    return steps


def _step(senders: int, groups: Sequence[GroupFigure], repeats: int) -> Step:
    linked = [group.link_bps for group in groups if group.link_bps is not None]
    goodput = fmean(group.total_bps for group in groups if group.total_bps is not None)
    return Step(senders, repeats, goodput, fmean(linked) if linked else None)


def _knee(steps: Sequence[Step]) -> tuple[int | None, bool]:
    """Where the plateau begins; and whether nothing was short: the last step brought what its hosts bring alone."""
    if len(steps) < 2:
        return None, True
    most = max(step.goodput_bps for step in steps)
    knee = next(step.senders for step in steps if step.goodput_bps >= PLATEAU * most)
    last, alone = steps[-1], steps[0]
    return knee, last.goodput_bps >= PLATEAU * last.senders / alone.senders * alone.goodput_bps


def _ratios(groups: Sequence[GroupFigure], hosts: int) -> list[float]:
    """C(H) / S of each repeat that has both."""
    ratios = []
    for repeat in sorted({group.repeat for group in groups}):
        mine = [group for group in groups if group.repeat == repeat]
        alone = [group.total_bps for group in mine if group.part == GROUP_PART_SOLO and group.total_bps is not None]
        together = [
            group.total_bps
            for group in mine
            if group.part == GROUP_PART_CONCURRENT and group.senders == hosts and group.total_bps is not None
        ]
        if len(alone) == hosts and together and sum(alone) > 0:
            ratios.append(fmean(together) / sum(alone))
    return ratios


def _mean(groups: Sequence[GroupFigure], part: int, senders: int) -> float | None:
    totals = [
        group.total_bps
        for group in groups
        if group.part == part and group.senders == senders and group.total_bps is not None
    ]
    return fmean(totals) if totals else None
