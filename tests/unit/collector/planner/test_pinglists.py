"""Who probes whom, and how often."""

import pytest

from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import Protocol
from collector.config import Config, read_config
from collector.planner import PlanError
from collector.planner.endpoints import placed_endpoints
from collector.planner.pinglists import Pinglists, pinglists
from tests.fakes.fleet import fleet

MS = 1_000_000
SECOND = 1000 * MS


def lists(config: Config, day: int = 20_000) -> Pinglists:
    return pinglists(config, placed_endpoints(config), day)


def peers(targets: list[RoundTripTarget]) -> list[str]:
    return [target.endpoint.node or target.target.name for target in targets]


def rate(targets: list[RoundTripTarget]) -> float:
    return sum(SECOND / target.interval_ns for target in targets)


def in_rack_share(node: str, targets: list[RoundTripTarget]) -> float:
    rack = node.partition("-")[0]
    return rate([t for t in targets if t.endpoint.node.startswith(f"{rack}-")]) / rate(targets)


def test_in_a_small_fleet_each_probes_all_on_its_lane() -> None:
    found = lists(fleet([2, 1, 1], lanes=("rail0", "storage"))).targets
    assert sorted(peers(found["a1-1"])) == ["a1-2", "a1-2", "a2-1", "a2-1", "a3-1", "a3-1"]
    assert all(target.source.lane == target.endpoint.lane for target in found["a1-1"])
    assert all(target.protocol == Protocol.PROTOCOL_ICMP_ECHO for target in found["a1-1"])


def test_in_a_large_fleet_each_probes_its_rack_and_one_peer_in_every_other() -> None:
    found = lists(fleet([8] * 8)).targets
    targets = peers(found["a3-5"])
    assert len(targets) == 7 + 7
    assert {name.partition("-")[0] for name in targets} == {f"a{rack}" for rack in range(1, 9)}
    assert sum(name.startswith("a3-") for name in targets) == 7


def test_peers_in_other_racks_rotate_by_day_and_spread_over_the_hosts() -> None:
    config = fleet([8] * 8)
    in_rack_7 = [next(p for p in peers(lists(config, day).targets["a1-1"]) if p.startswith("a7-")) for day in range(8)]
    assert len(set(in_rack_7)) == 8
    today = lists(config).targets
    probed = [p for host in range(1, 9) for p in peers(today[f"a1-{host}"]) if p.startswith("a7-")]
    assert len(set(probed)) == 8


@pytest.mark.parametrize("racks", [[2, 2], [2, 1, 1], [2] * 8, [3] * 32, [16] * 8, [1] * 16])
@pytest.mark.parametrize("allowed", [0.5, 10, 300])
def test_a_node_stays_within_its_rate_and_keeps_a_fifth_of_its_probes_in_the_rack(
    racks: list[int], allowed: float
) -> None:
    found = lists(fleet(racks, rest=f"measure: {{echo: {{rate: {allowed}}}}}")).targets
    for node, targets in found.items():
        assert rate(targets) <= allowed * (1 + 1e-9)
        assert all(target.interval_ns >= 100 * MS for target in targets)
        if (
            max(racks) > 1
            and len(peers(targets)) > 0
            and any(p.startswith(node.partition("-")[0] + "-") for p in peers(targets))
        ):
            assert in_rack_share(node, targets) >= 0.199


def test_the_rate_is_used() -> None:
    found = lists(fleet([2, 2])).targets
    assert {target.interval_ns for target in found["a1-1"]} == {300 * MS}
    assert rate(found["a1-1"]) == pytest.approx(10)


def test_a_given_interval_is_that_of_every_target_and_the_rate_caps_it() -> None:
    config = fleet([2, 2], rest="measure: {echo: {rate: 30, interval: 100ms}}")
    assert {target.interval_ns for targets in lists(config).targets.values() for target in targets} == {100 * MS}


def test_a_given_interval_beyond_the_rate_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(PlanError) as caught:
        lists(fleet([2, 1], rest="measure: {echo: {interval: 100ms}}"))
    assert caught.value.problems[0] == (
        "a1-1 would send 20 probes/s (2 targets, one probe each 100 ms), but measure.echo.rate allows 10; "
        "make measure.echo.interval at least 200 ms or the rate larger"
    )
    assert len(caught.value.problems) == 3


