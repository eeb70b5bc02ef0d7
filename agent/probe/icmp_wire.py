"""Echo packets of many paths over few ICMP sockets: who is sent what, and whose is what comes back.

A reply is ours when source address, identifier, wire sequence, slot and token all fit; a damaged one when all fit but
for some bits of the token or the rest of the payload. What a stranger with the same identifier gets back fits in no
token, and is left alone.

Each send has a number in the kernel (OPT_ID) by which its stamp is found in the error queue. A refused send may or may
not have used one up, so the count is begun anew then.
"""

import errno
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from random import Random

from agent.clock import Anchor, Clock
from agent.probe.binding import SocketAddress, socket_address
from agent.probe.echo_packet import (
    HEADER_BYTES,
    TOKEN_BYTES,
    EchoTemplate,
    message_offset,
    parse_quote,
    parse_reply,
    parse_stub,
    pattern,
)
from agent.probe.icmp_socket import RAW, Arrived, EchoSocket, Opener, Rights, Source
from agent.probe.matching import RoundTripTable
from agent.probe.stamps import ORIGIN_ICMP, ORIGIN_ICMP6, ORIGIN_TIMESTAMPING
from agent.probe.targets import PathSpec
from bandwitness.v1.record_pb2 import PACKET_OUTCOME_SEND_FAILED

READ_LIMIT = 256  # packets and error queue entries taken per wake-up, so that a flood never holds the loop
REOPEN_NS = 5_000_000_000  # before a source that is not there is tried again
MAX_DAMAGED_TOKEN_BITS = 12  # of 64; a stranger's token differs in 32 ± 4

_KEYS = 1 << 14
_KEY_MASK = _KEYS - 1
_SEND_FAILED = int(PACKET_OUTCOME_SEND_FAILED)
_SOURCE_GONE = (errno.ENODEV, errno.ENXIO, errno.EADDRNOTAVAIL)


class Link:
    """One socket, and which packet each of its latest sends was."""

    __slots__ = ("entries", "next_key", "sent", "socket", "source")

    def __init__(self, source: Source, opened: EchoSocket) -> None:
        self.source = source
        self.socket = opened
        self.entries = array("q", bytes(8 * _KEYS))
        self.sent = array("q", bytes(8 * _KEYS))
        self.next_key = 0

    def remember(self, entry: int, sent_monotonic_ns: int) -> None:
        """The packet of the send just done."""
        at = self.next_key & _KEY_MASK
        self.entries[at], self.sent[at] = entry, sent_monotonic_ns
        self.next_key += 1

    def forget(self) -> None:
        """Begins the count of sends anew."""
        self.socket.restart_keys()
        for key in range(max(0, self.next_key - _KEYS), self.next_key):
            self.sent[key & _KEY_MASK] = 0
        self.next_key = 0


class _Peer:
    """One path's way on the wire."""

    __slots__ = ("address", "link", "socket_address", "spec", "template", "token", "wire_offset")

    def __init__(self, spec: PathSpec, token: bytes, link: Link, slot: int, address: SocketAddress) -> None:
        self.spec = spec
        self.token = token
        self.link: Link | None = link
        self.address = address[0]
        self.socket_address = address
        self.wire_offset = int.from_bytes(token[:2], "big")
        self.template = EchoTemplate(
            ip_version=spec.ip_version,
            identifier=link.socket.identifier,
            token=token,
            slot=slot,
            fill=pattern(spec.payload_bytes),
        )


