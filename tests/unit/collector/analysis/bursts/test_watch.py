"""One NIC's traffic into bursts."""

from collections.abc import Sequence

import pytest

from collector.analysis.bursts.watch import NOTHING, Identity, Ours, Watch
from collector.analysis.octets import Octets
from collector.config import BurstRule
from collector.model import Burst
from tests.fakes.traffic import SECOND, Line, Stretch, save, steps

RULE = BurstRule()
GBIT = 10**9


def watch_of(speed_bps: int | None = None) -> Watch:
    return Watch(Identity("n1", "eth0", "storage", speed_bps), RULE)


def bursts(
    parts: Sequence[Sequence[Octets]],
    *,
    speed_bps: int | None = GBIT,
    ours: Ours = NOTHING,
    restart: bool = False,
) -> list[Burst]:
    """Bursts that stayed, by start; each part is a record."""
    watch = watch_of()
    found: dict[str, Burst] = {}
    for part in parts:
        changes = watch.add(part, speed_bps=speed_bps, clock_error_ns=1_000_000, ours=lambda _, __: ours)
        for change in changes:
            if change.burst is None:
                found.pop(change.burst_id, None)
            else:
                found[change.burst_id] = change.burst
        if restart:
            watch = Watch.decode(watch.identity, RULE, watch.encode())
    return sorted(found.values(), key=lambda burst: (burst.start_time_ns, burst.burst_id))


def seconds(line: Line, until: int, every: float = 1.0) -> list[Octets]:
    return steps(line, [tick * every for tick in range(int(until / every) + 1)])


def test_a_save_is_found_with_its_start_end_bytes_and_rates() -> None:
    (burst,) = bursts([seconds(Line([save(100, 20, 800)]), 200)])
    assert (burst.kind, burst.start_time_ns, burst.end_time_ns) == ("save", 100 * SECOND, 120 * SECOND)
    assert burst.bytes == 20 * 801 * 125_000
    assert burst.peak_bps == pytest.approx(801e6)
    assert burst.mean_bps == pytest.approx(801e6)
    assert burst.confirmed
    assert burst.error_ns == SECOND + 1_000_000
    assert burst.opened_time_ns == 102 * SECOND


def test_a_restore_is_the_same_the_other_way() -> None:
    (burst,) = bursts([seconds(Line([Stretch(100, 120, 800, 8)]), 200)])
    assert (burst.kind, burst.bytes) == ("restore", 20 * 801 * 125_000)


def test_what_goes_both_ways_alike_is_an_exchange_and_no_save() -> None:
    line = Line([Stretch(100 + step * 10, 104 + step * 10, 700, 720) for step in range(30)])
    assert {burst.kind for burst in bursts([seconds(line, 420)])} == {"exchange"}


def test_allreduce_becomes_usual_and_a_save_on_top_of_it_is_found() -> None:
    """A rail that carries training, one second in two, and then a checkpoint as well."""
    steps_of_training = [Stretch(2 * n, 2 * n + 1, 300, 300) for n in range(1000)]
    found = bursts([seconds(Line([*steps_of_training, save(1500, 20, 600)]), 2000)])
    late = [burst for burst in found if burst.start_time_ns > 1200 * SECOND]
    assert [(burst.kind, burst.start_time_ns) for burst in late] == [("save", 1500 * SECOND)]


def test_one_way_traffic_with_every_step_is_no_checkpoint() -> None:
    """Pipeline stages send one way only; what comes back every ten seconds is training."""
    line = Line([save(100 + 12 * n, 4, 800) for n in range(40)])
    found = bursts([seconds(line, 700)])
    assert [burst.kind for burst in found] == ["save"] * 3 + ["exchange"] * 37


def test_a_burst_that_turns_out_to_go_both_ways_is_withdrawn() -> None:
    line = Line([save(100, 3, 800), Stretch(103, 140, 400, 800)])
    assert "save" not in {burst.kind for burst in bursts([seconds(line, 300)])}


