"""All bursts: from records and marks to rows, fed by the fold.

The state of a NIC is written once a minute of its event time, not with each step; what came since is read again from
the log after a restart (``safe_position``), and gives the same.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bandwitness.counters import BOUNDLESS
from collector.analysis.agents import BEHIND_NS, HEARD_WITHIN_NS, Agents
from collector.analysis.attempts import Attempts
from collector.analysis.bursts.calendar import Calendar
from collector.analysis.bursts.clusters import Fleet
from collector.analysis.bursts.forming import Forming
from collector.analysis.bursts.joining import JOB_AHEAD_NS, JOB_NS, Marks
from collector.analysis.bursts.score import score
from collector.analysis.bursts.watch import NOTHING, Change, Identity, Ours, Watch
from collector.analysis.loading import Loading
from collector.analysis.octets import Meter, Octets
from collector.config import Config
from collector.model import Burst, BurstScore, ClusterBurst, MarkRow, NicSamples

SECOND = 1_000_000_000
MEMORY_NS = 25 * 3600 * SECOND  # what comes later than that forms no cluster burst with what was there
SCORED_NS = 24 * 3600 * SECOND
SCORE_EVERY_NS = 60 * SECOND
SAVE_AFTER_NS = 90 * SECOND  # by the receipt of what was not written yet
SILENT_NS = 60 * SECOND  # of an agent that has nothing to say any more, what was open has ended as far as is known
YOUNG_NS = 120 * SECOND
Key = tuple[str, str]  # node, NIC
OursOf = Callable[[str, str, int, int], Ours]


@dataclass(slots=True)
class Stored:
    """What a process before this one wrote."""

    watches: Sequence[Mapping[str, Any]] = ()
    bursts: Iterable[Burst] = ()
    clusters: Iterable[ClusterBurst] = ()
    marks: Iterable[MarkRow] = ()
    through_ns: int = 0


@dataclass(slots=True)
class Changed:
    """Rows to be written."""

    bursts: list[Burst] = field(default_factory=list)
    clusters: list[ClusterBurst] = field(default_factory=list)
    removed_bursts: list[str] = field(default_factory=list)
    removed_clusters: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Totals:
    """Since the process started, of bursts that ended within two minutes of being known."""

    bursts: dict[tuple[str, str], int] = field(default_factory=dict)  # lane, kind
    octets: dict[tuple[str, str], int] = field(default_factory=dict)
    clusters: dict[tuple[str, str, str, str], int] = field(default_factory=dict)  # scope, lane, kind, marked


class Bursts:
    """Bursts of all configured NICs."""

    def __init__(self, config: Config, ours: OursOf, stored: Stored | None = None) -> None:
        stored = stored or Stored()
        self._rule, self._ours = config.rules.burst, ours
        self.fleet = Fleet(config)
        self.calendar = Calendar(stored.bursts, stored.clusters)
        self.marks = Marks()
        for mark in stored.marks:
            self.marks.add(mark)
        self._forming = Forming(self.fleet, self._rule, self.calendar, self.marks)
        self._forming.through_ns = stored.through_ns
        self.totals = Totals()
        self._watches: dict[Key, Watch] = {}
        self._meters: dict[Key, Meter] = {}  # while entries are read again
        self._saved: dict[Key, int] = {}  # position through which the stored state goes
        self._unsaved: dict[Key, tuple[int, int, int]] = {}  # position, receipt, minute when it was first not written
        self._through: dict[str, int] = {}  # newest tick of each node
        self._bursts: dict[str, Burst | None] = {}  # to be written; None: withdrawn
        self._clusters: dict[str, ClusterBurst | None] = {}
        self._counted: set[str] = set()
        self._score: tuple[int, BurstScore] | None = None
        for row in stored.watches:
            self._restore(row)
        for burst in self.calendar.bursts_started(stored.through_ns - 3600 * SECOND, 1 << 62):
            self._forming.touch(burst)

    def _restore(self, row: Mapping[str, Any]) -> None:
        key = (row["node"], row["nic"])
        identity = self._identity(key)
        if identity is None:
            return
        watch = self._watches[key] = Watch.decode(identity, self._rule, row["state"])
        self._meters[key] = Meter.decode(json.loads(row["meter"]))
        self._saved[key] = row["position"]
        self._through[key[0]] = max(self._through.get(key[0], 0), watch.through_ns)

    def _identity(self, key: Key) -> Identity | None:
        """None for what is not configured: members of bonds, which their bond counts already."""
        endpoint = self.fleet.endpoints.get(key)
        return None if endpoint is None else Identity(*key, endpoint.lane, endpoint.speed)

    @property
    def through_ns(self) -> int:
        """All that had opened by this event time is known, of the agents that are worth waiting for."""
        return self._forming.through_ns

    # ------------------------------------------------------------ what comes in

    def add(
        self,
        carried: Iterable[tuple[str, str, list[Octets]]],
        records: Iterable[NicSamples],
        received_ns: int,
        clock_error_ns: int | None,
    ) -> None:
        """Takes in what NICs carried, and the records of the batch that say so."""
        speeds = {record.nic: None if record.driver in BOUNDLESS else record.speed_bps for record in records}
        position = next((record.source.position for record in records), 0)
        for node, nic, steps in carried:
            watch = self._watch((node, nic))
            if watch is not None:
                self._add((node, nic), watch, steps, (position, received_ns), (speeds.get(nic), clock_error_ns))

    def add_again(self, records: Sequence[NicSamples], received_ns: int, clock_error_ns: int | None) -> None:
        """Takes in a batch that was taken in before a restart, as far as its outcome was not written."""
        by_nic: dict[Key, list[NicSamples]] = {}
        for record in records:
            by_nic.setdefault((record.node, record.nic), []).append(record)
        for key, own in by_nic.items():
            if own[0].source.position > self._saved.get(key, 0) and self._identity(key) is not None:
                steps = self._meters.setdefault(key, Meter()).add(own)
                self.add([(*key, steps)], own, received_ns, clock_error_ns)

    def taken_up(self) -> None:
        """Nothing comes again any more."""
        self._meters.clear()

    def _watch(self, key: Key) -> Watch | None:
        watch = self._watches.get(key)
        if watch is None and (identity := self._identity(key)) is not None:
            watch = self._watches[key] = Watch(identity, self._rule)
        return watch

    def _add(
        self,
        key: Key,
        watch: Watch,
        steps: list[Octets],
        where: tuple[int, int],
        known: tuple[int | None, int | None],
    ) -> None:
        self._unsaved.setdefault(key, (*where, watch.minute))
        changes = watch.add(
            steps,
            speed_bps=known[0],
            clock_error_ns=known[1],
            ours=lambda from_ns, to_ns: self._ours(*key, from_ns, to_ns),
        )
        if watch.through_ns > self._through.get(key[0], 0):
            self._through[key[0]] = watch.through_ns
        for change in changes:
            self._apply(change, where[1])

    def mark(self, mark: MarkRow) -> None:
        """Takes in what a trainer said."""
        self.marks.add(mark)
        self._forming.touch_between(mark.time_ns - 3700 * SECOND, mark.time_ns + JOB_NS + JOB_AHEAD_NS)

    def _apply(self, change: Change, received_ns: int) -> None:
        known = self.calendar.burst(change.burst_id)
        if change.burst is None:
            if known is not None:
                self.calendar.remove(change.burst_id)
                self._bursts[change.burst_id] = None
                self._forming.touch(known)
            return
        burst = replace(change.burst, cluster_id=known.cluster_id) if known is not None else change.burst
        if burst != known:
            self.calendar.put(burst)
            self._bursts[burst.burst_id] = burst
            self._forming.touch(burst)
        if change.ended and received_ns - burst.last_time_ns <= YOUNG_NS and burst.burst_id not in self._counted:
            place = (burst.lane, burst.kind)
            self._counted.add(burst.burst_id)
            self.totals.bursts[place] = self.totals.bursts.get(place, 0) + 1
            self.totals.octets[place] = self.totals.octets.get(place, 0) + burst.bytes

    def advance(self, received_ns: int, agents: Agents) -> None:
        """Forms cluster bursts of what is known; at each new second of the log."""
        self._end_silent(received_ns, agents)
        reached = []
        for node, through_ns in self._through.items():
            agent = agents.get(node)
            if agent is None or received_ns - agent.last_received_time_ns > HEARD_WITHIN_NS:
                continue
            if received_ns - through_ns <= BEHIND_NS:
                reached.append(through_ns)
        formed = self._forming.advance(min(reached, default=None))
        self._bursts |= formed.bursts
        for key in formed.removed:
            self._clusters[key] = None
        for key, cluster in formed.clusters.items():
            self._clusters[key] = cluster
            if cluster.end_time_ns is not None and key not in self._counted:
                self._counted.add(key)
                if received_ns - cluster.last_time_ns <= YOUNG_NS:
                    place = (cluster.scope, cluster.lane, cluster.kind, "yes" if cluster.marked else "no")
                    self.totals.clusters[place] = self.totals.clusters.get(place, 0) + 1

    def _end_silent(self, received_ns: int, agents: Agents) -> None:
        """Of an agent that is away nobody knows how a burst goes on; once it is heard again, it does."""
        for burst in self.calendar.open_bursts():
            agent = agents.get(burst.node)
            if agent is not None and received_ns - agent.last_received_time_ns > SILENT_NS:
                ended = replace(burst, end_time_ns=burst.last_time_ns)
                self.calendar.put(ended)
                self._bursts[burst.burst_id] = ended
                self._forming.touch(ended)

    # ------------------------------------------------------------ what follows

    @property
    def has_changed(self) -> bool:
        """Whether there are rows to be written."""
        return bool(self._bursts or self._clusters)

    def take_changed(self) -> Changed:
        """Rows that changed since last asked."""
        changed = Changed(
            bursts=[burst for _, burst in sorted(self._bursts.items()) if burst is not None],
            clusters=[cluster for _, cluster in sorted(self._clusters.items()) if cluster is not None],
            removed_bursts=sorted(key for key, burst in self._bursts.items() if burst is None),
            removed_clusters=sorted(key for key, cluster in self._clusters.items() if cluster is None),
        )
        self._bursts.clear()
        self._clusters.clear()
        return changed

    def take_states(self, position: int, received_ns: int, meter: Callable[[str, str], str]) -> list[dict[str, Any]]:
        """States of NICs that are due to be written, all entries through ``position`` taken in; ``meter`` gives that
        of their counters."""
        due = [
            key
            for key, (_, first_received_ns, minute) in self._unsaved.items()
            if self._watches[key].minute > minute or received_ns - first_received_ns > SAVE_AFTER_NS
        ]
        rows: list[dict[str, Any]] = []
        for key in sorted(due):
            del self._unsaved[key]
            self._saved[key] = position
            state = self._watches[key].encode()
            rows.append({"node": key[0], "nic": key[1], "position": position, "state": state, "meter": meter(*key)})
        return rows

    def safe_position(self, position: int) -> int:
        """Behind which the log must be read again after a restart."""
        return min((first - 1 for first, _, _ in self._unsaved.values()), default=position)

    @property
    def waited_out(self) -> int:
        """Steps judged though it was not known yet whether a test of ours ran."""
        return sum(watch.waited_out for watch in self._watches.values())

    def score(self, received_ns: int) -> BurstScore:
        """Of the last day; made anew once a minute."""
        minute = received_ns // SCORE_EVERY_NS
        if self._score is None or self._score[0] != minute:
            span = (received_ns - SCORED_NS, received_ns + SECOND)
            found = score(
                self.calendar.clusters_started(*span), self.calendar.bursts_started(*span), self.marks.between(*span)
            )
            self._score = (minute, found)
        return self._score[1]

    def forecasts(self, received_ns: int) -> list[ClusterBurst]:
        """The newest cluster burst of each place, lane and kind, where it tells of a next one not long past."""
        newest: dict[tuple[str, str, str, str], ClusterBurst] = {}
        for one in self.calendar.clusters_started(received_ns - SCORED_NS, received_ns + SECOND):
            newest[one.site, one.name, one.lane, one.kind] = one
        return [
            one
            for one in newest.values()
            if one.next_start_time_ns is not None
            and received_ns - one.next_start_time_ns <= (one.interval_spread_ns or 0) + (one.interval_ns or 0)
        ]

    def forget(self, received_ns: int) -> None:
        """Lets go of what is too old to matter."""
        before_ns = received_ns - MEMORY_NS
        self.calendar.forget(before_ns)
        self.marks.forget(before_ns)
        self._counted = {key for key in self._counted if self.calendar.burst(key) or self.calendar.cluster(key)}


def own_tests(loading: Loading, attempts: Attempts) -> OursOf:
    """When tests of ours used a NIC. A planned one counts from its start on as not known, until its client has
    recorded how it ended or no record is waited for any more: it may have stayed out because a burst was on."""

    def ours(node: str, nic: str, from_ns: int, to_ns: int) -> Ours:
        token = f"nic:{node}/{nic}"
        loads = [load for load in loading.overlapping(from_ns, to_ns + 1) if token in load.tokens]
        if not loads:
            return NOTHING
        open_ = [load.from_ns for load in loads if not attempts.is_known(load.slot_id)]
        return Ours([(load.from_ns, load.to_ns) for load in loads], min(open_, default=None))

    return ours
