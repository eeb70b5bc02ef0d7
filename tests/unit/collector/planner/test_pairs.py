"""Who tests whom on a day."""

from collections import Counter
from itertools import combinations

import pytest

from collector.planner.endpoints import Pair, placed_endpoints
from collector.planner.pairs import circle, every_pair, pairs_of_day, rack_pairs
from tests.fakes.fleet import fleet


def names(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(pair.source.node, pair.destination.node) for pair in pairs]


@pytest.mark.parametrize("count", range(12))
def test_in_a_tournament_each_meets_each_once_and_nobody_twice_in_a_round(count: int) -> None:
    rounds = list(circle(range(count)))
    assert len(rounds) == (0 if count < 2 else count - 1 if count % 2 == 0 else count)
    for matches in rounds:
        present = [one for match in matches for one in match]
        assert len(present) == len(set(present))
    assert sorted(tuple(sorted(match)) for matches in rounds for match in matches) == list(
        combinations(range(count), 2)
    )


@pytest.mark.parametrize("racks", [[1], [2], [8], [2, 2], [2, 1, 1], [4, 4], [1] * 8, [3, 1, 2], [1, 5]])
@pytest.mark.parametrize("uplink_tokens", [1, 2, 8])
def test_up_to_eight_endpoints_every_ordered_pair_is_tested_every_day(racks: list[int], uplink_tokens: int) -> None:
    ends = placed_endpoints(fleet(racks))
    expected = {(a.node, b.node) for a in ends for b in ends if a != b}
    for day in (739_000, 739_001):
        found = names(pairs_of_day(ends, day, uplink_tokens))
        assert len(found) == len(set(found))
        assert set(found) == expected


def test_lanes_do_not_mix_and_are_counted_each_for_itself() -> None:
    ends = placed_endpoints(fleet([4, 4], lanes=("rail0", "rail1")))
    found = pairs_of_day(ends, 739_000, 1)
    assert {pair.source.lane for pair in found} == {"rail0", "rail1"}
    assert all(pair.source.lane == pair.destination.lane for pair in found)
    assert len(found) == 2 * 8 * 7


def test_above_eight_endpoints_each_rack_pair_has_one_host_pair_a_day_in_both_directions() -> None:
    ends = placed_endpoints(fleet([3, 3, 3, 2]))
    found = pairs_of_day(ends, 739_000, 1)
    across = [pair for pair in found if pair.source.rack != pair.destination.rack]
    per_racks = Counter((pair.source.rack, pair.destination.rack) for pair in across)
    assert per_racks == {(a, b): 1 for a in ("a1", "a2", "a3", "a4") for b in ("a1", "a2", "a3", "a4") if a != b}
    assert {(b, a) for a, b in names(across)} == set(names(across))


def test_above_eight_endpoints_each_rack_has_tests_inside_of_disjoint_hosts() -> None:
    ends = placed_endpoints(fleet([4, 4, 1]))
    found = pairs_of_day(ends, 739_000, 1)
    inside = [pair for pair in found if pair.source.rack == pair.destination.rack]
    assert Counter(pair.source.node for pair in inside) == {end.node: 1 for end in ends if end.rack != "a3"}
    assert {(b, a) for a, b in names(inside)} == set(names(inside))


@pytest.mark.parametrize("racks", [[5, 5], [4, 6], [3, 7]])
def test_hosts_rotate_until_all_host_pairs_of_two_racks_have_had_their_day(racks: list[int]) -> None:
    ends = placed_endpoints(fleet(racks))
    days = racks[0] * racks[1]
    seen = {names([p for p in rack_pairs(ends, day) if p.source.rack < p.destination.rack])[0] for day in range(days)}
    assert len(seen) == days


def test_inside_a_rack_all_pairs_have_had_their_turn_after_the_rounds_of_a_tournament() -> None:
    ends = placed_endpoints(fleet([9]))
    seen = {pair for day in range(9) for pair in names(rack_pairs(ends, day))}
    assert len(seen) == 9 * 8


def test_on_one_day_the_work_does_not_fall_on_the_first_hosts() -> None:
    ends = placed_endpoints(fleet([8] * 8))
    across = [p for p in rack_pairs(ends, 739_000) if p.source.rack != p.destination.rack]
    assert max(Counter(pair.source.node for pair in across).values()) <= 4  # 7 if one host did all


def test_pairs_that_cannot_be_tested_are_left_out() -> None:
    ends = placed_endpoints(fleet([3], client_only=["a1-1", "a1-2"]))
    assert set(names(every_pair(ends, 1))) == {
        ("a1-1", "a1-3"),
        ("a1-3", "a1-1"),
        ("a1-2", "a1-3"),
        ("a1-3", "a1-2"),
    }
