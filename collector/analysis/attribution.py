"""Which element is to blame: greedy binomial likelihood ratio over everything a path crosses. Pure.

For each element the bad and all samples of its paths are summed and compared with what was expected there. The best
explanation is taken, its paths are removed, and the rest is asked again, so one cause gives one suspect. This favours
the most concentrated explanation, works at low ratios where a share of failed paths cannot, and needs no route.

Two causes at once can make a third element look best that holds a part of both. So for each of the leading candidates
the whole explanation that begins with it is worked out, and the one that scores best as a whole counts; every further
element has to pay for itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collector.analysis import statistics
from collector.analysis.paths import Indexes, Membership
from collector.model import Element

Floats = NDArray[np.float64]
MAX_SUSPECTS = 6
MAX_LEADS = 6
MARGIN = 10.0
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
    incumbents: Sequence[Element] = ()  # blamed before


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


@dataclass(frozen=True, slots=True)
class Blame:
    """One suspect of the explanation that holds now, and the elements that the same cause was laid to before."""

    suspect: Suspect
    replaces: Sequence[Element] = ()


def explain(bad: Floats, total: Floats, question: Question) -> list[Blame]:
    """What is to blame now, given what was blamed before (``question.incumbents``).

    The elements blamed before, and what it takes to explain the rest, stand against the best explanation that can be
    found anew. They give way only to one that is better by ``MARGIN``: with a few seconds of data the first suspect is
    often too small or too large, but blame must not wander with every packet.
    """
    kept, kept_score = _keep(bad, total, question)
    fresh = suspects(bad, total, question)
    if sum(suspect.score - MIN_SCORE for suspect in fresh) <= kept_score + MARGIN:
        return [Blame(suspect) for suspect in kept]
    blames: list[Blame] = []
    elements = {suspect.element for suspect in fresh}
    left = [element for element in question.incumbents if element not in elements]
    for suspect in fresh:
        lossy = suspect.paths[bad[suspect.paths] > 0]
        replaced = [element for element in left if np.isin(lossy, question.membership.paths_of(element)).any()]
        left = [element for element in left if element not in replaced]
        blames.append(Blame(suspect, replaced))
    return blames


def _keep(bad: Floats, total: Floats, question: Question) -> tuple[list[Suspect], float]:
    """The explanation that begins with the incumbents, the strongest first, and its score."""
    bad, total = bad.copy(), total.copy()
    waiting = list(question.incumbents)
    found: list[Suspect] = []
    while waiting:
        strongest = max((_suspect(bad, total, question, element) for element in waiting), key=lambda one: one.score)
        waiting.remove(strongest.element)
        if strongest.score <= 0:
            continue  # nothing more speaks against it
        found.append(strongest)
        bad[strongest.paths] = 0
        total[strongest.paths] = 0
    found += suspects(bad, total, question)
    return found, sum(suspect.score - MIN_SCORE for suspect in found)


def _suspect(bad: Floats, total: Floats, question: Question, element: Element) -> Suspect:
    paths = question.membership.paths_of(element)
    paths = paths[total[paths] > 0]
    number, lost = float(total[paths].sum()), float(bad[paths].sum())
    if not number:
        return Suspect(element, paths, 0, 0, 0.0, 0.0)
    mean = float((total[paths] * question.expected[paths]).sum() / number)
    score = statistics.likelihood_ratio(np.array([lost]), np.array([number]), np.array([mean]))
    return Suspect(element, paths, int(lost), int(number), mean, float(score[0]))


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
        index = _choose(tied, question)
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


def _choose(tied: list[int], question: Question) -> int:
    """Of elements that explain equally, the one blamed before; else the smallest kind of which there is only one: two
    NICs that explain the same are both innocent of it alone, the way between their racks is not."""
    elements = [question.membership.elements[index] for index in tied]
    for index, element in zip(tied, elements, strict=True):
        if element in question.incumbents:
            return index
    kinds = [element.kind for element in elements]
    for index, kind in zip(tied, kinds, strict=True):
        if kinds.count(kind) == 1:
            return index
    return tied[-1]
