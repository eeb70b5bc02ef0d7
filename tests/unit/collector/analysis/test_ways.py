"""Routes and path MTU over a log made by hand: what is kept, what has changed, what is an incident."""

from collections.abc import Callable

import pytest

from bandwitness.identity import short_id
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import WINDOW_KIND_PEAK
from collector.model import Element, HopRow
from collector.store import hops
from tests.fakes.analysis_bench import ALWAYS, Bench, MakeBench
from tests.fakes.measured_log import SECOND, MeasuredLog, echo_path, endpoint, fleet_config, planned_slot

A, B = "r1n1", "r2n1"
PATH_ID = short_id(echo_path(A, B))
HOUR = 3600
CONFIG = fleet_config()


@pytest.fixture
def log() -> MeasuredLog:
    made = MeasuredLog(CONFIG, interval_ns=SECOND)
    made.pass_time(4)
    return made


def status(bench: Bench) -> tuple[int | None, int | None]:
    found = next(status for status in bench.reader.paths() if status.path_id == PATH_ID)
    assert bench.runner.snapshot.paths[PATH_ID] == found
    return found.hop_count, found.path_mtu_bytes


def changes(bench: Bench) -> list[tuple[str, str, str]]:
    return [(change.change, change.before, change.after) for change in bench.reader.route_changes(*ALWAYS)]


@pytest.mark.parametrize(("hop_limit", "count"), [(64, 0), (61, 3), (128, 0), (120, 8), (255, 0), (30, 2), (33, 31)])
def test_hops_are_counted_from_the_nearest_usual_start(hop_limit: int, count: int) -> None:
    assert hops.hop_count(hop_limit) == count


def test_a_hop_limit_that_stays_another_is_a_change_and_no_incident(log: MeasuredLog, make_bench: MakeBench) -> None:
    """One reply over another way is none: routes that spread differ now and then."""
    log.hop_limits[A, B] = 61
    log.pass_time(20)
    log.hop_limits[A, B] = 60
    log.pass_time(4)
    log.hop_limits[A, B] = 61
    log.pass_time(20)
    log.hop_limits[A, B] = 59
    changed_ns = log.now_ns
    log.pass_time(20)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert status(bench) == (5, None)
    assert changes(bench) == [("hop_count", "3", "5")]
    (change,) = bench.reader.route_changes(*ALWAYS)
    assert (change.src, change.dst) == (A, B)
    assert abs(change.time_ns - changed_ns) <= 3 * SECOND
    assert bench.incidents() == []


def test_other_routers_in_a_trace_are_a_change_and_silence_is_none(log: MeasuredLog, make_bench: MakeBench) -> None:
    for routers in (["10.9.0.1", "", "10.9.0.3"], ["10.9.0.1", "10.9.0.2", ""], ["10.9.0.1", "10.9.0.2", "10.9.0.3"]):
        log.trace(A, B, routers)
        log.pass_time(2)
    log.trace(A, B, ["10.9.0.1", "10.9.0.7", "10.9.0.3"])
    log.pass_time(2)
    log.trace(A, B, ["10.9.0.1", "10.9.0.7", "10.9.0.8", "10.9.0.3"])
    log.pass_time(2)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert changes(bench) == [
        ("responders", "10.9.0.1 > 10.9.0.2 > 10.9.0.3", "10.9.0.1 > 10.9.0.7 > 10.9.0.3"),
        ("responders", "10.9.0.1 > 10.9.0.7 > 10.9.0.3", "10.9.0.1 > 10.9.0.7 > 10.9.0.8 > 10.9.0.3"),
    ]
    traces = bench.reader.traces(*ALWAYS)
    assert len(traces) == 5
    assert (traces[0].near_side, traces[0].vendor_edge, traces[0].far_side) == ("10.9.0.1", None, "10.9.0.3")
    assert traces[0].dst_address == endpoint(B).address


def test_the_vendor_edge_is_where_private_addresses_end() -> None:
    way = ["10.0.0.1", "100.64.0.1", "202.96.1.1", "61.139.2.69"]
    found = [HopRow(at, pb.HOP_OUTCOME_TIME_EXCEEDED, address, 1) for at, address in enumerate(way, 1)]
    assert hops.sides(found) == ("10.0.0.1", "202.96.1.1", "61.139.2.69")
    assert hops.sides([]) == (None, None, None)


