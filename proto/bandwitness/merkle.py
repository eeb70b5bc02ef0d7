"""Merkle tree of RFC 9162, section 2.1, over SHA-256. Pure."""

from collections.abc import Sequence
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


def inclusion_proof(hashes: Sequence[bytes], index: int) -> list[bytes]:
    """Audit path for leaf ``index`` (RFC 9162, 2.1.3.1), nearest sibling first.

    Raises:
        IndexError: ``index`` is outside the tree.
    """
    if not 0 <= index < len(hashes):
        raise IndexError(f"leaf {index} is outside a tree of {len(hashes)}")
    if len(hashes) == 1:
        return []
    k = _split(len(hashes))
    if index < k:
        return [*inclusion_proof(hashes[:k], index), root_of_hashes(hashes[k:])]
    return [*inclusion_proof(hashes[k:], index - k), root_of_hashes(hashes[:k])]


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
