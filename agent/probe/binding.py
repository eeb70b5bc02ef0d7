"""What a probe's socket is tied to, marked with and told: addresses as the kernel's calls take them, device, DSCP,
stamps."""

import socket
from contextlib import suppress

from agent.probe import stamps

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BUFFER_BYTES = 4 << 20  # asked for; the kernel gives what net.core.rmem_max allows

SocketAddress = tuple[str, int] | tuple[str, int, int, int]


def socket_address(address: str, port: int, ip_version: int) -> SocketAddress:
    """``address`` (empty: any; IPv6 with or without %zone) and port. Raises OSError for a zone that is no device."""
    if ip_version == 4:
        return (address, port)
    host, _, zone = address.partition("%")
    scope = 0 if not zone else int(zone) if zone.isdigit() else socket.if_nametoindex(zone)
    return (host, port, 0, scope)


def bind_and_mark(sock: socket.socket, *, ip_version: int, nic: str, dscp: int) -> None:
    """Ties the socket to a device (empty: any) and gives its packets a DSCP. Raises OSError: no such device."""
    if nic:
        with suppress(PermissionError):  # before Linux 5.7 it needs CAP_NET_RAW: then the address alone decides
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, nic.encode() + b"\0")
    if ip_version == 4:
        sock.setsockopt(socket.SOL_IP, socket.IP_TOS, dscp << 2)
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)


def report_beside_packets(sock: socket.socket, ip_version: int) -> None:
    """Has the kernel say of each packet when it was sent and came, with which TTL or hop limit it came, and what ICMP
    errors quote it (``stamps`` reads all that)."""
    if ip_version == 4:
        sock.setsockopt(socket.SOL_IP, stamps.IP_RECVERR, 1)
        sock.setsockopt(socket.SOL_IP, stamps.IP_RECVTTL, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, stamps.IPV6_RECVERR, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
    sock.setsockopt(socket.SOL_SOCKET, stamps.SO_TIMESTAMPING, stamps.TIMESTAMPING_FLAGS)


def restart_send_count(sock: socket.socket) -> None:
    """The kernel counts sends (ErrorReport.key) from 0 again: it does where the option goes from off to on
    (net/core/sock.c)."""
    for flags in (stamps.TIMESTAMPING_FLAGS & ~stamps.OPT_ID, stamps.TIMESTAMPING_FLAGS):
        sock.setsockopt(socket.SOL_SOCKET, stamps.SO_TIMESTAMPING, flags)


def enlarge_buffers(sock: socket.socket) -> None:
    """Room for what comes while nobody reads; more than rmem_max only with CAP_NET_ADMIN."""
    for force, plain in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, _BUFFER_BYTES)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, _BUFFER_BYTES)
