"""The collector's clocks: wall time names when something was received, monotonic time measures how long."""

import asyncio
import time
from typing import NamedTuple, Protocol


class Anchor(Protocol):
    """All three clocks, read together; nanoseconds."""

    @property
    def wall_ns(self) -> int: ...
    @property
    def monotonic_ns(self) -> int: ...
    @property
    def boottime_ns(self) -> int: ...


class _Reading(NamedTuple):
    wall_ns: int
    monotonic_ns: int
    boottime_ns: int  # runs on while the host sleeps


class Clock(Protocol):
    """What the collector asks of time; tests stand one still."""

    def wall_ns(self) -> int:
        """CLOCK_REALTIME, nanoseconds since 1970-01-01 UTC."""
        ...

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC, nanoseconds."""
        ...

    def anchor(self) -> Anchor:
        """Both, and CLOCK_BOOTTIME, taken together."""
        ...

    async def sleep_until(self, monotonic_ns: int) -> None:
        """Returns once the monotonic clock has reached ``monotonic_ns``, at once if it has."""
        ...


class SystemClock:
    """The host's own clocks."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def anchor(self) -> Anchor:
        return _Reading(time.time_ns(), time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    async def sleep_until(self, monotonic_ns: int) -> None:
        # The loop's timer may fire a little early.
        while (left_ns := monotonic_ns - time.monotonic_ns()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left_ns / 1e9)
