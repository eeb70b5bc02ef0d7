"""Burst contention: what a burst (a checkpoint, a restore) does to other traffic on the same NICs and uplinks. Pure.

Inside a burst, from 2 s before its start to 5 s after its end, paths that share a NIC or an uplink with it are compared
with the same paths' own quiet hour: a packet is *hurt* when it was lost, or came back slower than three times the
usual p99 or 200 µs above it. The best explanation of the hurt packets is named, as for loss and delay, if its loss or
its share of slow packets alone is beyond chance. To each is added what the NICs and the burst itself show: segments
sent again, pauses, discards, a node that writes at less than half of its job's rate, a burst that takes far longer
than usual. Where only these broke, the NIC, node or job is named.

Trouble that was there before the burst is not laid to it: what was lost or slow in the minute before is explained
first, and a part found so is blamed only for ten times the loss it had, and for no delay.

One incident for each burst and element. It ends 5 s after the burst.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from collector.analysis import statistics
from collector.analysis.attribution import Question, Suspect, explain, suspects
from collector.analysis.paths import Indexes, Membership
from collector.analysis.rules.burst_figures import NAMES, InBurst, NicFigure, Values, beyond, broke, of_burst
from collector.analysis.window import BUCKET_NS
from collector.config import BurstContentionRule, LossRule
from collector.model import Element, Flag, Incident

RULE = "burst_contention"
VERSION = 1
SLOW_RATIO = 0.01  # what lies above a p99 by definition
MIN_SLOW = 3
MIN_BUCKETS = 2  # with slow packets: one stall of one host is no queue
NEVER = 0.99  # share of hurt packets that nothing can exceed by enough
MAX_NAMED = 16
Floats = NDArray[np.float64]
_Group = tuple[Suspect, Values, dict[Element, None]]  # who, with which figures, in whose place


@dataclass(frozen=True, slots=True)
class ContentionView:
    """What is known of one burst at ``time_ns``. Columns are 2 s buckets; paths that do not share a NIC or an uplink
    with the burst, and buckets in which a test of ours ran or the host is in doubt, are 0."""

    time_ns: int
    burst: InBurst
    from_ns: int  # where the first column of the arrays inside begins
    sent: Floats  # [path, bucket] inside
    lost: Floats
    samples: Floats  # with a delay
    slow: Floats
    before: tuple[Floats, Floats, Floats, Floats]  # the same four over the minute before
    baseline_loss: Floats  # [path]
    baseline_p99_ns: NDArray[np.int64]  # [path]; -1 without one
    membership: Membership
    path_ids: Sequence[int]
    lanes: Sequence[str]  # [path]
    ends: Sequence[Sequence[str]]  # [path]: nodes at its ends
    accused_before: Mapping[Element, float] = field(default_factory=dict)  # open before the burst: loss ratio, or NEVER
    nics: Sequence[NicFigure] = ()
    p99_ns: Callable[[Indexes], int] = lambda _: -1  # over the samples inside


def judge(
    view: ContentionView, open_incidents: Sequence[Incident], rule: BurstContentionRule, loss: LossRule
) -> list[Flag]:
    """Flags of one burst at one moment; ``open_incidents`` are this rule's on this burst."""
    burst = view.burst
    if burst.end_time_ns is not None and view.time_ns >= burst.end_time_ns + rule.after:
        return [_over(view, incident, rule) for incident in open_incidents]
    trial = _trial(view, rule, loss)
    before = [incident.element for incident in open_incidents if incident.values.get("packets_hurt", 0)]
    flags = [_flag(trial, *found) for found in _blamed(trial, before)]
    return _with_figures(view, flags, beyond(view.burst, view.nics, view.time_ns, rule), open_incidents)


