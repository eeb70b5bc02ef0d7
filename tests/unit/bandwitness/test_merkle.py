"""The payload tree against RFC 9162's definition and against a second, independent reader (pymerkle)."""

import warnings
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwitness import merkle

leaves = st.lists(st.binary(max_size=40), max_size=40)


def recursive_root(entries: list[bytes]) -> bytes:
    """MTH of RFC 9162, 2.1.1, written as it stands there."""
    if not entries:
        return sha256(b"").digest()
    if len(entries) == 1:
        return sha256(b"\x00" + entries[0]).digest()
    k = 1
    while k * 2 < len(entries):
        k *= 2
    return sha256(b"\x01" + recursive_root(entries[:k]) + recursive_root(entries[k:])).digest()


@given(leaves)
def test_root_is_the_rfcs(entries: list[bytes]) -> None:
    assert merkle.root(entries) == recursive_root(entries)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 31, 64, 65])
def test_second_reader_agrees(size: int) -> None:
    import pymerkle

    entries = [bytes([index]) for index in range(size)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its names for the root keep changing
        tree = pymerkle.InmemoryTree(algorithm="sha256")
        for entry in entries:
            tree.append_entry(entry)
        assert merkle.root(entries) == tree.get_state(size)


@given(leaves.filter(bool), st.data())
def test_each_record_can_be_shown_alone(entries: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(entries) - 1))
    hashes = [merkle.leaf_hash(entry) for entry in entries]
    proof, head = merkle.inclusion_proof(hashes, index), merkle.root(entries)
    assert merkle.inclusion_holds(entries[index], index, len(entries), proof, head)
    assert not merkle.inclusion_holds(entries[index] + b"x", index, len(entries), proof, head)
    assert not merkle.inclusion_holds(entries[index], index, len(entries), [*proof, b"\x00" * 32], head)
    assert not merkle.inclusion_holds(entries[index], len(entries), len(entries), proof, head)
    if proof:
        assert not merkle.inclusion_holds(entries[index], index, len(entries), proof[:-1], head)


def test_a_leaf_cannot_pass_for_a_node() -> None:
    left, right = merkle.leaf_hash(b"a"), merkle.leaf_hash(b"b")
    assert merkle.root([left + right]) != merkle.root([b"a", b"b"])


def test_no_leaf_outside_the_tree() -> None:
    with pytest.raises(IndexError, match="leaf 3 is outside a tree of 3"):
        merkle.inclusion_proof([b"", b"", b""], 3)
