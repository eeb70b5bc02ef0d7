"""Cluster bursts and the bursts they are made of, kept in step with each other. Pure, in event time.

Only bursts that were known by a moment of event time that all agents have passed are looked at (``through_ns``), so a
cluster burst does not change its members with the order in which agents happen to be heard. In the end it is the same
for any order: whatever changes near it makes it anew, from the bursts as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from collector.analysis.bursts.calendar import Calendar
from collector.analysis.bursts.clusters import Fleet, Group, groups, waves
from collector.analysis.bursts.forecast import forecast
from collector.analysis.bursts.joining import Marks, newest
from collector.config import BurstRule
from collector.model import Burst, ClusterBurst

SECOND = 1_000_000_000
DAY_NS = 24 * 3600 * SECOND
Place = tuple[str, str, str]  # site, lane, kind


@dataclass(slots=True)
class Formed:
    """What changed."""

    clusters: dict[str, ClusterBurst] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    bursts: dict[str, Burst] = field(default_factory=dict)  # that belong to another one than before


class Forming:
    """Makes cluster bursts of what is in the calendar."""

    def __init__(self, fleet: Fleet, rule: BurstRule, calendar: Calendar, marks: Marks) -> None:
        self._fleet, self._rule, self._calendar, self._marks = fleet, rule, calendar, marks
        self.through_ns = 0
        self._touched: dict[Place, dict[int, set[str]]] = {}  # start -> cluster bursts that lost a member there

    def touch(self, burst: Burst) -> None:
        """Notes that a burst is new, has changed or is gone."""
        place = (self._fleet.site.get(burst.node, ""), burst.lane, burst.kind)
        lost = self._touched.setdefault(place, {}).setdefault(burst.start_time_ns, set())
        if burst.cluster_id:
            lost.add(burst.cluster_id)

    def touch_between(self, from_ns: int, to_ns: int) -> None:
        """Notes that something else has changed for all bursts of a stretch: a mark."""
        for burst in self._calendar.bursts_started(from_ns, to_ns):
            self.touch(burst)

    def advance(self, through_ns: int | None) -> Formed:
        """Makes anew what has changed, with all bursts known by then."""
        if through_ns is not None:
            self.through_ns = max(self.through_ns, through_ns)
        formed = Formed()
        hidden: dict[Place, dict[int, set[str]]] = {}
        while self._touched:  # what is made anew may touch forecasts behind it, and these nothing more
            touched, self._touched = self._touched, {}
            for place, starts in sorted(touched.items()):
                self._at_place(place, starts, formed, hidden)
        self._touched = hidden
        return formed

    def _at_place(
        self, place: Place, starts: dict[int, set[str]], formed: Formed, hidden: dict[Place, dict[int, set[str]]]
    ) -> None:
        done: set[int] = set()
        for start, lost in sorted(starts.items()):
            near = self._near(place, start)
            known = [burst for burst in near if burst.opened_time_ns <= self.through_ns]
            for burst in near:
                if burst.opened_time_ns > self.through_ns:
                    hidden.setdefault(place, {}).setdefault(burst.start_time_ns, set())
            if start in done and not lost:
                continue
            done.update(burst.start_time_ns for burst in near)
            self._make(place, known, set(lost), formed)

    def _near(self, place: Place, start_ns: int) -> list[Burst]:
        """All bursts that are joined to a time by others no further than 5 s from each other."""
        within = self._rule.within
        first = last = start_ns
        while True:
            found = [
                burst
                for burst in self._calendar.bursts_started(first - within, last + within + 1)
                if (self._fleet.site.get(burst.node, ""), burst.lane, burst.kind) == place
            ]
            if not found:
                return []
            edges = (min(first, found[0].start_time_ns), max(last, found[-1].start_time_ns))
            if edges == (first, last):
                return found
            first, last = edges

    def _make(self, place: Place, bursts: Sequence[Burst], before: set[str], formed: Formed) -> None:
        before |= {burst.cluster_id for burst in bursts if burst.cluster_id}
        made: dict[str, Group] = {}
        for wave in waves(bursts, self._rule.within):
            for group in groups(wave, self._fleet, self._rule, self._marks.job_of, self._marks.nodes_of):
                made[group.burst_id] = group
        cluster_of = {burst.burst_id: key for key, group in made.items() for burst in group.members}
        for burst in bursts:
            cluster_id = cluster_of.get(burst.burst_id, "")
            if burst.cluster_id != cluster_id:
                formed.bursts[burst.burst_id] = moved = replace(burst, cluster_id=cluster_id)
                self._calendar.put(moved)
        for key in sorted(before - made.keys()):
            gone = self._calendar.cluster(key)
            if gone is not None:
                self._calendar.remove_cluster(key)
                formed.clusters.pop(key, None)
                formed.removed.add(key)
                self._touch_later(place, gone.start_time_ns)
        for key, group in made.items():
            old = self._calendar.cluster(key)
            new = self._cluster(group, place)
            if new != old:
                formed.clusters[key] = new
                formed.removed.discard(key)
                self._calendar.put_cluster(new)
            if old is None or _series(old) != _series(new) or old.start_time_ns != new.start_time_ns:
                self._touch_later(place, min(new.start_time_ns, old.start_time_ns if old else new.start_time_ns))

    def _touch_later(self, place: Place, start_ns: int) -> None:
        for cluster in self._calendar.clusters_started(start_ns + 1, start_ns + DAY_NS):
            if (cluster.site, cluster.lane, cluster.kind) == place:
                self._touched.setdefault(place, {}).setdefault(cluster.start_time_ns, set())

    def _cluster(self, group: Group, place: Place) -> ClusterBurst:
        members = group.members
        _, lane, kind = place
        start_ns, last_ns = min(burst.start_time_ns for burst in members), max(burst.last_time_ns for burst in members)
        ends = [burst.end_time_ns for burst in members]
        end_ns = None if None in ends else last_ns
        starts = {node: min(b.start_time_ns for b in members if b.node == node) for node in group.nodes}
        last = {node: max(b.last_time_ns for b in members if b.node == node) for node in group.nodes}
        rates: dict[str, float] = {}
        for burst in members:
            rates[burst.node] = rates.get(burst.node, 0.0) + burst.mean_bps
        slowest = min(group.nodes, key=lambda node: (rates[node], node))
        error_ns = max(burst.error_ns for burst in members)
        octets = sum(burst.bytes for burst in members)
        mark = newest(self._marks.of(group, kind, (start_ns, last_ns), error_ns))
        row = ClusterBurst(
            burst_id=group.burst_id,
            scope=group.scope,
            name=group.name,
            site=group.site,
            lane=lane,
            kind=kind,
            start_time_ns=start_ns,
            end_time_ns=end_ns,
            opened_time_ns=_opened(members, self._rule),
            last_time_ns=last_ns,
            error_ns=error_ns,
            start_spread_ns=max(starts.values()) - start_ns,
            end_spread_ns=None if end_ns is None else last_ns - min(last.values()),
            bytes=octets,
            achieved_bps=octets * 8 / max(last_ns - start_ns, 1) * SECOND,
            nodes=tuple(group.nodes),
            members=tuple(burst.burst_id for burst in members),
            slowest_node=slowest,
            slowest_bps=rates[slowest],
            marked=mark is not None,
            job=mark.job if mark is not None else group.name if group.scope == "job" else "",
            step=mark.step if mark is not None else None,
            labels=dict(mark.labels) if mark is not None else {},
            mark_time_ns=mark.from_ns if mark is not None else None,
        )
        return self._with_forecast(row)

    def _with_forecast(self, row: ClusterBurst) -> ClusterBurst:
        earlier = self._calendar.clusters_started(row.start_time_ns - DAY_NS, row.start_time_ns)
        starts = [one.start_time_ns for one in earlier if _series(one) == _series(row) and one.burst_id != row.burst_id]
        found = forecast([*starts, row.start_time_ns])
        if found is None:
            return row
        return replace(
            row,
            next_start_time_ns=found.next_start_time_ns,
            interval_ns=found.interval_ns,
            interval_spread_ns=found.spread_ns,
            intervals=found.intervals,
        )


def _series(cluster: ClusterBurst) -> tuple[str, str, str, str, str]:
    """Cluster bursts that may be periodic together: those of a job, or else of a place."""
    whose = ("job", cluster.job) if cluster.job else (cluster.scope, cluster.name)
    return (*whose, cluster.site, cluster.lane, cluster.kind)


def _opened(members: Sequence[Burst], rule: BurstRule) -> int:
    """When as many nodes were known as make one in any case, or all that there are."""
    known: list[str] = []
    for burst in members:
        if burst.node not in known:
            known.append(burst.node)
        if len(known) >= rule.min_nodes:
            return burst.opened_time_ns
    return members[-1].opened_time_ns
