"""A network under the test's hand: ICMP sockets and TCP connects that answer when the fake clock says so.

``tests/integration/test_icmp_real.py`` holds the fake ICMP socket against the kernel's.
"""

import errno
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import pack, unpack_from

from agent.probe.binding import SocketAddress
from agent.probe.echo_packet import checksum, ones_complement_sum
from agent.probe.icmp_socket import RAW, Arrived, Source
from agent.probe.stamps import ORIGIN_ICMP, ORIGIN_ICMP6, ORIGIN_TIMESTAMPING, ErrorReport
from agent.probe.targets import PathSpec
from agent.result import RoundTripBatch
from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import PROTOCOL_ICMP_ECHO, Path
from tests.fakes.clock import FakeClock

MILLISECOND = 1_000_000
SECOND = 1_000_000_000
IPV4_HEADER = bytes([0x45]) + bytes(19)

Damage = Callable[[bytes], bytes]


def round_trip_target(
    address: str,
    *,
    source: str = "",
    nic: str = "",
    name: str = "",
    protocol: int = PROTOCOL_ICMP_ECHO,
    payload_bytes: int = 56,
    interval_ns: int = SECOND,
    waiting_ns: int = SECOND,
    dscp: int = 0,
    port: int = 0,
) -> RoundTripTarget:
    """A target as the plan has it."""
    target = RoundTripTarget(
        protocol=protocol,  # type: ignore[arg-type]
        payload_bytes=payload_bytes,
        interval_ns=interval_ns,
        waiting_time_ns=waiting_ns,
        dscp=dscp,
        destination_port=port,
    )
    target.source.node, target.source.address, target.source.nic = "here", source, nic
    target.target.name, target.target.address = name or address, address
    return target


def samples(batches: Iterable[RoundTripBatch]) -> Iterator[tuple[int, int, int]]:
    """Path id, sequence, outcome of each packet."""
    for batch in batches:
        at = 0
        for path_id, first, count in zip(batch.path_ids, batch.first_sequences, batch.sample_counts, strict=True):
            for offset in range(count):
                yield path_id, first + offset, batch.outcomes[at + offset]
            at += count


def outcomes_by_address(batches: Iterable[RoundTripBatch], definitions: Mapping[int, bytes]) -> dict[str, list[int]]:
    """Outcomes of the packets to each target, in the order of the batches. The address is empty: not resolved."""
    found: dict[str, list[int]] = {}
    for path_id, _, outcome in samples(batches):
        found.setdefault(Path.FromString(definitions[path_id]).target.address, []).append(outcome)
    return found


def echo_reply(request: bytes) -> bytes:
    """The reply to an echo request, checksum and all (for IPv6 without one: the kernel sees to that)."""
    v4 = request[0] == 8
    body = bytes([0 if v4 else 129, 0, 0, 0]) + request[4:]
    return body[:2] + pack("!H", checksum(ones_complement_sum(body))) + body[4:] if v4 else body


@dataclass
class Host:
    """How one address answers. ``delays``: one reply after each, from the packet's sending; none: silent."""

    delays: Sequence[int] = (200_000,)
    damage: Damage = bytes
    refuses: bool = False  # an ICMP error instead, after the first delay
    answers_from: str = ""  # another source address
    hop_limit: int = 64  # left in its replies where they arrive
    # For one packet, counted from 0, other delays than the usual.
    delays_of: dict[int, Sequence[int]] = field(default_factory=dict)


