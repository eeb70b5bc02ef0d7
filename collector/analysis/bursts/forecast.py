"""When the next burst of a kind is to be expected. Pure.

The period is the median of the intervals between starts, where one that is a multiple of it counts as several: a burst
in between was missed. It is named only where the intervals agree, and with how many they are and how far they differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

SECOND = 1_000_000_000
MIN_INTERVALS = 3
SPREAD = 0.2  # of the period: the largest distance of an interval from it
SHORTEST_NS = 30 * SECOND  # steps of training repeat faster
NEWEST = 24  # starts looked at
MOST_MISSED = 3  # in a row


@dataclass(frozen=True, slots=True)
class Forecast:
    """The next start, and what it stands on."""

    next_start_time_ns: int
    interval_ns: int
    spread_ns: int  # largest distance of an interval from the period
    intervals: int


def forecast(starts_ns: Sequence[int]) -> Forecast | None:
    """From starts in order of time, the newest last; None where they are not periodic."""
    starts = list(starts_ns[-NEWEST:])
    intervals = [b - a for a, b in pairwise(starts) if b > a]
    if len(intervals) < MIN_INTERVALS:
        return None
    fits = [fit for base in sorted(set(intervals)) if (fit := _fit(intervals, base)) is not None]
    if not fits:
        return None
    period, spread = min(fits, key=lambda fit: (fit[1] / fit[0], -fit[0]))
    if period < SHORTEST_NS or spread > SPREAD * period:
        return None
    return Forecast(starts[-1] + round(period), round(period), round(spread), len(intervals))


def _fit(intervals: Sequence[int], base: float) -> tuple[float, float] | None:
    """Period near ``base`` and the largest distance from it; None where too many bursts would have been missed, for
    then nearly anything fits."""
    times = [max(round(interval / base), 1) for interval in intervals]
    if max(times) > MOST_MISSED + 1 or sum(times) > 2 * len(times):
        return None
    single = [interval / number for interval, number in zip(intervals, times, strict=True)]
    period = median(single)
    return period, max(abs(interval - period) for interval in single)
