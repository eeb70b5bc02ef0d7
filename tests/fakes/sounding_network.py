"""A chain of routers under the test's hand: hop limits run out on it, and large packets do not pass.

``tests/integration/test_way_real.py`` holds the same probers against the kernel's sockets and routers.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.probe.binding import SocketAddress
from agent.probe.echo_packet import HEADER_BYTES
from agent.probe.icmp_socket import RAW, Arrived, Source
from agent.probe.stamps import ORIGIN_ICMP, ORIGIN_ICMP6, ORIGIN_LOCAL, ErrorReport
from tests.fakes.clock import FakeClock
from tests.fakes.network import IPV4_HEADER, echo_reply

MILLISECOND = 1_000_000


@dataclass
class FakeRoute:
    """One way to one address. Packets are counted from 0."""

    clock: FakeClock
    routers: list[str] = field(default_factory=list)  # empty text: one that says nothing
    mtus: dict[str, int] = field(default_factory=dict)  # router -> MTU of its next hop
    interface_mtu: int = 1500
    tells_mtu: bool = True  # routers say what fits, or drop in silence
    names_mtu: bool = True  # what they say has a figure in it
    lost: Callable[[int], bool] = lambda _: False
    answers: bool = True
    refuses_with: int = 0  # errno of every send
    delay_ns: int = MILLISECOND
    quoted_bytes: int = 128
    sockets: list["FakeSoundingSocket"] = field(default_factory=list)
    sent: list[tuple[int, bytes]] = field(default_factory=list)  # hop limit, message

    def open(self, method: int, source: Source, identifier: int, dont_fragment: bool) -> "FakeSoundingSocket":
        """``sounding.SoundingOpener``."""
        opened = FakeSoundingSocket(self, method, source, identifier, dont_fragment)
        self.sockets.append(opened)
        return opened


class FakeSoundingSocket:
    """``sounding.SoundingSocket``."""

    def __init__(self, route: FakeRoute, method: int, source: Source, identifier: int, dont_fragment: bool) -> None:
        self.identifier = identifier
        self.closed = False
        self.dont_fragment = dont_fragment
        self._route = route
        self._v4 = source.ip_version == 4
        self._raw = method == RAW
        self._errors: list[tuple[int, bytes, str, ErrorReport]] = []
        self._replies: list[tuple[int, bytes, str]] = []

    def send_limited(self, packet: bytes, address: SocketAddress, hop_limit: int, /) -> object:
        route = self._route
        now = route.clock.monotonic_ns()
        if route.refuses_with:
            raise OSError(route.refuses_with, "refused")
        size = len(packet) + (20 if self._v4 else 40)
        if self.dont_fragment and size > route.interface_mtu:
            report = ErrorReport(ORIGIN_LOCAL, errno.EMSGSIZE, 0, 0, 0, None, route.interface_mtu)
            self._errors.append((now, b"", address[0], report))
            raise OSError(errno.EMSGSIZE, "Message too long")
        number = len(route.sent)
        route.sent.append((hop_limit, packet))
        if route.lost(number):
            return len(packet)
        for hop, router in enumerate(route.routers, 1):
            at = now + hop * route.delay_ns
            if hop == hop_limit:
                if router:
                    self._report(at, (packet, address[0]), (11, 0) if self._v4 else (3, 0), router, 0)
                return len(packet)
            mtu = route.mtus.get(router, 1 << 16)
            if size > mtu:
                if route.tells_mtu:
                    named = mtu if route.names_mtu else 0
                    self._report(at, (packet, address[0]), (3, 4) if self._v4 else (2, 0), router, named)
                return len(packet)
        if route.answers:
            head = IPV4_HEADER if self._v4 and self._raw else b""
            at = now + (len(route.routers) + 1) * route.delay_ns
            self._replies.append((at, head + echo_reply(packet), address[0]))
        return len(packet)

    def _report(self, at: int, quoted: tuple[bytes, str], kind: tuple[int, int], router: str, info: int) -> None:
        packet, to = quoted
        origin = ORIGIN_ICMP if self._v4 else ORIGIN_ICMP6
        report = ErrorReport(origin, errno.EHOSTUNREACH, *kind, 0, None, info, router)
        self._errors.append((at, packet[: self._route.quoted_bytes], to, report))

    def deliver(self, message: bytes, address: str) -> None:
        """A packet of somebody else's, at once."""
        self._replies.append((self._route.clock.monotonic_ns(), message, address))

    def read_replies(self, limit: int) -> list[Arrived]:
        now = self._route.clock.monotonic_ns()
        offset = self._route.clock.wall_ns() - now
        there = [entry for entry in self._replies if entry[0] <= now][:limit]
        self._replies = [entry for entry in self._replies if entry not in there]
        return [(data, address, at + offset, 61) for at, data, address in there]

    def read_errors(self, limit: int) -> list[tuple[bytes, str, ErrorReport]]:
        now = self._route.clock.monotonic_ns()
        offset = self._route.clock.wall_ns() - now
        there = [entry for entry in self._errors if entry[0] <= now][:limit]
        self._errors = [entry for entry in self._errors if entry not in there]
        return [(quoted, to, report._replace(stamp_ns=at + offset)) for at, quoted, to, report in there]

    def expect(self, payload_bytes: int) -> None:
        assert payload_bytes >= HEADER_BYTES

    def close(self) -> None:
        self.closed = True
