"""Driver statistics of one NIC that are of the vocabulary, read in another thread: a driver may take its time."""

import asyncio
import errno
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

from agent.clock import Clock
from agent.sample.ethtool import Ioctl, names_of, values_of
from agent.sample.rhythm import Patience
from agent.sample.series import Series
from bandwitness.counters import allowed, ethtool

T = TypeVar("T")
NOT_SUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EPERM, errno.ENOSYS})
ASK_AGAIN_NS = 60_000_000_000  # a device without statistics may be replaced by one with some
Read = tuple[int, int, Sequence[str], Sequence[int]]  # time, duration, names, values


class DriverStatistics:
    """One NIC's. ``read`` may block and touches nothing that is shared; ``take`` keeps what it found."""

    def __init__(self, nic: str, call: Ioctl, clock: Clock) -> None:
        self.nic = nic
        self.supported: bool | None = None  # None: not asked yet
        self.fault = ""
        self.patience = Patience()
        self.counts_wire = False
        self.series: list[Series] = []  # a new one where the driver's counters changed
        self._call = call
        self._clock = clock
        self._names: Sequence[str] = ()
        self._places: Sequence[int] = ()
        self._count = 0

    def read(self, driver: str) -> Read | None:
        """Reads what is of the vocabulary; None where the driver has nothing of it.

        Raises:
            OSError: the driver failed or has no statistics.
        """
        for _ in range(2):  # names change with the number of queues
            if not self._names:
                names = names_of(self.nic, self._call)
                self._places = allowed(driver, names)
                self._names, self._count = tuple(names[place] for place in self._places), len(names)
                if not self._names:
                    return None
            start_ns = self._clock.monotonic_ns()
            values = values_of(self.nic, self._count, self._places, self._call)
            end_ns = self._clock.monotonic_ns()
            if values is not None:
                return (start_ns + end_ns) // 2, end_ns - start_ns, self._names, values
            self._names = ()
        raise OSError(f"{self.nic}: the driver's statistics change at every look")

    def take(self, driver: str, read: Read | None, interval_ns: int) -> None:
        """Keeps a read, or that there is nothing to read."""
        self.fault = ""
        self.supported = read is not None
        now_ns = self._clock.monotonic_ns()
        if read is None:
            self._ask_again(now_ns)
            return
        time_ns, took_ns, names, values = read
        self.patience.took(took_ns, now_ns, interval_ns)
        if not self.series or self.series[-1].counters != tuple(names):
            self.series = [one for one in self.series if len(one)]
            self.series.append(Series(names))
            meanings = [ethtool(driver, name) for name in names]
            self.counts_wire = any(found and found.name == "wire_transmit_bytes" for found in meanings)
        self.series[-1].add(time_ns, values)

    def failed(self, error: OSError, interval_ns: int) -> None:
        """Keeps that a read failed."""
        self._names = ()
        self.counts_wire = False
        now_ns = self._clock.monotonic_ns()
        if error.errno in NOT_SUPPORTED:
            self.supported, self.fault = False, ""
            self._ask_again(now_ns)
        else:
            self.fault = f"driver statistics of {self.nic}: {error.strerror or error}"
            self.patience.took(0, now_ns, interval_ns)

    def _ask_again(self, now_ns: int) -> None:
        self.counts_wire = False
        self.patience.took(0, now_ns, ASK_AGAIN_NS)


class Worker:
    """One thread that reads one thing after another. It is a daemon: a driver that never answers keeps nobody alive."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result, or what it raised. A wait that is given up leaves the thread to itself."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="driver-statistics", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: Exception | None) -> None:
            if not future.done():
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(result)  # type: ignore[arg-type]

        def work() -> None:
            result, fault = None, None
            try:
                result = function()
            except Exception as error:  # noqa: BLE001 - handed to who waits
                fault = error
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, result, fault)

        self._work.put(work)
        return await future

    def _serve(self) -> None:
        while True:
            self._work.get()()
