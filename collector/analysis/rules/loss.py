"""Loss: which part of the network loses packets, beyond chance and beyond what it always loses. Pure.

Two levels, each over its own stretch: critical (10 s) and warning (60 s). An element is flagged when enough packets
were lost, the ratio passes the level, and the exact binomial test against max(floor, baseline) leaves no chance.
What an open incident already explains is expected on its paths, so that only what goes beyond it is a new cause.
An incident is clean once the last 30 s (60 s where there are too few packets in 30 s to see its loss) are below half
the warning ratio.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collector.analysis import statistics
from collector.analysis.attribution import Question, Suspect, suspects
from collector.analysis.paths import Indexes, Membership
from collector.analysis.window import BUCKET_NS, SECOND
from collector.config import LossLevel, LossRule
from collector.model import Element, Flag, Incident

RULE = "loss"
VERSION = 1
CLEAN_OVER_NS = (30 * SECOND, 60 * SECOND)
RESIDUAL_P_VALUE = 1e-3
OWN_FACTOR = 3.0  # a part that is this much worse than the whole has a cause of its own
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


@dataclass(frozen=True, slots=True)
class _Level:
    """One level's sums a path, and what is expected there."""

    severity: str
    setting: LossLevel
    lost: Floats
    sent: Floats
    expected: Floats

    def sums(self, paths: Indexes) -> tuple[int, int]:
        return int(self.lost[paths].sum()), int(self.sent[paths].sum())


def judge(view: LossView, open_incidents: Sequence[Incident], rule: LossRule) -> list[Flag]:
    """Flags at one moment; ``open_incidents`` are this rule's."""
    flags: list[Flag] = []
    sent, lost = view.sent.copy(), view.lost.copy()
    still_open: list[Incident] = []
    for incident in open_incidents:
        since_ns = _clean_since(view, incident, rule)
        if since_ns is None:
            still_open.append(incident)
            continue
        flags.append(_clean(incident, view.time_ns, since_ns))
        past = slice(0, sent.shape[1] - (view.time_ns - since_ns) // BUCKET_NS)
        paths = view.membership.paths_of(incident.element)
        sent[paths, past] = lost[paths, past] = 0  # what is over must not open it again
    flagged: dict[Element, Flag] = {}
    for severity, setting in (("critical", rule.critical), ("warning", rule.warning)):
        steps = max(setting.over // BUCKET_NS, 1)
        level = _Level(
            severity, setting, lost[:, -steps:].sum(axis=1), sent[:, -steps:].sum(axis=1), view.baseline.copy()
        )
        _known(view, level, still_open, flagged, rule)
        _new(view, level, still_open, flagged, rule)
    return flags + list(flagged.values())


def _known(
    view: LossView, level: _Level, still_open: Sequence[Incident], flagged: dict[Element, Flag], rule: LossRule
) -> None:
    """Open incidents and what was flagged at a higher level: still there? Either way their ratio is expected now."""
    opening = {incident.element: float(incident.values["opening_ratio"]) for incident in still_open}
    opening |= {element: float(flag.values["opening_ratio"]) for element, flag in flagged.items()}
    raised = level.expected.copy()
    for element, ratio in opening.items():
        paths = view.membership.paths_of(element)
        bad, total = level.sums(paths)
        if not total:
            continue
        expected = float((view.baseline[paths] * level.sent[paths]).sum() / total)
        suspect = Suspect(element, paths[level.sent[paths] > 0], bad, total, expected, 0.0)
        if element not in flagged and _qualifies(suspect, level.setting, rule):
            flagged[element] = _flag(view, level, suspect, ratio, ())
        raised[paths] = np.maximum(raised[paths], min(bad / total, 0.99))
    level.expected[:] = raised


def _new(
    view: LossView, level: _Level, still_open: Sequence[Incident], flagged: dict[Element, Flag], rule: LossRule
) -> None:
    known = {incident.element for incident in still_open} | flagged.keys()
    question = Question(
        view.membership,
        level.expected,
        lambda suspect: suspect.element not in known and _qualifies(suspect, level.setting, rule),
    )
    for suspect in suspects(level.lost, level.sent, question):
        replaced = [
            element
            for element in sorted(known, key=lambda element: (element.kind, element.name))
            if _same_cause(view, level, element, suspect, rule)
        ]
        for element in replaced:
            flagged.pop(element, None)
        flagged[suspect.element] = _flag(view, level, suspect, suspect.ratio, replaced)


def _qualifies(suspect: Suspect, setting: LossLevel, rule: LossRule) -> bool:
    return (
        suspect.bad >= rule.min_lost
        and suspect.ratio >= setting.ratio
        and statistics.binomial_tail(suspect.bad, suspect.total, suspect.expected_ratio) < rule.p_value
    )


def _same_cause(view: LossView, level: _Level, known: Element, suspect: Suspect, rule: LossRule) -> bool:
    """Whether a new suspect explains what a known element was blamed for: nothing is left of that outside the paths
    they share, nor is the known one much worse than the whole."""
    paths = view.membership.paths_of(known)
    shared = np.isin(paths, view.membership.paths_of(suspect.element))
    if not shared.any():
        return False
    bad, total = level.sums(paths[~shared])
    if total:
        expected = float((view.baseline[paths] * level.sent[paths]).sum() / max(level.sent[paths].sum(), 1))
        return bad < rule.min_lost or statistics.binomial_tail(bad, total, expected) >= RESIDUAL_P_VALUE
    bad, total = level.sums(paths)
    return not total or bad / total < OWN_FACTOR * suspect.ratio


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


def _flag(view: LossView, level: _Level, suspect: Suspect, opening_ratio: float, replaces: Sequence[Element]) -> Flag:
    lossy = suspect.paths[level.lost[suspect.paths] > 0]
    return Flag(
        rule=RULE,
        rule_version=VERSION,
        element=suspect.element,
        time_ns=view.time_ns,
        severity=level.severity,
        raised=True,
        values={
            "lost": suspect.bad,
            "sent": suspect.total,
            "loss_ratio": suspect.ratio,
            "over_s": level.setting.over // SECOND,
            "expected_ratio": suspect.expected_ratio,
            "p_value": statistics.binomial_tail(suspect.bad, suspect.total, suspect.expected_ratio),
            "opening_ratio": opening_ratio,
            "paths": len(suspect.paths),
        },
        children=[f"{view.path_ids[index]:016x}" for index in lossy],
        replaces=tuple(replaces),
    )
