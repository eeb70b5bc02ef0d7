"""Contention tests as planned: groups, no NIC twice in one direction, permission, hours, cap."""

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_CONTENTION
from collector.config import Config, read_config
from collector.planner import PlanError
from collector.planner.contention import MIN_FLOWS, SOONEST_NS, first_start, plan_contention, ramp

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
OF_R1 = "{kind: contention, site: s, rack: r1, notice: 1h, byte_cap: 1TiB, approver: V}"
NIGHTS = '{kind: contention, site: s, notice: 1h, hours: ["23:30-01:00", "02:00-06:00"], byte_cap: 1TiB, approver: V}'
NOON = int(datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()) * SECOND


def rack(name: str, number: int, hosts: int) -> str:
    return "\n".join(
        f"  - {{name: {name}h{host}, site: s, rack: {name}, endpoints: "
        f"[{{nic: eth0, address: 10.0.{number}.{host + 1}, speed: 10G}}]}}"
        for host in range(hosts)
    )


def config(*hosts: int, permission: str = "", duration: str = "10s") -> Config:
    racks = "\n".join(rack(f"r{number}", number, count) for number, count in enumerate(hosts, start=1))
    given = permission or "{kind: contention, site: s, notice: 1h, byte_cap: 1000TiB, approver: V}"
    text = f"""
sites: [{{name: s, time_zone: Asia/Shanghai}}]
nodes:
{racks}
permissions: [{given}]
measure: {{throughput: {{duration: {duration}}}}}
"""
    return read_config(text, "c")


@given(st.integers(2, 9), st.lists(st.integers(1, 6), min_size=2, max_size=4), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_every_host_sends_alone_and_with_others_and_groups_never_meet(
    hosts: int, elsewhere: list[int], repeats: int
) -> None:
    if sum(elsewhere) < hosts:
        elsewhere.append(hosts)
    plan = plan_contention(config(hosts, *elsewhere), "s", "r1", NOON, repeats=repeats)
    by_group = {group.group_id: group for group in plan.groups}
    assert len(by_group) == len(plan.groups) == repeats * (hosts + len(ramp(hosts)) + 2)
    assert len({row.slot_id for row, _ in plan.slots}) == len(plan.slots)
    spans = []
    for group in plan.groups:
        rows = [row for row, _ in plan.slots if row.group_id == group.group_id]
        assert len(rows) == group.slots == group.senders
        assert {row.purpose for row in rows} == {SLOT_PURPOSE_CONTENTION}
        assert {row.start_time_ns for row in rows} == {group.start_time_ns}
        # In one group each NIC sends once and receives once at most, and each server has one client.
        assert max(Counter(row.client.node for row in rows).values()) == 1
        assert max(Counter(row.server.node for row in rows).values()) == 1
        inside = all(row.server.node.startswith("r1h") for row in rows)
        assert inside is (group.part == pb.GROUP_PART_CONTROL)
        spans.append((min(row.start_time_ns - row.margin_ns for row in rows), max(row.end_time_ns for row in rows)))
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    streams = {by_group[row.group_id].part: pb.Profile.FromString(slot.profile).streams for row, slot in plan.slots}
    assert streams.pop(pb.GROUP_PART_ONE_FLOW) == 1
    assert set(streams.values()) == {MIN_FLOWS}


def test_receivers_are_spread_over_the_other_racks() -> None:
    plan = plan_contention(config(4, 4, 4), "s", "r1", NOON, repeats=1)
    (together,) = [group for group in plan.groups if (group.part, group.senders) == (pb.GROUP_PART_CONCURRENT, 4)]
    receivers = [row.server.node[:2] for row, _ in plan.slots if row.group_id == together.group_id]
    assert Counter(receivers) == {"r2": 2, "r3": 2}
    assert plan.notes == ()
    assert "one rack" in plan_contention(config(3, 3), "s", "r1", NOON, repeats=1).notes[0]


@pytest.mark.parametrize(
    ("hosts", "rack_name", "permission", "words"),
    [
        (
            (2, 2),
            "r2",
            "{kind: contention, site: s, rack: r1, notice: 1h, byte_cap: 1TiB, approver: V}",
            "no permission",
        ),
        ((3, 2), "r1", "", "there are 2"),
        ((1, 2), "r1", "", "two or more"),
        ((2, 2), "r1", "{kind: contention, site: s, notice: 1h, byte_cap: 1GiB, approver: V}", "allows 1073741824"),
        (
            (2, 2),
            "r1",
            '{kind: contention, site: s, notice: 1h, hours: ["02:00-02:01"], byte_cap: 1TiB, approver: V}',
            "permitted hours",
        ),
    ],
)
def test_without_permission_room_or_hosts_it_is_refused_with_the_arithmetic(
    hosts: tuple[int, ...], rack_name: str, permission: str, words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        plan_contention(config(*hosts, permission=permission), "s", rack_name, NOON, repeats=1)


def test_it_begins_after_the_notice_and_inside_the_hours_of_the_site() -> None:
    """12:00 UTC is 20:00 in Shanghai: 02:00 there is 18:00 UTC."""
    made = config(
        2,
        2,
        permission=NIGHTS,
    )
    (one,) = made.permissions
    assert first_start(made, one, NOON, 300 * SECOND) == NOON + HOUR * 7 // 2
    assert first_start(made, one, NOON, 2 * HOUR) == NOON + 6 * HOUR
    assert first_start(made, one, NOON + 10 * HOUR, 300 * SECOND) == NOON + (24 * 2 + 7) * HOUR // 2
    always = config(2, 2, permission="{kind: contention, site: s, notice: 0s, byte_cap: 1TiB, approver: V}")
    assert first_start(always, always.permissions[0], NOON, 1) == NOON + SOONEST_NS


def test_a_permission_names_what_there_is() -> None:
    with pytest.raises(ValueError, match="unknown rack 'r9'"):
        config(2, 2, permission="{kind: contention, site: s, rack: r9, notice: 1h, byte_cap: 1TiB, approver: V}")
    with pytest.raises(ValueError, match="hours"):
        config(2, 2, permission='{kind: contention, site: s, notice: 1h, hours: ["x"], byte_cap: 1TiB, approver: V}')


def test_its_runs_are_tcp_and_one_way_whatever_the_planned_tests_are() -> None:
    text = "measure: {throughput: {udp_rate: 1G, bidirectional: true, uplink_tokens: 2}}"
    made = read_config(
        "sites: [{name: s, time_zone: UTC}]\nnodes:\n"
        + "\n".join((rack("r1", 1, 2), rack("r2", 2, 2)))
        + f"\npermissions: [{{kind: contention, site: s, notice: 0s, byte_cap: 1TiB, approver: V}}]\n{text}\n",
        "c",
    )
    for _, slot in plan_contention(made, "s", "r1", NOON, repeats=1).slots:
        profile = pb.Profile.FromString(slot.profile)
        assert profile.udp_rate_bps == 0
        assert not profile.bidirectional
