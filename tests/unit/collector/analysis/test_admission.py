"""What one agent sends can neither speak for another, nor stand in the way of what is true, nor fill memory."""

from collections.abc import Sequence

import numpy as np
import pytest

from agent.record.columns import fill_round_trip
from agent.result import NicBatch, RoundTripBatch
from bandwitness.identity import short_id
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import WINDOW_KIND_PEAK
from collector.analysis import admission
from collector.analysis.elements import Topology
from collector.analysis.paths import PathIndex
from collector.decode import Definitions
from collector.model import RoundTripSamples, Source
from collector.store import tables
from tests.fakes.analysis_bench import ALWAYS, Bench, MakeBench
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import SECOND, MeasuredLog, echo_path, fleet_config, planned_slot
from tests.fakes.traffic import FleetTraffic, Line, save

HOUR = 3600 * SECOND
CONFIG = fleet_config()
OWN = short_id(echo_path("r1n1", "r2n1"))
FOREIGN = short_id(echo_path("r2n1", "r1n1"))


def record(path_ids: Sequence[int], times: Sequence[int], *, sequence: int = 1_000_000) -> bytes:
    """One lost packet of each path at each time."""
    batch = RoundTripBatch(
        method=pb.ROUND_TRIP_METHOD_ICMP_RAW,
        stamp_source=pb.STAMP_SOURCE_KERNEL,
        interval_ns=SECOND,
        waiting_time_ns=SECOND,
        path_ids=list(path_ids),
        first_sequences=[sequence] * len(path_ids),
        sample_counts=[len(times)] * len(path_ids),
        send_times_ns=list(times) * len(path_ids),
        outcomes=[pb.PACKET_OUTCOME_LOST] * (len(path_ids) * len(times)),
        round_trip_delays_ns=[],
        marks=[],
    )
    message = pb.Record()
    fill_round_trip(message.round_trip, batch)
    return message.SerializeToString()


def send(log: MeasuredLog, node: str, *records: bytes, last_ns: int | None = None) -> None:
    """One evidence batch."""
    log._deliver(node, log.members[node].evidence, records, log.now_ns - SECOND if last_ns is None else last_ns)


def lost(bench: Bench) -> dict[int, int]:
    """Lost packets of all windows, by path."""
    return {
        status.path_id: sum(window.lost for window in bench.reader.round_trips(status.path_id, *ALWAYS))
        for status in bench.reader.paths()
    }


def reasons(bench: Bench) -> set[str]:
    with bench.store.transaction() as tx:
        return {row["reason"] for row in tx.all(tables.quarantine)}


def test_a_node_cannot_take_over_a_path_before_its_owner_defines_it(make_bench: MakeBench) -> None:
    log = MeasuredLog(CONFIG)
    definition = pb.Record(definition=pb.Definition(path=echo_path("r1n1", "r2n1"))).SerializeToString()
    log.now_ns += 5 * SECOND
    send(log, "r2n1", record([OWN], [log.now_ns - 2 * SECOND]))
    send(log, "r2n2", definition, record([OWN], [log.now_ns - 2 * SECOND]))
    log.pass_time(60)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert reasons(bench) == {"undefined_path", "foreign_path"}
    assert bench.runner.snapshot.unreadable_records == 3
    windows = bench.reader.round_trips(OWN, *ALWAYS)
    assert (sum(window.replied for window in windows) > 200, sum(window.lost for window in windows)) == (True, 0)


def test_paths_that_nobody_defined_take_no_memory_and_are_counted(make_bench: MakeBench) -> None:
    log = MeasuredLog(CONFIG)
    log.pass_time(20)
    send(log, "r1n1", record(range(1, 5001), [log.now_ns - 2 * SECOND]))
    log.pass_time(40)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert len(bench.reader.paths()) == 12
    assert set(bench.runner.snapshot.totals) == set(lost(bench))
    assert reasons(bench) == {"undefined_path"}
    fold = bench.runner._fold
    assert fold is not None
    assert len(fold.parts.network.paths) == 12


def test_samples_before_their_definition_stay_out_also_after_a_restart(make_bench: MakeBench) -> None:
    """The batch with the definition was dropped; it is told again, while the window is still open."""
    log = MeasuredLog(CONFIG)
    definition = pb.Record(definition=pb.Definition(path=echo_path("r1n1", "r2n1"))).SerializeToString()
    log.now_ns += 4 * SECOND
    start_ns = log.now_ns - 2 * SECOND
    send(log, "r1n1", record([OWN], [start_ns]), last_ns=start_ns)
    send(log, "r1n1", definition, record([OWN], [start_ns + SECOND]), last_ns=start_ns)
    whole, killed = make_bench(log, CONFIG), make_bench(log, CONFIG)
    killed.drain()
    killed.restart()
    log.pass_time(40)
    for bench in (whole, killed):
        bench.drain()
        assert lost(bench)[OWN] == 1
    assert killed.rows() == whole.rows()


