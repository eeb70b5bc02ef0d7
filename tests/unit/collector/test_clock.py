"""The collector's clocks are the host's."""

import time

from collector.clock import SystemClock


def test_each_clock_is_the_kernels() -> None:
    clock = SystemClock()
    before = (time.time_ns(), time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    anchor = clock.anchor()
    read = (anchor.wall_ns, anchor.monotonic_ns, anchor.boottime_ns)
    after = (time.time_ns(), time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    assert before[0] <= clock.wall_ns()
    assert before[1] <= clock.monotonic_ns()
    assert all(low <= value <= high for low, value, high in zip(before, read, after, strict=True))


async def test_sleep_until_never_returns_early() -> None:
    clock = SystemClock()
    goal = clock.monotonic_ns() + 2_000_000
    await clock.sleep_until(goal)
    assert clock.monotonic_ns() >= goal


async def test_sleep_until_a_time_that_has_passed_returns_at_once() -> None:
    await SystemClock().sleep_until(0)
