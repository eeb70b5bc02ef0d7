"""Merkle tree of RFC 9162, section 2.1, over SHA-256: heads, proofs of inclusion and of consistency. Pure."""

from collections.abc import Iterable, Sequence
from hashlib import sha256

EMPTY_ROOT = sha256().digest()


def leaf_hash(leaf: bytes) -> bytes:
    """32-byte hash of one leaf."""
    return sha256(b"\x00" + leaf).digest()


def _node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def _split(size: int) -> int:
    """Largest power of two below ``size`` (``size`` ≥ 2)."""
    return 1 << (size - 1).bit_length() - 1


def root_of_hashes(hashes: Sequence[bytes]) -> bytes:
    """Tree head over leaf hashes; the hash of nothing for none.

    Works level by level: an odd node at the end of a level rises unchanged, which is the RFC's recursive definition.
    """
    if not hashes:
        return EMPTY_ROOT
    level = list(hashes)
    while len(level) > 1:
        paired = [_node_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        if len(level) % 2:
            paired.append(level[-1])
        level = paired
    return level[0]


def root(leaves: Sequence[bytes]) -> bytes:
    """Tree head over leaves."""
    return root_of_hashes([leaf_hash(leaf) for leaf in leaves])


def inclusion_ranges(index: int, size: int) -> list[tuple[int, int]]:
    """Leaves ``[start, end)`` under each node of the audit path for leaf ``index`` (RFC 9162, 2.1.3.1), nearest sibling
    first: whoever has more leaves than fit in memory computes the heads of these one after the other.

    Raises:
        IndexError: ``index`` is outside the tree.
    """
    if not 0 <= index < size:
        raise IndexError(f"leaf {index} is outside a tree of {size}")
    ranges: list[tuple[int, int]] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start = middle
    return ranges[::-1]


def inclusion_proof(hashes: Sequence[bytes], index: int) -> list[bytes]:
    """Audit path for leaf ``index``, nearest sibling first.

    Raises:
        IndexError: ``index`` is outside the tree.
    """
    return [root_of_hashes(hashes[start:end]) for start, end in inclusion_ranges(index, len(hashes))]


def consistency_ranges(old_size: int, size: int) -> list[tuple[int, int]]:
    """Leaves under each node of the proof that the first ``old_size`` of ``size`` leaves are the old tree (RFC 9162,
    2.1.4.1).

    Raises:
        IndexError: there was no old tree, or it is the larger one.
    """
    if not 0 < old_size <= size:
        raise IndexError(f"a tree of {size} is no later state of a tree of {old_size}")
    ranges: list[tuple[int, int]] = []
    start, end, whole = 0, size, True  # whole: the old tree is all of what is under this node
    while old_size != end:
        middle = start + _split(end - start)
        if old_size <= middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((start, middle))
            start, whole = middle, False
    if not whole:
        ranges.append((start, end))
    return ranges[::-1]


def consistency_proof(hashes: Sequence[bytes], old_size: int) -> list[bytes]:
    """Proof that the tree over ``hashes`` continues the one over the first ``old_size`` of them.

    Raises:
        IndexError: as ``consistency_ranges``.
    """
    return [root_of_hashes(hashes[start:end]) for start, end in consistency_ranges(old_size, len(hashes))]


def consistency_holds(old_size: int, size: int, old_head: bytes, head: bytes, proof: Sequence[bytes]) -> bool:
    """Whether the tree with ``head`` continues the one with ``old_head`` (RFC 9162, 2.1.4.2)."""
    if not 0 < old_size <= size:
        return False
    if old_size == size:
        return not proof and old_head == head
    path = list(proof) if old_size & (old_size - 1) else [old_head, *proof]
    if not path:
        return False
    position, last = old_size - 1, size - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    of_old = of_new = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if position & 1 or position == last:
            of_old, of_new = _node_hash(sibling, of_old), _node_hash(sibling, of_new)
            while position and not position & 1:
                position, last = position >> 1, last >> 1
        else:
            of_new = _node_hash(of_new, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and of_old == old_head and of_new == head


class Peaks:
    """A tree that only grows, in as many hashes as its size has ones in binary: the heads of its perfect subtrees,
    largest first. What a head has to remember so that the next one need not see old leaves again."""

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        """
        Raises:
            ValueError: not as many hashes as such a tree has.
        """
        self.size = size
        self.hashes = list(hashes)
        if len(self.hashes) != size.bit_count() or any(len(peak) != 32 for peak in self.hashes):
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} peaks of 32 bytes")

    def append(self, hashed: bytes) -> None:
        """Adds a leaf by its hash."""
        ones = self.size
        while ones & 1:
            hashed = _node_hash(self.hashes.pop(), hashed)
            ones >>= 1
        self.hashes.append(hashed)
        self.size += 1

    def root(self) -> bytes:
        """Tree head."""
        if not self.hashes:
            return EMPTY_ROOT
        folded = self.hashes[-1]
        for peak in reversed(self.hashes[:-1]):
            folded = _node_hash(peak, folded)
        return folded


def inclusion_holds(leaf: bytes, index: int, size: int, proof: Sequence[bytes], head: bytes) -> bool:
    """Whether ``leaf`` stands at ``index`` of the tree of ``size`` leaves with this head (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    position, last, computed = index, size - 1, leaf_hash(leaf)
    for sibling in proof:
        if last == 0:
            return False
        if position & 1 or position == last:
            computed = _node_hash(sibling, computed)
            while position and not position & 1:
                position, last = position >> 1, last >> 1
        else:
            computed = _node_hash(computed, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and computed == head
