"""Names resolved in the background, and the paths they become."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from agent.probe.icmp import EchoSession
from agent.probe.icmp_socket import RAW, Rights
from agent.probe.resolve import (
    KEEP_NS,
    MAX_ADDRESSES,
    MAX_FAILING_THREADS,
    MAX_NAMES,
    MAX_THREADS,
    REFRESH_NS,
    RETRY_NS,
    TIMEOUT_NS,
    Answer,
    Resolver,
    system_lookup,
)
from agent.probe.targets import TargetRefusedError, path_of
from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import (
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_UNRESOLVED,
    PROTOCOL_ICMP_ECHO,
    PROTOCOL_TCP_THROUGHPUT,
    Path,
)
from tests.fakes.clock import FakeClock
from tests.fakes.network import MILLISECOND, SECOND, FakeNetwork, Host, outcomes_by_address, round_trip_target

NAME = "gateway.example"


class Zone:
    """Names and their addresses; a name without is refused, and one under ``hang`` waits until the test ends."""

    def __init__(self, **names: Sequence[str]) -> None:
        self.names: dict[str, Sequence[str]] = {name.replace("_", "."): list(found) for name, found in names.items()}
        self.hang: set[str] = set()
        self.release = threading.Event()
        self.asked: list[str] = []

    def lookup(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        if name in self.hang:
            self.release.wait()
            raise OSError("timed out")
        if name not in self.names:
            raise OSError(-2, "Name or service not known")
        return self.names[name]


@asynccontextmanager
async def zone(**names: Sequence[str]) -> AsyncIterator[Zone]:
    made = Zone(**names)
    try:
        yield made
    finally:
        made.release.set()


async def until(condition: Callable[[], bool]) -> None:
    """Lets the lookups' threads come back."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - threads set no events of ours
            await asyncio.sleep(0.001)


async def test_case_21_one_dead_name_does_not_delay_the_others() -> None:
    clock = FakeClock()
    async with zone() as names:
        dead = [f"dead{i}.example" for i in range(20)]
        live = [f"live{i}.example" for i in range(20)]
        names.hang = set(dead)
        names.names = {name: ["198.51.100.10"] for name in live}
        resolver = Resolver(clock, names.lookup)
        resolver.watch([name for pair in zip(dead, live, strict=True) for name in pair])
        resolver.tick()
        await until(lambda: all(resolver.answer(name).addresses for name in live))
        assert all(resolver.answer(name) == Answer() for name in dead)
        clock.move(TIMEOUT_NS + 1)
        resolver.tick()
        assert all(resolver.answer(name) == Answer(fault="timed out") for name in dead)
        assert resolver.take_changed() == {*dead, *live}
        # Hanging lookups are not started a second time.
        clock.move(RETRY_NS)
        resolver.tick()
        assert names.asked.count(dead[0]) == 1


async def test_dead_names_never_take_all_threads() -> None:
    clock = FakeClock()
    async with zone(live_example=["198.51.100.10"]) as names:
        dead = [f"dead{i}.example" for i in range(MAX_THREADS + 10)]
        resolver = Resolver(clock, names.lookup)
        resolver.watch(dead)
        async with asyncio.timeout(10):
            while len(resolver.faults()) < len(dead):  # they fail at once, until they hang
                resolver.tick()
                await asyncio.sleep(0.001)
        names.hang = set(dead)
        names.asked.clear()
        resolver.watch([*dead, "live.example"])
        for _ in range(5):
            clock.move(RETRY_NS + TIMEOUT_NS)
            resolver.tick()
        await until(lambda: bool(resolver.answer("live.example").addresses))
        await until(lambda: resolver._threads == MAX_FAILING_THREADS)
        assert len(set(names.asked) - {"live.example"}) == MAX_FAILING_THREADS


