"""Delay: round trips far slower than the same path's own usual, and not because of our tests. Pure.

"p99 over three times the baseline's p99 and over baseline + 200 µs" is the same as "more than one sample in a hundred
lies above both". Counted so, samples of all paths that cross an element add up, and one cause is one incident: the
element whose share of slow samples stands out most is flagged, if the share is above 1 % in (nearly) every 10 s of
the last 60 s and chance is ruled out. It is clean once the share over 60 s is back at 1 % or below.

The STAMP paths of a pair are judged together: their usual p99 is that of all source ports, and they are one path
element. Which ports are slow the incident's values say (``rules.ports``): one bad member of several equal paths shows
at the ports that switches send over it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collector.analysis import statistics
from collector.analysis.attribution import Question, Suspect, explain
from collector.analysis.paths import Indexes, Membership
from collector.analysis.rules import ports
from collector.analysis.window import SECOND, WINDOW_NS
from collector.config import DelayRule
from collector.model import Element, Flag, Incident

RULE = "delay"
VERSION = 2
SLOW_RATIO = 0.01  # what lies above a p99 by definition
P_VALUE = 1e-6
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DelayView:
    """What is known at ``time_ns``. Columns are 10 s windows, the last one ends at ``time_ns``; windows that were
    loaded and paths without a baseline are 0."""

    time_ns: int
    samples: Floats  # [path, window] with a delay
    slow: Floats  # of these, above the path's threshold
    baseline_p99_ns: NDArray[np.int64]  # [path]; -1 without one
    membership: Membership
    path_ids: Sequence[int]
    p99_ns: Callable[[Indexes], int]  # over all samples of these paths and all columns


def judge(view: DelayView, open_incidents: Sequence[Incident]) -> list[Flag]:
    """Flags at one moment; ``open_incidents`` are this rule's."""
    slow, samples = view.slow.sum(axis=1), view.samples.sum(axis=1)
    flags: list[Flag] = []
    opening: dict[Element, float] = {}
    for incident in open_incidents:
        paths = view.membership.paths_of(incident.element)
        bad, total = int(slow[paths].sum()), int(samples[paths].sum())
        ratio = float(incident.values["opening_ratio"])
        if total and total >= 1.5 / ratio and bad <= SLOW_RATIO * total:
            since = view.time_ns - view.samples.shape[1] * WINDOW_NS
            flags.append(_clean(incident, view.time_ns, since))
        else:
            opening[incident.element] = ratio
    expected = np.full(len(slow), SLOW_RATIO)
    question = Question(view.membership, expected, lambda suspect: _qualifies(view, suspect), list(opening))
    for blame in explain(slow, samples, question):
        suspect = blame.suspect
        flags.append(_flag(view, slow, suspect, opening.get(suspect.element, suspect.ratio), blame.replaces))
    return flags


def _qualifies(view: DelayView, suspect: Suspect) -> bool:
    slow, samples = view.slow[suspect.paths].sum(axis=0), view.samples[suspect.paths].sum(axis=0)
    seen = samples > 0
    return (
        int(seen.sum()) >= len(samples) - 1  # one 10 s stretch may lack samples
        and bool((slow[seen] > SLOW_RATIO * samples[seen]).all())
        and statistics.binomial_tail(suspect.bad, suspect.total, suspect.expected_ratio) < P_VALUE
    )


def _clean(incident: Incident, time_ns: int, since_ns: int) -> Flag:
    return Flag(RULE, VERSION, incident.element, time_ns, incident.severity, False, {"clean_since_ns": since_ns})


def _flag(view: DelayView, slow: Floats, suspect: Suspect, opening_ratio: float, replaces: Sequence[Element]) -> Flag:
    usual = [int(view.baseline_p99_ns[index]) for index in suspect.paths if view.baseline_p99_ns[index] >= 0]
    return Flag(
        rule=RULE,
        rule_version=VERSION,
        element=suspect.element,
        time_ns=view.time_ns,
        severity="warning",
        raised=True,
        values={
            "slow": suspect.bad,
            "samples": suspect.total,
            "slow_ratio": suspect.ratio,
            "over_s": view.samples.shape[1] * WINDOW_NS // SECOND,
            "delay_p99_ns": view.p99_ns(suspect.paths),
            "baseline_p99_ns": statistics.median(usual) or 0,
            "opening_ratio": opening_ratio,
            "paths": len(suspect.paths),
            **ports.describe_slow(
                view.membership.ports[suspect.paths],
                view.samples[suspect.paths].sum(axis=1),
                slow[suspect.paths],
                SLOW_RATIO,
            ),
        },
        children=[f"{view.path_ids[index]:016x}" for index in suspect.paths[slow[suspect.paths] > 0]],
        replaces=tuple(replaces),
    )


def thresholds(baseline_p99_ns: NDArray[np.int64], rule: DelayRule) -> NDArray[np.int64]:
    """Above which a sample counts as slow; -1 without a baseline."""
    limit = np.maximum(np.round(baseline_p99_ns * rule.factor), baseline_p99_ns + rule.above).astype(np.int64)
    return np.where(baseline_p99_ns >= 0, limit, -1)