def test_a_clock_an_hour_ahead_is_kept_out_and_once_right_all_goes_on(make_bench: MakeBench) -> None:
    log = MeasuredLog(CONFIG)
    log.pass_time(20)
    future = log.now_ns + HOUR
    send(log, "r1n1", record([OWN], [future - 3 * SECOND, future]), last_ns=future)
    log.pass_time(120)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert reasons(bench) == {"from_the_future"}
    assert lost(bench)[OWN] == 0
    assert all(0 <= log.now_ns - (status.window_start_time_ns or 0) <= 30 * SECOND for status in bench.reader.paths())
    assert {status.window_start_time_ns for status in bench.runner.snapshot.paths.values()} == {
        status.window_start_time_ns for status in bench.reader.paths()
    }


def test_counters_and_runs_from_the_future_are_kept_out(make_bench: MakeBench) -> None:
    log = MeasuredLog(CONFIG)
    slot = planned_slot(1, "r1n1", "r2n1", START_NS + HOUR, WINDOW_KIND_PEAK)
    log.plan([slot])
    log.pass_time(20)
    log.run(slot, pb.RUN_ROLE_CLIENT)
    for ahead_ns in (HOUR, 0):
        at_ns = log.now_ns + ahead_ns
        log.nic(
            "r1n1",
            NicBatch(
                nic="eth0",
                counters=("rx_bytes", "tx_bytes"),
                base_time_ns=at_ns - SECOND,
                base_monotonic_ns=0,
                interval_ns=SECOND,
                tick_times_ns=[0, SECOND],
                values=[[0, 100], [0, 200]],
                speed_bps=10**9,
            ),
        )
    log.pass_time(20)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert reasons(bench) == {"from_the_future"}
    (nic,) = bench.runner.snapshot.nics
    assert (nic.receive_bytes_total, nic.time_ns) == (100, START_NS + 20 * SECOND)
    (attempt,) = bench.reader.timetable(*ALWAYS)
    assert attempt.category == "pending"


def test_one_batch_cannot_open_windows_over_years(make_bench: MakeBench) -> None:
    log = MeasuredLog(CONFIG)
    log.pass_time(20)
    now = log.now_ns
    send(log, "r1n1", record([OWN], range(now - 20_000 * 10 * SECOND, now, 10 * SECOND)))
    send(log, "r1n1", record([OWN], [5]), record([OWN], [now - 100 * 86_400 * SECOND]))
    log.pass_time(40)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert reasons(bench) == {"too_many_windows", "too_old"}
    assert lost(bench)[OWN] == 0


