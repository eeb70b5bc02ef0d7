"""Which element is to blame: greedy binomial likelihood ratio over everything a path crosses. Pure.

For each element the bad and all samples of its paths are summed and compared with what was expected there. The best
explanation is taken, its paths are removed, and the rest is asked again, so one cause gives one suspect. This favours
the most concentrated explanation, works at low ratios where a share of failed paths cannot, and needs no route.

Two causes at once can make a third element look best that holds a part of both. So for each of the leading candidates
the whole explanation that begins with it is worked out, and the one that scores best as a whole counts; every further
element has to pay for itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collector.analysis import statistics
from collector.analysis.paths import Indexes, Membership
from collector.model import Element

Floats = NDArray[np.float64]
MAX_SUSPECTS = 6
MAX_LEADS = 6
MIN_SCORE = 12.0  # e^12 : 1 against "as expected", over hundreds of elements and windows


@dataclass(frozen=True, slots=True)
class Suspect:
    """One element and what speaks against it."""

    element: Element
    paths: Indexes  # those that were still unexplained
    bad: int
    total: int
    expected_ratio: float
    score: float

    @property
    def ratio(self) -> float:
        return self.bad / self.total


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the samples."""

    membership: Membership  # which paths cross which element
    expected: Floats  # [path]: ratio of bad samples that is nothing new there, above 0
    qualifies: Callable[[Suspect], bool]  # the rule's own test; an element that fails it is passed over


def suspects(bad: Floats, total: Floats, question: Question) -> list[Suspect]:
    """Elements to blame, most convincing first.

    Args:
        bad: bad samples, one entry a path.
        total: all samples of the path.
        question: what to look for.
    """
    best: list[Suspect] = []
    best_score = 0.0
    for lead in _ranked(bad, total, question, MAX_LEADS):
        found = _greedy(bad, total, question, lead)
        score = sum(suspect.score - MIN_SCORE for suspect in found)
        if score > best_score:
            best, best_score = found, score
    return best


def _greedy(bad: Floats, total: Floats, question: Question, lead: Suspect) -> list[Suspect]:
    """The explanation that begins with ``lead``: what else it takes once the paths of those before are explained."""
    bad, total = bad.copy(), total.copy()
    found = [lead]
    while len(found) < MAX_SUSPECTS:
        bad[found[-1].paths] = 0
        total[found[-1].paths] = 0
        following = _ranked(bad, total, question, 1)
        if not following:
            break
        found += following
    return found


def _ranked(bad: Floats, total: Floats, question: Question, limit: int) -> list[Suspect]:
    """The most convincing elements that qualify; of those that explain exactly the same, one."""
    if not bad.any():
        return []
    membership = question.membership
    sums, counts = membership.sums(bad), membership.sums(total)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = membership.sums(total * question.expected) / counts
    scores = np.round(statistics.likelihood_ratio(sums, counts, means), 6)
    order = np.argsort(-scores, kind="stable")
    found: list[Suspect] = []
    position = 0
    while position < len(order) and len(found) < limit and scores[order[position]] > MIN_SCORE:
        tied = [int(index) for index in order[position:] if scores[index] == scores[order[position]]]
        index = _choose(tied, membership)
        paths = membership.paths(index)
        suspect = Suspect(
            element=membership.elements[index],
            paths=paths[total[paths] > 0],
            bad=int(sums[index]),
            total=int(counts[index]),
            expected_ratio=float(means[index]),
            score=float(scores[index]),
        )
        if question.qualifies(suspect):
            found.append(suspect)
        position += len(tied)
    return found


def _choose(tied: list[int], membership: Membership) -> int:
    """Of elements that explain equally, the smallest kind of which there is only one: two NICs that explain the same
    are both innocent of it alone, the way between their racks is not."""
    kinds = [membership.elements[index].kind for index in tied]
    for index, kind in zip(tied, kinds, strict=True):
        if kinds.count(kind) == 1:
            return index
    return tied[-1]
