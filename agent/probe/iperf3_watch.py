"""What the host does while a test runs: the NIC's octets, the cores that serve it, and iperf3's own threads.

Read four times a second from outside, so that what is said of a test is said of the time in which it ran, and not of
the time that its server waited.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from agent.clock import Clock
from agent.probe import cores, gates

SAMPLE_NS = 250_000_000
MAX_SAMPLES = 1_024  # four minutes
_MIN_STRETCH_NS = 1_000_000_000

_Ticks = list[tuple[int, Mapping[int, int]]]


class Watch:
    """Readings of one end of one test. Times are monotonic ns."""

    def __init__(self, root: Path, nic: str, clock: Clock) -> None:
        self._root = root
        self._nic = nic
        self._clock = clock
        self._serving: frozenset[int] = frozenset()
        self._octets: list[tuple[int, gates.NicReading]] = []
        self._softirqs: _Ticks = []

    @contextlib.asynccontextmanager
    async def beside_test(self) -> AsyncIterator[None]:
        """Reads the NIC and its cores until the block ends."""
        self._serving = cores.serving_cpus(self._root, self._nic)
        self._read()
        task = asyncio.create_task(self._repeat(self._read))
        try:
            yield
        finally:
            await _ended(task)
            self._read()

    @contextlib.asynccontextmanager
    async def threads(self, pid: int, readings: _Ticks) -> AsyncIterator[None]:
        """Adds the threads of a process to ``readings`` until the block ends."""

        def read() -> None:
            ticks = gates.read_thread_ticks(self._root, pid)
            if ticks and len(readings) < MAX_SAMPLES:
                readings.append((self._clock.monotonic_ns(), ticks))

        read()
        task = asyncio.create_task(self._repeat(read))
        try:
            yield
        finally:
            await _ended(task)

    def port_bytes(self, *, sends: bool, from_ns: int, to_ns: int) -> tuple[int, int] | None:
        """Octets of the NIC in one direction over the readings that lie next to these times, and the time between
        them. None: no two readings, or the counter fell."""
        known = [
            (at_ns, octets)
            for at_ns, reading in self._octets
            for octets in [reading.transmitted_bytes if sends else reading.received_bytes]
            if octets is not None
        ]
        if len(known) < 2:
            return None
        first = min(known, key=lambda each: abs(each[0] - from_ns))
        last = min(known, key=lambda each: abs(each[0] - to_ns))
        if last[0] <= first[0] or last[1] < first[1]:
            return None
        return last[1] - first[1], last[0] - first[0]

    def softirq(self, length_ns: int) -> tuple[float, int] | None:
        """Share of a core that interrupts took of the busiest one that serves the NIC, and which."""
        return cores.busiest(self._softirqs, stretch_ns(length_ns))

    def _read(self) -> None:
        if len(self._octets) >= MAX_SAMPLES:
            return
        now_ns = self._clock.monotonic_ns()
        self._octets.append((now_ns, gates.read_nic(self._root, self._nic)))
        if self._serving:
            self._softirqs.append((now_ns, cores.read_softirq_ticks(self._root, self._serving)))

    async def _repeat(self, read: Callable[[], None]) -> None:
        while True:
            await self._clock.sleep_until(self._clock.monotonic_ns() + SAMPLE_NS)
            read()


def stretch_ns(length_ns: int) -> int:
    """Over how long something must have been busy to have held back a test of this length."""
    return max(_MIN_STRETCH_NS, length_ns // 2)


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
