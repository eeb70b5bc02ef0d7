"""Bursts and what they do to others, from the log to incidents."""

from collections.abc import Callable

import pytest

from bandwitness.settings import Duration
from bandwitness.v1 import record_pb2 as pb
from collector.analysis import runner
from collector.config import Rules, SilentRule
from tests.fakes.analysis_bench import Bench, MakeBench
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import SECOND, MeasuredLog, Packet, fleet_config, replied
from tests.fakes.traffic import FleetTraffic, Line, Stretch, save

CONFIG = fleet_config(2, 3, rules=Rules(agent_silent=SilentRule(after=Duration(10**15))))
SLOW_NS = 10_000_000
WRITERS = ("r1n1", "r1n2", "r1n3")
BURST = (200, 20)  # start and length, s
Fate = Callable[[str, str, int, int], Packet]


def troubled(from_s: float, to_s: float, *, lost: int = 0, slow: int = 0, only: str = "", across: bool = True) -> Fate:
    """Of the packets between racks (or at nodes called so), every ``lost``-th is lost and every ``slow``-th slow."""

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        hit = (src[:2] != dst[:2] if across else True) and (not only or only in (src, dst))
        if hit and from_s <= (time_ns - START_NS) / SECOND < to_s:
            if lost and (sequence + sum((src + dst).encode())) % lost == 0:
                return pb.PACKET_OUTCOME_LOST, None
            if slow and sequence % slow == 0:
                return pb.PACKET_OUTCOME_REPLIED, SLOW_NS
        return replied(src, dst, sequence, time_ns)

    return fate


def log_of(fate: Fate, *stretches: Stretch, seconds: float = 260) -> MeasuredLog:
    log = MeasuredLog(CONFIG, fate=fate, interval_ns=SECOND // 5)
    log.traffic = FleetTraffic(log.now_ns, {node: Line(stretches or [save(*BURST, 800)]) for node in WRITERS})
    log.pass_time(seconds)
    return log


def told(bench: Bench) -> list[tuple[str, str, str, object]]:
    return [(one.rule, one.element.kind, one.element.name, one.values.get("during", "")) for one in bench.incidents()]


def test_a_burst_that_fills_the_uplinks_queue_is_named_once(make_bench: MakeBench) -> None:
    bench = make_bench(log_of(troubled(201, 219, slow=2)), CONFIG)
    bench.drain()
    assert told(bench) == [("burst_contention", "rack_pair", "r1|r2", "burst")]
    (incident,) = bench.incidents()
    (cluster,) = bench.reader.cluster_bursts(0, 1 << 62)
    assert incident.values["burst_id"] == cluster.burst_id
    assert (incident.values["broke"], incident.values["burst_lane"]) == ("delay", "rail0")
    assert abs(incident.opened_time_ns - START_NS - 201 * SECOND) <= 2 * SECOND
    assert incident.closed_time_ns is not None
    assert abs(incident.closed_time_ns - START_NS - 225 * SECOND) <= 2 * SECOND


def test_loss_inside_a_burst_says_so_and_its_contention_stands_beside_it(make_bench: MakeBench) -> None:
    bench = make_bench(log_of(troubled(201, 219, lost=5)), CONFIG)
    bench.drain()
    assert sorted(told(bench)) == [
        ("burst_contention", "rack_pair", "r1|r2", "burst"),
        ("loss", "rack_pair", "r1|r2", "burst"),
    ]
    loss = next(one for one in bench.incidents() if one.rule == "loss")
    assert "began in burst" in loss.summary


@pytest.mark.parametrize("since_s", [170, 190])
def test_loss_that_was_there_before_is_not_blamed_on_the_burst(make_bench: MakeBench, since_s: float) -> None:
    bench = make_bench(log_of(troubled(since_s, 260, lost=5, only="r1n1", across=False)), CONFIG)
    bench.drain()
    assert told(bench) == [("loss", "endpoint", "r1n1/eth0", "")]
    assert "predates burst" in bench.incidents()[0].summary


def test_a_burst_with_head_room_hurts_nobody(make_bench: MakeBench) -> None:
    bench = make_bench(log_of(replied), CONFIG)
    bench.drain()
    assert told(bench) == []
    assert len(bench.reader.cluster_bursts(0, 1 << 62)) == 1


def test_what_training_does_all_day_is_blamed_for_nothing(make_bench: MakeBench) -> None:
    exchange = Stretch(BURST[0], BURST[0] + BURST[1], 800, 800)
    bench = make_bench(log_of(troubled(201, 219, slow=2), exchange), CONFIG)
    bench.drain()
    assert told(bench) == []


def test_what_a_burst_did_does_not_become_usual(make_bench: MakeBench) -> None:
    """Nor is the second of two bursts spared because the first one was as bad."""
    twice = [save(200, 20, 800), save(240, 20, 800)]

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        first = troubled(201, 219, lost=20, slow=2)(src, dst, sequence, time_ns)
        return first if first != replied(src, dst, sequence, time_ns) else troubled(
            241, 259, lost=20, slow=2
        )(src, dst, sequence, time_ns)  # fmt: skip

    bench = make_bench(log_of(fate, *twice, seconds=300), CONFIG)
    bench.drain()
    contention = [one for one in bench.incidents() if one.rule == "burst_contention"]
    assert len({one.values["burst_id"] for one in contention}) == len(contention) == 2
    assert all("delay" in str(one.values["broke"]) for one in contention)


def test_the_same_log_says_the_same_in_any_portions_and_through_restarts(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(troubled(201, 219, lost=10, slow=2))
    whole = make_bench(log, CONFIG)
    whole.drain()
    monkeypatch.setattr(runner, "STEP_ENTRIES", 7)
    parts = make_bench(log, CONFIG)
    for step in range(10_000):
        if not parts.runner.step():
            break
        if step % 40 == 39:
            parts.restart()
    assert parts.verdicts() == whole.verdicts()
    assert {one.rule for one in whole.incidents()} == {"burst_contention", "loss"}
