"""The whole of analysis over a log made by hand: what a fault looks like, and that nothing but the log decides it."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_CONTENTION, WINDOW_KIND_OFFPEAK, WINDOW_KIND_OTHER, WINDOW_KIND_PEAK
from collector.analysis import persist
from collector.analysis.fold import Fold, Parts
from collector.analysis.runner import Runner
from collector.config import TargetConfig
from collector.model import LogEntry
from collector.store.outbox import Outbox
from collector.store.writer import Transaction
from tests.fakes.analysis_bench import ALWAYS, MakeBench, lossy
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import (
    DELAY_NS,
    SECOND,
    MeasuredLog,
    Packet,
    fleet_config,
    planned_slot,
    replied,
)


def seconds(time_ns: int | None) -> float:
    """Since the start of the log."""
    assert time_ns is not None
    return (time_ns - START_NS) / SECOND


def test_a_healthy_fleet_has_rows_and_no_incident(make_bench: MakeBench) -> None:
    config = fleet_config()
    log = MeasuredLog(config)
    log.pass_time(120)
    bench = make_bench(log, config)
    bench.drain()
    assert bench.incidents() == []
    statuses = bench.reader.paths()
    assert len(statuses) == 12
    assert all(status.sent == 50 and status.lost == 0 for status in statuses)
    assert all(DELAY_NS <= (status.delay_p50_ns or 0) <= DELAY_NS + 6000 for status in statuses)
    snapshot = bench.runner.snapshot
    assert snapshot.lag_entries == 0
    assert {totals.sent for totals in snapshot.totals.values()} == {600}
    assert [node.name for node in snapshot.nodes] == ["r1n1", "r1n2", "r2n1", "r2n2"]
    assert {status.path_id: status for status in statuses} == snapshot.paths


def test_loss_of_one_host_is_one_incident_and_clears(make_bench: MakeBench) -> None:
    config = fleet_config()
    log = MeasuredLog(config, fate=lossy(10, source="r1n1", since_s=60, until_s=120))
    log.pass_time(240)
    bench = make_bench(log, config)
    bench.drain()
    (incident,) = bench.incidents("loss")
    assert (incident.element.kind, incident.element.name) == ("endpoint", "r1n1/eth0")
    assert incident.severity == "critical"
    assert 60 < seconds(incident.opened_time_ns) <= 72
    assert 118 <= seconds(incident.closed_time_ns) <= 130


def test_loss_between_two_of_three_racks_is_laid_to_what_lies_between_them(make_bench: MakeBench) -> None:
    config = fleet_config(racks=3)
    log = MeasuredLog(config, fate=lossy(10, source="r1", destination="r2", since_s=60))
    log.pass_time(120)
    bench = make_bench(log, config)
    bench.drain()
    (incident,) = bench.incidents("loss")
    assert (incident.element.kind, incident.element.name) == ("rack_pair", "r1|r2")
    assert incident.closed_time_ns is None


def slower(times: int, *, since_s: float, until_s: float = 1e9) -> Any:
    """Round trips between racks take so many times as long."""

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        outcome, delay = replied(src, dst, sequence, time_ns)
        inside = since_s <= (time_ns - START_NS) / SECOND < until_s
        return outcome, (delay or 0) * (times if inside and src[:2] != dst[:2] else 1)

    return fate


def test_slower_round_trips_between_racks_are_one_incident_and_clear(make_bench: MakeBench) -> None:
    config = fleet_config()
    log = MeasuredLog(config, fate=slower(10, since_s=400, until_s=600))
    log.pass_time(800)
    bench = make_bench(log, config)
    bench.drain()
    (incident,) = bench.incidents("delay")
    assert (incident.element.kind, incident.element.name) == ("rack_pair", "r1|r2")
    assert 450 <= seconds(incident.opened_time_ns) <= 470
    assert 590 <= seconds(incident.closed_time_ns) <= 620
    assert bench.incidents("loss") == []


def test_delay_that_stays_does_not_become_usual(make_bench: MakeBench) -> None:
    config = fleet_config()
    log = MeasuredLog(config, fate=slower(10, since_s=400), interval_ns=SECOND)
    log.pass_time(5400)
    bench = make_bench(log, config)
    bench.drain()
    (incident,) = bench.incidents("delay")
    assert incident.closed_time_ns is None


def test_our_own_tests_never_raise_delay_or_loss(make_bench: MakeBench) -> None:
    """Under a test the queue of the uplink is full: 60 times the delay, and loss. Only paths that share it suffer."""
    config = fleet_config()
    log = MeasuredLog(config)
    slots = [
        planned_slot(number, "r1n1", "r2n1", START_NS + (330 + 20 * number) * SECOND, WINDOW_KIND_PEAK)
        for number in range(1, 9)
    ]

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        during = any(slot.start_time_ns <= time_ns < slot.start_time_ns + 12 * SECOND for slot in slots)
        if during and src[:2] != dst[:2]:
            return (pb.PACKET_OUTCOME_LOST, None) if sequence % 5 == 0 else (pb.PACKET_OUTCOME_REPLIED, 60 * DELAY_NS)
        return replied(src, dst, sequence, time_ns)

    log.fate = fate
    log.plan(slots)
    log.pass_time(700)
    bench = make_bench(log, config)
    bench.drain()
    assert bench.incidents() == []
    loaded = {
        status.path_id
        for status in bench.reader.paths()
        if status.throughput is None
        and any(window.loaded_by for window in bench.reader.round_trips(status.path_id, *ALWAYS))
    }
    in_rack_untouched = 2  # r1n2 and r2n2 share their racks with a tested NIC; only pairs without one stay free
    assert 12 - len(loaded) == in_rack_untouched - 2


@pytest.mark.parametrize("planned", [True, False])
def test_a_contention_test_raises_no_incident_and_the_same_without_one_does(
    make_bench: MakeBench, planned: bool
) -> None:
    """All hosts of a rack send at once, then all inside it: full queues everywhere, and a tenth of all packets lost."""
    config = fleet_config(racks=2, hosts=2)
    log = MeasuredLog(config)
    groups = [
        [("r1n1", "r2n1"), ("r1n2", "r2n2")],  # out of the rack
        [("r1n1", "r1n2"), ("r1n2", "r1n1")],  # inside it
    ] * 2
    slots = []
    for number, pairs in enumerate(groups):
        for place, (source, destination) in enumerate(pairs):
            start_ns = START_NS + (330 + 17 * number) * SECOND
            slot = planned_slot(10 * number + place + 1, source, destination, start_ns, WINDOW_KIND_OTHER)
            slot.group_id, slot.purpose = number.to_bytes(16, "big"), SLOT_PURPOSE_CONTENTION
            slots.append(slot)

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        for slot in slots:
            ends = {slot.client.node, slot.server.node}
            out = slot.client.node[:2] != slot.server.node[:2]
            shares = ends & {src, dst} or (out and src[:2] != dst[:2])
            if shares and slot.start_time_ns <= time_ns < slot.start_time_ns + 12 * SECOND:
                lost = sequence % 10 == 0
                return (pb.PACKET_OUTCOME_LOST, None) if lost else (pb.PACKET_OUTCOME_REPLIED, 60 * DELAY_NS)
        return replied(src, dst, sequence, time_ns)

    log.fate = fate
    log.plan(slots if planned else [])
    log.pass_time(410)
    bench = make_bench(log, config)
    bench.drain()
    assert bool(bench.incidents()) is not planned


def test_an_agent_falls_silent_and_comes_back(make_bench: MakeBench) -> None:
    config = fleet_config()
    log = MeasuredLog(config)
    log.pass_time(60)
    log.pass_time(60, without=["r2n2"])
    bench = make_bench(log, config)
    bench.drain()
    (incident,) = bench.incidents()
    assert (incident.rule, incident.element.name, incident.closed_time_ns) == ("agent_silent", "r2n2", None)
    assert 89 <= seconds(incident.opened_time_ns) <= 91
    log.pass_time(10)
    bench.drain()
    (incident,) = bench.incidents()
    assert 121 <= seconds(incident.closed_time_ns) <= 123


def test_a_collector_that_was_down_gives_agents_time_to_come_back(make_bench: MakeBench) -> None:
    config = fleet_config()
    log = MeasuredLog(config)
    log.pass_time(60)
    log.now_ns += 600 * SECOND  # nobody listened
    log.started()
    bench = make_bench(log, config)
    bench.drain()
    log.pass_time(20, without=["r1n1"])
    bench.drain()
    assert bench.incidents("agent_silent") == []
    log.pass_time(20, without=["r1n1"])
    bench.drain()
    (incident,) = bench.incidents("agent_silent")
    assert incident.element.name == "r1n1"
    assert 689 <= seconds(incident.opened_time_ns) <= 691


def test_a_collector_that_stood_still_accuses_nobody_of_silence(make_bench: MakeBench) -> None:
    """Stopped for 35 s: nobody was heard, and one agent is the first to be heard again."""
    config = fleet_config()
    log = MeasuredLog(config)
    log.pass_time(60)
    bench = make_bench(log, config)
    bench.notice_pauses = True
    bench.restart()
    bench.drain()
    log.now_ns += 35 * SECOND
    log.pass_time(2, without=["r1n1", "r1n2", "r2n1"])
    bench.drain()
    for _ in range(12):
        log.pass_time(2, without=["r1n1"])
        bench.drain()
    bench.restart()  # what is known of the pause lasts
    bench.drain()
    assert bench.incidents() == []
    for _ in range(6):
        log.pass_time(2, without=["r1n1"])
        bench.drain()
    (incident,) = bench.incidents("agent_silent")
    assert incident.element.name == "r1n1"
    assert 127 <= seconds(incident.opened_time_ns) <= 129


def test_silence_between_two_looks_in_the_usual_rhythm_is_silence(make_bench: MakeBench) -> None:
    config = fleet_config()
    log = MeasuredLog(config)
    log.pass_time(20)
    bench = make_bench(log, config)
    bench.notice_pauses = True
    bench.restart()
    for _ in range(20):
        bench.drain()
        log.now_ns += 2 * SECOND
    assert {incident.element.name for incident in bench.incidents("agent_silent")} == set(log.members)


def test_a_step_that_does_not_end_shows_as_lag_and_in_health(make_bench: MakeBench) -> None:
    config = fleet_config()
    log = MeasuredLog(config)
    log.pass_time(20)
    stuck, go_on = threading.Event(), threading.Event()
    clock = [log.now_ns]

    class StuckLog:
        last_position = property(lambda _: log.last_position)

        def read(self, after_position: int, limit: int) -> Sequence[LogEntry]:
            entries = log.read(after_position, limit)
            if after_position and entries:
                stuck.set()
                go_on.wait()
            return entries

    bench = make_bench(log, config)
    runner = Runner(StuckLog(), bench.store, config, lambda: clock[0])
    runner.step()
    assert runner.snapshot.lag_ns == 0
    log.pass_time(2)
    runner.start()
    try:
        assert stuck.wait(30)
        assert runner.health == "ok"
        clock[0] += 31 * SECOND
        assert runner.snapshot.lag_ns == 31 * SECOND
        assert runner.snapshot.lag_entries == 4
        assert not runner.healthy
        assert runner.health == "one step has been running for 31 s"
    finally:
        go_on.set()
        runner.stop()
    assert runner.snapshot.lag_ns == 0


def test_silence_of_everybody_is_told_by_the_clock(make_bench: MakeBench) -> None:
    config = fleet_config()
    log = MeasuredLog(config)
    log.pass_time(20)
    bench = make_bench(log, config)
    bench.drain()
    log.now_ns += 40 * SECOND
    bench.drain()
    assert {incident.element.name for incident in bench.incidents("agent_silent")} == set(log.members)


# ---------------------------------------------------------------- the log alone decides


def busy_log(config: Any) -> MeasuredLog:
    """Loss, delay, tests, a backlog: something of everything."""
    log = MeasuredLog(config)
    lost, slow = lossy(12, source="r1n2", since_s=200, until_s=290), slower(8, since_s=420, until_s=560)

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        outcome, delay = lost(src, dst, sequence, time_ns)
        return (outcome, delay) if outcome != pb.PACKET_OUTCOME_REPLIED else slow(src, dst, sequence, time_ns)

    def doubt(node: str, time_ns: int) -> tuple[str, ...]:
        """One stretch while delay is judged, and one of the agent that is cut off, told of late."""
        second = (time_ns - START_NS) / SECOND
        if node == "r1n2" and 440 <= second < 470:
            return ("late", "starved")
        return ("stolen",) if node == "r2n2" and 300 <= second < 310 else ()

    log.fate, log.doubt = fate, doubt
    kinds = (WINDOW_KIND_OFFPEAK, WINDOW_KIND_PEAK)
    slots = [
        planned_slot(number, "r1n1", "r2n1", START_NS + (20 + 18 * number) * SECOND, kinds[number >= 5])
        for number in range(10)
    ]
    log.plan(slots)
    for step in range(18):
        log.pass_time(40)
        for number, slot in enumerate(slots):
            if log.now_ns - 40 * SECOND < slot.start_time_ns + 12 * SECOND <= log.now_ns:
                for role in (pb.RUN_ROLE_CLIENT, pb.RUN_ROLE_SERVER):
                    log.run(slot, role, mbps=900 if number < 5 else 300)
        if step == 5:
            log.cut_off("r2n2")
        if step == 8:
            log.reconnect("r2n2")
    return log


def test_killed_at_any_place_the_rows_are_the_same(make_bench: MakeBench) -> None:
    config = fleet_config()
    log = busy_log(config)
    whole = make_bench(log, config)
    whole.drain()
    assert {incident.rule for incident in whole.incidents()} == {"loss", "delay", "oversubscription", "agent_silent"}
    killed = make_bench(log, config)
    for visible in range(37, len(log.entries) + 37, 37):
        log.visible = visible
        killed.drain()
        killed.restart()
    assert killed.rows() == whole.rows()


def test_the_portions_in_which_the_log_is_read_change_nothing(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = fleet_config()
    log = busy_log(config)
    whole = make_bench(log, config)
    whole.drain()
    monkeypatch.setattr("collector.analysis.runner.STEP_ENTRIES", 5)
    small = make_bench(log, config)
    small.drain()
    assert small.rows() == whole.rows()


def test_a_changed_analysis_makes_everything_anew_and_says_nothing_twice(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = fleet_config()
    log = busy_log(config)
    bench = make_bench(log, config)
    for visible in range(50, len(log.entries) + 50, 50):
        log.visible = visible
        bench.drain()
    rows, said = bench.rows(), bench.reader.alerts(*ALWAYS)
    assert said
    monkeypatch.setattr(persist, "VERSION", persist.VERSION + 1)
    bench.restart()
    bench.drain()
    assert bench.rows() == rows
    assert bench.reader.alerts(*ALWAYS) == said


def test_what_was_not_said_before_a_kill_is_said_after_it(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it catches up, analysis says nothing; killed right then, it still has to."""
    config = fleet_config()
    log = MeasuredLog(config, fate=lossy(10, source="r1n1", since_s=10))
    log.pass_time(120)
    monkeypatch.setattr("collector.analysis.runner.STEP_ENTRIES", 60)
    bench = make_bench(log, config)
    bench.runner.step()
    assert bench.incidents("loss")
    assert bench.reader.alerts(*ALWAYS) == []
    bench.restart()
    bench.drain()
    assert [(alert.rule, alert.status) for alert in bench.reader.alerts(*ALWAYS)] == [("loss", "raised")]