class EchoWire:
    """All ICMP sockets of one agent. Writes what happens to packets into the table."""

    def __init__(self, clock: Clock, table: RoundTripTable, opener: Opener, rights: Rights, random: Random) -> None:
        self.links: dict[Source, Link] = {}
        self.broken: dict[Source, tuple[int, str]] = {}  # until when it is not tried, and why
        self._clock = clock
        self._table = table
        self._opener = opener
        self._rights = rights
        self._random = random
        self._key = random.randbytes(16)
        self._peers: list[_Peer | None] = []
        self._by_address: dict[str, tuple[int, ...]] = {}  # mostly one: a set would be four times as large
        self._connected = 0

    def send(self, slot: int, spec: PathSpec, now: Anchor) -> Link | None:
        """The path's next packet; a refusal is recorded. Returns the socket to read, None where none was used."""
        peer = self._peers[slot] if slot < len(self._peers) else None
        if peer is None or peer.spec is not spec or peer.link is None:
            peer = self._connect(slot, spec, now)
        table = self._table
        sequence = table.next_sequence(slot)
        entry = table.add(slot, now.monotonic_ns, now.wall_ns)
        if peer is None or peer.link is None:
            table.settle(entry, _SEND_FAILED)
            return None
        link = peer.link
        packet = peer.template.request(sequence, (sequence + peer.wire_offset) & 0xFFFF)
        try:
            link.socket.send(packet, peer.socket_address)
        except OSError:
            if not self._send_again(link, packet, peer.socket_address):
                table.settle(entry, _SEND_FAILED)
                return peer.link
        link.remember(entry, now.monotonic_ns)
        return link

    def read(self, link: Link) -> bool:
        """Takes what has come, at most READ_LIMIT of each kind. True when there may be more."""
        errors = link.socket.read_errors(READ_LIMIT)  # first: a reply's send stamp has been there before it
        replies = link.socket.read_replies(READ_LIMIT)
        if not errors and not replies:
            return False
        now = self._clock.anchor()  # after the reads: what was read is not younger
        for quoted, address, report in errors:
            if report.origin == ORIGIN_TIMESTAMPING:
                at = report.key & _KEY_MASK
                if report.stamp_ns is not None:
                    self._table.stamp(link.entries[at], link.sent[at], report.stamp_ns, now.wall_ns)
            elif report.origin in (ORIGIN_ICMP, ORIGIN_ICMP6):
                self._refused(link, quoted, address)
        self._match(link, replies, now)
        return len(errors) == READ_LIMIT or len(replies) == READ_LIMIT

    def keep(self, used: set[Source]) -> None:
        """Closes the sockets of all other sources."""
        for source in [source for source in self.links if source not in used]:
            self.close(source)
        for source in [source for source in self.broken if source not in used]:
            del self.broken[source]

    def close(self, source: Source) -> None:
        """Gives up one socket; its paths open it again when they next send."""
        link = self.links.pop(source)
        link.socket.close()
        for peer in self._peers:
            if peer is not None and peer.link is link:
                peer.link = None

    def identifier(self) -> int:
        """One that no socket of ours uses."""
        used = {link.socket.identifier for link in self.links.values()}
        while (identifier := self._random.randrange(1, 0x10000)) in used:
            pass
        return identifier

    def _send_again(self, link: Link, packet: bytes, address: SocketAddress) -> bool:
        """After a refusal. It may have been the pending error of another packet, which the refusal has cleared."""
        self.read(link)
        link.forget()
        try:
            link.socket.send(packet, address)
        except OSError as error:
            if error.errno in _SOURCE_GONE:
                self.broken[link.source] = (self._clock.monotonic_ns() + REOPEN_NS, str(error))
                self.close(link.source)
            else:
                link.forget()
            return False
        return True

    def _connect(self, slot: int, spec: PathSpec, now: Anchor) -> _Peer | None:
        """The path's place on the wire, over its source's socket; None when that cannot be had now."""
        while slot >= len(self._peers):
            self._peers.append(None)
        before = self._peers[slot]
        if before is not None:
            slots = tuple(other for other in self._by_address.pop(before.address) if other != slot)
            if slots:
                self._by_address[before.address] = slots
            self._peers[slot] = None
        source = source_of(spec)
        link = self.links.get(source) or self._open(source, now)
        if link is None:
            return None
        try:
            address = socket_address(spec.address, 0, spec.ip_version)
        except OSError:
            return None
        self._connected += 1
        label = spec.path_id.to_bytes(8, "big") + self._connected.to_bytes(8, "big")
        token = blake2b(label, key=self._key, digest_size=TOKEN_BYTES).digest()
        peer = _Peer(spec, token, link, slot, address)
        link.socket.expect(spec.payload_bytes)
        self._peers[slot] = peer
        self._by_address[peer.address] = (*self._by_address.get(peer.address, ()), slot)
        return peer

    def _open(self, source: Source, now: Anchor) -> Link | None:
        until, _ = self.broken.get(source, (0, ""))
        if now.monotonic_ns < until:
            return None
        method = self._rights.method(source.ip_version)
        try:
            if method is None:
                raise OSError(errno.EAFNOSUPPORT, f"no IPv{source.ip_version} on this host")
            link = Link(source, self._opener(method, source, self.identifier()))
        except OSError as error:
            self.broken[source] = (now.monotonic_ns + REOPEN_NS, str(error))
            return None
        self.broken.pop(source, None)
        self.links[source] = link
        return link

    def _match(self, link: Link, replies: list[Arrived], now: Anchor) -> None:
        version = link.source.ip_version
        raw_ipv4 = version == 4 and self._rights.ipv4 == RAW
        identifier, peers, table = link.socket.identifier, self._peers, self._table
        monotonic, wall = now.monotonic_ns, now.wall_ns
        for packet, address, stamp, hop_limit in replies:
            offset = message_offset(packet) if raw_ipv4 else 0
            reply = parse_reply(packet, offset, version)
            if reply is not None and reply.identifier == identifier and reply.slot < len(peers):
                peer = peers[reply.slot]
                if (
                    peer is not None
                    and peer.link is link
                    and peer.token == reply.token
                    and peer.address == address
                    and (reply.sequence + peer.wire_offset) & 0xFFFF == reply.wire_sequence
                ):
                    corrupt = not peer.template.intact(reply, packet, offset)
                    if table.reply(
                        reply.slot, reply.sequence, stamp, monotonic, wall, corrupt=corrupt, hop_limit=hop_limit
                    ):
                        continue
            self._match_damaged(link, packet[offset:], address, now)

    def _match_damaged(self, link: Link, message: bytes, address: str, now: Anchor) -> None:
        """Records what is a packet of ours damaged on the way; the rest is a stranger's."""
        stub = parse_stub(message, link.source.ip_version)
        token = message[HEADER_BYTES : HEADER_BYTES + TOKEN_BYTES]
        if stub is None or stub[0] != link.socket.identifier or len(token) < TOKEN_BYTES:
            return
        for slot, peer in self._at(link, address):
            if _similar(peer.token, token):
                sequence = self._table.find(slot, stub[1], peer.wire_offset)
                if sequence is not None:
                    self._table.reply(slot, sequence, None, now.monotonic_ns, now.wall_ns, corrupt=True)
                    return

    def _refused(self, link: Link, quoted: bytes, address: str) -> None:
        """An ICMP error. Of a raw socket's, those about other pingers' packets are none of our business."""
        quote = parse_quote(quoted, link.source.ip_version)
        if quote is None or quote.identifier != link.socket.identifier:
            return
        for slot, peer in self._at(link, address):
            if quote.token is not None and (quote.token != peer.token or quote.slot != slot):
                continue
            sequence = self._table.find(slot, quote.wire_sequence, peer.wire_offset)
            if sequence is not None and (quote.token is None or quote.sequence == sequence):
                self._table.unreachable(slot, sequence)
                return

    def _at(self, link: Link, address: str) -> Iterator[tuple[int, _Peer]]:
        for slot in self._by_address.get(address, ()):
            peer = self._peers[slot]
            if peer is not None and peer.link is link:
                yield slot, peer


def source_of(spec: PathSpec) -> Source:
    """Which socket a path uses."""
    return Source(spec.ip_version, spec.source_address, spec.nic, spec.dscp)


def _similar(ours: bytes, theirs: bytes) -> bool:
    return (int.from_bytes(ours, "big") ^ int.from_bytes(theirs, "big")).bit_count() <= MAX_DAMAGED_TOKEN_BITS
