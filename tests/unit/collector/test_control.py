"""The control chain: signed, linked, durable before it takes effect, and found again after a restart."""

import asyncio
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bandwitness.chain import Tip, check_link, check_signature, header_hash, read_header, read_payload
from bandwitness.identity import canonical
from bandwitness.v1.plan_pb2 import Plan
from bandwitness.v1.record_pb2 import (
    BATCH_CLASS_CONTROL,
    BATCH_CLASS_EVIDENCE,
    ChainOpened,
    Record,
    TimeOfDayRange,
    WindowsFixed,
)
from collector.control import Control, KeyFileError, load_or_create_key
from collector.log import Log, LogError
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FailingDisk

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
WINDOWS = WindowsFixed(site="a", time_zone="Asia/Shanghai", peak=[TimeOfDayRange(start_s=68_400, end_s=82_800)])
DAY_NS = 86_400 * 1_000_000_000


def control(log: Log, *, name: str = "collector", clock: FakeClock | None = None) -> Control:
    return Control(log, KEY, name, clock or FakeClock(), configuration_hash=b"c" * 32, boot_id=b"b" * 16)


def kinds(log: Log) -> list[list[str | None]]:
    """Kinds of the records of each control batch, after checking that the batches are one signed chain."""
    result: list[list[str | None]] = []
    tip = Tip(0, b"")
    for entry in log.read(0, 1000):
        assert (entry.batch_class, entry.quarantine) == (BATCH_CLASS_CONTROL, "")
        header = read_header(entry.header)
        check_link(header, tip)
        check_signature(entry.header, header, entry.signature)
        tip = Tip(header.seq, header_hash(entry.header))
        records = [Record.FromString(record) for record in read_payload(header, entry.payload)]
        assert all(len(record.salt) == 16 for record in records)
        result.append([record.WhichOneof("kind") for record in records])
    return result


async def test_a_start_fixes_the_windows_and_is_itself_on_record(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    chain = control(log)
    assert chain.head() == b""
    await chain.start([WINDOWS], ["n1"])
    assert kinds(log) == [["collector_started", "windows_fixed"]]
    assert chain.head() == header_hash(log.read(0, 1)[0].header)
    log.close()


async def test_windows_are_written_again_only_when_they_changed(tmp_path: Path) -> None:
    changed = WindowsFixed(site="a", time_zone="UTC")
    for windows in (WINDOWS, WINDOWS, changed, changed):
        log = Log.open(tmp_path)
        await control(log).start([windows], [])
        log.close()
    log = Log.open(tmp_path)
    assert kinds(log) == [
        ["collector_started", "windows_fixed"],
        ["collector_started"],
        ["collector_started", "windows_fixed"],
        ["collector_started"],
    ]
    log.close()


async def test_windows_fixed_too_long_ago_are_said_again(tmp_path: Path) -> None:
    clock = FakeClock()
    for _ in range(2):
        log = Log.open(tmp_path)
        await control(log, clock=clock).start([WINDOWS], ["n1"])
        for _ in range(250):
            await control(log, clock=clock).write([Record(chain_opened=ChainOpened(agent_id="x"))])
        log.close()
        clock.move(9 * DAY_NS)
    log = Log.open(tmp_path)
    assert [batch for batch in kinds(log) if "windows_fixed" in batch] == [["collector_started", "windows_fixed"]] * 2
    log.close()


async def test_a_plan_is_durable_before_anybody_hears_of_it(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    chain, heard = control(log), asyncio.Event()
    chain.subscribe("n1", heard)
    await chain.issue({"n1": Plan(version=1, node="n1"), "n2": Plan(version=1, node="n2")})
    issued = chain.plan_for("n1")
    assert issued is not None
    assert heard.is_set()
    assert issued.plan_hash == sha256(canonical(Plan(version=1, node="n1"))).digest()
    record = Record.FromString(read_payload(read_header(issued.batch.header), issued.batch.payload)[0])
    assert Plan.FromString(record.plan_issued.plan) == issued.plan
    assert kinds(log) == [["plan_issued"], ["plan_issued"]]
    heard.clear()
    chain.unsubscribe("n1", heard)
    await chain.issue({"n1": Plan(version=2, node="n1")})
    assert not heard.is_set()
    log.close()


async def test_the_newest_plans_are_there_again_after_a_restart(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    chain = control(log)
    for version in (1, 2):
        await chain.issue({node: Plan(version=version, node=node) for node in ("n1", "n2")})
    before = chain.plan_for("n1")
    log.close()
    log = Log.open(tmp_path)
    chain = control(log)
    assert chain.plan_for("n1") is None
    await chain.start([], ["n1", "n3"])
    again = chain.plan_for("n1")
    assert again == before
    assert again is not None
    assert again.plan.version == 2
    assert chain.plan_for("n2") is None  # not configured any more
    assert chain.plan_for("n3") is None
    assert len(kinds(log)) == 5
    log.close()


async def test_another_key_or_name_begins_another_chain(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await control(log).write([Record(chain_opened=ChainOpened())])
    await control(log, name="other").write([Record(chain_opened=ChainOpened())])
    await Control(log, Ed25519PrivateKey.generate(), "collector", FakeClock()).write([Record()])
    assert sorted(state.tip.seq for state in log.tips().values()) == [1, 1, 1]
    log.close()


async def test_records_written_at_once_stand_in_one_chain(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    chain = control(log)
    opened = [ChainOpened(agent_id=f"n{number}", batch_class=BATCH_CLASS_EVIDENCE) for number in range(50)]
    await asyncio.gather(*[chain.open_chain(one) for one in opened])
    assert len(kinds(log)) == 50
    log.close()


async def test_what_could_not_be_made_durable_has_no_effect_and_the_chain_goes_on(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = Log.open(tmp_path, disk=disk)
    chain = control(log)
    await chain.issue({"n1": Plan(version=1, node="n1")})
    head, disk.room = chain.head(), 0
    results = await asyncio.gather(
        *[chain.issue({"n1": Plan(version=version, node="n1")}) for version in (2, 3)], return_exceptions=True
    )
    assert [type(result) for result in results] == [LogError, LogError]
    assert chain.head() == head
    issued = chain.plan_for("n1")
    assert issued is not None
    assert issued.plan.version == 1
    disk.room = None
    await chain.issue({"n1": Plan(version=4, node="n1")})
    assert kinds(log) == [["plan_issued"], ["plan_issued"]]
    log.close()


async def test_a_writer_that_is_cancelled_does_not_fork_the_chain(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = Log.open(tmp_path, disk=disk)
    chain = control(log)
    task = asyncio.ensure_future(chain.write([Record(chain_opened=ChainOpened())]))
    await asyncio.sleep(0)
    task.cancel()
    await chain.write([Record(chain_opened=ChainOpened())])
    disk.room = 0
    with pytest.raises(LogError):
        await chain.write([Record(chain_opened=ChainOpened())])
    disk.room = None
    await chain.write([Record(chain_opened=ChainOpened())])
    assert len(kinds(log)) == 3
    log.close()


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "control.key"
    key = load_or_create_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_or_create_key(path).private_bytes_raw() == key.private_bytes_raw()


@pytest.mark.parametrize(
    ("mode", "content", "words"), [(0o640, None, "chmod 600"), (0o600, "nonsense", "cannot be used")]
)
def test_a_key_that_others_may_read_or_that_is_none_is_refused(
    tmp_path: Path, mode: int, content: str | None, words: str
) -> None:
    path = tmp_path / "control.key"
    load_or_create_key(path)
    if content is not None:
        path.write_text(content)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=words):
        load_or_create_key(path)
