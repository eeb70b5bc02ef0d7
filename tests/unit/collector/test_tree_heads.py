"""Daily heads over the whole log: they grow, they can be proved, and a log that was cut is not signed."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from bandwitness import merkle
from bandwitness.chain import header_hash, read_header, read_payload
from bandwitness.v1.record_pb2 import BATCH_CLASS_CONTROL, BATCH_CLASS_EVIDENCE, Record, TreeHead
from collector.control import TreeHeads
from collector.control.heads import GRACE_NS, InconsistentLogError
from collector.decode import Definitions, decode
from collector.export.http import Sources, create_app
from collector.export.log_proofs import router
from collector.log import ChainKey, Log, arrival
from collector.log.tree import consistency, inclusion
from collector.model import TreeHeadRow
from tests.fakes.batches import FakeChain
from tests.fakes.clock import FakeClock
from tests.unit.collector.test_control import control

DAY_NS = 86_400 * 1_000_000_000


class Life:
    """A log with a control chain and agents that send."""

    def __init__(self, directory: Path, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.log = Log.open(directory)
        self.control = control(self.log, clock=self.clock)
        self.heads = TreeHeads(self.log, self.control, self.clock)
        self.agent = FakeChain("n1", BATCH_CLASS_EVIDENCE)

    async def send(self, count: int) -> None:
        appender = self.log.appender()
        for _ in range(count):
            await appender.append(arrival(self.clock.wall_ns(), "n1", "", self.agent.next([])))

    def leaf_hashes(self) -> list[bytes]:
        """Of every header, read from the frames themselves."""
        return [merkle.leaf_hash(header_hash(entry.header)) for entry in self.log.read(0, 10_000)]

    def signed(self) -> list[TreeHead]:
        records = [
            Record.FromString(encoded)
            for entry in self.log.read(0, 10_000)
            if entry.batch_class == BATCH_CLASS_CONTROL
            for encoded in read_payload(read_header(entry.header), entry.payload)
        ]
        return [record.tree_head for record in records if record.HasField("tree_head")]

    def rows(self) -> list[TreeHeadRow]:
        definitions = Definitions()
        return [row for entry in self.log.read(0, 10_000) for row in decode(entry, definitions).tree_heads]


async def test_a_head_covers_every_header_so_far_and_the_next_continues_it(tmp_path: Path) -> None:
    life = Life(tmp_path)
    await life.send(5)
    first = await life.heads.make("2026-01-01")
    await life.send(7)
    second = await life.heads.make("2026-01-02")
    hashes = life.leaf_hashes()
    assert (first.tree_size, first.root) == (5, merkle.root_of_hashes(hashes[:5]))
    assert (second.tree_size, second.root) == (13, merkle.root_of_hashes(hashes[:13]))  # the first head's batch too
    proof = consistency(life.log, 5, 13, second.last_position)
    assert merkle.consistency_holds(5, 13, first.root, second.root, proof)
    assert life.signed() == [first, second]
    life.log.close()


async def test_every_header_can_be_proved(tmp_path: Path) -> None:
    life = Life(tmp_path)
    await life.send(11)
    head = await life.heads.make("2026-01-01")
    for entry in life.log.read(0, 11):
        found = life.log.leaf_of(ChainKey("n1", entry.chain_id, BATCH_CLASS_EVIDENCE), entry.seq)
        assert found is not None
        index, digest = found
        assert digest == header_hash(entry.header)
        proof = inclusion(life.log, index, head.tree_size, head.last_position)
        assert merkle.inclusion_holds(digest, index, head.tree_size, proof, head.root)
    with pytest.raises(IndexError, match="fewer leaves"):
        inclusion(life.log, 0, 20, 20)
    life.log.close()


async def until(condition: Callable[[], bool]) -> None:
    """Heads grow in a thread, so the test waits for what they lead to."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what it waits for is in a file
            await asyncio.sleep(0.001)


