"""One STAMP session as the sender keeps it: packets on the wire, and what became of them. Pure."""

from collections.abc import Iterator
from typing import Protocol

from agent.clock import Anchor
from agent.probe.binding import SocketAddress
from agent.probe.stamp_direction import Gap, LossDirections, Position
from agent.probe.stamp_packet import Reply, build_request, decode_error, from_ntp, request_tail
from agent.probe.stamp_paths import StampPath
from agent.probe.stamp_socket import Arrived, PortSource, Remote, SenderSocket
from agent.probe.stamps import ErrorReport
from agent.result import OneWayDelay, OneWayLoss

STEP_TOLERANCE_NS = 50_000  # as in ``matching``
KEPT_NS = 1_000_000_000  # settled packets are kept this long, and four at least, to know late replies by

_KEYS = 256  # sends of one socket whose stamps may be on their way: more than a tick sends
_WRAP = 1 << 32


class Sent:
    """One packet on the wire."""

    __slots__ = (
        "answered",
        "entry",
        "monotonic_ns",
        "position",
        "refused",
        "sequence",
        "timestamp",
        "tx_ns",
        "wall_ns",
    )

    def __init__(self, sequence: int, entry: int, timestamp: int, now: Anchor) -> None:
        self.sequence = sequence
        self.entry = entry  # of the outcome table
        self.timestamp = timestamp  # T1 as in the packet
        self.monotonic_ns, self.wall_ns = now.monotonic_ns, now.wall_ns
        self.tx_ns = 0  # the kernel's send stamp
        self.position: Position | None = None
        self.answered = False
        self.refused = False  # an ICMP error came: a loss of neither direction


class Guest(Protocol):
    """Who borrows a socket for packets of its own, and is shown what is no session's."""

    def refused(self, quoted: bytes, remote: Remote, report: ErrorReport, /) -> bool:
        """An ICMP error; True: it is about one of the guest's packets."""

    def arrived(self, arrived: Arrived, /) -> bool:
        """A packet that answers none of a session's; True: it answers one of the guest's."""


class Link:
    """One socket, and its latest sends by the number that the kernel gives them (OPT_ID)."""

    __slots__ = ("_keys", "_next_key", "guest", "socket", "source")

    def __init__(self, source: PortSource, opened: SenderSocket) -> None:
        self.source = source
        self.socket = opened
        self.guest: Guest | None = None
        self._keys: list[Sent | None] = [None] * _KEYS
        self._next_key = 0

    def remember(self, sent: Sent) -> None:
        """The packet of the send just done."""
        self._keys[self._next_key % _KEYS] = sent
        self._next_key += 1

    def pass_over(self) -> None:
        """The send just done was a guest's."""
        self._keys[self._next_key % _KEYS] = None
        self._next_key += 1

    def take(self, key: int) -> Sent | None:
        """The packet of that send; None where it is too long ago, or has been taken."""
        if not 0 < self._next_key - key <= _KEYS:
            return None
        sent, self._keys[key % _KEYS] = self._keys[key % _KEYS], None
        return sent

    def forget(self) -> None:
        """Begins the count of sends anew: a refused one may or may not have used up a number."""
        self.socket.restart_keys()
        self._keys = [None] * _KEYS
        self._next_key = 0


