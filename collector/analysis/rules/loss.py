"""Loss: which part of the network loses packets, beyond chance and beyond what it always loses. Pure.

Whether there is anything to say, two levels decide, each over its own stretch: critical (10 s) and warning (60 s, and
the last half of them: 1 % that has just begun is certain there in two thirds of the time, by simulation). An
element gives cause for alarm when enough of its packets were lost, the ratio passes the level, and the exact binomial
test against max(floor, baseline) leaves no chance. What is to blame, the last 60 s decide over all elements, whatever
their own ratio: a fault in one of four spines shows at the pairs it hits, but it is the fabric's. Blame that gave no
cause for alarm anywhere is not spoken out, nor little loss that only stood beside a greater one: once that one's paths
are taken away, an alarm must be left.

An incident is clean once the last 30 s (60 s where there are too few packets in 30 s to see its loss) are below half
the warning ratio.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bandwitness.settings import Duration
from collector.analysis import statistics
from collector.analysis.attribution import Question, Suspect, explain
from collector.analysis.paths import Indexes, Membership
from collector.analysis.rules import ports
from collector.analysis.window import BUCKET_NS, SECOND
from collector.config import LossLevel, LossRule
from collector.model import Element, Flag, Incident

RULE = "loss"
VERSION = 3
CLEAN_OVER_NS = (30 * SECOND, 60 * SECOND)
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LossView:
    """What is known at ``time_ns``. Columns are 2 s buckets, the last one ends at ``time_ns``; loaded ones are 0."""

    time_ns: int
    sent: Floats  # [path, bucket]
    lost: Floats
    baseline: Floats  # [path]: at least the rule's floor
    membership: Membership
    path_ids: Sequence[int]
    doubtful: NDArray[np.bool_] | None = None  # [path]: hosts at its ends doubted delays in that time


def judge(view: LossView, open_incidents: Sequence[Incident], rule: LossRule) -> list[Flag]:
    """Flags at one moment; ``open_incidents`` are this rule's."""
    flags: list[Flag] = []
    sent, lost = view.sent.copy(), view.lost.copy()
    opening: dict[Element, float] = {}
    for incident in open_incidents:
        since_ns = _clean_since(view, incident, rule)
        if since_ns is None:
            opening[incident.element] = float(incident.values["opening_ratio"])
            continue
        flags.append(_clean(incident, view.time_ns, since_ns))
        past = slice(0, sent.shape[1] - (view.time_ns - since_ns) // BUCKET_NS)
        paths = view.membership.paths_of(incident.element)
        sent[paths, past] = lost[paths, past] = 0  # what is over must not open it again
    levels = _levels(view, sent, lost, rule)
    alarmed = _alarmed(levels)
    if not alarmed.any() and not opening:
        return flags
    if not opening and not levels[0].alarmed.any() and not levels[1].alarmed.any():
        # Only the last half of the time shows it: the half before would hide who is to blame.
        sent[:, : -levels[2].steps] = lost[:, : -levels[2].steps] = 0
    question = Question(
        view.membership,
        view.baseline,
        lambda suspect: (
            suspect.bad >= rule.min_lost
            and statistics.binomial_tail(suspect.bad, suspect.total, suspect.expected_ratio) < rule.p_value
        ),
        list(opening),
    )
    whole_lost, whole_sent = lost.sum(axis=1), sent.sum(axis=1)
    for number, blame in enumerate(explain(whole_lost, whole_sent, question)):
        suspect = blame.suspect
        known = suspect.element in opening
        if number and not known:
            alarmed = _alarmed(_levels(view, sent, lost, rule))
        if known or (alarmed[suspect.paths] & (whole_lost[suspect.paths] > 0)).any():
            level = next((level for level in levels if level.qualifies(suspect.paths, rule)), levels[-1])
            flags.append(_flag(view, level, suspect, opening.get(suspect.element), blame.replaces))
        sent[suspect.paths] = lost[suspect.paths] = 0
    return flags


@dataclass(frozen=True, slots=True)
class _Level:
    """One level's sums a path, and the paths that cross an element which gives cause for alarm."""

    severity: str
    setting: LossLevel
    steps: int  # buckets
    lost: Floats
    sent: Floats
    baseline: Floats
    alarmed: NDArray[np.bool_]

    def qualifies(self, paths: Indexes, rule: LossRule) -> bool:
        """Whether these paths together pass the level."""
        bad, total = int(self.lost[paths].sum()), int(self.sent[paths].sum())
        if bad < rule.min_lost or bad < self.setting.ratio * total:
            return False
        expected = float((self.baseline[paths] * self.sent[paths]).sum() / total)
        return statistics.binomial_tail(bad, total, expected) < rule.p_value


def _levels(view: LossView, sent: Floats, lost: Floats, rule: LossRule) -> list[_Level]:
    return [_level(name, setting, sent=sent, lost=lost, view=view, rule=rule) for name, setting in _settings(rule)]


def _alarmed(levels: Sequence[_Level]) -> NDArray[np.bool_]:
    """Paths that cross an element which gives cause for alarm at any level."""
    alarmed: NDArray[np.bool_] = np.logical_or.reduce([level.alarmed for level in levels])
    return alarmed


def _settings(rule: LossRule) -> list[tuple[str, LossLevel]]:
    """In the order in which an incident's figures are taken from them. Little loss that has just begun is certain over
    the last half of the warning's stretch before it is over all of it."""
    half = LossLevel(ratio=rule.warning.ratio, over=Duration(rule.warning.over // 2))
    return [("critical", rule.critical), ("warning", rule.warning), ("warning", half)]


def _level(severity: str, setting: LossLevel, *, sent: Floats, lost: Floats, view: LossView, rule: LossRule) -> _Level:
    steps = max(setting.over // BUCKET_NS, 1)
    level = _Level(
        severity=severity,
        setting=setting,
        steps=steps,
        lost=lost[:, -steps:].sum(axis=1),
        sent=sent[:, -steps:].sum(axis=1),
        baseline=view.baseline,
        alarmed=np.zeros(len(lost), np.bool_),
    )
    sums, counts = view.membership.sums(level.lost), view.membership.sums(level.sent)
    for index in np.flatnonzero((sums >= rule.min_lost) & (sums >= setting.ratio * counts)).tolist():
        paths = view.membership.paths(index)
        if not level.alarmed[paths].all() and level.qualifies(paths, rule):
            level.alarmed[paths] = True
    return level


def _clean_since(view: LossView, incident: Incident, rule: LossRule) -> int | None:
    """Start of the clean stretch, None while it is not clean or not known to be."""
    paths = view.membership.paths_of(incident.element)
    needed = 1.5 / float(incident.values["opening_ratio"])  # half of what would show three losses at that ratio
    for over_ns in CLEAN_OVER_NS:
        steps = over_ns // BUCKET_NS
        bad, total = int(view.lost[paths, -steps:].sum()), int(view.sent[paths, -steps:].sum())
        if total >= max(needed, 2.0):
            return view.time_ns - over_ns if bad / total < rule.warning.ratio / 2 else None
    return None


def _clean(incident: Incident, time_ns: int, since_ns: int) -> Flag:
    return Flag(RULE, VERSION, incident.element, time_ns, incident.severity, False, {"clean_since_ns": since_ns})


def _doubt(view: LossView, paths: Indexes) -> dict[str, int]:
    """Loss stands however late we looked, but whoever reads of it may want to know that we did."""
    count = 0 if view.doubtful is None else int(np.count_nonzero(view.doubtful[paths]))
    return {"doubtful_paths": count} if count else {}


def _flag(
    view: LossView, level: _Level, suspect: Suspect, opening_ratio: float | None, replaces: Sequence[Element]
) -> Flag:
    paths = suspect.paths
    bad, total = int(level.lost[paths].sum()), int(level.sent[paths].sum())
    ratio = bad / total if total else 0.0
    expected = float((view.baseline[paths] * level.sent[paths]).sum() / total) if total else suspect.expected_ratio
    return Flag(
        rule=RULE,
        rule_version=VERSION,
        element=suspect.element,
        time_ns=view.time_ns,
        severity=level.severity,
        raised=True,
        values={
            "lost": bad,
            "sent": total,
            "loss_ratio": ratio,
            "over_s": level.setting.over // SECOND,
            "expected_ratio": expected,
            "p_value": statistics.binomial_tail(bad, total, expected),
            "opening_ratio": opening_ratio or ratio,
            "score": round(suspect.score, 1),
            "paths": len(paths),
            **_doubt(view, paths),
            **ports.describe(view.membership.ports[paths], view.sent[paths], view.lost[paths]),
        },
        children=[f"{view.path_ids[index]:016x}" for index in paths[level.lost[paths] > 0]],
        replaces=tuple(replaces),
    )
