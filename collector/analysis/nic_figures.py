"""What NICs and TCP counted inside a burst, in the minute before it, and in their quiet hour: rows of 10 s in, figures
for the rule of contention out."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from collector.analysis import statistics
from collector.analysis.loading import Loading
from collector.analysis.occasions import Occasions, inside
from collector.analysis.rules.burst_figures import InBurst, NicFigure
from collector.analysis.window import SECOND, WINDOW_NS
from collector.config import BurstContentionRule

Row = Mapping[str, Any]
RowsOf = Callable[[str, int, int], Sequence[Row]]  # node, from, to: its rows of nic_windows by start
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


class NicFigures:
    """Asks the rows of a burst's members. What the quiet hour says is read once a burst."""

    def __init__(self, rows: RowsOf, loading: Loading, bursts: Occasions, rule: BurstContentionRule) -> None:
        self._rows, self._loading, self._bursts, self._rule = rows, loading, bursts, rule
        self._quiet: dict[tuple[str, int], dict[str, list[Row]]] = {}  # node and start of the burst -> rows by NIC

    def of(self, burst: InBurst, time_ns: int) -> list[NicFigure]:
        """Figures of the nodes of a burst, from its start up to ``time_ns``."""
        start, end = inside(burst, self._rule)
        edge = (start + WINDOW_NS // 2) // WINDOW_NS * WINDOW_NS  # windows of which more than half lies inside
        found: list[NicFigure] = []
        for node in burst.nodes[:MAX_NODES]:
            mine = {nic.split("/", 1)[1] for nic in burst.nics if nic.startswith(f"{node}/")}
            now = self._by_nic(node, mine, max(edge, time_ns - LOOK_BACK_NS), min(time_ns, end))
            if not any(now.values()):
                continue
            quiet = self._quiet_hour(node, mine, start)
            before = self._by_nic(node, mine, edge - BEFORE_NS, edge)
            for nic, rows in now.items():
                found += _figures(node, nic, rows, quiet.get(nic, []), before.get(nic, []))
        return found

    def forget(self, before_ns: int) -> None:
        """Lets go of what was read for bursts that started before a time."""
        for key in [key for key in self._quiet if key[1] < before_ns]:
            del self._quiet[key]

    def _quiet_hour(self, node: str, nics: set[str], start_ns: int) -> dict[str, list[Row]]:
        key = (node, start_ns)
        if key not in self._quiet:
            until = start_ns - SETTLED_NS
            spans = [inside(burst, self._rule) for burst in self._bursts.overlapping(until - HOUR_NS, until)]
            rows = self._by_nic(node, nics, until - HOUR_NS, until)
            self._quiet[key] = {nic: [row for row in own if not _touches(row, spans)] for nic, own in rows.items()}
        return self._quiet[key]

    def _by_nic(self, node: str, nics: set[str], from_ns: int, to_ns: int) -> dict[str, list[Row]]:
        """Rows of the host (no name) and of some NICs, without those in which a test of ours ran."""
        found: dict[str, list[Row]] = {}
        for row in self._rows(node, from_ns, to_ns):
            if (not row["nic"] or row["nic"] in nics) and not self._is_loaded(node, row["start_time_ns"]):
                found.setdefault(row["nic"], []).append(row)
        return found

    def _is_loaded(self, node: str, start_ns: int) -> bool:
        loads = self._loading.overlapping(start_ns, start_ns + WINDOW_NS)
        return any(token.startswith(f"nic:{node}/") for load in loads for token in load.tokens)


def _touches(row: Row, spans: Iterable[tuple[int, int]]) -> bool:
    start = row["start_time_ns"]
    return any(start < end and start + WINDOW_NS > begin for begin, end in spans)


def _figures(node: str, nic: str, now: list[Row], quiet: list[Row], before: list[Row]) -> list[NicFigure]:
    if not nic:
        ratio, segments = _retransmits(now)
        if ratio is None or segments < MIN_SEGMENTS:
            return []
        return [
            NicFigure(node, "", "retransmit_ratio", ratio, _retransmits(quiet)[0], _retransmits(before)[0], segments)
        ]
    found = []
    paused = _pauses(now)
    if paused:
        usual, earlier = statistics.median(_pauses(quiet)), max(_pauses(before), default=None)
        found.append(NicFigure(node, nic, "pause_ratio", max(paused), usual, earlier, len(paused)))
    for what, names in DISCARDS.items():
        count = _sum(now, names)
        if count:
            baseline = _scaled(quiet, names, len(now)) if len(quiet) >= MIN_WINDOWS else None
            found.append(NicFigure(node, nic, what, count, baseline, _scaled(before, names, len(now)), len(now)))
    return found


def _counts(row: Row) -> Mapping[str, int]:
    counts = row["counts"]
    return json.loads(counts) if isinstance(counts, str) else counts or {}


def _sum(rows: Iterable[Row], names: Sequence[str]) -> int:
    return sum(_counts(row).get(name, 0) for row in rows for name in names)


def _scaled(rows: Sequence[Row], names: Sequence[str], windows: int) -> float | None:
    """As many as there would be in so many windows; None without any window to go by."""
    return _sum(rows, names) * windows / len(rows) if rows else None


def _retransmits(rows: Sequence[Row]) -> tuple[float | None, int]:
    segments = _sum(rows, ("tcp_segments_sent",))
    return (_sum(rows, ("tcp_segments_retransmitted",)) / segments if segments else None), segments


def _pauses(rows: Iterable[Row]) -> list[float]:
    return [float(row["receive_pause_ratio"]) for row in rows if row["receive_pause_ratio"] is not None]
