"""New, known, or not where it should be."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwitness.chain import ORIGIN, ChainFault, Tip, header_hash
from bandwitness.v1.record_pb2 import Header, SignedBatch
from collector.ingest.cursor import NEW, UNTRUSTED, Verdict, completes, is_known, place
from collector.log import Kept
from tests.fakes.batches import FakeChain


def chain_of(count: int, **fields: int) -> list[SignedBatch]:
    chain = FakeChain(**fields)  # type: ignore[arg-type]
    return [chain.next() for _ in range(count)]


def header(batch: SignedBatch) -> Header:
    return Header.FromString(batch.header)


def tip(batch: SignedBatch) -> Tip:
    return Tip(header(batch).seq, header_hash(batch.header))


BATCHES = chain_of(5)
HASHES = [header_hash(batch.header) for batch in BATCHES]


def test_each_batch_stands_behind_the_one_before() -> None:
    assert place(header(BATCHES[0]), ORIGIN, (), ()) == NEW
    for before, after in pairwise(BATCHES):
        assert place(header(after), tip(before), (), ()) == NEW


def test_missing_numbers_are_a_gap_also_at_the_very_start() -> None:
    assert place(header(BATCHES[3]), tip(BATCHES[0]), (), ()) == Verdict(fault=ChainFault.GAP)
    assert place(header(BATCHES[3]), ORIGIN, (), ()) == Verdict(fault=ChainFault.GAP)


def test_the_next_number_with_another_past_is_a_broken_link() -> None:
    stranger = Tip(2, b"x" * 32)
    assert place(header(BATCHES[2]), stranger, (), ()) == Verdict(fault=ChainFault.BROKEN_LINK)


def test_another_batch_with_a_number_already_there_is_a_fork() -> None:
    assert place(header(BATCHES[2]), tip(BATCHES[4]), [Kept(b"x" * 32, "")], ()) == Verdict(fault=ChainFault.FORK)
    kept_with_fault = [Kept(b"x" * 32, "payload_mismatch")]
    assert place(header(BATCHES[2]), tip(BATCHES[4]), kept_with_fault, ()) == Verdict(fault=ChainFault.FORK)


def test_a_number_that_was_missing_is_welcome_late_if_it_is_linked() -> None:
    end = tip(BATCHES[4])
    assert place(header(BATCHES[2]), end, (), [Kept(HASHES[1], "")]) == NEW
    assert place(header(BATCHES[0]), end, (), ()) == NEW
    assert place(header(BATCHES[2]), end, (), [Kept(b"x" * 32, "")]) == Verdict(fault=ChainFault.BROKEN_LINK)
    assert place(header(BATCHES[2]), end, (), ()) == Verdict(fault=ChainFault.BROKEN_LINK)


@pytest.mark.parametrize("fault", sorted(UNTRUSTED))
def test_a_forged_batch_takes_no_number_from_the_real_one(fault: str) -> None:
    assert not is_known(HASHES[2], [Kept(HASHES[2], fault)])
    assert place(header(BATCHES[2]), tip(BATCHES[4]), [Kept(b"x" * 32, fault)], [Kept(HASHES[1], "")]) == NEW
    assert place(header(BATCHES[2]), tip(BATCHES[4]), (), [Kept(HASHES[1], fault)]).fault == ChainFault.BROKEN_LINK


@pytest.mark.parametrize("fault", ["", "gap", "fork", "broken_link", "payload_mismatch"])
def test_the_same_header_is_known_whatever_is_wrong_around_it(fault: str) -> None:
    assert is_known(HASHES[2], [Kept(b"x" * 32, ""), Kept(HASHES[2], fault)])


def test_a_known_header_is_of_use_again_until_one_copy_has_its_payload() -> None:
    digest, other = HASHES[2], Kept(b"x" * 32, "", complete=True)
    dropped, damaged = Kept(digest, "", complete=False), Kept(digest, "payload_mismatch", complete=False)
    misplaced = Kept(digest, "gap", complete=False)
    assert completes(digest, [other, dropped]) == NEW
    assert completes(digest, [damaged, other]) == NEW
    assert completes(digest, [misplaced, other]) == Verdict(fault="gap")
    assert completes(digest, [damaged, Kept(digest, "")]) is None
    assert completes(digest, [Kept(digest, "gap")]) is None


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_in_any_order_each_header_is_stored_once(order: list[int]) -> None:
    end, stored = ORIGIN, dict[int, list[Kept]]()
    for number in order:
        parsed, digest = header(BATCHES[number]), HASHES[number]
        known = stored.setdefault(parsed.seq, [])
        if is_known(digest, known):
            continue
        verdict = place(parsed, end, known, stored.get(parsed.seq - 1, []))
        assert verdict.fault != ChainFault.FORK
        known.append(Kept(digest, verdict.fault))
        if parsed.seq > end.seq:
            end = Tip(parsed.seq, digest)
    assert sorted(seq for seq, kept in stored.items() if kept) == sorted({number + 1 for number in order})
    assert all(len(kept) <= 1 for kept in stored.values())