async def test_a_failed_lookup_keeps_the_addresses_for_a_while() -> None:
    clock = FakeClock()
    async with zone(gateway_example=["198.51.100.12"]) as names:
        resolver = Resolver(clock, names.lookup)
        resolver.watch([NAME])
        resolver.tick()
        await until(lambda: resolver.answer(NAME) != Answer())
        names.names.clear()
        clock.move(REFRESH_NS)
        resolver.tick()
        await until(lambda: bool(resolver.answer(NAME).fault))
        assert resolver.answer(NAME).addresses == ("198.51.100.12",)
        clock.move(KEEP_NS)
        resolver.tick()
        assert resolver.answer(NAME).addresses == ()
        assert "Name or service not known" in resolver.faults()[NAME]
        await until(lambda: len(names.asked) == 3)


async def test_numbers_of_names_and_addresses_have_limits() -> None:
    clock = FakeClock()
    async with zone(gateway_example=[f"198.51.100.{i}" for i in range(30)]) as names:
        resolver = Resolver(clock, names.lookup)
        assert resolver.watch([NAME, *(f"n{i}.example" for i in range(MAX_NAMES))]) == [f"n{MAX_NAMES - 1}.example"]
        assert resolver.answer(f"n{MAX_NAMES - 1}.example").fault
        resolver.watch([NAME])
        resolver.tick()
        await until(lambda: resolver.answer(NAME) != Answer())
        assert len(resolver.answer(NAME).addresses) == MAX_ADDRESSES


async def test_an_answer_for_a_name_no_longer_wanted_is_dropped() -> None:
    clock = FakeClock()
    async with zone() as names:
        names.hang = {NAME}
        resolver = Resolver(clock, names.lookup)
        resolver.watch([NAME])
        resolver.tick()
        resolver.watch([])
        names.release.set()
        await until(lambda: resolver._threads == 0)
        assert resolver.take_changed() == set()
        assert resolver.faults() == {}


def test_the_hosts_own_resolver_knows_localhost() -> None:
    found = set(system_lookup("localhost"))
    assert found
    assert found <= {"127.0.0.1", "::1"}


