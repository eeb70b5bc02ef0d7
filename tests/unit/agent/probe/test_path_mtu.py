"""The path MTU check over a fake route: what is found, with how few packets, and what must not be claimed."""

import asyncio
import errno
from random import Random

import pytest

from agent.probe.icmp_socket import DATAGRAM, RAW, Rights
from agent.probe.path_mtu import PathMtus
from agent.probe.targets import PathSpec, path_of
from agent.result import MtuTrial, PathMtu
from bandwitness.v1.plan_pb2 import PathMtuCheck
from bandwitness.v1.record_pb2 import (
    MTU_OUTCOME_LOCAL,
    MTU_OUTCOME_REPLIED,
    MTU_OUTCOME_SILENT,
    MTU_OUTCOME_TOO_BIG,
    Path,
)
from tests.fakes.clock import FakeClock
from tests.fakes.network import SECOND, round_trip_target
from tests.fakes.sounding_network import FakeRoute

HOUR = 3600 * SECOND


def spec_of(address: str = "192.0.2.1") -> PathSpec:
    return path_of(round_trip_target(address), address)


async def check(
    route: FakeRoute, *specs: PathSpec, rights: Rights | None = None, for_ns: int = 60 * SECOND
) -> PathMtus:
    """The part after a while."""
    part = PathMtus(
        route.clock,
        paths=lambda: specs or (spec_of(),),
        rights=rights or Rights(RAW, RAW),
        opener=route.open,
        random=Random(1),
        mtu_of=lambda _: 0,
    )
    part.configure(PathMtuCheck(interval_ns=HOUR, payload_bytes=[1472, 8972]))
    task = asyncio.create_task(part.run())
    await route.clock.advance(for_ns)
    task.cancel()
    return part


async def found(route: FakeRoute, *specs: PathSpec) -> PathMtu:
    results = (await check(route, *specs)).drain()
    assert results
    return results[0]


def outcomes(result: PathMtu) -> list[tuple[int, int]]:
    return [(trial.payload_bytes, trial.outcome) for trial in result.trials]


async def test_a_healthy_path_costs_one_packet_on_the_wire() -> None:
    """1472 goes through, and 8972 is larger than our own interface's MTU: that is ours and not the network's."""
    route = FakeRoute(FakeClock(), ["10.0.0.1"])
    result = await found(route)
    assert outcomes(result) == [(1472, MTU_OUTCOME_REPLIED), (8972, MTU_OUTCOME_LOCAL)]
    assert (result.mtu_bytes, result.interface_mtu_bytes, result.black_hole) == (1500, 1500, False)
    assert len(route.sent) == 1
    assert route.sockets[0].dont_fragment
    assert route.sockets[0].closed


async def test_jumbo_frames_all_the_way() -> None:
    result = await found(FakeRoute(FakeClock(), ["10.0.0.1"], interface_mtu=9000))
    assert (result.mtu_bytes, result.black_hole) == (9000, False)


async def test_our_own_interface_between_the_two_sizes_is_followed_to_its_mtu() -> None:
    result = await found(FakeRoute(FakeClock(), ["10.0.0.1"], interface_mtu=4000))
    assert (result.mtu_bytes, result.interface_mtu_bytes, result.black_hole) == (4000, 4000, False)


async def test_a_router_that_says_what_fits_is_taken_at_its_word_and_tried() -> None:
    route = FakeRoute(FakeClock(), ["10.0.0.1", "10.0.0.2"], {"10.0.0.2": 1400})
    result = await found(route)
    assert result.mtu_bytes == 1400
    assert not result.black_hole
    assert result.trials[0] == MtuTrial(1472, MTU_OUTCOME_TOO_BIG, 1, 0, "10.0.0.2", 1400)
    assert (1372, MTU_OUTCOME_REPLIED) in outcomes(result)
    assert len(route.sent) == 2


async def test_two_routers_each_smaller_than_the_last() -> None:
    result = await found(FakeRoute(FakeClock(), ["10.0.0.1", "10.0.0.2"], {"10.0.0.1": 1450, "10.0.0.2": 1380}))
    assert (result.mtu_bytes, result.black_hole) == (1380, False)


@pytest.mark.parametrize("mtu", [1400, 1399, 1280, 577, 1333])
async def test_a_router_that_names_no_mtu_is_searched(mtu: int) -> None:
    result = await found(FakeRoute(FakeClock(), ["10.0.0.1"], {"10.0.0.1": mtu}, names_mtu=False))
    assert (result.mtu_bytes, result.black_hole) == (mtu, False)


