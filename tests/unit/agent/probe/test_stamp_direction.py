"""Which way packets were lost, from the reflector's count alone."""

from collections.abc import Iterable

import pytest

from agent.probe.stamp_direction import MAX_SEEN, Gap, LossDirections

LOST = None


def run(directions: LossDirections, replies: Iterable[tuple[int, int] | None], *, fresh: bool = False) -> list[Gap]:
    """``replies``: for each packet in order, the reflector's number and when it received it; None: lost."""
    packets = list(replies)
    positions = [
        None if reply is None else directions.arrived(sent, *reply, fresh=fresh) for sent, reply in enumerate(packets)
    ]
    gaps = (directions.settle(100 + sent, position) for sent, position in enumerate(positions))
    return [gap for gap in gaps if gap is not None]


def at(number: int) -> tuple[int, int]:
    return number, 1000 + number


@pytest.mark.parametrize(
    ("replies", "gaps"),
    [
        ([at(0), LOST, LOST, at(1)], [Gap(101, 102, 2, 0)]),
        ([at(0), LOST, LOST, at(3)], [Gap(101, 102, 0, 2)]),
        ([at(0), LOST, LOST, LOST, at(2)], [Gap(101, 103, 2, 1)]),
        ([at(0), LOST, at(1), LOST, at(3)], [Gap(101, 101, 1, 0), Gap(103, 103, 0, 1)]),
        ([at(7), LOST, at(8)], [Gap(101, 101, 1, 0)]),  # it had counted before
        ([at(0), at(1), LOST], []),  # nothing has come back since
        ([at(0), at(1), at(2)], []),
    ],
)
def test_forward_and_reverse(replies: list[tuple[int, int] | None], gaps: list[Gap]) -> None:
    assert run(LossDirections(stateful=True), replies) == gaps


def test_the_first_packets_count_in_a_session_that_began_with_us() -> None:
    assert run(LossDirections(stateful=True), [LOST, LOST, at(1)], fresh=True) == [Gap(100, 101, 1, 1)]
    assert run(LossDirections(stateful=True), [LOST, LOST, at(1)]) == [Gap(100, 101, 0, 0, 2)]


def test_a_stateless_reflector_says_nothing() -> None:
    assert run(LossDirections(stateful=False), [at(0), LOST, at(2), LOST, at(4)]) == [
        Gap(101, 101, 0, 0, 1),
        Gap(103, 103, 0, 0, 1),
    ]


def test_a_number_that_is_not_ours_shows_a_reflector_that_counts() -> None:
    """The sender begins at 1 with a reflector that it does not know."""
    directions = LossDirections(stateful=False)
    positions = [directions.arrived(sent, number, number, fresh=False) for sent, number in ((1, 0), (3, 1))]
    assert directions.settle(1, positions[0]) is None
    assert directions.settle(2, None) is None
    assert directions.settle(3, positions[1]) == Gap(2, 2, 1, 0)


def test_a_reflector_that_began_anew() -> None:
    """Its count falls although it received the packet later: what was lost across that has no direction."""
    replies = [(5, 10), LOST, (0, 20), LOST, (1, 30), LOST, (3, 40)]
    assert run(LossDirections(stateful=True), replies) == [
        Gap(101, 101, 0, 0, 1),
        Gap(103, 103, 1, 0),
        Gap(105, 105, 0, 1),
    ]


def test_overtaking_is_no_loss_and_no_new_count() -> None:
    replies = [at(0), at(2), at(1), LOST, at(3), LOST, at(5)]
    assert run(LossDirections(stateful=True), replies) == [Gap(103, 103, 1, 0), Gap(105, 105, 0, 1)]


def test_a_packet_that_overtook_one_behind_a_loss_is_no_loss_of_the_way_back() -> None:
    """The one behind it in our order used up the number that seems to be missing."""
    assert run(LossDirections(stateful=True), [at(0), LOST, at(2), at(1), at(3)]) == [Gap(101, 101, 1, 0)]


def test_a_reply_that_comes_twice_is_no_new_count() -> None:
    directions = LossDirections(stateful=True)
    first = directions.arrived(0, 0, 1000, fresh=True)
    assert directions.arrived(0, 0, 1000, fresh=True) == first
    assert directions.settle(0, first) is None
    assert directions.settle(1, None) is None
    assert directions.settle(2, directions.arrived(2, 2, 1002, fresh=True)) == Gap(1, 1, 0, 1)


def test_packets_doubled_on_their_way_there_use_up_numbers() -> None:
    """More numbers are missing than packets: no more are lost on the way back than were lost."""
    assert run(LossDirections(stateful=True), [at(0), LOST, at(4)]) == [Gap(101, 101, 0, 1)]


def test_the_count_wraps() -> None:
    top = (1 << 32) - 1
    replies = [(top, 10), LOST, (0, 20), LOST, (2, 30)]
    assert run(LossDirections(stateful=True), replies) == [Gap(101, 101, 1, 0), Gap(103, 103, 0, 1)]


def test_memory_is_bounded_whatever_numbers_come() -> None:
    directions = LossDirections(stateful=True)
    for number in range(3 * MAX_SEEN):
        directions.arrived(0, number, number, fresh=True)
    assert len(directions._seen) == MAX_SEEN
