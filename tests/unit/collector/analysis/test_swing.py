"""Swing of one path: medians, hysteresis, and what may not count."""

from dataclasses import replace
from zoneinfo import ZoneInfo

from bandwitness.v1.plan_pb2 import WINDOW_KIND_OFFPEAK, WINDOW_KIND_OTHER, WINDOW_KIND_PEAK
from collector.analysis.swing import Result, blocks, engine_class, judge
from collector.config import OversubscriptionRule
from collector.model import Source

DAY = 86_400_000_000_000
HOUR = DAY // 24
KEY = (1, "3.16+")
RULE = OversubscriptionRule()
SOURCE = Source("n", bytes(16), 1, 1, 0, 1)


def results(window: int, values: list[float], *, start: int = 0, step: int = 60_000_000_000) -> list[Result]:
    return [
        Result(start + number * step, bps, window, "3.16+", f"{window}{start}{number}".encode(), (SOURCE,))
        for number, bps in enumerate(values)
    ]


def offpeak(*values: float, start: int = 0) -> list[Result]:
    return results(WINDOW_KIND_OFFPEAK, list(values), start=start)


def peak(*values: float, start: int = DAY // 2) -> list[Result]:
    return results(WINDOW_KIND_PEAK, list(values), start=start)


def test_a_swing_over_the_threshold_is_flagged_at_the_test_that_shows_it() -> None:
    tests = offpeak(950, 940, 945, 950) + peak(300, 310, 305, 290)
    verdict = judge(KEY, tests, RULE)
    assert verdict.swing.flagged
    assert verdict.flagged_since_ns == tests[-1].time_ns
    assert (verdict.swing.peak_bps, verdict.swing.offpeak_bps) == (302.5, 947.5)
    assert verdict.swing.swing_ratio == 1 - 302.5 / 947.5
    assert (verdict.swing.tests_peak, verdict.swing.tests_offpeak) == (4, 4)


def test_below_the_threshold_nothing_is_flagged() -> None:
    assert not judge(KEY, offpeak(100, 100, 100, 100) + peak(71, 71, 71, 71), RULE).swing.flagged


def test_a_faster_evening_is_a_negative_swing() -> None:
    assert judge(KEY, offpeak(50, 50, 50, 50) + peak(100, 100, 100, 100), RULE).swing.swing_ratio == -1.0


def test_three_tests_say_nothing() -> None:
    swing = judge(KEY, offpeak(950, 940, 945, 950) + peak(300, 310, 305), RULE).swing
    assert swing.swing_ratio is None
    assert not swing.flagged
    assert swing.tests_peak == 3


def test_tests_in_one_window_only_have_no_swing() -> None:
    swing = judge(KEY, peak(9.4e9, 9.4e9, 9.4e9, 9.4e9, 9.4e9, 9.4e9), RULE).swing
    assert swing.swing_ratio is None
    assert swing.offpeak_bps is None
    assert not swing.flagged


def test_between_clear_and_threshold_the_flag_stays_as_it_is() -> None:
    night = offpeak(100, 100, 100, 100)
    raised = night + peak(60, 60, 60, 60)
    in_between = [*raised, *peak(*[72] * 8, start=DAY)]
    assert judge(KEY, in_between, RULE).swing.swing_ratio == 1 - 72 / 100
    assert judge(KEY, in_between, RULE).flagged_since_ns == raised[-1].time_ns
    assert not judge(KEY, night + peak(*[72] * 8, start=DAY), RULE).swing.flagged
    assert not judge(KEY, [*in_between, *peak(*[90] * 30, start=2 * DAY)], RULE).swing.flagged


def test_tests_older_than_the_trailing_period_do_not_count() -> None:
    tests = offpeak(950, 950, 950, 950) + peak(300, 300, 300, 300, start=8 * DAY)
    assert judge(KEY, tests, RULE).swing.swing_ratio is None


def test_the_order_in_which_results_arrive_changes_nothing() -> None:
    tests = offpeak(950, 940, 945, 950) + peak(300, 310, 305, 290)
    assert judge(KEY, reversed(tests), RULE) == judge(KEY, tests, RULE)


def test_versions_share_a_class_up_to_the_change_to_threads() -> None:
    assert [engine_class(text) for text in ("3.9", "3.12", "3.16", "3.19.1", "4.0", "", "x.y")] == [
        "before 3.16", "before 3.16", "3.16+", "3.16+", "3.16+", "unknown", "unknown"
    ]  # fmt: skip


def test_any_block_of_four_hours_can_be_the_bad_one() -> None:
    """Tests once an hour round the clock for three days; slow from 08 to 12, whatever the windows say."""
    tests = [
        replace(result, time_ns=(24 * day + hour) * HOUR, bps=400.0 if 8 <= hour < 12 else 1000.0)
        for day in range(3)
        for hour in range(24)
        for result in results(WINDOW_KIND_OTHER, [0.0], start=(24 * day + hour) * HOUR)
    ]
    found = blocks(tests, ZoneInfo("UTC"), RULE)
    assert found is not None
    assert (found.worst_hour, found.worst_bps, found.best_bps) == (8, 400.0, 1000.0)
    assert found.swing_ratio == 0.6


def test_blocks_are_not_judged_without_tests_in_two_of_them() -> None:
    assert blocks(offpeak(900, 900, 900, 900, 100), ZoneInfo("UTC"), RULE) is None


def test_several_processes_below_3_16_are_a_class_of_their_own() -> None:
    several = ("several_processes",)
    assert engine_class("3.12", several) == "before 3.16, several processes"
    assert engine_class("3.12", ("retried",)) == engine_class("3.12") == "before 3.16"
    assert engine_class("3.17.1", several) == "3.16+"