def test_case_11_a_black_hole_is_an_incident_until_it_is_gone(log: MeasuredLog, make_bench: MakeBench) -> None:
    log.path_mtu(A, B, 9000)
    log.pass_time(10)
    log.path_mtu(A, B, 1400, black_hole=True)
    log.pass_time(10)
    bench = make_bench(log, CONFIG)
    bench.drain()
    (incident,) = bench.incidents("path_mtu")
    assert (incident.severity, incident.element.kind, incident.closed_time_ns) == ("critical", "path", None)
    assert incident.values["mtu_bytes"] == 1400
    assert incident.values["usual_mtu_bytes"] == 9000
    assert incident.values["packets_lost"] == 10
    assert "Packets above 1400 bytes (usually 9000) vanish" in incident.summary
    assert incident.children == (f"{PATH_ID:016x}",)
    assert status(bench) == (None, 1400)
    bench.restart()
    log.path_mtu(A, B, 9000)
    log.pass_time(10)
    bench.drain()
    (incident,) = bench.incidents("path_mtu")
    assert incident.closed_time_ns is not None


def test_a_smaller_mtu_is_a_warning_that_names_the_router(log: MeasuredLog, make_bench: MakeBench) -> None:
    for mtu in (9000, 1500, None):  # what cannot be told changes nothing
        log.path_mtu(A, B, mtu)
        log.pass_time(10)
    bench = make_bench(log, CONFIG)
    bench.drain()
    (incident,) = bench.incidents("path_mtu")
    assert (incident.severity, incident.closed_time_ns) == ("warning", None)
    assert incident.summary.endswith("fell to 1500 bytes (usually 9000), says 10.9.9.9")


R1, R2, R3 = (("r1n1", "r1n2"), ("r2n1", "r2n2"), ("r3n1", "r3n2"))
THREE = fleet_config(racks=3, hosts=2)
NODES = (*R1, *R2, *R3)


def checks(log: MeasuredLog, bad: Callable[[str, str], bool], *, black_hole: bool = False) -> None:
    """Every path is checked, some a second, in an order that mixes racks."""
    pairs = [(source, destination) for source in NODES for destination in NODES if source != destination]
    for at in range(len(pairs)):
        source, destination = pairs[at * 7 % len(pairs)]
        size = 1400 if bad(source, destination) else 9000
        log.path_mtu(source, destination, size, black_hole=black_hole and size < 9000)
        if at % 3 == 2:
            log.pass_time(2)


def leaves_r1(source: str, destination: str) -> bool:
    return (source in R1) != (destination in R1)


@pytest.mark.parametrize("black_hole", [False, True])
def test_a_bad_uplink_is_one_incident_until_its_last_path_is_whole(make_bench: MakeBench, black_hole: bool) -> None:
    log = MeasuredLog(THREE, interval_ns=SECOND)
    log.pass_time(4)
    checks(log, lambda _, __: False)
    bench = make_bench(log, THREE)
    checks(log, leaves_r1, black_hole=black_hole)
    bench.drain()
    (incident,) = bench.incidents("path_mtu")
    assert (incident.element, incident.closed_time_ns) == (Element("uplink", "r1"), None)
    assert incident.severity == ("critical" if black_hole else "warning")
    assert len(incident.children) == incident.values["paths"] == 2 * 2 * 4
    assert "uplink r1 (16 paths)" in incident.summary
    assert len(incident.evidence) == 16
    bench.restart()
    checks(log, leaves_r1, black_hole=black_hole)  # the same again an hour later
    bench.drain()
    (again,) = bench.incidents("path_mtu")
    assert (again.incident_id, again.children) == (incident.incident_id, incident.children)
    checks(log, lambda source, destination: (source, destination) == ("r1n1", "r3n2"))
    bench.drain()
    (left,) = bench.incidents("path_mtu")
    assert (left.element, left.closed_time_ns) == (Element("uplink", "r1"), None)
    checks(log, lambda _, __: False)
    bench.drain()
    (over,) = bench.incidents("path_mtu")
    assert over.incident_id == incident.incident_id
    assert over.closed_time_ns is not None


