"""One network device: its counters from descriptors kept open, its attributes, and whether sysfs shows it at all."""

import fcntl
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent.clock import Clock
from agent.result import NicBatch

COUNTERS = (
    "rx_bytes",
    "tx_bytes",
    "rx_packets",
    "tx_packets",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "rx_missed_errors",
    "rx_crc_errors",
    "rx_fifo_errors",
    "tx_carrier_errors",
)
_SPEED_UNKNOWN = (65_535, 4_294_967_295)  # -1 as drivers of 16 and 32 bits print it
_SIOCGIFHWADDR = 0x8927

Identify = Callable[[str], tuple[int, str] | None]


def kernel_identity(nic: str) -> tuple[int, str] | None:
    """Index and hardware address of the device that the kernel knows by this name in our network namespace."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            answer = fcntl.ioctl(asking, _SIOCGIFHWADDR, struct.pack("16s24x", nic.encode()[:15]))
        return socket.if_nametoindex(nic), answer[18:24].hex(":")
    except OSError:
        return None


def parse_speed(text: str) -> int | None:
    """Bits per second from the file ``speed`` (Mbit/s); None where the kernel does not know."""
    try:
        megabits = int(text)
    except ValueError:
        return None
    return None if megabits <= 0 or megabits in _SPEED_UNKNOWN else megabits * 1_000_000


class Device:
    """One device: its open files and the ticks not yet drained."""

    def __init__(self, name: str, directory: Path, identify: Identify | None) -> None:
        self.name = name
        self.fault = ""
        self.foreign = False  # sysfs does not show this device
        self.ticks: deque[tuple[int, Sequence[int | None]]] = deque()
        self._directory = directory
        self._identify = identify
        self._descriptors: dict[str, int] = {}

    def open(self) -> None:
        """Opens the files of the device that has the name now; counters without a file are not supported."""
        self.close()
        self.foreign = not self._shown()
        if self.foreign:
            return
        for counter in COUNTERS:
            try:
                path = self._directory / "statistics" / counter
                self._descriptors[counter] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue

    def _shown(self) -> bool:
        if self._identify is None:
            return self._directory.exists()
        if (known := self._identify(self.name)) is None:
            return False
        index, address = self._attribute("ifindex"), self._attribute("address")
        # Point-to-point devices have no or a longer address: then the index has to do.
        return index == str(known[0]) and (address is None or len(address) != len(known[1]) or address == known[1])

    def read(self, own: Callable[[], Mapping[str, Mapping[str, int]]]) -> Sequence[int | None]:
        """One value a counter. ``own`` gives what ``/proc/net/dev`` says.

        Raises:
            OSError: the device cannot be read, or is gone; it is looked for again at the next call.
        """
        if not self._descriptors:
            self.open()
        if self.foreign:
            counters = own().get(self.name)
            if counters is None:
                raise FileNotFoundError(f"no network device {self.name} in this network namespace")
            return tuple(counters.get(counter) for counter in COUNTERS)
        try:
            first = self._counter("rx_bytes")
            return (first, *(self._supported(counter) for counter in COUNTERS[1:]))
        except (OSError, ValueError) as error:
            self.close()
            raise OSError(f"{self.name} cannot be read: {error}") from error

    def _counter(self, counter: str) -> int:
        if counter not in self._descriptors:
            raise OSError(f"no counter {counter}")
        return int(os.pread(self._descriptors[counter], 32, 0))

    def _supported(self, counter: str) -> int | None:
        try:
            return self._counter(counter)
        except (OSError, ValueError):
            return None

    def _attribute(self, name: str) -> str | None:
        try:
            return (self._directory / name).read_text().strip() or None
        except OSError:  # EINVAL: the driver does not know, or the device is down
            return None

    def _number(self, name: str) -> int | None:
        text = None if self.foreign else self._attribute(name)
        return int(text) if text is not None and text.isdigit() else None

    def drain(self, clock: Clock, interval_ns: int) -> NicBatch | None:
        """All ticks since the last drain; None when there were none."""
        if not self.ticks:
            return None
        times, rows = zip(*self.ticks, strict=True)
        self.ticks.clear()
        carrier = self._number("carrier")
        return NicBatch(
            nic=self.name,
            counters=COUNTERS,
            base_time_ns=clock.event_time_ns(times[0]),
            base_monotonic_ns=times[0],
            interval_ns=interval_ns,
            tick_times_ns=times,
            values=tuple(zip(*rows, strict=True)),
            speed_bps=None if self.foreign else parse_speed(self._attribute("speed") or ""),
            mtu_bytes=self._number("mtu"),
            carrier=None if carrier is None else bool(carrier),
            carrier_changes=self._number("carrier_changes"),
            fault=self.fault,
        )

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
