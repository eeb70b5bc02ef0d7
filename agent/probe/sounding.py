"""One socket, one path, numbered packets: with a hop limit, or with don't-fragment set. What came of each.

An ICMP error reaches the socket through its error queue, on raw and on datagram ICMP sockets alike: who said it, and
the MTU that it names. The delay is from our own clock before the send to the kernel's receive stamp.
"""

import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import NamedTuple, Protocol

from agent.clock import Anchor, Clock
from agent.probe.binding import SocketAddress, socket_address
from agent.probe.echo_packet import TOKEN_BYTES, message_offset
from agent.probe.icmp_socket import RAW, Arrived, KernelEchoSocket, Source
from agent.probe.sounding_packet import NUMBERS, SoundingPackets
from agent.probe.stamps import ORIGIN_ICMP, ORIGIN_ICMP6, ORIGIN_LOCAL, ErrorReport

READ_LIMIT = 64
MAX_OUTSTANDING = 512

# include/uapi/linux/in.h and in6.h: set don't-fragment, and let neither a path MTU that the kernel has learned nor
# anything but the interface's own MTU stop a packet.
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3
_IPV6_MTU_DISCOVER, _IPV6_PMTUDISC_PROBE, _IPV6_DONTFRAG = 23, 3, 62


class Said(Enum):
    """What an answer says."""

    REPLIED = "replied"
    TIME_EXCEEDED = "time exceeded"
    TOO_BIG = "too big"
    UNREACHABLE = "unreachable"


class Answer(NamedTuple):
    """What came back for one packet."""

    number: int
    said: Said
    address: str  # who said it
    mtu_bytes: int  # of the next hop, where the packet was too big; 0: not said
    delay_ns: int


class Way(Protocol):
    """How packets of one flow are sent with a hop limit, and what comes back. Sends raise OSError."""

    def send(self, hop_limit: int) -> int:
        """Sends one packet; its number."""

    def read(self) -> list[Answer]:
        """What has come."""

    def close(self) -> None:
        """Gives back what it holds."""


class SoundingSocket(Protocol):
    """An ICMP socket whose packets carry a hop limit. Sends raise OSError, reads never do."""

    identifier: int

    def send_limited(self, packet: bytes, address: SocketAddress, hop_limit: int, /) -> object:
        """Sends one ICMP message; hop limit 0: the host's usual one."""

    def read_replies(self, limit: int) -> list[Arrived]:
        """As ``EchoSocket``."""

    def read_errors(self, limit: int) -> list[tuple[bytes, str, ErrorReport]]:
        """As ``EchoSocket``."""

    def expect(self, payload_bytes: int) -> None:
        """Replies carry up to this much."""

    def close(self) -> None:
        """Gives it back."""


SoundingOpener = Callable[[int, Source, int, bool], SoundingSocket]  # method, source, identifier, don't fragment


class KernelSoundingSocket(KernelEchoSocket):
    """The real one."""

    def __init__(self, method: int, source: Source, identifier: int, dont_fragment: bool) -> None:
        """Raises OSError, as ``KernelEchoSocket``."""
        super().__init__(method, source, identifier)
        self._hop_limit = 0
        try:
            if dont_fragment and source.ip_version == 4:
                self._socket.setsockopt(socket.SOL_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
            elif dont_fragment:
                self._socket.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _IPV6_PMTUDISC_PROBE)
                self._socket.setsockopt(socket.IPPROTO_IPV6, _IPV6_DONTFRAG, 1)
        except BaseException:
            self.close()
            raise

    def send_limited(self, packet: bytes, address: SocketAddress, hop_limit: int, /) -> object:
        if hop_limit != self._hop_limit:
            option = (socket.SOL_IP, socket.IP_TTL) if self._v4 else (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS)
            self._socket.setsockopt(*option, hop_limit or -1)
            self._hop_limit = hop_limit
        return self._socket.sendto(packet, address)


def said_of(report: ErrorReport) -> Said | None:
    """What an error queue entry says of a packet (RFC 792, RFC 4443); None: it is no ICMP error."""
    kind = (report.origin, report.icmp_type)
    if kind in ((ORIGIN_ICMP, 11), (ORIGIN_ICMP6, 3)):
        return Said.TIME_EXCEEDED
    if kind == (ORIGIN_ICMP6, 2) or (*kind, report.icmp_code) == (ORIGIN_ICMP, 3, 4):
        return Said.TOO_BIG
    return Said.UNREACHABLE if report.origin in (ORIGIN_ICMP, ORIGIN_ICMP6) else None


@dataclass(frozen=True, slots=True)
class To:
    """Where a sounding goes, and from where."""

    address: str
    source: Source


