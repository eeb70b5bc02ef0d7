"""Cases of faulty measuring, from the log to the swing."""

import numpy as np
import pytest

from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import WINDOW_KIND_OFFPEAK, WINDOW_KIND_PEAK
from collector.analysis.bursts.watch import NOTHING, Identity, Watch
from collector.analysis.octets import Octets, wire_octets
from collector.config import BurstRule
from collector.model import Burst
from tests.fakes.analysis_bench import ALWAYS, MakeBench
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import SECOND, MeasuredLog, fleet_config, planned_slot
from tests.fakes.nic_records import T0, record

ENDS = (pb.RUN_ROLE_CLIENT, pb.RUN_ROLE_SERVER)


@pytest.mark.parametrize(
    ("outcome", "arrived"),
    [(pb.RUN_OUTCOME_REFUSED, None), (pb.RUN_OUTCOME_TIMEOUT, 0)],  # without a report, and with one of 0 bytes
    ids=["refused", "broke off"],
)
@pytest.mark.parametrize(
    ("good", "bad"),
    [(WINDOW_KIND_PEAK, WINDOW_KIND_OFFPEAK), (WINDOW_KIND_OFFPEAK, WINDOW_KIND_PEAK)],
    ids=["fails off-peak", "fails at peak"],
)
def test_case_44_failed_tests_are_not_zero_bit_per_second(
    make_bench: MakeBench, good: int, bad: int, outcome: int, arrived: int | None
) -> None:
    """Six tests go well in one window; in the other the server is down, six times. That is no swing of 100 %."""
    config = fleet_config()
    log = MeasuredLog(config)
    slots = [
        planned_slot(number, "r1n1", "r2n1", START_NS + (20 + 20 * number) * SECOND, (good, bad)[number >= 6])
        for number in range(12)
    ]
    log.plan(slots)
    for number, slot in enumerate(slots):
        log.pass_time((slot.start_time_ns + 14 * SECOND - log.now_ns) / SECOND)
        if number < 6:
            for role in ENDS:
                log.run(slot, role, mbps=9400)
        else:
            log.run(slot, pb.RUN_ROLE_CLIENT, outcome=outcome, receiver_bytes=arrived)
    log.pass_time(60)
    bench = make_bench(log, config)
    bench.drain()
    (swing,) = bench.reader.swings()
    tests: dict[int, int] = {WINDOW_KIND_PEAK: swing.tests_peak, WINDOW_KIND_OFFPEAK: swing.tests_offpeak}
    rates: dict[int, float | None] = {WINDOW_KIND_PEAK: swing.peak_bps, WINDOW_KIND_OFFPEAK: swing.offpeak_bps}
    assert (tests[good], rates[good]) == (6, 9.4e9)
    assert (tests[bad], rates[bad]) == (0, None)
    assert (swing.swing_ratio, swing.flagged) == (None, False)
    (status,) = [status for status in bench.reader.paths() if status.throughput is not None]
    assert status.throughput is not None
    assert status.throughput.last_bps == 9.4e9
    assert bench.incidents() == []
    counts = {row.window: (row.planned, row.ok, row.failed) for row in bench.reader.accounting(*ALWAYS)}
    assert counts == {good: (6, 6, 0), bad: (6, 0, 6)}


HOSTS, ROUNDS = 20, 4


