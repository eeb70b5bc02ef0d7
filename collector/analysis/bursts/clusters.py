"""Bursts of many nodes at once, out of bursts of single NICs. Pure.

What makes a cluster burst follows from the set of bursts alone, in whatever order they became known: bursts of one
site, lane and kind are cut into *waves*, each of those that begin within 5 s of its first. In a wave, the nodes of a
job that trainers' marks name are a cluster burst if they are 60 % of the job's nodes; the others are if they are 60 %
of their rack's nodes on that lane, or three. One node alone never is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from collector.analysis.elements import Topology
from collector.config import BurstRule, Config
from collector.model import Burst

SECOND = 1_000_000_000
Nodes = frozenset[str]


class Fleet:
    """Where nodes stand, and which racks have how many nodes on a lane."""

    def __init__(self, config: Config) -> None:
        topology = Topology(config)
        self.endpoints = {(node.name, endpoint.nic): endpoint for node in config.nodes for endpoint in node.endpoints}
        self.site: Mapping[str, str] = {node.name: node.site for node in config.nodes}
        self.rack: dict[str, str] = {}
        self._racks: dict[tuple[str, str], set[str]] = {}
        for node in config.nodes:
            place = topology.place(node.name)
            assert place is not None
            self.rack[node.name] = place.rack
            for endpoint in node.endpoints:
                self._racks.setdefault((place.rack, endpoint.lane), set()).add(node.name)

    def nodes(self, rack: str, lane: str) -> Nodes:
        """Nodes of a rack with an endpoint on a lane."""
        return frozenset(self._racks.get((rack, lane), ()))


@dataclass(frozen=True, slots=True)
class Group:
    """Bursts that are one cluster burst."""

    scope: str  # job, rack, site
    name: str
    site: str
    members: Sequence[Burst]  # by when they were known

    @property
    def burst_id(self) -> str:
        """Of the member known first, so that it stays when others join."""
        return sha256(f"cluster\n{self.members[0].burst_id}".encode()).hexdigest()[:32]

    @property
    def nodes(self) -> list[str]:
        return sorted({burst.node for burst in self.members})


def waves(bursts: Iterable[Burst], within_ns: int) -> list[list[Burst]]:
    """Bursts of one site, lane and kind, cut by start."""
    found: list[list[Burst]] = []
    for burst in sorted(bursts, key=lambda burst: (burst.start_time_ns, burst.burst_id)):
        if found and burst.start_time_ns - found[-1][0].start_time_ns <= within_ns:
            found[-1].append(burst)
        else:
            found.append([burst])
    return found


def groups(
    wave: Sequence[Burst],
    fleet: Fleet,
    rule: BurstRule,
    job_of: Callable[[str, int], str],
    nodes_of: Callable[[str, int], Nodes],
) -> list[Group]:
    """Cluster bursts of one wave.

    Args:
        wave: its bursts.
        fleet: where nodes stand.
        rule: how many make one.
        job_of: job of a node at a time; empty: not known.
        nodes_of: nodes of a job at a time.
    """
    start_ns = wave[0].start_time_ns
    site = fleet.site.get(wave[0].node, "")
    found = []
    by_job: dict[str, list[Burst]] = {}
    for burst in wave:
        by_job.setdefault(job_of(burst.node, start_ns), []).append(burst)
    rest = by_job.pop("", [])
    for job, members in sorted(by_job.items()):
        if _are_enough({burst.node for burst in members}, nodes_of(job, start_ns), rule):
            found.append(Group("job", job, site, _ordered(members)))
        else:
            rest += members
    nodes = {burst.node for burst in rest}
    racks = {fleet.rack.get(node, "") for node in nodes}
    lane = wave[0].lane
    full = any(_are_enough(nodes & fleet.nodes(rack, lane), fleet.nodes(rack, lane), rule) for rack in racks)
    if len(nodes) >= 2 and (full or len(nodes) >= rule.min_nodes):
        scope, name = ("rack", next(iter(racks))) if len(racks) == 1 else ("site", site)
        found.append(Group(scope, name, site, _ordered(rest)))
    return found


def _are_enough(nodes: Iterable[str], of: Nodes, rule: BurstRule) -> bool:
    number = len(set(nodes))
    return number >= rule.min_nodes or (number >= 2 and number >= rule.nodes * len(of))


def _ordered(bursts: Iterable[Burst]) -> list[Burst]:
    return sorted(bursts, key=lambda burst: (burst.opened_time_ns, burst.burst_id))
