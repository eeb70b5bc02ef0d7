"""The agent measured against itself: what it notes, and when it doubts its own delays."""

import asyncio
import errno
from collections import deque
from dataclasses import replace
from random import Random

import pytest

from agent.probe.self_check import SUSPENDED_NS, SelfChecking, WatchedClock, reasons
from agent.result import CpuTimes, SelfCheck
from tests.fakes.clock import SECOND, FakeClock
from tests.fakes.network import MILLISECOND, FakeNetwork, Host

LOOPBACK = "127.0.0.1"
WELL = SelfCheck(
    from_time_ns=0,
    to_time_ns=2 * SECOND,
    loopback_sent=8,
    loopback_lost=0,
    loopback_delay_p50_ns=15_000,
    loopback_delay_max_ns=57_000,
    lateness_p50_ns=9_500_000,
    lateness_max_ns=544_000_000,
    cpu_pressure_ratio=0.98,
    own_wait_ratio=0.03,
    steal_ratio=0.002,
)


class Bench:
    """A check over a fake network whose loopback answers after 20 µs."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.network = FakeNetwork(self.clock)
        self.network.hosts[LOOPBACK] = Host(delays=(20_000,))
        self.cpu = CpuTimes(0, 0, 0, 0)
        self.checking = SelfChecking(self.clock, cpu=lambda: self.cpu, opener=self.network.open, random=Random(1))

    def pass_time(self, duration_ns: int) -> None:
        for _ in range(duration_ns // (10 * MILLISECOND)):
            self.clock.move(10 * MILLISECOND)
            self.checking.session.tick()


def test_a_quiet_host_has_no_doubt() -> None:
    bench = Bench()
    begun = bench.clock.wall_ns()
    bench.pass_time(2 * SECOND)
    bench.cpu = CpuTimes(SECOND // 2, 1, 400, SECOND // 10)
    check = bench.checking.drain()
    assert check is not None
    assert (check.from_time_ns, check.to_time_ns) == (begun, begun + 2 * SECOND)
    assert check.loopback_sent >= 7
    assert (check.loopback_delay_p50_ns, check.loopback_delay_max_ns) == (20_000, 20_000)
    assert (check.cpu_pressure_ratio, check.own_wait_ratio, check.steal_ratio) == (0.25, 0.05, 0.0025)
    assert check.reasons == ()
    assert (bench.checking.state().working, bench.checking.state().state) == (True, "ok")


def test_checks_follow_each_other_without_a_gap() -> None:
    bench = Bench()
    spans = []
    for _ in range(3):
        bench.pass_time(2 * SECOND)
        check = bench.checking.drain()
        assert check is not None
        spans.append((check.from_time_ns, check.to_time_ns))
    assert [end for _, end in spans[:-1]] == [begin for begin, _ in spans[1:]]


@pytest.mark.parametrize(
    ("figure", "value", "reason"),
    [
        ("lateness_p50_ns", 21_000_000, "late"),
        ("lateness_max_ns", SECOND + 1, "late"),
        ("loopback_delay_p50_ns", 100_001, "loopback_slow"),
        ("loopback_delay_max_ns", 1_000_001, "loopback_slow"),
        ("loopback_lost", 1, "loopback_lost"),
        ("own_wait_ratio", 0.31, "starved"),
        ("steal_ratio", 0.021, "stolen"),
    ],
)
def test_each_figure_over_its_limit_is_a_doubt_of_its_own(figure: str, value: float, reason: str) -> None:
    assert reasons(WELL, 0) == ()
    assert reasons(replace(WELL, **{figure: value}), 0) == (reason,)  # type: ignore[arg-type]


def test_what_is_not_known_is_no_doubt() -> None:
    assert reasons(SelfCheck(0, SECOND, 0, 0), 0) == ()


def test_a_host_that_slept_is_doubted() -> None:
    bench = Bench()
    bench.pass_time(SECOND)
    bench.clock.suspend(30 * SECOND)
    bench.pass_time(SECOND)
    check = bench.checking.drain()
    assert check is not None
    assert "suspended" in check.reasons
    assert check.to_time_ns - check.from_time_ns == 32 * SECOND


def test_clocks_that_were_read_apart_are_no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is busy reads one clock a moment after the other, and says by how much."""
    bench = Bench()
    bench.pass_time(SECOND)
    apart = 2 * SUSPENDED_NS
    anchor = bench.clock.anchor()
    read = replace(anchor, boottime_ns=anchor.boottime_ns + apart, uncertainty_ns=apart)
    monkeypatch.setattr(bench.clock, "anchor", lambda: read)
    check = bench.checking.drain()
    assert check is not None
    assert check.reasons == ()