def test_a_backlog_gives_the_same_verdicts_as_live_data(make_bench: MakeBench) -> None:
    config = fleet_config()
    benches = []
    for away in (False, True):
        log = MeasuredLog(config, fate=lossy(10, source="r1n2", since_s=100, until_s=160))
        log.pass_time(90)
        if away:  # the very node whose NIC is bad
            log.cut_off("r1n2")
        log.pass_time(150)
        if away:
            log.reconnect("r1n2")
        log.pass_time(120)
        benches.append(make_bench(log, config))
        benches[-1].drain()
    live, late = ([i for i in bench.verdicts() if i.rule != "agent_silent"] for bench in benches)
    assert len(live) == 1
    assert late == live


def test_what_was_judged_on_half_the_data_is_revised(make_bench: MakeBench) -> None:
    """Only one of two lossy hosts can be seen at first; its incident stays, the other's comes with the backlog."""
    config = fleet_config()
    one, other = lossy(10, source="r1n2", since_s=100, until_s=160), lossy(10, source="r2n2", since_s=100, until_s=160)

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        outcome = one(src, dst, sequence, time_ns)
        return outcome if outcome[0] != pb.PACKET_OUTCOME_REPLIED else other(src, dst, sequence, time_ns)

    log = MeasuredLog(config, fate=fate)
    log.pass_time(90)
    log.cut_off("r2n2")
    log.pass_time(150)
    bench = make_bench(log, config)
    bench.drain()
    before = bench.incidents("loss")
    log.reconnect("r2n2")
    log.pass_time(120)
    bench.drain()
    after = bench.incidents("loss")
    assert {incident.element.name for incident in after} == {"r1n2/eth0", "r2n2/eth0"}
    assert {incident.element.name for incident in before} >= {"r1n2/eth0"}


