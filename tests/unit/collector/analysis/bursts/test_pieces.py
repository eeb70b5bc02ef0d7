"""Marks that speak of bursts, racks that are full enough, and when the next burst comes: piece by piece."""

from dataclasses import replace

import pytest

from collector.analysis.bursts.clusters import Fleet, groups
from collector.analysis.bursts.forecast import forecast
from collector.analysis.bursts.joining import AFTER_NS, Said, speaks_of
from collector.analysis.bursts.watch import NOTHING, Identity, Watch
from collector.config import BurstRule
from collector.model import Burst
from tests.fakes.measured_log import SECOND, fleet_config
from tests.fakes.traffic import Line, save, steps


def burst_of(node: str) -> Burst:
    watch = Watch(Identity(node, "eth0", "rail0"), BurstRule())
    line = steps(Line([save(60, 20, 800)]), list(range(120)))
    found = [watch.add([step], speed_bps=10**9, clock_error_ns=None, ours=lambda _, __: NOTHING) for step in line]
    (last,) = [change.burst for changes in found for change in changes if change.ended and change.burst]
    return last


@pytest.mark.parametrize(("share", "made"), [(0.5, 1), (0.51, 0)])
def test_a_rack_counts_from_its_share_on_and_not_above_it_only(share: float, made: int) -> None:
    fleet = Fleet(fleet_config(1, 4))
    wave = [burst_of("r1n1"), replace(burst_of("r1n2"), burst_id="other")]
    found = groups(wave, fleet, BurstRule(nodes=share), lambda *_: "", lambda *_: frozenset())
    assert len(found) == made


@pytest.mark.parametrize(("start_s", "speaks"), [(95, True), (97, False)])
def test_a_mark_speaks_of_what_is_written_up_to_half_a_minute_behind_it(start_s: int, speaks: bool) -> None:
    """An asynchronous save copies to host memory, says that it is done, and writes then."""
    said = Said("r1n1", "checkpoint", "llm", 7, 65 * SECOND, 66 * SECOND)
    assert AFTER_NS == 30 * SECOND
    assert speaks_of(said, "save", start_s * SECOND, (start_s + 20) * SECOND, SECOND) == speaks
    assert not speaks_of(said, "restore", 65 * SECOND, 80 * SECOND, SECOND)


@pytest.mark.parametrize(
    ("intervals", "period"),
    [
        ([40, 40, 40], 40),
        ([40, 80, 40, 40], 40),  # one was missed
        ([40, 120, 120, 120], None),  # more would have been missed than were seen
        ([20, 20, 20], None),  # steps of training
        ([40, 60, 50, 90], None),
    ],
)
def test_when_the_next_one_comes(intervals: list[int], period: int | None) -> None:
    starts = [0]
    for interval in intervals:
        starts.append(starts[-1] + interval * SECOND)
    found = forecast(starts)
    assert (found and found.interval_ns) == (period and period * SECOND)
    if found is not None:
        assert found.next_start_time_ns == starts[-1] + found.interval_ns
