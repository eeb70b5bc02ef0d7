"""What a Session-Reflector answers, and what it does not: senders, sessions, rates, each with its limit. Pure.

The reflector stands open on a network that we do not own. It answers addresses that it was told, with no more bytes
than they sent, not often, and not what could be another reflector; every refusal is counted with its reason.

RFC 8762 section 4.3 has a stateful reflector number the replies of each session, and section 4.6 has it answer packets
below 44 octets with all 44. We cut the reply to the size of the request, and refuse below 41 octets, TWAMP-Light's own
symmetrical size: an answer that is larger than the question is what makes a reflector worth abusing.

Anybody can write an allowed sender's address on his packets and use up its rate. What is refused for that looks, to the
true sender, like loss on the way here. So a session that has been answered for a while has a share of its own, which no
other can take, and new sessions do not push it out.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import NamedTuple

from agent.probe.stamp_packet import PacketError, Request, looks_reflected, parse_request

PORT = 8620
WELL_KNOWN_PORT = 862
MIN_REPLY_BYTES = 41
LOWEST_SENDER_PORT = 1024  # below live services that answer: echo, chargen, DNS, NTP
MAX_SENDERS = 4096

_SECOND_NS = 1_000_000_000


class Refusal(StrEnum):
    """Why a packet gets no answer."""

    STRANGER = "not an allowed sender"
    PORT = "from a port that may itself answer"
    LOOP = "is itself a reflected packet"
    SIZE = "too short to answer without sending more than was received"
    LONG = "longer than a test packet may be"
    CORRUPT = "not a test packet"
    SENDER_RATE = "more than one sender may send"
    TOTAL_RATE = "more than this reflector answers"
    SESSIONS = "no room for another session"


class Admitted(NamedTuple):
    """A packet to be answered, and the number that its reply carries."""

    request: Request
    sequence: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Packets a second, each with a burst of half a second's worth, and sessions with the time they live unused.

    A session is settled once it has had ``settled_replies`` over ``settled_ns``; ``session_rate`` is then its own.
    """

    sender_rate: int = 1_000
    total_rate: int = 10_000
    sender_sessions: int = 256  # 64 ports, and those of the hours before
    total_sessions: int = 16_384
    session_age_ns: int = 900 * _SECOND_NS  # REFWAIT of RFC 5357
    session_rate: int = 20  # twice what an agent sends over one port at most
    settled_replies: int = 10
    settled_ns: int = 5 * _SECOND_NS


class _Bucket:
    """Tokens at ``rate`` a second."""

    __slots__ = ("_last_ns", "_left", "_rate")

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left = rate / 2
        self._last_ns: int | None = None

    def take(self, now_ns: int) -> bool:
        if self._last_ns is not None:
            gained = (now_ns - self._last_ns) * self._rate / _SECOND_NS
            self._left = min(max(1.0, self._rate / 2), self._left + max(0.0, gained))
        self._last_ns = now_ns
        if self._left < 1:
            return False
        self._left -= 1
        return True


class _Session:
    """Replies so far, when the first and the last one went out, and the share of a settled one."""

    __slots__ = ("began_ns", "bucket", "number", "replies", "used_ns")

    def __init__(self, now_ns: int) -> None:
        self.replies = 0
        self.number = 0  # of the next reply
        self.began_ns = self.used_ns = now_ns
        self.bucket: _Bucket | None = None  # there once it is settled

    def reply(self, now_ns: int, limits: Limits) -> int:
        """Notes a reply; gives its number."""
        number, self.number, self.used_ns = self.number, (self.number + 1) & 0xFFFFFFFF, now_ns
        self.replies += 1
        old = now_ns - self.began_ns >= limits.settled_ns
        if self.bucket is None and old and self.replies >= limits.settled_replies:
            self.bucket = _Bucket(limits.session_rate)
        return number


class _Sender:
    """One allowed address: its rate, and its sessions by port and SSID, oldest use first."""

    __slots__ = ("bucket", "sessions")

    def __init__(self, rate: int) -> None:
        self.bucket = _Bucket(rate)
        self.sessions: OrderedDict[tuple[int, int], _Session] = OrderedDict()


