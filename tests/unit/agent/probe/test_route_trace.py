"""Traces over a fake route: the hops, the flow, the pace, and what makes a trace."""

import asyncio
from random import Random

from agent.probe.echo_packet import HEADER_BYTES
from agent.probe.icmp_socket import RAW, Rights
from agent.probe.route_sweep import PACE_NS, ROUNDS, Sweep
from agent.probe.route_trace import GAP_NS, SEEN, RouteTraces
from agent.probe.route_trace import trace as trace_way
from agent.probe.sounding import Way
from agent.probe.sounding_packet import SoundingPackets
from agent.probe.stamp_paths import StampPath
from agent.probe.stamp_sender import StampSession
from agent.probe.stamp_way import StampWay
from agent.probe.targets import PathSpec, path_of
from agent.result import Hop, RoundTripBatch, RouteTrace
from bandwitness.v1.plan_pb2 import TraceRequest
from bandwitness.v1.record_pb2 import (
    HOP_OUTCOME_REPLIED,
    HOP_OUTCOME_SEND_FAILED,
    HOP_OUTCOME_SILENT,
    HOP_OUTCOME_TIME_EXCEEDED,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_SKIPPED,
    TRACE_REASON_HOP_COUNT,
    TRACE_REASON_REFERENCE,
    TRACE_REASON_REQUESTED,
    TRACE_REASON_VERDICT,
    Path,
)
from tests.fakes.clock import FakeClock
from tests.fakes.network import MILLISECOND, SECOND, echo_reply, round_trip_target
from tests.fakes.sounding_network import FakeRoute
from tests.fakes.stamp_network import FakeReflector, FakeStampNetwork

ROUTERS = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def spec_of(address: str = "192.0.2.1") -> PathSpec:
    return path_of(round_trip_target(address), address)


def traces_of(route: FakeRoute, *specs: PathSpec) -> RouteTraces:
    return RouteTraces(
        route.clock,
        echo_paths=lambda: specs or (spec_of(),),
        stamp_paths=list,
        stamp_way=lambda _: None,
        rights=Rights(RAW, RAW),
        opener=route.open,
        random=Random(1),
    )


async def run(part: RouteTraces, route: FakeRoute, for_ns: int = 30 * SECOND) -> list[RouteTrace]:
    task = asyncio.create_task(part.run())
    await route.clock.advance(for_ns)
    task.cancel()
    return part.drain()


def request(name: str, spec: PathSpec, clock: FakeClock, reason: int = TRACE_REASON_REQUESTED) -> TraceRequest:
    return TraceRequest(
        request=name,
        path=spec.definition,
        reason=reason,  # type: ignore[arg-type]
        expiry_time_ns=clock.wall_ns() + 600 * SECOND,
    )


def addresses(trace: RouteTrace) -> list[str]:
    return [hop.address for hop in trace.hops]


async def test_a_path_that_is_new_is_traced_for_reference() -> None:
    route = FakeRoute(FakeClock(), ROUTERS)
    began_ns = route.clock.wall_ns()
    (trace,) = await run(traces_of(route), route)
    assert trace.reason == TRACE_REASON_REFERENCE
    assert trace.reached
    assert trace.time_ns == began_ns
    assert addresses(trace) == [address for address in (*ROUTERS, "192.0.2.1") for _ in range(ROUNDS)]
    assert {hop.outcome for hop in trace.hops[:-ROUNDS]} == {HOP_OUTCOME_TIME_EXCEEDED}
    assert {hop.outcome for hop in trace.hops[-ROUNDS:]} == {HOP_OUTCOME_REPLIED}
    assert trace.hops[0] == Hop(1, HOP_OUTCOME_TIME_EXCEEDED, "10.0.0.1", MILLISECOND)
    assert len(route.sent) == ROUNDS * 4
    assert Path.FromString(trace.path).target.address == "192.0.2.1"


async def test_all_packets_of_a_trace_look_alike_to_what_spreads_by_header() -> None:
    """Type, code, checksum and identifier are the same; only the number is not."""
    route = FakeRoute(FakeClock(), ROUTERS)
    await run(traces_of(route), route)
    packets = [packet for _, packet in route.sent]
    assert len({packet[:6] for packet in packets}) == 1
    assert len({packet[6:8] for packet in packets}) == len(packets)
    again = FakeRoute(FakeClock(), ROUTERS)
    part = traces_of(again)
    part._random.seed(2)  # another process has another token
    await run(part, again)
    assert {packet[:6] for _, packet in again.sent} == {packets[0][:6]}
    assert again.sent[0][1][8:16] != packets[0][8:16]