class FakeNetwork:
    """Hosts by address; everything else is silent."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.hosts: dict[str, Host] = {}
        self.denied: set[int] = set()  # methods without a right
        self.families: set[int] = {4, 6}
        self.send_errors: dict[str, deque[int]] = {}  # address -> errno of the next sends
        self.missing_sources: set[str] = set()
        self.stamps_sends = True
        self.sockets: list[FakeEchoSocket] = []
        self.sent: list[tuple[str, bytes]] = []

    def open(self, method: int, source: Source, identifier: int) -> "FakeEchoSocket":
        """``icmp_socket.Opener``."""
        if source.ip_version not in self.families:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        if method in self.denied:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        if source.address in self.missing_sources:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        # The kernel chooses a datagram socket's identifier.
        opened = FakeEchoSocket(self, method, source, identifier if method == RAW else 0x4000 + len(self.sockets))
        self.sockets.append(opened)
        return opened


class FakeEchoSocket:
    """``icmp_socket.EchoSocket``."""

    def __init__(self, network: FakeNetwork, method: int, source: Source, identifier: int) -> None:
        self.identifier = identifier
        self.source = source
        self.method = method
        self.closed = False
        self._network = network
        self._key = 0
        self._counts: dict[str, int] = {}
        self._errors: list[tuple[int, bytes, str, ErrorReport]] = []
        self._replies: list[tuple[int, bytes, str, int]] = []

    def fileno(self) -> int:
        return -1

    def expect(self, payload_bytes: int) -> None:
        pass

    def send(self, packet: bytes, address: SocketAddress, /) -> object:
        network, to = self._network, address[0]
        now = network.clock.monotonic_ns()
        refusals = network.send_errors.get(to)
        if refusals:
            code = refusals.popleft()
            if code:
                self._key += 1  # the kernel may have counted it
                raise OSError(code, errno.errorcode[code])
        network.sent.append((to, packet))
        if network.stamps_sends:
            report = ErrorReport(ORIGIN_TIMESTAMPING, 42, 0, 0, self._key, network.clock.wall_ns())
            self._errors.append((now, b"", "", report))
        self._key += 1
        host = network.hosts.get(to)
        if host is None:
            return len(packet)
        count = self._counts[to] = self._counts.get(to, -1) + 1
        delays = host.delays_of.get(count, host.delays)
        if host.refuses:
            self.report(packet, to, delays[0])
            return len(packet)
        for delay in delays:
            self.deliver(host.damage(echo_reply(packet)), host.answers_from or to, delay, host.hop_limit)
        return len(packet)

    def report(self, quoted: bytes, address: str, delay_ns: int = 0) -> None:
        """An ICMP error (host unreachable) that quotes a packet sent to ``address``."""
        v4 = self.source.ip_version == 4
        error = ErrorReport(ORIGIN_ICMP if v4 else ORIGIN_ICMP6, errno.EHOSTUNREACH, 3 if v4 else 1, 1, 0, None)
        self._errors.append((self._network.clock.monotonic_ns() + delay_ns, quoted, address, error))

    def deliver(self, message: bytes, address: str, delay_ns: int = 0, hop_limit: int = 64) -> None:
        """An ICMP message that arrives by itself, as a forger's or another pinger's."""
        head = IPV4_HEADER if self.method == RAW and self.source.ip_version == 4 else b""
        self._replies.append((self._network.clock.monotonic_ns() + delay_ns, head + message, address, hop_limit))

    def read_replies(self, limit: int) -> list[Arrived]:
        clock = self._network.clock
        now, offset = clock.monotonic_ns(), clock.wall_ns() - clock.monotonic_ns()
        self._replies.sort(key=lambda reply: reply[0])
        there = [reply for reply in self._replies if reply[0] <= now][:limit]
        del self._replies[: len(there)]
        return [(data, address, at + offset, hop_limit) for at, data, address, hop_limit in there]

    def read_errors(self, limit: int) -> list[tuple[bytes, str, ErrorReport]]:
        now = self._network.clock.monotonic_ns()
        there = [entry for entry in self._errors if entry[0] <= now][:limit]
        self._errors = [entry for entry in self._errors if entry not in there]
        return [entry[1:] for entry in there]

    def restart_keys(self) -> None:
        self._key = 0

    def close(self) -> None:
        self.closed = True


def wire_sequence(message: bytes) -> int:
    """The 16-bit sequence of an ICMP echo message."""
    return int(unpack_from("!H", message, 6)[0])


class FakeConnects:
    """TCP hosts: address -> (delay, errno) of a connect; absent: silence."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.hosts: dict[str, tuple[int, int]] = {}
        self.immediate: dict[str, int] = {}  # address -> errno that connect itself returns
        self.attempts: list[FakeAttempt] = []
        self.missing_sources: set[str] = set()

    def open(self, spec: PathSpec) -> "FakeAttempt":
        """What TcpConnectSession opens with."""
        if spec.source_address in self.missing_sources:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        attempt = FakeAttempt(self, spec)
        self.attempts.append(attempt)
        return attempt


class FakeAttempt:
    """``tcp_connect.Attempt``."""

    def __init__(self, network: FakeConnects, spec: PathSpec) -> None:
        self.spec = spec
        self.closed = False
        self._network = network
        self._started_ns = 0

    def start(self) -> int:
        self._started_ns = self._network.clock.monotonic_ns()
        return self._network.immediate.get(self.spec.address, errno.EINPROGRESS)

    def fileno(self) -> int:
        return -1

    def result(self) -> int:
        delay, code = self._network.hosts.get(self.spec.address, (1 << 62, 0))
        return code if self._network.clock.monotonic_ns() - self._started_ns >= delay else errno.EINPROGRESS

    def close(self) -> None:
        self.closed = True
