"""What a timetable costs."""

from datetime import UTC, datetime

import msgspec
import pytest

from bandwitness.settings import Rate
from collector.config import Config, Throughput, read_config
from collector.model import EndpointRow, SlotRow
from collector.planner.cost import LinkCost, cost_of
from collector.planner.plan import build_plans
from tests.fakes.fleet import fleet

SECOND = 1_000_000_000
NOON = int(datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()) * SECOND
G = 10**9


def two_racks(speed: str = "") -> Config:
    return read_config(
        f"""
sites: [{{name: s, time_zone: UTC}}]
nodes:
  - {{name: a, site: s, rack: r1, endpoints: [{{nic: eth0, address: 10.0.0.1{speed}}}]}}
  - {{name: b, site: s, rack: r2, endpoints: [{{nic: eth0, address: 10.0.0.2}}]}}
""",
        "two",
    )


def slot(start_ns: int, *, reverse: bool = False) -> SlotRow:
    a, b = EndpointRow("a", "eth0", "10.0.0.1", "rail0"), EndpointRow("b", "eth0", "10.0.0.2", "rail0")
    tokens = ("nic:a/eth0", "nic:b/eth0", "uplink:s/r1", "uplink:s/r2")
    return SlotRow(
        b"", b"", 1, 1, "", start_ns, start_ns + 14 * SECOND, 2 * SECOND, a, b, 5201, reverse, 1, 1, tokens, ""
    )


def links(config: Config, *slots: SlotRow) -> dict[str, LinkCost]:
    return {link.token: link for link in cost_of(config, slots, assumed_bps=G).links}


def test_one_test_of_twelve_seconds_at_the_slower_ends_speed() -> None:
    cost = cost_of(two_racks(", speed: 400M"), [slot(NOON)], assumed_bps=G)
    assert (cost.tests, cost.bytes, cost.test_ns, cost.assumed) == (1, 600_000_000, 12 * SECOND, True)
    [first, *_] = cost.links
    assert (first.token, first.tests, first.held_ns, first.bytes) == ("uplink:s/r1", 1, 16 * SECOND, 600_000_000)
    assert first.added_bps == 400e6 * 12 / 300
    assert [link.token for link in cost.links] == ["uplink:s/r1", "uplink:s/r2", "nic:a/eth0", "nic:b/eth0"]


def test_the_larger_direction_is_given() -> None:
    found = links(two_racks(), slot(NOON), slot(NOON + 600 * SECOND), slot(NOON + 900 * SECOND, reverse=True))
    of_a, of_b = found["uplink:s/r1"], found["uplink:s/r2"]
    assert of_a.tests == 3
    assert of_a.bytes == of_b.bytes == 2 * 1_500_000_000
    assert of_a.bill_windows == 2


def test_a_test_across_the_border_of_two_windows_is_in_both_by_its_share() -> None:
    found = links(two_racks(), slot(NOON + 297 * SECOND))["uplink:s/r1"]
    assert found.bill_windows == 2
    assert found.added_bps == pytest.approx(G * 9 / 300)


def test_the_share_of_a_month() -> None:
    few = links(two_racks(), slot(NOON))["uplink:s/r1"]
    assert (few.month_windows, few.bill_ratio) == (30, 30 / 8640)


def test_the_sums_of_a_whole_plan_agree_with_its_slots() -> None:
    config = fleet((2, 2), rest="")
    slots = build_plans(config, NOON).slots
    cost = cost_of(config, slots, assumed_bps=G)
    assert cost.bytes == len(slots) * 1_500_000_000
    across = [one for one in slots if any(token.startswith("uplink:") for token in one.tokens)]
    by_token = {link.token: link for link in cost.links}
    assert by_token["uplink:a/a1"].tests == by_token["uplink:a/a2"].tests == len(across)


def test_udp_costs_its_rate_and_both_ways_cost_twice() -> None:
    config = two_racks()
    udp = Throughput(udp_rate=Rate(100_000_000), bidirectional=True)
    config = msgspec.structs.replace(config, measure=msgspec.structs.replace(config.measure, throughput=udp))
    cost = cost_of(config, [slot(NOON)], assumed_bps=G)
    assert cost.bytes == 2 * 150_000_000
    [first, *_] = cost.links
    assert (first.tests, first.held_ns, first.bytes, first.bill_windows) == (1, 16 * SECOND, 150_000_000, 1)
