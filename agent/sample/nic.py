"""Counters of the node's NICs and of the host: raw, once an interval, each with the monotonic time of its reading.

The kernel's table comes from ``/sys/class/net/NIC/statistics`` with descriptors kept open and read at offset 0 (an
open for each read costs eight times as much). Values are the kernel's own: wrap and reset are judged at the collector,
which has the whole series. sysfs belongs to the namespace it was mounted in, not to the process's: where the device it
shows is not the one the kernel knows by that name, or is not shown at all, ``/proc/net/dev`` (always the process's
own) is read instead, with fewer counters.

While a NIC carries a burst, or somebody said that one comes, octets are read ten times as often.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from agent import netdev
from agent.clock import Clock
from agent.result import NicBatch, PartState
from agent.sample import host, rdma
from agent.sample.device import Identify, kernel_identity
from agent.sample.driver import Worker
from agent.sample.ethtool import Ioctl, kernel_ioctl
from agent.sample.nature import is_virtual_machine
from agent.sample.series import Series
from agent.sample.unit import Unit

MAX_NICS = 32
REOPEN_NS = 60_000_000_000  # a renamed device keeps its open files: look by name again this often
SECOND_NS = 1_000_000_000
HASTE_MAX_NS = 3_600 * SECOND_NS
ANSWER_NS = 5 * SECOND_NS  # a driver that has not answered by then is left alone
MAX_SILENT = 2  # threads that wait for such a driver; with more, no driver is asked any longer


class NicSampler:
    """Reads the counters of some NICs and of the devices below them (members of a bond, the port under a VLAN).

    Args:
        root: where ``sys`` and ``proc`` are found.
        clock: tells when a counter was read and when the next tick is.
        identify: the kernel's word on a device, to see whether sysfs shows the same; None trusts sysfs.
        ethtool: asks drivers for their statistics; None leaves them alone.
        of_host: which counters of the whole host are read beside.
    """

    def __init__(
        self,
        root: Path,
        clock: Clock,
        *,
        identify: Identify | None = kernel_identity,
        ethtool: Ioctl | None = kernel_ioctl,
        of_host: Sequence[host.HostSource] = host.SOURCES,
    ) -> None:
        self._root = root
        self._classes = root / "sys/class/net"
        self._clock = clock
        self._identify = identify
        self._ethtool = ethtool
        self._of_host = of_host
        self._hypervisor = is_virtual_machine(root)
        self._wanted: tuple[str, ...] = ()
        self._interval_ns = SECOND_NS
        self._burst_interval_ns = 0
        self._speeds_bps: dict[str, int] = {}
        self._units: dict[str, Unit] = {}
        self._host: dict[str, _Host] = {}
        self._worker = Worker()
        self._silent: set[str] = set()
        self._listed_ns: int | None = None
        self._full_ns: int | None = None
        self._fast_until_ns = 0
        self._fastest_ns = SECOND_NS  # of the ticks since the last drain
        self._left_out = 0
        self.ticks_missed = 0  # the process did not run in time; the tick is absent

    def configure(
        self,
        nics: Iterable[str],
        interval_ns: int = SECOND_NS,
        burst_interval_ns: int = 0,
        speeds_bps: Mapping[str, int] | None = None,
    ) -> None:
        """What to read from now on; NICs already read go on without a break. No burst interval: always the same.
        ``speeds_bps``: of lines of which the kernel's figure is not to be used."""
        assert interval_ns > 0
        self._speeds_bps = dict(speeds_bps or {})
        self._wanted = tuple(dict.fromkeys(nics))
        self._interval_ns = interval_ns
        self._burst_interval_ns = burst_interval_ns if 0 < burst_interval_ns < interval_ns else 0
        self._fastest_ns = interval_ns
        if not self._host and self._wanted:
            self._host = {what.name: _Host(what) for what in self._of_host}
        self._list()

    def hasten(self, until_monotonic_ns: int) -> None:
        """Reads at the interval of bursts until then, an hour at most."""
        until_ns = min(until_monotonic_ns, self._clock.monotonic_ns() + HASTE_MAX_NS)
        self._fast_until_ns = max(self._fast_until_ns, until_ns)

    def open_bursts(self) -> set[tuple[str, str]]:
        """NICs asked for, not those below them, with the direction (``receive``, ``transmit``) of a burst just now."""
        wanted = (self._units[name] for name in self._wanted if name in self._units)
        return {(unit.name, direction) for unit in wanted for direction in unit.bursts}

    @property
    def units(self) -> Mapping[str, Unit]:
        """The NICs read, by name."""
        return self._units

    def _list(self) -> None:
        self._listed_ns = self._clock.monotonic_ns()
        names = dict.fromkeys(self._wanted)
        for nic in self._wanted:
            names |= dict.fromkeys(self._below(nic))
        kept = list(names)[:MAX_NICS]
        self._left_out = len(names) - len(kept)
        for gone in set(self._units) - set(kept):
            self._units.pop(gone).close()
        for name in kept:
            if name not in self._units:
                self._units[name] = Unit(
                    name,
                    self._classes,
                    self._clock,
                    identify=self._identify,
                    ethtool=self._ethtool,
                    hypervisor=self._hypervisor,
                )
        self._assign_ports()

    def _assign_ports(self) -> None:
        """Gives each RDMA port to one NIC: of several on its wire, the first that is read."""
        ports: dict[str, list[rdma.Place]] = {name: [] for name in self._units}
        room = rdma.MAX_PORTS
        for place in rdma.places(self._root):
            nic = next((nic for nic in place.nics if nic in ports), None)
            if nic is not None and room:
                ports[nic].append(place)
                room -= 1
            elif nic is not None:
                self._left_out += 1
        for name, unit in self._units.items():
            unit.planned_speed_bps = self._speeds_bps.get(name)
            unit.look(ports[name])

    def _below(self, nic: str) -> list[str]:
        """Devices that carry this one, through two steps (a VLAN on a bond). Not the ports of a bridge: they are
        other people's."""
        found: list[str] = []
        level = [nic]
        for _ in range(2):
            lower: list[str] = []
            for name in level:
                directory = self._classes / name
                if not (directory / "bridge").exists():
                    lower += sorted(link.name.removeprefix("lower_") for link in directory.glob("lower_*"))
            found += lower
            level = lower
        return found

    # ------------------------------------------------------------ reading

    async def run(self) -> None:
        """Ticks for ever, and asks drivers beside it. A tick that comes more than an interval late is missed, not
        made up for."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_ticks())
            if self._ethtool is not None:
                group.create_task(self._run_drivers())

    async def _run_ticks(self) -> None:
        next_ns = self._clock.monotonic_ns()
        while True:
            await self._clock.sleep_until(next_ns)
            interval_ns = self.tick()
            next_ns += interval_ns
            behind_ns = self._clock.monotonic_ns() - next_ns
            if behind_ns > 0:
                missed = -(-behind_ns // interval_ns)
                self.ticks_missed += missed
                next_ns += missed * interval_ns

    def tick(self) -> int:
        """Reads every NIC once; one that cannot be read costs only itself. Gives the time to the next tick."""
        now_ns = self._clock.monotonic_ns()
        if self._listed_ns is None or now_ns - self._listed_ns >= REOPEN_NS:
            self._list()
            for unit in self._units.values():
                unit.close()
        full = not self._burst_interval_ns or self._full_ns is None
        full = full or now_ns - (self._full_ns or 0) >= self._interval_ns - self._burst_interval_ns // 2
        if full:
            self._full_ns = now_ns
        own = cache(self._own_counters)  # read once a tick, and only when a NIC needs it
        bursting = [unit.tick(own, self._interval_ns, full=full) for unit in self._units.values()]
        if full:
            for source in self._host.values():
                source.tick(self._root, now_ns)
        if self._burst_interval_ns and (any(bursting) or now_ns < self._fast_until_ns):
            self._fastest_ns = self._burst_interval_ns
            return self._burst_interval_ns
        return self._interval_ns

    async def _run_drivers(self) -> None:
        next_ns = self._clock.monotonic_ns()
        while True:
            await self._clock.sleep_until(next_ns)
            for unit in list(self._units.values()):
                await self._ask_driver(unit)
            next_ns = max(next_ns + max(self._interval_ns, SECOND_NS), self._clock.monotonic_ns())

    async def _ask_driver(self, unit: Unit) -> None:
        statistics, driver = unit.statistics, unit.nature.driver
        now_ns = self._clock.monotonic_ns()
        if statistics is None or unit.device.foreign or unit.name in self._silent or len(self._silent) > MAX_SILENT:
            return
        if not statistics.patience.due(now_ns):
            return
        interval_ns = max(self._interval_ns, SECOND_NS)
        try:
            async with asyncio.timeout(ANSWER_NS / SECOND_NS):
                read = await self._worker.run(partial(statistics.read, driver))
            statistics.take(driver, read, interval_ns)
        except TimeoutError:
            self._silent.add(unit.name)
            self._worker = Worker()  # the other thread waits for the driver, for as long as that takes
            statistics.fault = f"driver statistics of {unit.name}: the driver does not answer; not asked again"
        except OSError as error:
            statistics.failed(error, interval_ns)

    def ask_drivers(self, *, again: bool = False) -> None:
        """The same at once and in this thread; ``again``: also those that were asked a moment ago."""
        for unit in self._units.values():
            statistics = unit.statistics
            if statistics is not None and (again or statistics.patience.due(self._clock.monotonic_ns())):
                try:
                    statistics.take(unit.nature.driver, statistics.read(unit.nature.driver), self._interval_ns)
                except OSError as error:
                    statistics.failed(error, self._interval_ns)

    def _own_counters(self) -> Mapping[str, Mapping[str, int]]:
        return netdev.parse((self._root / "proc/net/dev").read_text(errors="replace"))

    # ------------------------------------------------------------ results

    def drain(self) -> list[NicBatch]:
        """What was read since the last drain, a batch for each NIC and source, then the host's. Base times use the
        clock's present offset: call after its ``tick``."""
        interval_ns, self._fastest_ns = self._fastest_ns, self._interval_ns
        batches = [batch for unit in self._units.values() for batch in unit.drain(interval_ns)]
        for source in self._host.values():
            batches += source.drain(self._clock, self._interval_ns)
        return batches

    @property
    def ticks_dropped(self) -> int:
        """Ticks that were not drained in time."""
        return sum(unit.dropped for unit in self._units.values())

    def state(self) -> PartState:
        """``nic_unreadable`` when a NIC gives nothing, ``wrong_sysfs`` when /proc had to do, ``ok`` else."""
        faults = [unit.device.fault for unit in self._units.values() if unit.device.fault]
        if self._left_out:
            faults.append(f"{self._left_out} devices over the limit of {MAX_NICS} are not read")
        if faults:
            working = len(faults) < len(self._units)
            return PartState("nic", working, "nic_unreadable", "; ".join(faults))
        foreign = [unit.name for unit in self._units.values() if unit.device.foreign]
        if foreign:
            detail = f"/sys belongs to another network namespace: {', '.join(foreign)} read from /proc/net/dev"
            return PartState("nic", True, "wrong_sysfs", f"{detail}, without speed, CRC and carrier counters")
        return PartState("nic", True, "ok", "; ".join(self._remarks()))

    def _remarks(self) -> list[str]:
        found = [fault for unit in self._units.values() for fault in unit.faults()]
        found += [f"{source.what.name} counters: {source.fault}" for source in self._host.values() if source.fault]
        found += [f"{name}: coverage partial: {', '.join(unit.coverage)}"
                  for name, unit in self._units.items() if unit.coverage]  # fmt: skip
        absent = {"missed": self.ticks_missed, "dropped": self.ticks_dropped}
        words = ", ".join(f"{count} ticks {how}" for how, count in absent.items() if count)
        return [*found, words] if words else found

    def close(self) -> None:
        """Gives the descriptors back. Ticks not yet drained stay."""
        for unit in self._units.values():
            unit.close()