@pytest.mark.parametrize("gap", [1, 2, 3, 4])
def test_gaps_shorter_than_five_seconds_are_joined(gap: int) -> None:
    (burst,) = bursts([seconds(Line([save(100, 5, 800), save(105 + gap, 5, 800)]), 200)])
    assert (burst.start_time_ns, burst.end_time_ns) == (100 * SECOND, (110 + gap) * SECOND)
    assert burst.bytes == (10 * 801 + gap) * 125_000


def test_longer_gaps_are_not() -> None:
    found = bursts([seconds(Line([save(100, 5, 800), save(110, 5, 800)]), 200)])
    assert [burst.start_time_ns for burst in found] == [100 * SECOND, 110 * SECOND]


def test_small_and_short_ones_do_not_stay() -> None:
    assert bursts([seconds(Line([save(100, 2, 800)]), 200)]) == []
    (large,) = bursts([seconds(Line([save(100, 2, 80_000)]), 200)], speed_bps=100 * GBIT)
    assert large.bytes > 10**9


def test_one_sample_alone_opens_nothing() -> None:
    assert bursts([seconds(Line([save(100, 1, 90_000)]), 200)], speed_bps=100 * GBIT) == []


def test_under_a_fifth_of_the_line_is_nothing() -> None:
    assert bursts([seconds(Line([save(100, 60, 150)]), 200)]) == []


def test_without_a_speed_a_floor_counts() -> None:
    (burst,) = bursts([seconds(Line([save(100, 60, 67)]), 200)], speed_bps=None)
    assert burst.start_time_ns == 100 * SECOND
    assert bursts([seconds(Line([save(100, 60, 40)]), 200)], speed_bps=None) == []


def test_what_is_usual_is_no_burst() -> None:
    """A NIC that has sent at a third of its speed for long is not in a burst when it sends a little more."""
    base = save(0, 4000, 330)
    assert bursts([seconds(Line([base, save(700, 60, 60)]), 900)]) == []
    (burst,) = bursts([seconds(Line([base, save(700, 60, 500)]), 900)])
    assert (burst.start_time_ns, burst.end_time_ns) == (700 * SECOND, 760 * SECOND)
    assert burst.usual_bps == pytest.approx(327.7e6, rel=0.01)  # transmitted beyond received


def test_what_a_nic_carries_when_first_seen_is_no_burst() -> None:
    """A storage server that sends all day is not in a burst because the collector is new."""
    assert bursts([seconds(Line([save(0, 4000, 800)]), 300)]) == []


def test_an_hour_of_it_is_usual_and_ends() -> None:
    found = bursts([seconds(Line([save(100, 9000, 800)]), 9000)])
    assert len(found) == 1
    assert found[0].end_time_ns == 3700 * SECOND


def test_for_ten_minutes_behind_that_hour_nothing_opens() -> None:
    """What it carries by then may come and go."""
    line = Line([save(100, 3600, 800), save(3700, 60, 200), save(3760, 240, 800), save(4600, 20, 800)])
    found = bursts([seconds(line, 4700)])
    assert [burst.start_time_ns for burst in found] == [100 * SECOND, 4600 * SECOND]


def test_what_lasts_is_open_and_can_be_asked_for() -> None:
    (burst,) = bursts([seconds(Line([save(100, 20, 800)]), 102)])
    assert (burst.end_time_ns, burst.last_time_ns, burst.confirmed) == (None, 102 * SECOND, False)


def test_our_own_tests_are_none() -> None:
    line = Line([save(100, 12, 900)])
    assert bursts([seconds(line, 200)], ours=Ours([(100 * SECOND, 114 * SECOND)], None)) == []