def test_a_total_that_falls_says_nothing() -> None:
    """Steal does, on some hypervisors: no share can be had of it, least of all a negative one."""
    bench = Bench()
    bench.cpu = CpuTimes(0, 50, 1_000, 0)
    bench.pass_time(SECOND)
    bench.checking.drain()
    bench.cpu = CpuTimes(0, 40, 2_000, 0)
    bench.pass_time(SECOND)
    check = bench.checking.drain()
    assert check is not None
    assert check.steal_ratio is None


def test_silence_on_loopback_is_a_doubt() -> None:
    bench = Bench()
    bench.network.hosts[LOOPBACK] = Host(delays=())
    bench.pass_time(4 * SECOND)
    check = bench.checking.drain()
    assert check is not None
    assert check.loopback_lost > 0
    assert check.reasons == ("loopback_lost",)
    assert bench.checking.state().state == "doubtful"


def test_a_loopback_that_is_down_is_a_state_and_no_doubt() -> None:
    bench = Bench()
    bench.network.send_errors[LOOPBACK] = deque([errno.ENETUNREACH] * 1000)
    bench.pass_time(4 * SECOND)
    check = bench.checking.drain()
    assert check is not None
    assert (check.loopback_sent, check.loopback_delay_p50_ns, check.reasons) == (0, None, ())
    assert (bench.checking.state().working, bench.checking.state().state) == (False, "loopback_down")
    bench.network.send_errors.clear()
    bench.pass_time(2 * SECOND)
    bench.checking.drain()
    assert bench.checking.state().state == "ok"


def test_without_loopback_for_ipv4_it_is_the_one_of_ipv6() -> None:
    clock = FakeClock()
    network = FakeNetwork(clock)
    network.families = {6}
    network.hosts["::1"] = Host(delays=(20_000,))
    checking = SelfChecking(clock, cpu=lambda: CpuTimes(None, None, None, None), opener=network.open)
    for _ in range(100):
        clock.move(10 * MILLISECOND)
        checking.session.tick()
    check = checking.drain()
    assert check is not None
    assert check.loopback_sent > 0
    assert (check.cpu_pressure_ratio, check.own_wait_ratio, check.steal_ratio) == (None, None, None)


def test_without_rights_to_icmp_time_is_watched_all_the_same() -> None:
    clock = FakeClock()
    network = FakeNetwork(clock)
    network.families = set()
    checking = SelfChecking(clock, cpu=lambda: CpuTimes(None, None, None, None), opener=network.open)
    clock.move(SECOND)
    check = checking.drain()
    assert check is not None
    assert check.loopback_sent == 0
    assert checking.state().state == "no_loopback_echo"


def test_a_clock_set_back_gives_no_check_and_the_next_one_begins_there() -> None:
    bench = Bench()
    bench.pass_time(SECOND)
    bench.clock.step(-10 * SECOND)
    assert bench.checking.drain() is None
    bench.pass_time(SECOND)
    assert bench.checking.drain() is not None


async def test_lateness_is_that_of_each_sleep_and_of_sleepers_that_are_overdue() -> None:
    clock = FakeClock()
    watched = WatchedClock(clock)
    start = clock.monotonic_ns()
    first = asyncio.create_task(watched.sleep_until(start + 10 * MILLISECOND))
    second = asyncio.create_task(watched.sleep_until(start + 20 * MILLISECOND))
    await asyncio.sleep(0)
    clock.move(15 * MILLISECOND)
    await first
    assert watched.take() == [5 * MILLISECOND]
    clock.move(SECOND)  # the loop stood still: nobody has been woken yet
    assert watched.take() == [SECOND - 5 * MILLISECOND]
    await second
    third = asyncio.create_task(watched.sleep_until(clock.monotonic_ns() + SECOND))
    await asyncio.sleep(0)
    third.cancel()
    with pytest.raises(asyncio.CancelledError):
        await third
    watched.take()
    assert watched.take() == []
