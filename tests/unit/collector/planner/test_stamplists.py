"""Whom each node probes with STAMP, how often, and whom it answers."""

import pytest

from bandwitness.v1.plan_pb2 import StampTarget
from collector.config import Config
from collector.planner import PlanError
from collector.planner.endpoints import placed_endpoints
from collector.planner.pinglists import pinglists
from collector.planner.plan import build_plans
from collector.planner.stamplists import Stamplists, stamplists
from tests.fakes.fleet import fleet

SECOND = 1_000_000_000
DAY_NS = 86_400 * SECOND
NOON = 20_000 * DAY_NS + DAY_NS // 2
ON = "measure: {stamp: {enabled: true}}"


def lists(config: Config, day: int = 20_000) -> Stamplists:
    return stamplists(config, placed_endpoints(config), day)


def rate(targets: list[StampTarget]) -> float:
    return sum((len(t.source_port) + t.rotating_ports) * SECOND / t.interval_ns for t in targets)


def test_it_is_off_by_default_and_then_nobody_probes_or_reflects() -> None:
    plan = build_plans(fleet([2, 2]), NOON).plans["a1-1"]
    assert not plan.stamp
    assert not plan.HasField("stamp_reflector")
    assert plan.max_probes_per_second == 10


def test_pairs_are_those_of_echo_and_each_has_its_source_ports() -> None:
    config = fleet([2, 2], lanes=("rail0", "storage"), rest=ON)
    plan = build_plans(config, NOON).plans["a1-1"]
    echo = {(t.source.address, t.endpoint.address) for t in plan.round_trip}
    assert {(t.source.address, t.endpoint.address) for t in plan.stamp} == echo
    for target in plan.stamp:
        assert list(target.source_port) == list(range(61_000, 61_013))
        assert target.rotating_ports == 3
        assert (target.destination_port, target.payload_bytes) == (8620, 44)
    assert (plan.stamp_reflector.port, plan.stamp_reflector.well_known_port) == (8620, True)
    assert plan.max_probes_per_second == 20


def test_a_reflector_answers_those_that_probe_it_and_nobody_else() -> None:
    config = fleet([2, 1], rest=ON, client_only=["a2-1"])
    found = lists(config)
    addresses = {end.node: end.address for end in placed_endpoints(config)}
    assert found.senders["a1-1"] == sorted([addresses["a1-2"], addresses["a2-1"]])
    assert found.senders["a2-1"] == []
    assert [target.endpoint.node for target in found.targets["a1-1"]] == ["a1-2"]


@pytest.mark.parametrize("other", [-1, 1])
def test_peers_that_turn_by_day_are_answered_a_day_before_and_after(other: int) -> None:
    config = fleet([8] * 4, rest=ON)
    senders = lists(config).senders
    for targets in lists(config, 20_000 + other).targets.values():
        for target in targets:
            assert target.source.address in senders[target.endpoint.node]


@pytest.mark.parametrize("racks", [[2], [2, 2], [2] * 8, [16] * 8, [1] * 16])
@pytest.mark.parametrize("ports", [1, 16, 64])
def test_a_node_stays_within_the_rate_of_stamp_whatever_echo_sends(racks: list[int], ports: int) -> None:
    config = fleet(racks, rest=f"measure: {{stamp: {{enabled: true, ports: {ports}}}}}")
    found = lists(config)
    for targets in found.targets.values():
        assert rate(targets) <= 10 * (1 + 1e-9)
        assert all(target.interval_ns >= SECOND // 10 for target in targets)
    echo = pinglists(config, placed_endpoints(config), 20_000).targets
    without = pinglists(fleet(racks), placed_endpoints(fleet(racks)), 20_000).targets
    assert echo == without


def test_an_interval_over_the_rate_is_refused_with_the_arithmetic() -> None:
    config = fleet([2, 1], rest="measure: {stamp: {enabled: true, interval: 1s}}")
    with pytest.raises(PlanError, match=r"a1-1 would send 32 STAMP probes/s \(2 peers and targets, 32 ports"):
        lists(config)
    config = fleet([2, 1], rest="measure: {stamp: {enabled: true, interval: 4s}}")
    assert {target.interval_ns for target in lists(config).targets["a1-1"]} == {4 * SECOND}


REFLECTORS = """
targets:
  - {name: leaf, address: "2001:db8::fe", probes: [echo, stamp]}
  - {name: core, address: core.example, probes: [stamp], stamp_port: 8620, source_ports: 4, interval: 2s, dscp: 46,
     payload: 200, waiting_time: 500ms}
"""


def test_reflectors_that_are_not_ours_are_probed_also_where_our_own_are_off() -> None:
    plan = build_plans(fleet([2], rest=REFLECTORS), NOON).plans["a1-1"]
    leaf, core = plan.stamp
    assert (leaf.target.name, leaf.destination_port, list(leaf.source_port)) == ("leaf", 862, [61_000])
    assert (leaf.payload_bytes, leaf.dscp, leaf.rotating_ports) == (44, 0, 0)
    assert leaf.waiting_time_ns == 3 * SECOND
    assert (core.target.address, core.destination_port, len(core.source_port)) == ("core.example", 8620, 4)
    assert (core.payload_bytes, core.dscp, core.interval_ns, core.waiting_time_ns) == (200, 46, 2 * SECOND, SECOND // 2)
    assert rate([leaf, core]) <= 10
    assert not plan.HasField("stamp_reflector")
    assert [target.target.name for target in plan.round_trip if target.HasField("target")] == ["leaf"]
    # Eight addresses of the name, over four ports, each every 2 s.
    assert plan.max_probes_per_second == 10 + round(rate([leaf])) + 8 * 2


def test_reflectors_share_the_rate_with_the_peers() -> None:
    config = fleet([4, 2], rest=REFLECTORS + ON)
    for targets in lists(config).targets.values():
        assert rate(targets) <= 10 * (1 + 1e-9)
        assert sum(target.HasField("target") for target in targets) == 2


def test_reflectors_with_intervals_of_their_own_that_use_up_the_rate_are_refused() -> None:
    rest = 'targets: [{name: t, address: "2001:db8::fe", probes: [stamp], source_ports: 64, interval: 100ms}]'
    with pytest.raises(PlanError, match=r"640 STAMP probes/s to 1 targets .* measure.stamp.rate allows 10 for all"):
        lists(fleet([2], rest=rest))
