"""What an ad hoc probe has found, as figures, text and JSON. Pure.

Statistics belong to the collector; these few are for the eye of who asked, with their number of packets beside them.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.result import OneWayDelay, OneWayLoss, RoundTripBatch
from bandwitness.v1.record_pb2 import (
    PACKET_MARK_DUPLICATE,
    PACKET_MARK_LATE,
    PACKET_OUTCOME_CORRUPT,
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_UNREACHABLE,
    PacketOutcome,
)

_IN_RATIO = (
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_UNREACHABLE,
    PACKET_OUTCOME_CORRUPT,
)
Packet = tuple[int, int, int, int | None]  # path id, sequence, outcome, delay in ns


def outcome_word(outcome: int) -> str:
    """``lost``, ``send failed``, …"""
    return PacketOutcome.Name(outcome).removeprefix("PACKET_OUTCOME_").lower().replace("_", " ")  # type: ignore[arg-type]


def packets(batch: RoundTripBatch) -> Iterable[Packet]:
    """Each packet of a batch, in its order."""
    without = {position for position, _ in batch.delay_faults}
    delays = iter(batch.round_trip_delays_ns)
    at = 0
    for path_id, first, count in zip(batch.path_ids, batch.first_sequences, batch.sample_counts, strict=True):
        for offset in range(count):
            outcome = batch.outcomes[at]
            usable = outcome == PACKET_OUTCOME_REPLIED and at not in without
            yield path_id, first + offset, outcome, next(delays) if usable else None
            at += 1


@dataclass(slots=True)
class Tally:
    """One path's packets so far."""

    outcomes: Counter[int] = field(default_factory=Counter)
    delays_ns: "array[int]" = field(default_factory=lambda: array("q"))
    duplicates: int = 0
    late: int = 0
    forward_lost: int = 0
    reverse_lost: int = 0

    @property
    def undirected_lost(self) -> int:
        """Lost without an answer of any kind, and it is not known which way."""
        return max(0, self.outcomes[PACKET_OUTCOME_LOST] - self.forward_lost - self.reverse_lost)

    @property
    def sent(self) -> int:
        """Packets that count in the loss ratio: all that left."""
        return sum(self.outcomes[outcome] for outcome in _IN_RATIO)

    @property
    def replied(self) -> int:
        """Of these, those that came back in time."""
        return self.outcomes[PACKET_OUTCOME_REPLIED]

    @property
    def lost(self) -> int:
        """Of these, those that did not."""
        return self.sent - self.replied

    def quantiles(self) -> tuple[int, int, int, int] | None:
        """Smallest, median, 99th percentile (nearest rank) and largest delay in ns; None: no delay is known."""
        ordered = sorted(self.delays_ns)
        if not ordered:
            return None
        return ordered[0], nearest_rank(ordered, 50), nearest_rank(ordered, 99), ordered[-1]

    def merge(self, other: "Tally") -> None:
        """Adds another path's."""
        self.outcomes += other.outcomes
        self.delays_ns += other.delays_ns
        self.duplicates += other.duplicates
        self.late += other.late
        self.forward_lost += other.forward_lost
        self.reverse_lost += other.reverse_lost


def nearest_rank(ordered: Sequence[int], percent: int) -> int:
    """The percentile of a sorted sample that is not empty."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


class Tallies:
    """All paths. ``limit``: packets a path that count; one more may have been sent at the end."""

    def __init__(self, limit: int | None) -> None:
        self.by_path: dict[int, Tally] = {}
        self._limit = limit
        self._first: dict[int, int] = {}

    def add(self, batches: Iterable[RoundTripBatch]) -> list[Packet]:
        """Takes over a drain. Returns its packets that count."""
        fresh: list[Packet] = []
        for batch in batches:
            for packet in packets(batch):
                path_id, sequence, outcome, delay_ns = packet
                first = self._first.setdefault(path_id, sequence)
                if self._limit is not None and sequence - first >= self._limit:
                    continue
                tally = self.by_path.setdefault(path_id, Tally())
                tally.outcomes[outcome] += 1
                if delay_ns is not None:
                    tally.delays_ns.append(delay_ns)
                fresh.append(packet)
            for mark in batch.marks:
                tally = self.by_path.setdefault(mark.path_id, Tally())
                tally.duplicates += mark.kind == PACKET_MARK_DUPLICATE
                tally.late += mark.kind == PACKET_MARK_LATE
        return fresh

    def add_losses(self, losses: Iterable[OneWayLoss]) -> None:
        """Which way packets were lost."""
        for loss in losses:
            tally = self.by_path.setdefault(loss.path_id, Tally())
            tally.forward_lost += loss.forward_lost
            tally.reverse_lost += loss.reverse_lost

    def total(self) -> Tally:
        """Of all paths."""
        total = Tally()
        for tally in self.by_path.values():
            total.merge(tally)
        return total


def as_json(tally: Tally) -> dict[str, Any]:
    """One path's figures; what is not known is null."""
    found = tally.quantiles()
    quantiles = found or (None,) * 4
    others = {outcome: count for outcome, count in tally.outcomes.items() if outcome != PACKET_OUTCOME_REPLIED}
    return {
        "sent": tally.sent,
        "replied": tally.replied,
        "lost": tally.lost,
        "loss_ratio": tally.lost / tally.sent if tally.sent else None,
        "outcomes": {outcome_word(outcome).replace(" ", "_"): count for outcome, count in sorted(others.items())},
        "duplicates": tally.duplicates,
        "late": tally.late,
        **dict(zip((f"delay_{name}_ns" for name in ("min", "p50", "p99", "max")), quantiles, strict=True)),
    }


