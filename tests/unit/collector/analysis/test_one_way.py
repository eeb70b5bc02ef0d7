"""One-way delays from signed records to what is said of a pair: never without the clocks' bounds."""

from collections.abc import Sequence

import pytest

from agent.record.columns import fill_one_way
from agent.result import OneWayBatch, OneWayDelay, OneWayLoss
from bandwitness.identity import short_id
from bandwitness.v1 import record_pb2 as pb
from collector.analysis import one_way
from collector.analysis.rules import ports
from collector.model import PairLoss, PairOneWay
from collector.store import tables
from tests.fakes.analysis_bench import Bench, MakeBench
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import DELAY_NS, SECOND, MeasuredLog, Packet, fleet_config, replied, stamp_path

CONFIG = fleet_config(racks=2, hosts=1)
PORTS = (61_000, 61_001, 61_002, 61_003)
HOUR = 3600 * SECOND


def measured(seconds: int = 60) -> MeasuredLog:
    """Two nodes; the clock of r2n1 is 30 µs ahead."""
    log = MeasuredLog(CONFIG, interval_ns=SECOND)
    log.ports = lambda _: PORTS
    log.ahead_ns = {"r1n1": 0, "r2n1": 30_000}.__getitem__
    log.pass_time(seconds)
    return log


def pair(bench: Bench) -> PairLoss:
    """From r1n1 to r2n1."""
    return next(pair for pair in bench.reader.pairs(START_NS, START_NS + HOUR, ports.pattern) if pair.src == "r1n1")


def told(bench: Bench) -> PairOneWay:
    found = pair(bench).one_way
    assert found is not None
    return found


def stored(bench: Bench) -> Sequence[object]:
    with bench.store.transaction() as tx:
        return tx.all(tables.one_way_delays)


def delays(*found: OneWayDelay) -> bytes:
    record = pb.Record()
    fill_one_way(record.one_way, OneWayBatch(delays=found))
    return record.SerializeToString()


def send(log: MeasuredLog, node: str, *records: bytes) -> None:
    log._deliver(node, log.members[node].evidence, records, log.now_ns - SECOND)


def test_a_pair_has_both_directions_beside_both_bounds(make_bench: MakeBench) -> None:
    bench = make_bench(measured(), CONFIG)
    bench.drain()
    found = told(bench)
    assert found.samples == 4 * 59  # all that was answered; what is sent is counted once its window has closed
    assert (found.sender_clock_error_ns, found.reflector_clock_error_ns, found.clock_error_ns) == (
        20_000,
        21_000,
        41_000,
    )
    assert DELAY_NS / 2 + 30_000 <= found.forward_delay_p50_ns <= (DELAY_NS / 2 + 34_000) * 65 / 64
    assert DELAY_NS / 2 - 30_000 <= found.reverse_delay_p50_ns <= (DELAY_NS / 2 - 26_000) * 65 / 64
    assert (found.forward_known, found.reverse_known) == (True, False)  # 20 µs within ±41 µs says nothing


def test_without_both_clocks_there_is_no_one_way_delay(make_bench: MakeBench) -> None:
    log = MeasuredLog(CONFIG, interval_ns=SECOND)
    log.ports = lambda _: PORTS
    log.pass_time(30)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert pair(bench).one_way is None


def test_no_verdict_comes_of_a_clock_that_runs_away(make_bench: MakeBench) -> None:
    log = measured(120)
    log.ahead_ns = {"r1n1": 0, "r2n1": 900 * SECOND}.__getitem__
    log.pass_time(180)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert bench.incidents() == []


