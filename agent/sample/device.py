"""One network device: its counters from descriptors kept open, its attributes, and whether sysfs shows it at all."""

import fcntl
import os
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent.netdev import parse_speed

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
_OCTETS = COUNTERS[:2]
_NO_MORE = (None,) * (len(COUNTERS) - len(_OCTETS))
_SIOCGIFHWADDR = 0x8927
MAX_COUNT = (1 << 64) - 1

Identify = Callable[[str], tuple[int, str] | None]


def kernel_identity(nic: str) -> tuple[int, str] | None:
    """Index and hardware address of the device that the kernel knows by this name in our network namespace."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            answer = fcntl.ioctl(asking, _SIOCGIFHWADDR, struct.pack("16s24x", nic.encode()[:15]))
        return socket.if_nametoindex(nic), answer[18:24].hex(":")
    except OSError:
        return None


class Device:
    """One device and its open files."""

    def __init__(self, name: str, directory: Path, identify: Identify | None) -> None:
        self.name = name
        self.fault = ""
        self.foreign = False  # sysfs does not show this device
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
            except (FileNotFoundError, PermissionError):
                continue

    def _shown(self) -> bool:
        if self._identify is None:
            return self._directory.exists()
        if (known := self._identify(self.name)) is None:
            return False
        index, address = self.attribute("ifindex"), self.attribute("address")
        # Point-to-point devices have no or a longer address: then the index has to do.
        return index == str(known[0]) and (address is None or len(address) != len(known[1]) or address == known[1])

    def read(self, own: Callable[[], Mapping[str, Mapping[str, int]]], *, full: bool = True) -> Sequence[int | None]:
        """One value a counter, or the octets alone. ``own`` gives what ``/proc/net/dev`` says.

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
            if not full:
                return (first, self._supported("tx_bytes"), *_NO_MORE)
            return (first, *(self._supported(counter) for counter in COUNTERS[1:]))
        except (OSError, ValueError) as error:
            self.close()
            raise OSError(f"{self.name} cannot be read: {error}") from error

    def _counter(self, counter: str) -> int:
        if counter not in self._descriptors:
            raise OSError(f"no counter {counter}")
        value = int(os.pread(self._descriptors[counter], 32, 0))
        if not 0 <= value <= MAX_COUNT:
            raise ValueError(f"{counter} is {value}")
        return value

    def _supported(self, counter: str) -> int | None:
        try:
            return self._counter(counter)
        except (OSError, ValueError):
            return None

    def attribute(self, name: str) -> str | None:
        """The text of a file of the device; None where the kernel gives none."""
        try:
            with (self._directory / name).open(errors="replace") as file:
                return file.read(256).strip() or None
        except OSError:  # EINVAL: the driver does not know, or the device is down
            return None

    def number(self, name: str, most: int) -> int | None:
        """The same of a number; None where sysfs shows another device, or it is beyond all sense."""
        text = None if self.foreign else self.attribute(name)
        value = int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 21 else None
        return value if value is not None and value <= most else None

    @property
    def speed_bps(self) -> int | None:
        """As the kernel says now."""
        return None if self.foreign else parse_speed(self.attribute("speed") or "")

    @property
    def full_duplex(self) -> bool | None:
        """As the kernel says now."""
        return None if self.foreign else {"full": True, "half": False}.get(self.attribute("duplex") or "")

    def close(self) -> None:
        """Gives the descriptors back."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