async def test_a_head_is_made_once_a_day_also_across_a_restart(tmp_path: Path) -> None:
    life = Life(tmp_path)
    await life.send(3)
    running = asyncio.create_task(life.heads.run())
    await until(lambda: life.clock.sleepers == 1)
    assert [head.day for head in life.signed()] == ["2025-12-30"]  # a minute of grace: this day is not over yet
    life.clock.move(GRACE_NS)
    await until(lambda: len(life.signed()) == 2 and life.clock.sleepers == 1)
    life.clock.move(DAY_NS)
    await until(lambda: len(life.signed()) == 3)
    assert [head.day for head in life.signed()] == ["2025-12-30", "2025-12-31", "2026-01-01"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    life.log.close()
    again = Life(tmp_path, life.clock)
    before = again.signed()
    running = asyncio.create_task(again.heads.run())
    await until(lambda: again.clock.sleepers == 1)
    assert again.signed() == before
    again.clock.move(DAY_NS)
    await until(lambda: len(again.signed()) == 4)
    third, fourth = again.signed()[2:]
    proof = consistency(again.log, third.tree_size, fourth.tree_size, fourth.last_position)
    assert merkle.consistency_holds(third.tree_size, fourth.tree_size, third.root, fourth.root, proof)
    running.cancel()
    again.log.close()


async def test_a_log_that_lost_what_a_head_covers_is_not_signed(tmp_path: Path) -> None:
    life = Life(tmp_path)
    await life.send(3)
    head = await life.heads.make("2026-01-01")
    head.last_position = 1_000
    with pytest.raises(InconsistentLogError, match="covers 1000 entries, the log has 4"):
        await life.heads.make("2026-01-02")
    life.log.close()


async def test_a_stranger_can_check_by_the_api_alone(tmp_path: Path) -> None:
    life = Life(tmp_path)
    app = FastAPI()
    app.include_router(router(life.rows, life.log))
    client = TestClient(app)
    chain = life.agent.chain_id.hex()
    asked = {"agent": "n1", "chain": chain, "class": "evidence", "seq": "3"}
    assert client.get("/api/v1/proofs/inclusion", params=asked).status_code == 404  # no head yet
    await life.send(5)
    await life.heads.make("2026-01-01")
    await life.send(4)
    await life.heads.make("2026-01-02")
    old, new = client.get("/api/v1/heads").json()["items"]
    assert (old["day"], old["tree_size"], new["tree_size"]) == ("2026-01-01", 5, 10)
    answer = client.get("/api/v1/proofs/inclusion", params=asked | {"tree_size": "5"}).json()
    path = [bytes.fromhex(one) for one in answer["proof"]]
    assert merkle.inclusion_holds(bytes.fromhex(answer["leaf"]), answer["index"], 5, path, bytes.fromhex(old["root"]))
    answer = client.get("/api/v1/proofs/consistency", params={"old_size": "5"}).json()
    path = [bytes.fromhex(one) for one in answer["proof"]]
    assert merkle.consistency_holds(5, 10, bytes.fromhex(old["root"]), bytes.fromhex(new["root"]), path)
    late = client.get("/api/v1/proofs/inclusion", params=asked | {"seq": "8", "tree_size": "5"})
    assert (late.status_code, "came after" in late.text) == (404, True)
    unknown = client.get("/api/v1/proofs/inclusion", params=asked | {"seq": "99"})
    assert unknown.status_code == 404
    life.log.close()


@pytest.mark.parametrize(
    "query",
    [
        "/api/v1/proofs/inclusion?agent=n1&chain=xyz&class=evidence&seq=1",
        "/api/v1/proofs/inclusion?agent=n1&chain=" + "0" * 32 + "&class=other&seq=1",
        "/api/v1/proofs/consistency?old_size=0",
        "/api/v1/proofs/consistency?old_size=7",
    ],
)
async def test_bad_questions_get_the_apis_error(tmp_path: Path, query: str) -> None:
    life = Life(tmp_path)
    await life.send(1)
    await life.heads.make("2026-01-01")
    app = create_app(Sources(None, str, dict, lambda node: node))  # type: ignore[arg-type] # none of it is asked
    app.include_router(router(life.rows, life.log))
    answer = TestClient(app).get(query)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_query")
    life.log.close()