def _blamed(trial: "_Trial", before: Sequence[Element]) -> list[tuple[Suspect, Values, Sequence[Element]]]:
    """What to blame, with figures and what it replaces. Loss and delay are explained apart, for a share of 1 % is much
    of the one and nothing of the other; where both speak of the same paths, the clearer explanation stands for both."""
    view = trial.view
    losses = explain(
        view.lost.sum(axis=1),
        view.sent.sum(axis=1),
        Question(view.membership, trial.expected, lambda suspect: bool(trial.loss_of(suspect.paths)), before),
    )
    delays = explain(
        trial.slow.sum(axis=1),
        trial.samples.sum(axis=1),
        Question(
            view.membership,
            np.full(len(trial.expected), SLOW_RATIO),
            lambda suspect: bool(trial.delay_of(suspect.paths)),
            before,
        ),
    )
    all_blames = [(blame, trial.loss_of) for blame in losses] + [(blame, trial.delay_of) for blame in delays]
    groups: list[_Group] = []
    for blame, of in sorted(all_blames, key=lambda one: (-one[0].suspect.score, one[0].suspect.element.name)):
        suspect = blame.suspect
        group = next((group for group in groups if np.isin(suspect.paths, group[0].paths).any()), None)
        if group is None:
            group = (suspect, {}, {})
            groups.append(group)
        named, values, replaced = group
        # On the part that is named, else on the part where it shows.
        values |= of(named.paths) or of(suspect.paths)
        replaced |= dict.fromkeys((*blame.replaces, suspect.element))
    groups = _whole(trial, groups, before)
    hurt = (view.lost + trial.slow).sum(axis=1)
    for element in before:
        # What a larger part explains as well by now is not told twice until the burst is over.
        paths = view.membership.paths_of(element)
        paths = paths[hurt[paths] > 0]
        if not any(element in (named.element, *replaced) for named, _, replaced in groups):
            heir = next((group for group in groups if np.isin(paths, group[0].paths).any()), None)
            if heir is not None:
                heir[2][element] = None
    return [
        (named, values, [one for one in replaced if one != named.element and one in before])
        for named, values, replaced in groups
        if values or named.element in before
    ]


