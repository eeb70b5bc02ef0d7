"""What NICs and TCP counted inside a burst, in the minute before it, and in their quiet hour: rows of 10 s in, figures
for the rule of contention out."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from collector.analysis import statistics
from collector.analysis.loading import Loading
from collector.analysis.occasions import Occasions, inside
from collector.analysis.rules.burst_figures import InBurst, NicFigure
from collector.analysis.window import SECOND, WINDOW_NS
from collector.config import BurstContentionRule

Row = Mapping[str, Any]
# Nodes and starts: rows of nic_windows, of any order but that of one NIC by start.
RowsOf = Callable[[Sequence[str], Sequence[int]], Iterable[Row]]
Nic = tuple[str, str]  # node, name; no name: the host
HOUR_NS = 3600 * SECOND
BEFORE_NS = 60 * SECOND
LOOK_BACK_NS = 300 * SECOND  # of a long burst
SETTLED_NS = 120 * SECOND  # the quiet hour ends this long before a burst
MIN_SEGMENTS = 1000  # below that a ratio of 0.1 % is one segment
MIN_WINDOWS = 6  # a minute
MAX_NODES = 64  # of one burst; of more the first by name
DISCARDS = {
    "rx_discards": ("receive_discards", "priority_discards", "out_of_buffer", "rdma_receive_discards"),
    "tx_discards": ("transmit_discards", "rdma_transmit_discards"),
}
NOBODY: RowsOf = lambda *_: ()  # noqa: E731


@dataclass(slots=True)
class _Sums:
    """Some windows of one NIC or host together."""

    windows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    pauses: list[float] = field(default_factory=list)  # ratio of each window, where it is counted

    def add(self, row: Row) -> None:
        self.windows += 1
        counts = row["counts"]
        for name, count in (json.loads(counts) if isinstance(counts, str) else counts or {}).items():
            self.counts[name] = self.counts.get(name, 0) + count
        if row["receive_pause_ratio"] is not None:
            self.pauses.append(float(row["receive_pause_ratio"]))

    def sum(self, names: Iterable[str]) -> int:
        return sum(self.counts.get(name, 0) for name in names)

    def scaled(self, names: Iterable[str], windows: int) -> float | None:
        """As many as there would be in so many windows; None without any window to go by."""
        return self.sum(names) * windows / self.windows if self.windows else None

    def retransmits(self) -> tuple[float | None, int]:
        segments = self.sum(("tcp_segments_sent",))
        return (self.sum(("tcp_segments_retransmitted",)) / segments if segments else None), segments


NOTHING = _Sums()


class NicFigures:
    """Asks the rows of a burst's members, all nodes at once. What the quiet hour says is read once a burst."""

    def __init__(self, rows: RowsOf, loading: Loading, bursts: Occasions, rule: BurstContentionRule) -> None:
        self._rows, self._loading, self._bursts, self._rule = rows, loading, bursts, rule
        self._quiet: dict[tuple[str, int], dict[str, _Sums]] = {}  # node and start of the burst -> by NIC

    def of(self, burst: InBurst, time_ns: int) -> list[NicFigure]:
        """Figures of the nodes of a burst, from its start up to ``time_ns``."""
        start, end = inside(burst, self._rule)
        edge = (start + WINDOW_NS // 2) // WINDOW_NS * WINDOW_NS  # windows of which more than half lies inside
        nodes = burst.nodes[:MAX_NODES]
        inner = _starts(max(edge, time_ns - LOOK_BACK_NS), min(time_ns, end))
        if not inner or not nodes:
            return []
        earlier = _starts(edge - BEFORE_NS, edge)
        now: dict[Nic, _Sums] = {}
        before: dict[Nic, _Sums] = {}
        for row in self._of_members(burst, nodes, [*earlier, *inner]):
            place = now if row["start_time_ns"] >= edge else before
            place.setdefault((row["node"], row["nic"]), _Sums()).add(row)
        self._read_quiet_hour(burst, sorted({node for node, _ in now}), start)
        found: list[NicFigure] = []
        for nic, sums in sorted(now.items()):
            quiet = self._quiet[nic[0], start].get(nic[1], NOTHING)
            found += _figures(nic, sums, quiet, before.get(nic, NOTHING))
        return found

    def forget(self, before_ns: int) -> None:
        """Lets go of what was read for bursts that started before a time."""
        for key in [key for key in self._quiet if key[1] < before_ns]:
            del self._quiet[key]

    def _read_quiet_hour(self, burst: InBurst, nodes: Sequence[str], start_ns: int) -> None:
        new = [node for node in nodes if (node, start_ns) not in self._quiet]
        if not new:
            return
        until = start_ns - SETTLED_NS
        spans = [inside(other, self._rule) for other in self._bursts.overlapping(until - HOUR_NS, until)]
        starts = [one for one in _starts(until - HOUR_NS, until) if not _touches(one, spans)]
        for node in new:
            self._quiet[node, start_ns] = {}
        for row in self._of_members(burst, new, starts):
            self._quiet[row["node"], start_ns].setdefault(row["nic"], _Sums()).add(row)

    def _of_members(self, burst: InBurst, nodes: Sequence[str], starts: Sequence[int]) -> Iterator[Row]:
        """Rows of hosts (no name) and of the burst's NICs, without those in which a test of ours ran."""
        loaded = {start: self._loaded(start) for start in starts}
        for row in self._rows(nodes, starts):
            node, nic = row["node"], row["nic"]
            if (not nic or f"{node}/{nic}" in burst.nics) and node not in loaded[row["start_time_ns"]]:
                yield row

    def _loaded(self, start_ns: int) -> set[str]:
        """Nodes on which a test of ours ran in a window."""
        loads = self._loading.overlapping(start_ns, start_ns + WINDOW_NS)
        tokens = [token for load in loads for token in load.tokens if token.startswith("nic:")]
        return {token.removeprefix("nic:").split("/", 1)[0] for token in tokens}


def _starts(from_ns: int, to_ns: int) -> Sequence[int]:
    """Of the windows that begin in ``[from, to)``."""
    return range(-(-from_ns // WINDOW_NS) * WINDOW_NS, to_ns, WINDOW_NS)


def _touches(start_ns: int, spans: Iterable[tuple[int, int]]) -> bool:
    return any(start_ns < end and start_ns + WINDOW_NS > begin for begin, end in spans)


def _figures(of: Nic, now: _Sums, quiet: _Sums, before: _Sums) -> list[NicFigure]:
    node, nic = of
    if not nic:
        ratio, segments = now.retransmits()
        if ratio is None or segments < MIN_SEGMENTS:
            return []
        return [
            NicFigure(node, "", "retransmit_ratio", ratio, quiet.retransmits()[0], before.retransmits()[0], segments)
        ]
    found = []
    if now.pauses:
        usual, earlier = statistics.median(quiet.pauses), max(before.pauses, default=None)
        found.append(NicFigure(node, nic, "pause_ratio", max(now.pauses), usual, earlier, len(now.pauses)))
    for what, names in DISCARDS.items():
        count = now.sum(names)
        if count:
            baseline = quiet.scaled(names, now.windows) if quiet.windows >= MIN_WINDOWS else None
            found.append(NicFigure(node, nic, what, count, baseline, before.scaled(names, now.windows), now.windows))
    return found