class Bench:
    """A session whose names the zone answers."""

    def __init__(self, names: Zone, *targets: RoundTripTarget) -> None:
        self.clock = FakeClock()
        self.network = FakeNetwork(self.clock)
        self.resolver = Resolver(self.clock, names.lookup)
        self.session = EchoSession(
            self.clock, opener=self.network.open, resolver=self.resolver, random=Random(1), rights=Rights(RAW, RAW)
        )
        self.session.configure(targets)
        self.definitions: dict[int, bytes] = {}

    def measure(self, duration_ns: int) -> dict[str, list[int]]:
        """Outcomes by address (empty: none) of what is resolved within the time."""
        for _ in range(duration_ns // (10 * MILLISECOND)):
            self.clock.move(10 * MILLISECOND)
            self.session.tick()
        batches = self.session.drain(self.clock.monotonic_ns())
        self.definitions |= self.session.definitions
        assert {Path.FromString(definition).target.name for definition in self.definitions.values()} <= {NAME}
        return outcomes_by_address(batches, self.definitions)


async def test_case_21_target_name_with_several_or_changing_addresses() -> None:
    first = ["198.51.100.10", "198.51.100.11", "2001:db8::10"]
    async with zone(gateway_example=first) as names:
        bench = Bench(names, round_trip_target(NAME, waiting_ns=100 * MILLISECOND))
        for address in [*first, "198.51.100.12"]:
            bench.network.hosts[address] = Host()
        bench.session.tick()
        await until(lambda: bench.resolver.answer(NAME) != Answer())
        found = bench.measure(3 * SECOND)
        assert set(found) == set(first)  # each address is a series of its own
        assert {outcome for outcomes in found.values() for outcome in outcomes} == {PACKET_OUTCOME_REPLIED}

        names.names[NAME] = ["198.51.100.12"]
        bench.clock.move(REFRESH_NS - 3 * SECOND)
        bench.session.tick()
        await until(lambda: bench.resolver.answer(NAME).addresses == ("198.51.100.12",))
        bench.measure(SECOND)
        assert set(bench.measure(3 * SECOND)) == {"198.51.100.12"}  # the old ones ended

        names.names.clear()
        bench.clock.move(REFRESH_NS)
        bench.session.tick()
        await until(lambda: bool(bench.resolver.answer(NAME).fault))
        bench.measure(SECOND)
        found = bench.measure(3 * SECOND)
        assert set(found) == {"", "198.51.100.12"}
        assert set(found[""]) == {PACKET_OUTCOME_UNRESOLVED}  # a series of its own: our failure, no loss
        assert set(found["198.51.100.12"]) == {PACKET_OUTCOME_REPLIED}
        assert bench.session.state().state == "dns_failed"


async def test_a_name_without_an_address_of_the_sources_version_is_unresolved_and_said() -> None:
    async with zone(gateway_example=["2001:db8::10"]) as names:
        bench = Bench(names, round_trip_target(NAME, source="192.0.2.1"))
        bench.session.tick()
        await until(lambda: bench.resolver.answer(NAME) != Answer())
        assert bench.measure(3 * SECOND) == {"": [PACKET_OUTCOME_UNRESOLVED] * 3}
        assert "no IPv4 address, as 192.0.2.1 would need" in bench.session.state().detail


async def test_case_21_a_name_that_never_resolves_is_unresolved_not_lost() -> None:
    async with zone() as names:
        bench = Bench(names, round_trip_target(NAME))
        assert bench.measure(2 * SECOND) == {}  # not known yet: nothing to say
        await until(lambda: bench.resolver.answer(NAME) != Answer())
        found = bench.measure(3 * SECOND)
        assert found == {"": [PACKET_OUTCOME_UNRESOLVED] * 3}
        names.names[NAME] = ["198.51.100.10"]
        bench.clock.move(RETRY_NS)
        bench.session.tick()
        await until(lambda: bool(bench.resolver.answer(NAME).addresses))
        bench.measure(2 * SECOND)
        assert set(bench.measure(3 * SECOND)) == {"198.51.100.10"}


async def test_only_addresses_that_the_source_can_reach_are_used() -> None:
    async with zone(gateway_example=["198.51.100.10", "2001:db8::10"]) as names:
        bench = Bench(names, round_trip_target(NAME, source="192.0.2.1"))
        bench.session.tick()
        await until(lambda: bench.resolver.answer(NAME) != Answer())
        found = bench.measure(3 * SECOND)
        assert found == {"198.51.100.10": [PACKET_OUTCOME_LOST] * len(found["198.51.100.10"])}


# ---------------------------------------------------------------- from target to path


def test_equal_targets_are_one_path_and_any_difference_in_type_p_another() -> None:
    target = round_trip_target("198.51.100.10")
    same = path_of(target, "198.51.100.10")
    assert path_of(round_trip_target("198.51.100.10", interval_ns=5 * SECOND), "198.51.100.10").path_id == same.path_id
    others = [
        path_of(round_trip_target("198.51.100.10", payload_bytes=57), "198.51.100.10"),
        path_of(round_trip_target("198.51.100.10", dscp=46), "198.51.100.10"),
        path_of(round_trip_target("198.51.100.10", source="192.0.2.1"), "198.51.100.10"),
        path_of(target, "198.51.100.11"),
        path_of(target, "198.51.100.10", tcp_fallback=True),
        path_of(target, ""),
    ]
    assert len({path.path_id for path in [same, *others]}) == 7


def test_addresses_are_written_the_one_way_of_rfc_5952() -> None:
    spec = path_of(round_trip_target("2001:DB8:0:0::10"), "2001:DB8:0:0::10")
    assert spec.address == "2001:db8::10"
    assert Path.FromString(spec.definition).target.address == "2001:db8::10"
    assert path_of(round_trip_target("fe80::1%eth0"), "fe80::1%eth0").address == "fe80::1%eth0"


def test_an_endpoint_destination_stays_an_endpoint() -> None:
    target = RoundTripTarget(protocol=PROTOCOL_ICMP_ECHO, payload_bytes=56, interval_ns=SECOND, waiting_time_ns=SECOND)
    target.endpoint.node, target.endpoint.nic, target.endpoint.address, target.endpoint.lane = (
        "peer",
        "eth0",
        "192.0.2.9",
        "rail0",
    )
    path = Path.FromString(path_of(target, "192.0.2.9").definition)
    assert (path.endpoint.node, path.endpoint.lane, path.endpoint.address) == ("peer", "rail0", "192.0.2.9")


def test_a_link_local_peer_keeps_its_own_spelling_and_is_reached_by_our_device() -> None:
    target = round_trip_target("x", source="fe80::1%eth0", nic="eth0")
    target.endpoint.node, target.endpoint.nic, target.endpoint.address = "peer", "eth7", "fe80::2%eth7"
    spec = path_of(target, "fe80::2%eth7")
    assert spec.address == "fe80::2%eth0"
    assert Path.FromString(spec.definition).endpoint.address == "fe80::2%eth7"


def test_a_link_local_target_gets_the_zone_of_its_source() -> None:
    spec = path_of(round_trip_target("gw.example", source="2001:db8::1", nic="eth0"), "fe80::1")
    assert spec.address == Path.FromString(spec.definition).target.address == "fe80::1%eth0"


def test_the_zone_of_a_name_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        (10, 2, 17, "", ("fe80::1", 0, 0, 1)),
        (10, 2, 17, "", ("2001:db8::1", 0, 0, 0)),
        (2, 2, 17, "", ("192.0.2.1", 0)),
    ]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
    assert system_lookup("gw.example") == ["192.0.2.1", "2001:db8::1", "fe80::1%lo"]


