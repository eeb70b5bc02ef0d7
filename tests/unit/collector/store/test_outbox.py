"""What is noted for remote write: every row once, through restarts, revisions and a store made anew; within limits."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import WINDOW_KIND_PEAK
from collector.analysis import persist
from collector.store import tables
from collector.store.outbox_reader import HOLD_NS, Noted, OutboxReader
from collector.store.rows import read_window, signed
from tests.fakes.analysis_bench import ALWAYS, Bench
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import SECOND, MeasuredLog, fleet_config, planned_slot
from tests.fakes.traffic import FleetTraffic

FOREVER_NS = HOLD_NS + 60 * SECOND
LIMITS = {"prometheus": 10_000}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    config = fleet_config()
    made = Bench(tmp_path / "store.sqlite", MeasuredLog(config), config)
    made.remote_write(LIMITS)
    yield made
    made.close()


def waiting(bench: Bench, after_id: int = 0, later_ns: int = FOREVER_NS) -> list[Noted]:
    reader = OutboxReader(bench.store.path)
    found = reader.next(after_id, bench.log.now_ns + later_ns, 1 << 30)
    reader.close()
    return found


def noted(entries: list[Noted]) -> Counter[tuple[object, ...]]:
    """How often each row is named."""
    keys: Counter[tuple[object, ...]] = Counter()
    for entry in entries:
        keys.update((window.start_time_ns, window.path_id) for window in entry.windows)
        keys.update((row["start_time_ns"], row["node"], row["nic"]) for row in entry.nics)
        keys.update((result.time_ns, result.path_id, "throughput") for result in entry.results)
    return keys


def stored(bench: Bench) -> set[tuple[object, ...]]:
    """All windows there are, and all of NICs but the newest ones."""
    with bench.store.transaction() as tx:
        windows = {
            (row.row.start_time_ns, row.row.path_id) for row in map(read_window, tx.all(tables.round_trip_windows))
        }
        nics = {(row["start_time_ns"], row["node"], row["nic"]) for row in tx.all(tables.nic_windows) if row["nic"]}
    newest = {max(key for key in nics if key[1:] == nic) for nic in {key[1:] for key in nics}}
    return windows | (nics - newest)


def test_every_row_is_noted_once_whatever_restarts(bench: Bench) -> None:
    bench.log.traffic = FleetTraffic(START_NS)
    for _ in range(6):
        bench.log.pass_time(14)
        bench.drain()
        bench.restart()
    found = noted(waiting(bench))
    assert set(found) == stored(bench)
    assert set(found.values()) == {1}


def test_what_a_later_step_revises_is_not_noted_again_and_its_figures_are_the_newest(bench: Bench) -> None:
    bench.log.pass_time(30)
    bench.drain()
    slot = planned_slot(1, "r1n1", "r2n1", START_NS + 12 * SECOND, WINDOW_KIND_PEAK)
    before = waiting(bench)
    assert not any(window.loaded_by for entry in before for window in entry.windows)
    bench.log.plan([slot])
    bench.drain()
    after = waiting(bench)
    assert noted(before) == noted(after)
    assert any(window.loaded_by for entry in after for window in entry.windows)


def test_nothing_is_sent_before_its_last_word(bench: Bench) -> None:
    for _ in range(5):
        bench.log.pass_time(6)
        bench.drain()
    assert waiting(bench, later_ns=0) == []
    early = waiting(bench, later_ns=HOLD_NS - 6 * SECOND)
    assert 0 < len(early) < len(waiting(bench))
    assert len(waiting(bench, later_ns=-3600 * SECOND)) == len(waiting(bench))  # the clock was set back


def test_an_agent_that_was_away_is_noted_in_order_of_time(bench: Bench) -> None:
    bench.log.cut_off("r1n1")
    bench.log.pass_time(60)
    bench.drain()
    assert not any(window for entry in waiting(bench) for window in entry.windows if entry.entry_id == 0)
    bench.log.reconnect("r1n1")
    bench.log.pass_time(20)
    bench.drain()
    times: dict[int, list[int]] = {}
    for entry in waiting(bench):
        for window in entry.windows:
            times.setdefault(window.path_id, []).append(window.start_time_ns)
    assert all(of_path == sorted(of_path) for of_path in times.values())
    assert set(noted(waiting(bench))) == stored(bench)


def test_a_window_that_silence_closed_waits_until_its_agent_has_told_the_rest(bench: Bench) -> None:
    bench.log.traffic = FleetTraffic(START_NS)
    bench.log.pass_time(26)
    bench.drain()
    bench.log.cut_off("r1n1")
    for _ in range(14):  # longer than an agent is waited for
        bench.log.pass_time(10)
        bench.drain()
    rows = {row["path_id"]: row["source"] for row in _paths(bench)}
    told = {key for key in stored(bench) if len(key) == 2 and '"r1n1"' in rows[signed(int(str(key[1])))]}
    assert max(told)[0] == START_NS + 20 * SECOND  # closed, of what had come
    assert set(noted(waiting(bench))) == stored(bench) - {key for key in told if key[0] == START_NS + 20 * SECOND}
    bench.log.reconnect("r1n1")
    bench.log.pass_time(20)
    bench.drain()
    found = noted(waiting(bench))
    assert set(found) == stored(bench)
    assert set(found.values()) == {1}
    sent: dict[tuple[object, ...], int] = {
        (window.start_time_ns, window.path_id): window.sent for entry in waiting(bench) for window in entry.windows
    }
    assert {sent[key] for key in told if key[0] == START_NS + 20 * SECOND} == {50}


def _paths(bench: Bench) -> list[dict[str, Any]]:
    with bench.store.transaction() as tx:
        return tx.all(tables.paths)


def test_a_result_is_noted_once_both_ends_have_told(bench: Bench) -> None:
    slot = planned_slot(1, "r1n1", "r2n1", START_NS + 10 * SECOND, WINDOW_KIND_PEAK)
    bench.log.plan([slot])
    bench.log.pass_time(30)
    bench.log.run(slot, pb.RUN_ROLE_CLIENT)
    bench.log.pass_time(4)
    bench.drain()
    assert not any(entry.results for entry in waiting(bench))
    bench.log.run(slot, pb.RUN_ROLE_SERVER)
    bench.log.pass_time(4)
    bench.drain()
    (result,) = [result for entry in waiting(bench) for result in entry.results]
    assert (result.bps, result.time_ns) == (400e6, START_NS + 22 * SECOND)
    bench.restart()
    bench.log.pass_time(60)
    bench.drain()
    assert len([result for entry in waiting(bench) for result in entry.results]) == 1


def test_what_all_have_sent_goes_and_stays_gone_after_a_restart(bench: Bench) -> None:
    outbox = bench.remote_write({"one": 10_000, "two": 10_000})
    bench.log.pass_time(60)
    bench.drain()
    newest = waiting(bench)[-1].entry_id
    outbox.sent["one"], outbox.sent["two"] = newest, newest - 2
    bench.runner.step()
    assert [entry.entry_id for entry in waiting(bench)] == [newest - 1, newest]
    assert (outbox.waiting("one"), outbox.waiting("two")) == (0, 2)
    outbox.sent["two"] = newest
    bench.runner.step()
    again = bench.remote_write({"one": 10_000, "two": 10_000})
    bench.runner.step()
    assert dict(again.sent) == {"one": newest, "two": newest}
    bench.log.pass_time(12)
    bench.drain()
    assert waiting(bench)[0].entry_id == newest + 1  # no id comes twice, also with the queue empty
    assert again.waiting("one") == len(waiting(bench))


def test_one_who_is_new_gets_what_waits_and_one_who_left_holds_nothing_up(bench: Bench) -> None:
    bench.log.pass_time(30)
    bench.drain()
    first = waiting(bench)[0].entry_id
    outbox = bench.remote_write({"another": 10_000})
    bench.runner.step()
    assert dict(outbox.sent) == {"another": first - 1}
    bench.remote_write({})
    bench.runner.step()
    assert waiting(bench) == []


def test_beyond_the_limit_the_oldest_give_way_and_are_counted(bench: Bench) -> None:
    outbox = bench.remote_write({"slow": 10, "quick": 10_000})
    bench.log.pass_time(120)
    bench.drain()
    all_ids = [entry.entry_id for entry in waiting(bench)]
    outbox.sent["quick"] = all_ids[-1]
    bench.runner.step()
    assert [entry.entry_id for entry in waiting(bench)] == all_ids[-10:]
    assert outbox.overflowed == {"slow": all_ids[-1] - 10, "quick": 0}
    assert outbox.waiting("slow") == 10


def test_a_store_made_anew_from_the_log_sends_what_waited_and_nothing_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.log.pass_time(60)
    bench.drain()
    before = noted(waiting(bench))
    sent = waiting(bench)[5].entry_id
    bench.outbox.sent["prometheus"] = sent
    bench.runner.step()
    rest = noted(waiting(bench))

    monkeypatch.setattr(persist, "VERSION", persist.VERSION + 1)
    bench.remote_write(LIMITS)
    bench.log.visible = 20  # while it is read, rows are missing
    bench.drain()
    assert waiting(bench) == []
    bench.log.visible = 1 << 62
    bench.drain()
    assert noted(waiting(bench)) == rest
    bench.log.pass_time(20)
    bench.drain()
    found = noted(waiting(bench)) + (before - rest)
    assert set(found) == stored(bench)
    assert set(found.values()) == {1}


def test_without_a_receiver_nothing_is_noted(bench: Bench) -> None:
    bench.remote_write({})
    bench.log.pass_time(60)
    bench.drain()
    assert bench.reader.round_trips(bench.reader.paths()[0].path_id, *ALWAYS)
    assert waiting(bench) == []