def milliseconds(value_ns: int | None) -> str:
    """With three digits behind the point: the kernel's stamps are good for microseconds."""
    return "-" if value_ns is None else f"{value_ns / 1e6:.3f}"


def ping_line(label: str, sequence: int, outcome: int, delay_ns: int | None) -> str:
    """One packet."""
    if outcome == PACKET_OUTCOME_REPLIED:
        return f"{label}  seq {sequence}  " + ("delay unknown" if delay_ns is None else f"{milliseconds(delay_ns)} ms")
    return f"{label}  seq {sequence}  {outcome_word(outcome)}"


def summary_line(label: str, tally: Tally) -> str:
    """One path at the end."""
    ratio = f" ({100 * tally.lost / tally.sent:.1f} %)" if tally.sent else ""
    text = f"{label}  {tally.sent} sent, {tally.replied} replied, {tally.lost} lost{ratio}"
    others = other_outcomes(tally)
    text += f" [{others}]" if others else ""
    found = tally.quantiles()
    if found:
        text += "  min/p50/p99/max " + "/".join(milliseconds(value) for value in found) + " ms"
    return text


def other_outcomes(tally: Tally) -> str:
    """What is to be said besides replied and lost; empty: nothing."""
    others = [
        f"{tally.outcomes[outcome]} {outcome_word(outcome)}"
        for outcome in sorted(tally.outcomes)
        if outcome not in (PACKET_OUTCOME_REPLIED, PACKET_OUTCOME_LOST)
    ]
    others += [f"{count} {word}" for word, count in (("duplicates", tally.duplicates), ("late", tally.late)) if count]
    return ", ".join(others)


_HEADINGS = ("port", "sent", "lost", "there", "back", "either", "min", "p50", "p99", "max ms")


def stamp_table(ports: Mapping[int, Tally], total: Tally) -> list[str]:
    """One line a source port. ``there`` and ``back``: lost on the way; ``either``: it cannot be told which."""
    rows = [_HEADINGS, *(_row(str(port), tally) for port, tally in sorted(ports.items())), _row("all", total)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _row(name: str, tally: Tally) -> tuple[str, ...]:
    counts = (tally.sent, tally.lost, tally.forward_lost, tally.reverse_lost, tally.undirected_lost)
    return (name, *(str(count) for count in counts), *(milliseconds(v) for v in tally.quantiles() or (None,) * 4))


def lossy_ports(ports: Mapping[int, Tally]) -> str:
    """Which ports lost packets, and what it may mean; empty: none."""
    lossy = sorted(port for port, tally in ports.items() if tally.lost)
    if not lossy or len(ports) < 2:
        return ""
    if len(lossy) == len(ports):
        return f"all {len(ports)} ports lost packets: what they share, not one of equal paths"
    listed = ", ".join(map(str, lossy))
    return f"{len(lossy)} of {len(ports)} ports lost packets ({listed}): if it stays with these, one of equal paths"


def one_way(delays: Sequence[OneWayDelay]) -> dict[str, int] | None:
    """Medians of the one-way delays, and the largest bound of both clocks' error; None: no delay may be said."""
    if not delays:
        return None
    return {
        "forward_p50_ns": nearest_rank(sorted(delay.forward_ns for delay in delays), 50),
        "reverse_p50_ns": nearest_rank(sorted(delay.reverse_ns for delay in delays), 50),
        "clock_error_ns": max(delay.clock_error_ns for delay in delays),
    }
