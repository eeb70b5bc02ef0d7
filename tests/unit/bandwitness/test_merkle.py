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


def subproof(old_size: int, hashes: list[bytes], whole: bool) -> list[bytes]:
    """SUBPROOF of RFC 9162, 2.1.4.1, written as it stands there."""
    size = len(hashes)
    if old_size == size:
        return [] if whole else [merkle.root_of_hashes(hashes)]
    k = 1
    while k * 2 < size:
        k *= 2
    if old_size <= k:
        return [*subproof(old_size, hashes[:k], whole), merkle.root_of_hashes(hashes[k:])]
    return [*subproof(old_size - k, hashes[k:], False), merkle.root_of_hashes(hashes[:k])]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 40])
def test_a_grown_tree_proves_that_it_holds_the_old_one(size: int) -> None:
    hashes = [merkle.leaf_hash(bytes([index])) for index in range(size)]
    head = merkle.root_of_hashes(hashes)
    for old_size in range(1, size + 1):
        old_head = merkle.root_of_hashes(hashes[:old_size])
        proof = merkle.consistency_proof(hashes, old_size)
        assert proof == subproof(old_size, hashes, True)
        assert merkle.consistency_holds(old_size, size, old_head, head, proof)
        for fake_old, fake_head in ((b"\0" * 32, head), (old_head, b"\0" * 32)):
            assert not merkle.consistency_holds(old_size, size, fake_old, fake_head, proof)
        assert not merkle.consistency_holds(old_size, size, old_head, head, [*proof, b"\0" * 32])
        if proof:
            assert not merkle.consistency_holds(old_size, size, old_head, head, proof[:-1])
            changed = [bytes(32), *proof[1:]]
            assert not merkle.consistency_holds(old_size, size, old_head, head, changed)


@given(st.integers(1, 60), st.integers(1, 60), st.lists(st.binary(min_size=32, max_size=32), max_size=8))
def test_no_made_up_proof_is_consistent(old_size: int, size: int, proof: list[bytes]) -> None:
    old_head, head = merkle.leaf_hash(b"old"), merkle.leaf_hash(b"new")
    assert not merkle.consistency_holds(old_size, size, old_head, head, proof)


@pytest.mark.parametrize(("old_size", "size"), [(0, 3), (4, 3), (-1, 3)])
def test_no_proof_of_what_is_no_earlier_state(old_size: int, size: int) -> None:
    with pytest.raises(IndexError, match="is no later state of"):
        merkle.consistency_ranges(old_size, size)
    assert not merkle.consistency_holds(old_size, size, b"", b"", [])


def test_peaks_grow_to_the_same_head_from_wherever_they_are_taken_up() -> None:
    hashes = [merkle.leaf_hash(bytes([index])) for index in range(70)]
    peaks = merkle.Peaks()
    assert peaks.root() == merkle.EMPTY_ROOT
    for size, hashed in enumerate(hashes, 1):
        peaks = merkle.Peaks(peaks.size, peaks.hashes)  # as from a record
        peaks.append(hashed)
        assert (peaks.size, peaks.root()) == (size, merkle.root_of_hashes(hashes[:size]))


@pytest.mark.parametrize(("size", "hashes"), [(3, [b"x" * 32]), (1, []), (2, [b"short"]), (0, [b"x" * 32])])
def test_peaks_that_are_none_are_refused(size: int, hashes: list[bytes]) -> None:
    with pytest.raises(ValueError, match="peaks of 32 bytes"):
        merkle.Peaks(size, hashes)


def test_a_leaf_cannot_pass_for_a_node() -> None:
    left, right = merkle.leaf_hash(b"a"), merkle.leaf_hash(b"b")
    assert merkle.root([left + right]) != merkle.root([b"a", b"b"])


def test_no_leaf_outside_the_tree() -> None:
    with pytest.raises(IndexError, match="leaf 3 is outside a tree of 3"):
        merkle.inclusion_proof([b"", b"", b""], 3)
