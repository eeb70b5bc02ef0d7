"""Open marks and rates."""

from agent.sample.mark_book import (
    ALL_BURST,
    MAX_OPEN,
    MAX_USERS,
    SECOND,
    USER_BURST,
    USER_RATE_PER_S,
    OpenMarks,
    Rates,
)
from agent.sample.mark_datagram import BEGIN, END, Said

T0 = 1_000 * SECOND


def said(phase: str, *, kind: str = "checkpoint", job: str = "j", rank: int | None = 0, step: int | None = 5) -> Said:
    return Said(phase, kind, job, step, None, rank, None, ())


def test_an_end_closes_what_began_with_the_same_words() -> None:
    marks = OpenMarks()
    for rank in (0, 1):
        marks.note(7, said(BEGIN, rank=rank), T0)
    marks.note(7, said(END, rank=0), T0 + SECOND)
    assert [mark.rank for mark in marks.current(T0 + SECOND)] == [1]
    for other in (said(END, rank=1, job="k"), said(END, rank=1, kind="restore"), said(END, rank=1, step=6)):
        marks.note(7, other, T0 + SECOND)
    marks.note(8, said(END, rank=1), T0 + SECOND)  # another user's
    assert [mark.rank for mark in marks.current(T0 + SECOND)] == [1]
    assert marks.unopened == 4
    assert str(marks.current(T0)[0]) == "checkpoint of job j, step 5 (user 7)"


def test_an_end_without_a_step_closes_every_step_and_one_with_a_step_what_named_none() -> None:
    marks = OpenMarks()
    for step in (1, 2, None):
        marks.note(7, said(BEGIN, step=step), T0)
    marks.note(7, said(END, step=3), T0)
    assert [mark.step for mark in marks.current(T0)] == [1, 2]
    marks.note(7, said(END, step=None), T0)
    assert marks.current(T0) == ()


def test_a_mark_that_is_never_closed_expires_and_saying_it_again_renews_it() -> None:
    marks = OpenMarks(expiry_ns=60 * SECOND)
    marks.note(7, said(BEGIN, rank=0), T0)
    marks.note(7, said(BEGIN, rank=1), T0)
    marks.note(7, said(BEGIN, rank=0), T0 + 30 * SECOND)
    assert len(marks.current(T0 + 60 * SECOND - 1)) == 2
    assert [mark.rank for mark in marks.current(T0 + 60 * SECOND)] == [0]
    assert marks.current(T0 + 90 * SECOND) == ()
    assert marks.expired == 2


def test_open_marks_are_bounded() -> None:
    marks = OpenMarks()
    for step in range(MAX_OPEN + 3):
        marks.note(7, said(BEGIN, step=step), T0)
    assert len(marks.current(T0)) == MAX_OPEN
    assert marks.current(T0)[0].step == 3
    assert marks.pushed_out == 3


def test_a_user_may_send_a_burst_and_then_at_a_rate_and_takes_nothing_from_others() -> None:
    rates = Rates(T0)
    assert sum(rates.admit(7, T0) for _ in range(1000)) == USER_BURST
    assert rates.admit(8, T0)
    assert sum(rates.admit(7, T0 + SECOND) for _ in range(1000)) == USER_RATE_PER_S
    assert sum(rates.admit(7, T0 + 3600 * SECOND) for _ in range(1000)) == USER_BURST


def test_many_users_together_are_bounded_and_so_is_what_is_kept_of_them() -> None:
    rates = Rates(T0)
    assert sum(rates.admit(user, T0) for user in range(10_000)) == ALL_BURST
    assert len(rates._users) == MAX_USERS
