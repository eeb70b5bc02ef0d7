"""How few rounds the tests are packed into."""

from math import ceil

import pytest

from collector.planner.endpoints import capacity, placed_endpoints
from collector.planner.pairs import every_pair
from collector.planner.rounds import rounds
from tests.fakes.fleet import fleet


def rounds_of(racks: list[int], uplink_tokens: int) -> int:
    found = rounds(every_pair(placed_endpoints(fleet(racks)), uplink_tokens), uplink_tokens)
    for together in found:
        held = [token for pair in together for token in pair.tokens]
        assert all(held.count(token) <= capacity(token, uplink_tokens) for token in set(held))
    return len(found)


@pytest.mark.parametrize("hosts", [2, 4, 8, 16, 32])
def test_inside_a_rack_each_direction_takes_one_tournament(hosts: int) -> None:
    assert rounds_of([hosts], 1) == 2 * (hosts - 1)


@pytest.mark.parametrize("racks", [[4, 4], [8, 8, 8, 8], [3, 5]])
def test_without_uplink_limits_the_same_holds_across_racks(racks: list[int]) -> None:
    assert rounds_of(racks, 64) == 2 * (sum(racks) - 1)


@pytest.mark.parametrize(
    ("racks", "hosts", "uplink_tokens"),
    [(4, 4, 1), (8, 4, 1), (4, 8, 1), (6, 3, 1), (4, 4, 2), (8, 4, 2), (4, 8, 2), (4, 8, 3), (8, 8, 4), (16, 8, 4)],
)
def test_with_uplink_limits_the_uplinks_are_never_idle(racks: int, hosts: int, uplink_tokens: int) -> None:
    assert rounds_of([hosts] * racks, uplink_tokens) == 2 * ceil((racks - 1) * hosts**2 / uplink_tokens)


@pytest.mark.parametrize(("racks", "hosts", "uplink_tokens"), [(2, 4, 1), (2, 4, 2), (4, 4, 3), (8, 4, 3), (3, 4, 1)])
def test_where_no_two_hosts_of_a_rack_are_free_meanwhile_tests_inside_come_on_top(
    racks: int, hosts: int, uplink_tokens: int
) -> None:
    met_in_turn = racks - 1 if racks % 2 == 0 else racks
    across = 2 * ceil(hosts**2 / uplink_tokens) * met_in_turn
    assert rounds_of([hosts] * racks, uplink_tokens) <= across + 2 * (hosts - 1)


def test_the_fleets_of_demo_and_lab_take_ten_rounds() -> None:
    # 2 × 2: eight tests across, one at a time, and two rounds inside both racks, whose hosts are busy meanwhile.
    assert rounds_of([2, 2], 1) == 10
    # 2 + 1 + 1: ten tests across, any two of which share a rack; those inside run beside them.
    assert rounds_of([2, 1, 1], 1) == 10
