"""Analysis over the real log: killed in the middle, and read again from nothing, it says the same."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from bandwitness.v1.record_pb2 import SignedBatch
from collector.analysis.runner import Runner
from collector.log import Log, arrival
from collector.model import Incident
from collector.store.reader import Reader
from collector.store.writer import Store
from tests.fakes.analysis_bench import ALWAYS, lossy
from tests.fakes.measured_log import SECOND, MeasuredLog, fleet_config

CONFIG = fleet_config()


async def write(directory: Path, made: MeasuredLog) -> None:
    """Puts every entry into a real log."""
    log = Log.open(directory)
    appender = log.appender()
    futures = [
        appender.append(
            arrival(
                entry.received_time_ns,
                entry.agent_id,
                entry.quarantine,
                SignedBatch(header=entry.header, payload=entry.payload, signature=entry.signature),
            )
        )
        for entry in made.entries
    ]
    await asyncio.gather(*futures)
    log.close()


def drained(directory: Path, store: Path) -> list[Incident]:
    """Reads the log to its end into ``store``; gives back all incidents."""
    log = Log.open(directory)
    opened = Store(store)
    runner = Runner(log, opened, CONFIG, lambda: 0)
    while runner.step():
        pass
    opened.close()
    log.close()
    reader = Reader(store, CONFIG)
    found = reader.incidents(*ALWAYS)
    reader.close()
    return found


def forget(store: Path) -> None:
    """Deletes a store."""
    for file in store.parent.glob(f"{store.name}*"):
        file.unlink()


ANALYSE = """
import sys
from pathlib import Path
from collector.analysis import runner
from collector.log import Log
from collector.store.writer import Store
from tests.fakes.measured_log import fleet_config
runner.STEP_ENTRIES = 7
one = runner.Runner(Log.open(Path(sys.argv[1])), Store(Path(sys.argv[2])), fleet_config(), lambda: 0)
steps = 0
while one.step():
    steps += 1
    print(steps * runner.STEP_ENTRIES, flush=True)
"""


def kill_after(directory: Path, store: Path, entries: int) -> None:
    """Analyses in a process of its own, and kills that after so many entries."""
    command = [sys.executable, "-c", ANALYSE, str(directory), str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= entries:
                os.kill(process.pid, signal.SIGKILL)
                break
        process.stdout.read()
    assert process.returncode == -signal.SIGKILL


async def test_killed_and_read_again_the_verdicts_are_the_same(tmp_path: Path) -> None:
    made = MeasuredLog(CONFIG, fate=lossy(10, source="r1n1", since_s=60, until_s=100))
    made.pass_time(60)
    made.cut_off("r2n1")
    made.pass_time(80)
    made.reconnect("r2n1")
    made.pass_time(60)
    assert made.now_ns % (2 * SECOND) == 0
    await write(tmp_path / "log", made)
    whole = drained(tmp_path / "log", tmp_path / "whole.sqlite")
    assert {incident.rule for incident in whole} == {"loss", "agent_silent"}
    for entries in (60, 90, 150):
        kill_after(tmp_path / "log", tmp_path / "killed.sqlite", entries)
    assert drained(tmp_path / "log", tmp_path / "killed.sqlite") == whole
    forget(tmp_path / "whole.sqlite")
    assert drained(tmp_path / "log", tmp_path / "whole.sqlite") == whole
