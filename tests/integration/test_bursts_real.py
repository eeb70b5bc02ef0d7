"""Bursts and series out of the real log: killed in the middle, and read again from nothing, they are the same."""

from pathlib import Path

import pytest

from bandwitness.settings import Duration
from collector.analysis.runner import Runner
from collector.config import Rules, SilentRule
from collector.export import views
from collector.export.series import NicSeries
from collector.log import Log
from collector.model import BurstEvent
from collector.store.reader import Reader
from collector.store.writer import Store
from tests.fakes.analysis_bench import ALWAYS
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import SECOND, MeasuredLog, fleet_config
from tests.fakes.traffic import FleetTraffic, Line, save
from tests.integration.test_analysis_replay import kill_after, write

CONFIG = fleet_config(rules=Rules(agent_silent=SilentRule(after=Duration(10**15))))
NODES = [node.name for node in CONFIG.nodes]
LINE = Line([save(40, 20, 800), save(120, 15, 700)])


async def logged(directory: Path) -> None:
    made = MeasuredLog(CONFIG, interval_ns=SECOND)
    made.traffic = FleetTraffic(made.now_ns, dict.fromkeys(NODES, LINE))
    made.pass_time(60)
    made.cut_off("r2n1")
    made.pass_time(40)
    made.reconnect("r2n1")
    made.pass_time(60)
    await write(directory, made)


def drained(directory: Path, store: Path) -> list[BurstEvent]:
    log, opened = Log.open(directory), Store(store)
    runner = Runner(log, opened, CONFIG, lambda: 0)
    while runner.step():
        pass
    opened.close()
    log.close()
    reader = Reader(store, CONFIG)
    found = reader.burst_events(*ALWAYS)
    reader.close()
    return found


async def test_killed_and_read_again_the_bursts_are_the_same(tmp_path: Path) -> None:
    await logged(tmp_path / "log")
    whole = drained(tmp_path / "log", tmp_path / "whole.sqlite")
    assert [(event.burst.kind, len(event.members)) for event in whole] == [("save", 4), ("save", 4)]
    for entries in (120, 200, 150):
        kill_after(tmp_path / "log", tmp_path / "killed.sqlite", entries)
    assert drained(tmp_path / "log", tmp_path / "killed.sqlite") == whole


@pytest.mark.parametrize(("from_s", "to_s"), [(38, 64), (0, 160), (100, 110)])
async def test_a_series_is_what_was_counted_read_by_read(tmp_path: Path, from_s: int, to_s: int) -> None:
    await logged(tmp_path / "log")
    drained(tmp_path / "log", tmp_path / "store.sqlite")
    log, reader = Log.open(tmp_path / "log"), Reader(tmp_path / "store.sqlite", CONFIG)
    series = NicSeries(log, reader.counter_sets)
    span = (START_NS + from_s * SECOND, START_NS + to_s * SECOND)
    points, behind_ns = series("r1n1", "eth0", *span, 1000)
    assert behind_ns is None
    assert [point.time_ns for point in points] == [
        START_NS + at * SECOND for at in range(max(from_s, 2), to_s) if at <= 160
    ]
    for point in points:
        at = (point.time_ns - START_NS) // SECOND
        before, now = LINE.octets(at - 1), LINE.octets(at)
        assert (point.receive_bytes, point.transmit_bytes) == (now[0] - before[0], now[1] - before[1])
        assert point.transmit_bps == pytest.approx((now[1] - before[1]) * 8)
    assert series("r1n1", "eth0", *span, 5) == (points[:5], points[4].time_ns)
    assert series("r1n1", "nowhere", *span, 5) == ([], None)
    assert series("nobody", "eth0", *span, 5) == ([], None)
    last_ns = views.parse_time("to", "9999-12-31T00:00:00Z")
    assert series("r1n1", "eth0", last_ns - 1, last_ns, 5) == ([], None)
    log.close()
    reader.close()


@pytest.mark.parametrize("nic", ["eth0", "nowhere"])
async def test_an_answer_that_reads_no_further_says_where_to_go_on(
    tmp_path: Path, nic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await logged(tmp_path / "log")
    drained(tmp_path / "log", tmp_path / "store.sqlite")
    log, reader = Log.open(tmp_path / "log"), Reader(tmp_path / "store.sqlite", CONFIG)
    series = NicSeries(log, reader.counter_sets)
    from_ns, to_ns = START_NS, START_NS + 160 * SECOND
    whole, _ = series("r1n1", nic, from_ns, to_ns, 1000)
    monkeypatch.setattr("collector.export.series.ENTRIES", 2)
    monkeypatch.setattr("collector.export.series.MOST_ENTRIES", 20)
    parts, answers = [], 0
    behind_ns: int | None = from_ns - 1
    while behind_ns is not None:
        answers += 1
        assert answers < 50
        points, behind_ns = series("r1n1", nic, behind_ns + 1, to_ns, 1000)
        parts += points
    assert parts == whole
    assert answers > 3
    log.close()
    reader.close()
