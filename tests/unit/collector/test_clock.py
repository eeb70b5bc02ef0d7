"""The collector's clocks are the host's."""

import time

from collector.clock import SystemClock


def test_each_clock_is_the_kernels() -> None:
    clock = SystemClock()
    before = (time.time_ns(), time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    read = (clock.wall_ns(), clock.monotonic_ns(), clock.boottime_ns())
    after = (time.time_ns(), time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    assert all(low <= value <= high for low, value, high in zip(before, read, after, strict=True))


async def test_sleep_until_never_returns_early() -> None:
    clock = SystemClock()
    goal = clock.monotonic_ns() + 2_000_000
    await clock.sleep_until(goal)
    assert clock.monotonic_ns() >= goal


async def test_sleep_until_a_time_that_has_passed_returns_at_once() -> None:
    await SystemClock().sleep_until(0)
