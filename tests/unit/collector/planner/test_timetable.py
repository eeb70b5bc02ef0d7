"""When each throughput test runs."""

from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from collector.planner import PlanError
from collector.planner.placement import PlannedTest
from collector.planner.plan import build_plans
from collector.planner.timetable import needed_ns, plan_tests
from collector.windows import OFFPEAK, OTHER, PEAK
from tests.fakes.fleet import DEMO_WINDOWS, demo_fleet, fleet
from tests.fakes.timetable import assert_no_token_is_held_beyond_its_capacity

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


NOON = at("2026-12-01T12:00")


def counts(tests: tuple[PlannedTest, ...]) -> dict[tuple[str, str], dict[tuple[int, str], int]]:
    found: dict[tuple[str, str], Counter[tuple[int, str]]] = defaultdict(Counter)
    for test in tests:
        found[test.pair.source.node, test.pair.destination.node][test.kind, test.day] += 1
    return {pair: dict(windows) for pair, windows in found.items()}


@pytest.mark.parametrize(("racks", "paths"), [((2, 2), 12), ((2, 1, 1), 12)])
def test_the_demo_and_the_lab_fit_into_a_hundred_seconds_a_window(racks: tuple[int, ...], paths: int) -> None:
    config = demo_fleet(racks)
    assert needed_ns(config) == 100 * SECOND
    tests = plan_tests(config, NOON, NOON + HOUR).tests
    expected = {(OFFPEAK, "2026-12-01"): 5, (PEAK, "2026-12-01"): 5}
    assert len(counts(tests)) == paths
    assert all(of_pair == expected for of_pair in counts(tests).values())
    assert_no_token_is_held_beyond_its_capacity(build_plans(config, NOON).slots, config)
    for test in tests:
        begin = at("2026-12-01T12:30:05") if test.kind == OFFPEAK else at("2026-12-01T12:31:45")
        assert begin <= test.start_ns - 400_000_000
        assert test.start_ns + 1_400_000_000 <= begin + 100 * SECOND


def test_in_rack_tests_run_in_parallel() -> None:
    tests = plan_tests(demo_fleet(), NOON, NOON + HOUR).tests
    cells = Counter((test.start_ns - at("2026-12-01T12:30:05")) // (2 * SECOND) for test in tests)
    assert Counter(cells.values()) == {1: 80, 2: 20}


def test_case_36_tests_that_collide_with_each_other() -> None:
    """Twenty nodes behind one uplink: no two tests cross it at once, and none begins on the hour with the others."""
    config = fleet([20, 20], windows={"peak": "19:00-23:00", "offpeak": "02:00-06:00"})
    slots = build_plans(config, NOON).slots
    assert_no_token_is_held_beyond_its_capacity(slots, config)
    across = sorted((s.start_time_ns, s.end_time_ns) for s in slots if "uplink:a/a1" in s.tokens)
    assert len(across) == 2 * 2 * 5
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(across))
    assert len({start % HOUR for start, _ in across}) == len(across)


def test_tests_are_spread_over_the_window_and_not_all_at_its_start() -> None:
    config = fleet([2, 2])
    tests = [test for test in plan_tests(config, NOON, NOON + DAY).tests if test.kind == PEAK]
    begin = at("2026-12-01T19:00")
    share, slot = 4 * HOUR // 5, 17 * SECOND
    for test in tests:
        # Each pair once in each fifth of the window: whatever changes in the course of it meets all pairs alike.
        place = test.start_ns - begin - test.ordinal * share
        assert -slot <= place < share + slot
    largest_gap = max(later.start_ns - earlier.start_ns for earlier, later in pairwise(tests))
    assert largest_gap <= 2 * 4 * HOUR / 50 + slot  # two neighbouring shares of fifty


def test_pairs_do_not_keep_their_place_from_one_time_to_the_next() -> None:
    tests = [test for test in plan_tests(demo_fleet(), NOON, NOON + HOUR).tests if test.kind == PEAK]
    orders = [[test.pair for test in tests if test.ordinal == ordinal] for ordinal in range(5)]
    assert len({tuple(order) for order in orders}) == 5


def test_peak_and_offpeak_of_a_day_have_the_same_tests_beside_each_other() -> None:
    config = fleet([4, 4, 3], rest="measure: {throughput: {uplink_tokens: 2}}")
    tests = plan_tests(config, at("2026-12-01T00:00"), at("2026-12-02T00:00")).tests
    hold = config.measure.throughput.hold_ns

    def company(kind: int) -> set[tuple[object, ...]]:
        found: set[tuple[object, ...]] = set()
        of_kind = [test for test in tests if test.kind == kind]
        for index, test in enumerate(of_kind):
            for other in of_kind[index + 1 :]:
                if other.start_ns < test.start_ns + hold:
                    ends = frozenset({(test.pair, test.ordinal), (other.pair, other.ordinal)})
                    found.add((ends, other.start_ns - test.start_ns))
        return found

    assert company(PEAK) == company(OFFPEAK) != set()


