"""Metrics tell of now: a backlog that drains must not look like a burst."""

from bandwitness.v1 import record_pb2 as pb
from collector.analysis.snapshot import DELAY_BOUNDS_NS, YOUNG_NS
from tests.fakes.analysis_bench import ALWAYS, Bench, MakeBench
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import DELAY_NS, SECOND, MeasuredLog, Packet, fleet_config, replied

AWAY_FROM_S, AWAY_TO_S = 60, 360
OLD_UNTIL_S = AWAY_TO_S - YOUNG_NS // SECOND
SLOW_NS = 50 * DELAY_NS


def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
    """While r1n1 is away, until two minutes before it is back: a quarter of its packets is lost, the rest is slow."""
    since_s = (time_ns - START_NS) / SECOND
    if src == "r1n1" and AWAY_FROM_S <= since_s < OLD_UNTIL_S:
        return (pb.PACKET_OUTCOME_LOST, None) if sequence % 4 == 0 else (pb.PACKET_OUTCOME_REPLIED, SLOW_NS)
    return replied(src, dst, sequence, time_ns)


def counted(bench: Bench, source: str) -> list[tuple[int, int, int]]:
    """Sent, lost and duplicates of each path of a node."""
    totals = [totals for totals in bench.runner.snapshot.totals.values() if totals.src == source]
    return [(path.sent, path.lost, path.duplicates) for path in totals]


def test_a_drained_backlog_moves_no_counter_with_what_is_older_than_two_minutes(make_bench: MakeBench) -> None:
    config = fleet_config()
    log = MeasuredLog(config, fate=fate)
    bench = make_bench(log, config)
    log.pass_time(AWAY_FROM_S)
    bench.drain()
    per_second = SECOND // log.interval_ns
    before = AWAY_FROM_S * per_second
    assert counted(bench, "r1n1") == [(before, 0, 0)] * 3
    log.cut_off("r1n1")
    log.mark("r1n1", "r2n1", 7, pb.PACKET_MARK_DUPLICATE)
    log.pass_time(AWAY_TO_S - AWAY_FROM_S)
    bench.drain()
    assert counted(bench, "r1n1") == [(before, 0, 0)] * 3
    log.reconnect("r1n1")
    bench.drain()
    # What was measured from 120 s to 1 s ago, but for the one packet that is older by the time it took to arrive.
    young = 119 * per_second - 1
    assert counted(bench, "r1n1") == [(before + young, 0, 0)] * 3
    assert counted(bench, "r2n2") == [(AWAY_TO_S * per_second, 0, 0)] * 3
    slow = next(number for number, bound in enumerate(DELAY_BOUNDS_NS) if bound >= SLOW_NS)
    assert all(not any(histogram.counts[slow - 1 :]) for histogram in bench.runner.snapshot.delays)
    # The windows do count it: verdicts and evidence are not a matter of when something arrived.
    mine = [status.path_id for status in bench.reader.paths() if status.src == "r1n1"]
    lost = [sum(window.lost for window in bench.reader.round_trips(path_id, *ALWAYS)) for path_id in mine]
    assert lost == [(OLD_UNTIL_S - AWAY_FROM_S) * per_second // 4] * 3
    log.pass_time(20)
    bench.drain()
    assert counted(bench, "r1n1") == [(before + young + 20 * per_second, 0, 0)] * 3