@pytest.mark.parametrize("kept", [one_way.MAX_KEPT, 1])
def test_portions_restarts_and_little_memory_change_nothing(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    log = measured()
    whole = make_bench(log, CONFIG)
    whole.drain()
    monkeypatch.setattr(one_way, "MAX_KEPT", kept)
    cut = make_bench(log, CONFIG)
    for visible in range(1, len(log.entries) + 1):
        log.visible = visible
        cut.drain()
        if visible % 7 == 0:
            cut.restart()
    assert stored(cut) == stored(whole)
    assert len(stored(cut)) >= 2 * 5 * len(PORTS)
    assert told(cut) == told(whole)


def test_what_comes_late_is_added_to_its_window(make_bench: MakeBench) -> None:
    log = measured()
    path_id = short_id(stamp_path("r1n1", "r2n1", PORTS[0]))
    bench = make_bench(log, CONFIG)
    bench.drain()
    before = told(bench).samples
    log.pass_time(300)
    send(log, "r1n1", delays(OneWayDelay(path_id, 7, -5_000, 5_000, 900_000, 70, START_NS + 31 * SECOND)))
    bench.restart()
    bench.drain()
    with bench.store.transaction() as tx:
        table = tables.one_way_delays
        rows = tx.all(table, table.c.start_time_ns == (START_NS + 31 * SECOND) // (10 * SECOND) * 10 * SECOND)
    row = next(row for row in rows if row["forward_delay_min_ns"] < 0)
    assert (row["forward_delay_min_ns"], row["sender_clock_error_ns"], row["reflector_clock_error_ns"]) == (
        *(-5_000, 900_000, 21_000),
    )
    assert told(bench).samples > before


def test_nobody_speaks_for_the_path_of_another_or_of_the_future(make_bench: MakeBench) -> None:
    log = measured()
    bench = make_bench(log, CONFIG)
    bench.drain()
    before = stored(bench)
    own, foreign = (short_id(stamp_path(*ends, PORTS[0])) for ends in (("r1n1", "r2n1"), ("r2n1", "r1n1")))
    send(
        log,
        "r1n1",
        delays(
            OneWayDelay(own, 1, 1, 1, 1, 1, log.now_ns + HOUR),
            OneWayDelay(foreign, 1, 1, 1, 1, 1, log.now_ns),
            OneWayDelay(5, 1, 1, 1, 1, 1, log.now_ns),
            OneWayDelay(own, 1, 1, 1, 1, 1, log.now_ns - 100 * 86_400 * SECOND),
        ),
    )
    bench.drain()
    assert stored(bench) == before
    with bench.store.transaction() as tx:
        (row,) = tx.all(tables.quarantine)
    assert row["detail"].startswith("one-way delays: ")
    for reason in ("foreign_path", "from_the_future", "undefined_path", "too_old"):
        assert f"{reason} 1" in row["detail"]


def every_port(_: str, __: str, port: int, time_ns: int) -> Packet:
    return (pb.PACKET_OUTCOME_LOST, None) if (time_ns // SECOND + port) % 4 == 0 else replied("", "", port, time_ns)


def one_port(_: str, __: str, port: int, time_ns: int) -> Packet:
    bad = port == PORTS[2] and time_ns // SECOND % 2
    return (pb.PACKET_OUTCOME_LOST, None) if bad else replied("", "", port, time_ns)


@pytest.mark.parametrize(("fate", "pattern"), [(replied, "none"), (one_port, "some"), (every_port, "all")])
def test_a_pair_says_which_ports_lose_as_incidents_do(make_bench: MakeBench, fate: object, pattern: str) -> None:
    log = MeasuredLog(CONFIG, interval_ns=SECOND)
    log.ports = lambda _: PORTS
    log.pass_time(60)
    log.of_port = fate  # type: ignore[assignment]
    log.pass_time(120)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert pair(bench).pattern == pattern
    for incident in bench.incidents("loss"):
        assert incident.values["ports_pattern"] == pattern


def test_a_gap_counts_once_the_window_that_it_began_in_is_closed(make_bench: MakeBench) -> None:
    """So no pair has ever lost more in one direction than it lost."""
    log = MeasuredLog(CONFIG, interval_ns=SECOND)
    log.ports = lambda _: PORTS
    path_id = short_id(stamp_path("r1n1", "r2n1", PORTS[0]))

    def fate(src: str, _: str, port: int, time_ns: int) -> Packet:
        if (src, port) == ("r1n1", PORTS[0]) and (time_ns - START_NS) // SECOND in (20, 21, 22, 52, 53):
            return pb.PACKET_OUTCOME_LOST, None
        return replied(src, "", 0, time_ns)

    log.of_port = fate
    log.pass_time(56)
    record = pb.Record()
    first = START_NS // SECOND
    losses = [
        OneWayLoss(path_id, first + at, first + at + lost - 1, lost, 0, 0, START_NS + at * SECOND)
        for at, lost in ((20, 3), (52, 2))
    ]
    fill_one_way(record.one_way, OneWayBatch(losses=losses))
    send(log, "r1n1", record.SerializeToString())
    bench = make_bench(log, CONFIG)
    bench.drain()
    found = pair(bench)
    assert (found.lost, found.forward_lost, found.reverse_lost, found.either_lost) == (3, 3, 0, 0)
    log.pass_time(10)
    bench.drain()
    found = pair(bench)
    assert (found.lost, found.forward_lost, found.reverse_lost, found.either_lost) == (5, 5, 0, 0)
