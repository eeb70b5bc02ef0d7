"""The clocks of one host, and what happens to them: steps of the wall clock and sleeps of the host.

Durations are measured on CLOCK_MONOTONIC, events are named by wall clock: ``event_time_ns`` maps the first to the
second with the offset of the last ``tick``, so all times of one flush share one offset and a step of the wall clock
falls between flushes, where it is reported with its size. Linux slews both clocks alike (they share one multiplier,
kernel/time/timekeeping.c), so slewing never moves the offset; what does is a step, a leap second, or suspend, and
suspend shows as CLOCK_BOOTTIME running ahead of CLOCK_MONOTONIC.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

STEP_TOLERANCE_NS = 500_000  # below it a change of the offset cannot be told from a slow reading
SUSPEND_TOLERANCE_NS = 1_000_000
_READ_ATTEMPTS = 5
_READ_SPREAD_GOOD_NS = 20_000


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The wall clock was set. ``size_ns`` positive: forward."""

    wall_time_ns: int  # right after the step was seen
    size_ns: int


@dataclass(frozen=True, slots=True)
class Suspension:
    """The host slept: nothing was measured between these wall clock times."""

    from_time_ns: int
    to_time_ns: int


ClockEvent = ClockStep | Suspension


@dataclass(frozen=True, slots=True)
class Anchor:
    """All three clocks read together; ``uncertainty_ns`` bounds how far apart in time the readings lie."""

    wall_ns: int
    monotonic_ns: int
    boottime_ns: int
    uncertainty_ns: int = 0


class Clock(Protocol):
    """What the agent's parts are given. All in integer nanoseconds."""

    def wall_ns(self) -> int:
        """CLOCK_REALTIME since the Unix epoch."""

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC: never set, stands still in suspend."""

    def anchor(self) -> Anchor:
        """The two and CLOCK_BOOTTIME (as monotonic, and runs on in suspend), read together."""

    def tick(self) -> tuple[ClockEvent, ...]:
        """Takes over the present offset between wall and monotonic clock and says what moved it since the last."""

    def event_time_ns(self, monotonic_ns: int) -> int:
        """Wall clock time of a monotonic one, by the offset of the last ``tick``."""

    async def sleep_until(self, monotonic_ns: int) -> None:
        """Returns at or after that monotonic time; at once, but not without yielding, when it has passed."""


class OffsetTracker:
    """Which offset is in force, and what a new reading says about the time since the last. Pure."""

    def __init__(self, first: Anchor) -> None:
        self._last = first

    @property
    def offset_ns(self) -> int:
        """Wall minus monotonic at the last reading."""
        return self._last.wall_ns - self._last.monotonic_ns

    def update(self, now: Anchor) -> tuple[ClockEvent, ...]:
        """Takes ``now`` as the new reading; suspension first, then the step that is left once it is accounted for."""
        last, self._last = self._last, now
        slept_ns = (now.boottime_ns - now.monotonic_ns) - (last.boottime_ns - last.monotonic_ns)
        tolerance_ns = now.uncertainty_ns + last.uncertainty_ns
        if slept_ns <= SUSPEND_TOLERANCE_NS + tolerance_ns:
            slept_ns = 0
        moved_ns = (now.wall_ns - now.monotonic_ns) - (last.wall_ns - last.monotonic_ns) - slept_ns
        events: list[ClockEvent] = []
        if slept_ns:
            # From the last reading on: where in between the host fell asleep is not known.
            events.append(Suspension(from_time_ns=last.wall_ns, to_time_ns=now.wall_ns - moved_ns))
        if abs(moved_ns) > STEP_TOLERANCE_NS + tolerance_ns:
            events.append(ClockStep(wall_time_ns=now.wall_ns, size_ns=moved_ns))
        return tuple(events)


class SystemClock:
    """The kernel's clocks under the running event loop."""

    def __init__(self) -> None:
        self._tracker = OffsetTracker(self.anchor())

    def wall_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def anchor(self) -> Anchor:
        best: Anchor | None = None
        for _ in range(_READ_ATTEMPTS):  # a process switched out between two readings would look like a step
            before = time.monotonic_ns()
            wall = time.time_ns()
            boottime = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            after = time.monotonic_ns()
            if best is None or after - before < best.uncertainty_ns:
                best = Anchor(wall, (before + after) // 2, boottime, after - before)
            if best.uncertainty_ns <= _READ_SPREAD_GOOD_NS:
                break
        assert best is not None
        return best

    def tick(self) -> tuple[ClockEvent, ...]:
        return self._tracker.update(self.anchor())

    def event_time_ns(self, monotonic_ns: int) -> int:
        return monotonic_ns + self._tracker.offset_ns

    async def sleep_until(self, monotonic_ns: int) -> None:
        await asyncio.sleep(max(0, monotonic_ns - time.monotonic_ns()) / 1e9)
        # The loop may wake up to its resolution early; there is no event to wait for instead.
        while (left_ns := monotonic_ns - time.monotonic_ns()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left_ns / 1e9)
