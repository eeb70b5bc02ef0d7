"""ICMP sockets of the kernel with time stamps on both ways, and which kind this process may open.

A raw socket needs CAP_NET_RAW. A datagram ICMP socket (``man 7 icmp``) needs the group inside
net.ipv4.ping_group_range (IPv6 asks the same setting); the kernel chooses its identifier and gives it only our replies.
ICMP errors come through the error queue (IP_RECVERR) on both kinds, with the quoted ICMP message as data and the
destination it had as address. IP_RECVERR also makes the kernel say ENOBUFS where its own queue dropped a packet.
"""

import errno
import select
import socket
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from struct import pack
from typing import Protocol

from agent.probe import stamps
from agent.probe.binding import (
    SocketAddress,
    bind_and_mark,
    enlarge_buffers,
    report_beside_packets,
    restart_send_count,
    socket_address,
)
from agent.probe.echo_packet import ECHO_REPLY_V6, MIN_PAYLOAD_BYTES, EchoTemplate, pattern
from bandwitness.v1.record_pb2 import ROUND_TRIP_METHOD_ICMP_DATAGRAM, ROUND_TRIP_METHOD_ICMP_RAW

RAW = int(ROUND_TRIP_METHOD_ICMP_RAW)
DATAGRAM = int(ROUND_TRIP_METHOD_ICMP_DATAGRAM)

_ICMP6_FILTER = 1
_ANCILLARY_BYTES = 256
_QUOTE_BYTES = 128  # of the packet that an ICMP error quotes
_HEADROOM_BYTES = 100  # longest IPv4 header, ICMP header, and some to see that a reply is too long
_WARM_UP_TRIES = 10
_WARM_UP_S = 0.02


@dataclass(frozen=True, slots=True)
class Source:
    """What a socket is bound to. Paths with the same source share one."""

    ip_version: int
    address: str  # empty: any
    nic: str  # empty: any
    dscp: int


# Bytes as read, source address, receive stamp (wall clock ns), TTL or hop limit (0: not known).
Arrived = tuple[bytes, str, int | None, int]


class EchoSocket(Protocol):
    """One ICMP socket. Sends raise OSError, reads never do."""

    identifier: int

    def fileno(self) -> int:
        """To wait on; negative: read it at every tick."""

    def send(self, packet: bytes, address: SocketAddress, /) -> object:
        """Sends one ICMP message, or raises the kernel's refusal."""

    def read_replies(self, limit: int) -> list[Arrived]:
        """Up to ``limit`` packets."""

    def read_errors(self, limit: int) -> list[tuple[bytes, str, stamps.ErrorReport]]:
        """Up to ``limit`` entries of the error queue: quoted ICMP message, its destination, what is said."""

    def restart_keys(self) -> None:
        """Sends are counted from 0 again (ErrorReport.key)."""

    def expect(self, payload_bytes: int) -> None:
        """Replies carry up to this much."""

    def close(self) -> None:
        """Gives it back."""


Opener = Callable[[int, Source, int], EchoSocket]  # method, source, identifier (raw only)