def test_case_36_tests_that_collide_show_no_swing(make_bench: MakeBench) -> None:
    """At peak 20 nodes start on the hour over one uplink and get 0.5 Gbit/s each; at night one, alone, gets 9.4. What
    collided does not count, not even where it looked sound until the others' records came."""
    config = fleet_config(racks=2, hosts=HOSTS)
    log = MeasuredLog(config, interval_ns=2 * SECOND)
    night = [
        planned_slot(number, "r1n1", "r2n1", START_NS + (20 + 20 * number) * SECOND, WINDOW_KIND_OFFPEAK)
        for number in range(ROUNDS)
    ]
    crowds = [
        [
            planned_slot(
                100 * number + host, f"r1n{host}", f"r2n{host}", START_NS + 20 * number * SECOND, WINDOW_KIND_PEAK
            )
            for host in range(1, HOSTS + 1)
        ]
        for number in range(10, 10 + ROUNDS)
    ]
    log.plan([*night, *(slot for crowd in crowds for slot in crowd)])
    everybody = list(log.members)
    for slot in night:
        log.pass_time((slot.start_time_ns + 14 * SECOND - log.now_ns) / SECOND, without=everybody)
        for role in ENDS:
            log.run(slot, role, mbps=9400)
        log.pass_time(2, without=[node for node in everybody if node not in ("r1n1", "r2n1")])
    bench = make_bench(log, config)
    for crowd in crowds:
        log.pass_time((crowd[0].start_time_ns + 14 * SECOND - log.now_ns) / SECOND, without=everybody)
        for part in (crowd[:1], crowd[1:]):
            for slot in part:
                for role in ENDS:
                    log.run(slot, role, mbps=500)
            running = {node for slot in part for node in (slot.client.node, slot.server.node)}
            log.pass_time(2, without=[node for node in everybody if node not in running])
            bench.drain()
    (swing,) = [swing for swing in bench.reader.swings() if swing.tests_offpeak]
    assert (swing.tests_offpeak, swing.offpeak_bps) == (ROUNDS, 9.4e9)
    assert (swing.tests_peak, swing.peak_bps) == (0, None)
    found = bench.reader.swings()
    assert {(swing.tests_peak, swing.swing_ratio, swing.flagged) for swing in found} == {(0, None, False)}
    assert not any(incident.rule.startswith("oversubscription") for incident in bench.incidents())
    peak = [row for row in bench.reader.accounting(*ALWAYS) if row.window == WINDOW_KIND_PEAK]
    assert sum(row.ok for row in peak) == HOSTS * ROUNDS  # they did run


def test_case_48_a_burst_stands_out_of_its_minute() -> None:
    """(a) 5 s at 100 Gbit/s in a 60 s bucket: the peak is known beside the mean, and the burst is found by the peak."""
    per_second = [12_500_000_000 if 120 <= second < 125 else 1_000 for second in range(180)]
    values = [0, *np.cumsum(per_second).tolist()]
    sent = wire_octets([record({"rx_bytes": [0] * len(values), "tx_bytes": values}, speed_bps=10**11)])
    (burst,) = found_bursts(sent, 10**11)
    assert (burst.kind, burst.bytes, burst.peak_bps) == ("save", 5 * 12_500_000_000, 1e11)
    assert (burst.start_time_ns, burst.end_time_ns) == (T0 + 120 * SECOND, T0 + 125 * SECOND)
    minute = sum(per_second[120:180]) * 8 / 60
    assert minute == pytest.approx(8.33e9, rel=0.01)


@pytest.mark.parametrize("speed_bps", [None, 12_000_000, 10**9])
@pytest.mark.parametrize("scale", [1, 20])
def test_case_48_a_slow_counter_raises_no_burst(speed_bps: int | None, scale: int) -> None:
    """(b) a counter refreshed each 3 s and read each second shows 0 0 36 0 0 36 Mbit: 12 Mbit/s, and nothing else."""
    rises = [36_000_000 // 8 * scale if second % 3 == 2 else 0 for second in range(600)]
    values = [0, *np.cumsum(rises).tolist()]
    limit = speed_bps * scale if speed_bps is not None else None
    carried = wire_octets([record({"rx_bytes": [0] * len(values), "tx_bytes": values}, speed_bps=limit)])
    assert found_bursts(carried, limit) == []
    settled = [step for step in carried if step.end_time_ns > T0 + 60 * SECOND]
    first, last = settled[0], settled[-1]
    rate = sum(step.transmit_bytes or 0 for step in settled) * 8 * SECOND / (last.end_time_ns - first.start_time_ns)
    assert rate == pytest.approx(12e6 * scale, rel=0.02)
    rates = [(step.transmit_bytes or 0) * 8 * SECOND / step.span_ns for step in settled]
    assert float(np.median(rates)) == pytest.approx(12e6 * scale, rel=0.01)


def found_bursts(steps: list[Octets], speed_bps: int | None) -> list[Burst]:
    watch = Watch(Identity("n1", "eth0", "storage"), BurstRule())
    changes = watch.add(steps, speed_bps=speed_bps, clock_error_ns=None, ours=lambda _, __: NOTHING)
    return [change.burst for change in changes if change.burst is not None]
