"""Traffic of NICs as somebody imagines it: as steps between reads, and as counter records of a fleet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from agent.result import NicBatch
from collector.analysis.octets import Octets

SECOND = 1_000_000_000
Rates = Callable[[float], tuple[float, float]]  # seconds since the beginning -> received, transmitted, Mbit/s
MBIT = 125_000  # octets a second


@dataclass(frozen=True)
class Stretch:
    """One rate from a time to another."""

    from_s: float
    to_s: float
    receive_mbps: float
    transmit_mbps: float


def save(from_s: float, seconds: float, mbps: float) -> Stretch:
    """A checkpoint: transmitted, and acknowledged."""
    return Stretch(from_s, from_s + seconds, mbps / 100, mbps)


@dataclass
class Line:
    """A NIC's counters under a base rate and stretches on top of it, exact to the octet at every time."""

    stretches: Sequence[Stretch] = ()
    base_mbps: float = 1.0

    def octets(self, at_s: float) -> tuple[int, int]:
        """Received and transmitted since the beginning."""
        total = [self.base_mbps * MBIT * at_s, self.base_mbps * MBIT * at_s]
        for one in self.stretches:
            inside = max(0.0, min(at_s, one.to_s) - one.from_s)
            total[0] += inside * one.receive_mbps * MBIT
            total[1] += inside * one.transmit_mbps * MBIT
        return round(total[0]), round(total[1])


def steps(line: Line, times_s: Sequence[float], start_ns: int = 0) -> list[Octets]:
    """What passed between reads at these times."""
    found = []
    for before, now in pairwise(times_s):
        (r0, t0), (r1, t1) = line.octets(before), line.octets(now)
        found.append(
            Octets(start_ns + round(now * SECOND), round(now * SECOND) - round(before * SECOND), r1 - r0, t1 - t0)
        )
    return found


@dataclass
class FleetTraffic:
    """Counters of one NIC for each node of a fleet that measures from ``start_ns`` on."""

    start_ns: int
    lines: dict[str, Line] = field(default_factory=dict)
    speed_bps: int | None = 10**9
    nic: str = "eth0"
    every_ns: int = SECOND

    def batch(self, node: str, from_ns: int, to_ns: int) -> NicBatch:
        """Reads in ``(from, to]``."""
        times = list(range(from_ns + self.every_ns, to_ns + 1, self.every_ns))
        reads = [self.lines.get(node, Line()).octets((time_ns - self.start_ns) / SECOND) for time_ns in times]
        return NicBatch(
            nic=self.nic,
            counters=("rx_bytes", "tx_bytes"),
            base_time_ns=times[0],
            base_monotonic_ns=times[0],
            interval_ns=self.every_ns,
            tick_times_ns=times,
            values=[[read[0] for read in reads], [read[1] for read in reads]],
            speed_bps=self.speed_bps,
        )
