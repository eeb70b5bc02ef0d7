"""Bursts of a fleet, from the log to rows."""

from dataclasses import replace

import pytest

from bandwitness.settings import Duration
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import WINDOW_KIND_PEAK
from collector.analysis import runner
from collector.config import Config, Rules, SilentRule
from collector.model import Burst, ClusterBurst
from collector.store import tables
from tests.fakes.analysis_bench import ALWAYS, Bench, MakeBench
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import SECOND, MeasuredLog, fleet_config, planned_slot
from tests.fakes.traffic import FleetTraffic, Line, Stretch, save

QUIET = Rules(agent_silent=SilentRule(after=Duration(10**15)))
CONFIG = fleet_config(2, 3, rules=QUIET)
NODES = [node.name for node in CONFIG.nodes]


def log_of(lines: dict[str, Line], config: Config = CONFIG) -> MeasuredLog:
    log = MeasuredLog(config, interval_ns=2 * SECOND)
    log.traffic = FleetTraffic(log.now_ns, lines)
    return log


def everywhere(*stretches: Stretch) -> dict[str, Line]:
    return {node: Line(stretches) for node in NODES}


def clusters(bench: Bench) -> list[ClusterBurst]:
    return bench.reader.cluster_bursts(*ALWAYS)


def of_nics(bench: Bench) -> list[Burst]:
    return bench.reader.bursts(*ALWAYS)


def begin(
    node: str, at_s: float, *, job: str = "llm", step: int = 100, phase: int = pb.MARK_PHASE_BEGIN
) -> pb.TrainerMark:
    del node
    return pb.TrainerMark(
        time_ns=START_NS + round(at_s * SECOND),
        phase=phase,  # type: ignore[arg-type]
        kind="checkpoint",
        job=job,
        step=step,
        label_name=["slurm_job_id"],
        label_value=["77"],
    )


def test_nodes_that_save_together_are_one_cluster_burst(make_bench: MakeBench) -> None:
    lines = everywhere(save(60, 20, 800)) | {"r1n2": Line([save(61, 25, 600)])}
    log = log_of(lines)
    log.pass_time(120)
    made = make_bench(log, CONFIG)
    made.drain()
    (cluster,) = clusters(made)
    assert (cluster.scope, cluster.name, cluster.kind, cluster.lane) == ("site", "s", "save", "rail0")
    assert list(cluster.nodes) == NODES
    assert cluster.bytes == (5 * 20 * 801 + 25 * 601) * 125_000
    assert cluster.start_spread_ns == SECOND
    assert cluster.end_spread_ns == 6 * SECOND
    assert cluster.slowest_node == "r1n2"
    assert cluster.end_time_ns == cluster.start_time_ns + 26 * SECOND
    assert cluster.achieved_bps == pytest.approx(cluster.bytes * 8 / 26)
    assert not cluster.marked
    assert {burst.cluster_id for burst in of_nics(made)} == {cluster.burst_id}


def test_one_rack_is_named_and_one_node_is_no_cluster(make_bench: MakeBench) -> None:
    rack = {node: Line([save(60, 20, 800)]) for node in ("r1n1", "r1n2")}
    log = log_of(rack | {"r2n1": Line([save(90, 10, 800)])})
    log.pass_time(120)
    made = make_bench(log, CONFIG)
    made.drain()
    (cluster,) = clusters(made)
    assert (cluster.scope, cluster.name, list(cluster.nodes)) == ("rack", "r1", ["r1n1", "r1n2"])
    assert [(burst.node, burst.cluster_id) for burst in of_nics(made)][2:] == [("r2n1", "")]


def test_starts_further_apart_are_two_waves(make_bench: MakeBench) -> None:
    early = {node: Line([save(60, 20, 800)]) for node in NODES[:3]}
    late = {node: Line([save(70, 20, 800)]) for node in NODES[3:]}
    log = log_of(early | late)
    log.pass_time(120)
    made = make_bench(log, CONFIG)
    made.drain()
    assert [(cluster.name, cluster.scope) for cluster in clusters(made)] == [("r1", "rack"), ("r2", "rack")]


