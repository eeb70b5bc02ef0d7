"""Captured hosts in one text file each, and a kernel that answers ``SIOCETHTOOL`` out of the same file.

A line is ``path<TAB>content`` (``\\n`` for a line break), ``path -> target`` for a link, ``path/`` for an empty folder,
``ethtool NIC driver NAME`` or ``ethtool NIC NAME<TAB>VALUE``. Lines that begin with ``#`` are comments.
"""

import errno
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class FakeDriver:
    """Drivers by NIC, answering as net/ethtool/ioctl.c does; one without statistics says EOPNOTSUPP."""

    drivers: dict[str, str] = field(default_factory=dict)
    statistics: dict[str, dict[str, int]] = field(default_factory=dict)
    fault: dict[str, int] = field(default_factory=dict)  # NIC -> errno
    calls: int = 0

    def __call__(self, nic: str, buffer: bytearray) -> None:
        self.calls += 1
        if nic in self.fault:
            raise OSError(self.fault[nic], "as asked for")
        if nic not in self.drivers and nic not in self.statistics:
            raise OSError(errno.ENODEV, "No such device")
        (command,) = struct.unpack_from("=I", buffer)
        if command == 0x03:
            buffer[4:36] = self.drivers[nic].encode().ljust(32, b"\0")
            return
        own = self.statistics.get(nic)
        if own is None:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        if command == 0x37:
            struct.pack_into("=I", buffer, 16, len(own))
        elif command == 0x1B:
            struct.pack_into("=I", buffer, 8, len(own))
            for place, name in enumerate(own):
                buffer[12 + 32 * place : 44 + 32 * place] = name.encode()[:32].ljust(32, b"\0")
        elif command == 0x1D:
            struct.pack_into("=I", buffer, 4, len(own))
            for place, value in enumerate(own.values()):
                struct.pack_into("=Q", buffer, 8 + 8 * place, value)
        else:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")


def build(file: Path, root: Path) -> FakeDriver:
    """Writes the host below ``root``; gives its drivers."""
    fake = FakeDriver()
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("ethtool "):
            _ethtool(fake, line)
        elif " -> " in line:
            path, target = line.split(" -> ")
            link = root / path
            link.parent.mkdir(parents=True, exist_ok=True)
            (link.parent / target).mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        elif line.endswith("/"):
            (root / line).mkdir(parents=True, exist_ok=True)
        else:
            path, _, content = line.partition("\t")
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content.replace("\\n", "\n") + "\n", encoding="utf-8")
    return fake


def _ethtool(fake: FakeDriver, line: str) -> None:
    words = line.split(maxsplit=3)
    if words[2] == "driver":
        fake.drivers[words[1]] = words[3]
        return
    head, _, value = line.partition("\t")
    _, nic, name = head.split(maxsplit=2)
    fake.statistics.setdefault(nic, {})[name] = int(value)


def raise_counters(root: Path, fake: FakeDriver, by: Mapping[str, int]) -> None:
    """Adds to counters: paths below the root, or ``ethtool NIC NAME``."""
    for name, more in by.items():
        if name.startswith("ethtool "):
            _, nic, counter = name.split(maxsplit=2)
            fake.statistics[nic][counter] += more
        else:
            file = root / name
            file.write_text(f"{int(file.read_text()) + more}\n")
