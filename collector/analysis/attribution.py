"""Which element is to blame: greedy binomial likelihood ratio over everything a path crosses. Pure.

For each element the bad and all samples of its paths are summed and compared with what was expected there. The best
explanation is taken, its paths are removed, and the rest is asked again, so one cause gives one suspect. This favours
the most concentrated explanation, works at low ratios where a share of failed paths cannot, and needs no route.
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


def suspects(
    bad: Floats, total: Floats, expected: Floats, membership: Membership, qualifies: Callable[[Suspect], bool]
) -> list[Suspect]:
    """Elements to blame, most convincing first.

    Args:
        bad: bad samples, one entry a path.
        total: all samples of the path.
        expected: ratio of bad samples that is nothing new on that path, above 0.
        membership: which paths cross which element.
        qualifies: the rule's own test; an element that fails it is passed over.
    """
    bad, total = bad.copy(), total.copy()
    found: list[Suspect] = []
    while len(found) < MAX_SUSPECTS and bad.any():
        suspect = _best(bad, total, expected, membership, qualifies)
        if suspect is None:
            break
        found.append(suspect)
        bad[suspect.paths] = 0
        total[suspect.paths] = 0
    return found


def _best(
    bad: Floats, total: Floats, expected: Floats, membership: Membership, qualifies: Callable[[Suspect], bool]
) -> Suspect | None:
    sums, counts = membership.sums(bad), membership.sums(total)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = membership.sums(total * expected) / counts
    scores = np.round(statistics.likelihood_ratio(sums, counts, means), 6)
    order = np.argsort(-scores, kind="stable")
    position = 0
    while position < len(order) and scores[order[position]] > MIN_SCORE:
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
        if qualifies(suspect):
            return suspect
        position += len(tied)
    return None


def _choose(tied: list[int], membership: Membership) -> int:
    """Of elements that explain equally, the smallest kind of which there is only one: two NICs that explain the same
    are both innocent of it alone, the way between their racks is not."""
    kinds = [membership.elements[index].kind for index in tied]
    for index, kind in zip(tied, kinds, strict=True):
        if kinds.count(kind) == 1:
            return index
    return tied[-1]
