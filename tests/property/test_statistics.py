"""Statistics hold for any input."""

import math
from fractions import Fraction

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collector.analysis import statistics

counts = st.integers(0, 60)


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 999))
def test_binomial_tail_is_the_exact_sum(successes: int, more: int, per_mille: int) -> None:
    trials, p = successes + more, Fraction(per_mille, 1000)
    exact = sum(math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes, trials + 1))
    found = statistics.binomial_tail(successes, trials, float(p))
    assert math.isclose(found, float(exact), rel_tol=1e-9, abs_tol=1e-14)


@given(st.integers(1, 100_000), st.floats(1e-6, 0.9))
def test_binomial_tail_falls_with_the_number_of_successes(trials: int, p: float) -> None:
    first = trials // 3
    tails = [statistics.binomial_tail(k, trials, p) for k in (0, first, min(first + 1, trials), trials)]
    assert tails[0] == 1.0
    assert all(0.0 <= tail <= 1.0 for tail in tails)
    assert tails == sorted(tails, reverse=True)


@given(st.lists(st.integers(0, 10**9), min_size=1), st.integers(1, 100))
def test_a_quantile_is_a_value_that_was_measured(values: list[int], percent: int) -> None:
    ordered = sorted(values)
    found = statistics.quantile(ordered, percent)
    assert found is not None
    assert found in ordered
    at_or_below = sum(value <= found for value in ordered)
    assert at_or_below * 100 >= percent * len(ordered)


def test_nothing_has_no_quantile_and_no_median() -> None:
    assert statistics.quantile([], 50) is None
    assert statistics.median([]) is None


@given(st.lists(st.floats(1, 1e12), min_size=1))
def test_the_median_lies_in_the_middle(values: list[float]) -> None:
    found = statistics.median(values)
    assert found is not None
    assert sum(value <= found for value in values) * 2 >= len(values)
    assert sum(value >= found for value in values) * 2 >= len(values)


@given(st.lists(st.integers(0, 20 * 10**9), min_size=1), st.integers(1, 100))
def test_a_quantile_from_the_histogram_is_at_most_a_bin_too_high(values: list[int], percent: int) -> None:
    delays = np.array(values, np.int64)
    histogram = np.bincount(statistics.bins_of(delays), minlength=statistics.BINS)
    found = int(statistics.histogram_quantiles(histogram[None, :], percent)[0])
    exact = statistics.quantile(sorted(values), percent)
    assert exact is not None
    if exact < 16 * 10**9:
        assert exact <= found <= max(exact * 1.1, 1_001)


@given(st.lists(st.integers(0, 10**10)), st.lists(st.integers(0, 10**10)))
def test_histograms_add_up(first: list[int], second: list[int]) -> None:
    def histogram(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.bincount(statistics.bins_of(np.array(values, np.int64)), minlength=statistics.BINS)

    assert (histogram(first) + histogram(second) == histogram(first + second)).all()


@given(st.integers(0, 10**10), st.integers(0, 10**10))
@example(limit=1000, delay=1000)  # a limit that is the edge of a bin, and belongs to the bin it begins
@example(limit=1091, delay=1091)
def test_bins_above_a_delay_hold_no_smaller_one(limit: int, delay: int) -> None:
    bins = statistics.bins_of(np.array([delay], np.int64))
    if bins[0] >= statistics.bins_above(np.array([limit], np.int64))[0]:
        assert delay > limit


@given(st.integers(0, 10**10))
@example(limit=999)
@example(limit=1000)
def test_the_bin_before_the_first_one_above_a_delay_still_reaches_down_to_it(limit: int) -> None:
    first = int(statistics.bins_above(np.array([limit], np.int64))[0])
    assert statistics.upper_edge_ns(first - 1) > limit
    assert first == 1 or statistics.upper_edge_ns(first - 2) <= limit


@given(st.integers(0, 1000), st.integers(0, 1000), st.floats(1e-5, 0.5))
def test_the_likelihood_ratio_speaks_only_against_what_is_above_expectation(bad: int, good: int, p: float) -> None:
    total = bad + good
    score = statistics.likelihood_ratio(np.array([float(bad)]), np.array([float(total)]), np.array([p]))[0]
    assert score >= 0.0
    assert (score > 0.0) == (total > 0 and bad / total > p) or score < 1e-6
