"""Echo packets of a capture file with nanosecond stamps: what went over the cable, and when. Pure.

Format: https://www.tcpdump.org/manpages/pcap-savefile.5.html, link type Ethernet.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, unpack_from

_MAGIC_NANOSECONDS = 0xA1B23C4D
_FILE_HEADER_BYTES = 24
_PACKET = Struct("<IIII")  # seconds, nanoseconds, captured, original
_ETHERNET_BYTES = 14
_IPV4_ICMP = 1
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Echo:
    """One echo request or reply. ``peer`` is the far end's address as a number."""

    time_ns: int
    request: bool
    peer: int
    identifier: int
    sequence: int


def read_echoes(capture: bytes) -> Iterator[Echo]:
    """All IPv4 echo packets, in order.

    Raises:
        ValueError: not a little-endian nanosecond capture.
    """
    if len(capture) < _FILE_HEADER_BYTES or unpack_from("<I", capture)[0] != _MAGIC_NANOSECONDS:
        raise ValueError("not a nanosecond capture of this machine's byte order")
    at = _FILE_HEADER_BYTES
    while at + _PACKET.size <= len(capture):
        seconds, nanoseconds, captured, _ = _PACKET.unpack_from(capture, at)
        frame = at + _PACKET.size
        at = frame + captured
        ip = frame + _ETHERNET_BYTES
        if at > len(capture) or captured < _ETHERNET_BYTES + 28 or capture[ip + 9] != _IPV4_ICMP:
            continue
        icmp = ip + (capture[ip] & 0x0F) * 4
        kind = capture[icmp]
        if kind not in (0, 8) or icmp + 8 > at:
            continue
        source, destination = unpack_from("!II", capture, ip + 12)
        identifier, sequence = unpack_from("!HH", capture, icmp + 4)
        request = kind == 8
        yield Echo(
            seconds * _SECOND_NS + nanoseconds, request, destination if request else source, identifier, sequence
        )


def round_trips(capture: bytes) -> dict[int, list[int | None]]:
    """Far address -> round-trip times in ns, in the order of its requests; None: no reply. Duplicates count once."""
    found: dict[int, list[int | None]] = {}
    waiting: dict[tuple[int, int, int], tuple[int, int]] = {}
    for echo in read_echoes(capture):
        key = (echo.peer, echo.identifier, echo.sequence)
        if echo.request:
            trips = found.setdefault(echo.peer, [])
            waiting[key] = (echo.time_ns, len(trips))
            trips.append(None)
        elif key in waiting:
            sent_ns, index = waiting.pop(key)
            found[echo.peer][index] = echo.time_ns - sent_ns
    return found
