"""Durable means: synced and indexed before the future is done, and found again exactly once, whatever failed."""

import asyncio
import contextlib
import errno
import shutil
import sqlite3
from pathlib import Path

import pytest

from bandwitness.chain import Tip, header_hash
from bandwitness.v1.record_pb2 import BATCH_CLASS_CONTROL, BATCH_CLASS_EVIDENCE, BATCH_CLASS_TELEMETRY, SignedBatch
from collector.log import Arrival, ChainKey, Log, LogError, LogUnavailableError, arrival
from collector.log.disk import Disk
from tests.fakes.batches import START_NS, FakeChain
from tests.fakes.disk import FailingDisk

DAY_NS = 86_400 * 1_000_000_000
FIRST_FILE = "evidence/2026-01-01.log"


def arrived(batch: SignedBatch, *, quarantine: str = "", at_ns: int = START_NS, source: str = "n1") -> Arrival:
    return arrival(at_ns, source, quarantine, batch)


async def fill(log: Log, chain: FakeChain, count: int) -> list[int]:
    appender = log.appender()
    return await asyncio.gather(*[appender.append(arrived(chain.next())) for _ in range(count)])


def found(directory: Path, pattern: str) -> list[Path]:
    return list(directory.glob(pattern))


def seqs(log: Log) -> list[int]:
    return [entry.seq for entry in log.read(0, 10_000)]


async def test_what_was_appended_is_read_back_as_it_was_received(tmp_path: Path) -> None:
    log, chain = Log.open(tmp_path), FakeChain()
    batch = chain.next()
    position = await log.appender().append(arrived(batch, at_ns=START_NS + 7))
    (entry,) = log.read(0, 10)
    assert (entry.position, entry.received_time_ns, entry.seq, entry.quarantine) == (position, START_NS + 7, 1, "")
    assert (entry.header, entry.payload, entry.signature) == (batch.header, batch.payload, batch.signature)
    assert log.tips() == {ChainKey("n1", chain.chain_id, BATCH_CLASS_EVIDENCE): _state(chain)}
    log.close()


def _state(chain: FakeChain) -> object:
    from collector.log import ChainState

    return ChainState(chain.tip, chain.public_key)


