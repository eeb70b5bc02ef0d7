"""STAMP reflectors under the test's hand, and the source ports that reach them when the fake clock says so.

``tests/integration/test_stamp_real.py`` holds the same sender against the kernel's sockets and the real reflector.
"""

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.probe.binding import SocketAddress
from agent.probe.stamp_packet import build_reply, encode_error, parse_request, reply_tail, to_ntp
from agent.probe.stamp_socket import Arrived, PortSource, Remote
from agent.probe.stamps import ORIGIN_ICMP, ORIGIN_TIMESTAMPING, ErrorReport
from tests.fakes.clock import FakeClock

MICROSECOND = 1_000
ONE_WAY_NS = 100 * MICROSECOND


@dataclass
class FakeReflector:
    """How one address and port answers. Packets and replies are counted from 0, over all sessions."""

    drop_forward: Callable[[int], bool] = lambda _: False
    drop_reverse: Callable[[int], bool] = lambda _: False
    dead_ports: set[int] = field(default_factory=set)  # packets from these never arrive
    forward_ns: int = ONE_WAY_NS
    reverse_ns: int = ONE_WAY_NS
    residence_ns: int = 0
    clock_offset_ns: int = 0  # of its wall clock
    error_ns: int | None = None
    stateful: bool = True
    knows_ssid: bool = True
    copies: int = 1  # of each reply
    refuses: bool = False  # no such port: an ICMP error
    refusals_ns: int = 0  # between two that its host sends, after the first; what is not refused has no answer
    refused_ns: int | None = None  # when it last did, monotonic
    damage: Callable[[bytes], bytes] = bytes
    answers_from: Remote | None = None
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    packets: int = 0
    replies: int = 0

    def restart(self) -> None:
        """It forgets its sessions."""
        self.counts.clear()

    def answer(self, data: bytes, port: int, sent_wall_ns: int) -> bytes | None:
        """The reply to a packet sent then; None: lost on one of the ways."""
        number, self.packets = self.packets, self.packets + 1
        if port in self.dead_ports or self.drop_forward(number):
            return None
        request = parse_request(data)
        session = (port, request.ssid if self.knows_ssid else 0)
        count = self.counts.get(session, 0)
        self.counts[session] = count + 1
        received = sent_wall_ns + self.forward_ns + self.clock_offset_ns
        reply = build_reply(
            request if self.knows_ssid else request._replace(ssid=0),
            reply_tail(data, request.ssid),
            sequence=count if self.stateful else request.sequence,
            received=to_ntp(received),
            sent=to_ntp(received + self.residence_ns),
            error_estimate=encode_error(self.error_ns),
            ttl=60,
        )
        answered, self.replies = self.replies, self.replies + 1
        return None if self.drop_reverse(answered) else self.damage(reply)


class FakeStampNetwork:
    """Reflectors by address and port; all else is silent."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.reflectors: dict[Remote, FakeReflector] = {}
        self.missing: set[int] = set()  # source ports that cannot be had
        self.send_errors: deque[int] = deque()  # errno of the next sends
        self.stamps_sends = True
        self.sockets: dict[int, FakeSenderSocket] = {}
        self.sent: list[tuple[int, bytes]] = []  # source port, packet
        self.routers: list[str] = []  # on the way to all of them; empty text: one that says nothing
        self.quoted_bytes = 1500  # of a packet whose hop limit was used up, behind the UDP header

    def open(self, source: PortSource) -> "FakeSenderSocket":
        """``stamp_socket.SenderOpener``."""
        if source.port in self.missing:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        opened = self.sockets[source.port] = FakeSenderSocket(self, source)
        return opened


class FakeSenderSocket:
    """One source port: no descriptor, so it is read at every tick."""

    def __init__(self, network: FakeStampNetwork, source: PortSource) -> None:
        self._network = network
        self.source = source
        self.closed = False
        self.pending: list[tuple[int, bytes, Remote, int | None]] = []  # when (monotonic), what, from, stamp
        self.errors: deque[tuple[bytes, Remote, ErrorReport]] = deque()
        self._key = 0
        self.hop_limits: list[int] = []

    def fileno(self) -> int:
        return -1

    def send(self, packet: bytes, address: SocketAddress) -> int:
        network, clock = self._network, self._network.clock
        if network.send_errors:
            raise OSError(network.send_errors.popleft(), "refused")
        network.sent.append((self.source.port, packet))
        remote = (address[0], address[1])
        key, self._key = self._key, self._key + 1
        wall_ns, monotonic_ns = clock.wall_ns(), clock.monotonic_ns()
        if network.stamps_sends:
            self.errors.append((b"", remote, ErrorReport(ORIGIN_TIMESTAMPING, 42, 0, 0, key, wall_ns)))
        reflector = network.reflectors.get(remote)
        if reflector is None:
            return len(packet)
        if reflector.refuses:
            last_ns = reflector.refused_ns
            if last_ns is not None and monotonic_ns - last_ns < reflector.refusals_ns:
                return len(packet)
            reflector.refused_ns = monotonic_ns
            report = ErrorReport(ORIGIN_ICMP, errno.ECONNREFUSED, 3, 3, 0, None)
            self.errors.append((packet, remote, report))
            return len(packet)
        reply = reflector.answer(packet, self.source.port, wall_ns)
        if reply is not None:
            taken = reflector.forward_ns + reflector.residence_ns + reflector.reverse_ns
            for copy in range(reflector.copies):
                self.deliver(
                    reply, reflector.answers_from or remote, monotonic_ns + taken + copy, wall_ns + taken + copy
                )
        return len(packet)

    def send_limited(self, packet: bytes, address: SocketAddress, hop_limit: int) -> int:
        self.hop_limits.append(hop_limit)
        if hop_limit > len(self._network.routers):
            return self.send(packet, address)
        remote = (address[0], address[1])
        key, self._key = self._key, self._key + 1
        self.errors.append(
            (b"", remote, ErrorReport(ORIGIN_TIMESTAMPING, 42, 0, 0, key, self._network.clock.wall_ns()))
        )
        router = self._network.routers[hop_limit - 1]
        if router:
            quoted = packet[: self._network.quoted_bytes]
            self.errors.append(
                (quoted, remote, ErrorReport(ORIGIN_ICMP, errno.EHOSTUNREACH, 11, 0, 0, None, 0, router))
            )
        return len(packet)

    def deliver(self, data: bytes, remote: Remote, monotonic_ns: int, stamp_ns: int | None) -> None:
        """A packet that will be there at that time."""
        self.pending.append((monotonic_ns, data, remote, stamp_ns))

    def read_replies(self, limit: int) -> list[Arrived]:
        now = self._network.clock.monotonic_ns()
        due = sorted((entry for entry in self.pending if entry[0] <= now), key=lambda entry: entry[0])[:limit]
        for entry in due:
            self.pending.remove(entry)
        return [(data, remote, stamp, 61) for _, data, remote, stamp in due]

    def read_errors(self, limit: int) -> list[tuple[bytes, Remote, ErrorReport]]:
        return [self.errors.popleft() for _ in range(min(limit, len(self.errors)))]

    def restart_keys(self) -> None:
        self._key = 0

    def close(self) -> None:
        self.closed = True
