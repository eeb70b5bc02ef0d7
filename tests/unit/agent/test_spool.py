"""Batches are in the spool whole or not at all; what is lost is counted and noted; nothing stops the measuring."""

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import result
from agent.clock import Anchor, ClockStep, Suspension
from agent.record import Author, HeaderContext, Recorder, SealedBatch
from agent.spool import Journal, Limits, Spool, SpoolError, StaleChainError
from bandwitness import chain
from bandwitness.v1 import record_pb2 as pb
from tests.fakes.sqlite_disk import Disk

SECOND = 1_000_000_000
WALL = 1_767_225_600 * SECOND
EVIDENCE, TELEMETRY = int(pb.BATCH_CLASS_EVIDENCE), int(pb.BATCH_CLASS_TELEMETRY)
AUTHOR = Author("gpu-r1-01", b"K" * 32, lambda header: b"S" * 64, b"B" * 16, b"R" * 16, b"C" * 32, "0.1.0")
FULL = sqlite3.SQLITE_FULL
PATH = b"path"


class Host:
    """One state directory, and what comes and goes around it: disk, clock, process."""

    def __init__(self, directory: Path, **limits: int) -> None:
        self.path = directory / "spool.sqlite"
        self.limits = Limits(**limits)
        self.disk = Disk()
        self.now_ns = WALL
        self._salt = 0

    def random(self, count: int) -> bytes:
        self._salt += 1
        return bytes([self._salt % 256]) * count

    def spool(self) -> Spool:
        return Spool(
            self.path,
            self.limits,
            wall_ns=lambda: self.now_ns,
            random_bytes=self.random,
            connect=self.disk.connect,
            free_bytes=self.disk.free_bytes,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Agent"]:
        spool = self.spool()
        await spool.open()
        recorder = Recorder(AUTHOR, spool.tips(), random_bytes=self.random)
        try:
            yield Agent(self, spool, recorder, Journal(recorder, spool, self.now_ns))
        finally:
            await spool.close()


class Agent:
    """The part of an agent that records and spools, two seconds a flush."""

    def __init__(self, host: Host, spool: Spool, recorder: Recorder, journal: Journal) -> None:
        self.host, self.spool, self.recorder, self.journal = host, spool, recorder, journal

    async def flush(self, *, evidence_bytes: int = 0, telemetry_bytes: int = 0) -> None:
        self.host.now_ns += 2 * SECOND
        now_ns = self.host.now_ns
        if evidence_bytes:
            report = result.Report(pb.RUN_OUTCOME_OK)
            self.recorder.add_throughput_run(
                result.ThroughputRun(
                    b"S" * 16, b"G" * 16, 1, PATH, b"", report, now_ns - SECOND, now_ns, 1, False, 1,
                    raw_report=b"r" * evidence_bytes,
                )
            )  # fmt: skip
        if telemetry_bytes:
            parts = [result.PartState("nic", True, "ok", "d" * telemetry_bytes)]
            self.recorder.add_status(result.Status(now_ns, 0, None, 0, parts))
        await self.journal.flush(self.context(), {EVIDENCE: now_ns, TELEMETRY: now_ns})

    def context(self) -> HeaderContext:
        return HeaderContext(Anchor(self.host.now_ns, 1, 1), result.ClockReading(1, True))

    async def all(self, batch_class: int) -> list[tuple[pb.Header, list[pb.Record] | None]]:
        """Every unacknowledged batch of a class; None in place of dropped records. Checks that the chain holds."""
        found: list[tuple[pb.Header, list[pb.Record] | None]] = []
        tip: chain.Tip | None = None
        for seq, batch in await self.spool.unsent(batch_class, 0, 1 << 40, 1 << 20):
            header = chain.read_header(batch.header)
            assert header.seq == seq
            if tip is not None:
                assert header.seq == tip.seq + 1
                chain.check_link(header, tip)
            tip = chain.Tip(seq, chain.header_hash(batch.header))
            dropped = header.record_count and not batch.payload
            records = None if dropped else chain.read_payload(header, batch.payload)
            found.append((header, None if records is None else [pb.Record.FromString(record) for record in records]))
        return found

    async def gap_records(self, batch_class: int) -> list[pb.Gap]:
        return [
            record.gap
            for _, records in await self.all(batch_class)
            for record in records or ()
            if record.WhichOneof("kind") == "gap"
        ]


def sealed(spool: Spool, count: int, batch_class: int = EVIDENCE) -> list[SealedBatch]:
    recorder = Recorder(AUTHOR, spool.tips())
    context = HeaderContext(Anchor(WALL, 1, 1), result.ClockReading(1, True))
    return [recorder.seal(batch_class, context, WALL + i)[0] for i in range(count)]


# ---------------------------------------------------------------- chain and acknowledgement


async def test_batches_come_back_as_they_were_sealed(tmp_path: Path) -> None:
    async with Host(tmp_path).running() as agent:
        batches = sealed(agent.spool, 3)
        await agent.spool.append(batches)
        kept = await agent.spool.unsent(EVIDENCE, 0, 1 << 20)
        assert [(seq, batch.header, batch.payload, batch.signature) for seq, batch in kept] == [
            (batch.seq, batch.header, batch.payload, batch.signature) for batch in batches
        ]
        assert await agent.spool.unsent(TELEMETRY, 0, 1 << 20) == []
        assert agent.spool.appended.is_set()


async def test_reading_is_bounded_but_gives_at_least_one(tmp_path: Path) -> None:
    async with Host(tmp_path).running() as agent:
        await agent.spool.append(sealed(agent.spool, 5))
        size = len((await agent.spool.unsent(EVIDENCE, 0, 1))[0][1].header) + 64
        assert [seq for seq, _ in await agent.spool.unsent(EVIDENCE, 0, 1)] == [1]
        assert [seq for seq, _ in await agent.spool.unsent(EVIDENCE, 2, 3 * size - 9)] == [3, 4]
        assert [seq for seq, _ in await agent.spool.unsent(EVIDENCE, 0, 1 << 20, 3)] == [1, 2, 3]


async def test_a_restart_continues_the_chain_and_shows_the_gap(tmp_path: Path) -> None:
    host = Host(tmp_path)
    async with host.running() as agent:
        await agent.flush(evidence_bytes=10)
        assert await agent.gap_records(EVIDENCE) == []  # a first start has nothing to miss
        stopped_ns = host.now_ns
        tip = agent.spool.tip(EVIDENCE)
    host.now_ns += 60 * SECOND
    async with host.running() as agent:
        assert agent.spool.tip(EVIDENCE) == tip
        started_ns = host.now_ns
        await agent.flush()
        assert [header.seq for header, _ in await agent.all(EVIDENCE)] == [1, 2]
        for batch_class in (EVIDENCE, TELEMETRY):
            [gap] = await agent.gap_records(batch_class)
            assert (gap.reason, gap.from_time_ns, gap.to_time_ns) == (pb.GAP_REASON_RESTART, stopped_ns, started_ns)
            assert not gap.HasField("records")


async def test_acknowledged_batches_go_and_the_tip_stays(tmp_path: Path) -> None:
    host = Host(tmp_path)
    async with host.running() as agent:
        for _ in range(4):
            await agent.flush(evidence_bytes=10)
        tip = agent.spool.tip(EVIDENCE)
        before = agent.spool.stats()
        await agent.spool.acknowledge(EVIDENCE, tip.chain_id, 3, WALL + 7)
        assert [seq for seq, _ in await agent.spool.unsent(EVIDENCE, 0, 1 << 20)] == [4]
        await agent.flush()
        assert agent.spool.stats().bytes < before.bytes
        assert agent.spool.acknowledged(EVIDENCE) == (3, WALL + 7)
    async with host.running() as agent:
        assert agent.spool.tip(EVIDENCE).tip.seq == 5
        assert agent.spool.acknowledged(EVIDENCE) == (3, WALL + 7)
        assert [seq for seq, _ in await agent.spool.unsent(EVIDENCE, 0, 1 << 20)] == [4, 5]


@pytest.mark.parametrize(("chain_id", "seq"), [(b"another chain!!!", 2), (None, 99)])
async def test_an_acknowledgement_that_cannot_be_ours_changes_nothing(
    tmp_path: Path, chain_id: bytes | None, seq: int
) -> None:
    async with Host(tmp_path).running() as agent:
        for _ in range(3):
            await agent.flush()
        await agent.spool.acknowledge(EVIDENCE, chain_id or agent.spool.tip(EVIDENCE).chain_id, seq, WALL)
        await agent.flush()
        assert agent.spool.acknowledged(EVIDENCE) == (0, None)
        assert len(await agent.all(EVIDENCE)) == 4


async def test_acknowledgements_never_go_back(tmp_path: Path) -> None:
    async with Host(tmp_path).running() as agent:
        for _ in range(3):
            await agent.flush()
        chain_id = agent.spool.tip(EVIDENCE).chain_id
        await agent.spool.acknowledge(EVIDENCE, chain_id, 3, WALL)
        await agent.spool.acknowledge(EVIDENCE, chain_id, 2, WALL + 1)
        assert agent.spool.acknowledged(EVIDENCE) == (3, WALL)


async def test_a_batch_that_does_not_continue_the_chain_is_refused(tmp_path: Path) -> None:
    async with Host(tmp_path).running() as agent:
        first, second = sealed(agent.spool, 2)
        for wrong in (second, replace(first, chain_id=b"x" * 16), replace(first, previous_header_hash=b"h" * 32)):
            with pytest.raises(StaleChainError):
                await agent.spool.append([wrong])
        await agent.spool.append([first, second])
        with pytest.raises(StaleChainError):
            await agent.spool.append([second])


async def test_clock_events_reach_header_and_records(tmp_path: Path) -> None:
    async with Host(tmp_path).running() as agent:
        agent.journal.note_clock([Suspension(WALL + 1, WALL + 5), ClockStep(WALL + 6, -3 * SECOND)])
        await agent.flush()
        for batch_class in (EVIDENCE, TELEMETRY):
            [(header, _)] = await agent.all(batch_class)
            assert [step.size_ns for step in header.anchor.step] == [-3 * SECOND]
            [gap] = await agent.gap_records(batch_class)
            assert (gap.reason, gap.from_time_ns, gap.to_time_ns) == (pb.GAP_REASON_SUSPENDED, WALL + 1, WALL + 5)


# ---------------------------------------------------------------- limits


async def test_telemetry_payloads_go_first_and_headers_stay(tmp_path: Path) -> None:
    async with Host(tmp_path, max_bytes=60_000).running() as agent:
        for _ in range(20):
            await agent.flush(evidence_bytes=1_000, telemetry_bytes=3_000)
        evidence, telemetry = await agent.all(EVIDENCE), await agent.all(TELEMETRY)
        assert len(evidence) == len(telemetry) == 20
        assert all(records is not None for _, records in evidence)
        dropped = [header for header, records in telemetry if records is None]
        assert dropped == [header for header, _ in telemetry[: len(dropped)]] != []
        stats = agent.spool.stats()
        assert stats.bytes <= 60_000
        assert stats.dropped == sum(header.record_count for header in dropped)
        gaps = await agent.gap_records(TELEMETRY)
        assert {gap.reason for gap in gaps} == {pb.GAP_REASON_SPOOL_LIMIT}
        waiting = stats.dropped - sum(gap.records for gap in gaps)
        assert 0 < waiting <= 2  # the last loss is noted and goes into the next batch
        assert gaps[0].from_time_ns == dropped[0].first_event_time_ns


async def test_evidence_goes_when_no_telemetry_is_left_to_drop(tmp_path: Path) -> None:
    async with Host(tmp_path, max_bytes=40_000).running() as agent:
        for _ in range(30):
            await agent.flush(evidence_bytes=3_000, telemetry_bytes=100)
        evidence = await agent.all(EVIDENCE)
        assert [records is None for _, records in evidence].index(False) > 0
        assert evidence[-1][1] is not None
        assert all(not records for _, records in (await agent.all(TELEMETRY))[:20])
        assert agent.spool.stats().bytes <= 40_000
        assert await agent.gap_records(EVIDENCE)


async def test_even_headers_are_bounded(tmp_path: Path) -> None:
    async with Host(tmp_path, max_bytes=40_000).running() as agent:
        for _ in range(80):
            await agent.flush()
        assert agent.spool.stats().bytes <= 40_000
        telemetry = await agent.all(TELEMETRY)
        assert telemetry[0][0].seq > 1  # visible to the collector as a gap in the numbers
        assert any("headers" in gap.detail for gap in await agent.gap_records(TELEMETRY))


async def test_old_payloads_go(tmp_path: Path) -> None:
    host = Host(tmp_path, max_age_ns=3600 * SECOND)
    async with host.running() as agent:
        for _ in range(3):
            await agent.flush(evidence_bytes=10)
        host.now_ns += 3598 * SECOND
        await agent.flush(evidence_bytes=10)
        assert [records is None for _, records in await agent.all(EVIDENCE)] == [True, True, False, False]
        await agent.flush()
        [gap] = await agent.gap_records(EVIDENCE)
        assert (gap.reason, gap.records) == (pb.GAP_REASON_SPOOL_LIMIT, 4)  # two runs, a path and a profile


# ---------------------------------------------------------------- faults of the disk


async def test_case_41_a_full_disk_is_survived_and_writing_resumes_by_itself(tmp_path: Path) -> None:
    host = Host(tmp_path, memory_bytes=20_000)
    async with host.running() as agent:
        await agent.flush(evidence_bytes=100)
        host.disk.fault = FULL
        full_ns = host.now_ns
        for _ in range(6):
            await agent.flush(evidence_bytes=1_000, telemetry_bytes=5_000)
        state = agent.spool.state()
        assert (state.working, state.state) == (False, "disk_full")
        assert "free some space" in state.detail
        assert len(await agent.all(EVIDENCE)) == 1
        host.disk.fault = None
        await agent.flush(evidence_bytes=100)
        assert agent.spool.state().state == "ok"
        await agent.flush()
        evidence, telemetry = await agent.all(EVIDENCE), await agent.all(TELEMETRY)
        assert [header.seq for header, _ in evidence] == list(range(1, 10))
        assert all(records is not None for _, records in evidence)
        lost = [header for header, records in telemetry if records is None]
        [gap] = await agent.gap_records(TELEMETRY)
        assert gap.reason == pb.GAP_REASON_DISK_FULL
        assert gap.records == sum(header.record_count for header in lost) == agent.spool.stats().dropped > 0
        assert full_ns < gap.from_time_ns <= gap.to_time_ns


@pytest.mark.parametrize(
    ("code", "state"),
    [(FULL, "disk_full"), (sqlite3.SQLITE_READONLY, "spool_fault"), (sqlite3.SQLITE_IOERR, "spool_fault")],
)
async def test_case_41_a_start_on_a_bad_disk_waits_for_it_and_continues_the_old_chain(
    tmp_path: Path, code: int, state: str
) -> None:
    host = Host(tmp_path)
    async with host.running() as agent:
        for _ in range(3):
            await agent.flush(evidence_bytes=100)
        old, stopped_ns = agent.spool.tip(EVIDENCE), host.now_ns
    host.now_ns += 60 * SECOND
    host.disk.opening_fault = code
    async with host.running() as agent:
        started_ns = host.now_ns
        assert not agent.spool.opened
        for _ in range(3):
            await agent.flush(evidence_bytes=100, telemetry_bytes=100)
            assert agent.spool.state().state == state
        assert await agent.all(EVIDENCE) == []
        host.disk.opening_fault = None
        await agent.flush(evidence_bytes=100)
        assert (agent.spool.state().state, agent.spool.tip(EVIDENCE).chain_id) == ("ok", old.chain_id)
        evidence = await agent.all(EVIDENCE)  # checks the links
        assert [header.seq for header, _ in evidence] == [1, 2, 3, 4]
        runs = [r for _, records in evidence[3:] for r in records or () if r.WhichOneof("kind") == "throughput_run"]
        assert len(runs) == 4
        [gap] = await agent.gap_records(EVIDENCE)
        assert (gap.reason, gap.from_time_ns, gap.to_time_ns) == (pb.GAP_REASON_RESTART, stopped_ns, started_ns)


async def test_what_waits_for_a_spool_that_cannot_be_opened_is_bounded_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.spool.journal.MAX_WAITING_RECORDS", 5)
    host = Host(tmp_path)
    host.disk.opening_fault = FULL
    async with host.running() as agent:
        for _ in range(8):
            await agent.flush(evidence_bytes=100)
        host.disk.opening_fault = None
        await agent.flush(evidence_bytes=100)
        await agent.flush()
        [gap] = await agent.gap_records(EVIDENCE)
        assert (gap.reason, gap.records, agent.spool.stats().dropped) == (pb.GAP_REASON_DISK_FULL, 6, 6)
        runs = [
            record
            for _, records in await agent.all(EVIDENCE)
            for record in records or ()
            if record.WhichOneof("kind") == "throughput_run"
        ]
        assert len(runs) == 3


async def test_a_right_that_is_missing_is_no_trouble_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    host = Host(tmp_path)
    host.disk.opening_fault = sqlite3.SQLITE_CANTOPEN
    spool = host.spool()
    with pytest.raises(SpoolError, match="cannot open the spool"):
        await spool.open()
    await spool.close()


async def test_a_full_disk_for_long_is_bounded_in_memory_and_all_is_counted(tmp_path: Path) -> None:
    host = Host(tmp_path, memory_bytes=10_000)
    async with host.running() as agent:
        host.disk.fault = FULL
        for _ in range(40):
            await agent.flush(evidence_bytes=2_000)
        assert not agent.spool.accepting
        assert agent.spool.stats().bytes < 12_000
        host.disk.fault = None
        await agent.flush()
        await agent.flush()
        evidence = await agent.all(EVIDENCE)
        gaps = await agent.gap_records(EVIDENCE)
        assert {gap.reason for gap in gaps} == {pb.GAP_REASON_DISK_FULL}
        kept = sum(record.WhichOneof("kind") == "throughput_run" for _, records in evidence for record in records or ())
        lost = sum(gap.records for gap in gaps)
        definitions = sum(
            record.WhichOneof("kind") == "definition" for _, records in evidence for record in records or ()
        )
        assert agent.spool.stats().dropped == lost
        assert kept + lost + definitions >= 40
        assert agent.spool.stats().gaps == 0


async def test_room_is_left_so_that_acknowledged_batches_can_go(tmp_path: Path) -> None:
    host = Host(tmp_path)
    async with host.running() as agent:
        for _ in range(3):
            await agent.flush(evidence_bytes=1_000)
        host.disk.free = host.limits.reserve_bytes - 1
        await agent.flush()
        assert agent.spool.state().state == "disk_full"
        before = agent.spool.stats().bytes
        await agent.spool.acknowledge(EVIDENCE, agent.spool.tip(EVIDENCE).chain_id, 3, WALL)
        await agent.flush()
        assert agent.spool.stats().bytes < before - 3_000
        host.disk.free = host.limits.reserve_bytes
        await agent.flush()
        assert agent.spool.state().state == "ok"
        assert [header.seq for header, _ in await agent.all(EVIDENCE)] == [4, 5, 6]


@pytest.mark.parametrize("code", [FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY])
async def test_a_write_that_fails_at_any_statement_leaves_a_whole_chain(tmp_path: Path, code: int) -> None:
    async with Host(tmp_path / "count").running() as agent:
        before = agent.host.disk.statements
        await agent.flush(evidence_bytes=100, telemetry_bytes=100)
        statements = agent.host.disk.statements - before
    assert statements > 5
    for good in range(statements):
        host = Host(tmp_path / f"{good}")
        async with host.running() as agent:
            await agent.flush(evidence_bytes=100, telemetry_bytes=100)
            host.disk.fault, host.disk.good_statements = code, good
            await agent.flush(evidence_bytes=100, telemetry_bytes=100)
            assert agent.spool.state().state == ("disk_full" if code == FULL else "spool_fault")
            host.disk.fault = None
            await agent.flush(evidence_bytes=100, telemetry_bytes=100)
            assert agent.spool.state().state == "ok"
            for batch_class in (EVIDENCE, TELEMETRY):
                batches = await agent.all(batch_class)
                assert [header.seq for header, _ in batches] == [1, 2, 3]
                assert all(records is not None for _, records in batches)
            assert agent.spool.stats().dropped == 0


@pytest.mark.parametrize("when", ["between_starts", "while_running"])
async def test_a_damaged_file_is_moved_aside_and_a_new_chain_begins_visibly(tmp_path: Path, when: str) -> None:
    host = Host(tmp_path)
    async with host.running() as agent:
        await agent.flush(evidence_bytes=100)
        old = agent.spool.tip(EVIDENCE)
        if when == "while_running":
            host.disk.fault = sqlite3.SQLITE_CORRUPT
            host.disk.good_statements = 2
            host.disk.heals_when_opened = True
            await agent.flush(evidence_bytes=100)
            await check_new_chain(agent, old.chain_id)
    if when == "between_starts":
        host.path.write_bytes(b"this is not a database" * 500)
        async with host.running() as agent:
            await check_new_chain(agent, old.chain_id)
    aside = damaged_files(tmp_path)
    assert len(aside) == 1


@pytest.mark.parametrize(
    "script", ["DELETE FROM counter", "DROP TABLE batch; CREATE TABLE batch(x)", "DROP TABLE chain"]
)
async def test_a_file_that_is_no_spool_any_more_is_moved_aside(tmp_path: Path, script: str) -> None:
    host = Host(tmp_path)
    async with host.running() as agent:
        await agent.flush(evidence_bytes=100)
        old = agent.spool.tip(EVIDENCE)
    with closing(sqlite3.connect(host.path)) as connection:
        connection.executescript(script)
    async with host.running() as agent:
        await check_new_chain(agent, old.chain_id)
    assert len(damaged_files(tmp_path)) == 1


async def test_another_programs_database_is_moved_aside(tmp_path: Path) -> None:
    host = Host(tmp_path)
    with closing(sqlite3.connect(host.path)) as connection:
        connection.executescript("CREATE TABLE batch(x); CREATE TABLE chain(y);")
    async with host.running() as agent:
        await agent.flush(evidence_bytes=100)
        assert agent.spool.state().state == "ok"
    assert len(damaged_files(tmp_path)) == 1


def damaged_files(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if "damaged" in path.name]


def remove_all(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


async def check_new_chain(agent: Agent, old_chain_id: bytes) -> None:
    await agent.flush(evidence_bytes=100)
    await agent.flush(evidence_bytes=100)
    headers = [header for header, _ in await agent.all(EVIDENCE)]
    assert [header.seq for header in headers] == [1, 2]
    assert {header.chain_id for header in headers} == {agent.spool.tip(EVIDENCE).chain_id} != {old_chain_id}
    for batch_class in (EVIDENCE, TELEMETRY):
        [gap] = await agent.gap_records(batch_class)
        assert gap.reason == pb.GAP_REASON_SPOOL_FAULT
        assert "moved to spool.sqlite.damaged-" in gap.detail
    assert agent.spool.state().state == "ok"


async def test_only_one_damaged_file_is_kept(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for _ in range(3):
        host.path.write_bytes(b"not a database " * 100)
        host.now_ns += SECOND
        async with host.running() as agent:
            await agent.flush()
    assert len(damaged_files(tmp_path)) == 1


async def test_a_chain_that_cannot_go_on_is_renewed_visibly(tmp_path: Path) -> None:
    """The collector has more of our chain than we do: the spool came back from an old copy."""
    async with Host(tmp_path).running() as agent:
        await agent.flush(evidence_bytes=100)
        old = agent.spool.tip(EVIDENCE)
        await agent.spool.renew_chain(EVIDENCE, "the collector has seq 9, we have 1")
        assert agent.spool.tip(EVIDENCE).chain_id != old.chain_id
        await agent.flush(evidence_bytes=100)
        [gap] = await agent.gap_records(EVIDENCE)
        assert (gap.reason, gap.records) == (pb.GAP_REASON_SPOOL_FAULT, 3)
        assert [header.seq for header, _ in await agent.all(EVIDENCE)] == [1]
        assert [header.seq for header, _ in await agent.all(TELEMETRY)] == [1, 2]


async def test_a_chain_renewed_between_sealing_and_spooling_loses_one_flush_and_says_so(tmp_path: Path) -> None:
    async with Host(tmp_path).running() as agent:
        await agent.flush()
        append = agent.spool.append

        async def renew_first(*arguments: Any) -> None:
            await agent.spool.renew_chain(EVIDENCE, "test")
            await append(*arguments)

        agent.spool.append = renew_first  # type: ignore[method-assign,assignment]
        await agent.flush(evidence_bytes=100)
        agent.spool.append = append  # type: ignore[method-assign]
        await agent.flush()
        await agent.flush()
        gaps = await agent.gap_records(EVIDENCE)
        assert sorted(gap.records for gap in gaps) == [0, 3]
        assert [header.seq for header, _ in await agent.all(TELEMETRY)] == [1, 2, 3]


async def test_another_file_under_the_same_name_begins_new_chains(tmp_path: Path) -> None:
    host = Host(tmp_path)
    async with host.running() as agent:
        await agent.flush(evidence_bytes=100)
        old = agent.spool.tip(EVIDENCE)
        host.disk.fault = sqlite3.SQLITE_IOERR
        await agent.flush(evidence_bytes=100)
        remove_all(tmp_path)
        host.disk.fault = None
        await agent.flush(evidence_bytes=100)
        await agent.flush(evidence_bytes=100)
        await agent.flush(evidence_bytes=100)
        headers = [header for header, _ in await agent.all(EVIDENCE)]
        assert [header.seq for header in headers] == list(range(1, len(headers) + 1))
        assert {header.chain_id for header in headers} == {agent.spool.tip(EVIDENCE).chain_id} != {old.chain_id}
        assert {gap.reason for gap in await agent.gap_records(EVIDENCE)} == {pb.GAP_REASON_SPOOL_FAULT}


async def test_a_second_agent_on_the_same_spool_is_told_so(tmp_path: Path) -> None:
    host = Host(tmp_path)
    async with host.running() as agent:
        await agent.flush()
        second = host.spool()
        with pytest.raises(SpoolError, match=r"another process holds .*: is a second agent running"):
            await second.open()
        await second.close()


async def test_a_spool_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    host = Host(tmp_path)
    async with host.running() as agent:
        await agent.flush()
    connection = sqlite3.connect(host.path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    spool = host.spool()
    with pytest.raises(SpoolError, match="has format 9"):
        await spool.open()
    await spool.close()


async def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    spool = Host(tmp_path / "file").spool()
    with pytest.raises(SpoolError, match="cannot open the spool"):
        await spool.open()
    await spool.close()


async def test_a_drained_backlog_gives_its_space_back(tmp_path: Path) -> None:
    host = Host(tmp_path)
    async with host.running() as agent:
        for _ in range(40):
            await agent.flush(evidence_bytes=200_000)
        await agent.spool.acknowledge(EVIDENCE, agent.spool.tip(EVIDENCE).chain_id, 40, WALL)
        for _ in range(8):
            await agent.flush()
    assert host.path.stat().st_size < 6_000_000
