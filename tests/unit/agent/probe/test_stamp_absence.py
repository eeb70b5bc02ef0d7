"""For which unanswered packets a refusal speaks."""

import pytest

from agent.probe.stamp_absence import MAX_KEPT, SPEAKS_FOR_NS, Absences

SECOND = 1_000_000_000


def absences(*events: tuple[str, float], replied_before: float = 0) -> Absences:
    found = Absences()
    for what, second in events:
        if what == "refused":
            found.refused(int(second * SECOND), int(replied_before * SECOND))
        else:
            found.replied(int(second * SECOND))
    return found


@pytest.mark.parametrize(
    ("second", "covered"),
    [(6.9, False), (7.1, True), (10, True), (10.5, True), (11, True), (13.9, True), (14.1, False)],
)
def test_a_refusal_speaks_for_three_seconds_before_and_after(second: float, covered: bool) -> None:
    found = absences(("refused", 10), ("refused", 11))
    assert found.cover(int(second * SECOND)) is covered
    assert SPEAKS_FOR_NS == 3 * SECOND


@pytest.mark.parametrize(("second", "covered"), [(8.9, False), (9.1, True), (11.9, True), (12.1, False)])
def test_but_not_beyond_a_reply(second: float, covered: bool) -> None:
    found = absences(("refused", 10), ("refused", 11), ("replied", 12.5), ("replied", 12), replied_before=9)
    assert found.cover(int(second * SECOND)) is covered


def test_a_reply_that_comes_after_the_refusal_may_be_to_a_packet_of_before() -> None:
    found = absences(("refused", 10), ("replied", 9.5))
    assert not found.cover(int(9.4 * SECOND))
    assert found.cover(int(9.6 * SECOND))
    assert found.cover(11 * SECOND)


def test_absences_are_apart_where_a_reply_or_a_silence_parts_them() -> None:
    found = absences(("refused", 10), ("replied", 11))
    found.refused(20 * SECOND, 19 * SECOND)
    assert [found.cover(second * SECOND) for second in (10, 12, 18, 20, 22, 24)] == [
        True,
        False,
        False,
        True,
        True,
        False,
    ]


def test_a_peer_that_comes_and_goes_costs_nothing_more() -> None:
    found = Absences()
    for second in range(1000):
        found.refused(second * 10 * SECOND, 0)
    assert len(found._found) == MAX_KEPT