class _Host:
    """One source of counters of the whole host."""

    def __init__(self, what: host.HostSource) -> None:
        self.what = what
        self.fault = ""
        self.supported: bool | None = None  # None: not asked yet
        self._series: list[Series] = []
        self._next_ns = 0

    def tick(self, root: Path, now_ns: int) -> None:
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + self.what.every * SECOND_NS - SECOND_NS // 4
        try:
            counters = host.read(root, self.what)
            self.fault, self.supported = "", True
        except FileNotFoundError:
            self.fault, self.supported = "", False
            return
        except OSError as error:
            self.fault = str(error)
            return
        if not self._series or self._series[-1].counters != tuple(counters):
            self._series = [series for series in self._series if len(series)]
            self._series.append(Series(tuple(counters)))
        self._series[-1].add(now_ns, tuple(counters.values()))

    def drain(self, clock: Clock, interval_ns: int) -> list[NicBatch]:
        found = []
        for series in self._series:
            taken = series.take()
            if taken is not None:
                times, values = taken
                found.append(
                    NicBatch(
                        nic="",
                        counters=series.counters,
                        base_time_ns=clock.event_time_ns(times[0]),
                        base_monotonic_ns=times[0],
                        interval_ns=max(interval_ns, self.what.every * SECOND_NS),
                        tick_times_ns=times,
                        values=values,
                        source=self.what.source,
                    )
                )
        return found
