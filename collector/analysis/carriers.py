"""Reachability, loss and delay of each carrier, from each site: what several uplinks (BGP 多线) are bought for. Pure.

All paths from a site's nodes to the targets of one carrier add up, each kind of probe by itself: a connect is not an
echo (RFC 2330, Type-P). Targets without a carrier in the configuration belong to none. The carrier is no part of a
path's identity, so renaming one renames its past.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from collector.analysis import statistics
from collector.analysis.elements import Topology
from collector.analysis.judge import Network
from collector.analysis.views import SPAN_NS, column
from collector.analysis.window import IS_LOST, IS_SENT, WINDOW_NS
from collector.model import CarrierStatus, PathRow, StoredWindow, TargetHops

Key = tuple[str, str, int]  # site, carrier, protocol


@dataclass(slots=True)
class _Tally:
    """Sums of one carrier."""

    targets: set[str] = field(default_factory=set)
    reachable: set[str] = field(default_factory=set)
    sent: int = 0
    lost: int = 0
    ours: int = 0
    histogram: statistics.Ints = field(default_factory=lambda: np.zeros(statistics.BINS, np.int64))


class Carriers:
    """Sums windows up by carrier."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._tallies: dict[Key, _Tally] = {}

    def add_window(self, path: PathRow, stored: StoredWindow) -> None:
        """Takes in one window of one path; whatever is of no carrier is left out."""
        row = stored.row
        tally = self._tally(path)
        if tally is None:
            return
        ours = row.unresolved + row.send_failed + row.skipped
        self._count(tally, path, row.sent, row.lost + row.unreachable + row.corrupt, ours)
        if row.loaded_by is None and row.doubtful is None:
            codes, counts = np.frombuffer(stored.histogram, "<u4").reshape(2, -1).astype(np.int64)
            np.add.at(tally.histogram, codes % statistics.BINS, counts)

    def add_outcomes(self, path: PathRow, outcomes: statistics.Ints, histogram: statistics.Ints | None) -> None:
        """The same of a window in memory: packets by outcome, and its delays where they are fit."""
        tally = self._tally(path)
        if tally is None:
            return
        sent, lost = int(outcomes[IS_SENT[1:]].sum()), int(outcomes[IS_LOST[1:]].sum())
        self._count(tally, path, sent, lost, int(outcomes.sum()) - sent)
        if histogram is not None:
            tally.histogram += histogram

    def statuses(self, from_ns: int, to_ns: int) -> list[CarrierStatus]:
        """One row a site, carrier and kind of probe, in that order."""
        return [
            CarrierStatus(
                site=site,
                carrier=carrier,
                protocol=protocol,
                from_time_ns=from_ns,
                to_time_ns=to_ns,
                targets=len(tally.targets),
                targets_reachable=len(tally.reachable),
                unreachable_targets=sorted(tally.targets - tally.reachable),
                sent=tally.sent,
                lost=tally.lost,
                loss_ratio=tally.lost / tally.sent if tally.sent else None,
                not_sent=tally.ours,
                delay_samples=int(tally.histogram.sum()),
                delay_p50_ns=_quantile(tally.histogram, 50),
                delay_p99_ns=_quantile(tally.histogram, 99),
            )
            for (site, carrier, protocol), tally in sorted(self._tallies.items())
        ]

    def _tally(self, path: PathRow) -> _Tally | None:
        place, carrier = self._topology.place(path.source.node), self._topology.carrier(path.target)
        if place is None or not carrier:
            return None
        return self._tallies.setdefault((place.site, carrier, path.protocol), _Tally())

    @staticmethod
    def _count(tally: _Tally, path: PathRow, sent: int, lost: int, ours: int) -> None:
        if sent:  # what could not even be sent says nothing of the target
            tally.targets.add(path.target or "")
        if sent > lost:
            tally.reachable.add(path.target or "")
        tally.sent += sent
        tally.lost += lost
        tally.ours += ours


def of_windows(
    topology: Topology, rows: Iterable[tuple[PathRow, StoredWindow]], span: tuple[int, int]
) -> Sequence[CarrierStatus]:
    """Carriers over stored windows."""
    carriers = Carriers(topology)
    for path, stored in rows:
        carriers.add_window(path, stored)
    return carriers.statuses(*span)


def with_hops(
    topology: Topology, statuses: Iterable[CarrierStatus], known: Iterable[tuple[PathRow, int]]
) -> Sequence[CarrierStatus]:
    """The same, with how many routers replies of each target pass; ``known`` are paths to targets with their hop
    counts. A change of them is a cheap sign that a target is reached another way."""
    counts: dict[Key, dict[str, set[int]]] = {}
    for path, hop_count in known:
        place, carrier = topology.place(path.source.node), topology.carrier(path.target)
        if place is not None and carrier:
            of_carrier = counts.setdefault((place.site, carrier, path.protocol), {})
            of_carrier.setdefault(path.target or "", set()).add(hop_count)
    return [
        replace(
            status,
            hops=[
                TargetHops(target, sorted(found))
                for target, found in sorted(counts.get((status.site, status.carrier, status.protocol), {}).items())
            ],
        )
        for status in statuses
    ]


def newest(network: Network, through_ns: int) -> Sequence[CarrierStatus]:
    """Carriers over the last minute of windows that have ended by a moment."""
    carriers = Carriers(network.paths.topology)
    chosen = [index for index, row in enumerate(network.paths.rows) if network.paths.topology.carrier(row.target)]
    to_ns = through_ns // WINDOW_NS * WINDOW_NS
    if not chosen:
        return []
    for start in range(to_ns - SPAN_NS, to_ns, WINDOW_NS):
        window = network.rounds.find(start)
        if window is None:
            continue
        size = len(network.paths)
        outcomes, histograms = column(window, "outcomes", size), column(window, "histogram", size)
        for index in chosen:
            fit = index not in window.loaded_by and index not in window.doubtful
            carriers.add_outcomes(network.paths.rows[index], outcomes[index], histograms[index] if fit else None)
    return carriers.statuses(to_ns - SPAN_NS, to_ns)


def _quantile(histogram: statistics.Ints, percent: int) -> int | None:
    edge = int(statistics.histogram_quantiles(histogram[None, :], percent)[0])
    return edge if edge >= 0 else None
