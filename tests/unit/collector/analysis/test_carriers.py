"""Carriers: reachability, loss and delay summed up, and blame that names the carrier and not each of its targets."""

from collections.abc import Callable

import msgspec

from bandwitness.v1 import record_pb2 as pb
from collector.analysis import carriers
from collector.analysis.elements import Topology
from collector.config import Config, TargetConfig
from collector.decode import Definitions
from collector.model import Element, TargetHops
from tests.fakes.analysis_bench import Bench, MakeBench
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import SECOND, MeasuredLog, Packet, fleet_config, replied, target_path

TELECOM, UNICOM, MOBILE = "中国电信", "中国联通", "中国移动"
TARGETS = {
    "ct-1": TELECOM, "ct-2": TELECOM, "ct-3": TELECOM,
    "cu-1": UNICOM, "cu-2": UNICOM, "cu-3": UNICOM,
    "cm-1": MOBILE, "alone": "",
}  # fmt: skip


def config() -> Config:
    targets = tuple(
        TargetConfig(name=name, address=f"192.0.2.{number}", carrier=carrier)
        for number, (name, carrier) in enumerate(TARGETS.items(), 1)
    )
    return msgspec.structs.replace(fleet_config(), targets=targets)


def measured(make_bench: MakeBench, lose: Callable[[str, float], bool], seconds: int = 120) -> Bench:
    """A log in which every fifth packet to some targets is lost from 30 s on."""

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        second = (time_ns - START_NS) / SECOND
        if second >= 30 and dst in TARGETS and lose(dst, second) and sequence % 5 == 0:
            return pb.PACKET_OUTCOME_LOST, None
        return replied(src, dst, sequence, time_ns)

    log = MeasuredLog(config(), fate=fate)
    log.targets = list(TARGETS)
    log.pass_time(seconds)
    bench = make_bench(log, config())
    bench.drain()
    return bench


def test_a_target_is_of_the_carrier_that_the_configuration_says() -> None:
    topology = Topology(config())
    path = Definitions().path(target_path("r1n1", "ct-2"))
    assert Element("carrier", f"s/{TELECOM}") in topology.elements(path)
    none = Definitions().path(target_path("r1n1", "alone"))
    assert "carrier" not in {element.kind for element in topology.elements(none)}


def test_a_carrier_whose_targets_all_lose_is_named_and_not_each_target(make_bench: MakeBench) -> None:
    bench = measured(make_bench, lambda target, _: TARGETS[target] == TELECOM)
    (incident,) = bench.incidents("loss")
    assert (incident.element.kind, incident.element.name) == ("carrier", f"s/{TELECOM}")
    assert incident.values["paths"] == 12
    assert TELECOM in incident.summary


def test_one_target_that_loses_is_not_its_carrier(make_bench: MakeBench) -> None:
    bench = measured(make_bench, lambda target, _: target == "ct-2")
    (incident,) = bench.incidents("loss")
    assert incident.element.kind == "target"
    assert incident.element.name.startswith("ct-2/")


def test_carriers_that_lose_at_the_same_time_are_named_once_each(make_bench: MakeBench) -> None:
    bench = measured(make_bench, lambda _, __: True)
    named = {(incident.element.kind, incident.element.name.partition("/")[2]) for incident in bench.incidents("loss")}
    assert {("carrier", TELECOM), ("carrier", UNICOM)} <= named
    assert len(bench.incidents("loss")) == 4  # the third has one target, and one is of no carrier


def test_sums_over_a_stretch_of_time_by_site_and_carrier(make_bench: MakeBench) -> None:
    bench = measured(make_bench, lambda target, _: TARGETS[target] == UNICOM)
    span = (START_NS + 40 * SECOND, START_NS + 100 * SECOND)
    rows = {
        row.carrier: row for row in carriers.of_windows(Topology(config()), bench.reader.target_windows(*span), span)
    }
    assert set(rows) == {TELECOM, UNICOM, MOBILE}
    telecom, unicom = rows[TELECOM], rows[UNICOM]
    assert (telecom.sent, telecom.lost, telecom.targets, telecom.targets_reachable) == (4 * 3 * 300, 0, 3, 3)
    assert (unicom.sent, unicom.lost, unicom.loss_ratio) == (3600, 720, 0.2)
    assert unicom.delay_samples == 3600 - 720
    assert 100_000 <= (unicom.delay_p50_ns or 0) <= 110_000
    assert [row.carrier for row in bench.runner.snapshot.carriers] == sorted([TELECOM, UNICOM, MOBILE])


def test_a_carrier_that_nothing_comes_back_from_has_no_delay(make_bench: MakeBench) -> None:
    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        return (pb.PACKET_OUTCOME_LOST, None) if dst == "cm-1" else replied(src, dst, sequence, time_ns)

    log = MeasuredLog(config(), fate=fate)
    log.targets = list(TARGETS)
    log.doubt = lambda node, _: ("late",) if node == "r1n1" else ()
    log.pass_time(100)
    bench = make_bench(log, config())
    bench.drain()
    rows = {row.carrier: row for row in bench.runner.snapshot.carriers}
    mobile = rows[MOBILE]
    assert (mobile.targets, mobile.targets_reachable, mobile.unreachable_targets) == (1, 0, ["cm-1"])
    assert (mobile.loss_ratio, mobile.delay_samples, mobile.delay_p99_ns) == (1.0, 0, None)
    telecom = rows[TELECOM]
    assert telecom.delay_samples == telecom.sent * 3 // 4  # one of four nodes doubts its delays


def test_without_targets_of_a_carrier_there_is_nothing_to_say(make_bench: MakeBench) -> None:
    plain = fleet_config()
    log = MeasuredLog(plain)
    log.pass_time(60)
    bench = make_bench(log, plain)
    bench.drain()
    assert bench.runner.snapshot.carriers == []


def test_hops_of_each_target_stand_beside_its_carrier(make_bench: MakeBench) -> None:
    log = MeasuredLog(config())
    log.targets = list(TARGETS)
    for node in log.members:
        log.hop_limits[node, "ct-1"] = 57
    log.hop_limits["r1n1", "ct-2"] = 55
    log.hop_limits["r2n1", "ct-2"] = 250
    log.pass_time(30)
    bench = make_bench(log, config())
    bench.drain()
    span = (START_NS, START_NS + 30 * SECOND)
    statuses = carriers.of_windows(Topology(config()), bench.reader.target_windows(*span), span)
    found = {row.carrier: row for row in carriers.with_hops(Topology(config()), statuses, bench.reader.target_hops())}
    assert found[TELECOM].hops == [TargetHops("ct-1", [7]), TargetHops("ct-2", [5, 9])]
    assert found[MOBILE].hops == []
    assert found[TELECOM].sent == next(row.sent for row in statuses if row.carrier == TELECOM)