def test_a_test_that_stopped_for_a_burst_does_not_hide_it() -> None:
    """What is planned is waited for; once it is known that the test ended after 2 s, the rest is a burst."""
    watch = watch_of()
    line = Line([save(100, 30, 800)])
    planned = Ours([(100 * SECOND, 116 * SECOND)], 100 * SECOND)
    changes = watch.add(seconds(line, 110), speed_bps=GBIT, clock_error_ns=None, ours=lambda _, __: planned)
    assert changes == []
    stopped = Ours([(100 * SECOND, 102 * SECOND + SECOND // 10)], None)
    later = [step for step in seconds(line, 160) if step.end_time_ns > 110 * SECOND]
    changes = watch.add(later, speed_bps=GBIT, clock_error_ns=None, ours=lambda _, __: stopped)
    (burst,) = [change.burst for change in changes if change.burst is not None]
    assert (burst.start_time_ns, burst.end_time_ns) == (103 * SECOND, 130 * SECOND)


def test_what_is_planned_is_waited_for_no_longer_than_twenty_minutes() -> None:
    """The record of a test may never come."""
    watch = watch_of()
    unknown = Ours((), 100 * SECOND)
    line = seconds(Line([save(100, 30, 800)]), 1400)
    for place in range(0, len(line), 100):
        part = line[place : place + 100]
        found = watch.add(part, speed_bps=GBIT, clock_error_ns=None, ours=lambda _, __: unknown)
        if found:
            break
    assert watch.waited_out == 1201
    (burst,) = [change.burst for change in found if change.burst is not None]
    assert (burst.start_time_ns, burst.end_time_ns) == (100 * SECOND, 130 * SECOND)


def test_a_second_that_is_read_ten_times_weighs_no_more_for_what_is_usual() -> None:
    """Two hundred seconds of little, and thirty of much with ten reads each: little is usual."""
    line = Line([save(200, 30, 150), save(240, 10, 184)], base_mbps=10)
    times = [float(tick) for tick in range(200)] + [200 + tick / 10 for tick in range(300)]
    times += [float(tick) for tick in range(230, 300)]
    (burst,) = bursts([steps(line, times)], speed_bps=100_000_000 * 9)
    assert burst.start_time_ns == 240 * SECOND


@pytest.mark.parametrize("size", [1, 2, 7, 60])
@pytest.mark.parametrize("restart", [False, True])
def test_portions_and_restarts_change_nothing(size: int, *, restart: bool) -> None:
    line = Line([save(100, 5, 800), save(108, 5, 800), Stretch(300, 330, 600, 600), Stretch(400, 420, 800, 10)])
    whole = seconds(line, 600)
    parts = [whole[place : place + size] for place in range(0, len(whole), size)]
    assert bursts(parts, restart=restart) == bursts([whole])
    assert len(bursts([whole])) == 3


def test_ten_reads_a_second_give_the_same_burst() -> None:
    (coarse,) = bursts([seconds(Line([save(100.3, 20, 800)]), 200)])
    (fine,) = bursts([seconds(Line([save(100.3, 20, 800)]), 200, every=0.1)])
    assert abs(fine.start_time_ns - 100_300_000_000) <= SECOND // 10
    assert abs(coarse.start_time_ns - 100_300_000_000) <= SECOND
    assert fine.peak_bps == pytest.approx(801e6, rel=0.01)


def test_missed_reads_make_longer_samples_and_no_holes() -> None:
    line = Line([save(100, 20, 800)])
    (burst,) = bursts([steps(line, [tick for tick in range(201) if tick not in (101, 105, 106, 113)])])
    assert (burst.start_time_ns, burst.end_time_ns) == (100 * SECOND, 120 * SECOND)
    assert burst.bytes == 20 * 801 * 125_000


def test_a_hole_of_more_than_five_seconds_ends_it() -> None:
    line = Line([save(100, 60, 800)])
    times = [tick for tick in range(201) if not 110 < tick < 125]
    assert [burst.end_time_ns for burst in bursts([steps(line, times)])] == [110 * SECOND, 160 * SECOND]


def test_what_comes_right_behind_a_hole_counts_from_its_first_read_on() -> None:
    """Of the reads of ten seconds nothing is known, as after a reset."""
    line = Line([save(100, 10, 800), save(120, 4, 800)])
    found = bursts([[step for step in seconds(line, 200) if not 110 * SECOND < step.end_time_ns <= 120 * SECOND]])
    assert [(burst.start_time_ns, burst.end_time_ns) for burst in found] == [
        (100 * SECOND, 110 * SECOND), (120 * SECOND, 124 * SECOND)
    ]  # fmt: skip
