"""The plans that agents are sent: pinglist, slots, and how long both hold. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from math import ceil

from bandwitness.identity import canonical, short_id
from bandwitness.v1.plan_pb2 import (
    NicSpeed,
    PathMtuCheck,
    Plan,
    RoundTripTarget,
    Slot,
    SlotPurpose,
    StampReflector,
    StampTarget,
)
from bandwitness.v1.record_pb2 import Endpoint, Engine, Path, Profile, Protocol, TypeP
from collector.config import Config, Throughput
from collector.config.target_check import address_of
from collector.model import EndpointRow, SlotRow
from collector.planner.calendar import Calendar
from collector.planner.endpoints import PlacedEndpoint, placed_endpoints
from collector.planner.pinglists import pinglists
from collector.planner.placement import KIND_NAMES, PlannedTest
from collector.planner.stamplists import paths_in, stamplists
from collector.planner.timetable import plan_tests
from collector.windows import DAY_S, SECOND

DAY_NS = DAY_S * SECOND
HORIZON_NS = DAY_NS
FROZEN_NS = 600 * SECOND  # slots that begin sooner stay as they were planned before
MS = SECOND // 1000
ADDRESSES_OF_NAME = 8  # that an agent probes at most


@dataclass(frozen=True, slots=True)
class Plans:
    """One plan for each node, and the timetable of them all."""

    version: int
    plans: Mapping[str, Plan]  # by node
    slots: tuple[SlotRow, ...]  # in order of start
    notes: tuple[str, ...]  # what is not measured as asked, for people


def build_plans(
    config: Config,
    now_ns: int,
    previous: Sequence[SlotRow] = (),
    *,
    previous_version: int = 0,
    horizon_ns: int = HORIZON_NS,
) -> Plans:
    """What each node is to measure from ``now_ns`` on.

    The same configuration gives the same slots whenever it is asked, so planning again only adds what the horizon has
    reached. Slots that begin before ``now_ns`` and are not in ``previous`` are not planned: where a collector starts
    within a window, counts fall short of ``planned``, and that is visible.

    Args:
        config: the whole fleet.
        now_ns: wall clock of the collector.
        previous: slots planned before, from the last plans or from the control chain. Those that begin within
            ``FROZEN_NS`` are kept as they are; only where they all lie in the past, nothing is frozen.
        previous_version: of the last plans; the new version is above it.
        horizon_ns: how far ahead slots are planned.

    Raises:
        PlanError: the fleet cannot be measured as configured; says why, with the arithmetic.
    """
    endpoints = placed_endpoints(config)
    version = max(now_ns // MS, previous_version + 1)
    frozen_until_ns = now_ns + FROZEN_NS
    lists = pinglists(config, endpoints, now_ns // DAY_NS)
    stamp = stamplists(config, endpoints, now_ns // DAY_NS)
    timetable = plan_tests(config, now_ns, now_ns + horizon_ns)
    maker = SlotMaker(config.measure.throughput)
    slots = [maker.slot(test) for test in timetable.tests]
    slots = [(row, slot) for row, slot in slots if row.start_time_ns - row.margin_ns >= now_ns]
    notes = [*lists.notes, *timetable.notes]
    if any(row.start_time_ns > now_ns for row in previous) and config.measure.throughput.enabled:
        slots = _keep_frozen(slots, previous, now_ns, config=config, maker=maker, notes=notes)
    plans = {}
    for node in config.nodes:
        plan = _plan(config, node.name, [end for end in endpoints if end.node == node.name])
        plan.version, plan.issued_time_ns = version, now_ns
        plan.expiry_time_ns = now_ns + config.measure.plan_expiry
        plan.frozen_until_ns = frozen_until_ns
        plan.round_trip.extend(lists.targets[node.name])
        if config.measure.path_mtu.enabled:
            check = config.measure.path_mtu
            plan.path_mtu.CopyFrom(PathMtuCheck(interval_ns=check.interval, payload_bytes=check.sizes))
        plan.no_reference_traces = not config.measure.trace.reference
        plan.stamp.extend(stamp.targets[node.name])
        plan.max_probes_per_second = ceil(max_rate(plan) - 1e-9)
        if config.measure.stamp.enabled:
            reflector = StampReflector(
                port=config.measure.stamp.port,
                allowed_sender=stamp.senders[node.name],
                well_known_port=config.measure.stamp.well_known_port,
            )
            plan.stamp_reflector.CopyFrom(reflector)
        plans[node.name] = plan
    for row, slot in slots:
        for name in (row.client.node, row.server.node):
            plans[name].slot.append(slot)
    return Plans(version, plans, tuple(row for row, _ in slots), tuple(dict.fromkeys(notes)))


def _plan(config: Config, node: str, endpoints: Sequence[PlacedEndpoint]) -> Plan:
    measure = config.measure
    speeds = {
        endpoint.nic: endpoint.speed
        for one in config.nodes
        if one.name == node
        for endpoint in one.endpoints
        if endpoint.speed is not None
    }
    return Plan(
        node=node,
        site=endpoints[0].site,
        rack=endpoints[0].rack,
        offline_test_grace_ns=measure.throughput.offline_test_grace,
        endpoint=[endpoint.message for endpoint in endpoints],
        counter_interval_ns=measure.counters.interval,
        burst_counter_interval_ns=min(measure.counters.burst_interval, measure.counters.interval),
        flush_interval_ns=measure.flush,
        own_traffic_limit_ratio=measure.throughput.own_traffic_limit,
        nic_speed=[NicSpeed(nic=nic, speed_bps=speed) for nic, speed in sorted(speeds.items())],
    )


def max_rate(plan: Plan) -> float:
    """Probes a second that the plan's targets may come to: each address of a name is a path of its own."""
    rate = 0.0
    for target in plan.round_trip:
        rate += _addresses(target) * SECOND / target.interval_ns
    for stamp in plan.stamp:
        rate += _addresses(stamp) * paths_in([stamp]) * SECOND / stamp.interval_ns
    return rate


