"""RDMA ports and their counters, from ``/sys/class/infiniband`` under a given root.

RDMA traffic passes the kernel by: on RoCE hosts only these and the driver's own counters show it. Each read of
``counters`` asks the firmware, so between full reads only the octets are read.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bandwitness.counters import RDMA_HARDWARE_COUNTERS, RDMA_PORT_COUNTERS

MAX_PORTS = 16
_OCTETS = frozenset({
    "counters/port_xmit_data", "counters/port_rcv_data", "counters/port_xmit_data_64", "counters/port_rcv_data_64",
    "hw_counters/tx_bytes", "hw_counters/rx_bytes",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """One port of an RDMA device, and the network devices that are on the same wire."""

    device: str
    port: int
    directory: Path
    nics: tuple[str, ...]
    link_layer: str  # Ethernet or InfiniBand; empty: not known

    @property
    def name(self) -> str:
        """Device and port, as records name them."""
        return f"{self.device}/{self.port}"


def places(root: Path) -> Iterator[Place]:
    """All ports, in order of name. A device that cannot be read costs only itself."""
    classes = root / "sys/class/infiniband"
    for device in _entries(classes):
        siblings = _entries(classes / device / "device/net")
        for port in _entries(classes / device / "ports"):
            if port.isascii() and port.isdigit() and len(port) < 4:
                directory = classes / device / "ports" / port
                nics = _nics(root, directory, siblings, int(port))
                yield Place(device, int(port), directory, nics, _text(directory / "link_layer"))


def _nics(root: Path, directory: Path, siblings: Sequence[str], port: int) -> tuple[str, ...]:
    """Network devices of a port: by the RoCE address table, which also knows bonds, else by the function's own."""
    table = directory / "gid_attrs/ndevs"
    named = [text for entry in _entries(table)[:256] if (text := _text(table / entry))]
    classes = root / "sys/class/net"
    ports = {nic: _text(classes / nic / "dev_port") for nic in siblings}
    own = [nic for nic in siblings if ports[nic] in ("", str(port - 1)) or len(siblings) == 1]
    return tuple(dict.fromkeys([*named, *own]))


class Port:
    """Counters of one port, from descriptors kept open."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.counters: tuple[str, ...] = ()
        self.fault = ""
        self._descriptors: list[int] = []
        self._octets: list[int] = []  # places among the counters

    def open(self) -> None:
        """Opens what is there; a counter without a file is not supported."""
        self.close()
        names: list[str] = []
        for directory, counters in (("counters", RDMA_PORT_COUNTERS), ("hw_counters", RDMA_HARDWARE_COUNTERS)):
            for counter in counters:
                name = f"{directory}/{counter}"
                file = self.place.directory / ("counters_ext" if counter.endswith("_64") else directory) / counter
                try:
                    self._descriptors.append(os.open(file, os.O_RDONLY | os.O_CLOEXEC))
                except OSError:
                    continue
                if name in _OCTETS:
                    self._octets.append(len(names))
                names.append(name)
        self.counters = tuple(names)

    def read(self, *, full: bool) -> tuple[int | None, ...]:
        """One value a counter; between full reads only the octets.

        Raises:
            OSError: nothing can be read; the port is looked for again at the next call.
        """
        if not self._descriptors:
            self.open()
        values: list[int | None] = [None] * len(self.counters)
        fault: Exception | None = None
        for index in range(len(values)) if full else self._octets:
            try:
                values[index] = _value(os.pread(self._descriptors[index], 32, 0))
            except (OSError, ValueError) as error:
                fault = error
        if all(value is None for value in values):
            self.close()
            raise OSError(f"{self.place.name} cannot be read: {fault or 'no counters'}")
        return tuple(values)

    def close(self) -> None:
        """Gives the descriptors back."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self._octets.clear()


def _value(data: bytes) -> int:
    value = int(data)
    if not 0 <= value < 1 << 64:
        raise ValueError(f"a count of {value}")
    return value


def _entries(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        with path.open(errors="replace") as file:
            return file.read(256).strip()
    except OSError:  # EINVAL: an empty entry of the table
        return ""
