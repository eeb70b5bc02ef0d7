"""The Session-Reflector's UDP sockets: the kernel's receive stamp (T2), TTL and DSCP of each packet.

A reply leaves from the address that was asked, in the class of service that the packet came in.
"""

import socket
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct, pack
from struct import error as StructError  # noqa: N812
from typing import NamedTuple, Protocol

from agent.probe import stamps
from agent.probe.binding import SocketAddress, bind_and_mark, socket_address
from agent.probe.stamp_packet import MAX_BYTES
from agent.probe.stamp_socket import open_udp

_ANCILLARY_BYTES = 256
_IP_PKTINFO, _IP_RECVTOS, _IP_RECVTTL = 8, 13, 12
_INT = Struct("@i")
_PKTINFO = Struct("@i4s4s")


class Arrival(NamedTuple):
    """One packet as it came to the reflector."""

    data: bytes
    address: str
    port: int
    socket_address: SocketAddress
    stamp_ns: int | None  # wall clock
    ttl: int
    dscp: int
    whole: bool  # not cut for its size
    local: tuple[int, int, bytes] | None  # ancillary data that makes a reply come from the address that was asked


class ReflectorSocket(Protocol):
    """One address and port that answers."""

    def fileno(self) -> int:
        """To wait on."""

    def receive(self) -> Arrival | None:
        """The next packet; None when there is none."""

    def reply(self, packet: bytes, arrival: Arrival, /) -> None:
        """Answers it, in the class of service it came in. Raises OSError: not sent."""

    def close(self) -> None:
        """Gives it back."""


class KernelReflectorSocket:
    """The real one."""

    def __init__(self, address: str, port: int, *, ip_version: int, nic: str = "") -> None:
        """Raises OSError: no such address or device here, no such IP version, port in use or below 1024 without right.

        Args:
            address: empty: all that the host has, and a reply comes from the one that was asked.
            port: to answer on.
            ip_version: 4 or 6.
            nic: to be tied to; empty: any.
        """
        self._v4 = ip_version == 4
        self._socket = open_udp(ip_version)
        try:
            bind_and_mark(self._socket, ip_version=ip_version, nic=nic, dscp=0)
            options: Sequence[tuple[int, int]]
            if self._v4:
                options = [(socket.SOL_IP, _IP_RECVTTL), (socket.SOL_IP, _IP_RECVTOS)]
                options += [] if address else [(socket.SOL_IP, _IP_PKTINFO)]
            else:
                options = [
                    (socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT),
                    (socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS),
                ]
                options += [] if address else [(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO)]
            for level, option in options:
                self._socket.setsockopt(level, option, 1)
            flags = stamps.RX_SOFTWARE | stamps.SOFTWARE
            self._socket.setsockopt(socket.SOL_SOCKET, stamps.SO_TIMESTAMPING, flags)
            self._socket.bind(socket_address(address, port, ip_version))
        except BaseException:
            self._socket.close()
            raise

    @property
    def port(self) -> int:
        """The port it answers on."""
        return int(self._socket.getsockname()[1])

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> Arrival | None:
        try:
            data, ancillary, flags, address = self._socket.recvmsg(MAX_BYTES, _ANCILLARY_BYTES)
        except OSError:
            return None  # nothing there
        ttl, dscp, local = self._read(ancillary)
        return Arrival(
            data,
            address[0],
            address[1],
            address,
            stamps.read_stamp(ancillary),
            ttl,
            dscp,
            not flags & socket.MSG_TRUNC,
            local,
        )

    def _read(self, ancillary: stamps.Ancillary) -> tuple[int, int, tuple[int, int, bytes] | None]:
        ttl = dscp = 0
        local: tuple[int, int, bytes] | None = None
        level_ip = socket.SOL_IP if self._v4 else socket.IPPROTO_IPV6
        for level, kind, data in ancillary:
            if level != level_ip:
                continue
            with suppress(StructError, IndexError):
                if kind == (socket.IP_TTL if self._v4 else socket.IPV6_HOPLIMIT):
                    ttl = _INT.unpack_from(data)[0] & 0xFF
                elif kind == (socket.IP_TOS if self._v4 else socket.IPV6_TCLASS):
                    dscp = data[0] >> 2 if self._v4 else (_INT.unpack_from(data)[0] & 0xFF) >> 2
                elif self._v4 and kind == _IP_PKTINFO:
                    _, local_address, _ = _PKTINFO.unpack_from(data)
                    # Interface 0: routing chooses it. The address is what the packet was delivered to.
                    local = (level, kind, _PKTINFO.pack(0, local_address, bytes(4)))
                elif not self._v4 and kind == socket.IPV6_PKTINFO:
                    local = (level, kind, data)
        return ttl, dscp, local

    def reply(self, packet: bytes, arrival: Arrival) -> None:
        ancillary: list[tuple[int, int, bytes]] = [] if arrival.local is None else [arrival.local]
        if arrival.dscp:
            marked = pack("@i", arrival.dscp << 2)
            if self._v4:
                ancillary.append((socket.SOL_IP, socket.IP_TOS, marked))
            else:
                ancillary.append((socket.IPPROTO_IPV6, socket.IPV6_TCLASS, marked))
        if ancillary:
            self._socket.sendmsg([packet], ancillary, 0, arrival.socket_address)
        else:
            self._socket.sendto(packet, arrival.socket_address)

    def close(self) -> None:
        self._socket.close()
