"""The plans that agents are sent."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from msgspec import structs

from bandwitness.identity import short_id
from bandwitness.v1.plan_pb2 import Slot
from bandwitness.v1.record_pb2 import Path, PlanIssued, Profile, Protocol
from collector.config import Config
from collector.decode.control import plan_rows
from collector.decode.definitions import Definitions
from collector.model import SlotRow, Source
from collector.planner import PlanError
from collector.planner.plan import FROZEN_NS, build_plans
from tests.fakes.fleet import DEMO_MEASURE, DEMO_WINDOWS, demo_fleet, fleet
from tests.fakes.timetable import assert_no_token_is_held_beyond_its_capacity

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND
MS = 1_000_000


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


NOON = at("2026-12-01T12:00")


def test_a_plan_says_all_that_its_agent_needs() -> None:
    plan = build_plans(demo_fleet(), NOON).plans["a1-1"]
    assert (plan.node, plan.site, plan.rack) == ("a1-1", "a", "a1")
    assert (plan.issued_time_ns, plan.expiry_time_ns, plan.frozen_until_ns) == (NOON, NOON + DAY, NOON + 10 * MINUTE)
    assert (plan.counter_interval_ns, plan.flush_interval_ns) == (SECOND, 2 * SECOND)
    assert (plan.max_probes_per_second, plan.own_traffic_limit_ratio) == (10, 0.2)
    assert plan.offline_test_grace_ns == 6 * 3600 * SECOND
    assert [end.nic for end in plan.endpoint] == ["eth0"]
    assert len(plan.round_trip) == 3


def test_each_slot_stands_in_the_plans_of_its_two_nodes_in_order_of_start() -> None:
    plans = build_plans(demo_fleet(), NOON)
    assert len(plans.slots) == 2 * 12 * 5
    for name, plan in plans.plans.items():
        expected = [row.slot_id for row in plans.slots if name in {row.client.node, row.server.node}]
        assert [slot.slot_id for slot in plan.slot] == expected
        assert [slot.start_time_ns for slot in plan.slot] == sorted(slot.start_time_ns for slot in plan.slot)


def test_ids_are_those_of_the_bytes_in_the_slot() -> None:
    plans = build_plans(demo_fleet(), NOON)
    by_id = {row.slot_id: row for row in plans.slots}
    for slot in plans.plans["a1-1"].slot:
        row = by_id[slot.slot_id]
        assert (row.path_id, row.profile_id) == (short_id(slot.path), short_id(slot.profile))
        assert len(slot.slot_id) == 16
        path = Path.FromString(slot.path)
        assert path.type_p.profile_id == row.profile_id
        assert (path.type_p.ip_version, path.type_p.destination_port) == (6, 0)
        assert Profile.FromString(slot.profile).duration_ns == SECOND
        ends = (path.source, path.endpoint)
        assert (slot.client, slot.server) == (ends[::-1] if slot.reverse else ends)


def test_the_timetable_can_be_read_from_the_control_chain_alone() -> None:
    plans = build_plans(demo_fleet(), NOON)
    read: dict[bytes, SlotRow] = {}
    for name, plan in plans.plans.items():
        issued = PlanIssued(node=name, plan=plan.SerializeToString(deterministic=True))
        row, _, _ = plan_rows(Source("collector", b"", 3, 1, 0, 1), issued, Definitions())
        read |= {slot.slot_id: slot for slot in row.slots}
    assert sorted(read.values(), key=lambda row: (row.start_time_ns, row.slot_id)) == sorted(
        plans.slots, key=lambda row: (row.start_time_ns, row.slot_id)
    )


def test_a_client_only_node_never_serves_and_the_path_keeps_the_direction_of_the_data() -> None:
    plans = build_plans(fleet([2], windows=DEMO_WINDOWS, client_only=["a1-2"], rest=DEMO_MEASURE), NOON)
    assert {row.client.node for row in plans.slots} == {"a1-2"}
    assert {row.reverse for row in plans.slots} == {True, False}
    for slot in plans.plans["a1-1"].slot:
        assert Path.FromString(slot.path).source.node == ("a1-1" if slot.reverse else "a1-2")


@pytest.mark.parametrize("ports", [2, 3, 32])
def test_a_server_has_another_port_in_its_next_slot(ports: int) -> None:
    rest = f"measure: {{throughput: {{ports: {ports}, planned: 6, around_the_clock: 0}}}}"
    slots = build_plans(fleet([4, 4], rest=rest), NOON).slots
    for node in {row.server.node for row in slots}:
        of_window = [row for row in slots if row.server.node == node and row.window == slots[0].window]
        assert all(a.port != b.port for a, b in pairwise(of_window))
        each = {2: 1, 3: 1, 32: 4}[ports]  # one for each of 4 streams where two tests in a row have room
        assert {row.port for row in of_window} <= set(range(5201, 5202 + ports - each, each))
        assert len({row.port for row in of_window}) >= min(ports, 6)


@pytest.mark.parametrize(("streams", "ports", "each"), [(4, 32, 4), (1, 32, 1), (128, 32, 16), (4, 5, 2), (4, 1, 1)])
def test_a_test_has_a_port_for_each_stream_of_an_old_iperf3(streams: int, ports: int, each: int) -> None:
    config = fleet([2], rest=f"measure: {{throughput: {{streams: {streams}, ports: {ports}}}}}")
    slots = [slot for plan in build_plans(config, NOON).plans.values() for slot in plan.slot]
    assert {slot.ports for slot in slots} == {each}
    assert max(slot.port + slot.ports for slot in slots) <= 5201 + ports


def test_processes_can_be_fewer_than_streams() -> None:
    assert first_slot(fleet([2], rest="measure: {throughput: {streams: 4, processes: 2}}")).ports == 2


def first_slot(config: Config) -> Slot:
    return next(iter(build_plans(config, NOON).plans.values())).slot[0]


def test_what_the_profile_holds_and_the_protocol_that_follows() -> None:
    options = "udp_rate: 1G, bidirectional: true, bind_device: true, numa_cpus: true, dscp: 10, mss: 1400"
    slot = first_slot(fleet([2], rest=f"measure: {{throughput: {{{options}}}}}"))
    profile = Profile.FromString(slot.profile)
    assert (profile.udp_rate_bps, profile.dscp) == (1_000_000_000, 10)
    assert (profile.bidirectional, profile.bind_device, profile.numa_cpus) == (True, True, True)
    assert (profile.congestion_control, profile.mss_bytes) == ("", 0)  # TCP's
    path = Path.FromString(slot.path)
    assert path.type_p.protocol == Protocol.PROTOCOL_UDP_THROUGHPUT
    assert path.type_p.profile_id == short_id(slot.profile)
    tcp = first_slot(fleet([2]))
    assert Path.FromString(tcp.path).type_p.protocol == Protocol.PROTOCOL_TCP_THROUGHPUT
    assert Profile.FromString(tcp.profile).congestion_control == "cubic"


def test_a_port_comes_again_only_after_nearly_a_whole_turn() -> None:
    config = demo_fleet()
    last: dict[tuple[str, int], int] = {}
    for row in build_plans(config, NOON).slots:
        before = last.get((row.server.node, row.port))
        assert before is None or row.start_time_ns - before >= 6 * config.measure.throughput.hold_ns
        last[row.server.node, row.port] = row.start_time_ns


def test_versions_rise_also_when_the_clock_was_set_back() -> None:
    config = demo_fleet()
    first = build_plans(config, NOON)
    assert first.version == NOON // MS
    assert build_plans(config, NOON - DAY, previous_version=first.version).version == first.version + 1
    assert {plan.version for plan in first.plans.values()} == {first.version}


def test_planning_again_changes_nothing_that_was_planned() -> None:
    config = demo_fleet()
    first = build_plans(config, NOON)
    for later in (NOON + MINUTE, at("2026-12-01T12:30:30"), at("2026-12-01T12:33:00")):
        with_previous = build_plans(config, later, first.slots)
        without = build_plans(config, later)
        ahead = [row for row in first.slots if row.start_time_ns - row.margin_ns >= later]
        assert [row for row in without.slots if row.start_time_ns < NOON + DAY] == ahead
        running = [row for row in first.slots if row.start_time_ns - row.margin_ns < later < row.end_time_ns]
        assert [row for row in with_previous.slots if row.start_time_ns < NOON + DAY] == running + ahead


def test_a_new_node_gets_no_slots_within_the_freeze() -> None:
    before = build_plans(demo_fleet((2, 1)), NOON)
    now = at("2026-12-01T12:24:00")  # the freeze ends after both windows
    after = build_plans(demo_fleet((2, 2)), now, before.slots)
    assert [row for row in after.slots if row.start_time_ns < now + FROZEN_NS] == list(before.slots)
    assert_no_token_is_held_beyond_its_capacity(after.slots, demo_fleet((2, 2)))


def test_what_was_planned_before_the_freeze_ends_is_not_planned_a_second_time() -> None:
    before = build_plans(demo_fleet((2, 1)), NOON)
    now = at("2026-12-01T12:21:00")  # the freeze ends within the first window
    config = demo_fleet((2, 2))
    after = build_plans(config, now, before.slots)
    ids = [row.slot_id for row in after.slots]
    assert len(ids) == len(set(ids))
    frozen = [row for row in before.slots if row.start_time_ns < now + FROZEN_NS]
    assert [row for row in after.slots if row.start_time_ns < now + FROZEN_NS] == frozen != []
    assert_no_token_is_held_beyond_its_capacity(after.slots, config)
    tests = Counter((row.path_id, row.window, row.day) for row in after.slots)
    assert max(tests.values()) == config.measure.throughput.planned


def test_with_other_windows_a_test_is_another_test() -> None:
    """A slot must not take over the result of the one that ran under the windows before."""
    before = build_plans(demo_fleet(), NOON)
    later = {"offpeak": "14:30:05-14:31:45", "peak": "14:31:45-14:33:25"}
    after = build_plans(fleet((2, 2), windows=later, rest=DEMO_MEASURE), at("2026-12-01T13:00"))
    assert len(after.slots) == len(before.slots)
    assert not {row.slot_id for row in after.slots} & {row.slot_id for row in before.slots}


def test_slots_of_a_node_or_profile_that_is_gone_are_withdrawn() -> None:
    before = build_plans(demo_fleet((2, 2)), NOON)
    now = at("2026-12-01T12:29:00")
    fewer = build_plans(demo_fleet((2, 1)), now, before.slots)
    assert "a2-2" not in {end.node for row in fewer.slots for end in (row.client, row.server)}
    assert fewer.notes == ("60 slots planned before are withdrawn: their nodes or their profile are no longer planned",)
    rest = DEMO_MEASURE.replace("duration: 1s", "streams: 8, duration: 1s")
    other = build_plans(fleet((2, 2), windows=DEMO_WINDOWS, rest=rest), now, before.slots)
    assert [row for row in other.slots if row.start_time_ns < now + FROZEN_NS] == []
    assert other.notes[0].startswith("120 slots")


def test_a_timetable_that_has_run_out_freezes_nothing() -> None:
    old = [
        replace(row, start_time_ns=row.start_time_ns - 3 * DAY, end_time_ns=row.end_time_ns - 3 * DAY)
        for row in build_plans(demo_fleet(), NOON).slots
    ]
    now = at("2026-12-01T12:29:00")
    assert len(build_plans(demo_fleet(), now, old).slots) == 120


def test_path_mtu_checks_and_traces_are_planned_as_configured() -> None:
    plan = build_plans(demo_fleet(), NOON).plans["a1-1"]
    assert (plan.path_mtu.interval_ns, list(plan.path_mtu.payload_bytes)) == (3600 * SECOND, [1472, 8972])
    assert not plan.no_reference_traces
    rest = "measure: {path_mtu: {interval: 5m, sizes: [1400]}, trace: {reference: false}, throughput: {enabled: false}}"
    plan = build_plans(fleet([2, 2], rest=rest), NOON).plans["a1-1"]
    assert (plan.path_mtu.interval_ns, list(plan.path_mtu.payload_bytes)) == (5 * MINUTE, [1400])
    assert plan.no_reference_traces
    rest = "measure: {path_mtu: {enabled: false}, throughput: {enabled: false}}"
    assert not build_plans(fleet([2, 2], rest=rest), NOON).plans["a1-1"].HasField("path_mtu")


def test_agents_are_told_the_speeds_that_are_configured() -> None:
    config = demo_fleet()
    assert not build_plans(config, NOON).plans["a1-1"].nic_speed
    first = config.nodes[0]
    slow = structs.replace(first, endpoints=[structs.replace(first.endpoints[0], speed=1_000_000_000)])
    plans = build_plans(structs.replace(config, nodes=[slow, *config.nodes[1:]]), NOON).plans
    assert [(one.nic, one.speed_bps) for one in plans[first.name].nic_speed] == [("eth0", 1_000_000_000)]
    assert not plans[config.nodes[1].name].nic_speed


def test_a_fleet_that_cannot_be_measured_is_refused() -> None:
    with pytest.raises(PlanError, match="do not fit into"):
        build_plans(demo_fleet((3, 3)), NOON)
    with pytest.raises(PlanError, match=r"measure\.echo\.rate allows"):
        build_plans(fleet([2, 2], rest="measure: {echo: {interval: 20ms}}"), NOON)


def test_a_fleet_of_a_hundred_and_twenty_eight_hosts() -> None:
    config = fleet([16] * 8)
    plans = build_plans(config, NOON)
    assert_no_token_is_held_beyond_its_capacity(plans.slots, config)
    # 56 ordered rack pairs and 8 × 16 tests inside racks, 5 times, in each of two windows; hosts change at midnight.
    assert len(plans.slots) == (56 + 128) * 5 * 2
    assert max(plan.ByteSize() for plan in plans.plans.values()) < 100_000