def test_a_mark_names_job_and_step(make_bench: MakeBench) -> None:
    log = log_of(everywhere(save(60, 20, 800)))
    log.pass_time(60)
    for node in NODES:
        log.say(node, begin(node, 59.5))
    log.pass_time(60)
    made = make_bench(log, CONFIG)
    made.drain()
    (cluster,) = clusters(made)
    assert (cluster.marked, cluster.scope, cluster.name, cluster.job, cluster.step) == (True, "job", "llm", "llm", 100)
    assert cluster.labels == {"slurm_job_id": "77"}
    assert cluster.mark_time_ns == START_NS + 59_500_000_000
    score = made.runner.snapshot.burst_score
    assert score is not None
    assert (score.precision_ratio, score.recall_ratio, score.start_error_median_ns) == (1.0, 1.0, SECOND // 2)


def test_two_jobs_at_once_are_two(make_bench: MakeBench) -> None:
    log = log_of(everywhere(save(60, 20, 800)))
    log.pass_time(60)
    for node in NODES:
        log.say(node, begin(node, 59.5, job="a" if node in ("r1n1", "r2n1", "r2n2") else "b"))
    log.pass_time(60)
    made = make_bench(log, CONFIG)
    made.drain()
    assert [(one.scope, one.name, list(one.nodes)) for one in sorted(clusters(made), key=lambda one: one.name)] == [
        ("job", "a", ["r1n1", "r2n1", "r2n2"]),
        ("job", "b", ["r1n2", "r1n3", "r2n3"]),
    ]


def test_an_exchange_is_never_marked_as_a_checkpoint(make_bench: MakeBench) -> None:
    log = log_of(everywhere(Stretch(60, 80, 800, 800)))
    log.pass_time(60)
    for node in NODES:
        log.say(node, begin(node, 60))
    log.pass_time(60)
    made = make_bench(log, CONFIG)
    made.drain()
    (cluster,) = clusters(made)
    assert (cluster.kind, cluster.marked) == ("exchange", False)
    score = made.runner.snapshot.burst_score
    assert score is not None
    assert (score.detections, score.events, score.events_detected, score.recall_ratio) == (0, 1, 0, 0.0)
    assert score.unseen == ("llm checkpoint step 100",)


def test_what_is_open_is_known_within_seconds(make_bench: MakeBench) -> None:
    log = log_of(everywhere(save(60, 40, 800)))
    made = make_bench(log, CONFIG)
    for _ in range(33):
        log.pass_time(2)
        made.drain()
    log.pass_time(2)
    made.drain()
    (cluster,) = clusters(made)
    assert cluster.end_time_ns is None
    assert [one.burst_id for one in made.runner.snapshot.open_clusters] == [cluster.burst_id]


def test_periodic_saves_tell_when_the_next_one_comes(make_bench: MakeBench) -> None:
    log = log_of(everywhere(*(save(20 + 40 * n, 6, 800) for n in range(6) if n != 3)))
    log.pass_time(240)
    made = make_bench(log, CONFIG)
    made.drain()
    first, *_, last = clusters(made)
    assert first.next_start_time_ns is None
    assert last.next_start_time_ns == last.start_time_ns + 40 * SECOND
    assert (last.interval_ns, last.intervals, last.interval_spread_ns) == (40 * SECOND, 4, 0)


STORY = (save(40, 12, 800), save(90, 12, 800), Stretch(120, 130, 700, 700))


def story() -> MeasuredLog:
    """Two checkpoints, the first while an agent is cut off, whose backlog comes behind the second."""
    log = log_of(everywhere(*STORY))
    log.pass_time(30)
    log.cut_off("r1n1")
    log.pass_time(10)
    for node in NODES:
        log.say(node, begin(node, 40, step=1))
    log.pass_time(50)
    for node in NODES:
        log.say(node, begin(node, 89, step=2))
    log.pass_time(20)
    log.reconnect("r1n1")
    log.pass_time(50)
    return log


def rows(bench: Bench) -> list[object]:
    with bench.store.transaction() as tx:
        windows = tx.all(tables.nic_windows, order_by=tables.nic_windows.c.start_time_ns)
    return [*clusters(bench), *of_nics(bench), *windows]


def test_portions_and_restarts_give_the_same_rows(make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    log = story()
    whole = make_bench(log, CONFIG)
    whole.drain()
    expected = rows(whole)
    assert len(clusters(whole)) == 3
    for size in (7, 100):
        monkeypatch.setattr(runner, "STEP_ENTRIES", size)
        cut = make_bench(log, CONFIG)
        steps = 0
        while cut.runner.step():
            steps += 1
            if steps * size % 200 < size:
                cut.restart()
        cut.drain()
        assert rows(cut) == expected


def test_a_backlog_gives_the_bursts_of_live_data(make_bench: MakeBench) -> None:
    late = make_bench(story(), CONFIG)
    late.drain()
    live_log = log_of(everywhere(*STORY))
    live_log.pass_time(40)
    for node in NODES:
        live_log.say(node, begin(node, 40, step=1))
    live_log.pass_time(50)
    for node in NODES:
        live_log.say(node, begin(node, 89, step=2))
    live_log.pass_time(70)
    live = make_bench(live_log, CONFIG)
    live.drain()
    assert rows(late) == rows(live)


def test_of_an_agent_that_is_gone_nothing_stays_open(make_bench: MakeBench) -> None:
    log = log_of(everywhere(save(60, 400, 800)))
    log.pass_time(80)
    log.pass_time(100, without=["r1n1"])
    made = make_bench(log, CONFIG)
    made.drain()
    ends = {burst.node: burst.end_time_ns for burst in of_nics(made)}
    assert ends == dict.fromkeys(NODES) | {"r1n1": START_NS + 80 * SECOND}
    assert replace(clusters(made)[0]).end_time_ns is None


@pytest.mark.parametrize(("outcome", "found"), [(pb.RUN_OUTCOME_OK, 0), (pb.RUN_OUTCOME_SKIPPED_BURST, 1)])
def test_a_test_of_ours_is_no_burst_and_one_that_stayed_out_hides_none(
    make_bench: MakeBench, outcome: int, found: int
) -> None:
    log = log_of({"r1n1": Line([save(40, 12, 900)])})
    slot = planned_slot(1, "r1n1", "r2n1", START_NS + 40 * SECOND, WINDOW_KIND_PEAK)
    log.plan([slot])
    log.pass_time(56)
    if outcome == pb.RUN_OUTCOME_OK:
        for role in (pb.RUN_ROLE_CLIENT, pb.RUN_ROLE_SERVER):
            log.run(slot, role)
    else:
        log.run(slot, pb.RUN_ROLE_CLIENT, outcome=outcome, receiver_bytes=None, end_time_ns=slot.start_time_ns)
    log.pass_time(30)
    bench = make_bench(log, CONFIG)
    bench.drain()
    assert [(burst.node, burst.kind) for burst in of_nics(bench)] == [("r1n1", "save")] * found