async def test_routers_are_asked_seldom() -> None:
    """Each at most three times a trace, and packets keep their distance."""
    clock = FakeClock()
    route = FakeRoute(clock, ROUTERS)
    part = traces_of(route, spec_of())
    first, second = spec_of(), spec_of()
    part.configure([request("a", first, clock), request("b", second, clock)])
    found = await run(part, route)
    assert [trace.request for trace in found] == ["a", "b"]
    assert found[1].time_ns - found[0].time_ns >= GAP_NS
    for limit in range(1, 4):
        assert sum(hop_limit == limit for hop_limit, _ in route.sent) == 2 * ROUNDS
    assert PACE_NS * ROUNDS * 4 < GAP_NS


async def test_silent_hops_and_a_silent_destination_end() -> None:
    route = FakeRoute(FakeClock(), ["10.0.0.1", "", "10.0.0.3"], answers=False)
    (trace,) = await run(traces_of(route), route)
    assert not trace.reached
    by_hop = {hop.hop_limit: hop for hop in trace.hops}
    assert by_hop[2].outcome == HOP_OUTCOME_SILENT
    assert by_hop[2].address == ""
    assert by_hop[2].round_trip_delay_ns is None
    assert by_hop[3].address == "10.0.0.3"
    assert max(by_hop) == 3 + 6
    assert len(route.sent) < 20


async def test_a_far_destination_is_not_overshot_in_the_record() -> None:
    """Round trips longer than the pace: packets sent beyond the destination are left out."""
    route = FakeRoute(FakeClock(), ROUTERS, delay_ns=100 * MILLISECOND)
    (trace,) = await run(traces_of(route), route)
    assert trace.reached
    assert max(hop.hop_limit for hop in trace.hops) == 4


async def test_routers_that_quote_the_header_alone_are_understood() -> None:
    route = FakeRoute(FakeClock(), ROUTERS, quoted_bytes=HEADER_BYTES)
    (trace,) = await run(traces_of(route), route)
    assert addresses(trace)[::ROUNDS] == [*ROUTERS, "192.0.2.1"]


async def test_a_send_that_fails_is_ours() -> None:
    route = FakeRoute(FakeClock(), ROUTERS, refuses_with=101)
    (trace,) = await run(traces_of(route), route)
    assert {hop.outcome for hop in trace.hops} == {HOP_OUTCOME_SEND_FAILED}
    assert not trace.reached


