"""How signed durations spread: a histogram of few bytes that merges exactly. Pure.

Bins grow with the value: 64 an octave, so a value read from one is at most 1.6 % farther from 0 than what was measured;
below 128 ns it is exact. Bytes are a run of pairs (bin, count): two are merged by setting one behind the other.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
BINS_PER_OCTAVE = 64
_PAIR = np.dtype([("bin", "<i4"), ("count", "<u4")])


def bins_of(values_ns: Ints) -> Ints:
    """Bin of each value, |value| below 2^52; bins rise with values."""
    sizes = np.abs(values_ns)
    shifts = np.maximum(np.frexp(sizes.astype(np.float64))[1].astype(np.int64) - 7, 0)
    magnitudes = shifts * BINS_PER_OCTAVE + (sizes >> shifts)
    return np.where(values_ns < 0, -magnitudes, magnitudes)


def edge_ns(number: int) -> int:
    """The value of a bin that is farthest from 0."""
    shift = max(abs(number) // BINS_PER_OCTAVE - 1, 0)
    edge = ((abs(number) - shift * BINS_PER_OCTAVE + 1) << shift) - 1
    return -edge if number < 0 else edge


def pack(counts: Mapping[int, int]) -> bytes:
    """Bytes of counts by bin."""
    pairs = np.empty(len(counts), _PAIR)
    pairs["bin"], pairs["count"] = sorted(counts), [counts[number] for number in sorted(counts)]
    return pairs.tobytes()


def unpack(parts: Sequence[bytes]) -> dict[int, int]:
    """Counts by bin of one histogram or several together."""
    pairs = np.frombuffer(b"".join(parts), _PAIR)
    numbers, of = np.unique(pairs["bin"], return_inverse=True)
    counts = np.bincount(of, pairs["count"], len(numbers)).astype(np.int64)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def quantile(counts: Mapping[int, int], percent: int) -> int | None:
    """Nearest rank; None of nothing."""
    rank = max(-(-percent * sum(counts.values()) // 100), 1)
    for number in sorted(counts):
        rank -= counts[number]
        if rank <= 0:
            return edge_ns(number)
    return None