def test_the_same_is_planned_whenever_it_is_asked_and_another_seed_gives_other_times() -> None:
    config = demo_fleet()
    whole = plan_tests(config, NOON, NOON + DAY).tests
    assert plan_tests(config, NOON, NOON + DAY).tests == whole
    inside = at("2026-12-01T12:32:00")
    assert plan_tests(config, inside, NOON + DAY).tests == tuple(test for test in whole if test.start_ns >= inside)
    other = fleet(
        (2, 2),
        windows=DEMO_WINDOWS,
        rest="measure: {seed: 7, throughput: {duration: 1s, omit: 0s, margin: 400ms, slot: 2s}}",
    )
    assert [test.start_ns for test in plan_tests(other, NOON, NOON + DAY).tests] != [test.start_ns for test in whole]


def test_a_window_partly_past_has_only_the_tests_still_ahead() -> None:
    config = demo_fleet()
    inside = at("2026-12-01T12:30:55")
    tests = plan_tests(config, inside, inside + 30 * SECOND).tests
    assert tests
    assert all(inside <= test.start_ns < inside + 30 * SECOND for test in tests)
    assert max(of_pair[OFFPEAK, "2026-12-01"] for of_pair in counts(tests).values()) < 5


def test_a_fleet_that_cannot_fit_is_refused_with_the_arithmetic() -> None:
    config = fleet(
        (2, 2),
        windows={**DEMO_WINDOWS, "peak": "12:31:45-12:33:23"},
        rest="measure: {throughput: {duration: 1s, omit: 0s, margin: 400ms, slot: 2s}}",
    )
    with pytest.raises(PlanError) as caught:
        plan_tests(config, NOON, NOON + DAY)
    problem = (
        "the throughput tests of a do not fit into the peak window: 12 directed pairs in 10 rounds (one test a NIC, "
        "1 across an uplink at a time) × 5 planned × 2 s a slot = 100 s, but the window has 98 s (49 slots); make the "
        "window longer, or planned, duration, omit or margin smaller, or uplink_tokens larger (measure.throughput)"
    )
    assert caught.value.problems == (problem,)


def test_a_night_cut_short_by_the_clock_costs_both_windows_of_that_day_the_same() -> None:
    rest = (
        "measure: {throughput: {planned: 6, slot: 220s, around_the_clock: 0}}"  # 6 × 10 × 220 s: fits into 4 h, not 3
    )
    config = fleet((2, 2), zones={"a": "Europe/Amsterdam"}, rest=rest)
    table = plan_tests(config, at("2026-03-28T23:00"), at("2026-03-29T22:00"))
    assert table.notes == ("2026-03-29: 4 instead of 6 tests a pair and window: clocks change that day",)
    expected = {(OFFPEAK, "2026-03-29"): 4, (PEAK, "2026-03-29"): 4}
    assert all(of_pair == expected for of_pair in counts(table.tests).values())


def test_a_disabled_timetable_is_empty() -> None:
    config = fleet((2, 2), rest="measure: {throughput: {enabled: false}}")
    assert plan_tests(config, NOON, NOON + DAY).tests == ()


