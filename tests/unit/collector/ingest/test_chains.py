"""Every damage has its name, is kept once, and the chain goes on behind it."""

from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bandwitness.v1.record_pb2 import BATCH_CLASS_CONTROL, BATCH_CLASS_EVIDENCE, Header, SignedBatch
from collector.ingest.chains import AgentChains, Judged, WrongAgentError
from collector.ingest.cursor import Stored
from collector.log import ChainKey, ChainState, Kept
from tests.fakes.batches import START_NS, FakeChain, gap_record


class KeptLog:
    """A log that only counts; ``take`` judges and keeps."""

    def __init__(self) -> None:
        self.entries: dict[tuple[ChainKey, int], list[Kept]] = {}
        self.chains = self.stream({})

    def stream(self, states: dict[ChainKey, ChainState]) -> AgentChains:
        return AgentChains("n1", states, self.look_up)

    async def look_up(self, key: ChainKey, seq: int) -> Stored:
        return self.entries.get((key, seq), ())

    async def take(self, batch: SignedBatch, *, durable: bool = True) -> Judged:
        judged = await self.chains.judge(batch, START_NS)
        if durable and not judged.duplicate:
            self.keep(judged)
        return judged

    def keep(self, judged: Judged) -> None:
        arrival = judged.arrival
        self.entries.setdefault((arrival.key, arrival.seq), []).append(arrival.kept)
        self.chains.settled(arrival)

    @property
    def count(self) -> int:
        return sum(map(len, self.entries.values()))


async def test_a_chain_is_put_on_record_at_first_sight_only() -> None:
    kept, chain = KeptLog(), FakeChain()
    assert [(await kept.take(chain.next())).first_sight for _ in range(3)] == [True, False, False]
    other = FakeChain(chain_id=b"y" * 16)
    assert (await kept.take(other.next())).first_sight


async def test_case_39_a_batch_sent_again_changes_nothing() -> None:
    """Key: agent, chain, seq. 101–200 sent twice (the first acknowledgement was lost), then 151–250."""
    kept, chain = KeptLog(), FakeChain()
    batches = [chain.next() for _ in range(250)]
    for batch in batches[:200]:
        assert (await kept.take(batch)).arrival.quarantine == ""
    assert kept.count == 200
    again = [await kept.take(batch) for batch in batches[100:200]]
    assert {judged.duplicate for judged in again} == {True}
    assert kept.count == 200
    last = [await kept.take(batch) for batch in batches[150:250]]
    assert [judged.duplicate for judged in last] == [True] * 50 + [False] * 50
    assert [judged.arrival.seq for judged in last][-1] == 250
    assert {judged.arrival.quarantine for judged in last} == {""}
    assert kept.count == 250


async def test_a_batch_sent_again_before_the_first_is_durable_is_known_too() -> None:
    kept, chain = KeptLog(), FakeChain()
    batch = chain.next()
    first = await kept.take(batch, durable=False)
    assert (await kept.take(batch)).duplicate
    kept.keep(first)
    assert (await kept.take(batch)).duplicate
    assert kept.count == 1


def _resigned(
    batch: SignedBatch, change: Callable[[Header], None], key: Ed25519PrivateKey | None = None
) -> SignedBatch:
    header = Header.FromString(batch.header)
    change(header)
    encoded = header.SerializeToString(deterministic=True)
    key = key or Ed25519PrivateKey.from_private_bytes((1).to_bytes(32, "big"))
    return SignedBatch(header=encoded, payload=batch.payload, signature=key.sign(encoded))


def _with(batch: SignedBatch, **fields: bytes) -> SignedBatch:
    changed = SignedBatch.FromString(batch.SerializeToString())
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


OTHER_KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
DAMAGES: list[tuple[str, Callable[[SignedBatch], SignedBatch], str]] = [
    # name of the fault, damage done to batch 3 of 5, fault of batch 4 behind it
    ("bad_signature", lambda batch: _with(batch, signature=bytes(64)), "gap"),
    ("bad_signature", lambda batch: _with(batch, signature=b""), "gap"),
    ("payload_mismatch", lambda batch: _with(batch, payload=batch.payload + batch.payload), ""),
    ("unreadable_payload", lambda batch: _with(batch, payload=b"\xff\xff"), ""),
    ("unreadable_header", lambda batch: _with(batch, header=b"\xff"), "gap"),
    (
        "broken_link",
        lambda batch: _resigned(batch, lambda h: setattr(h, "previous_header_hash", b"x" * 32)),
        "broken_link",
    ),
    ("unsupported_algorithm", lambda batch: _resigned(batch, lambda h: h.ClearField("hash_algorithm")), "gap"),
    ("wrong_class", lambda batch: _resigned(batch, lambda h: setattr(h, "batch_class", BATCH_CLASS_CONTROL)), "gap"),
    (
        "wrong_key",
        lambda batch: _resigned(
            batch, lambda h: setattr(h, "public_key", OTHER_KEY.public_key().public_bytes_raw()), OTHER_KEY
        ),
        "gap",
    ),
]


