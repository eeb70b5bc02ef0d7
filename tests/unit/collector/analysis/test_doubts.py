"""Windows in which an agent doubted its own delays: marked, shown, and out of delay verdicts. Loss is not touched."""

from dataclasses import replace
from typing import Any

import pytest

from bandwitness.v1 import record_pb2 as pb
from collector.analysis.doubts import MAX_WINDOWS, Doubts
from collector.analysis.elements import Topology
from collector.analysis.paths import PathIndex
from collector.analysis.window import BUCKET_NS, WINDOW_NS, Window
from collector.decode import Definitions
from collector.model import SelfCheckRow, Source
from tests.fakes.analysis_bench import ALWAYS, Bench, MakeBench
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import SECOND, MeasuredLog, Packet, echo_path, fleet_config, replied, stamp_path

T0 = 1_767_225_600 * SECOND
A_B, B_A, A_B_STAMP, C_D = 0, 1, 2, 3


def check(node: str, from_s: float, to_s: float, *reasons: str) -> SelfCheckRow:
    source = Source(node, bytes(16), 1, 1, 0, 1)
    span = (T0 + int(from_s * SECOND), T0 + int(to_s * SECOND))
    return SelfCheckRow(source, node, *span, 8, 0, None, None, None, None, None, None, None, reasons)


@pytest.fixture
def doubts() -> Doubts:
    paths = PathIndex(Topology(fleet_config(2)))
    for definition in (
        echo_path("r1n1", "r2n1"),
        echo_path("r2n1", "r1n1"),
        stamp_path("r1n1", "r2n1", 50_000),
        echo_path("r1n2", "r2n2"),
    ):
        paths.define(Definitions().path(definition))
    return Doubts(paths)


def labels(doubts: Doubts, start_s: int) -> dict[int, str]:
    window = Window(T0 + start_s * SECOND)
    doubts.label(window)
    return window.doubtful


def test_a_check_without_reasons_says_nothing(doubts: Doubts) -> None:
    assert doubts.put(check("r1n1", 0, 2)) is None
    assert labels(doubts, 0) == {}


def test_each_window_it_touches_is_doubtful_for_all_paths_of_the_sender(doubts: Doubts) -> None:
    assert doubts.put(check("r1n1", 9.5, 11.5, "late")) == (
        T0 + WINDOW_NS - BUCKET_NS,
        T0 + 2 * WINDOW_NS,
    )
    assert labels(doubts, 0) == labels(doubts, 10) == {A_B: "late", A_B_STAMP: "late"}
    assert labels(doubts, 20) == {}


def test_of_the_answering_host_counts_what_slows_its_answer(doubts: Doubts) -> None:
    """Its kernel answers echo whether its processes get a CPU or not; a STAMP reflector is a process."""
    doubts.put(check("r2n1", 0, 2, "starved"))
    assert labels(doubts, 0) == {B_A: "starved", A_B_STAMP: "peer_starved"}
    doubts.put(check("r2n1", 10, 12, "stolen"))
    assert labels(doubts, 10) == {B_A: "stolen", A_B: "peer_stolen", A_B_STAMP: "peer_stolen"}


def test_reasons_of_several_checks_and_of_both_ends_add_up(doubts: Doubts) -> None:
    doubts.put(check("r1n1", 0, 2, "starved"))
    assert doubts.put(check("r1n1", 2, 4, "starved")) is None
    assert doubts.put(check("r1n1", 4, 6, "late")) is not None
    doubts.put(check("r2n1", 4, 6, "suspended"))
    assert labels(doubts, 0)[A_B] == "late starved peer_suspended"


def test_the_mask_says_the_same_as_the_labels(doubts: Doubts) -> None:
    doubts.put(check("r1n1", 9, 11, "late"))
    mask = doubts.mask(T0, 3)
    assert mask.tolist() == [[True, True, False], [False] * 3, [True, True, False], [False] * 3]


def test_a_closed_row_whose_label_is_new_is_written_again(doubts: Doubts) -> None:
    window = Window(T0)
    window.grow(4)
    window.closed[:] = True
    doubts.put(check("r1n1", 0, 2, "late"))
    doubts.label(window)
    assert window.changed.tolist()[:4] == [True, False, True, False]
    window.changed[:] = False
    doubts.label(window)
    assert not window.changed.any()


def test_a_host_that_slept_for_a_year_is_doubted_at_both_ends(doubts: Doubts) -> None:
    doubts.put(check("r1n1", 0, 365 * 86_400, "suspended"))
    assert len(doubts.take_changed()) == 2 * MAX_WINDOWS
    assert labels(doubts, 0)
    assert labels(doubts, 365 * 86_400 - 10)


def test_what_is_stored_is_put_back_and_what_is_old_is_dropped(doubts: Doubts) -> None:
    doubts.put(check("r1n1", 0, 12, "stolen", "late"))
    rows = doubts.take_changed()
    assert rows == [(T0, "r1n1", ("late", "stolen")), (T0 + WINDOW_NS, "r1n1", ("late", "stolen"))]
    assert doubts.take_changed() == []
    doubts.forget(T0 + WINDOW_NS)
    assert (labels(doubts, 0), labels(doubts, 10) != {}) == ({}, True)
    doubts.restore(rows)
    assert labels(doubts, 0) == labels(doubts, 10)
    doubts.put(check("r1n1", 0, 2, "starved"))
    doubts.forget(T0 + 10 * WINDOW_NS)  # not what is not stored yet
    assert doubts.take_changed() == [(T0, "r1n1", ("late", "starved", "stolen"))]