def _whole(trial: "_Trial", groups: Sequence[_Group], before: Sequence[Element]) -> list[_Group]:
    """A part of what is blamed already stays with it: its samples may differ only by when its agents were in doubt."""
    found: list[_Group] = []
    for group in sorted(groups, key=lambda one: one[0].element not in before):
        suspect = group[0]
        for place, (known, values, replaced) in enumerate(found):
            whole = trial.view.membership.paths_of(known.element)
            if suspect.element not in before and known.element in before and np.isin(suspect.paths, whole).all():
                paths = np.union1d(known.paths, suspect.paths)
                told = trial.loss_of(paths) | trial.delay_of(paths)
                found[place] = (replace(known, paths=paths), told or values, replaced)
                break
        else:
            found.append(group)
    return sorted(found, key=lambda one: -one[0].score)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What inside the burst is asked against."""

    view: ContentionView
    rule: BurstContentionRule
    loss: LossRule
    expected: Floats  # [path]: loss ratio that is nothing new
    samples: Floats  # [path, bucket]: without those of paths that were slow before
    slow: Floats

    def loss_of(self, paths: Indexes) -> Values:
        """Figures of the loss on these paths together; empty if it is not beyond chance."""
        sent, lost = self.view.sent[paths].sum(axis=1), self.view.lost[paths].sum(axis=1)
        total, bad = int(sent.sum()), int(lost.sum())
        if bad < self.loss.min_lost:
            return {}
        usual = float((sent * self.expected[paths]).sum() / total)
        ratio = bad / total
        if (
            ratio <= self.rule.loss_ratio
            or ratio <= self.rule.loss_factor * usual
            or statistics.binomial_tail(bad, total, usual) >= self.loss.p_value
        ):
            return {}
        return {"loss_ratio": ratio, "lost": bad, "sent": total, "baseline_loss_ratio": usual}

    def delay_of(self, paths: Indexes) -> Values:
        """The same of delay."""
        by_bucket = self.slow[paths].sum(axis=0)
        slow, samples = int(by_bucket.sum()), int(self.samples[paths].sum())
        if (
            slow < MIN_SLOW
            or int((by_bucket > 0).sum()) < MIN_BUCKETS
            or slow <= SLOW_RATIO * samples
            or statistics.binomial_tail(slow, samples, SLOW_RATIO) >= self.loss.p_value
        ):
            return {}
        still = paths[self.samples[paths].sum(axis=1) > 0]
        usual = [int(value) for value in self.view.baseline_p99_ns[still] if value >= 0]
        return {
            "delay_p99_ns": self.view.p99_ns(still),
            "baseline_p99_ns": int(statistics.median(usual) or 0),
            "slow": slow,
            "samples": samples,
            "slow_ratio": slow / samples,
        }


def _trial(view: ContentionView, rule: BurstContentionRule, loss: LossRule) -> _Trial:
    """Explains what was lost or slow in the minute before, so that none of it is laid to the burst."""
    expected = view.baseline_loss.astype(np.float64)
    no_delay = np.zeros(len(expected), np.bool_)
    sent, lost, samples, slow = view.before
    for suspect in _before(view, lost, sent, view.baseline_loss, loss):
        ratio = _worst_recent(lost[suspect.paths].sum(axis=0), sent[suspect.paths].sum(axis=0))
        expected[suspect.paths] = np.maximum(expected[suspect.paths], ratio)
    for suspect in _before(view, slow, samples, np.full(len(expected), SLOW_RATIO), loss):
        no_delay[suspect.paths] = True
    for element, ratio in view.accused_before.items():
        paths = view.membership.paths_of(element)
        if ratio >= NEVER:
            no_delay[paths] = True
        else:
            expected[paths] = np.maximum(expected[paths], ratio)
    kept = ~no_delay[:, None]
    return _Trial(
        view, rule, loss, np.minimum(expected, NEVER), np.where(kept, view.samples, 0), np.where(kept, view.slow, 0)
    )


def _before(view: ContentionView, bad: Floats, total: Floats, usual: Floats, loss: LossRule) -> list[Suspect]:
    question = Question(view.membership, usual, lambda suspect: suspect.bad >= loss.min_lost)
    return suspects(bad.sum(axis=1), total.sum(axis=1), question)


def _worst_recent(bad: Floats, total: Floats) -> float:
    """Highest ratio over any stretch that reaches to the end and holds at least two bad packets."""
    suffix_bad, suffix_total = bad[::-1].cumsum(), total[::-1].cumsum()
    fit = suffix_bad >= 2
    return float((suffix_bad[fit] / suffix_total[fit]).max(initial=0.0))


def _flag(trial: _Trial, suspect: Suspect, values: Values, replaces: Sequence[Element]) -> Flag:
    view = trial.view
    hurt = view.lost[suspect.paths] + trial.slow[suspect.paths]
    hit = suspect.paths[hurt.sum(axis=1) > 0]
    lanes = sorted({view.lanes[index] for index in hit.tolist()})
    others = [lane for lane in lanes if lane != view.burst.lane]
    nodes = sorted({node for index in hit.tolist() for node in view.ends[index]})
    since = _since(view, hurt.sum(axis=0), np.maximum(view.sent, view.samples)[suspect.paths].sum(axis=0))
    told: Values = {
        **of_burst(view.burst),
        **values,
        "packets_hurt": int(hurt.sum()),
        "packets": int(np.maximum(view.sent, view.samples)[suspect.paths].sum()),
        "broke": " ".join(name for name, key in (("loss", "loss_ratio"), ("delay", "slow_ratio")) if key in values),
        "paths": len(suspect.paths),
        "lanes": " ".join(lanes),
        "nodes": " ".join(nodes[:MAX_NAMED]),
        "nodes_hurt": len(nodes),
        "began": "in the burst",
        "score": round(suspect.score, 1),
    }
    if others:
        told["shared_lanes"] = " ".join(f"{view.burst.lane}→{lane}" for lane in others)
    critical = float(values.get("loss_ratio", 0.0)) >= trial.loss.critical.ratio
    return Flag(
        rule=RULE,
        rule_version=VERSION,
        element=suspect.element,
        time_ns=view.time_ns,
        severity="critical" if critical else "warning",
        raised=True,
        values=told,
        children=[f"{view.path_ids[index]:016x}" for index in hit.tolist()],
        replaces=tuple(replaces),
        since_ns=since,
    )


def _since(view: ContentionView, bad: Floats, total: Floats) -> int:
    """Start of the first bucket that is at least half as bad as all of them together."""
    share = bad.sum() / max(total.sum(), 1.0)
    first = int(np.flatnonzero((bad > 0) & (bad >= share / 2 * total))[0])
    return min(view.from_ns + first * BUCKET_NS, view.time_ns)


def _with_figures(
    view: ContentionView,
    flags: list[Flag],
    figures: Sequence[tuple[Element, str, Values]],
    open_incidents: Sequence[Incident],
) -> list[Flag]:
    """Figures of NICs join the flag whose paths end at their node, else the first; alone they make one flag, at the
    node or NIC if there is but one, else at what writes. Once packets are hurt, that is where it is told."""
    alone = [incident.element for incident in open_incidents if not incident.values.get("packets_hurt", 0)]
    if flags:
        joined: dict[int, Values] = {}
        for _, node, values in figures:
            hit = (i for i, flag in enumerate(flags) if node in str(flag.values["nodes"]).split())
            _worst(joined.setdefault(next(hit, 0), {}), node, values)
        told = [_joined(flag, joined.get(index, {})) for index, flag in enumerate(flags)]
        return [replace(told[0], replaces=(*told[0].replaces, *alone)), *told[1:]]
    if not figures or len(alone) < len(open_incidents):
        return []
    elements = list(dict.fromkeys(element for element, _, _ in figures))
    whole = view.burst.element or elements[0]
    element = elements[0] if len(elements) == 1 else whole
    worst: Values = {}
    for _, node, of_node in figures:
        _worst(worst, node, of_node)
    nodes = sorted({node for _, node, _ in figures if node})
    return [_own(view, element, worst, nodes, [one for one in alone if one != element])]


def _worst(place: Values, node: str, values: Values) -> None:
    """The worst one of a kind stands for all."""
    what = next(iter(values))
    if float(values[what]) > float(place.get(what, -1.0)):
        place |= values | ({f"{NAMES[what]}_node": node} if node else {})


def _joined(flag: Flag, values: Values) -> Flag:
    if not values:
        return flag
    told = [*str(flag.values["broke"]).split(), *broke(values)]
    return replace(flag, values={**flag.values, **values, "broke": " ".join(told)})


def _own(
    view: ContentionView, element: Element, values: Values, nodes: Sequence[str], replaces: Sequence[Element]
) -> Flag:
    told: Values = {
        **of_burst(view.burst),
        **values,
        "packets_hurt": 0,
        "packets": int(view.sent.sum()),
        "broke": " ".join(broke(values)),
        "lanes": view.burst.lane,
        "nodes": " ".join(nodes[:MAX_NAMED]),
        "nodes_hurt": len(nodes),
        "began": "in the burst",
    }
    since = min(view.burst.start_time_ns, view.time_ns)
    return Flag(RULE, VERSION, element, view.time_ns, "warning", True, told, replaces=tuple(replaces), since_ns=since)


def _over(view: ContentionView, incident: Incident, rule: BurstContentionRule) -> Flag:
    end = view.burst.end_time_ns
    assert end is not None
    return Flag(
        RULE, VERSION, incident.element, view.time_ns, incident.severity, False, {"clean_since_ns": end + rule.after}
    )