def test_waiting_times_differ_inside_and_across_sites() -> None:
    found = lists(fleet({"a": [2], "b": [1]})).targets["a1-1"]
    assert {target.endpoint.node: target.waiting_time_ns for target in found} == {"a1-2": SECOND, "b1-1": 3 * SECOND}


def test_what_nobody_can_connect_to_probes_but_is_not_probed() -> None:
    found = lists(fleet([3], client_only=["a1-3"])).targets
    assert peers(found["a1-1"]) == ["a1-2"]
    assert sorted(peers(found["a1-3"])) == ["a1-1", "a1-2"]


def test_targets_are_probed_from_one_endpoint_of_each_node_of_their_site() -> None:
    rest = """
targets:
  - {name: gw, address: "2001:db8::1"}
  - {name: web, address: web.example, probes: [echo, tcp_connect], port: 8443, site: b}
  - {name: nas, address: "2001:db8::2", lane: storage}
  - {name: far, address: far.example, site: c}
"""
    found = lists(fleet({"a": [1], "b": [1], "c": []}, lanes=("storage", "rail0", "management"), rest=rest))
    of_a = {target.target.name: target for target in found.targets["a1-1"] if target.HasField("target")}
    of_b = [target for target in found.targets["b1-1"] if target.target.name == "web"]
    assert {name: target.source.lane for name, target in of_a.items()} == {"gw": "management", "nas": "storage"}
    assert of_a["gw"].waiting_time_ns == 3 * SECOND
    assert [(t.protocol, t.destination_port, t.payload_bytes) for t in of_b] == [
        (Protocol.PROTOCOL_ICMP_ECHO, 0, 56),
        (Protocol.PROTOCOL_TCP_CONNECT, 8443, 0),
    ]
    assert found.notes == ("no node has an endpoint that can probe the target far (site, lane, IP version)",)


LINKS = """
sites: [{name: a}]
nodes:
  - {name: a1, site: a, rack: r1, endpoints: [{nic: eth1, address: "fe80::1%eth1"}]}
  - {name: a2, site: a, rack: r1, endpoints: [{nic: eth2, address: "fe80::2%eth2"}]}
  - {name: a3, site: a, rack: r2, endpoints: [{nic: eth1, address: "fe80::1%eth1"}]}
  - {name: a4, site: a, rack: r1, endpoints: [{nic: eth1, address: "2001:db8::4"}]}
targets:
  - {name: leaf, address: "fe80::ff%eth1"}
"""


def test_link_local_endpoints_are_probed_from_their_own_rack_only() -> None:
    found = lists(read_config(LINKS, "links")).targets
    probed = {name: [peer for peer in peers(found[name]) if peer != "leaf"] for name in found}
    assert probed == {"a1": ["a2"], "a2": ["a1"], "a3": [], "a4": []}
    assert found["a1"][0].endpoint.address == "fe80::2%eth2"  # as it stands over there: the agent puts its own NIC


def test_a_link_local_target_is_probed_by_who_has_that_link() -> None:
    found = lists(read_config(LINKS, "links")).targets
    probing = [name for name, targets in found.items() if any(target.HasField("target") for target in targets)]
    assert probing == ["a1", "a3", "a4"]


def test_a_target_may_have_its_own_payload_dscp_interval_and_waiting_time() -> None:
    rest = """
targets:
  - {name: own, address: "2001:db8::1", interval: 500ms, payload: 1400, dscp: 10, waiting_time: 200ms}
  - {name: usual, address: "2001:db8::2"}
"""
    found = lists(fleet([2], rest=rest)).targets["a1-1"]
    own, usual = (next(t for t in found if t.target.name == name) for name in ("own", "usual"))
    assert (own.interval_ns, own.payload_bytes, own.dscp, own.waiting_time_ns) == (500 * MS, 1400, 10, 200 * MS)
    assert (usual.payload_bytes, usual.dscp, usual.waiting_time_ns) == (56, 0, 3 * SECOND)
    assert rate(found) <= 10 * (1 + 1e-9)  # what the one needs is taken off the rate of the others
    assert rate(found) > 9.9


def test_intervals_of_their_own_that_use_up_the_rate_are_refused() -> None:
    rest = 'targets: [{name: own, address: "2001:db8::1", interval: 50ms}]'
    with pytest.raises(PlanError, match=r"20 probes/s to 1 targets .* measure.echo.rate allows 10 for all"):
        lists(fleet([2], rest=rest))
