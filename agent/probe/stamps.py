"""Kernel time stamps and errors as they come beside a packet, and the filter that keeps other pingers out. Pure.

Layouts are the kernel's (Documentation/networking/timestamping.rst, include/uapi/linux/{net_tstamp,errqueue,filter}.h).
Python 3.11 has no names for them.
"""

import socket
import sys
from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple

from agent.probe.echo_packet import ECHO_REPLY_V4, ECHO_REPLY_V6

SO_TIMESTAMPING = 37
TX_SOFTWARE = 1 << 1
RX_SOFTWARE = 1 << 3
SOFTWARE = 1 << 4
OPT_ID = 1 << 7
OPT_TSONLY = 1 << 11
TIMESTAMPING_FLAGS = TX_SOFTWARE | RX_SOFTWARE | SOFTWARE | OPT_ID | OPT_TSONLY

IP_RECVERR = 11
IPV6_RECVERR = 25
IP_RECVTTL = 12
SO_ATTACH_FILTER = 26

ORIGIN_LOCAL = 1
ORIGIN_ICMP = 2
ORIGIN_ICMP6 = 3
ORIGIN_TIMESTAMPING = 4

_INT = Struct("@i")
_TIMESPEC = Struct("@ll")
_EXTENDED_ERROR = Struct("@IBBBBII")  # errno, origin, type, code, pad, info, data
_FILTER = Struct("@HBBI")
_NANOSECONDS = 1_000_000_000

Ancillary = Sequence[tuple[int, int, bytes]]


class ErrorReport(NamedTuple):
    """One entry of a socket's error queue: a send stamp, or an error that quotes a packet of ours."""

    origin: int
    errno: int
    icmp_type: int
    icmp_code: int
    key: int  # with ORIGIN_TIMESTAMPING: which send it is about, counted from 0
    stamp_ns: int | None
    info: int = 0  # of an error about a size: the MTU that it names; 0: it names none
    reporter: str = ""  # who sent the ICMP error


def read_stamp(ancillary: Ancillary) -> int | None:
    """The software stamp (wall clock, ns) beside a received packet; None where the kernel set none."""
    for level, kind, data in ancillary:
        if kind == SO_TIMESTAMPING and level == socket.SOL_SOCKET:
            return _stamp(data)
    return None


def read_arrival(ancillary: Ancillary) -> tuple[int | None, int]:
    """The stamp beside a received packet, as ``read_stamp``, and the TTL or hop limit it arrived with (0: not said)."""
    stamp: int | None = None
    hop_limit = 0
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET:
            if kind == SO_TIMESTAMPING:
                stamp = _stamp(data)
        elif (level == socket.SOL_IP and kind == socket.IP_TTL) or (
            level == socket.IPPROTO_IPV6 and kind == socket.IPV6_HOPLIMIT
        ):
            try:
                hop_limit = _INT.unpack_from(data)[0] & 0xFF
            except error:
                continue
    return stamp, hop_limit


def read_error(ancillary: Ancillary) -> ErrorReport | None:
    """What an error queue entry says; None when the kernel's own part is missing."""
    stamp: int | None = None
    found: tuple[int, int, int, int, int, int, int] | None = None
    reporter = ""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPING:
            stamp = _stamp(data)
        elif (level == socket.SOL_IP and kind == IP_RECVERR) or (level == socket.IPPROTO_IPV6 and kind == IPV6_RECVERR):
            try:
                found = _EXTENDED_ERROR.unpack_from(data)
            except error:
                return None
            if found[1] in (ORIGIN_ICMP, ORIGIN_ICMP6):
                reporter = _offender(data[_EXTENDED_ERROR.size :])
    if found is None:
        return None
    errno, origin, icmp_type, icmp_code, _, info, key = found
    return ErrorReport(origin, errno, icmp_type, icmp_code, key, stamp, info, reporter)


def _offender(data: bytes) -> str:
    """The address behind an extended error (SO_EE_OFFENDER in errqueue.h): a sockaddr_in or sockaddr_in6."""
    family = int.from_bytes(data[:2], sys.byteorder)
    if family == socket.AF_INET and len(data) >= 8:
        return socket.inet_ntop(socket.AF_INET, data[4:8])
    if family == socket.AF_INET6 and len(data) >= 24:
        return socket.inet_ntop(socket.AF_INET6, data[8:24])
    return ""


def _stamp(data: bytes) -> int | None:
    try:
        seconds, nanoseconds = _TIMESPEC.unpack_from(data)  # the first of three is the software one
    except error:
        return None
    return (seconds * _NANOSECONDS + nanoseconds) or None


def echo_reply_filter(identifier: int, *, ip_version: int) -> bytes:
    """Classic BPF for a raw socket: only echo replies with our identifier reach it.

    Without it every raw socket of a host is handed every ICMP message, so N pingers pay for N×N replies. An IPv4
    socket sees the IP header first, an IPv6 one starts at the ICMP header.
    """
    if ip_version == 4:
        program = [
            (0xB1, 0, 0, 0),  # ldxb 4*([0]&0xf)
            (0x50, 0, 0, 0),  # ldb [x + 0]: type
            (0x15, 0, 3, ECHO_REPLY_V4),  # jeq
            (0x48, 0, 0, 4),  # ldh [x + 4]: identifier
            (0x15, 0, 1, identifier),
        ]
    else:
        program = [
            (0x30, 0, 0, 0),  # ldb [0]: type
            (0x15, 0, 3, ECHO_REPLY_V6),
            (0x28, 0, 0, 4),  # ldh [4]: identifier
            (0x15, 0, 1, identifier),
        ]
    program += [(0x06, 0, 0, 0xFFFF), (0x06, 0, 0, 0)]  # ret all, ret nothing
    return b"".join(_FILTER.pack(*instruction) for instruction in program)
