"""Which bursts were on, when and where: what rules ask.

A burst is on from 2 s before its start to 5 s after its end (``BEFORE_NS``, ``AFTER_NS``): trouble that begins in
that time may be its doing. While it is open, its newest tick stands for its end, so what is said of a time depends on
the counters up to that time and not on how much later they are known.

A burst can be asked for as soon as it has opened (two samples above the threshold, so some 2 s of event time after its
start at one sample a second, plus the agent's flush); ``confirmed`` says whether it is large enough to stay. Whatever
is opened, moved or withdrawn is told by ``take_changes``: a rule that has judged a part of such a span judges again.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from collector.model import Burst, ClusterBurst

SECOND = 1_000_000_000
BEFORE_NS = 2 * SECOND
AFTER_NS = 5 * SECOND
LONGEST_NS = 3700 * SECOND  # no burst is longer: what is high for an hour is usual
MAX_BURSTS = 200_000  # in memory; the oldest go
Span = tuple[int, int]
B = TypeVar("B", Burst, ClusterBurst)


class Calendar:
    """Bursts and cluster bursts of a day back, by time."""

    def __init__(self, bursts: Iterable[Burst] = (), clusters: Iterable[ClusterBurst] = ()) -> None:
        self._bursts = _Timeline[Burst]()
        self._clusters = _Timeline[ClusterBurst]()
        self._changes: list[Span] = []
        for burst in bursts:
            self._bursts.put(burst.burst_id, burst)
        for cluster in clusters:
            self._clusters.put(cluster.burst_id, cluster)

    # ------------------------------------------------------------ questions

    def covering(self, node: str, lane: str, time_ns: int) -> ClusterBurst | Burst | None:
        """What was on at a node's lane at a time: the cluster burst its NIC took part in, else the NIC's own burst.

        Of several, a save or restore goes before an exchange, and then the one that began first.
        """
        found = [burst for burst in self.bursts(time_ns, time_ns + 1) if (burst.node, burst.lane) == (node, lane)]
        if not found:
            return None
        first = min(found, key=lambda burst: (burst.kind == "exchange", burst.start_time_ns, burst.burst_id))
        return self.cluster(first.cluster_id) or first

    def clusters(self, from_ns: int, to_ns: int) -> list[ClusterBurst]:
        """Cluster bursts that were on at any time in ``[from, to)``, by start."""
        return list(self._clusters.on(from_ns, to_ns))

    def bursts(self, from_ns: int, to_ns: int) -> list[Burst]:
        """Bursts of single NICs that were on at any time in ``[from, to)``, by start."""
        return list(self._bursts.on(from_ns, to_ns))

    def burst(self, burst_id: str) -> Burst | None:
        return self._bursts.get(burst_id)

    def cluster(self, burst_id: str) -> ClusterBurst | None:
        return self._clusters.get(burst_id)

    def open_bursts(self) -> list[Burst]:
        return list(self._bursts.open())

    def open_clusters(self) -> list[ClusterBurst]:
        return list(self._clusters.open())

    def clusters_before(self, time_ns: int, span_ns: int) -> list[ClusterBurst]:
        """Cluster bursts that started in the ``span_ns`` before a time, by start."""
        return self.clusters_started(time_ns - span_ns, time_ns)

    def clusters_started(self, from_ns: int, to_ns: int) -> list[ClusterBurst]:
        """Cluster bursts that started in ``[from, to)``, by start."""
        return list(self._clusters.started(from_ns, to_ns))

    def bursts_started(self, from_ns: int, to_ns: int) -> list[Burst]:
        """Bursts that started in ``[from, to)``, by start."""
        return list(self._bursts.started(from_ns, to_ns))

    def take_changes(self) -> list[Span]:
        """Stretches of event time for which answers have changed since last asked."""
        changes, self._changes = self._changes, []
        return changes

    # ------------------------------------------------------------ what comes in

    def put(self, burst: Burst) -> None:
        """Adds a burst, or what is new of it."""
        self._note(self._bursts.put(burst.burst_id, burst), burst)

    def put_cluster(self, cluster: ClusterBurst) -> None:
        """Adds a cluster burst, or what is new of it."""
        before = self._clusters.put(cluster.burst_id, cluster)
        self._note(before, cluster)
        if before is not None and before.marked != cluster.marked:
            self._changes.append(_span(cluster))

    def remove(self, burst_id: str) -> None:
        """Withdraws a burst."""
        self._note(self._bursts.remove(burst_id), None)

    def remove_cluster(self, burst_id: str) -> None:
        """Withdraws a cluster burst."""
        self._note(self._clusters.remove(burst_id), None)

    def forget(self, before_ns: int) -> None:
        """Lets go of what started before a time and is over; that changes no answer anybody still asks for."""
        self._bursts.forget(before_ns)
        self._clusters.forget(before_ns)

    def _note(self, before: Burst | ClusterBurst | None, after: Burst | ClusterBurst | None) -> None:
        """A burst that goes on changes no answer about a time whose counters are known."""
        if before is None or after is None:
            either = before or after
            if either is not None:
                self._changes.append(_span(either))
            return
        old, new = _span(before), _span(after)
        if old[0] != new[0]:
            self._changes.append((min(old[0], new[0]), max(old[0], new[0])))
        if new[1] < old[1]:
            self._changes.append((new[1], old[1]))


class _Timeline(Generic[B]):
    """Bursts by start."""

    def __init__(self) -> None:
        self._by_id: dict[str, B] = {}
        self._order: list[tuple[int, str]] = []
        self._open: set[str] = set()

    def get(self, burst_id: str) -> B | None:
        return self._by_id.get(burst_id)

    def put(self, burst_id: str, burst: B) -> B | None:
        """Gives back what stood there before."""
        before = self._by_id.get(burst_id)
        if before is None or before.start_time_ns != burst.start_time_ns:
            self.remove(burst_id)
            insort(self._order, (burst.start_time_ns, burst_id))
        self._by_id[burst_id] = burst
        if burst.end_time_ns is None:
            self._open.add(burst_id)
        else:
            self._open.discard(burst_id)
        if len(self._order) > MAX_BURSTS:
            self.remove(self._order[0][1])
        return before

    def remove(self, burst_id: str) -> B | None:
        burst = self._by_id.pop(burst_id, None)
        if burst is not None:
            self._order.pop(bisect_left(self._order, (burst.start_time_ns, burst_id)))
            self._open.discard(burst_id)
        return burst

    def on(self, from_ns: int, to_ns: int) -> Iterator[B]:
        for burst in self.started(from_ns - LONGEST_NS - AFTER_NS, to_ns + BEFORE_NS):
            span = _span(burst)
            if span[0] < to_ns and span[1] > from_ns:
                yield burst

    def started(self, from_ns: int, to_ns: int) -> Iterator[B]:
        order = self._order
        for place in range(bisect_left(order, (from_ns, "")), bisect_left(order, (to_ns, ""))):
            yield self._by_id[order[place][1]]

    def open(self) -> Iterator[B]:
        return (self._by_id[burst_id] for burst_id in sorted(self._open))

    def forget(self, before_ns: int) -> None:
        old: Sequence[str] = [burst_id for start, burst_id in self._order if start < before_ns]
        for burst_id in old:
            if burst_id not in self._open:
                self.remove(burst_id)


def _span(burst: Burst | ClusterBurst) -> Span:
    return burst.start_time_ns - BEFORE_NS, burst.last_time_ns + AFTER_NS