def test_a_window_that_passes_midnight_counts_under_the_day_it_starts() -> None:
    config = fleet((2, 2), windows={"peak": "22:00-02:00", "offpeak": "03:00-07:00"})
    tests = plan_tests(config, at("2026-12-01T20:00"), at("2026-12-02T20:00")).tests
    peak = [test for test in tests if test.kind == PEAK]
    assert {test.day for test in peak} == {"2026-12-01"}
    assert {datetime.fromtimestamp(test.start_ns // SECOND, UTC).day for test in peak} == {1, 2}
    assert {test.day for test in tests if test.kind == OFFPEAK} == {"2026-12-02"}


def test_several_windows_of_one_kind_share_what_is_planned_for_the_day() -> None:
    config = fleet((2, 2), windows={"peak": '09:00-10:00", "20:00-21:00', "offpeak": "02:00-04:00"})
    tests = plan_tests(config, at("2026-12-01T00:00"), at("2026-12-02T00:00")).tests
    assert set(map(tuple, (of_pair.items() for of_pair in counts(tests).values()))) == {
        (((OFFPEAK, "2026-12-01"), 5), ((PEAK, "2026-12-01"), 5))
    }
    hours = {datetime.fromtimestamp(test.start_ns // SECOND, UTC).hour for test in tests if test.kind == PEAK}
    assert hours == {9, 20}


# ---------------------------------------------------------------- several sites


def test_sites_with_the_same_windows_are_planned_as_one_fleet() -> None:
    config = fleet({"a": [2], "b": [2]})
    tests = plan_tests(config, at("2026-12-01T00:00"), at("2026-12-02T00:00")).tests
    assert all(set(of_pair.values()) == {5} and len(of_pair) == 2 for of_pair in counts(tests).values())
    assert len(counts(tests)) == 12
    assert_no_token_is_held_beyond_its_capacity(build_plans(config, NOON).slots, config)


def test_sites_with_other_windows_have_those_in_common_for_the_pairs_between_them() -> None:
    windows = {
        "a": {"peak": "19:00-22:00", "offpeak": "02:00-05:00"},
        "b": {"peak": "20:00-23:00", "offpeak": "03:00-06:00"},
    }
    config = fleet({"a": [2], "b": [2]}, windows=windows)
    midnight = at("2026-12-01T00:00")
    tests = plan_tests(config, midnight, midnight + DAY).tests
    assert all(set(of_pair.values()) == {5} and len(of_pair) == 2 for of_pair in counts(tests).values())
    spans = {
        "aa": {OFFPEAK: (2, 5), PEAK: (19, 22)},
        "ab": {OFFPEAK: (3, 5), PEAK: (19, 23)},
        "bb": {OFFPEAK: (3, 6), PEAK: (20, 23)},
    }
    for test in tests:
        sites = "".join(sorted((test.pair.source.site, test.pair.destination.site)))
        first, last = spans[sites][test.kind]
        assert midnight + first * HOUR <= test.start_ns < midnight + last * HOUR
    assert_no_token_is_held_beyond_its_capacity(build_plans(config, midnight).slots, config)
    # The same from wherever it is asked, though classes find room beside each other.
    later = midnight + 20 * HOUR + 1800 * SECOND
    assert plan_tests(config, later, midnight + DAY).tests == tuple(test for test in tests if test.start_ns >= later)


def test_sites_without_an_offpeak_in_common_are_noted() -> None:
    config = fleet({"a": [1], "b": [1]}, zones={"a": "Asia/Shanghai", "b": "Europe/Amsterdam"})
    table = plan_tests(config, NOON, NOON + DAY)
    assert table.notes == ("a and b have no off-peak window in common: no swing can be seen",)
    assert {test.kind for test in table.tests} == {PEAK}


def test_sites_that_find_no_room_beside_each_other_are_refused() -> None:
    windows = {
        "a": {"peak": "19:00:00-19:01:40", "offpeak": "02:00:00-02:01:40"},
        "b": {"peak": "19:00:10-19:01:50", "offpeak": "02:00:10-02:01:50"},
    }
    rest = "measure: {throughput: {duration: 1s, omit: 0s, margin: 400ms, slot: 2s}}"
    with pytest.raises(PlanError, match=r"find no room|do not fit"):
        plan_tests(fleet({"a": [3, 1], "b": [3, 1]}, windows=windows, rest=rest), NOON, NOON + DAY)


def test_the_rest_of_the_day_gets_a_few_tests_of_every_pair_and_no_more_than_twelve_a_day() -> None:
    config = fleet((2, 2), rest="")
    slots = build_plans(config, at("2026-12-01T00:00") - HOUR, horizon_ns=25 * HOUR).slots
    assert_no_token_is_held_beyond_its_capacity(slots, config)
    of_day = Counter((slot.path_id, slot.window) for slot in slots if slot.day == "2026-12-01")
    assert len(of_day) == 12 * 3
    assert all(count == (2 if window == OTHER else 5) for (_, window), count in of_day.items())
    hours = {slot.start_time_ns // HOUR % 24 for slot in slots if slot.window == OTHER}
    assert not hours & {2, 3, 4, 5, 19, 20, 21, 22}
    assert min(hours) < 6
    assert max(hours) > 12


def test_tests_outside_of_the_windows_that_find_no_room_are_left_out_and_noted() -> None:
    windows = {"peak": "12:00-23:30", "offpeak": "00:00-11:30"}  # an hour is left: 14 slots for 2 × 10 rounds
    config = fleet((2, 2), windows=windows, rest="measure: {throughput: {slot: 240s}}")
    table = plan_tests(config, at("2026-12-01T00:00"), at("2026-12-02T00:00"))
    assert Counter(test.kind for test in table.tests) == {PEAK: 60, OFFPEAK: 60, OTHER: 12}
    [note] = table.notes
    assert note.startswith("2026-12-01: 12 of the tests outside of the windows find no room")


def test_sites_with_other_windows_share_the_rest_of_the_day_without_collision() -> None:
    windows = {
        "a": {"peak": "19:00-23:00", "offpeak": "02:00-06:00"},
        "b": {"peak": "10:00-14:00", "offpeak": "03:00-07:00"},
    }
    config = fleet({"a": (2,), "b": (2,)}, windows=windows, rest="")
    slots = build_plans(config, NOON, horizon_ns=2 * DAY).slots
    assert_no_token_is_held_beyond_its_capacity(slots, config)
    counted = Counter((slot.path_id, slot.window) for slot in slots if slot.day == "2026-12-02")
    assert {count for (_, window), count in counted.items() if window == OTHER} == {2}
