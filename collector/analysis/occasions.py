"""When which burst ran, and which paths shared a NIC or an uplink with it: what the rules ask of the bursts."""

from collections.abc import Sequence
from statistics import median
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from collector.analysis.bursts.calendar import SECOND, Calendar
from collector.analysis.paths import Indexes, PathIndex
from collector.analysis.rules.burst_figures import InBurst
from collector.config import BurstContentionRule
from collector.model import Burst, ClusterBurst, Element


class Occasions(Protocol):
    """Bursts that are one event each: a cluster burst, or a burst of one node that belongs to none. Exchanges (what
    training does all the time) are left out."""

    def overlapping(self, from_ns: int, to_ns: int) -> Sequence[InBurst]:
        """Those that ran at any time in ``[from, to)``, as known by now, in a fixed order."""


class _NoBursts:
    def overlapping(self, from_ns: int, to_ns: int) -> Sequence[InBurst]:
        return ()


NO_BURSTS: Occasions = _NoBursts()
EXCHANGE = "exchange"
EARLIER_NS = 24 * 3600 * SECOND  # bursts that say how long one usually takes


class OfCalendar:
    """Saves and restores out of the calendar of bursts."""

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar

    def overlapping(self, from_ns: int, to_ns: int) -> Sequence[InBurst]:
        found = [self._cluster(one) for one in self._calendar.clusters(from_ns, to_ns) if one.kind != EXCHANGE]
        in_cluster = {member for one in found for member in one.members}
        for burst in self._calendar.bursts(from_ns, to_ns):
            if burst.kind != EXCHANGE and burst.burst_id not in in_cluster and not burst.cluster_id:
                found.append(_single(burst))  # noqa: PERF401
        ran = [one for one in found if one.start_time_ns < to_ns and (one.end_time_ns or to_ns) >= from_ns]
        return sorted(ran, key=lambda one: (one.start_time_ns, one.burst_id))

    def _cluster(self, cluster: ClusterBurst) -> InBurst:
        members = [one for one in map(self._calendar.burst, cluster.members) if one is not None]
        rates: dict[str, float] = {}
        for one in members:
            rates[one.node] = rates.get(one.node, 0.0) + one.mean_bps
        lengths = [
            one.end_time_ns - one.start_time_ns
            for one in self._calendar.clusters_before(cluster.start_time_ns, EARLIER_NS)
            if one.end_time_ns is not None and _same(one, cluster)
        ]
        return InBurst(
            burst_id=cluster.burst_id,
            kind=cluster.kind,
            lane=cluster.lane,
            start_time_ns=cluster.start_time_ns,
            end_time_ns=cluster.end_time_ns,
            marked=cluster.marked,
            nics=frozenset(f"{one.node}/{one.nic}" for one in members),
            members=frozenset(cluster.members),
            job=cluster.job,
            step=cluster.step,
            element=Element(cluster.scope, cluster.name),
            rates_bps=rates,
            usual_length_ns=round(median(lengths)) if lengths else None,
            earlier=len(lengths),
        )


def _same(one: ClusterBurst, other: ClusterBurst) -> bool:
    return (one.scope, one.name, one.site, one.lane, one.kind) == (
        other.scope, other.name, other.site, other.lane, other.kind
    )  # fmt: skip


def _single(burst: Burst) -> InBurst:
    return InBurst(
        burst_id=burst.burst_id,
        kind=burst.kind,
        lane=burst.lane,
        start_time_ns=burst.start_time_ns,
        end_time_ns=burst.end_time_ns,
        marked=False,
        nics=frozenset({f"{burst.node}/{burst.nic}"}),
        element=Element("node", burst.node),
        rates_bps={burst.node: burst.mean_bps},
    )


def touched(paths: PathIndex, burst: InBurst) -> Indexes:
    """Paths that share a NIC, or the uplink of a rack, with the members of a burst; where the bytes went to, nobody
    knows."""
    tokens = {f"nic:{nic}" for nic in burst.nics}
    tokens |= {place.uplink for node in burst.nodes if (place := paths.topology.place(node)) is not None}
    return paths.sharing(tokens)


def inside(burst: InBurst, rule: BurstContentionRule) -> tuple[int, int]:
    """Start and end of what counts as inside; the end of one that runs is far off."""
    end = burst.end_time_ns + rule.after if burst.end_time_ns is not None else 1 << 62
    return burst.start_time_ns - rule.before, end


def touched_mask(
    paths: PathIndex,
    bursts: Occasions,
    rule: BurstContentionRule,
    from_ns: int,
    *,
    step_ns: int,
    steps: int,
    but: str = "",
) -> NDArray[np.bool_]:
    """[path, step]: whether a burst touched the path at any time in that step; one (``but``) left out."""
    mask = np.zeros((len(paths), steps), np.bool_)
    to_ns = from_ns + steps * step_ns
    for burst in bursts.overlapping(from_ns - rule.after, to_ns + rule.before):
        if burst.burst_id == but:
            continue
        start, end = inside(burst, rule)
        first = max((start - from_ns) // step_ns, 0)
        last = min(-((from_ns - end) // step_ns), steps)
        if first < last:
            mask[touched(paths, burst), first:last] = True
    return mask
