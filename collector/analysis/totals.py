"""Running totals for metrics: they begin with the process and move only on young samples."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from bandwitness.v1.record_pb2 import LOSS_DIRECTION_FORWARD, LOSS_DIRECTION_REVERSE, PACKET_MARK_DUPLICATE
from collector.analysis.elements import Topology
from collector.analysis.paths import PathIndex
from collector.analysis.snapshot import DELAY_BOUNDS_NS, YOUNG_NS, DelayHistogram, PathTotals
from collector.analysis.window import OUTCOMES
from collector.model import OneWayLossRow, PathRow, PathStatus, RoundTripSamples, RoundTripWindow
from collector.store.status import round_trip_status

_BOUNDS = np.array(DELAY_BOUNDS_NS, np.int64)
Group = tuple[str, str, str]  # racks (or a target) at both ends, lane


class Totals:
    """Packets by path, delays by pair of racks and lane, and each path's newest closed window."""

    def __init__(self, paths: PathIndex) -> None:
        self._paths = paths
        self._outcomes = np.zeros((0, OUTCOMES), np.int64)
        self._marks = np.zeros((0, 2), np.int64)  # duplicates, late
        self._one_way: dict[int, tuple[int, int]] = {}  # path id -> lost forward, reverse
        self._groups: list[Group] = []
        self._group_of = np.zeros(0, np.intp)  # [path]: -1 until asked for
        self._delays = np.zeros((0, len(_BOUNDS) + 1), np.int64)  # [group, bin]
        self._delay_sums = np.zeros(0, np.int64)
        self._statuses: dict[int, PathStatus] = {}

    def add(self, samples: RoundTripSamples, received_time_ns: int) -> None:
        """Counts the young samples of a record."""
        per_path = self._paths.indexes(np.asarray(samples.path_ids).tolist())
        self._grow(len(self._paths))
        counts = np.asarray(samples.sample_counts)
        times = np.asarray(samples.send_times_ns)
        chosen = times >= received_time_ns - YOUNG_NS
        if not chosen.any():
            return
        indexes = np.repeat(per_path, counts)
        outcomes = np.asarray(samples.outcomes)
        np.add.at(self._outcomes, (indexes[chosen], outcomes[chosen].astype(np.intp) - 1), 1)
        for path_id, _, kind, _ in samples.marks:
            known = self._paths.find(path_id)
            if known is not None and known < len(self._marks):
                self._marks[known, 0 if kind == PACKET_MARK_DUPLICATE else 1] += 1
        self._add_delays(indexes, np.asarray(samples.round_trip_delays_ns), chosen)

    def add_one_way(self, rows: Iterable[OneWayLossRow], received_time_ns: int) -> None:
        """Counts young losses whose direction is known."""
        for row in rows:
            if row.send_time_ns >= received_time_ns - YOUNG_NS:
                forward, reverse = self._one_way.get(row.path_id, (0, 0))
                forward += row.lost * (row.direction == LOSS_DIRECTION_FORWARD)
                reverse += row.lost * (row.direction == LOSS_DIRECTION_REVERSE)
                self._one_way[row.path_id] = (forward, reverse)

    def _add_delays(self, indexes: NDArray[np.intp], delays: NDArray[np.int64], chosen: NDArray[np.bool_]) -> None:
        groups = self._group_of[indexes]
        chosen = chosen & (delays >= 0) & (groups >= 0)
        groups, mine = groups[chosen], delays[chosen]
        np.add.at(self._delays, (groups, np.searchsorted(_BOUNDS, mine, side="left")), 1)
        np.add.at(self._delay_sums, groups, mine)

    def newest(self, rows: Iterable[RoundTripWindow]) -> None:
        """Notes closed windows, where they are the newest of their paths."""
        for row in rows:
            known = self._statuses.get(row.path_id)
            if known is None or known.window_start_time_ns is None or known.window_start_time_ns <= row.start_time_ns:
                index = self._paths.find(row.path_id)
                if index is not None:
                    self._statuses[row.path_id] = round_trip_status(self._paths.rows[index], row)

    def statuses(self) -> dict[int, PathStatus]:
        """Every defined round-trip path with its newest closed window."""
        if len(self._statuses) < len(self._paths):
            for row in self._paths.rows:
                if row.path_id not in self._statuses:
                    self._statuses[row.path_id] = round_trip_status(row, None)
        return dict(self._statuses)

    def by_path(self) -> Mapping[int, PathTotals]:
        """Totals of all defined paths, as of now."""
        return _Frozen(self._paths, self._outcomes.copy(), self._marks.copy(), dict(self._one_way))

    def delays(self) -> list[DelayHistogram]:
        """Delay histograms of all pairs of racks."""
        return [
            DelayHistogram(*group, tuple(self._delays[number].tolist()), int(self._delay_sums[number]))
            for number, group in sorted(enumerate(self._groups), key=lambda entry: entry[1])
        ]

    def _grow(self, size: int) -> None:
        extra = size - len(self._outcomes)
        if extra > 0:
            extra = max(extra, len(self._outcomes))
            self._outcomes = np.concatenate([self._outcomes, np.zeros((extra, OUTCOMES), np.int64)])
            self._marks = np.concatenate([self._marks, np.zeros((extra, 2), np.int64)])
            self._group_of = np.concatenate([self._group_of, np.full(extra, -1, np.intp)])
        for index in np.flatnonzero(self._group_of[:size] < 0).tolist():
            self._group_of[index] = self._group_number(_group(self._paths.rows[index], self._paths.topology))

    def _group_number(self, group: Group) -> int:
        if group not in self._groups:
            self._groups.append(group)
            self._delays = np.concatenate([self._delays, np.zeros((1, len(_BOUNDS) + 1), np.int64)])
            self._delay_sums = np.concatenate([self._delay_sums, np.zeros(1, np.int64)])
        return self._groups.index(group)


class _Frozen(Mapping[int, PathTotals]):
    """Totals as they were; an entry is made when it is asked for."""

    def __init__(
        self,
        paths: PathIndex,
        outcomes: NDArray[np.int64],
        marks: NDArray[np.int64],
        one_way: Mapping[int, tuple[int, int]],
    ) -> None:
        self._indexes = {row.path_id: index for index, row in enumerate(paths.rows[: len(outcomes)])}
        self._sources = list(paths.agents)
        self._outcomes, self._marks, self._one_way = outcomes, marks, one_way

    def __getitem__(self, path_id: int) -> PathTotals:
        index = self._indexes[path_id]
        duplicates, late = self._marks[index].tolist()
        one_way = self._one_way.get(path_id, (0, 0))
        outcomes = tuple(self._outcomes[index].tolist())
        return PathTotals(path_id, self._sources[index], outcomes, duplicates, late, *one_way)

    def __iter__(self) -> Iterator[int]:
        return iter(self._indexes)

    def __len__(self) -> int:
        return len(self._indexes)


def _group(row: PathRow, topology: Topology) -> Group:
    source = topology.place(row.source.node)
    far = topology.place(row.destination.node) if row.destination is not None else None
    target = row.target or (row.destination.node if row.destination else "")
    return (source.rack if source else row.source.node, far.rack if far else target, row.source.lane)
