"""What a counter counted between two reads: the right difference, or none and why. Pure.

A counter falls because it came to its top and began anew (known 32-bit ones), because its device or driver did, or
because somebody cleared it. Which of these is only known where the width is; guessing a wrap where there was a reset
makes 10^19 out of nothing.
"""

from enum import StrEnum

from bandwitness.counters import Meaning

SECOND = 1_000_000_000
MAX_STEP = 1 << 62  # no port has counted that much in its life


class Doubt(StrEnum):
    """Why there is no difference."""

    BACKWARDS = "backwards"  # the second read is not later
    RESET = "reset"  # device or driver began anew, or somebody cleared it
    AMBIGUOUS = "ambiguous"  # it may have come round more than once
    SATURATED = "saturated"  # stands at its top: as much as that, or any more
    TOO_MUCH = "too_much"  # more than the link carries in the time


def most_bytes(speed_bps: int | None, span_ns: int) -> int | None:
    """What a link carries at most in a time; None where the speed is not known."""
    return None if speed_bps is None else speed_bps * span_ns // (8 * SECOND)


def difference(before: int, now: int, meaning: Meaning, span_ns: int, most: int | None = None) -> int | Doubt:
    """How much was counted between two reads, in the counter's own steps: never negative, never above ``most``.

    Args:
        before: the earlier value.
        now: the later value.
        meaning: width, and what happens at the top.
        span_ns: monotonic time between the reads.
        most: upper limit of the difference, from the speed; None: unknown.
    """
    if span_ns <= 0:
        return Doubt.BACKWARDS
    size = 1 << meaning.bits
    if meaning.saturates and now == size - 1:
        return Doubt.SATURATED
    delta = now - before
    if meaning.bits < 64 and not meaning.saturates and max(before, now) < size:
        if most is not None and most >= size:
            return Doubt.AMBIGUOUS
        if delta < 0:
            delta += size
            if most is None and delta >= size // 2:
                return Doubt.RESET  # a count that falls a little fell to its beginning, and did not go nearly round
    if delta < 0:
        return Doubt.RESET
    if delta >= MAX_STEP or (most is not None and delta > most):
        return Doubt.TOO_MUCH
    return delta