def test_one_path_among_whole_ones_is_itself(make_bench: MakeBench) -> None:
    log = MeasuredLog(THREE, interval_ns=SECOND)
    log.pass_time(4)
    for _ in range(2):
        checks(log, lambda _, __: False)
    checks(log, lambda source, destination: (source, destination) == ("r1n1", "r2n2"))
    checks(log, lambda source, destination: (source, destination) == ("r1n1", "r2n2"))
    bench = make_bench(log, THREE)
    bench.drain()
    (incident,) = bench.incidents("path_mtu")
    assert incident.element.kind == "path"


def test_pooled_incidents_do_not_depend_on_how_the_log_is_read(make_bench: MakeBench) -> None:
    log = MeasuredLog(THREE, interval_ns=SECOND)
    log.pass_time(4)
    checks(log, lambda _, __: False)
    checks(log, leaves_r1)
    checks(log, lambda source, _: source == "r2n1")
    whole = make_bench(log, THREE)
    whole.drain()
    parts = make_bench(log, THREE)
    for visible in range(1, len(log.entries) + 1, 5):
        log.visible = visible
        parts.drain()
        parts.restart()
    log.visible = 1 << 62
    parts.drain()
    assert parts.rows() == whole.rows()


def test_our_own_interface_is_no_fault_of_the_network(log: MeasuredLog, make_bench: MakeBench) -> None:
    log.path_mtu(A, B, 9000)
    log.pass_time(10)
    log.path_mtu(A, B, 1500, interface=1500)
    log.pass_time(10)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert bench.incidents() == []


def test_a_check_older_than_the_newest_is_kept_and_says_nothing(log: MeasuredLog, make_bench: MakeBench) -> None:
    log.path_mtu(A, B, 9000)
    log.pass_time(2)
    log.path_mtu(A, B, 1400, black_hole=True, ago_ns=30 * SECOND)
    log.pass_time(2)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert bench.incidents() == []
    assert len(bench.reader.path_mtus(*ALWAYS)) == 2


def test_traces_of_others_and_from_the_future_stay_out(log: MeasuredLog, make_bench: MakeBench) -> None:
    log.trace(A, B, ["10.9.0.1"], ago_ns=-200 * SECOND)
    log.trace(A, B, ["10.9.0.1"])
    log.members["r1n2"].pending.append(log.members[A].pending[-1])  # of a path that is not its own
    log.pass_time(2)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert len(bench.reader.traces(*ALWAYS)) == 1
    assert bench.runner.snapshot.unreadable_records == 2


def test_case_11_a_stalled_test_refers_to_the_mtu_of_its_pair(log: MeasuredLog, make_bench: MakeBench) -> None:
    log.path_mtu(A, B, 1400, black_hole=True)
    slots = [
        planned_slot(1, A, B, log.now_ns + 10 * SECOND, WINDOW_KIND_PEAK),
        planned_slot(2, "r1n2", "r2n2", log.now_ns + 40 * SECOND, WINDOW_KIND_PEAK),
    ]
    log.plan(slots)
    log.pass_time(60)
    for slot in slots:
        log.run(slot, pb.RUN_ROLE_CLIENT, outcome=pb.RUN_OUTCOME_STALLED_SUSPECT_MTU, receiver_bytes=None)
    log.pass_time(60)
    bench = make_bench(log, CONFIG)
    bench.drain()
    first, second = bench.reader.timetable(*ALWAYS)
    assert "path MTU r1n1 to r2n1: 1400 bytes, larger packets vanish" in first.advice
    assert second.advice == "no path MTU check of this pair: run bandwitness-agent probe mtu 10.0.2.2 on r1n2"


def test_the_same_log_gives_the_same_rows_however_it_is_read(log: MeasuredLog, make_bench: MakeBench) -> None:
    for turn in range(6):
        log.hop_limits[A, B] = 60 + turn % 3
        log.trace(A, B, ["10.9.0.1", f"10.9.0.{turn}"])
        log.path_mtu(A, B, 9000 if turn % 2 else 1400, black_hole=turn == 4)
        log.pass_time(8)
    whole = make_bench(log, CONFIG)
    whole.drain()
    assert {incident.rule for incident in whole.incidents()} == {"path_mtu"}
    assert len(whole.reader.route_changes(*ALWAYS)) > 5
    parts = make_bench(log, CONFIG)
    for visible in range(1, len(log.entries) + 1, 3):
        log.visible = visible
        parts.drain()
        parts.restart()
    log.visible = 1 << 62
    parts.drain()
    assert parts.rows() == whole.rows()