# ---------------------------------------------------------------- through the log


def starved(config: Any, *, reasons: tuple[str, ...], lost: bool = False) -> MeasuredLog:
    """From 400 to 600 s the delays that r1n1 measures are ten times the usual; it says why."""

    def inside(time_ns: int) -> bool:
        return 400 <= (time_ns - START_NS) / SECOND < 600

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        outcome, delay = replied(src, dst, sequence, time_ns)
        if src != "r1n1" or not inside(time_ns):
            return outcome, delay
        if lost and sequence % 10 == 0:
            return pb.PACKET_OUTCOME_LOST, None
        return outcome, 10 * (delay or 0)

    log = MeasuredLog(config, fate=fate)
    log.doubt = lambda node, time_ns: reasons if node == "r1n1" and inside(time_ns) else ()
    log.pass_time(700)
    return log


def analysed(make_bench: MakeBench, log: MeasuredLog, config: Any) -> Bench:
    bench = make_bench(log, config)
    bench.drain()
    return bench


def test_delays_of_a_starved_host_raise_nothing_and_without_its_word_they_would(make_bench: MakeBench) -> None:
    config = fleet_config()
    silent = analysed(make_bench, starved(config, reasons=()), config)
    accused = {incident.element.name.partition(">")[0] for incident in silent.incidents("delay")}
    assert accused == {"r1n1/eth0"}
    told = analysed(make_bench, starved(config, reasons=("late", "starved")), config)
    assert told.incidents() == []
    own = [status for status in told.reader.paths() if status.src == "r1n1"]
    for status in own:
        windows = told.reader.round_trips(status.path_id, *ALWAYS)
        doubtful = [window for window in windows if window.doubtful == "late starved"]
        assert len(doubtful) in (20, 21)
        assert all(window.sent for window in doubtful)
    others = [status for status in told.reader.paths() if status.src != "r1n1"]
    assert not any(window.doubtful for status in others for window in told.reader.round_trips(status.path_id, *ALWAYS))


def test_what_a_starved_host_measured_does_not_become_usual(make_bench: MakeBench) -> None:
    """Marked for an hour, and then as slow without a mark: that is news."""
    config = fleet_config()

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        outcome, delay = replied(src, dst, sequence, time_ns)
        slow = src == "r1n1" and (time_ns - START_NS) / SECOND >= 400
        return outcome, (delay or 0) * (10 if slow else 1)

    log = MeasuredLog(config, fate=fate, interval_ns=SECOND)
    log.doubt = lambda node, time_ns: (
        ("late",) if node == "r1n1" and 400 <= (time_ns - START_NS) / SECOND < 2000 else ()
    )
    log.pass_time(2200)
    bench = analysed(make_bench, log, config)
    opened = [incident.opened_time_ns for incident in bench.incidents("delay")]
    assert min(opened) >= START_NS + 2000 * SECOND


def test_loss_is_told_all_the_same_and_says_how_many_paths_were_doubtful(make_bench: MakeBench) -> None:
    config = fleet_config()
    bench = analysed(make_bench, starved(config, reasons=("late",), lost=True), config)
    (incident,) = bench.incidents()
    assert (incident.rule, incident.element.name) == ("loss", "r1n1/eth0")
    assert incident.values["doubtful_paths"] == 3
    quiet = analysed(make_bench, starved(config, reasons=(), lost=True), config)
    (same,) = quiet.incidents("loss")
    assert "doubtful_paths" not in same.values
    assert (same.opened_time_ns, same.element) == (incident.opened_time_ns, incident.element)


def test_a_doubt_that_is_told_late_takes_the_delay_incident_back(make_bench: MakeBench) -> None:
    """The slow host answers; that its hypervisor took its CPU is told by its own agent, which was cut off."""
    config = fleet_config()

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        outcome, delay = replied(src, dst, sequence, time_ns)
        slow = dst == "r1n1" and 400 <= (time_ns - START_NS) / SECOND < 520
        return outcome, (delay or 0) * (10 if slow else 1)

    log = MeasuredLog(config, fate=fate)
    log.doubt = lambda node, time_ns: (
        ("stolen",) if node == "r1n1" and 400 <= (time_ns - START_NS) / SECOND < 520 else ()
    )
    log.pass_time(390)
    log.cut_off("r1n1")
    log.pass_time(150)
    bench = make_bench(log, config)
    log.visible = len(log.entries)
    bench.drain()
    assert bench.incidents("delay")
    log.visible = 1 << 62
    log.reconnect("r1n1")
    log.pass_time(60)
    bench.drain()
    assert bench.incidents("delay") == []
    again = analysed(make_bench, log, config)
    assert again.rows() == bench.rows()


def test_the_state_of_an_agent_says_what_its_newest_check_found(make_bench: MakeBench) -> None:
    config = fleet_config()
    bench = analysed(make_bench, starved(config, reasons=("late", "starved")), config)
    nodes = {node.name: node.self_check for node in bench.reader.nodes()}
    known = nodes["r1n1"]
    assert known is not None
    assert (known.reasons, known.checks, known.doubtful_checks) == ([], 350, {"late": 100, "starved": 100})
    other = nodes["r2n1"]
    assert other is not None
    assert replace(other, to_time_ns=0, doubtful_checks={}) == replace(known, to_time_ns=0, doubtful_checks={})
