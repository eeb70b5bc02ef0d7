"""Driver statistics (``ethtool -S``) by ioctl, without the program. Layouts: include/uapi/linux/ethtool.h.

A driver may answer from memory or ask its firmware under a lock; who calls decides where to wait for that. The buffer
of a read is larger than what is expected, because the kernel fills in as many values as there are at that moment and
does not ask how many there is room for.
"""

import ctypes
import fcntl
import socket
import struct
from collections.abc import Callable, Sequence

_SIOCETHTOOL = 0x8946  # include/uapi/linux/sockios.h
_GDRVINFO, _GSTRINGS, _GSTATS, _GSSET_INFO = 0x03, 0x1B, 0x1D, 0x37
_SET_STATISTICS = 1  # ETH_SS_STATS
_NAME_BYTES = 32  # ETH_GSTRING_LEN
_DRVINFO_BYTES = 196
MAX_STATISTICS = 16_384  # a driver with hundreds of queues has some thousands
_ROOM = 1_024  # more statistics than expected that a read survives

# Fills in the buffer as the kernel would for the device named. Raises OSError.
Ioctl = Callable[[str, bytearray], None]


class EthtoolError(OSError):
    """The driver does not answer, or not sensibly."""


def kernel_ioctl(nic: str, buffer: bytearray) -> None:
    """SIOCETHTOOL in our network namespace; needs no right for what is asked here."""
    name = nic.encode()
    if len(name) > 15:
        raise EthtoolError(f"{nic}: the name is longer than a device's can be")
    held = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    request = struct.pack("16sP16x", name, ctypes.addressof(held))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        fcntl.ioctl(asking, _SIOCETHTOOL, request)


def driver_of(nic: str, call: Ioctl) -> str:
    """Name of the driver; empty where the kernel does not say."""
    buffer = bytearray(_DRVINFO_BYTES)
    struct.pack_into("=I", buffer, 0, _GDRVINFO)
    try:
        call(nic, buffer)
    except OSError:
        return ""
    return _text(buffer[4:36])


def names_of(nic: str, call: Ioctl) -> Sequence[str]:
    """Names of all statistics, in the order of their values.

    Raises:
        EthtoolError: absurdly many.
        OSError: the device is gone, or its driver has none (EOPNOTSUPP).
    """
    asked = bytearray(struct.pack("=IIQI4x", _GSSET_INFO, 0, 1 << _SET_STATISTICS, 0))
    call(nic, asked)
    _, _, mask, count = struct.unpack_from("=IIQI", asked)
    if not mask & 1 << _SET_STATISTICS:
        return ()
    if count > MAX_STATISTICS:
        raise EthtoolError(f"{nic}: the driver says it has {count} statistics")
    buffer = bytearray(12 + (count + _ROOM) * _NAME_BYTES)
    struct.pack_into("=III", buffer, 0, _GSTRINGS, _SET_STATISTICS, count)
    call(nic, buffer)
    (filled,) = struct.unpack_from("=I", buffer, 8)
    if filled > count + _ROOM:
        raise EthtoolError(f"{nic}: {filled} names where {count} were announced")
    return tuple(_text(buffer[12 + place * _NAME_BYTES : 12 + (place + 1) * _NAME_BYTES]) for place in range(filled))


def values_of(nic: str, count: int, places: Sequence[int], call: Ioctl) -> Sequence[int] | None:
    """Values of some of ``count`` statistics; None where there are now more or fewer: the names must be read again.

    Raises:
        OSError: the device is gone, or the driver failed.
    """
    buffer = bytearray(8 + (count + _ROOM) * 8)
    struct.pack_into("=II", buffer, 0, _GSTATS, count)
    call(nic, buffer)
    (filled,) = struct.unpack_from("=I", buffer, 4)
    if filled != count:
        return None
    return tuple(struct.unpack_from("=Q", buffer, 8 + place * 8)[0] for place in places)


def _text(data: bytes | bytearray) -> str:
    return bytes(data).partition(b"\0")[0].decode(errors="replace")