class Session:
    """One path on the wire. ``ssid``: RFC 8972, not 0."""

    def __init__(self, path: StampPath, slot: int, link: Link, address: SocketAddress, ssid: int) -> None:
        self.path = path
        self.slot = slot
        self.link = link
        self.address = address
        self.ssid = ssid
        self.ttl: int | None = None  # with which our packets arrive
        self._tail = request_tail(path.payload_bytes)
        self._directions = LossDirections(stateful=path.stateful)
        # RFC 8762: begins at 0. Where it is not known whether the reflector counts, our 1 beside its 0 shows it.
        self._next = 0 if path.stateful else 1
        self._settled = self._next
        self._sent: dict[int, Sent] = {}
        self._lost_since_ns: int | None = None  # sending of the first lost packet that no gap has closed over
        self._kept = max(4, KEPT_NS // path.interval_ns)

    @property
    def remote(self) -> Remote:
        """Where its replies come from."""
        return (self.address[0], self.address[1])

    def packet(self, timestamp: int, error_estimate: int) -> bytes:
        """The next one; the same again until ``add``."""
        return build_request(self._next % _WRAP, timestamp, error_estimate, self.ssid, self._tail)

    def add(self, sent: Sent) -> None:
        """The next packet has been sent."""
        self._sent[self._next] = sent
        self._next += 1

    def find(self, sequence: int) -> Sent | None:
        """The newest packet with this number on the wire, modulo 2^32."""
        newest = self._next - 1
        return self._sent.get(newest - (newest - sequence) % _WRAP)

    def newest(self) -> Sent | None:
        """The packet sent last."""
        return self._sent.get(self._next - 1)

    def answered(self, sent: Sent, reply: Reply) -> bool:
        """A reply to it, checked for whose it is. False: it has had one before."""
        position = self._directions.arrived(
            reply.sender_sequence, reply.sequence, reply.receive_timestamp, fresh=reply.ssid == self.ssid
        )
        if sent.answered:
            return False
        sent.answered = True
        if not sent.refused:
            sent.position = position
        if reply.sender_ttl:
            self.ttl = reply.sender_ttl
        return True

    def last_replied_ns(self) -> int:
        """When the newest packet was sent that has a reply; 0: none is known."""
        return max((sent.monotonic_ns for sent in self._sent.values() if sent.answered), default=0)

    def unanswered(self, deadline_ns: int) -> Iterator[Sent]:
        """Packets sent up to then that ``settle`` would take for lost."""
        for number in range(self._settled, self._next):
            sent = self._sent[number]
            if sent.monotonic_ns > deadline_ns:
                return
            if not sent.answered and not sent.refused:
                yield sent

    def settle(self, deadline_ns: int) -> Iterator[OneWayLoss]:
        """Packets sent up to then are resolved: which way those were lost that lie between two that came back."""
        while self._settled < self._next:
            sent = self._sent[self._settled]
            if sent.monotonic_ns > deadline_ns:
                return
            if not sent.refused:
                if sent.position is None and self._lost_since_ns is None:
                    self._lost_since_ns = sent.wall_ns
                gap: Gap | None = self._directions.settle(sent.sequence, sent.position)
                if gap is not None:
                    since_ns, self._lost_since_ns = self._lost_since_ns or sent.wall_ns, None
                    yield OneWayLoss(self.path.path_id, *gap, since_ns)
            self._sent.pop(self._settled - self._kept, None)
            self._settled += 1


def one_way_delay(
    path_id: int, sent: Sent, reply: Reply, stamp_ns: int, *, now: Anchor, error_ns: int
) -> OneWayDelay | None:
    """Both one-way delays of a round trip; None where one end's clock cannot be trusted.

    Args:
        path_id: of the path.
        sent: the packet.
        reply: its reply.
        stamp_ns: the kernel's receive stamp of it.
        now: read after it.
        error_ns: bound of our own clock's error.
    """
    stepped_ns = (now.wall_ns - now.monotonic_ns) - (sent.wall_ns - sent.monotonic_ns)
    theirs = decode_error(reply.error_estimate)
    if not sent.tx_ns or abs(stepped_ns) > STEP_TOLERANCE_NS:
        return None
    if not theirs.synchronised or theirs.ptp or theirs.error_ns is None:
        return None  # PTP counts TAI, or what its sender takes for it: 37 s are not told from a wrong clock
    return OneWayDelay(
        path_id,
        sent.sequence,
        from_ntp(reply.receive_timestamp, now.wall_ns) - sent.tx_ns,
        stamp_ns - from_ntp(reply.timestamp, now.wall_ns),
        error_ns,
        theirs.error_ns,
        sent.wall_ns,
    )
