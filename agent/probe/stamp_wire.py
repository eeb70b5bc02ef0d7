"""STAMP packets of many sessions over one socket a source port: who is sent what, and whose is what comes back.

A reply is ours when it comes from the address and port that were asked, to the socket that asked, with our sequence
number, our own timestamp to the bit, and our SSID or none: nobody off the path can guess the timestamp's nanosecond.
"""

import errno
from collections.abc import Iterator
from random import Random

from agent.clock import Anchor, Clock
from agent.probe.binding import socket_address
from agent.probe.matching import RoundTripTable
from agent.probe.stamp_absence import Absences
from agent.probe.stamp_packet import (
    PacketError,
    Reply,
    encode_error,
    parse_reply,
    parse_request,
    residence_ns,
    to_ntp,
)
from agent.probe.stamp_paths import StampPath
from agent.probe.stamp_session import Link, Sent, Session, one_way_delay
from agent.probe.stamp_socket import Arrived, PortSource, Remote, SenderOpener
from agent.probe.stamps import ORIGIN_ICMP, ORIGIN_ICMP6, ORIGIN_TIMESTAMPING, ErrorReport
from agent.result import OneWayDelay, OneWayLoss
from bandwitness.v1.record_pb2 import PACKET_OUTCOME_SEND_FAILED

READ_LIMIT = 256  # packets and error queue entries a wake-up, so that a flood never holds the loop
REOPEN_NS = 5_000_000_000  # before a source that is not there is tried again
MAX_ONE_WAY = 65_536  # one-way delays, and one-way losses, between two drains

_SEND_FAILED = int(PACKET_OUTCOME_SEND_FAILED)
# ICMP (RFC 792) and ICMPv6 (RFC 4443): the packet arrived, and nobody listens.
_PORT_UNREACHABLE = ((ORIGIN_ICMP, 3, 3), (ORIGIN_ICMP6, 1, 4))
_SOURCE_GONE = (errno.ENODEV, errno.ENXIO, errno.EADDRNOTAVAIL)


