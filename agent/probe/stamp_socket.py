"""The Session-Sender's UDP sockets: time stamps on both ways, send stamps and ICMP errors through the error queue.

As ``icmp_socket`` does for ICMP.
"""

import select
import socket
from collections.abc import Callable
from struct import pack
from typing import NamedTuple, Protocol

from agent.probe import stamps
from agent.probe.binding import (
    SocketAddress,
    bind_and_mark,
    enlarge_buffers,
    report_beside_packets,
    restart_send_count,
    socket_address,
)
from agent.probe.stamp_packet import MAX_BYTES

_ANCILLARY_BYTES = 256
_WARM_UP_TRIES = 10
_WARM_UP_S = 0.02

Remote = tuple[str, int]  # address as the kernel writes it, and port
# Bytes, where from, receive stamp (wall clock ns), TTL or hop limit (0: not known).
Arrived = tuple[bytes, Remote, int | None, int]


class PortSource(NamedTuple):
    """What a sender's socket is bound to. ``port`` 0: the kernel's choice."""

    ip_version: int
    address: str  # empty: any
    nic: str  # empty: any
    dscp: int
    port: int


class SenderSocket(Protocol):
    """One source port. Sends raise OSError, reads never do."""

    def fileno(self) -> int:
        """To wait on; negative: read it at every tick."""

    def send(self, packet: bytes, address: SocketAddress, /) -> object:
        """Sends one packet, or raises the kernel's refusal."""

    def send_limited(self, packet: bytes, address: SocketAddress, hop_limit: int, /) -> object:
        """As ``send``, with a hop limit of its own."""

    def read_replies(self, limit: int) -> list[Arrived]:
        """Up to ``limit`` packets."""

    def read_errors(self, limit: int) -> list[tuple[bytes, Remote, stamps.ErrorReport]]:
        """Up to ``limit`` entries of the error queue: quoted payload, its destination, what is said."""

    def restart_keys(self) -> None:
        """Sends are counted from 0 again (ErrorReport.key)."""

    def close(self) -> None:
        """Gives it back."""


SenderOpener = Callable[[PortSource], SenderSocket]


class KernelSenderSocket:
    """The real one."""

    def __init__(self, source: PortSource) -> None:
        """Raises OSError: no such address or device here, no such IP version, port in use."""
        self._socket = open_udp(source.ip_version)
        try:
            bind_and_mark(self._socket, ip_version=source.ip_version, nic=source.nic, dscp=source.dscp)
            report_beside_packets(self._socket, source.ip_version)
            self._socket.bind(socket_address(source.address, source.port, source.ip_version))
        except BaseException:
            self._socket.close()
            raise
        self.send: Callable[[bytes, SocketAddress], object] = self._socket.sendto

    def send_limited(self, packet: bytes, address: SocketAddress, hop_limit: int, /) -> object:
        v4 = self._socket.family == socket.AF_INET
        option = (socket.SOL_IP, socket.IP_TTL) if v4 else (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT)
        return self._socket.sendmsg([packet], [(*option, pack("@i", hop_limit))], 0, address)

    @property
    def port(self) -> int:
        """The source port."""
        return int(self._socket.getsockname()[1])

    def fileno(self) -> int:
        return self._socket.fileno()

    def read_replies(self, limit: int) -> list[Arrived]:
        receive, read = self._socket.recvmsg, stamps.read_arrival
        found: list[Arrived] = []
        for _ in range(limit):
            try:
                data, ancillary, _, address = receive(MAX_BYTES, _ANCILLARY_BYTES)
            except BlockingIOError:
                break
            except OSError:
                continue  # an ICMP error was noted on the socket: it is in the error queue
            found.append((data, address[:2], *read(ancillary)))
        return found

    def read_errors(self, limit: int) -> list[tuple[bytes, Remote, stamps.ErrorReport]]:
        receive, read = self._socket.recvmsg, stamps.read_error
        found: list[tuple[bytes, Remote, stamps.ErrorReport]] = []
        for _ in range(limit):
            try:
                data, ancillary, _, address = receive(MAX_BYTES, _ANCILLARY_BYTES, socket.MSG_ERRQUEUE)
            except OSError:
                break  # EAGAIN: empty
            report = read(ancillary)
            if report is not None:
                found.append((data, address[:2] if address else ("", 0), report))
        return found

    def restart_keys(self) -> None:
        restart_send_count(self._socket)

    def close(self) -> None:
        self._socket.close()


def warm_up() -> str:
    """Sends itself packets over loopback until both kernel stamps are there. Returns what is wrong, or nothing.

    As ``icmp_socket.warm_up``: receive stamping comes a moment after the first socket has asked for it.
    """
    try:
        opened = KernelSenderSocket(PortSource(4, "127.0.0.1", "", 0, 0))
    except OSError as error:
        return f"loopback: {error.strerror}"
    try:
        for _ in range(_WARM_UP_TRIES):
            opened.send(b"\0", ("127.0.0.1", opened.port))
            select.select([opened.fileno()], [], [], _WARM_UP_S)
            sent = [report.stamp_ns for _, _, report in opened.read_errors(8)]
            received = [stamp for _, _, stamp, _ in opened.read_replies(8)]
            if any(sent) and any(received):
                return ""
            select.select([], [], [], _WARM_UP_S)  # replies without a stamp come at once: time must pass too
        return "loopback: no kernel time stamps"
    except OSError as error:
        return f"loopback: {error.strerror}"
    finally:
        opened.close()


def open_udp(ip_version: int) -> socket.socket:
    """One that never blocks, with large buffers; IPv6 only for IPv6. Raises OSError: no such IP version."""
    sock = socket.socket(
        socket.AF_INET if ip_version == 4 else socket.AF_INET6,
        socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
    )
    try:
        if ip_version == 6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        enlarge_buffers(sock)
    except BaseException:
        sock.close()
        raise
    return sock