@pytest.mark.parametrize(("fault", "damage", "after"), DAMAGES)
async def test_damage_is_named_kept_once_and_the_chain_goes_on(
    fault: str, damage: Callable[[SignedBatch], SignedBatch], after: str
) -> None:
    kept, chain = KeptLog(), FakeChain()
    one, two, three, four, five = [chain.next() for _ in range(5)]
    await kept.take(one)
    await kept.take(two)
    bad = await kept.take(damage(three))
    assert (bad.duplicate, bad.arrival.quarantine, bad.first_sight) == (False, fault, False)
    assert (await kept.take(damage(three))).duplicate
    assert kept.count == 3
    assert (await kept.take(four)).arrival.quarantine == after
    assert (await kept.take(five)).arrival.quarantine == ""


async def test_a_gap_is_named_once_and_what_was_missing_may_come_late() -> None:
    kept, chain = KeptLog(), FakeChain()
    batches = [chain.next() for _ in range(6)]
    faults = [(await kept.take(batch)).arrival.quarantine for batch in (batches[0], *batches[3:])]
    assert faults == ["", "gap", "", ""]
    late = [await kept.take(batch) for batch in batches[1:3]]
    assert [(judged.duplicate, judged.arrival.quarantine, judged.late) for judged in late] == [(False, "", True)] * 2
    assert (await kept.take(batches[2])).duplicate


async def test_a_forged_first_batch_opens_no_chain() -> None:
    kept, chain = KeptLog(), FakeChain()
    batch = chain.next()
    assert not (await kept.take(_with(batch, signature=bytes(64)))).first_sight
    assert (await kept.take(batch)).first_sight


async def test_a_fork_is_kept_and_the_agents_newer_past_is_taken_up() -> None:
    """An agent whose disk was put back to an earlier day: its numbers come a second time with other contents."""
    kept, chain = KeptLog(), FakeChain()
    for _ in range(3):
        await kept.take(chain.next())
    rolled_back = FakeChain()
    rolled_back.next()
    faults = [(await kept.take(rolled_back.next([gap_record(900 + number)]))).arrival.quarantine for number in range(4)]
    assert faults == ["fork", "fork", "broken_link", ""]


async def test_a_payload_that_the_agent_dropped_leaves_the_chain_whole() -> None:
    kept, chain = KeptLog(), FakeChain()
    assert (await kept.take(_with(chain.next(), payload=b""))).arrival.quarantine == ""
    assert (await kept.take(chain.next())).arrival.quarantine == ""


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    ("fault", "payload"), [("payload_mismatch", b"\x0a\x00"), ("unreadable_payload", b"\xff"), ("", b"")]
)
async def test_the_right_payload_is_kept_once_whatever_came_before_it(
    fault: str, payload: bytes, durable: bool
) -> None:
    kept, chain = KeptLog(), FakeChain()
    one, two, three = [chain.next() for _ in range(3)]
    await kept.take(one)
    first = await kept.take(_with(two, payload=payload), durable=durable)
    assert (first.duplicate, first.arrival.quarantine) == (False, fault)
    await kept.take(three)
    forged = await kept.take(_with(two, signature=bytes(64)))
    wrong = await kept.take(_with(two, payload=two.payload + b"\x0a\x00"))
    assert (forged.duplicate, wrong.duplicate) == (True, True)
    good = await kept.take(two, durable=durable)
    assert (good.duplicate, good.arrival.quarantine, good.late) == (False, "", True)
    assert (await kept.take(two)).duplicate
    assert (await kept.take(_with(two, payload=payload))).duplicate


async def test_a_payload_that_comes_late_does_not_mend_its_headers_place_in_the_chain() -> None:
    kept, chain = KeptLog(), FakeChain()
    one, _, three = [chain.next() for _ in range(3)]
    await kept.take(one)
    assert (await kept.take(_with(three, payload=b""))).arrival.quarantine == "gap"
    good = await kept.take(three)
    assert (good.duplicate, good.arrival.quarantine, good.late) == (False, "gap", False)
    assert (await kept.take(three)).duplicate
    assert kept.count == 3


async def test_a_number_beyond_63_bits_is_no_header() -> None:
    kept, chain = KeptLog(), FakeChain()
    bad = _resigned(chain.next(), lambda header: setattr(header, "seq", 1 << 63))
    assert (await kept.take(bad)).arrival.quarantine == "unreadable_header"


async def test_a_batch_in_another_agents_name_ends_the_stream() -> None:
    with pytest.raises(WrongAgentError, match="n2"):
        await KeptLog().take(FakeChain("n2").next())


async def test_a_stream_begins_where_the_log_ends() -> None:
    kept, chain = KeptLog(), FakeChain()
    chain.next()
    key = ChainKey("n1", chain.chain_id, BATCH_CLASS_EVIDENCE)
    kept.chains = kept.stream({key: ChainState(chain.tip, chain.public_key)})
    judged = await kept.take(chain.next())
    assert (judged.arrival.quarantine, judged.first_sight) == ("", False)