class StampWire:
    """All source ports of one agent. Writes what happens to packets into the table."""

    def __init__(self, clock: Clock, table: RoundTripTable, opener: SenderOpener, random: Random) -> None:
        self.links: dict[PortSource, Link] = {}
        self.broken: dict[PortSource, tuple[int, str]] = {}  # until when it is not tried, and why
        self.sessions: dict[int, Session] = {}  # by slot
        self.delays: list[OneWayDelay] = []
        self.losses: list[OneWayLoss] = []
        self.error_ns: int | None = None  # of our own clock; None: not known
        self.strangers = 0  # packets that are no reply to one of ours
        self.not_kept = 0  # one-way results that nobody drained in time
        self._clock = clock
        self._table = table
        self._opener = opener
        self._random = random
        self._by_remote: dict[tuple[PortSource, Remote], list[Session]] = {}
        self._absent: dict[Remote, Absences] = {}  # peers that have said since they were planned: no reflector here

    def send(self, slot: int, path: StampPath, now: Anchor) -> Link | None:
        """The path's next packet; a refusal is recorded. Returns the socket to read, None where none was used."""
        session = self.sessions.get(slot) or self._connect(slot, path, now)
        table = self._table
        sequence = table.next_sequence(slot)
        entry = table.add(slot, now.monotonic_ns, now.wall_ns)
        if session is None:
            table.settle(entry, _SEND_FAILED)
            return None
        link = session.link
        timestamp = to_ntp(self._clock.wall_ns())
        packet = session.packet(timestamp, encode_error(self.error_ns))
        try:
            link.socket.send(packet, session.address)
        except OSError:
            if not self._send_again(link, packet, session):
                table.settle(entry, _SEND_FAILED)
                return link if link.source in self.links else None
        sent = Sent(sequence, entry, timestamp, now)
        session.add(sent)
        link.remember(sent)
        return link

    def read(self, link: Link) -> bool:
        """Takes what has come, at most READ_LIMIT of each kind. True when there may be more."""
        errors = link.socket.read_errors(READ_LIMIT)  # first: a reply's send stamp has been there before it
        replies = link.socket.read_replies(READ_LIMIT)
        if not errors and not replies:
            return False
        now = self._clock.anchor()  # after the reads: what was read is not younger
        for quoted, remote, report in errors:
            if report.origin == ORIGIN_TIMESTAMPING:
                sent = link.take(report.key)
                if sent is not None and report.stamp_ns is not None:
                    if sent.wall_ns <= report.stamp_ns <= now.wall_ns:
                        sent.tx_ns = report.stamp_ns
                    self._table.stamp(sent.entry, sent.monotonic_ns, report.stamp_ns, now.wall_ns)
            elif report.origin in (ORIGIN_ICMP, ORIGIN_ICMP6) and not (
                link.guest is not None and link.guest.refused(quoted, remote, report)
            ):
                self._refused(link, quoted, remote, report)
        for arrived in replies:
            if not self._match(link, arrived, now) and (link.guest is None or not link.guest.arrived(arrived)):
                self.strangers += 1
        return len(errors) == READ_LIMIT or len(replies) == READ_LIMIT

    def settle(self, monotonic_ns: int, slack_ns: int) -> None:
        """All packets whose waiting time and ``slack_ns`` have passed are resolved."""
        for session in self.sessions.values():
            deadline_ns = monotonic_ns - session.path.waiting_ns - slack_ns
            if session.path.stateful and session.remote in self._absent:
                self._excuse(session, self._absent[session.remote], deadline_ns)
            for loss in session.settle(deadline_ns):
                if len(self.losses) < MAX_ONE_WAY:
                    self.losses.append(loss)
                else:
                    self.not_kept += 1

    def keep(self, slots: set[int], sources: set[PortSource]) -> None:
        """Ends all other sessions, and closes the sockets of all other sources."""
        for slot in self.sessions.keys() - slots:
            self._forget(slot)
        for source in self.links.keys() - sources:
            self.close(source)
        for source in self.broken.keys() - sources:
            del self.broken[source]
        for remote in self._absent.keys() - {session.remote for session in self.sessions.values()}:
            del self._absent[remote]

    def close(self, source: PortSource) -> None:
        """Gives up one socket. Its sessions end: what is still out is lost, and what is sent next begins anew."""
        link = self.links.pop(source)
        link.socket.close()
        for slot in [slot for slot, session in self.sessions.items() if session.link is link]:
            self._forget(slot)

    def _send_again(self, link: Link, packet: bytes, session: Session) -> bool:
        """After a refusal. It may have been the pending error of another packet, which the refusal has cleared."""
        self.read(link)
        link.forget()
        try:
            link.socket.send(packet, session.address)
        except OSError as error:
            if error.errno in _SOURCE_GONE:
                self.broken[link.source] = (self._clock.monotonic_ns() + REOPEN_NS, str(error))
                self.close(link.source)
            else:
                link.forget()
            return False
        return True

    def _connect(self, slot: int, path: StampPath, now: Anchor) -> Session | None:
        source = path.source
        link = self.links.get(source) or self._open(source, now)
        if link is None:
            return None
        try:
            address = socket_address(path.address, path.destination_port, path.ip_version)
        except OSError:
            return None  # a zone that is no device here
        session = Session(path, slot, link, address, self._random.randrange(1, 0x10000))
        self.sessions[slot] = session
        self._by_remote.setdefault((source, session.remote), []).append(session)
        return session

    def _open(self, source: PortSource, now: Anchor) -> Link | None:
        until, _ = self.broken.get(source, (0, ""))
        if now.monotonic_ns < until:
            return None
        try:
            link = Link(source, self._opener(source))
        except OSError as error:
            self.broken[source] = (now.monotonic_ns + REOPEN_NS, str(error))
            return None
        self.broken.pop(source, None)
        self.links[source] = link
        return link

    def _forget(self, slot: int) -> None:
        session = self.sessions.pop(slot)
        key = (session.link.source, session.remote)
        self._by_remote[key].remove(session)
        if not self._by_remote[key]:
            del self._by_remote[key]

    def _match(self, link: Link, arrived: Arrived, now: Anchor) -> bool:
        data, remote, _, _ = arrived
        sessions = self._by_remote.get((link.source, remote))
        if sessions is None:
            return False
        try:
            reply = parse_reply(data)
        except PacketError:
            return False
        for session in sessions:
            sent = session.find(reply.sender_sequence)
            if (
                sent is not None
                and sent.timestamp == reply.sender_timestamp
                and reply.ssid in (session.ssid, 0)  # 0: a reflector that does not know RFC 8972
            ):
                self._replied(session, sent, reply, arrived, now)
                return True
        return False

    def _replied(self, session: Session, sent: Sent, reply: Reply, arrived: Arrived, now: Anchor) -> None:
        _, _, stamp_ns, hop_limit = arrived
        first = session.answered(sent, reply)
        if self._absent and session.remote in self._absent:
            self._absent[session.remote].replied(sent.monotonic_ns)
        kept_ns = residence_ns(reply)
        # Without a delay it still came back, so it was not lost. How long it took cannot be said.
        nonsense = stamp_ns is not None and (kept_ns is None or kept_ns > stamp_ns - sent.wall_ns)
        told_ns = None if stamp_ns is None or kept_ns is None or nonsense else stamp_ns - kept_ns
        self._table.reply(
            session.slot,
            sent.sequence,
            told_ns,
            now.monotonic_ns,
            now.wall_ns,
            nonsense=nonsense,
            hop_limit=hop_limit,
        )
        if first and told_ns is not None and stamp_ns is not None and self.error_ns is not None:
            delay = one_way_delay(session.path.path_id, sent, reply, stamp_ns, now=now, error_ns=self.error_ns)
            if delay is not None and len(self.delays) < MAX_ONE_WAY:
                self.delays.append(delay)
            elif delay is not None:
                self.not_kept += 1

    def _refused(self, link: Link, quoted: bytes, remote: Remote, report: ErrorReport) -> None:
        """An ICMP error. Routers need not quote more than the ports (RFC 792): then it is about the newest packet.

        A reflector of ours that is not there (its agent starts, stops, has no such plan yet) is our fault, not a loss.
        """
        for session, sent in self._quoted(link, quoted, remote):
            sent.refused = not sent.answered
            if session.path.stateful and (report.origin, report.icmp_type, report.icmp_code) in _PORT_UNREACHABLE:
                self._table.unreachable(session.slot, sent.sequence, outcome=_SEND_FAILED)
                of_peer = (each for source in self.links for each in self._by_remote.get((source, remote), ()))
                replied_ns = max(each.last_replied_ns() for each in of_peer)
                self._absent.setdefault(remote, Absences()).refused(sent.monotonic_ns, replied_ns)
            else:
                self._table.unreachable(session.slot, sent.sequence)
            return

    def _excuse(self, session: Session, absences: Absences, deadline_ns: int) -> None:
        """What found no reflector, though its host did not say so of this very packet."""
        for sent in session.unanswered(deadline_ns):
            if absences.cover(sent.monotonic_ns):
                sent.refused = True
                self._table.unreachable(session.slot, sent.sequence, outcome=_SEND_FAILED)

    def _quoted(self, link: Link, quoted: bytes, remote: Remote) -> Iterator[tuple[Session, Sent]]:
        for session in self._by_remote.get((link.source, remote), ()):
            try:
                request = parse_request(quoted)
            except PacketError:
                sent = session.newest()
            else:
                sent = session.find(request.sequence)
                if sent is not None and sent.timestamp != request.timestamp:
                    continue
            if sent is not None:
                yield session, sent