@pytest.mark.parametrize("mtu", [1400, 1333, 1499])
async def test_case_11_a_black_hole_is_found_to_the_byte(mtu: int) -> None:
    """Large packets vanish and nobody says so; small ones of the same moment come back."""
    route = FakeRoute(FakeClock(), ["10.0.0.1"], {"10.0.0.1": mtu}, tells_mtu=False, interface_mtu=9000)
    result = await found(route)
    assert (result.mtu_bytes, result.black_hole) == (mtu, True)
    assert (1472, MTU_OUTCOME_SILENT) in outcomes(result)
    smallest_silent = min(size for size, outcome in outcomes(result) if outcome == MTU_OUTCOME_SILENT)
    assert outcomes(result).count((smallest_silent, MTU_OUTCOME_SILENT)) == 2  # confirmed


async def test_a_dead_path_says_nothing_about_sizes() -> None:
    route = FakeRoute(FakeClock(), ["10.0.0.1"], answers=False)
    result = await found(route)
    assert (result.mtu_bytes, result.black_hole) == (None, False)


@pytest.mark.parametrize("seed", range(30))
async def test_loss_never_looks_like_a_black_hole(seed: int) -> None:
    """At any ratio, large and small packets are lost alike: the size may stay unknown, but it is not made up."""
    random = Random(seed)
    ratio = random.choice((0.05, 0.2, 0.4, 0.6, 0.8))
    route = FakeRoute(FakeClock(), ["10.0.0.1"], lost=lambda _: random.random() < ratio, interface_mtu=9000)
    result = await found(route)
    assert not result.black_hole
    assert result.mtu_bytes in (None, 9000)


async def test_a_refused_send_is_ours() -> None:
    result = await found(FakeRoute(FakeClock(), ["10.0.0.1"], refuses_with=errno.ENETUNREACH))
    assert (result.mtu_bytes, result.black_hole) == (None, False)


async def test_ipv6_tries_the_same_packets_on_the_wire() -> None:
    """Its header is 20 bytes longer, so the payload is 20 bytes shorter."""
    spec = spec_of("2001:db8::1")
    result = await found(FakeRoute(FakeClock(), ["2001:db8::9"], {"2001:db8::9": 1400}), spec)
    assert [size for size, _ in outcomes(result)] == [1452, 8952, 1352]
    assert result.mtu_bytes == 1400


async def test_unprivileged_sockets_do_as_well() -> None:
    part = await check(FakeRoute(FakeClock(), ["10.0.0.1"]), rights=Rights(DATAGRAM, None))
    assert [result.mtu_bytes for result in part.drain()] == [1500]


async def test_each_path_in_its_turn_and_again_after_the_interval() -> None:
    route = FakeRoute(FakeClock(), ["10.0.0.1"])
    specs = tuple(spec_of(f"192.0.2.{last}") for last in range(1, 5))
    part = await check(route, *specs, for_ns=HOUR - 60 * SECOND)
    results = part.drain()
    assert [Path.FromString(result.path).target.address for result in results] == [spec.address for spec in specs]
    assert results[1].time_ns - results[0].time_ns >= 5 * SECOND
    task = asyncio.create_task(part.run())
    await route.clock.advance(2 * 60 * SECOND)
    task.cancel()
    assert len(part.drain()) == 4


async def test_the_size_found_before_is_tried_first_the_next_time() -> None:
    route = FakeRoute(FakeClock(), ["10.0.0.1"], {"10.0.0.1": 1333}, names_mtu=False)
    part = await check(route)
    first = len(part.drain()[0].trials)
    task = asyncio.create_task(part.run())
    await route.clock.advance(HOUR + 60 * SECOND)
    task.cancel()
    again = part.drain()[0]
    assert again.mtu_bytes == 1333
    assert len(again.trials) == 4 < first


async def test_the_watermark_waits_for_a_check_that_runs() -> None:
    route = FakeRoute(FakeClock(), ["10.0.0.1"], {"10.0.0.1": 1333}, tells_mtu=False)
    began_ns = route.clock.wall_ns()
    part = await check(route, for_ns=SECOND)
    assert part.oldest_unresolved_ns() == began_ns  # half way through
    done = await check(FakeRoute(FakeClock(), ["10.0.0.1"]), for_ns=SECOND)
    assert done.oldest_unresolved_ns() == began_ns  # not drained
    done.drain()
    assert done.oldest_unresolved_ns() is None


async def test_nothing_is_sent_without_a_plan_or_a_right() -> None:
    route = FakeRoute(FakeClock(), ["10.0.0.1"])
    part = await check(route, rights=Rights(None, None))
    part.configure(None)
    assert part.state().detail == "not planned"
    assert not route.sent


async def test_guards_hold_whatever_the_plan_says() -> None:
    """A second's interval is a minute's, and sizes beyond reason are left out."""
    route = FakeRoute(FakeClock(), ["10.0.0.1"])
    part = await check(route)
    part.configure(PathMtuCheck(interval_ns=1, payload_bytes=[1, 70_000]))
    before = len(part.drain())
    task = asyncio.create_task(part.run())
    await route.clock.advance(60 * SECOND)
    task.cancel()
    assert before == 1
    assert len(part.drain()) <= 2
