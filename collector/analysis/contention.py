"""Bursts against the windows: what the rule of burst contention looks at, and which incidents began inside a burst."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from collector.analysis import statistics
from collector.analysis.doubts import Doubts
from collector.analysis.loading import Loading
from collector.analysis.nic_figures import NicFigures
from collector.analysis.occasions import Occasions, inside, touched, touched_mask
from collector.analysis.paths import Indexes, PathIndex
from collector.analysis.rounds import Rounds
from collector.analysis.rules import burst_contention, delay, loss
from collector.analysis.rules.burst_contention import NEVER, ContentionView
from collector.analysis.rules.burst_figures import InBurst
from collector.analysis.usual import Usual
from collector.analysis.views import column
from collector.analysis.window import BUCKET_NS, SECOND, WINDOW_NS
from collector.config import Rules
from collector.model import Element, Flag, Incident

LOOK_BACK_NS = 60 * SECOND  # of a long burst the last minute counts, and the minute before it
FORGOTTEN_NS = 2 * 3600 * SECOND  # no burst is longer than an hour
P_BEFORE = 1e-3  # in doubt whether it began before, it did
Floats = NDArray[np.float64]


Windows = tuple[PathIndex, Rounds, Loading, Doubts]


def _rank(burst: InBurst) -> tuple[bool, bool, int, str]:
    """Which of several bursts a trouble is laid to: what a trainer marked, who sends, who began."""
    return not burst.marked, burst.kind != "save", burst.start_time_ns, burst.burst_id


def _ids(burst: InBurst) -> set[str]:
    """What it is, and what it was called before it was known to be one of many nodes."""
    return {burst.burst_id, *burst.members}


class Contention:
    """Asks the rule about each burst of the moment."""

    def __init__(self, windows: Windows, usual: Usual, bursts: Occasions, figures: NicFigures, rules: Rules) -> None:
        self._paths, self._rounds, self._loading, self._doubts = windows
        self._usual, self._bursts, self._figures, self._rules = usual, bursts, figures, rules

    def judge(self, time_ns: int, opened: Sequence[Incident]) -> list[Flag]:
        """Flags of all bursts at a moment; ``opened`` are the open incidents of all rules."""
        rule = self._rules.burst_contention
        mine = [incident for incident in opened if incident.rule == burst_contention.RULE]
        self._figures.forget(time_ns - FORGOTTEN_NS)
        bursts = self._bursts.overlapping(time_ns - rule.after - 2 * BUCKET_NS, time_ns + rule.before)
        flags: list[Flag] = []
        taken: set[Element] = set()
        explained: set[str] = set()  # paths
        ranked = sorted(bursts, key=_rank)
        rank_of = {burst_id: place for place, burst in enumerate(ranked) for burst_id in _ids(burst)}
        for place, burst in enumerate(ranked):
            of_burst = [incident for incident in mine if incident.values["burst_id"] in _ids(burst)]
            # What is laid to a burst that goes before, or to one that is over, is not laid to this one.
            others = {
                incident.element: incident
                for incident in mine
                if incident not in of_burst and rank_of.get(str(incident.values["burst_id"]), -1) < place
            }
            for flag in burst_contention.judge(self._view(burst, time_ns, opened), of_burst, rule, self._rules.loss):
                if flag.raised and (flag.element in taken or flag.element in others or explained & set(flag.children)):
                    continue
                flags.append(flag)
                taken.add(flag.element)
                explained |= set(flag.children)
        there = {burst_id for burst in bursts for burst_id in _ids(burst)}
        for incident in mine:
            if incident.values["burst_id"] not in there:
                since = {"clean_since_ns": incident.updated_time_ns}
                gone = Flag(
                    incident.rule, burst_contention.VERSION, incident.element, time_ns, incident.severity, False, since
                )
                flags.append(gone)
        return flags

    def told_of(self, flags: Sequence[Flag], opened: Sequence[Incident], time_ns: int) -> list[Flag]:
        """Loss and delay flags with what bursts have to do with them.

        ``during`` is ``checkpoint`` or ``burst`` where the incident began inside one, with its id; where one came
        later that touches the same paths, ``predates_burst`` names it.
        """
        told = []
        for flag in flags:
            if not flag.raised:
                told.append(flag)
                continue
            known = next((one for one in opened if one.element in (flag.element, *flag.replaces)), None)
            told.append(replace(flag, values={**flag.values, **self._relation(flag, known, time_ns)}))
        return told

    def _relation(self, flag: Flag, known: Incident | None, time_ns: int) -> dict[str, str]:
        if known is not None and known.values.get("during"):
            return {key: str(known.values[key]) for key in ("during", "burst_id")}
        rule = self._rules.burst_contention
        opened_ns = known.opened_time_ns if known is not None else time_ns
        # A delay must have lasted for this long before it is flagged, and loss is seen within seconds.
        began_ns = opened_ns - (self._rules.delay.over if flag.rule == delay.RULE else 0)
        paths = self._paths.membership.paths_of(flag.element)
        predates = ""
        near = self._bursts.overlapping(began_ns - rule.after, time_ns + rule.before)
        for burst in sorted(near, key=_rank):
            if not np.isin(paths, touched(self._paths, burst)).any():
                continue
            start, end = inside(burst, rule)
            slack = WINDOW_NS if flag.rule == delay.RULE else 0
            if began_ns + slack >= start and began_ns <= end and not self._was_lossy(paths, burst, flag.rule):
                return {"during": burst.during, "burst_id": burst.burst_id}
            predates = predates or burst.burst_id
        return {"during": "", **({"predates_burst": predates} if predates else {})}

    def _was_lossy(self, paths: Indexes, burst: InBurst, rule: str) -> bool:
        """Whether these paths lost more than usual in the minute before a burst."""
        if rule != loss.RULE:
            return False
        edge = inside(burst, self._rules.burst_contention)[0] // BUCKET_NS * BUCKET_NS
        sent, lost = self._counts(edge - LOOK_BACK_NS, LOOK_BACK_NS // BUCKET_NS)
        earlier = self._in_others(burst, edge)
        sent, lost = np.where(earlier, 0, sent), np.where(earlier, 0, lost)
        bad, total = int(lost[paths].sum()), int(sent[paths].sum())
        if bad < 2:
            return False
        weights = sent[paths].sum(axis=1)
        usual = float((weights * self._usual.loss_ratios()[paths]).sum() / total)
        return statistics.binomial_tail(bad, total, usual) < P_BEFORE

    # ------------------------------------------------------------ what the rule looks at

    def _view(self, burst: InBurst, time_ns: int, opened: Sequence[Incident]) -> ContentionView:
        rule = self._rules.burst_contention
        start, end = inside(burst, rule)
        edge = start // BUCKET_NS * BUCKET_NS
        until = min(time_ns, -(-end // BUCKET_NS) * BUCKET_NS)
        from_ns = max(edge, until - LOOK_BACK_NS)
        mine = np.zeros(len(self._paths), np.bool_)
        mine[touched(self._paths, burst)] = True
        p99 = self._usual.p99_ns()
        first_slow = self._first_slow(p99)
        now = self._all(from_ns, max((until - from_ns) // BUCKET_NS, 0), mine, first_slow)
        earlier = self._in_others(burst, edge)
        before = self._all(edge - LOOK_BACK_NS, LOOK_BACK_NS // BUCKET_NS, mine, first_slow)
        accused = {
            incident.element: float(incident.values["loss_ratio"]) if incident.rule == loss.RULE else NEVER
            for incident in opened
            if incident.rule in (loss.RULE, delay.RULE)
            and incident.opened_time_ns < start
            # What another burst began is over with it, or shows in the minute between.
            and not incident.values.get("during")
        }
        rows = self._paths.rows
        return ContentionView(
            time_ns=time_ns,
            burst=burst,
            from_ns=from_ns,
            sent=now[0],
            lost=now[1],
            samples=now[2],
            slow=now[3],
            before=(
                np.where(earlier, 0, before[0]),
                np.where(earlier, 0, before[1]),
                np.where(earlier, 0, before[2]),
                np.where(earlier, 0, before[3]),
            ),
            baseline_loss=self._usual.loss_ratios(),
            baseline_p99_ns=p99,
            membership=self._paths.membership,
            path_ids=self._paths.ids,
            lanes=[row.source.lane for row in rows],
            ends=[[row.source.node, *([row.destination.node] if row.destination else [])] for row in rows],
            accused_before=accused,
            nics=self._figures.of(burst, time_ns),
            p99_ns=lambda paths: self._p99_of(paths, from_ns, until),
        )

    def _in_others(self, burst: InBurst, edge_ns: int) -> NDArray[np.bool_]:
        """[path, bucket] of the minute before: inside another burst, whose harm is not what was there anyway."""
        return touched_mask(
            self._paths,
            self._bursts,
            self._rules.burst_contention,
            edge_ns - LOOK_BACK_NS,
            step_ns=BUCKET_NS,
            steps=LOOK_BACK_NS // BUCKET_NS,
            but=burst.burst_id,
        )

    def _first_slow(self, p99_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """[path]: first bin that counts as slow; beyond the last one where nothing is usual yet."""
        rule = self._rules.burst_contention
        limit = np.minimum(np.round(p99_ns * rule.delay_factor), p99_ns + rule.delay_above).astype(np.int64)
        return np.where(p99_ns >= 0, statistics.bins_above(limit), statistics.BINS)

    def _all(
        self, from_ns: int, steps: int, mine: NDArray[np.bool_], first_slow: NDArray[np.int64]
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Sent, lost, samples with a delay, slow ones: [path, bucket] from ``from_ns`` on."""
        sent, lost = self._counts(from_ns, steps)
        size = len(self._paths)
        samples, slow = np.zeros((size, steps)), np.zeros((size, steps))
        for start in range(from_ns // WINDOW_NS * WINDOW_NS, from_ns + steps * BUCKET_NS, WINDOW_NS):
            window = self._rounds.find(start)
            if window is None:
                continue
            paths, buckets, bins = window.delays()
            fit = ~self._doubts.mask(start, 1)[np.minimum(paths, size - 1), 0]
            paths, buckets, bins = paths[fit], buckets[fit], bins[fit]
            buckets += (start - from_ns) // BUCKET_NS
            here = (buckets >= 0) & (buckets < steps) & (paths < size)
            here &= mine[np.minimum(paths, size - 1)] & (first_slow[np.minimum(paths, size - 1)] < statistics.BINS)
            paths, buckets, bins = paths[here], buckets[here], bins[here]
            np.add.at(samples, (paths, buckets), 1)
            late = bins >= first_slow[paths]
            np.add.at(slow, (paths[late], buckets[late]), 1)
        hidden = self._loading.mask(from_ns, BUCKET_NS, steps) | ~mine[:, None]
        return tuple(np.where(hidden, 0.0, values) for values in (sent, lost, samples, slow))  # type: ignore[return-value]

    def _counts(self, from_ns: int, steps: int) -> tuple[Floats, Floats]:
        """Sent and lost, [path, bucket] from ``from_ns`` on."""
        size = len(self._paths)
        if not steps:
            return np.zeros((size, 0)), np.zeros((size, 0))
        first = from_ns // WINDOW_NS * WINDOW_NS
        windows = [self._rounds.find(start) for start in range(first, from_ns + steps * BUCKET_NS, WINDOW_NS)]
        skip = (from_ns - first) // BUCKET_NS
        sent, lost = (
            np.concatenate([column(window, name, size) for window in windows], axis=1)[:, skip : skip + steps]
            for name in ("sent", "lost")
        )
        return sent.astype(np.float64), lost.astype(np.float64)

    def _p99_of(self, paths: Indexes, from_ns: int, until_ns: int) -> int:
        total = np.zeros(statistics.BINS, np.int64)
        for start in range(from_ns // WINDOW_NS * WINDOW_NS, until_ns, WINDOW_NS):
            window = self._rounds.find(start)
            if window is not None:
                of, buckets, bins = window.delays()
                times = start + buckets * BUCKET_NS
                here = np.isin(of, paths) & (times >= from_ns) & (times < until_ns)
                total += np.bincount(bins[here], minlength=statistics.BINS)
        return int(statistics.histogram_quantiles(total[None, :], 99)[0])