async def test_positions_rise_over_classes_and_days_and_files_are_apart(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    evidence, telemetry = FakeChain(), FakeChain(batch_class=BATCH_CLASS_TELEMETRY)
    control = FakeChain(agent_id="collector", batch_class=BATCH_CLASS_CONTROL)
    appender = log.appender()
    futures = [
        appender.append(arrived(chain.next(), at_ns=START_NS + day * DAY_NS, source=chain.agent_id))
        for day in (0, 1)
        for chain in (evidence, telemetry, control)
    ]
    assert await asyncio.gather(*futures) == [1, 2, 3, 4, 5, 6]
    names = sorted(f"{path.parent.name}/{path.name}" for path in found(tmp_path, "*/*.log"))
    assert names == [
        f"{folder}/2026-01-0{day}.log" for folder in ("control", "evidence", "telemetry") for day in (1, 2)
    ]
    assert [(entry.position, entry.batch_class) for entry in log.read(1, 4)] == [(2, 2), (3, 3), (4, 1), (5, 2)]
    log.close()


async def test_what_waits_together_shares_one_sync(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = Log.open(tmp_path, disk=disk)
    await fill(log, FakeChain(), 300)
    assert disk.syncs < 30
    assert log.statistics.groups == disk.syncs
    log.close()


async def test_reading_is_bounded_by_count_and_bytes_but_never_stalls(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await fill(log, FakeChain(), 20)
    assert [entry.seq for entry in log.read(0, 3)] == [1, 2, 3]
    assert len(log.read(0, 100, max_bytes=1)) == 1
    assert len(log.read(19, 100, max_bytes=1)) == 1
    assert log.read(20, 100) == []
    log.close()


async def test_the_newest_of_a_chain_come_first(tmp_path: Path) -> None:
    log, chain = Log.open(tmp_path), FakeChain()
    await fill(log, chain, 5)
    key = ChainKey("n1", chain.chain_id, BATCH_CLASS_EVIDENCE)
    assert [entry.seq for entry in log.newest_of(key, 1 << 62, 2)] == [5, 4]
    assert [entry.seq for entry in log.newest_of(key, 4, 10)] == [3, 2, 1]
    log.close()


async def test_a_log_that_is_opened_again_goes_on_where_it_was(tmp_path: Path) -> None:
    chain = FakeChain()
    for _ in range(3):
        log = Log.open(tmp_path)
        await fill(log, chain, 4)
        log.close()
    log = Log.open(tmp_path)
    assert seqs(log) == list(range(1, 13))
    assert next(iter(log.tips().values())).tip == chain.tip
    log.close()


@pytest.mark.parametrize(
    ("quarantine", "moves"),
    [("gap", True), ("broken_link", True), ("payload_mismatch", True)]
    + [(fault, False) for fault in ("bad_signature", "wrong_key", "wrong_class", "unsupported_algorithm")],
)
async def test_a_chain_goes_on_behind_a_fault_unless_its_header_cannot_be_trusted(
    tmp_path: Path, quarantine: str, moves: bool
) -> None:
    log, chain = Log.open(tmp_path), FakeChain()
    await fill(log, chain, 1)
    before = chain.tip
    bad = chain.next()
    await log.appender().append(arrived(bad, quarantine=quarantine))
    assert next(iter(log.tips().values())).tip == (Tip(2, header_hash(bad.header)) if moves else before)
    assert [entry.quarantine for entry in log.read(0, 10)] == ["", quarantine]
    log.close()


async def test_an_unreadable_header_is_kept_under_the_name_the_connection_proved(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await log.appender().append(arrived(SignedBatch(header=b"\xff"), quarantine="unreadable_header", source="n9"))
    (entry,) = log.read(0, 10)
    assert (entry.agent_id, entry.chain_id, entry.seq, entry.header) == ("n9", b"", 0, b"\xff")
    assert (tmp_path / "unreadable").is_dir()
    log.close()


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("room", [0, 1, 7, 8, 9, 100, 300, 500, 700, 1_000, 1_500])
async def test_case_41_a_full_disk_keeps_nothing_by_half_and_writing_resumes_by_itself(
    tmp_path: Path, room: int
) -> None:
    disk, chain = FailingDisk(room=room), FakeChain()
    log = Log.open(tmp_path, disk=disk)
    appender, states = log.appender(), []
    while len(seqs(log)) < 7:
        try:
            await appender.append(arrived(chain.peek()))
            chain.next()
        except LogError as error:
            states.append((error.state, log.failing is error))
            disk.room = None  # somebody made room
            appender = log.appender()
    assert states == [("disk_full", True)]
    assert log.failing is None
    log.close()
    again = Log.open(tmp_path)
    assert seqs(again) == list(range(1, 8))
    assert again.recovered.damaged == []
    again.close()


async def test_nothing_becomes_durable_behind_a_batch_that_did_not(tmp_path: Path) -> None:
    disk, chain = FailingDisk(room=0), FakeChain()
    log = Log.open(tmp_path, disk=disk)
    appender = log.appender()
    with pytest.raises(LogError):
        await appender.append(arrived(chain.next()))
    disk.room = None
    with pytest.raises(LogError):
        await appender.append(arrived(chain.next()))
    assert seqs(log) == []
    assert await log.appender().append(arrived(FakeChain("n2").next(), source="n2")) == 1
    log.close()


async def test_what_a_failed_sync_left_behind_is_not_trusted(tmp_path: Path) -> None:
    disk, chain = FailingDisk(), FakeChain()
    log = Log.open(tmp_path, disk=disk)
    await fill(log, chain, 2)
    before = (tmp_path / FIRST_FILE).stat().st_size
    disk.sync_error = errno.EIO
    with pytest.raises(LogError, match="write_failed"):
        await log.appender().append(arrived(chain.peek()))
    disk.sync_error = None
    await fill(log, chain, 1)
    assert seqs(log) == [1, 2, 3]
    assert (tmp_path / FIRST_FILE).stat().st_size < before * 2
    log.close()


async def test_an_index_that_cannot_be_written_fails_the_batch_and_keeps_no_frame(tmp_path: Path) -> None:
    log, chain = Log.open(tmp_path), FakeChain()
    await fill(log, chain, 1)
    other = sqlite3.connect(tmp_path / "index.sqlite", isolation_level=None)
    other.execute("CREATE TRIGGER full BEFORE INSERT ON headers BEGIN SELECT raise(ABORT, 'disk is full'); END")
    with pytest.raises(LogError, match="disk_full"):
        await log.appender().append(arrived(chain.peek()))
    other.execute("DROP TRIGGER full")
    other.close()
    await fill(log, chain, 1)
    log.close()
    again = Log.open(tmp_path)
    assert seqs(again) == [1, 2]
    again.close()


async def test_a_group_that_failed_leaves_nothing_in_any_file_that_a_later_group_could_collide_with(
    tmp_path: Path,
) -> None:
    """The next group goes to another file and takes the same positions; then the collector is killed."""
    log, chain, other = Log.open(tmp_path), FakeChain(), FakeChain(batch_class=BATCH_CLASS_TELEMETRY)
    await fill(log, chain, 1)
    index = sqlite3.connect(tmp_path / "index.sqlite", isolation_level=None)
    index.execute("CREATE TRIGGER full BEFORE INSERT ON headers BEGIN SELECT raise(ABORT, 'disk is full'); END")
    with pytest.raises(LogError, match="disk_full"):
        await log.appender().append(arrived(chain.peek()))
    index.execute("DROP TRIGGER full")
    index.close()
    await fill(log, other, 1)
    killed = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-killed"))
    again = Log.open(killed)
    assert [(entry.position, entry.batch_class, entry.seq) for entry in again.read(0, 10)] == [(1, 1, 1), (2, 2, 1)]
    again.close()
    log.close()


async def test_a_closed_log_refuses(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    log.close()
    with pytest.raises(LogError, match="closed"):
        await log.appender().append(arrived(FakeChain().next()))


async def test_more_than_the_backlog_limit_has_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.log.log.BACKLOG_LIMIT_BYTES", 1)
    log = Log.open(tmp_path)
    future = log.appender().append(arrived(FakeChain().next()))
    waiting = asyncio.ensure_future(log.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await future
    await waiting
    log.close()


# ---------------------------------------------------------------- the start


async def test_a_second_collector_on_the_same_log_is_refused(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    with pytest.raises(LogUnavailableError, match="another collector"):
        Log.open(tmp_path)
    log.close()
    Log.open(tmp_path).close()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogUnavailableError, match="file/log"):
        Log.open(tmp_path / "file" / "log")


async def test_a_log_that_cannot_be_put_in_order_is_let_go_of_and_can_be_opened_later(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await fill(log, FakeChain(), 2)
    log.close()
    torn = tmp_path / FIRST_FILE
    torn.write_bytes(torn.read_bytes() + b"torn")
    disk = FailingDisk()
    disk.sync_error = errno.EIO
    with pytest.raises(LogUnavailableError, match="cannot be opened"):
        Log.open(tmp_path, disk=disk)
    again = Log.open(tmp_path)
    assert seqs(again) == [1, 2]
    again.close()


async def test_a_lost_index_is_built_anew_from_the_frames(tmp_path: Path) -> None:
    chain, other = FakeChain(), FakeChain("n2", BATCH_CLASS_TELEMETRY)
    log = Log.open(tmp_path)
    await fill(log, chain, 5)
    await log.appender().append(arrived(other.next(), source="n2"))
    await log.appender().append(arrived(chain.peek(), quarantine="bad_signature"))
    entries, tips = log.read(0, 100), log.tips()
    log.close()
    for path in found(tmp_path, "index.sqlite*"):
        path.unlink()
    again = Log.open(tmp_path)
    assert again.read(0, 100) == entries
    assert again.tips() == tips
    assert again.recovered.indexed == 7
    again.close()


async def test_whether_an_entry_has_its_payload_follows_from_the_frames(tmp_path: Path) -> None:
    chain, log = FakeChain(), Log.open(tmp_path)
    batch = chain.next()
    key = ChainKey(chain.agent_id, chain.chain_id, chain.batch_class)
    bare = SignedBatch(header=batch.header, signature=batch.signature)
    wrong = SignedBatch(header=batch.header, signature=batch.signature, payload=batch.payload * 2)
    for kept, quarantine in ((bare, ""), (wrong, "payload_mismatch"), (wrong, "gap"), (batch, "gap"), (batch, "")):
        await log.appender().append(arrived(kept, quarantine=quarantine))
    wanted = [("", False), ("payload_mismatch", False), ("gap", False), ("gap", True), ("", True)]
    assert [(kept.quarantine, kept.complete) for kept in log.kept(key, 1)] == wanted
    entries = log.read(0, 10)
    assert len(entries) == 5
    log.close()
    for path in found(tmp_path, "index.sqlite*"):
        path.unlink()
    again = Log.open(tmp_path)
    assert [(kept.quarantine, kept.complete) for kept in again.kept(key, 1)] == wanted
    assert again.read(0, 10) == entries
    again.close()


async def test_an_index_from_before_payloads_were_noted_is_brought_up_to_date(tmp_path: Path) -> None:
    chain, log = FakeChain(), Log.open(tmp_path)
    await fill(log, chain, 2)
    log.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "index.sqlite")) as index, index:
        index.execute("ALTER TABLE headers DROP COLUMN complete")
    again = Log.open(tmp_path)
    await fill(again, chain, 1)
    assert seqs(again) == [1, 2, 3]
    assert again.kept(ChainKey(chain.agent_id, chain.chain_id, chain.batch_class), 1)[0].complete
    again.close()


async def test_a_damaged_index_is_kept_aside_and_built_anew(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await fill(log, FakeChain(), 3)
    log.close()
    (tmp_path / "index.sqlite").write_bytes(b"not a database at all" * 100)
    again = Log.open(tmp_path)
    assert seqs(again) == [1, 2, 3]
    (aside,) = found(tmp_path, "index.sqlite.damaged-*")
    (words,) = again.damages
    assert words.startswith("the index is damaged (")
    assert aside.name in words
    again.close()


@pytest.mark.parametrize("cut", [1, 5, 9, 60, 200])
async def test_a_torn_tail_is_cut_and_its_bytes_are_kept(tmp_path: Path, cut: int) -> None:
    """As a kill between writing and indexing leaves it: two whole frames and one torn one that no one was told of."""
    chain = FakeChain()
    log = Log.open(tmp_path / "whole")
    await fill(log, chain, 5)
    log.close()
    content = (tmp_path / "whole" / FIRST_FILE).read_bytes()

    log = Log.open(tmp_path / "killed")
    await fill(log, FakeChain(), 2)
    log.close()
    killed = tmp_path / "killed" / FIRST_FILE
    torn = content[: len(content) - cut]
    killed.write_bytes(torn)

    again = Log.open(tmp_path / "killed")
    assert seqs(again) == [1, 2, 3, 4]
    assert again.recovered.indexed == 2
    assert again.recovered.cut_bytes > 0
    (aside,) = killed.parent.glob("*.torn-*")
    assert killed.read_bytes() + aside.read_bytes() == torn
    restored = FakeChain()
    restored.tip = next(iter(again.tips().values())).tip
    await fill(again, restored, 1)
    assert seqs(again) == [1, 2, 3, 4, 5]
    again.close()


async def test_a_flipped_bit_between_frames_nobody_indexed_costs_one_of_them(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await fill(log, FakeChain(), 4)
    second = log.read(1, 1)[0]
    log.close()
    for path in found(tmp_path, "index.sqlite*"):
        path.unlink()
    content = bytearray((tmp_path / FIRST_FILE).read_bytes())
    content[content.index(second.signature)] ^= 1
    (tmp_path / FIRST_FILE).write_bytes(content)
    again = Log.open(tmp_path)
    assert seqs(again) == [1, 3, 4]
    assert "the frames behind them are intact" in again.recovered.damaged[0]
    again.close()


async def test_an_indexed_entry_whose_bytes_rot_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await fill(log, FakeChain(), 3)
    content = bytearray((tmp_path / FIRST_FILE).read_bytes())
    content[content.index(log.read(1, 1)[0].signature)] ^= 1
    (tmp_path / FIRST_FILE).write_bytes(content)
    assert seqs(log) == [1, 3]
    assert log.unreadable == 1
    log.close()


async def test_a_file_that_lost_indexed_bytes_keeps_the_places_of_what_follows(tmp_path: Path) -> None:
    chain = FakeChain()
    log = Log.open(tmp_path)
    await fill(log, chain, 3)
    log.close()
    content = (tmp_path / FIRST_FILE).read_bytes()
    (tmp_path / FIRST_FILE).write_bytes(content[: len(content) // 2])
    again = Log.open(tmp_path)
    assert "cannot be read" in again.recovered.damaged[0]
    await fill(again, chain, 1)
    assert seqs(again) == [1, 4]
    again.close()


def test_the_real_disk_writes_more_buffers_than_one_call_takes(tmp_path: Path) -> None:
    disk = Disk()
    descriptor = disk.open(tmp_path / "file")
    disk.write(descriptor, [bytes([number % 256]) * 3 for number in range(1500)], 5)
    disk.close(descriptor)
    content = (tmp_path / "file").read_bytes()
    assert len(content) == 4505
    assert content[5 + 3 * 1499 :] == bytes([1499 % 256]) * 3


async def test_damage_is_told_for_as_long_as_the_collector_runs(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    assert log.damages == []
    for day in range(8):
        await log.appender().append(arrived(FakeChain().next(), at_ns=START_NS + day * DAY_NS, quarantine=f"x{day}"))
    log.close()
    for path in found(tmp_path, "evidence/*.log"):
        path.unlink()
    again = Log.open(tmp_path)
    assert again.damages[0].startswith("evidence/2026-01-01.log is gone: ")
    assert again.damages[5:] == ["3 more at this start"]
    assert again.read(0, 10) == []
    assert again.damages[6:] == ["8 entries could not be read back"]
    again.close()
