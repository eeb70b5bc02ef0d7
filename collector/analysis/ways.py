"""What is known of each path's way: routers on it, by hop limits and traces, and its MTU. In the order of the log.

A path's evidence comes from one agent, in the order of its chain; what is older than the newest known is kept as a row
and changes nothing here.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collector.analysis import pooling
from collector.analysis.elements import path_name
from collector.analysis.paths import PathIndex
from collector.analysis.rules import path_mtu
from collector.model import Element, Flag, Incident, PathMtuRow, RoundTripSamples, RouteChange, RouteTraceRow
from collector.store import hops
from collector.store.rows import Values, dump, signed, unsigned

SEEN = 3  # records in a row with another hop limit: then it has changed


@dataclass(slots=True)
class PathWay:
    """One path."""

    hop_limit: int | None = None  # with which replies come
    candidate: int | None = None  # another one, seen of late
    seen: int = 0
    candidate_time_ns: int | None = None
    responders: list[list[str]] = field(default_factory=list)
    trace_reached: bool = False
    trace_time_ns: int | None = None
    mtu_bytes: int | None = None
    usual_mtu_bytes: int | None = None
    black_hole: bool = False
    mtu_time_ns: int | None = None

    @property
    def hop_count(self) -> int | None:
        """Routers on the way back."""
        return None if self.hop_limit is None else hops.hop_count(self.hop_limit)

    def values(self, path_id: int) -> Values:
        """Table row."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return plain | {"path_id": signed(path_id), "responders": dump(self.responders)}

    @staticmethod
    def restore(values: Mapping[str, Any]) -> "PathWay":
        """The path again."""
        plain = {name: values[name] for name in _PLAIN}
        return PathWay(**plain, responders=json.loads(values["responders"]))


_PLAIN = (
    *("hop_limit", "candidate", "seen", "candidate_time_ns", "trace_reached", "trace_time_ns"),
    *("mtu_bytes", "usual_mtu_bytes", "black_hole", "mtu_time_ns"),
)


class Ways:
    """All paths of which something is known."""

    def __init__(self, paths: PathIndex, known: Iterable[Mapping[str, Any]] = ()) -> None:
        self._paths = paths
        self._ways = {unsigned(row["path_id"]): PathWay.restore(row) for row in known}
        self._faulty: set[int] = set()  # paths that carry less than they did, or swallow packets
        self._whole: dict[int, int] = {}  # of the others, when that was found
        for path_id, way in self._ways.items():
            self._note(path_id, way)
        self._changed: set[int] = set()
        self._changes: list[RouteChange] = []

    def get(self, path_id: int) -> PathWay | None:
        """What is known of a path."""
        return self._ways.get(path_id)

    def round_trips(self, samples: RoundTripSamples) -> None:
        """Looks at the hop limits of one record's replies."""
        if samples.hop_limits is None:
            return
        ids, limits = np.asarray(samples.path_ids).tolist(), np.asarray(samples.hop_limits).tolist()
        for at, (path_id, hop_limit) in enumerate(zip(ids, limits, strict=True)):
            way = self._ways.get(path_id)
            if not hop_limit or (way is not None and way.hop_limit == hop_limit and not way.seen):
                continue
            counts = np.asarray(samples.sample_counts)
            first = int(counts[:at].sum())
            times = np.asarray(samples.send_times_ns)
            if first < len(times):
                self._hop_limit(path_id, hop_limit, int(times[first]))

    def trace(self, row: RouteTraceRow) -> None:
        """Takes in a trace."""
        way = self._ways.setdefault(row.path_id, PathWay())
        if way.trace_time_ns is not None and row.time_ns < way.trace_time_ns:
            return
        found = hops.responders(row.hops)
        known = way.trace_time_ns is not None
        if known and hops.differs(way.responders, found, both_reached=way.trace_reached and row.reached):
            before, after = hops.text(way.responders), hops.text(found)
            self._changes.append(RouteChange(row.path_id, row.time_ns, "responders", before, after))
            way.responders = found
        else:
            way.responders = hops.merged(way.responders, found)
        way.trace_time_ns, way.trace_reached = row.time_ns, row.reached
        self._changed.add(row.path_id)

    def mtu(self, row: PathMtuRow, opened: Sequence[Incident]) -> Sequence[Flag]:
        """Takes in a path MTU check; what the rule says of it. ``opened``: the rule's open incidents."""
        index = self._paths.find(row.path_id)
        way = self._ways.setdefault(row.path_id, PathWay())
        if index is None or row.mtu_bytes is None or (way.mtu_time_ns is not None and row.time_ns < way.mtu_time_ns):
            return ()
        element = Element("path", path_name(self._paths.rows[index]))
        holder = pooling.holder(row.path_id, element, opened)
        verdict = path_mtu.judge(element, row, way.usual_mtu_bytes, holder)
        way.mtu_bytes, way.usual_mtu_bytes = row.mtu_bytes, verdict.usual_bytes
        way.black_hole, way.mtu_time_ns = row.black_hole, row.time_ns
        self._changed.add(row.path_id)
        self._note(row.path_id, way)
        checked = pooling.Checked(self._paths, self._faulty, self._whole)
        return [said for flag in verdict.flags for said in pooling.pooled(flag, row.path_id, checked, opened)]

    def _note(self, path_id: int, way: PathWay) -> None:
        """Whether the path is whole, as far as its newest check says."""
        if way.mtu_bytes is None or way.mtu_time_ns is None:
            return
        if way.black_hole or (way.usual_mtu_bytes is not None and way.mtu_bytes < way.usual_mtu_bytes):
            self._faulty.add(path_id)
            self._whole.pop(path_id, None)
        else:
            self._faulty.discard(path_id)
            self._whole[path_id] = way.mtu_time_ns

    def take_changed(self) -> list[Values]:
        """Rows that changed since last asked."""
        rows = [self._ways[path_id].values(path_id) for path_id in sorted(self._changed)]
        self._changed.clear()
        return rows

    def take_changes(self) -> list[RouteChange]:
        """Changes found since last asked."""
        found, self._changes = self._changes, []
        return found

    def _hop_limit(self, path_id: int, hop_limit: int, time_ns: int) -> None:
        way = self._ways.setdefault(path_id, PathWay())
        self._changed.add(path_id)
        if way.hop_limit is None or hop_limit == way.hop_limit:
            way.hop_limit, way.candidate, way.seen, way.candidate_time_ns = hop_limit, None, 0, None
            return
        if hop_limit != way.candidate:
            way.candidate, way.seen, way.candidate_time_ns = hop_limit, 0, time_ns
        way.seen += 1
        if way.seen < SEEN or way.candidate_time_ns is None:
            return
        before, after = hops.hop_count(way.hop_limit), hops.hop_count(hop_limit)
        self._changes.append(RouteChange(path_id, way.candidate_time_ns, "hop_count", str(before), str(after)))
        way.hop_limit, way.candidate, way.seen, way.candidate_time_ns = hop_limit, None, 0, None
