"""The RFC 9162 tree over all headers of the log, and proofs from it. Leaves are the headers' hashes in order of
position: they stand in the index, which outlives payloads and day files.

Nothing of the tree is kept: heads grow from the peaks of the head before, and a proof reads the leaves once, in order.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from bandwitness.merkle import Peaks, consistency_ranges, inclusion_ranges, leaf_hash

CHUNK = 20_000


class Hashes(Protocol):
    """What of the log is needed."""

    def header_hashes(self, after_position: int, limit: int) -> list[tuple[int, bytes]]: ...


def leaves(log: Hashes, after_position: int, last_position: int) -> Iterator[tuple[int, bytes]]:
    """Position and leaf hash of each entry in ``(after_position, last_position]``."""
    while after_position < last_position:
        found = log.header_hashes(after_position, CHUNK)
        for position, digest in found:
            if position > last_position:
                return
            yield position, leaf_hash(digest)
        if len(found) < CHUNK:
            return
        after_position = found[-1][0]


def grow(log: Hashes, peaks: Peaks, after_position: int, last_position: int) -> int:
    """Adds the entries in ``(after_position, last_position]``; the position of the newest leaf."""
    for position, hashed in leaves(log, after_position, last_position):
        peaks.append(hashed)
        after_position = position
    return after_position


def inclusion(log: Hashes, index: int, size: int, last_position: int) -> list[bytes]:
    """Audit path of leaf ``index`` in the tree of ``size`` leaves, nearest sibling first.

    Raises:
        IndexError: it is not in that tree, or the log has fewer leaves.
    """
    return _heads(log, inclusion_ranges(index, size), last_position)


def consistency(log: Hashes, old_size: int, size: int, last_position: int) -> list[bytes]:
    """Proof that the tree of ``size`` leaves continues the one of ``old_size``.

    Raises:
        IndexError: it is no earlier state, or the log has fewer leaves.
    """
    return _heads(log, consistency_ranges(old_size, size), last_position)


def _heads(log: Hashes, ranges: Sequence[tuple[int, int]], last_position: int) -> list[bytes]:
    """The head over each range of leaves; ranges do not overlap. One pass over the leaves."""
    order = sorted(ranges)
    found: dict[tuple[int, int], bytes] = {}
    waiting = iter(order)
    current, peaks = next(waiting, None), Peaks()
    for number, (_, hashed) in enumerate(leaves(log, 0, last_position)):
        if current is None:
            break
        start, end = current
        if number < start:
            continue
        peaks.append(hashed)
        if number == end - 1:
            found[current] = peaks.root()
            current, peaks = next(waiting, None), Peaks()
    if current is not None:
        raise IndexError(f"the log has fewer leaves than {current[1]}")
    return [found[one] for one in ranges]
