"""Histograms of signed durations hold for any values, in any portions."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collector.analysis import statistics
from collector.store import spread

durations = st.integers(-(10**15), 10**15)


@given(st.lists(durations, min_size=1), st.integers(1, 100))
def test_a_quantile_is_at_most_a_64th_farther_from_0(values: list[int], percent: int) -> None:
    exact = statistics.quantile(sorted(values), percent)
    found = spread.quantile(Counter(spread.bins_of(np.array(values, np.int64)).tolist()), percent)
    assert exact is not None
    assert found is not None
    assert (found < 0) == (exact < 0)
    assert abs(exact) <= abs(found) <= abs(exact) * 65 / 64


@given(st.lists(durations), st.integers(0, 20))
def test_portions_merge_to_the_same(values: list[int], cut: int) -> None:
    parts = [Counter(spread.bins_of(np.array(part, np.int64)).tolist()) for part in (values[:cut], values[cut:])]
    whole = parts[0] + parts[1]
    assert spread.unpack([spread.pack(part) for part in parts]) == whole
    assert spread.unpack([spread.pack(whole)]) == whole


@given(durations, durations)
def test_bins_rise_with_values(first: int, second: int) -> None:
    low, high = spread.bins_of(np.array(sorted((first, second)), np.int64)).tolist()
    assert low <= high


def test_nothing_has_no_quantile() -> None:
    assert spread.quantile({}, 50) is None
    assert spread.unpack([]) == {}