async def test_forged_replies_make_no_hop() -> None:
    """Without the token nobody answers for us."""
    route = FakeRoute(FakeClock(), ROUTERS, answers=False)
    task = asyncio.create_task((part := traces_of(route)).run())
    await route.clock.advance(SECOND // 10)
    forger = SoundingPackets(ip_version=4, identifier=route.sockets[0].identifier, token=bytes(8))
    for number in range(50):
        route.sockets[0].deliver(bytes([0x45]) + bytes(19) + echo_reply(forger.request(number, 56)), "192.0.2.1")
    await route.clock.advance(30 * SECOND)
    task.cancel()
    assert [trace.reached for trace in part.drain()] == [False]


async def test_requests_come_first_are_done_once_and_lapse() -> None:
    clock = FakeClock()
    route = FakeRoute(clock, ROUTERS)
    part = traces_of(route)
    late = request("late", spec_of(), clock)
    late.expiry_time_ns = clock.wall_ns()
    part.configure([late, request("now", spec_of(), clock, TRACE_REASON_VERDICT)])
    part.configure([late, request("now", spec_of(), clock, TRACE_REASON_VERDICT)])  # the next plan repeats it
    found = await run(part, route, 200 * SECOND)
    assert [(trace.request, trace.reason) for trace in found] == [("now", TRACE_REASON_VERDICT)]


async def test_a_request_for_an_unknown_path_is_said_and_costs_no_other() -> None:
    clock = FakeClock()
    route = FakeRoute(clock, ROUTERS)
    part = traces_of(route)
    part.configure([request("odd", spec_of("192.0.2.77"), clock)])
    task = asyncio.create_task(part.run())
    await clock.advance(0)
    assert "odd" in part.state().detail
    assert part.state().state == "degraded"
    await clock.advance(10 * SECOND)
    task.cancel()
    assert [trace.reason for trace in part.drain()] == [TRACE_REASON_REFERENCE]


def batch(spec: PathSpec, hop_limit: int) -> RoundTripBatch:
    return RoundTripBatch(1, 1, SECOND, SECOND, [spec.path_id], [0], [0], [], [], [], hop_limits=[hop_limit])


async def test_another_hop_limit_that_stays_is_traced() -> None:
    """One reply over another way says nothing; three flushes in a row do."""
    clock = FakeClock()
    route = FakeRoute(clock, ROUTERS)
    part, spec = traces_of(route), spec_of()
    await run(part, route)  # the reference
    for hop_limit in (61, 62, 61, 0, 62, 62):
        part.note([batch(spec, hop_limit)])
    assert await run(part, route) == []
    for _ in range(SEEN - 2):
        part.note([batch(spec, 62)])
    (trace,) = await run(part, route)
    assert trace.reason == TRACE_REASON_HOP_COUNT
    for hop_limit in (61, 61, 61):  # back again, too soon for another trace
        part.note([batch(spec, hop_limit)])
    assert await run(part, route) == []


async def test_the_watermark_waits_for_a_trace_that_runs() -> None:
    route = FakeRoute(FakeClock(), ROUTERS)
    part = traces_of(route)
    began_ns = route.clock.wall_ns()
    task = asyncio.create_task(part.run())
    await route.clock.advance(SECOND // 10)
    assert part.oldest_unresolved_ns() == began_ns
    await route.clock.advance(20 * SECOND)
    assert part.oldest_unresolved_ns() == began_ns  # ended, not drained
    part.drain()
    assert part.oldest_unresolved_ns() is None
    task.cancel()


async def test_a_path_without_a_socket_yet_is_put_off_and_delays_no_other() -> None:
    """A STAMP session that has not begun; the echo path comes first all the same."""
    clock = FakeClock()
    route = FakeRoute(clock, ROUTERS)
    stamp = StampPath(7, "192.0.2.1", 4, 61_000)
    tried: list[int] = []

    def way(_: int) -> Way | None:
        tried.append(clock.monotonic_ns())
        return None

    part = RouteTraces(
        clock,
        echo_paths=lambda: (spec_of(),) if tried else (),
        stamp_paths=lambda: [(stamp, b"", True)],
        stamp_way=way,
        rights=Rights(RAW, RAW),
        opener=route.open,
        random=Random(1),
    )
    found = await run(part, route, 10 * SECOND)
    assert len(tried) == 1
    assert [trace.reached for trace in found] == [True]
    assert part.state().state == "ok"
    await run(part, route, 60 * SECOND)
    assert len(tried) == 2


async def test_a_stamp_path_is_traced_on_its_own_port_and_its_session_goes_on() -> None:
    """Time exceeded is no loss of the session's, whatever the router quotes, and the reply is no stranger's."""
    clock = FakeClock()
    network = FakeStampNetwork(clock)
    network.routers = ["10.0.0.1", "10.0.0.2"]
    network.reflectors["192.0.2.1", 8620] = FakeReflector()
    session = StampSession(clock, opener=network.open, random=Random(1))
    session.configure([StampPath(7, "192.0.2.1", 4, 61_000, stateful=True)])
    for quoted, expected in ((1500, ["10.0.0.1", "10.0.0.2", "192.0.2.1"]), (0, ["", "", "192.0.2.1"])):
        network.quoted_bytes = quoted
        for _ in range(3):
            clock.move(SECOND)
            session.tick()
        found = session.session_of(7)
        assert found is not None
        stamp_way, sweep = StampWay(clock, found, session.read), Sweep(SECOND)
        task = asyncio.create_task(trace_way(clock, stamp_way, sweep))
        await clock.advance(5 * SECOND)
        await task
        stamp_way.close()
        assert [hop.address for hop in sweep.hops()[::ROUNDS]] == expected
        assert sweep.reached
    clock.move(2 * SECOND)
    batches = session.drain(clock.monotonic_ns())
    outcomes = {outcome for batch in batches for outcome in batch.outcomes}
    assert outcomes <= {PACKET_OUTCOME_REPLIED, PACKET_OUTCOME_SKIPPED}
    assert PACKET_OUTCOME_REPLIED in outcomes
    assert "stranger" not in session.state().detail


async def test_where_the_plan_says_so_no_trace_is_made_that_nobody_asked_for() -> None:
    clock = FakeClock()
    route = FakeRoute(clock, ROUTERS)
    part, asked_for = traces_of(route, spec_of(), spec_of("192.0.2.2")), spec_of()
    part.configure([], False)
    assert await run(part, route, 300 * SECOND) == []
    assert not route.sent
    part.configure([request("a", asked_for, clock)], False)
    assert [trace.request for trace in await run(part, route)] == ["a"]
    part.configure([], True)
    assert [trace.reason for trace in await run(part, route)] == [TRACE_REASON_REFERENCE]  # of the other path
