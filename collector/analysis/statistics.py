"""Figures from samples. Pure; no figure without its N, and none where there are no samples."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Delay histogram: eight bins an octave from 1 µs to 16.8 s, one below and one above. Counts add up, so windows merge
# exactly; a quantile read from it is at most 9 % too high.
BINS_PER_OCTAVE = 8
LOWEST_NS = 1_000
OCTAVES = 24
BINS = OCTAVES * BINS_PER_OCTAVE + 2
_UPPER_EDGES_NS: Ints = np.round(LOWEST_NS * 2.0 ** (np.arange(BINS - 1) / BINS_PER_OCTAVE)).astype(np.int64)
MAX_TAIL_TERMS = 100_000


def median(values: Sequence[float]) -> float | None:
    """Middle value, or mean of the two middle ones; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def quantile(ordered: Sequence[int] | Ints, numerator: int, denominator: int = 100) -> int | None:
    """Nearest rank ceil(q·n) of values in rising order, in integer arithmetic: always a value that was measured."""
    if len(ordered) == 0:
        return None
    return int(ordered[max(-(-numerator * len(ordered) // denominator), 1) - 1])


def binomial_tail(successes: int, trials: int, probability: float) -> float:
    """P(X ≥ successes) for X ~ B(trials, probability), summed term by term (no normal approximation)."""
    assert 0 <= successes <= trials
    assert 0.0 <= probability <= 1.0
    if successes == 0:
        return 1.0
    if probability == 0.0:
        return 0.0
    if probability == 1.0:
        return 1.0
    if successes <= trials * probability:  # the upper sum would be the long one
        below = math.fsum(_terms(trials - successes + 1, trials, 1.0 - probability))
        return max(0.0, 1.0 - below)
    return min(1.0, math.fsum(_terms(successes, trials, probability)))


def _terms(first: int, trials: int, probability: float) -> list[float]:
    """P(X = first), P(X = first + 1), … until they no longer count; ``first`` at or above the mean."""
    log_term = (
        math.lgamma(trials + 1)
        - math.lgamma(first + 1)
        - math.lgamma(trials - first + 1)
        + first * math.log(probability)
        + (trials - first) * math.log1p(-probability)
    )
    term, odds = math.exp(log_term), probability / (1.0 - probability)
    terms: list[float] = []
    for k in range(first, min(trials, first + MAX_TAIL_TERMS) + 1):
        terms.append(term)
        following = term * (trials - k) / (k + 1) * odds
        if following < term and following < terms[0] * 1e-17:
            break
        term = following
    return terms


def likelihood_ratio(bad: Floats, total: Floats, expected: Floats) -> Floats:
    """Log likelihood ratio of B(total, bad/total) against B(total, expected); 0 where the ratio is not above it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = bad / total
        good = total - bad
        score = bad * np.log(ratio / expected)
        score += np.where(good > 0, good * (np.log1p(-np.minimum(ratio, 1 - 1e-15)) - np.log1p(-expected)), 0.0)
    return np.where((total > 0) & (ratio > expected), score, 0.0)


def bins_of(delays_ns: Ints) -> Ints:
    """Histogram bin of each delay. Bin 0 is below 1 µs, the last one is everything beyond."""
    return np.searchsorted(_UPPER_EDGES_NS, delays_ns, side="right").astype(np.int64)


def upper_edge_ns(index: int) -> int:
    """Where a bin ends (exclusive); the last one has no end and answers with its beginning."""
    return int(_UPPER_EDGES_NS[min(index, BINS - 2)])


def bins_above(delays_ns: Ints) -> Ints:
    """First bin that lies wholly above each delay."""
    return bins_of(delays_ns) + 1


def histogram_quantiles(histograms: NDArray[np.integer], numerator: int, denominator: int = 100) -> Ints:
    """Upper edge of the bin that holds the nearest rank, for each row of [row, bin]; -1 where the row is empty."""
    sums = np.cumsum(histograms.astype(np.int64), axis=1)
    totals = sums[:, -1]
    ranks = np.maximum(-(-numerator * totals // denominator), 1)
    index = (sums < ranks[:, None]).sum(axis=1)
    edges = _UPPER_EDGES_NS[np.minimum(index, BINS - 2)]
    return np.where(totals > 0, edges, -1)