@pytest.mark.parametrize(
    ("target", "address", "words"),
    [
        (round_trip_target("x"), "x", "not an address"),
        (round_trip_target("224.0.0.1"), "224.0.0.1", "one host"),
        (round_trip_target("ff02::1"), "ff02::1", "one host"),
        (round_trip_target("0.0.0.0"), "0.0.0.0", "one host"),
        (round_trip_target("192.0.2.9", source="2001:db8::1"), "192.0.2.9", "other IP version"),
        (round_trip_target("fe80::9"), "fe80::9", "say on which link"),
        (round_trip_target("fe80::9%b0", nic="a0"), "fe80::9%b0", "on the link of b0, not of a0"),
        (round_trip_target("192.0.2.9", protocol=PROTOCOL_TCP_THROUGHPUT), "192.0.2.9", "no round-trip probe"),
    ],
)
def test_what_must_not_be_probed_is_refused_with_the_reason(target: RoundTripTarget, address: str, words: str) -> None:
    with pytest.raises(TargetRefusedError, match=words):
        path_of(target, address)


def test_limits_of_interval_waiting_time_and_payload() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"interval_ns": 20 * MILLISECOND - 1}, "interval 0.02 s is not within 0.02 to 3600 s"),
        ({"interval_ns": 0}, "interval 0 s"),
        ({"interval_ns": 3601 * SECOND}, "interval 3601 s"),
        ({"waiting_ns": 9 * MILLISECOND}, "waiting time 0.009 s"),
        ({"waiting_ns": 11 * SECOND}, "waiting time 11 s"),
        ({"payload_bytes": 19}, "payload 19 is not within 20 to 8972"),
        ({"payload_bytes": 8973}, "payload 8973"),
        ({"dscp": 64}, "DSCP 64"),
    ]
    for changes, words in refused:
        with pytest.raises(TargetRefusedError, match=words):
            path_of(round_trip_target("192.0.2.9", **changes), "192.0.2.9")
    tcp = path_of(round_trip_target("192.0.2.9", waiting_ns=3 * SECOND), "192.0.2.9", tcp_fallback=True)
    assert (tcp.payload_bytes, tcp.port, tcp.waiting_ns) == (0, 7, 950 * MILLISECOND)
