"""What a test between two endpoints holds."""

import pytest

from collector.planner.endpoints import capacity, lanes, pair, placed_endpoints, racks, tokens
from tests.fakes.fleet import fleet

ENDS = {end.node: end for end in placed_endpoints(fleet({"a": [2, 1], "b": [1]}, client_only=["a1-2", "b1-1"]))}


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("a1-1", "a1-2", ("nic:a1-1/eth0", "nic:a1-2/eth0")),
        ("a1-1", "a2-1", ("nic:a1-1/eth0", "nic:a2-1/eth0", "uplink:a/a1", "uplink:a/a2")),
        ("a2-1", "b1-1", ("nic:a2-1/eth0", "nic:b1-1/eth0", "uplink:a/a2", "uplink:b/b1", "site_link:a|b")),
    ],
)
def test_tokens_are_the_same_in_both_directions(a: str, b: str, expected: tuple[str, ...]) -> None:
    assert tokens(ENDS[a], ENDS[b]) == tokens(ENDS[b], ENDS[a]) == expected


def test_only_uplinks_may_carry_more_than_one_test() -> None:
    assert [capacity(token, 4) for token in ("nic:a1-1/eth0", "uplink:a/a1", "site_link:a|b")] == [1, 4, 1]


def test_what_nobody_can_connect_to_is_always_the_client() -> None:
    outward, inward = pair(ENDS["a1-2"], ENDS["a1-1"]), pair(ENDS["a1-1"], ENDS["a1-2"])
    assert outward is not None
    assert inward is not None
    assert (outward.client.node, outward.server.node, outward.reverse) == ("a1-2", "a1-1", False)
    assert (inward.client.node, inward.server.node, inward.reverse) == ("a1-2", "a1-1", True)
    assert (inward.source.node, inward.destination.node) == ("a1-1", "a1-2")  # the data's direction stays


def test_no_pair_where_neither_end_can_be_connected_to_or_both_are_one_host() -> None:
    assert pair(ENDS["a1-2"], ENDS["b1-1"]) is None
    assert pair(ENDS["a1-1"], ENDS["a1-1"]) is None


def test_endpoints_stand_in_order_of_place_and_fall_into_lanes_and_racks() -> None:
    ends = placed_endpoints(fleet([2, 1], lanes=("storage", "rail0")))
    assert list(ends) == sorted(ends)
    assert {lane: len(found) for lane, found in lanes(ends).items()} == {("rail0", 6, ""): 3, ("storage", 6, ""): 3}
    assert {rack: len(found) for rack, found in racks(ends).items()} == {("a", "a1"): 4, ("a", "a2"): 2}