class KernelEchoSocket:
    """The real one."""

    def __init__(self, method: int, source: Source, identifier: int) -> None:
        """Raises OSError: no right, no such address or device here, no such IP version."""
        v4 = source.ip_version == 4
        self._v4 = v4
        kind = socket.SOCK_RAW if method == RAW else socket.SOCK_DGRAM
        self._socket = socket.socket(
            socket.AF_INET if v4 else socket.AF_INET6,
            kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
            socket.IPPROTO_ICMP if v4 else socket.IPPROTO_ICMPV6,
        )
        try:
            self.identifier = self._prepare(method, source, identifier)
        except BaseException:
            self._socket.close()
            raise
        self._receive_bytes = _HEADROOM_BYTES + MIN_PAYLOAD_BYTES
        self.send: Callable[[bytes, SocketAddress], object] = self._socket.sendto
        self._receive = self._socket.recvmsg

    def _prepare(self, method: int, source: Source, identifier: int) -> int:
        sock = self._socket
        if method == RAW:
            if source.ip_version == 6:
                # One bit a type, set: blocked (RFC 3542 section 3.2).
                words = [0xFFFFFFFF] * 8
                words[ECHO_REPLY_V6 >> 5] &= ~(1 << (ECHO_REPLY_V6 & 31))
                sock.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, pack("@8I", *words))
            program = array("B", stamps.echo_reply_filter(identifier, ip_version=source.ip_version))
            location, length = program.buffer_info()
            sock.setsockopt(socket.SOL_SOCKET, stamps.SO_ATTACH_FILTER, pack("@HP", length // 8, location))
        bind_and_mark(sock, ip_version=source.ip_version, nic=source.nic, dscp=source.dscp)
        report_beside_packets(sock, source.ip_version)
        enlarge_buffers(sock)
        if source.address or method == DATAGRAM:  # binding is what gives a datagram socket its identifier
            sock.bind(socket_address(source.address, 0, source.ip_version))
        return identifier if method == RAW else int(sock.getsockname()[1])

    def fileno(self) -> int:
        return self._socket.fileno()

    def expect(self, payload_bytes: int) -> None:
        self._receive_bytes = max(self._receive_bytes, _HEADROOM_BYTES + payload_bytes)

    def read_replies(self, limit: int) -> list[Arrived]:
        receive, size, read = self._receive, self._receive_bytes, stamps.read_arrival
        found: list[Arrived] = []
        for _ in range(limit):
            try:
                data, ancillary, _, address = receive(size, _ANCILLARY_BYTES)
            except BlockingIOError:
                break
            except OSError:
                continue  # an ICMP error was noted on the socket: it is in the error queue
            found.append((data, address[0], *read(ancillary)))
        return found

    def read_errors(self, limit: int) -> list[tuple[bytes, str, stamps.ErrorReport]]:
        receive, read = self._receive, stamps.read_error
        found: list[tuple[bytes, str, stamps.ErrorReport]] = []
        for _ in range(limit):
            try:
                data, ancillary, _, address = receive(_QUOTE_BYTES, _ANCILLARY_BYTES, socket.MSG_ERRQUEUE)
            except OSError:
                break  # EAGAIN: empty
            report = read(ancillary)
            if report is not None:
                found.append((data, address[0] if address else "", report))
        return found

    def restart_keys(self) -> None:
        restart_send_count(self._socket)

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Rights:
    """What the self-test found. Methods are RoundTripMethod, None where there is none; ``missing`` names the right."""

    ipv4: int | None
    ipv6: int | None
    missing: str = ""
    remark: str = ""

    def method(self, ip_version: int) -> int | None:
        """How to probe over this IP version."""
        return self.ipv4 if ip_version == 4 else self.ipv6


def find_rights(opener: Opener, proc: Path = Path("/proc")) -> Rights:
    """Opens each kind of socket, the better first: what works is what is used.

    Args:
        opener: how sockets are opened.
        proc: where /proc/sys is read for the words about a missing right.
    """
    methods: dict[int, int | None] = {4: None, 6: None}
    denied: list[str] = []
    remarks: list[str] = []
    for ip_version in methods:
        for method in (RAW, DATAGRAM):
            try:
                opened = opener(method, Source(ip_version, "", "", 0), 1)
            except PermissionError as error:
                denied.append(f"{'raw' if method == RAW else 'datagram'} IPv{ip_version}: {error.strerror}")
                continue
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL):
                    remarks.append(f"IPv{ip_version}: {error}")
                continue
            methods[ip_version] = method
            opened.close()
            break
    missing = ""
    if denied and methods[4] is None:
        try:
            groups = " ".join((proc / "sys/net/ipv4/ping_group_range").read_text().split())
        except OSError:
            groups = "not readable"
        missing = (
            f"CAP_NET_RAW, or a group of this process inside net.ipv4.ping_group_range (now {groups!r}): "
            + ", ".join(denied)
        )
    return Rights(methods[4], methods[6], missing, "; ".join(remarks))


def hold_receive_stamping() -> socket.socket:
    """A socket whose life keeps the kernel's receive stamping on.

    It is on while any socket asks for it, and goes on and off with a delay: sockets that come and go would lose stamps.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    held.setsockopt(socket.SOL_SOCKET, stamps.SO_TIMESTAMPING, stamps.RX_SOFTWARE | stamps.SOFTWARE)
    return held


def warm_up(opener: Opener, method: int, ip_version: int, identifier: int) -> str:
    """Echoes over loopback until both kernel stamps are there. Returns what is wrong, or nothing.

    Receive stamping is off in the kernel until the first socket asks for it (hold_receive_stamping), and comes a moment
    later: the first replies would have none.
    """
    loopback = "127.0.0.1" if ip_version == 4 else "::1"
    opened = opener(method, Source(ip_version, "", "", 0), identifier)
    try:
        template = EchoTemplate(
            ip_version=ip_version,
            identifier=opened.identifier,
            token=bytes(8),
            slot=0,
            fill=pattern(MIN_PAYLOAD_BYTES),
        )
        answered = False
        for turn in range(_WARM_UP_TRIES):
            try:
                opened.send(template.request(turn, turn), socket_address(loopback, 0, ip_version))
            except OSError as error:
                return f"loopback IPv{ip_version}: {error.strerror}"
            if opened.fileno() >= 0:
                select.select([opened.fileno()], [], [], _WARM_UP_S)
            sent = [report.stamp_ns for _, _, report in opened.read_errors(8)]
            received = [stamp for _, _, stamp, _ in opened.read_replies(8)]
            answered = answered or bool(received)
            if any(sent) and any(received):
                return ""
            select.select([], [], [], _WARM_UP_S)  # replies without a stamp come at once: time must pass too
        return f"loopback IPv{ip_version}: " + ("no kernel time stamps" if answered else "no reply")
    finally:
        opened.close()
