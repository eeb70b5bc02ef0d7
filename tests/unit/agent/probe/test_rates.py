"""The plan's limit on packets a second."""

from agent.probe.path_slots import MAX_RATE
from agent.probe.rates import limits, rate_of, stamp_rate_of
from bandwitness.v1.plan_pb2 import Plan, StampTarget
from tests.fakes.network import SECOND, round_trip_target


def test_each_kind_gets_what_the_others_targets_leave() -> None:
    echo = [round_trip_target("192.0.2.1"), round_trip_target("192.0.2.2", interval_ns=SECOND // 4)]
    stamp = [StampTarget(source_port=[61_000, 61_001], rotating_ports=1, interval_ns=SECOND // 2)]
    assert (rate_of(echo), stamp_rate_of(stamp)) == (5, 6)
    assert limits(Plan(round_trip=echo, stamp=stamp, max_probes_per_second=11)) == (5, 6)
    assert limits(Plan(round_trip=echo, stamp=stamp, max_probes_per_second=8)) == (2, 3)
    assert limits(Plan(round_trip=echo, stamp=stamp, max_probes_per_second=1)) == (0, 0)


def test_without_one_only_the_guard_in_code_stands() -> None:
    assert limits(Plan(round_trip=[round_trip_target("192.0.2.1")])) == (MAX_RATE, MAX_RATE)
    assert limits(Plan(max_probes_per_second=4_000_000_000)) == (MAX_RATE, MAX_RATE)


def test_targets_without_an_interval_are_refused_elsewhere_and_cost_nothing_here() -> None:
    assert rate_of([round_trip_target("192.0.2.1", interval_ns=0)]) == 0
    assert stamp_rate_of([StampTarget(source_port=[61_000])]) == 0