def _addresses(target: RoundTripTarget | StampTarget) -> int:
    if not target.HasField("target"):
        return 1
    return 1 if address_of(target.target.address) is not None else ADDRESSES_OF_NAME


# ---------------------------------------------------------------- slots


class SlotMaker:
    """Planned tests as rows and as messages. Remembers what recurs."""

    def __init__(self, throughput: Throughput) -> None:
        self.throughput = throughput
        self.profile = profile_of(throughput)
        self.profile_id = short_id(self.profile)
        self._paths: dict[tuple[EndpointRow, EndpointRow], bytes] = {}

    def slot(self, test: PlannedTest) -> tuple[SlotRow, Slot]:
        pair = test.pair
        path = self.path(pair.source.row, pair.destination.row)
        slot_id = slot_id_of(path, SlotPurpose.SLOT_PURPOSE_PAIR, test.kind, test.day, test.start_ns)
        throughput = self.throughput
        row = SlotRow(
            slot_id=slot_id,
            group_id=slot_id,  # alone: a group of one
            purpose=SlotPurpose.SLOT_PURPOSE_PAIR,
            window=test.kind,
            day=test.day,
            start_time_ns=test.start_ns,
            end_time_ns=test.start_ns + throughput.duration + throughput.omit + throughput.margin,
            margin_ns=throughput.margin,
            client=pair.client.row,
            server=pair.server.row,
            port=test.port,
            reverse=pair.reverse,
            path_id=short_id(path),
            profile_id=self.profile_id,
            tokens=pair.tokens,
            reason=f"{KIND_NAMES[test.kind]} of {test.day}, test {test.ordinal + 1} of {test.planned}",
        )
        return row, self.message(row, path)

    def message(self, row: SlotRow, path: bytes) -> Slot:
        return Slot(
            slot_id=row.slot_id,
            group_id=row.group_id,
            purpose=SlotPurpose.ValueType(row.purpose),
            window=row.window,  # type: ignore[arg-type]
            start_time_ns=row.start_time_ns,
            margin_ns=row.margin_ns,
            client=_endpoint(row.client),
            server=_endpoint(row.server),
            port=row.port,
            ports=self._ports(row),
            reverse=row.reverse,
            profile=self.profile,
            path=path,
            token=row.tokens,
            reason=row.reason,
            day=row.day,
        )

    def _ports(self, row: SlotRow) -> int:
        """From the slot's port on, and never beyond the range: a slot of another configuration may begin at its end."""
        throughput = self.throughput
        return max(1, min(throughput.ports_each, throughput.first_port + throughput.ports - row.port))

    def path(self, source: EndpointRow, destination: EndpointRow) -> bytes:
        """The serialised Path of a throughput test with this profile, in the direction of the data."""
        key = (source, destination)
        if key not in self._paths:
            type_p = TypeP(
                protocol=Protocol.PROTOCOL_UDP_THROUGHPUT
                if self.throughput.udp_rate is not None
                else Protocol.PROTOCOL_TCP_THROUGHPUT,
                ip_version=ip_address(source.address).version,
                dscp=self.throughput.dscp,
                profile_id=self.profile_id,
            )
            path = Path(source=_endpoint(source), endpoint=_endpoint(destination), type_p=type_p)
            self._paths[key] = canonical(path)
        return self._paths[key]


