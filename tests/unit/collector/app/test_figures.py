"""What came in and how the log bears it, as metrics, over a real log on a disk that can fail."""

from pathlib import Path

import pytest

from collector.analysis.snapshot import Snapshot
from collector.app.figures import intake_of
from collector.export.prometheus import Scrape
from collector.ingest import Sessions
from collector.log import Log, LogError, arrival
from collector.log.frame import MAGIC
from tests.fakes.batches import START_NS, FakeChain
from tests.fakes.disk import FailingDisk


def figures(sessions: Sessions, log: Log) -> dict[str, float]:
    part = intake_of(sessions, log)
    return {
        ",".join((name.removeprefix("collector_"), *labels)): value
        for name, (labels, value) in part(Scrape(Snapshot(), (), 0))
    }


def stored_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*/*.log"))


async def test_received_batches_by_what_became_of_them(tmp_path: Path) -> None:
    log, sessions = Log.open(tmp_path), Sessions()
    sessions.statistics.new, sessions.statistics.duplicates = 7, 5
    sessions.statistics.quarantined.update({"gap": 2, "fork": 1})
    sessions.statistics.refused_streams.update({"ABORTED": 4})
    found = figures(sessions, log)
    log.close()
    assert {result: found[f"received_batches_total,{result}"] for result in ("new", "duplicate", "quarantined")} == {
        "new": 7,
        "duplicate": 5,
        "quarantined": 3,
    }
    assert found["refused_streams_total,ABORTED"] == 4


async def test_case_41_a_full_disk_is_seen_while_it_lasts_and_counted_afterwards(tmp_path: Path) -> None:
    disk, chain = FailingDisk(), FakeChain()
    log, sessions = Log.open(tmp_path, disk=disk), Sessions()
    await log.appender().append(arrival(START_NS, "n1", "", chain.next()))
    before = figures(sessions, log)
    assert before["log_bytes_total"] == stored_bytes(tmp_path) - len(MAGIC)
    assert (before["log_commits_total"], before["log_failures_total"], before["log_failing"]) == (1, 0, 0)
    assert before["log_commit_seconds_total"] > 0
    disk.room = 0
    with pytest.raises(LogError):
        await log.appender().append(arrival(START_NS, "n1", "", chain.peek()))
    full = figures(sessions, log)
    assert (full["log_failing"], full["log_failures_total"]) == (1, 1)
    assert full["log_bytes_total"] == before["log_bytes_total"]
    disk.room = None
    await log.appender().append(arrival(START_NS, "n1", "", chain.next()))
    after = figures(sessions, log)
    assert (after["log_failing"], after["log_failures_total"], after["log_commits_total"]) == (0, 1, 2)
    log.close()
