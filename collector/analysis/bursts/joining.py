"""Trainers' marks: which node belongs to which job, and which mark speaks of which cluster burst. Pure."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bandwitness.v1.record_pb2 import MARK_PHASE_BEGIN
from collector.analysis.bursts.clusters import Group, Nodes
from collector.model import MarkRow

SECOND = 1_000_000_000
EARLY_NS = 2 * SECOND  # a burst may be seen so long before the mark that explains it
AFTER_NS = 30 * SECOND  # an asynchronous save copies to host memory first; its traffic follows
JOB_NS = 6 * 3600 * SECOND  # a node belongs to the job that spoke on it last, for so long
JOB_AHEAD_NS = 5 * SECOND  # the first mark of a job speaks of the burst that it begins
LOOK_BACK_NS = 3700 * SECOND  # no stretch that is still spoken of began earlier
MAX_MARKS = 200_000
SAVING = frozenset({"checkpoint", "save"})
RESTORING = frozenset({"restore", "load", "resume"})


@dataclass(frozen=True, slots=True)
class Said:
    """One stretch that a trainer spoke of: from its begin to its end, as far as both are known."""

    node: str
    kind: str
    job: str
    step: int | None
    from_ns: int
    to_ns: int  # the begin itself where no end is known
    labels: tuple[tuple[str, str], ...] = ()


def burst_kind(mark_kind: str) -> str:
    """What a burst that a mark speaks of looks like; empty: nothing that the network shows."""
    word = mark_kind.lower()
    return "save" if word in SAVING else "restore" if word in RESTORING else ""


def said(marks: Iterable[MarkRow]) -> list[Said]:
    """Begins with their ends, by node, job, kind, step and rank. An end without a begin says nothing of when."""
    found: list[Said] = []
    waiting: dict[tuple[object, ...], int] = {}
    for mark in sorted(marks, key=lambda mark: (mark.time_ns, mark.source.position, mark.source.record_index)):
        key = (mark.node, mark.job, mark.kind, mark.step, mark.rank)
        if mark.phase == MARK_PHASE_BEGIN:
            waiting[key] = len(found)
            labels = tuple(sorted(mark.labels.items()))
            found.append(Said(mark.node, mark.kind, mark.job, mark.step, mark.time_ns, mark.time_ns, labels))
        elif (place := waiting.pop(key, None)) is not None:
            begin = found[place]
            found[place] = Said(
                begin.node, begin.kind, begin.job, begin.step, begin.from_ns, mark.time_ns, begin.labels
            )
    return found


def speaks_of(one: Said, kind: str, from_ns: int, to_ns: int, error_ns: int) -> bool:
    """Whether a mark's stretch and a burst's are of one kind and meet."""
    if burst_kind(one.kind) != kind:
        return False
    return one.from_ns <= to_ns + error_ns + EARLY_NS and max(one.to_ns, one.from_ns + AFTER_NS) >= from_ns - error_ns


@dataclass(slots=True)
class Marks:
    """Marks of a day back."""

    _by_time: list[tuple[int, int, int]] = field(default_factory=list)
    _rows: dict[tuple[int, int, int], MarkRow] = field(default_factory=dict)
    _of_node: dict[str, list[tuple[int, str]]] = field(default_factory=dict)  # times, job
    _of_job: dict[str, list[tuple[int, str]]] = field(default_factory=dict)  # times, node

    def add(self, mark: MarkRow) -> None:
        """Adds one; the oldest go where there are too many."""
        key = (mark.time_ns, mark.source.position, mark.source.record_index)
        if key in self._rows:
            return
        insort(self._by_time, key)
        self._rows[key] = mark
        if mark.job:
            insort(self._of_node.setdefault(mark.node, []), (mark.time_ns, mark.job))
            insort(self._of_job.setdefault(mark.job, []), (mark.time_ns, mark.node))
        if len(self._by_time) > MAX_MARKS:
            self.forget(self._by_time[MAX_MARKS // 10][0])

    def between(self, from_ns: int, to_ns: int) -> list[MarkRow]:
        """Marks of ``[from, to)``."""
        first, last = (bisect_left(self._by_time, (time_ns, 0, 0)) for time_ns in (from_ns, to_ns))
        return [self._rows[key] for key in self._by_time[first:last]]

    def job_of(self, node: str, time_ns: int) -> str:
        """The job that spoke on a node last."""
        spoken = self._of_node.get(node, [])
        place = bisect_right(spoken, (time_ns + JOB_AHEAD_NS, "\U0010ffff"))
        if not place or spoken[place - 1][0] < time_ns - JOB_NS:
            return ""
        return spoken[place - 1][1]

    def nodes_of(self, job: str, time_ns: int) -> Nodes:
        """Nodes whose job it is."""
        spoken = self._of_job.get(job, [])
        first = bisect_left(spoken, (time_ns - JOB_NS, ""))
        last = bisect_right(spoken, (time_ns + JOB_AHEAD_NS, "\U0010ffff"))
        return frozenset(node for node in {node for _, node in spoken[first:last]} if self.job_of(node, time_ns) == job)

    def of(self, group: Group, kind: str, span: tuple[int, int], error_ns: int) -> list[Said]:
        """Marks that speak of a cluster burst, by begin: of its nodes, or of another node of a job on one of them."""
        nodes = set(group.nodes)
        jobs = {self.job_of(node, span[0]) for node in nodes} - {""}
        marks = self.between(span[0] - LOOK_BACK_NS, span[1] + EARLY_NS + error_ns + 1)
        return [
            one
            for one in said(mark for mark in marks if mark.node in nodes or mark.job in jobs)
            if speaks_of(one, kind, *span, error_ns)
        ]

    def forget(self, before_ns: int) -> None:
        """Lets go of marks before a time."""
        place = bisect_left(self._by_time, (before_ns, 0, 0))
        for key in self._by_time[:place]:
            del self._rows[key]
        del self._by_time[:place]
        for spoken in (self._of_node, self._of_job):
            for name in list(spoken):
                spoken[name] = [entry for entry in spoken[name] if entry[0] >= before_ns]
                if not spoken[name]:
                    del spoken[name]


def newest(marks: Sequence[Said]) -> Said | None:
    """The one a burst is named after: the first begin, with a step if any has one."""
    return min(marks, key=lambda one: (one.step is None, one.from_ns, one.node), default=None)