class ReflectorSessions:
    """Decides about each packet. Memory: by the allowed senders and ``Limits.total_sessions``, whatever arrives."""

    def __init__(self, *, limits: Limits | None = None, ports: Iterable[int] = (PORT, WELL_KNOWN_PORT)) -> None:
        """``ports``: on which reflectors answer, here or at other nodes; no sender sends from these."""
        self.limits = limits or Limits()
        self.refusals: Counter[Refusal] = Counter()
        self._ports = frozenset(ports)
        self._senders: dict[str, _Sender] = {}
        self._total = _Bucket(self.limits.total_rate)
        self._sessions = 0
        self._sweep_due_ns = 0

    @property
    def sessions(self) -> int:
        """How many there are."""
        return self._sessions

    def allow(self, addresses: Iterable[str]) -> None:
        """Answers these addresses and no others, from now on; those that stay keep their sessions.

        Raises:
            ValueError: not an address, not one of a single host, or more than MAX_SENDERS.
        """
        wanted: dict[str, _Sender] = {}
        for text in addresses:
            parsed = ip_address(text.partition("%")[0])
            if parsed.is_multicast or parsed.is_unspecified or int(parsed) == 0xFFFFFFFF:
                raise ValueError(f"{text} is not the address of one host")
            key = str(parsed)
            wanted[key] = self._senders.get(key) or _Sender(self.limits.sender_rate)
        if len(wanted) > MAX_SENDERS:
            raise ValueError(f"{len(wanted)} senders are more than {MAX_SENDERS}")
        self._senders = wanted
        self._sessions = sum(len(sender.sessions) for sender in wanted.values())

    def consider(self, data: bytes, address: str, port: int, *, monotonic_ns: int, wall_ns: int) -> Admitted | Refusal:
        """One packet; a refusal is counted.

        Args:
            data: the UDP payload.
            address: its source, as the kernel writes it.
            port: its source port.
            monotonic_ns: now.
            wall_ns: now.
        """
        decided = self._consider(data, address, port, monotonic_ns, wall_ns)
        if isinstance(decided, Refusal):
            self.refusals[decided] += 1
        return decided

    def _consider(self, data: bytes, address: str, port: int, now_ns: int, wall_ns: int) -> Admitted | Refusal:
        sender = self._senders.get(address)
        if sender is None:
            return Refusal.STRANGER
        if port < LOWEST_SENDER_PORT or port in self._ports:
            return Refusal.PORT
        if len(data) < MIN_REPLY_BYTES:
            return Refusal.SIZE
        try:
            request = parse_request(data)
        except PacketError:
            return Refusal.CORRUPT
        if looks_reflected(data, wall_ns):
            return Refusal.LOOP
        key = (port, request.ssid)
        known = sender.sessions.get(key)
        if known is None or known.bucket is None or not known.bucket.take(now_ns):
            if not sender.bucket.take(now_ns):
                return Refusal.SENDER_RATE
            if not self._total.take(now_ns):
                return Refusal.TOTAL_RATE
        session = self._session(sender, key, now_ns)
        if session is None:
            return Refusal.SESSIONS
        if not request.ssid and not request.sequence:
            session.number = 0  # without an SSID this alone tells a sender that begins again on the same port
        return Admitted(request, session.reply(now_ns, self.limits))

    def _session(self, sender: _Sender, key: tuple[int, int], now_ns: int) -> _Session | None:
        """This sender's session, made where there is none. A sender that has too many loses its least used one that is
        not settled."""
        sessions = sender.sessions
        self._expire(sender, now_ns)
        found = sessions.get(key)
        if found is not None:
            sessions.move_to_end(key)
            return found
        if self._sessions >= self.limits.total_sessions and now_ns >= self._sweep_due_ns:
            self._sweep_due_ns = now_ns + _SECOND_NS
            for other in self._senders.values():
                self._expire(other, now_ns)
        if len(sessions) >= self.limits.sender_sessions or self._sessions >= self.limits.total_sessions:
            least = next((each for each, session in sessions.items() if session.bucket is None), None)
            if least is None:
                return None  # the room is other senders', or settled sessions', and in use
            del sessions[least]
            self._sessions -= 1
        sessions[key] = made = _Session(now_ns)
        self._sessions += 1
        return made

    def _expire(self, sender: _Sender, now_ns: int) -> None:
        sessions = sender.sessions
        while sessions and now_ns - next(iter(sessions.values())).used_ns > self.limits.session_age_ns:
            sessions.popitem(last=False)
            self._sessions -= 1
