"""Delay of STAMP pairs: judged over all source ports together, with the slow ones named."""

from collections.abc import Sequence

from bandwitness.v1 import record_pb2 as pb
from tests.fakes.analysis_bench import MakeBench
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import DELAY_NS, SECOND, MeasuredLog, Packet, fleet_config, replied

PORTS = (50_000, 50_001, 50_002, 50_003)
SLOW_FROM_S, SLOW_TO_S = 400, 560
TURN_S = 430  # when a port gives way to another


def ports_at(time_ns: int) -> Sequence[int]:
    """Three that stay, and one that is another one from the turn on."""
    return (*PORTS[:3], PORTS[3] if time_ns < START_NS + TURN_S * SECOND else 50_099)


def slow_ports(*slow: int, source: str = "r1n1", destination: str = "r2n1") -> MeasuredLog:
    """Round trips of one pair are slow over some ports. So few a port that none has 300 in its own baseline."""
    log = MeasuredLog(fleet_config(), interval_ns=SECOND)
    log.ports = ports_at

    def of_port(src: str, dst: str, port: int, time_ns: int) -> Packet:
        outcome, delay = replied(src, dst, time_ns // SECOND, time_ns)
        inside = SLOW_FROM_S <= (time_ns - START_NS) / SECOND < SLOW_TO_S
        hit = inside and (src, dst) == (source, destination) and port in slow
        return outcome, (delay or 0) * (10 if hit else 1)

    log.of_port = of_port
    for _ in range(7):
        log.pass_time(100)
    return log


def test_a_slow_port_is_one_incident_of_its_pair_that_names_it(make_bench: MakeBench) -> None:
    bench = make_bench(slow_ports(50_001), fleet_config())
    bench.drain()
    (incident,) = bench.incidents("delay")
    assert (incident.element.kind, incident.element.name) == ("path", "r1n1/eth0>r2n1/eth0#stamp")
    assert (incident.values["ports_pattern"], incident.values["slow_ports"]) == ("some", "50001")
    assert "1 of 4 source ports" in incident.summary or "1 of 5 source ports" in incident.summary
    assert incident.closed_time_ns is not None
    assert DELAY_NS < int(incident.values["baseline_p99_ns"]) < 2 * DELAY_NS


def test_a_pair_that_is_slow_over_all_ports_says_so(make_bench: MakeBench) -> None:
    bench = make_bench(slow_ports(*PORTS, 50_099), fleet_config())
    bench.drain()
    (incident,) = bench.incidents("delay")
    assert incident.values["ports_pattern"] == "all"
    assert f"all {incident.values['ports_probed']} source ports" in incident.summary


def test_a_port_that_is_new_is_judged_by_what_is_usual_for_its_pair(make_bench: MakeBench) -> None:
    """It began after the last quiet minute: by itself it would never have a baseline in time."""
    bench = make_bench(slow_ports(50_099), fleet_config())
    bench.drain()
    (incident,) = bench.incidents("delay")
    assert incident.values["slow_ports"] == "50099"


def test_killed_at_any_place_the_verdicts_on_pairs_are_the_same(make_bench: MakeBench) -> None:
    """Also while the pair is accused, when what is usual is frozen and new ports take it over."""
    log = slow_ports(50_001, 50_099)
    whole = make_bench(log, fleet_config())
    whole.drain()
    assert whole.incidents("delay")
    killed = make_bench(log, fleet_config())
    for visible in range(97, len(log.entries) + 97, 97):
        log.visible = visible
        killed.drain()
        killed.restart()
    assert killed.rows() == whole.rows()


def test_a_backlog_gives_the_same_verdicts_on_pairs(make_bench: MakeBench) -> None:
    def made(*, away: bool) -> MeasuredLog:
        log = slow_ports(50_001)
        again = MeasuredLog(fleet_config(), interval_ns=SECOND)
        again.ports, again.of_port = log.ports, log.of_port
        for step in range(8):
            if away and step in (4, 6):
                (again.cut_off if step == 4 else again.reconnect)("r1n1")
            again.pass_time(100)
        return again

    live, late = (make_bench(made(away=away), fleet_config()) for away in (False, True))
    live.drain()
    late.drain()
    assert [one for one in late.verdicts() if one.rule == "delay"] == [
        one for one in live.verdicts() if one.rule == "delay"
    ]
    assert live.incidents("delay")
    assert pb.PROTOCOL_STAMP in {status.protocol for status in live.reader.paths()}
