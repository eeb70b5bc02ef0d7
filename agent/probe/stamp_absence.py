"""When a peer's host said that no reflector listens there, and for which unanswered packets that speaks. Pure.

A host without our reflector answers with ICMP "port unreachable", but to few: Linux sends one a second to each
destination, after the first six (``icmp_ratelimit``, ``man 7 icmp``). The other packets find no answer at all, and
would look lost. So one refusal speaks for the unanswered packets sent shortly before and after it, as far as no reply
says that the reflector was there.
"""

from collections import deque
from dataclasses import dataclass

SPEAKS_FOR_NS = 3_000_000_000  # before and after: three of the times in which a host owes one
MAX_KEPT = 4  # absences; packets wait 10 s at most, so older ones are asked for no more


@dataclass(slots=True)
class _Absence:
    """Send times (monotonic ns) of packets: refused ones, and the replied ones next to them."""

    replied_before: int
    first_refused: int
    last_refused: int
    replied_after: int | None = None


class Absences:
    """Of one peer's reflector."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: deque[_Absence] = deque(maxlen=MAX_KEPT)

    def refused(self, sent_ns: int, replied_ns: int) -> None:
        """Port unreachable came.

        Args:
            sent_ns: when the packet that it quotes was sent.
            replied_ns: when the newest packet was sent that has a reply; any time before for none.
        """
        newest = self._found[-1] if self._found else None
        if newest is not None and newest.replied_after is None and sent_ns - newest.last_refused <= SPEAKS_FOR_NS:
            newest.first_refused = min(newest.first_refused, sent_ns)
            newest.last_refused = max(newest.last_refused, sent_ns)
        else:
            self._found.append(_Absence(min(replied_ns, sent_ns), sent_ns, sent_ns))

    def replied(self, sent_ns: int) -> None:
        """A reply came to a packet sent then."""
        newest = self._found[-1] if self._found else None
        if newest is None:
            return
        if sent_ns < newest.first_refused:
            newest.replied_before = max(newest.replied_before, sent_ns)
        elif sent_ns > newest.last_refused and (newest.replied_after is None or sent_ns < newest.replied_after):
            newest.replied_after = sent_ns

    def cover(self, sent_ns: int) -> bool:
        """Whether an unanswered packet of that time found no reflector."""
        return any(
            max(each.replied_before, each.first_refused - SPEAKS_FOR_NS)
            < sent_ns
            < min(each.last_refused + SPEAKS_FOR_NS, each.replied_after or sent_ns + 1)
            for each in self._found
        )
