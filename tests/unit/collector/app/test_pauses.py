"""A collector that stood still says so in its own chain."""

import asyncio
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collector.app.pauses import note_pauses
from collector.control import Control
from collector.decode import Definitions, decode
from collector.log import Log, LogError
from tests.fakes.clock import SECOND, FakeClock


def made(directory: Path, clock: FakeClock) -> tuple[Log, Control]:
    log = Log.open(directory)
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    return log, Control(log, key, "collector", clock, configuration_hash=b"c" * 32, boot_id=bytes(16))


async def test_a_pause_is_put_on_record_and_the_usual_rhythm_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    log, control = made(tmp_path, clock)
    await control.start([], [])
    resume, written = control.resumed, asyncio.Event()

    async def resumed() -> None:
        await resume()
        written.set()

    monkeypatch.setattr(control, "resumed", resumed)
    watch = asyncio.create_task(note_pauses(control, clock))
    await clock.advance(20 * SECOND)
    assert log.last_position == 1
    clock.step(35 * SECOND)
    await clock.advance(SECOND)
    await written.wait()
    (entry,) = log.read(1, 10)
    (started,) = decode(entry, Definitions()).collectors_started
    assert started.collector_id == "collector"
    assert entry.received_time_ns == clock.wall_ns()
    await clock.advance(20 * SECOND)
    assert log.last_position == 2
    watch.cancel()
    log.close()


async def test_a_log_that_cannot_be_written_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    log, control = made(tmp_path, clock)
    tried = []

    async def fail() -> None:
        tried.append(clock.wall_ns())
        raise LogError("disk_full", "no space left")

    monkeypatch.setattr(control, "resumed", fail)
    watch = asyncio.create_task(note_pauses(control, clock))
    await clock.advance(SECOND)
    for _ in range(2):
        clock.step(35 * SECOND)
        await clock.advance(SECOND)
    assert len(tried) == 2
    assert not watch.done()
    watch.cancel()
    log.close()
