"""A contention test: what a rack's uplink carries when many of its hosts send at once. Pure.

One flow shows the narrower of a NIC and one member of an uplink, whatever is sold behind it. So, one group after the
other, each of slots that begin at once:

- SOLO: each host alone, to a host elsewhere. Their sum S is what the rack could send.
- CONCURRENT: k = 2, 4 … H hosts at once, each to another host elsewhere, spread over the other racks. Where the sum no
  longer grows with k it is the uplink's capacity.
- CONTROL: the same hosts at once, each to its neighbour in the rack. If they reach S, neither hosts nor leaf are the
  limit.
- ONE_FLOW: as the largest CONCURRENT group, with one flow a host: what collisions of hashes cost.

All but ONE_FLOW use at least 16 flows a host: one flow a host through an uplink of eight members gives a rack that is
not oversold two thirds of its rate, sixteen 99 %.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import NoReturn
from zoneinfo import ZoneInfo

import msgspec

from bandwitness.identity import short_id
from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_CONTENTION, Slot
from bandwitness.v1.record_pb2 import (
    GROUP_PART_CONCURRENT,
    GROUP_PART_CONTROL,
    GROUP_PART_ONE_FLOW,
    GROUP_PART_SOLO,
    GroupPart,
    TestGroup,
)
from collector.config import Config, Permission, Throughput
from collector.model import SlotRow
from collector.planner import PlanError
from collector.planner.cost import Cost, cost_of
from collector.planner.endpoints import Pair, PlacedEndpoint, lanes, pair, placed_endpoints
from collector.planner.plan import SlotMaker
from collector.windows import OTHER

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
MIN_FLOWS = 16
SOONEST_NS = 10 * SECOND  # agents must have the plan, and servers be up, before the first packet
AHEAD_NS = 8 * 86_400 * SECOND  # how far ahead permitted hours are looked for
MAX_REPEATS = 20


def _refuse(problem: str) -> NoReturn:
    raise PlanError([problem])


@dataclass(frozen=True, slots=True)
class ContentionPlan:
    """All of one test."""

    test_id: bytes
    groups: tuple[TestGroup, ...]  # in order of start
    slots: tuple[tuple[SlotRow, Slot], ...]  # in order of start
    cost: Cost
    notes: tuple[str, ...]

    @property
    def start_ns(self) -> int:
        return self.groups[0].start_time_ns

    @property
    def end_ns(self) -> int:
        return max(row.end_time_ns for row, _ in self.slots)


def permission_for(config: Config, kind: str, site: str, rack: str) -> Permission:
    """The permission under which a test may run; one that names the rack before one for the whole site.

    Raises:
        PlanError: there is none.
    """
    fitting = [one for one in config.permissions if one.kind == kind and one.site == site and one.rack in (None, rack)]
    if not fitting:
        _refuse(
            f"no permission for a {kind} test of rack {site}/{rack}: it saturates what others share. Write who "
            "agreed to what under permissions: in collector.yaml"
        )
    return min(fitting, key=lambda one: one.rack is None)


def plan_contention(
    config: Config, site: str, rack: str, now_ns: int, *, lane: str | None = None, repeats: int = 3
) -> ContentionPlan:
    """The whole test, at the first time that its permission allows.

    Raises:
        PlanError: no permission, no time in its hours, more bytes than it allows, or too few hosts.
    """
    permission = permission_for(config, "contention", site, rack)
    if not 1 <= repeats <= MAX_REPEATS:
        _refuse(f"repeats: 1 to {MAX_REPEATS}")
    sources, destinations = _ends(config, site, rack, lane)
    throughput = config.measure.throughput
    many = replace_flows(throughput, max(MIN_FLOWS, throughput.streams))
    groups = list(_groups(sources, destinations, repeats))
    step_ns = throughput.hold_ns + SECOND
    start_ns = first_start(config, permission, now_ns, len(groups) * step_ns)
    test_id = sha256(f"contention|{site}|{rack}|{start_ns}|{now_ns}".encode()).digest()[:16]
    makers = {True: SlotMaker(replace_flows(throughput, 1)), False: SlotMaker(many)}
    planned, slots = [], []
    for number, group in enumerate(groups):
        at_ns = start_ns + number * step_ns + throughput.margin
        group_id = sha256(test_id + number.to_bytes(4, "big")).digest()[:16]
        made = [_slot(makers[group.part == GROUP_PART_ONE_FLOW], one, group, at_ns, group_id) for one in group.pairs]
        slots += made
        planned.append(
            TestGroup(
                group_id=group_id,
                part=group.part,
                senders=len(group.pairs),
                repeat=group.repeat,
                start_time_ns=at_ns,
                slots=len(made),
            )
        )
    cost = cost_of(config, [row for row, _ in slots])
    if cost.bytes > permission.byte_cap:
        _refuse(
            f"{len(slots)} runs at full speed come to {cost.bytes} bytes, the permission of {permission.approver} "
            f"allows {permission.byte_cap}: fewer repeats, shorter tests, or a larger byte_cap"
        )
    racks = {(end.site, end.rack) for end in destinations[: len(sources)]}
    notes = (
        ["all receivers stand in one rack: the narrower of the two uplinks is what will be found"]
        if len(racks) == 1
        else []
    )
    return ContentionPlan(test_id, tuple(planned), tuple(slots), cost, tuple(notes))


@dataclass(frozen=True, slots=True)
class _Group:
    part: GroupPart.ValueType
    repeat: int
    pairs: Sequence[Pair]


def _ends(config: Config, site: str, rack: str, lane: str | None) -> tuple[list[PlacedEndpoint], list[PlacedEndpoint]]:
    """Hosts of the rack, and hosts elsewhere that they can reach, racks in turn."""
    reaches = lanes(placed_endpoints(config))
    best: tuple[list[PlacedEndpoint], list[PlacedEndpoint]] = ([], [])
    for (name, _, _), ends in reaches.items():
        if lane is not None and name != lane:
            continue
        mine = _one_a_node([end for end in ends if (end.site, end.rack) == (site, rack)])
        others = _one_a_node([end for end in ends if (end.site, end.rack) != (site, rack) and not end.client_only])
        if len(mine) > len(best[0]):
            best = (mine, _racks_in_turn(others))
    mine, others = best
    if len(mine) < 2:
        _refuse(f"rack {site}/{rack} has {len(mine)} hosts on one lane: contention needs two or more")
    if len(others) < len(mine):
        _refuse(
            f"{len(mine)} hosts of rack {site}/{rack} send at once, each to another host elsewhere: there are "
            f"{len(others)}"
        )
    return mine, others


def _one_a_node(ends: Sequence[PlacedEndpoint]) -> list[PlacedEndpoint]:
    return list({end.node: end for end in reversed(ends)}.values())[::-1]


def _racks_in_turn(ends: Sequence[PlacedEndpoint]) -> list[PlacedEndpoint]:
    by_rack: dict[tuple[str, str], list[PlacedEndpoint]] = {}
    for end in ends:
        by_rack.setdefault((end.site, end.rack), []).append(end)
    ranked = [(place, rack, end) for rack, hosts in by_rack.items() for place, end in enumerate(hosts)]
    return [end for _, _, end in sorted(ranked, key=lambda item: item[:2])]


def ramp(hosts: int) -> list[int]:
    """2, 4, 8 … and all of them."""
    counts = []
    k = 2
    while k < hosts:
        counts.append(k)
        k *= 2
    return [*counts, hosts]


def _groups(sources: Sequence[PlacedEndpoint], others: Sequence[PlacedEndpoint], repeats: int) -> Iterator[_Group]:
    out = [pair(source, other) for source, other in zip(sources, others, strict=False)]
    inside = [pair(source, sources[(place + 1) % len(sources)]) for place, source in enumerate(sources)]
    outward = [one for one in out if one is not None]
    ring = [one for one in inside if one is not None]
    for repeat in range(repeats):
        for one in outward:
            yield _Group(GROUP_PART_SOLO, repeat, [one])
        for k in ramp(len(sources)):
            yield _Group(GROUP_PART_CONCURRENT, repeat, outward[:k])
        yield _Group(GROUP_PART_CONTROL, repeat, ring)
        yield _Group(GROUP_PART_ONE_FLOW, repeat, outward)


def replace_flows(throughput: Throughput, flows: int) -> Throughput:
    """The configured tests with another number of flows: TCP and one way, whatever the others are."""
    return msgspec.structs.replace(throughput, streams=flows, udp_rate=None, bidirectional=False)


def _slot(maker: SlotMaker, one: Pair, group: _Group, at_ns: int, group_id: bytes) -> tuple[SlotRow, Slot]:
    path = maker.path(one.source.row, one.destination.row)
    throughput = maker.throughput
    name = GroupPart.Name(group.part).removeprefix("GROUP_PART_").lower()
    row = SlotRow(
        slot_id=sha256(group_id + path).digest()[:16],
        group_id=group_id,
        purpose=SLOT_PURPOSE_CONTENTION,
        window=OTHER,
        day=datetime.fromtimestamp(at_ns // SECOND, ZoneInfo("UTC")).strftime("%Y-%m-%d"),
        start_time_ns=at_ns,
        end_time_ns=at_ns + throughput.duration + throughput.omit + throughput.margin,
        margin_ns=throughput.margin,
        client=one.client.row,
        server=one.server.row,
        port=throughput.first_port,
        reverse=one.reverse,
        path_id=short_id(path),
        profile_id=maker.profile_id,
        tokens=one.tokens,
        reason=f"contention test, {name} of {len(group.pairs)}, repeat {group.repeat + 1}",
    )
    return row, maker.message(row, path)


# ---------------------------------------------------------------- when


def first_start(config: Config, permission: Permission, now_ns: int, length_ns: int) -> int:
    """The first time after the notice from which on ``length_ns`` lie inside the permitted hours.

    Raises:
        PlanError: there is none.
    """
    site = next(site for site in config.sites if site.name == permission.site)
    zone = ZoneInfo(site.time_zone)
    earliest_ns: int = now_ns + max(permission.notice, SOONEST_NS)
    if not permission.ranges:
        return earliest_ns
    for start_ns in (earliest_ns, *range(-(-earliest_ns // MINUTE) * MINUTE, earliest_ns + AHEAD_NS, MINUTE)):
        if any(_inside(start_ns, length_ns, zone, one) for one in permission.ranges):
            return int(start_ns)
    _refuse(
        f"the test takes {length_ns // SECOND} s, and no stretch of the permitted hours "
        f"({', '.join(permission.hours)}) is as long: fewer repeats or longer hours"
    )


def _inside(start_ns: int, length_ns: int, zone: ZoneInfo, hours: tuple[int, int]) -> bool:
    """Whether a stretch lies inside daily hours by the local clock; hours may pass midnight."""
    begin_s, end_s = hours
    long_s = (end_s - begin_s) % 86_400 or 86_400
    local = datetime.fromtimestamp(start_ns // SECOND, zone)
    into_s = (local.hour * 3600 + local.minute * 60 + local.second - begin_s) % 86_400
    return into_s + -(-length_ns // SECOND) <= long_s
