"""One NIC with all that counts for it: the kernel's table, the ports of RDMA on its wire, its driver's statistics."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from agent.clock import Clock
from agent.result import NicBatch
from agent.sample.device import COUNTERS, Device, Identify
from agent.sample.driver import DriverStatistics
from agent.sample.ethtool import Ioctl, driver_of
from agent.sample.nature import Nature, coverage, look
from agent.sample.rdma import Place, Port
from agent.sample.rhythm import Patience, Watch
from agent.sample.series import Series
from bandwitness.counters import BOUNDLESS, rdma
from bandwitness.v1.record_pb2 import COUNTER_SOURCE_ETHTOOL, COUNTER_SOURCE_NETDEV, COUNTER_SOURCE_RDMA

SECOND_NS = 1_000_000_000
NEARLY_NS = SECOND_NS * 9 // 10
MAX_CHANGES = (1 << 63) - 1
_RATE = re.compile(r"(\d{1,5}(?:\.\d)?) Gb/sec\b.*")
Own = Callable[[], Mapping[str, Mapping[str, int]]]


class _Rdma:
    """One port and its ticks."""

    def __init__(self, place: Place) -> None:
        self.port = Port(place)
        self.series: list[Series] = []
        self.patience = Patience()
        self.fault = ""


class Unit:
    """One NIC.

    Args:
        name: of the network device.
        classes: ``sys/class/net``.
        identify: see ``Device``; None trusts sysfs.
        ethtool: asks drivers; None leaves their statistics alone.
        clock: for times of reads.
        hypervisor: this host is a virtual machine.
    """

    def __init__(
        self,
        name: str,
        classes: Path,
        clock: Clock,
        *,
        identify: Identify | None,
        ethtool: Ioctl | None,
        hypervisor: bool,
    ) -> None:
        self.name = name
        self.device = Device(name, classes / name, identify)
        self.table = Series(COUNTERS)
        self.statistics = None if ethtool is None else DriverStatistics(name, ethtool, clock)
        self.rdma: list[_Rdma] = []
        self.nature = Nature()
        self._classes = classes
        self._ethtool = ethtool
        self._clock = clock
        self._hypervisor = hypervisor
        self._watches = (Watch(), Watch())
        self._watched: tuple[int, tuple[int, int]] | None = None  # time and octets at the last look
        self._speed_bps: int | None = None
        self.planned_speed_bps: int | None = None  # as configured at the collector

    def look(self, places: list[Place]) -> None:
        """Finds out what the device is now, and takes the RDMA ports on its wire."""
        self.nature = look(self._classes, self.name)
        if self._ethtool is not None and not self.nature.driver and not self.device.foreign:
            self.nature = replace(self.nature, driver=driver_of(self.name, self._ethtool))
        if self.nature.kind in {"", "virtual"} and self.nature.driver in {"veth", "dummy", "tun"}:
            self.nature = replace(self.nature, kind=self.nature.driver)
        self._speed_bps = self.device.speed_bps
        kept = [one for one in self.rdma if one.port.place in places]
        for gone in self.rdma:
            if gone not in kept:
                gone.port.close()
        new = [place for place in places if all(one.port.place != place for one in kept)]
        self.rdma = [*kept, *map(_Rdma, new)]

    # ------------------------------------------------------------ reading

    def tick(self, own: Own, interval_ns: int, *, full: bool) -> bool:
        """One read of the table and the RDMA ports, under one time; whether the NIC carries a burst."""
        read_ns = self._clock.monotonic_ns()
        try:
            values = self.device.read(own, full=full)
            self.device.fault = ""
        except OSError as error:
            values = (None,) * len(COUNTERS)
            self.device.fault = str(error)
        self.table.add(read_ns, values)
        octets = [values[0] or 0, values[1] or 0]
        for one in self.rdma:
            self._read_port(one, read_ns, interval_ns, octets, full=full)
        return self._watch(read_ns, (octets[0], octets[1]))

    def _read_port(self, one: _Rdma, read_ns: int, interval_ns: int, octets: list[int], *, full: bool) -> None:
        full = full and one.patience.due(read_ns)
        try:
            values = one.port.read(full=full)
            one.fault = ""
        except OSError as error:
            one.fault = str(error)
            values = (None,) * len(one.port.counters)
        if full:
            one.patience.took(self._clock.monotonic_ns() - read_ns, read_ns, interval_ns)
        if not one.series or one.series[-1].counters != one.port.counters:
            one.series = [series for series in one.series if len(series)]
            one.series.append(Series(one.port.counters))
        one.series[-1].add(read_ns, values)
        for name, value in zip(one.port.counters, values, strict=True):
            meaning = None if value is None else rdma(name)
            if meaning is not None and value is not None and meaning.unit == "bytes":
                octets[meaning.name == "rdma_transmit_bytes"] += value * meaning.scale

    def _watch(self, read_ns: int, octets: tuple[int, int]) -> bool:
        if self._watched is None:
            self._watched = read_ns, octets
            return False
        span_ns = read_ns - self._watched[0]
        if span_ns < NEARLY_NS:
            return any(watch.is_open for watch in self._watches)
        before = self._watched[1]
        self._watched = read_ns, octets
        speed = self._line_bps / 8 if self._line_bps else None
        found = [
            watch.add((now - then) * SECOND_NS / span_ns, speed, read_ns) if now >= then else watch.is_open
            for watch, now, then in zip(self._watches, octets, before, strict=True)
        ]
        return any(found)

    @property
    def _line_bps(self) -> int | None:
        """What the line can carry: as planned, else as the kernel says where that is a limit."""
        kernel = None if self.nature.driver in BOUNDLESS else self._speed_bps
        return self.planned_speed_bps or kernel

    @property
    def bursts(self) -> tuple[str, ...]:
        """Directions in a burst just now: ``receive``, ``transmit``. None where the line's speed is not known, for then
        any traffic stands out on an idle NIC, nor where it cannot be read."""
        if not self._line_bps or self.device.fault:
            return ()
        named = zip(("receive", "transmit"), self._watches, strict=True)
        return tuple(direction for direction, watch in named if watch.is_open)

    # ------------------------------------------------------------ draining

    @property
    def coverage(self) -> tuple[str, ...]:
        """What the counters of this NIC do not see."""
        return coverage(
            self.nature,
            counts_wire=self.statistics is not None and self.statistics.counts_wire,
            rdma=any(not one.fault for one in self.rdma),
            hypervisor=self._hypervisor,
        )

    def drain(self, interval_ns: int) -> list[NicBatch]:
        """One batch for each source and set of counters since the last drain."""
        device = self.device
        self._speed_bps = device.speed_bps or self._rdma_speed_bps()
        carrier = device.number("carrier", 1)
        context = NicBatch(
            nic=self.name,
            counters=(),
            base_time_ns=0,
            base_monotonic_ns=0,
            interval_ns=interval_ns,
            tick_times_ns=(),
            values=(),
            speed_bps=self._speed_bps,
            driver=self.nature.driver,
            coverage=self.coverage,
            kind=self.nature.kind,
        )
        table = replace(
            context,
            source=COUNTER_SOURCE_NETDEV,
            mtu_bytes=device.number("mtu", (1 << 32) - 1),
            carrier=None if carrier is None else bool(carrier),
            carrier_changes=device.number("carrier_changes", MAX_CHANGES),
            full_duplex=device.full_duplex,
            lower=self.nature.lower,
            numa_node=self.nature.numa_node,
            fault=device.fault,
        )
        found = [self._filled(table, self.table)]
        for one in self.rdma:
            place = one.port.place
            port = replace(
                context, source=COUNTER_SOURCE_RDMA, device=place.name, link_layer=place.link_layer, fault=one.fault
            )
            found += [self._filled(port, series) for series in one.series]
        if self.statistics is not None:
            stretch = self.statistics.patience.stretch
            driver = replace(
                context,
                source=COUNTER_SOURCE_ETHTOOL,
                interval_ns=max(interval_ns, SECOND_NS) * stretch,
                fault=self.statistics.fault,
            )
            found += [self._filled(driver, series) for series in self.statistics.series]
        return [batch for batch in found if batch is not None]

    def _filled(self, context: NicBatch, series: Series) -> NicBatch | None:
        taken = series.take()
        if taken is None:
            return None
        times, values = taken
        return replace(
            context,
            counters=series.counters,
            base_time_ns=self._clock.event_time_ns(times[0]),
            base_monotonic_ns=times[0],
            tick_times_ns=times,
            values=values,
        )

    def _rdma_speed_bps(self) -> int | None:
        """InfiniBand devices without a speed of their own have one at the port, such as ``400 Gb/sec (4X NDR)``."""
        for one in self.rdma:
            try:
                match = _RATE.fullmatch((one.port.place.directory / "rate").read_text(errors="replace").strip())
            except OSError:
                continue
            if match:
                return int(float(match[1]) * 1e9)
        return None

    def faults(self) -> list[str]:
        """What of it cannot be read, beside the kernel's table."""
        found = [one.fault for one in self.rdma if one.fault]
        if self.statistics is not None and self.statistics.fault:
            found.append(self.statistics.fault)
        return found

    @property
    def dropped(self) -> int:
        """Ticks that were not drained in time."""
        series = [self.table, *(one for port in self.rdma for one in port.series)]
        return sum(one.dropped for one in series)

    def close(self) -> None:
        """Gives the descriptors back."""
        self.device.close()
        for one in self.rdma:
            one.port.close()
