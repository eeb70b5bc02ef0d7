"""Which way a lost packet was lost: from the count that a stateful reflector keeps of its own. Pure.

RFC 8762 section 4.3: a stateful Session-Reflector numbers its replies one by one. Between two replies that came back,
numbers that are missing were sent and lost on the way back (reverse); packets that used up no number never reached it
(forward, RFC 7680). One gap may hold both, and then only how many of each is known.

A number that falls although the reflector received the packet later means that it has begun its count anew; what
was lost across that is lost in an unknown direction. A reflector without a count of its own copies ours, so as long as
its numbers equal ours nothing is concluded, unless it is known to count.
"""

from typing import NamedTuple

from agent.probe.stamp_packet import later_by

MAX_SEEN = 4096  # numbers ahead of those settled; more is nonsense

_WRAP = 1 << 32


class Position(NamedTuple):
    """A reply's place in the reflector's count. ``epoch``: how often the count has begun."""

    epoch: int
    number: int


class Gap(NamedTuple):
    """Packets lost between two that came back, the first and the last of them, and how many were lost which way."""

    first_sequence: int
    last_sequence: int
    forward_lost: int
    reverse_lost: int
    either_lost: int = 0  # the count does not tell


class LossDirections:
    """One session's count. Tell it of replies as they come (``arrived``), and of packets in order (``settle``)."""

    __slots__ = ("_anchor", "_first", "_last", "_lost", "_newest", "_newest_received", "_seen", "stateful")

    def __init__(self, *, stateful: bool) -> None:
        """``stateful``: whether the reflector is known to count; else its numbers must show it."""
        self.stateful = stateful
        self._newest: Position | None = None
        self._newest_received = 0
        self._anchor: Position | None = None
        self._seen: set[int] = set()  # numbers of the newest epoch that came back, beyond the anchor
        self._lost = 0
        self._first = self._last = 0

    def arrived(self, sent: int, number: int, received: int, *, fresh: bool) -> Position:
        """A reply that is ours, duplicates too.

        Args:
            sent: our own number of the packet, modulo 2^32.
            number: the reflector's.
            received: its receive timestamp, as in the packet.
            fresh: it tells our sessions apart (it returned our SSID), so this one's count began at 0.
        """
        if number != sent:
            self.stateful = True
        newest = self._newest
        if newest is None:
            position = Position(0, number)
            if fresh:
                self._anchor = Position(0, -1)
        else:
            ahead = (number - newest.number + _WRAP // 2) % _WRAP - _WRAP // 2
            if ahead <= 0 and later_by(received, self._newest_received) > 0:
                position = Position(newest.epoch + 1, number)
            else:
                position = Position(newest.epoch, newest.number + ahead)
        if newest is None or position > newest:
            if newest is not None and position.epoch != newest.epoch:
                self._seen.clear()
            newest = self._newest = position
            self._newest_received = received
        settled = self._anchor is not None and position <= self._anchor
        if position.epoch == newest.epoch and not settled and len(self._seen) < MAX_SEEN:
            self._seen.add(position.number)
        return position

    def settle(self, sequence: int, position: Position | None) -> Gap | None:
        """The next packet in order, resolved for good. Returns the gap that it closes.

        Args:
            sequence: of the packet.
            position: of its reply; None: lost.
        """
        if position is None:
            if not self._lost:
                self._first = sequence
            self._lost, self._last = self._lost + 1, sequence
            return None
        anchor, newest = self._anchor, self._newest
        assert newest is not None
        if anchor is not None and position <= anchor:
            return None  # it was overtaken on its way there
        lost, self._lost = self._lost, 0
        self._anchor = position
        unknown = Gap(self._first, self._last, 0, 0, lost) if lost else None
        if position.epoch != newest.epoch:
            return unknown  # the count has begun anew since: what it had seen is forgotten
        between = {number for number in self._seen if number < position.number}
        self._seen -= between
        self._seen.discard(position.number)
        if not lost or anchor is None or anchor.epoch != position.epoch or not self.stateful:
            return unknown
        missing = position.number - anchor.number - 1 - len(between)
        reverse = min(missing, lost)  # more are missing where the network doubled packets on their way there
        return Gap(self._first, self._last, lost - reverse, reverse)
