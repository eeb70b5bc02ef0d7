"""STAMP packets with a hop limit, over the ports and so the way of one STAMP path.

They borrow the socket of the path's session, because only one socket can have the port. An SSID of their own (RFC 8972)
keeps the reflector's count for the session as it is.
"""

from collections.abc import Callable

from agent.clock import Anchor, Clock
from agent.probe.sounding import MAX_OUTSTANDING, Answer, Said, delay_between, said_of
from agent.probe.stamp_packet import (
    PacketError,
    build_request,
    encode_error,
    parse_reply,
    parse_request,
    request_tail,
    residence_ns,
    to_ntp,
)
from agent.probe.stamp_session import Link, Session
from agent.probe.stamp_socket import Arrived, Remote
from agent.probe.stamps import ErrorReport


class StampWay:
    """``sounding.Way`` over a session's ports. Until it is closed it is shown what comes and is no session's."""

    def __init__(self, clock: Clock, session: Session, read: Callable[[Link], None]) -> None:
        """``read``: takes what has come on a socket."""
        self._clock = clock
        self._link = session.link
        self._read = read
        self._address, self._remote = session.address, session.remote
        self._ssid = session.ssid ^ 0x8000 or 1
        self._tail = request_tail(session.path.payload_bytes)
        self._number = -1
        self._out: dict[int, Anchor] = {}
        self._answers: list[Answer] = []
        self._link.guest = self

    def send(self, hop_limit: int) -> int:
        """Sends one packet; its number. Raises OSError."""
        self._read(self._link)  # an error that waits would be taken for this packet's
        self._number += 1
        now = self._clock.anchor()
        packet = build_request(self._number, to_ntp(now.wall_ns), encode_error(None), self._ssid, self._tail)
        try:
            self._link.socket.send_limited(packet, self._address, hop_limit)
        except OSError:
            self._link.forget()
            raise
        self._link.pass_over()
        while len(self._out) >= MAX_OUTSTANDING:
            del self._out[next(iter(self._out))]
        self._out[self._number] = now
        return self._number

    def read(self) -> list[Answer]:
        """What has come."""
        self._read(self._link)
        found, self._answers = self._answers, []
        return found

    def close(self) -> None:
        """Gives the socket back."""
        if self._link.guest is self:
            self._link.guest = None

    def refused(self, quoted: bytes, remote: Remote, report: ErrorReport) -> bool:
        """An ICMP error. Time exceeded is always taken: no session's packet has so small a hop limit."""
        said = said_of(report)
        if remote != self._remote or said is None:
            return False
        try:
            request = parse_request(quoted)
        except PacketError:  # a router that quotes the ports alone: of which packet is not known
            return said is Said.TIME_EXCEEDED
        if request.ssid != self._ssid:
            return False
        self._answer(request.sequence, said, report.reporter, report.stamp_ns)
        return True

    def arrived(self, arrived: Arrived) -> bool:
        """A packet that answers none of a session's."""
        data, remote, stamp_ns, _ = arrived
        try:
            reply = parse_reply(data)
        except PacketError:
            return False
        sent = self._out.get(reply.sender_sequence)
        if remote != self._remote or sent is None or reply.sender_timestamp != to_ntp(sent.wall_ns):
            return False
        self._answer(reply.sender_sequence, Said.REPLIED, remote[0], stamp_ns, kept_ns=residence_ns(reply) or 0)
        return True

    def _answer(self, number: int, said: Said, address: str, stamp_ns: int | None, *, kept_ns: int = 0) -> None:
        sent = self._out.pop(number, None)
        if sent is not None:
            delay_ns = delay_between(sent, stamp_ns, self._clock.anchor())
            self._answers.append(Answer(number, said, address, 0, max(0, delay_ns - kept_ns)))
