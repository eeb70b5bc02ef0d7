"""One NIC over 10 s. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from collector.analysis.octets import RECEIVE, TRANSMIT
from collector.analysis.rises import PAUSES, Rise
from collector.store.rows import Values, dump


@dataclass(slots=True)
class NicWindow:
    """What is known of it so far."""

    start_time_ns: int
    deltas: list[int] = field(default_factory=lambda: [0, 0])
    spans_ns: list[int] = field(default_factory=lambda: [0, 0])
    peaks: list[float | None] = field(default_factory=lambda: [None, None])
    resets: int = 0
    ticks: int = 0
    speed_bps: int | None = None
    counts: dict[str, int] = field(default_factory=dict)  # rises in it, by names of the vocabulary
    pauses: dict[str, list[int]] = field(default_factory=dict)  # counter -> µs paused and ns watched

    def count(self, rises: Sequence[Rise]) -> None:
        """Adds what counters rose by."""
        counts = self.counts
        for counter, amount, span_ns in rises:
            if counter.pause:
                pause = self.pauses.setdefault(counter.pause, [0, 0])
                pause[0] += amount
                pause[1] += span_ns
            if amount:
                name = counter.meaning.name
                counts[name] = counts.get(name, 0) + amount

    def pause_ratio(self, direction: int) -> float | None:
        """The longest-paused priority's share of the time; None where no durations are counted."""
        if not self.pauses:
            return None
        shares = [
            min(1.0, paused_us * 1_000 / span_ns)
            for name, (paused_us, span_ns) in self.pauses.items()
            if PAUSES[name.partition("/")[0]] == direction and span_ns
        ]
        return max(shares, default=None)

    def values(self, node: str, nic: str, kind: str) -> Values:
        """Table row."""
        return {
            "start_time_ns": self.start_time_ns,
            "node": node,
            "nic": nic,
            "receive_bytes": self.deltas[RECEIVE] if self.spans_ns[RECEIVE] else None,
            "transmit_bytes": self.deltas[TRANSMIT] if self.spans_ns[TRANSMIT] else None,
            "receive_span_ns": self.spans_ns[RECEIVE],
            "transmit_span_ns": self.spans_ns[TRANSMIT],
            "receive_peak_bytes_per_second": self.peaks[RECEIVE],
            "transmit_peak_bytes_per_second": self.peaks[TRANSMIT],
            "resets": self.resets,
            "ticks": self.ticks,
            "speed_bps": self.speed_bps,
            "kind": kind,
            "receive_pause_ratio": self.pause_ratio(RECEIVE),
            "transmit_pause_ratio": self.pause_ratio(TRANSMIT),
            "counts": dump(self.counts),
        }

    def encode(self) -> list[Any]:
        """As JSON knows it; its arguments again."""
        return [
            self.start_time_ns, self.deltas, self.spans_ns, self.peaks, self.resets, self.ticks, self.speed_bps,
            self.counts, self.pauses,
        ]  # fmt: skip
