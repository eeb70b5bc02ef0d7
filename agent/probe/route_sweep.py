"""A sweep over hop limits: what to send when, and what the answers make of it. Pure.

Hop after hop until the destination answers, one packet every ``PACE_NS``; then two more rounds over the same hops. So
each router is asked at most ``ROUNDS`` times by a sweep, and those a while apart: Linux answers a host six times at
once and then once a second (net.ipv4.icmp_ratelimit), others are of that order.
"""

from dataclasses import dataclass

from agent.probe.sounding import Answer, Said
from agent.result import Hop
from bandwitness.v1.record_pb2 import (
    HOP_OUTCOME_REPLIED,
    HOP_OUTCOME_SEND_FAILED,
    HOP_OUTCOME_SILENT,
    HOP_OUTCOME_TIME_EXCEEDED,
    HOP_OUTCOME_UNREACHABLE,
)

MAX_HOPS = 30
ROUNDS = 3
SILENT_HOPS = 6  # in a row: behind them nothing is looked for
PACE_NS = 50_000_000

_OUTCOMES = {
    Said.TIME_EXCEEDED: int(HOP_OUTCOME_TIME_EXCEEDED),
    Said.REPLIED: int(HOP_OUTCOME_REPLIED),
    Said.UNREACHABLE: int(HOP_OUTCOME_UNREACHABLE),
    Said.TOO_BIG: int(HOP_OUTCOME_UNREACHABLE),
}


@dataclass(slots=True)
class _Packet:
    hop_limit: int
    sent_ns: int  # monotonic
    outcome: int = 0  # HopOutcome; 0: nothing yet
    address: str = ""
    delay_ns: int | None = None


class Sweep:
    """One sweep. Monotonic times."""

    def __init__(self, waiting_ns: int, *, max_hops: int = MAX_HOPS, rounds: int = ROUNDS) -> None:
        self._waiting_ns = waiting_ns
        self._max_hops = max_hops
        self._rounds = rounds
        self._packets: list[_Packet] = []
        self._by_number: dict[int, _Packet] = {}
        self._round = 1
        self._hop = 0  # of the newest packet
        self._next_ns = 0

    def due(self, now_ns: int) -> int | None:
        """The hop limit to send with now; None: nothing now."""
        if now_ns < self._next_ns or self._round > self._rounds:
            return None
        if self._round == 1:
            if not self._at_end():
                silent = self._hop - max((p.hop_limit for p in self._packets if p.outcome), default=0)
                if self._hop < self._max_hops and silent < SILENT_HOPS:
                    return self._hop + 1
                if self._waits(now_ns):
                    return None
            self._next_round()
        elif self._hop >= self._length():
            self._next_round()
        return self._hop + 1 if self._round <= self._rounds and self._hop < self._length() else None

    def sent(self, hop_limit: int, number: int, now_ns: int) -> None:
        """That packet is out."""
        packet = _Packet(hop_limit, now_ns)
        self._packets.append(packet)
        self._by_number[number] = packet
        self._sent(hop_limit, now_ns)

    def failed(self, hop_limit: int, now_ns: int) -> None:
        """Our host did not send it."""
        self._packets.append(_Packet(hop_limit, now_ns, int(HOP_OUTCOME_SEND_FAILED)))
        self._sent(hop_limit, now_ns)

    def answer(self, answer: Answer) -> Hop | None:
        """Takes in an answer; the hop it makes, or None where it is nobody's."""
        packet = self._by_number.pop(answer.number, None)
        if packet is None:
            return None
        packet.outcome = _OUTCOMES[answer.said]
        packet.address, packet.delay_ns = answer.address, answer.delay_ns
        return Hop(packet.hop_limit, packet.outcome, packet.address, packet.delay_ns)

    def finished(self, now_ns: int) -> bool:
        """Whether all is sent and answered, or waited for long enough."""
        sending = self._round < self._rounds or (self._round == self._rounds and self._hop < self._length())
        return not sending and not self._waits(now_ns)

    @property
    def reached(self) -> bool:
        """Whether the destination answered."""
        return any(packet.outcome == HOP_OUTCOME_REPLIED for packet in self._packets)

    def hops(self) -> list[Hop]:
        """What there is by now, in order of hop limit; packets beyond the destination are left out."""
        length = self._length() if self._at_end() else self._max_hops
        return [
            Hop(packet.hop_limit, packet.outcome or int(HOP_OUTCOME_SILENT), packet.address, packet.delay_ns)
            for packet in sorted(self._packets, key=lambda packet: packet.hop_limit)
            if packet.hop_limit <= length
        ]

    def _sent(self, hop_limit: int, now_ns: int) -> None:
        self._hop = hop_limit
        self._next_ns = now_ns + PACE_NS

    def _next_round(self) -> None:
        self._round += 1
        self._hop = 0

    def _ends(self) -> list[int]:
        return [p.hop_limit for p in self._packets if p.outcome in (HOP_OUTCOME_REPLIED, HOP_OUTCOME_UNREACHABLE)]

    def _at_end(self) -> bool:
        return bool(self._ends())

    def _length(self) -> int:
        """Hops worth asking: to the destination, or to the last that answered."""
        answered = (p.hop_limit for p in self._packets if p.outcome == HOP_OUTCOME_TIME_EXCEEDED)
        return min(self._ends(), default=0) or max(answered, default=0)

    def _waits(self, now_ns: int) -> bool:
        return any(
            not packet.outcome and now_ns - packet.sent_ns < self._waiting_ns for packet in self._by_number.values()
        )