def profile_of(throughput: Throughput) -> bytes:
    """The serialised Profile of the configured tests."""
    return canonical(
        Profile(
            engine=Engine.ENGINE_IPERF3,
            streams=throughput.streams,
            duration_ns=throughput.duration,
            omit_ns=throughput.omit,
            congestion_control=throughput.congestion_control if throughput.udp_rate is None else "",
            mss_bytes=throughput.mss if throughput.udp_rate is None else 0,
            dscp=throughput.dscp,
            udp_rate_bps=throughput.udp_rate or 0,
            bidirectional=throughput.bidirectional,
            bind_device=throughput.bind_device,
            numa_cpus=throughput.numa_cpus,
        )
    )


def slot_id_of(path: bytes, purpose: int, window: int, day: str, start_ns: int) -> bytes:
    """16 bytes that say what a slot is, whenever it was planned: the SHA-256 of the path and the rest as text, cut.

    The start is part of it: where windows or fleet have changed, a test at another time is another test, and must not
    take over what a record says of the old one.
    """
    return sha256(path + f"|{purpose}|{window}|{day}|{start_ns}".encode()).digest()[:16]


def _endpoint(row: EndpointRow) -> Endpoint:
    return Endpoint(node=row.node, nic=row.nic, address=row.address, lane=row.lane)


# ---------------------------------------------------------------- what stays as it was


def _keep_frozen(
    slots: Sequence[tuple[SlotRow, Slot]],
    previous: Sequence[SlotRow],
    now_ns: int,
    *,
    config: Config,
    maker: SlotMaker,
    notes: list[str],
) -> list[tuple[SlotRow, Slot]]:
    """Of ``previous`` what runs or begins before the freeze ends, of ``slots`` what begins later and is not in its way,
    up to the number of tests that each pair has in its window."""
    frozen_until_ns = now_ns + FROZEN_NS
    nodes = {node.name for node in config.nodes}
    kept: list[tuple[SlotRow, Slot]] = []
    calendar = Calendar(config.measure.throughput.hold_ns, config.measure.throughput.uplink_tokens)
    withdrawn = 0
    had: Counter[tuple[int, int, str]] = Counter()
    for row in {row.slot_id: row for row in previous}.values():
        if row.start_time_ns >= frozen_until_ns:
            continue
        had[_test_of(row)] += 1
        if row.end_time_ns <= now_ns:
            continue
        source, destination = (row.server, row.client) if row.reverse else (row.client, row.server)
        path = maker.path(source, destination)
        if not {row.client.node, row.server.node} <= nodes or short_id(path) != row.path_id:
            withdrawn += 1
            had[_test_of(row)] -= 1
            continue
        kept.append((row, maker.message(row, path)))
        calendar.enter(row.tokens, row.start_time_ns - row.margin_ns)
    if withdrawn:
        notes.append(
            f"{withdrawn} slots planned before are withdrawn: their nodes or their profile are no longer planned"
        )
    for row, slot in slots:
        if row.start_time_ns < frozen_until_ns or had[_test_of(row)] >= config.measure.throughput.tests_in(row.window):
            continue
        if calendar.is_free(row.tokens, row.start_time_ns - row.margin_ns, row.end_time_ns):
            kept.append((row, slot))
            had[_test_of(row)] += 1
    return sorted(kept, key=lambda item: (item[0].start_time_ns, item[0].slot_id))


def _test_of(row: SlotRow) -> tuple[int, int, str]:
    """What ``planned`` tests are planned for: a path, a kind of window, a day."""
    return row.path_id, row.window, row.day
