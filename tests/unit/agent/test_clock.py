"""The clocks: offset, steps, suspend, sleep; the fake against the real one."""

import asyncio
import time

import pytest

from agent.clock import Anchor, Clock, ClockStep, OffsetTracker, Suspension, SystemClock
from tests.fakes.clock import SECOND, FakeClock


def test_a_step_is_reported_once_with_its_size_and_sign() -> None:
    clock = FakeClock()
    clock.move(2 * SECOND)
    clock.step(-7 * SECOND)
    assert clock.tick() == (ClockStep(wall_time_ns=clock.wall_ns(), size_ns=-7 * SECOND),)
    clock.move(2 * SECOND)
    assert clock.tick() == ()


@pytest.mark.parametrize(("moved_ns", "seen"), [(500_000, 0), (-500_000, 0), (500_001, 1), (-500_001, 1)])
def test_what_a_slow_reading_could_be_is_no_step(moved_ns: int, seen: int) -> None:
    clock = FakeClock()
    clock.step(moved_ns)
    assert len(clock.tick()) == seen
    assert clock.event_time_ns(clock.monotonic_ns()) == clock.wall_ns()  # the offset is taken over all the same


def test_an_uncertain_reading_widens_the_tolerance() -> None:
    tracker = OffsetTracker(Anchor(wall_ns=10**18, monotonic_ns=0, boottime_ns=0))
    late = Anchor(wall_ns=10**18 + 3_000_000, monotonic_ns=1_000_000, boottime_ns=1_000_000, uncertainty_ns=2_000_000)
    assert tracker.update(late) == ()


def test_event_time_keeps_the_offset_until_the_tick() -> None:
    clock = FakeClock()
    before = clock.event_time_ns(clock.monotonic_ns())
    clock.step(5 * SECOND)
    assert clock.event_time_ns(clock.monotonic_ns()) == before
    clock.tick()
    assert clock.event_time_ns(clock.monotonic_ns()) == before + 5 * SECOND


def test_suspend_is_no_step() -> None:
    clock = FakeClock()
    start = clock.wall_ns()
    clock.suspend(3_600 * SECOND)
    assert clock.tick() == (Suspension(from_time_ns=start, to_time_ns=start + 3_600 * SECOND),)


def test_a_step_on_waking_is_told_apart_from_the_sleep() -> None:
    clock = FakeClock()
    start = clock.wall_ns()
    clock.suspend(60 * SECOND)
    clock.step(-2 * SECOND)
    assert clock.tick() == (
        Suspension(from_time_ns=start, to_time_ns=start + 60 * SECOND),
        ClockStep(wall_time_ns=start + 58 * SECOND, size_ns=-2 * SECOND),
    )


async def test_sleepers_wake_in_order_of_their_times() -> None:
    clock = FakeClock()
    start = clock.monotonic_ns()
    woken: list[tuple[str, int]] = []

    async def sleeper(name: str, *after_s: int) -> None:
        for seconds in after_s:
            await clock.sleep_until(start + seconds * SECOND)
            woken.append((name, (clock.monotonic_ns() - start) // SECOND))

    tasks = [asyncio.create_task(sleeper("a", 3)), asyncio.create_task(sleeper("b", 1, 2, 5))]
    await clock.advance(4 * SECOND)
    assert woken == [("b", 1), ("b", 2), ("a", 3)]
    assert clock.sleepers == 1
    await clock.advance(SECOND)
    assert woken[-1] == ("b", 5)
    await asyncio.gather(*tasks)


async def test_a_cancelled_sleeper_is_passed_over() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep_until(clock.monotonic_ns() + SECOND))
    await asyncio.sleep(0)
    task.cancel()
    await clock.advance(2 * SECOND)
    assert task.cancelled()
    assert clock.sleepers == 0


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock()])
async def test_every_clock_keeps_the_promises_of_the_protocol(clock: Clock) -> None:
    start = clock.monotonic_ns()
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    await clock.sleep_until(start - SECOND)
    assert turns == [1]  # yielded although the time had passed
    sleeper = asyncio.create_task(clock.sleep_until(start + 2_000_000))
    if isinstance(clock, FakeClock):
        await clock.advance(2_000_000)
    await sleeper
    assert clock.monotonic_ns() >= start + 2_000_000
    assert not any(isinstance(event, ClockStep) for event in clock.tick())
    anchor = clock.anchor()
    assert abs(clock.event_time_ns(anchor.monotonic_ns) - anchor.wall_ns) <= 500_000 + 2 * anchor.uncertainty_ns


def test_the_system_clock_reads_the_kernels_clocks() -> None:
    clock = SystemClock()
    before = (time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    monotonic, anchor = clock.monotonic_ns(), clock.anchor()
    after = (time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    assert before[0] <= monotonic <= anchor.monotonic_ns <= after[0]
    assert before[1] <= anchor.boottime_ns <= after[1]
    # Nothing orders the wall clock against the others, but an hour off would be another clock.
    assert abs(anchor.wall_ns - time.time_ns()) < 3_600 * SECOND
