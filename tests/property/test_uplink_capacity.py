"""A rack of hosts behind an uplink of known capacity: knee, delivered fraction and control come out of it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwitness.v1 import record_pb2 as pb
from collector.analysis.uplink_capacity import GroupFigure, capacity_of, interval
from collector.planner.contention import ramp

OVERHEAD = 1.05


def fair(uplink: float, nic: float, hosts: int) -> list[float]:
    """Hosts that share an uplink alike."""
    return [min(nic, uplink / hosts)] * hosts


def measured(
    uplink: float,
    nic: float,
    hosts: int,
    *,
    repeats: int = 3,
    leaf: float = 1e15,
    noise: Sequence[float] = (1.0, 1.0, 1.0),
) -> list[GroupFigure]:
    """All groups of a test."""

    def group(part: int, repeat: int, rates: Sequence[float], first: int = 0) -> GroupFigure:
        own = {f"h{first + place}": rate * noise[repeat % len(noise)] for place, rate in enumerate(rates)}
        return GroupFigure(part, len(rates), repeat, own, sum(rates) * OVERHEAD)

    found = []
    for repeat in range(repeats):
        found += [group(pb.GROUP_PART_SOLO, repeat, [min(nic, uplink, leaf)], host) for host in range(hosts)]
        for k in ramp(hosts):
            found.append(group(pb.GROUP_PART_CONCURRENT, repeat, fair(min(uplink, leaf), nic, k)))
        found.append(group(pb.GROUP_PART_CONTROL, repeat, fair(leaf, nic, hosts)))
        found.append(group(pb.GROUP_PART_ONE_FLOW, repeat, [rate * 0.7 for rate in fair(uplink, nic, hosts)]))
    return found


hosts_of = st.integers(2, 16)
rates = st.floats(1e8, 1e11)


@given(hosts_of, rates, st.floats(1.3, 8))
def test_an_uplink_that_carries_less_than_its_hosts_is_found_with_its_rate(
    hosts: int, nic: float, times: float
) -> None:
    uplink = nic * hosts / min(times, hosts)
    found = capacity_of(measured(uplink, nic, hosts))
    assert found.uplink_goodput_bps == pytest.approx(uplink, rel=0.05)
    assert found.uplink_link_bps == pytest.approx(uplink * OVERHEAD, rel=0.05)
    assert found.delivered_ratio == pytest.approx(uplink / (hosts * nic))
    assert (found.control, found.verdict, found.at_least) == ("clean", "uplink_limited", False)
    assert found.collision_loss_ratio == pytest.approx(0.3)


@given(hosts_of, rates)
def test_an_uplink_that_carries_all_is_never_called_short(hosts: int, nic: float) -> None:
    found = capacity_of(measured(nic * hosts * 2, nic, hosts))
    assert found.at_least
    assert found.verdict == "not_limited"
    assert found.delivered_ratio == pytest.approx(1)


def test_a_leaf_that_cannot_carry_its_hosts_is_not_laid_to_the_uplink() -> None:
    found = capacity_of(measured(8e9, 1e9, 8, leaf=2e9))
    assert (found.control, found.verdict) == ("hosts_or_leaf", "hosts_or_leaf")


def test_a_group_in_which_one_host_had_no_result_is_left_out_and_counted() -> None:
    groups = measured(2e9, 1e9, 4)
    broken = [
        GroupFigure(each.part, each.senders, each.repeat, {**each.goodput_bps, "h0": None}, each.link_bps)
        if (each.part, each.senders, each.repeat) == (pb.GROUP_PART_CONCURRENT, 4, 0)
        else each
        for each in groups
    ]
    found = capacity_of(broken)
    assert (found.incomplete_groups, found.repeats) == (1, 2)
    assert found.delivered_ratio == pytest.approx(0.5)


def test_nothing_is_said_of_nothing_and_no_interval_of_one_repeat() -> None:
    assert capacity_of([]).verdict == "unknown"
    once = capacity_of(measured(2e9, 1e9, 4, repeats=1))
    assert (once.delivered_low, once.verdict) == (None, "too_few_repeats")


@given(st.lists(st.floats(0.01, 2), min_size=2, max_size=40))
def test_the_interval_holds_the_mean(values: list[float]) -> None:
    low, high = interval(values)
    assert low is not None
    assert high is not None
    mean = sum(values) / len(values)
    assert low <= mean + 1e-9
    assert high >= mean - 1e-9


def test_the_interval_is_student_s() -> None:
    """Three values: t(2) = 4.303."""
    low, high = interval([0.30, 0.33, 0.36])
    assert low == pytest.approx(0.33 - 4.303 * 0.03 / 3**0.5)
    assert high == pytest.approx(0.33 + 4.303 * 0.03 / 3**0.5)
