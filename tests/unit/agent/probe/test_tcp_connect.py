"""TCP connects over fake connects: what is a reply, a loss, an unreachable host, and what is ours."""

import asyncio
import errno
from random import Random

import pytest

from agent.probe.resolve import Resolver
from agent.probe.tcp_connect import MAX_OPEN, TcpConnectSession
from agent.result import RoundTripBatch
from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import (
    PACKET_MARK_LATE,
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_SEND_FAILED,
    PACKET_OUTCOME_SKIPPED,
    PACKET_OUTCOME_UNREACHABLE,
    PROTOCOL_TCP_CONNECT,
    ROUND_TRIP_METHOD_TCP_CONNECT,
    STAMP_SOURCE_USER,
    Path,
)
from tests.fakes.clock import FakeClock
from tests.fakes.network import MILLISECOND, SECOND, FakeConnects, outcomes_by_address, round_trip_target

HOST = "198.51.100.7"


def target(address: str = HOST, **settings: int | str) -> RoundTripTarget:
    return round_trip_target(address, protocol=PROTOCOL_TCP_CONNECT, port=443, **settings)  # type: ignore[arg-type]


class Bench:
    """A session, its clock and its network."""

    def __init__(self, *targets: RoundTripTarget) -> None:
        self.clock = FakeClock()
        self.network = FakeConnects(self.clock)
        self.session = TcpConnectSession(
            self.clock, opener=self.network.open, resolver=Resolver(self.clock, lambda _: []), random=Random(1)
        )
        self.session.configure(targets)

    def measure(self, duration_ns: int, step_ns: int = 10 * MILLISECOND) -> list[RoundTripBatch]:
        for _ in range(duration_ns // step_ns):
            self.clock.move(step_ns)
            self.session.tick()
        return self.session.drain(self.clock.monotonic_ns())


@pytest.mark.parametrize("code", [0, errno.ECONNREFUSED, errno.ECONNRESET])
def test_accepted_and_refused_are_both_replies(code: int) -> None:
    bench = Bench(target())
    bench.network.hosts[HOST] = (30 * MILLISECOND, code)
    (batch,) = bench.measure(2 * SECOND)
    assert (batch.method, batch.stamp_source) == (ROUND_TRIP_METHOD_TCP_CONNECT, STAMP_SOURCE_USER)
    assert set(batch.outcomes) == {PACKET_OUTCOME_REPLIED}
    assert set(batch.round_trip_delays_ns) == {30 * MILLISECOND}
    assert batch.delay_faults == []
    path = Path.FromString(bench.session.definitions[batch.path_ids[0]])
    assert (path.type_p.protocol, path.type_p.destination_port) == (PROTOCOL_TCP_CONNECT, 443)
    assert all(attempt.closed for attempt in bench.network.attempts)


def test_an_answer_within_connect_itself_counts() -> None:
    bench = Bench(target())
    bench.network.immediate[HOST] = errno.ECONNREFUSED
    (batch,) = bench.measure(SECOND)
    assert list(batch.outcomes) == [PACKET_OUTCOME_REPLIED]


def test_silence_is_loss_and_the_attempt_is_given_up_in_time() -> None:
    bench = Bench(target(waiting_ns=300 * MILLISECOND))
    bench.measure(SECOND)
    (batch,) = bench.measure(SECOND)
    assert set(batch.outcomes) == {PACKET_OUTCOME_LOST}
    assert list(batch.round_trip_delays_ns) == []
    bench.session.configure([])
    bench.measure(SECOND)
    assert all(attempt.closed for attempt in bench.network.attempts)


def test_an_icmp_error_is_unreachable_and_the_kernels_own_timeout_a_loss() -> None:
    bench = Bench(target("192.0.2.1"), target("192.0.2.2"))
    bench.network.hosts["192.0.2.1"] = (5 * MILLISECOND, errno.EHOSTUNREACH)
    bench.network.hosts["192.0.2.2"] = (5 * MILLISECOND, errno.ETIMEDOUT)
    found = outcomes_by_address(bench.measure(3 * SECOND), bench.session.definitions)
    assert {address: set(outcomes) for address, outcomes in found.items()} == {
        "192.0.2.1": {PACKET_OUTCOME_UNREACHABLE},
        "192.0.2.2": {PACKET_OUTCOME_LOST},
    }


def test_a_refusal_of_our_own_kernel_is_no_loss() -> None:
    bench = Bench(target())
    bench.network.immediate[HOST] = errno.ENETUNREACH
    (batch,) = bench.measure(2 * SECOND)
    assert set(batch.outcomes) == {PACKET_OUTCOME_SEND_FAILED}


def test_a_source_that_is_missing_stays_so_whatever_another_does() -> None:
    bench = Bench(target(source="192.0.2.1"), target("198.51.100.8", source="192.0.2.2"))
    bench.network.missing_sources = {"192.0.2.1"}
    found: dict[str, set[int]] = {}
    for _ in range(20):
        for address, outcomes in outcomes_by_address(
            bench.measure(100 * MILLISECOND), bench.session.definitions
        ).items():
            found.setdefault(address, set()).update(outcomes)
        if HOST in found:
            state = bench.session.state()
            assert (state.state, "192.0.2.1: " in state.detail) == ("source_missing", True)
    assert found[HOST] == {PACKET_OUTCOME_SEND_FAILED}
    bench.network.missing_sources.clear()
    bench.measure(2 * SECOND)
    assert bench.session.state().state == "ok"


def test_a_wall_clock_step_does_not_touch_the_delay() -> None:
    bench = Bench(target())
    bench.network.hosts[HOST] = (30 * MILLISECOND, 0)
    while not bench.network.attempts:
        bench.measure(10 * MILLISECOND)
    bench.clock.step(-5 * SECOND)
    (batch,) = bench.measure(100 * MILLISECOND)
    assert list(batch.round_trip_delays_ns) == [30 * MILLISECOND]


def test_a_late_answer_is_a_mark() -> None:
    bench = Bench(target(waiting_ns=105 * MILLISECOND))
    bench.network.hosts[HOST] = (110 * MILLISECOND, 0)
    batches = bench.measure(2 * SECOND)
    assert {outcome for batch in batches for outcome in batch.outcomes} == {PACKET_OUTCOME_LOST}
    assert {mark.kind for batch in batches for mark in batch.marks} == {PACKET_MARK_LATE}


def test_more_connects_than_the_limit_are_skipped() -> None:
    bench = Bench(*[target(f"10.0.{i >> 8}.{i & 255}", waiting_ns=900 * MILLISECOND) for i in range(MAX_OPEN + 200)])
    batches = bench.measure(800 * MILLISECOND)
    outcomes = [outcome for batch in batches for outcome in batch.outcomes]
    assert outcomes
    assert set(outcomes) == {PACKET_OUTCOME_SKIPPED}
    assert sum(not attempt.closed for attempt in bench.network.attempts) == MAX_OPEN


async def test_run_ends_every_attempt_when_cancelled() -> None:
    bench = Bench(target())
    task = asyncio.create_task(bench.session.run())
    await bench.clock.advance(2 * SECOND)
    assert bench.network.attempts
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(attempt.closed for attempt in bench.network.attempts)
