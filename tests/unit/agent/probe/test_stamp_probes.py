"""Planned STAMP targets: their paths, hour by hour, and what the flush is given."""

import asyncio
from random import Random

from agent.probe.resolve import Answer, Resolver
from agent.probe.stamp_ports import HOUR_NS, rotating_ports
from agent.probe.stamp_probes import StampProbes, paths_of
from bandwitness.identity import short_id
from bandwitness.v1.plan_pb2 import StampTarget
from bandwitness.v1.record_pb2 import (
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_UNRESOLVED,
    PROTOCOL_STAMP,
    ROUND_TRIP_METHOD_STAMP,
    Endpoint,
    Path,
)
from tests.fakes.clock import SECOND, START_WALL_NS, FakeClock
from tests.fakes.network import MILLISECOND, outcomes_by_address, samples
from tests.fakes.stamp_network import FakeReflector, FakeStampNetwork

NEAR = Endpoint(node="a", nic="eth0", address="10.0.0.1", lane="rail0")
FAR = Endpoint(node="b", nic="eth0", address="10.0.0.2", lane="rail0")


def target(*, fixed: int = 13, rotating: int = 3) -> StampTarget:
    return StampTarget(
        source=NEAR,
        endpoint=FAR,
        destination_port=8620,
        source_port=range(61_000, 61_000 + fixed),
        rotating_ports=rotating,
        interval_ns=SECOND // 10,
        waiting_time_ns=SECOND,
    )


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.network = FakeStampNetwork(self.clock)
        self.reflector = self.network.reflectors["10.0.0.2", 8620] = FakeReflector(error_ns=5_000)
        self.probes = StampProbes(self.clock, clock_error=lambda: 3_000, opener=self.network.open, random=Random(1))

    def pass_time(self, duration_ns: int) -> None:
        for _ in range(duration_ns // (10 * MILLISECOND)):
            self.clock.move(10 * MILLISECOND)
            self.probes._session.tick()


def test_each_source_port_is_a_path_of_its_own() -> None:
    found = paths_of(target(), START_WALL_NS)
    assert len({path.path_id for path, _ in found}) == 16
    assert [path.source_port for path, _ in found][13:] == list(rotating_ports(3, START_WALL_NS))
    for path, definition in found:
        assert path.path_id == short_id(definition)
        assert path.stateful
        type_p = Path.FromString(definition).type_p
        assert (type_p.protocol, type_p.ip_version, type_p.payload_bytes) == (PROTOCOL_STAMP, 4, 44)
        assert (type_p.source_port, type_p.destination_port) == (path.source_port, 8620)


def test_a_link_local_peer_is_reached_by_our_device_and_keeps_its_own_spelling() -> None:
    far = target()
    far.source.address, far.source.nic, far.endpoint.address = "fe80::1%eth0", "eth0", "fe80::2%eth7"
    path, definition = paths_of(far, 0)[0]
    assert (path.address, path.ip_version) == ("fe80::2%eth0", 6)
    assert Path.FromString(definition).endpoint.address == "fe80::2%eth7"


def test_an_hour_later_only_the_rotating_ports_are_others() -> None:
    now, later = (
        {path.path_id: path.source_port for path, _ in paths_of(target(), START_WALL_NS + hour * HOUR_NS)}
        for hour in range(2)
    )
    assert sorted(now[same] for same in now.keys() & later.keys() if now[same] < 62_000) == list(range(61_000, 61_013))
    assert now.keys() != later.keys()


async def test_ports_turn_by_themselves_and_each_drain_knows_what_it_mentions() -> None:
    bench = Bench()
    bench.probes.configure([target(fixed=1, rotating=2)])
    before = set(bench.probes.definitions)
    bench.pass_time(2 * SECOND)
    bench.clock.move(HOUR_NS)
    mentioned: set[int] = set()
    for _ in range(4):
        batches = bench.probes.drain(bench.clock.monotonic_ns())
        one_way = bench.probes.drain_one_way()
        found = {path_id for batch in batches for path_id in batch.path_ids}
        found |= {one.path_id for part in (one_way.losses, one_way.delays) for one in part}
        assert found <= bench.probes.definitions.keys()
        mentioned |= found
        bench.pass_time(2 * SECOND)
    assert before < mentioned
    assert len(bench.probes.definitions) == 3
    assert set(bench.probes.definitions) != before


async def test_loss_on_the_way_there_is_forward_and_delays_carry_both_errors() -> None:
    bench = Bench()
    bench.probes.configure([target(fixed=1, rotating=0)])
    bench.reflector.drop_forward = lambda number: number % 5 == 4
    bench.pass_time(5 * SECOND)
    batches = bench.probes.drain(bench.clock.monotonic_ns())
    assert {batch.method for batch in batches} == {ROUND_TRIP_METHOD_STAMP}
    lost = [outcome for _, _, outcome in samples(batches)].count(PACKET_OUTCOME_LOST)
    one_way = bench.probes.drain_one_way()
    assert lost
    assert sum(loss.forward_lost for loss in one_way.losses) in (lost - 1, lost)  # the last gap may be open
    assert not any(loss.reverse_lost or loss.either_lost for loss in one_way.losses)
    assert all(START_WALL_NS < loss.send_time_ns < bench.clock.wall_ns() for loss in one_way.losses)
    assert {delay.sender_error_ns for delay in one_way.delays} == {3_000}
    assert all(delay.reflector_error_ns >= 5_000 for delay in one_way.delays)


async def test_without_targets_nothing_is_opened_and_nothing_wakes() -> None:
    bench = Bench()
    bench.probes.configure([])
    running = asyncio.create_task(bench.probes.run())
    await asyncio.sleep(0)
    assert bench.clock.sleepers == 0
    assert bench.probes.state().detail == "not planned"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def foreign(address: str, *, ports: int = 1) -> StampTarget:
    found = target(fixed=ports, rotating=0)
    found.ClearField("endpoint")
    found.target.name, found.target.address, found.destination_port = "leaf", address, 862
    return found


def test_a_reflector_that_is_not_ours_is_a_target_and_not_known_to_count() -> None:
    ((path, definition),) = paths_of(foreign("10.0.0.9"), START_WALL_NS)
    assert (path.address, path.destination_port, path.stateful) == ("10.0.0.9", 862, False)
    message = Path.FromString(definition)
    assert (message.target.name, message.target.address) == ("leaf", "10.0.0.9")
    assert not message.HasField("endpoint")


async def test_a_reflector_that_does_not_count_gives_losses_without_a_direction() -> None:
    bench = Bench()
    reflector = FakeReflector(knows_ssid=False, stateful=False, drop_reverse=lambda number: number % 5 == 4)
    bench.network.reflectors["10.0.0.9", 862] = reflector
    bench.probes.configure([foreign("10.0.0.9")])
    bench.pass_time(5 * SECOND)
    batches = bench.probes.drain(bench.clock.monotonic_ns())
    assert [outcome for _, _, outcome in samples(batches)].count(PACKET_OUTCOME_LOST)
    losses = bench.probes.drain_one_way().losses
    assert sum(loss.either_lost for loss in losses)
    assert not any(loss.forward_lost or loss.reverse_lost for loss in losses)


async def test_each_address_of_a_reflectors_name_is_a_path_and_none_is_unresolved() -> None:
    answers = {"leaf.example": ["10.0.0.9", "2001:db8::9"], "v6.example": ["2001:db8::9"]}
    bench = Bench()
    resolver = Resolver(bench.clock, lambda name: answers[name])
    bench.probes = StampProbes(
        bench.clock, clock_error=lambda: None, opener=bench.network.open, random=Random(1), resolver=resolver
    )
    bench.network.reflectors["10.0.0.9", 862] = FakeReflector()
    bench.probes.configure([foreign("leaf.example"), foreign("v6.example")])
    resolver.tick()
    async with asyncio.timeout(10):
        while Answer() in (resolver.answer("leaf.example"), resolver.answer("v6.example")):  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # threads set no events of ours
    bench.probes.drain(bench.clock.monotonic_ns())
    bench.pass_time(5 * SECOND)
    batches = bench.probes.drain(bench.clock.monotonic_ns())
    outcomes = outcomes_by_address(batches, bench.probes.definitions)
    assert {address: set(found) for address, found in outcomes.items()} == {
        "10.0.0.9": {PACKET_OUTCOME_REPLIED},
        "": {PACKET_OUTCOME_UNRESOLVED},
    }
    assert "v6.example: no IPv4 address, as 10.0.0.1 would need" in bench.probes.state().detail


def test_paths_over_the_plans_rate_are_left_out_and_said() -> None:
    bench = Bench()
    bench.probes.configure([target(fixed=13, rotating=3)], max_rate=100)  # 16 ports ten times a second
    bench.pass_time(2 * SECOND)
    bench.probes.drain(bench.clock.monotonic_ns())
    assert len({port for port, _ in bench.network.sent}) == 10
    assert "6 paths over the limit of 5000 paths and 100 packets a second" in bench.probes._session.state().detail