class Sounding:
    """Numbered echo to one address. One event loop."""

    def __init__(
        self,
        clock: Clock,
        to: To,
        method: int,
        *,
        opener: SoundingOpener = KernelSoundingSocket,
        random: Random,
        payload_bytes: int,
        dont_fragment: bool = False,
        flow: int = 0,
    ) -> None:
        """Raises OSError: no right, no such address or device here.

        Args:
            clock: the host's.
            to: where to.
            method: RoundTripMethod of ICMP, raw or datagram.
            opener: how the socket is opened.
            random: of identifier, token and numbers.
            payload_bytes: behind the ICMP header, unless a send says otherwise.
            dont_fragment: see the module.
            flow: with a raw socket, equal numbers give equal identifiers; 0: any. The kernel chooses those of datagram
                sockets.
        """
        version = to.source.ip_version
        self.interface_mtu_bytes = 0  # as the kernel said when it refused a packet; 0: it has not
        self._clock = clock
        self._address = socket_address(to.address, 0, version)
        self._raw_ipv4 = version == 4 and method == RAW
        self._payload_bytes = payload_bytes
        self._socket = opener(
            method, to.source, flow % (NUMBERS - 1) + 1 if flow else random.randrange(1, NUMBERS), dont_fragment
        )
        self._socket.expect(payload_bytes)
        token = random.randbytes(TOKEN_BYTES)
        self._packets = SoundingPackets(ip_version=version, identifier=self._socket.identifier, token=token)
        self._number = random.randrange(NUMBERS)
        self._out: dict[int, tuple[Anchor, int]] = {}  # number -> when it was sent, its payload
        self._read: list[Answer] = []

    def send(self, hop_limit: int = 0, payload_bytes: int = 0) -> int:
        """Sends one packet; its number. Raises OSError: the kernel refused it; EMSGSIZE: our own interface's MTU."""
        payload_bytes = payload_bytes or self._payload_bytes
        self._socket.expect(payload_bytes)
        number = self._number = (self._number + 1) % NUMBERS
        packet = self._packets.request(number, payload_bytes)
        now = self._clock.anchor()
        try:
            self._socket.send_limited(packet, self._address, hop_limit)
        except OSError:
            # It may have been the pending error of another packet, which the refusal has cleared.
            self._take()
            try:
                self._socket.send_limited(packet, self._address, hop_limit)
            except OSError:
                self._take()
                raise
        while len(self._out) >= MAX_OUTSTANDING:
            del self._out[next(iter(self._out))]
        self._out[number] = (now, payload_bytes)
        return number

    def read(self) -> list[Answer]:
        """What has come; the first answer to each packet counts."""
        self._take()
        found, self._read = self._read, []
        return found

    def close(self) -> None:
        self._socket.close()

    def _take(self) -> None:
        errors = self._socket.read_errors(READ_LIMIT)
        replies = self._socket.read_replies(READ_LIMIT)
        now = self._clock.anchor()
        for quoted, _, report in errors:
            if report.origin == ORIGIN_LOCAL and report.errno == errno.EMSGSIZE:
                self.interface_mtu_bytes = report.info
            said = said_of(report)
            number = None if said is None else self._packets.read_quote(quoted)
            if number is not None and said is not None:
                mtu_bytes = report.info if said is Said.TOO_BIG else 0
                self._answer(number, said, report.reporter, report.stamp_ns, now, mtu_bytes=mtu_bytes)
        for packet, address, stamp_ns, _ in replies:
            reply = self._packets.read_reply(packet, message_offset(packet) if self._raw_ipv4 else 0)
            if reply is not None and address == self._address[0] and self._size_of(reply.number) == reply.payload_bytes:
                self._answer(reply.number, Said.REPLIED, address, stamp_ns, now)

    def _size_of(self, number: int) -> int | None:
        sent = self._out.get(number)
        return None if sent is None else sent[1]

    def _answer(
        self, number: int, said: Said, address: str, stamp_ns: int | None, now: Anchor, *, mtu_bytes: int = 0
    ) -> None:
        sent = self._out.pop(number, None)
        if sent is not None:
            self._read.append(Answer(number, said, address, mtu_bytes, delay_between(sent[0], stamp_ns, now)))


def delay_between(sent: Anchor, stamp_ns: int | None, now: Anchor) -> int:
    """From a send to the kernel's receive stamp; to ``now`` where there is none, or the clock has stepped."""
    elapsed_ns = now.monotonic_ns - sent.monotonic_ns
    if stamp_ns is None or not 0 <= stamp_ns - sent.wall_ns <= elapsed_ns:
        return elapsed_ns
    return stamp_ns - sent.wall_ns
