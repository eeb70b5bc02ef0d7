"""A clock that stands still until a test moves it. Sleepers wake in the order of their times."""

import asyncio
import heapq
from itertools import count

from agent.clock import Anchor, ClockEvent, OffsetTracker

SECOND = 1_000_000_000
START_WALL_NS = 1_767_225_600 * SECOND  # 2026-01-01T00:00:00Z
START_MONOTONIC_NS = 1_000 * SECOND


class FakeClock:
    """``agent.clock.Clock`` under the test's hand.

    ``move`` passes time without running the event loop (for code that is not async), ``advance`` passes it sleeper by
    sleeper and lets everything that wakes run until it waits again, ``step`` sets the wall clock, ``suspend`` lets
    the host sleep.
    """

    def __init__(self, wall_ns: int = START_WALL_NS, monotonic_ns: int = START_MONOTONIC_NS) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._boottime_ns = monotonic_ns
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._tracker = OffsetTracker(self.anchor())

    @property
    def sleepers(self) -> int:
        """How many wait in ``sleep_until``."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def wall_ns(self) -> int:
        return self._wall_ns

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def anchor(self) -> Anchor:
        return Anchor(self._wall_ns, self._monotonic_ns, self._boottime_ns)

    def tick(self) -> tuple[ClockEvent, ...]:
        return self._tracker.update(self.anchor())

    def event_time_ns(self, monotonic_ns: int) -> int:
        return monotonic_ns + self._tracker.offset_ns

    async def sleep_until(self, monotonic_ns: int) -> None:
        if monotonic_ns <= self._monotonic_ns:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (monotonic_ns, next(self._order), future))
        await future

    def step(self, size_ns: int) -> None:
        """Sets the wall clock forward (or back, when negative); the other clocks go on."""
        self._wall_ns += size_ns

    def suspend(self, duration_ns: int) -> None:
        """The host sleeps: wall clock and boottime go on, the monotonic clock stands."""
        assert duration_ns >= 0
        self._wall_ns += duration_ns
        self._boottime_ns += duration_ns

    def move(self, duration_ns: int) -> None:
        """Passes time and marks the sleepers it passes as woken; they run when the loop next does."""
        assert duration_ns >= 0
        self._wall_ns += duration_ns
        self._monotonic_ns += duration_ns
        self._boottime_ns += duration_ns
        while self._sleepers and self._sleepers[0][0] <= self._monotonic_ns:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)

    async def advance(self, duration_ns: int, *, settle: int = 20) -> None:
        """Passes time, stopping at each sleeper's own time, also those that come on the way.

        Args:
            duration_ns: how far.
            settle: turns of the event loop after each stop, for what woke to reach its next wait. Work in threads
                and sockets is not waited for: tests of such wait for the condition itself.
        """
        await self._settle(settle)  # tasks just created reach their first wait
        end_ns = self._monotonic_ns + duration_ns
        while True:
            while self._sleepers and self._sleepers[0][2].done():  # cancelled
                heapq.heappop(self._sleepers)
            next_ns = min(self._sleepers[0][0], end_ns) if self._sleepers else end_ns
            self.move(max(0, next_ns - self._monotonic_ns))
            await self._settle(settle)
            if self._monotonic_ns >= end_ns and not (self._sleepers and self._sleepers[0][0] <= end_ns):
                return

    @staticmethod
    async def _settle(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