# ---------------------------------------------------------------- faults of our own


def test_an_entry_that_cannot_be_taken_in_costs_only_itself(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = fleet_config()
    log = MeasuredLog(config)
    log.pass_time(60)
    bench = make_bench(log, config)
    apply, poison = Fold.apply, len(log.entries) // 2

    def failing(self: Fold, tx: Transaction, entry: LogEntry) -> None:
        if entry.position == poison:
            raise ZeroDivisionError
        apply(self, tx, entry)

    monkeypatch.setattr(Fold, "apply", failing)
    monkeypatch.setattr("collector.analysis.runner.STEP_ENTRIES", 16)
    for _ in range(3 * len(log.entries)):
        bench.runner.attempt()
    assert bench.runner.snapshot.position == len(log.entries)
    assert bench.runner.snapshot.quarantined == {"analysis_fault": 1}
    assert bench.runner.snapshot.step_errors == 4


def test_an_entry_whose_rows_cannot_be_written_costs_only_itself(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = fleet_config()
    log = MeasuredLog(config)
    log.pass_time(60)
    bench = make_bench(log, config)
    apply, save, poison = Fold.apply, persist.save, len(log.entries) // 2
    taken: set[int] = set()

    def noting(self: Fold, tx: Transaction, entry: LogEntry) -> None:
        taken.add(entry.position)
        apply(self, tx, entry)

    def failing(tx: Transaction, parts: Parts, outbox: Outbox) -> None:
        there = poison in taken
        taken.clear()
        if there:
            raise OverflowError("Python int too large to convert to SQLite INTEGER")
        save(tx, parts, outbox)

    monkeypatch.setattr(Fold, "apply", noting)
    monkeypatch.setattr(persist, "save", failing)
    monkeypatch.setattr("collector.analysis.runner.STEP_ENTRIES", 16)
    for _ in range(3 * len(log.entries)):
        bench.runner.attempt()
    assert bench.runner.snapshot.position == len(log.entries)
    assert bench.runner.snapshot.quarantined == {"analysis_fault": 1}


def test_an_entry_that_was_passed_over_stays_out_when_the_log_is_read_again(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = fleet_config()
    log = MeasuredLog(config)
    log.pass_time(60)
    bench = make_bench(log, config)
    apply, poison = Fold.apply, len(log.entries) - 2

    def failing(self: Fold, tx: Transaction, entry: LogEntry) -> None:
        if entry.position == poison:
            raise ZeroDivisionError
        apply(self, tx, entry)

    monkeypatch.setattr(Fold, "apply", failing)
    monkeypatch.setattr("collector.analysis.runner.STEP_ENTRIES", 16)
    for _ in range(3 * len(log.entries)):
        bench.runner.attempt()
    assert bench.runner.snapshot.quarantined == {"analysis_fault": 1}
    read_again: list[int] = []
    monkeypatch.setattr(Fold, "apply_again", lambda self, entry: read_again.append(entry.position))
    bench.restart()
    bench.runner.step()
    assert poison - 1 in read_again
    assert poison not in read_again


def test_a_rule_that_fails_is_counted_and_the_others_go_on(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = fleet_config()
    log = MeasuredLog(config, fate=lossy(10, source="r1n1", since_s=400))
    log.pass_time(500)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("collector.analysis.rules.delay.judge", broken)
    bench = make_bench(log, config)
    bench.drain()
    assert [incident.rule for incident in bench.incidents()] == ["loss"]
    assert bench.runner.snapshot.rule_errors["delay"] > 0


def test_tests_of_a_night_and_an_evening(make_bench: MakeBench) -> None:
    """Ten tests planned: nine ran, one was lost; the swing is flagged, and the sums hold."""
    config = fleet_config()
    log = MeasuredLog(config)
    kinds = (WINDOW_KIND_OFFPEAK, WINDOW_KIND_PEAK)
    slots = [
        planned_slot(number, "r1n1", "r2n1", START_NS + (20 + 20 * number) * SECOND, kinds[number >= 5])
        for number in range(10)
    ]
    log.plan(slots)
    for number, slot in enumerate(slots):
        log.pass_time((slot.start_time_ns + 14 * SECOND - log.now_ns) / SECOND)
        if number:
            for role in (pb.RUN_ROLE_CLIENT, pb.RUN_ROLE_SERVER):
                log.run(slot, role, mbps=900 if number < 5 else 300)
    log.pass_time(60)
    bench = make_bench(log, config)
    bench.drain()
    (row,) = [row for row in bench.reader.accounting(*ALWAYS) if row.window == WINDOW_KIND_OFFPEAK]
    assert (row.planned, row.ok, row.failed, row.skipped, row.lost, row.pending) == (5, 4, 0, 0, 1, 0)
    assert row.outcomes == {"ok": 4, "lost": 1}
    (swing,) = bench.reader.swings()
    assert (swing.offpeak_bps, swing.peak_bps) == (900e6, 300e6)
    assert (swing.tests_offpeak, swing.tests_peak, swing.flagged) == (4, 5, True)
    (incident,) = bench.incidents("oversubscription")
    assert seconds(incident.opened_time_ns) == 20 + 20 * 8 + 12  # the end of the fourth test of the evening
    assert len(incident.evidence) == 18
    (status,) = [status for status in bench.reader.paths() if status.throughput is not None]
    assert status.throughput is not None
    assert (status.throughput.last_bps, status.throughput.flagged) == (300e6, True)
    assert bench.runner.snapshot.attempts == {
        ("r1n1", "r2n1", "rail0", "ok"): 9,
        ("r1n1", "r2n1", "rail0", "lost"): 1,
    }


def test_a_node_cannot_speak_for_the_test_of_another(make_bench: MakeBench) -> None:
    config = fleet_config()
    log = MeasuredLog(config)
    slot = planned_slot(1, "r1n1", "r2n1", START_NS + 20 * SECOND, WINDOW_KIND_PEAK)
    log.plan([slot])
    log.pass_time(40)
    log.run(slot, pb.RUN_ROLE_CLIENT, mbps=1)
    log.members["r1n2"].pending, log.members["r1n1"].pending = log.members["r1n1"].pending, []
    log.pass_time(60)
    bench = make_bench(log, config)
    bench.drain()
    (row,) = bench.reader.accounting(*ALWAYS)
    assert (row.planned, row.lost) == (1, 1)
    assert bench.runner.snapshot.unreadable_records == 2  # and the definition of a path it is at no end of


def test_carriers_are_shown_from_the_first_window_on_and_after_a_restart(make_bench: MakeBench) -> None:
    fleet = fleet_config()
    targets = (TargetConfig(name="gw", address="192.0.2.1", carrier="telecom"),)
    config = structs.replace(fleet, targets=targets)
    log = MeasuredLog(config)
    log.targets = ["gw"]
    bench = make_bench(log, config)
    for _ in range(30):
        log.pass_time(2)
        bench.drain()
    bench.restart()
    bench.drain()
    (status,) = bench.runner.snapshot.carriers
    assert (status.carrier, status.lost) == ("telecom", 0)
    assert status.sent >= 200