def test_an_agent_whose_watermark_stands_still_opens_only_so_many_windows(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.analysis.agents.SETTLE_NS", 10 * HOUR)  # what it sealed says nothing either
    log = MeasuredLog(CONFIG)
    log.pass_time(20, without=["r1n1"])
    definition = pb.Record(definition=pb.Definition(path=echo_path("r1n1", "r2n1"))).SerializeToString()
    send(log, "r1n1", definition, last_ns=0)
    for back in range(150, 0, -1):
        send(log, "r1n1", record([OWN], [log.now_ns - back * 10 * SECOND]), last_ns=0)
    bench = make_bench(log, CONFIG)
    bench.drain()
    fold = bench.runner._fold
    assert fold is not None
    assert len(fold.parts.network.rounds._open.get("r1n1", {})) == 64
    log.pass_time(60)
    bench.drain()
    assert lost(bench)[OWN] == 150


def test_a_record_before_the_plan_does_not_take_the_place_of_the_real_one(make_bench: MakeBench) -> None:
    log = MeasuredLog(CONFIG)
    slot = planned_slot(1, "r1n1", "r2n1", START_NS + 60 * SECOND, WINDOW_KIND_PEAK)
    log.pass_time(20)
    log.run(slot, pb.RUN_ROLE_CLIENT, mbps=1, start_time_ns=START_NS, end_time_ns=START_NS + SECOND)
    log.members["r2n2"].pending, log.members["r1n1"].pending = log.members["r1n1"].pending[1:], []
    log.pass_time(10)
    log.plan([slot])
    log.pass_time(60)
    for role in (pb.RUN_ROLE_CLIENT, pb.RUN_ROLE_SERVER):
        log.run(slot, role, mbps=400)
    log.pass_time(20)
    bench = make_bench(log, CONFIG)
    bench.drain()
    before = bench.rows()
    bench.restart()
    bench.drain()
    assert bench.rows() == before
    fold = bench.runner._fold
    assert fold is not None
    tracked = fold.parts.attempts.get(slot.slot_id)
    assert tracked is not None
    assert (tracked.category, tracked.valid) == ("ok", True)
    (attempt,) = bench.reader.timetable(*ALWAYS)
    assert attempt.client_run is not None
    assert attempt.client_run.throughput_bps == 400e6


def test_runs_of_slots_that_nobody_planned_are_kept_up_to_a_limit(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.analysis.attempts.MAX_EARLY_OF_AGENT", 3)
    log = MeasuredLog(CONFIG)
    log.pass_time(20)
    for number in range(5):
        log.run(planned_slot(number, "r1n1", "r2n1", START_NS, WINDOW_KIND_PEAK), pb.RUN_ROLE_CLIENT)
    log.pass_time(10)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert reasons(bench) == {"unknown_slot"}
    assert bench.runner.snapshot.unreadable_records == 2


def test_what_is_left_of_a_record_keeps_its_sequences() -> None:
    paths = PathIndex(Topology(CONFIG))
    for definition in (echo_path("r1n1", "r2n1"), echo_path("r2n1", "r1n1")):
        paths.define(Definitions().path(definition), 5)
    now = START_NS + HOUR
    samples = RoundTripSamples(
        source=Source("r1n1", bytes(16), 1, 1, 0, 9),
        method=1,
        stamp_source=1,
        interval_ns=SECOND,
        waiting_time_ns=SECOND,
        path_ids=np.array([FOREIGN, OWN, 77], np.uint64),
        first_sequences=np.array([1, 10, 20], np.uint64),
        sample_counts=np.array([1, 3, 0]),
        send_times_ns=np.array([now, now + HOUR, now, now + SECOND]),
        outcomes=np.array([2, 1, 1, 2], np.uint8),
        round_trip_delays_ns=np.array([-1, 7, 8, -1]),
        marks=((OWN, 3, 1, None), (77, 1, 1, None)),
        hop_limits=np.array([64, 61, 0], np.uint8),
    )
    admitted = admission.round_trips(paths, [samples], now)
    (kept,) = admitted.round_trips
    assert np.asarray(kept.path_ids).tolist() == [OWN]
    assert np.asarray(kept.first_sequences).tolist() == [11]
    assert np.asarray(kept.send_times_ns).tolist() == [now, now + SECOND]
    assert np.asarray(kept.round_trip_delays_ns).tolist() == [8, -1]
    assert np.asarray(kept.hop_limits).tolist() == [61]
    assert [mark[0] for mark in kept.marks] == [OWN]
    (refused,) = admitted.refused
    assert refused.reason == "undefined_path"
    assert "foreign_path 1" in refused.detail
    assert "from_the_future 1" in refused.detail


def mark_record(time_ns: int, phase: int = pb.MARK_PHASE_BEGIN) -> bytes:
    mark = pb.TrainerMark(time_ns=time_ns, kind="checkpoint", job="llm", label_name=["a"], label_value=["b"])
    mark.phase = pb.MarkPhase.ValueType(phase)
    return pb.Record(trainer_mark=mark).SerializeToString()


def test_marks_are_kept_at_times_that_can_be_true(make_bench: MakeBench) -> None:
    log = MeasuredLog(CONFIG)
    log.pass_time(20)
    now_ns = log.now_ns
    send(
        log,
        "r1n1",
        mark_record(now_ns - 5 * SECOND),
        mark_record(now_ns - SECOND, pb.MARK_PHASE_END),
        mark_record(now_ns + HOUR),
        mark_record(now_ns - 100 * 24 * HOUR),
    )
    bench = make_bench(log, CONFIG)
    bench.drain()
    found = bench.reader.marks(*ALWAYS)
    assert [(row.node, row.time_ns, row.phase) for row in found] == [
        ("r1n1", now_ns - 5 * SECOND, pb.MARK_PHASE_BEGIN),
        ("r1n1", now_ns - SECOND, pb.MARK_PHASE_END),
    ]
    behind = (found[0].time_ns, found[0].source.position, found[0].source.record_index)
    assert bench.reader.marks(*ALWAYS, behind) == found[1:]
    assert bench.reader.marks(*ALWAYS, limit=1) == found[:1]
    assert dict(found[0].labels) == {"a": "b"}
    assert found[0].source.agent_id == "r1n1"
    assert reasons(bench) == {"from_the_future", "too_old"}


class Absurd(Line):
    """What no NIC counts: all that 63 bits hold, within seconds."""

    def octets(self, at_s: float) -> tuple[int, int]:
        return round(at_s) * 1000, max(0, round(at_s) - 60) * 9 * 10**16


@pytest.mark.parametrize("speed_bps", [None, (1 << 63) - 1])
def test_absurd_counts_of_one_agent_do_not_stop_what_is_said_of_others(
    make_bench: MakeBench, speed_bps: int | None
) -> None:
    log = MeasuredLog(CONFIG)
    lines = {node.name: Line([save(80, 20, 20_000)]) for node in CONFIG.nodes} | {"r1n1": Absurd()}
    log.traffic = FleetTraffic(log.now_ns, lines, speed_bps=speed_bps)
    log.pass_time(160)
    bench = make_bench(log, CONFIG)
    bench.drain()
    seen = {member.node for event in bench.reader.burst_events(*ALWAYS) for member in event.members}
    assert "r1n1" not in seen
    assert (seen == {node.name for node in CONFIG.nodes} - {"r1n1"}) == (speed_bps is None)
