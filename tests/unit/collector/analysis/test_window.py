"""One window of 10 s: what is counted how."""

from collections.abc import Sequence

import numpy as np

from bandwitness.v1 import record_pb2 as pb
from collector.analysis.window import SECOND, Window
from collector.model import RoundTripWindow

T0 = 1_767_225_600 * SECOND
OUTCOMES = [
    pb.PACKET_OUTCOME_REPLIED,
    pb.PACKET_OUTCOME_REPLIED,
    pb.PACKET_OUTCOME_LOST,
    pb.PACKET_OUTCOME_UNREACHABLE,
    pb.PACKET_OUTCOME_CORRUPT,
    pb.PACKET_OUTCOME_UNRESOLVED,
    pb.PACKET_OUTCOME_SEND_FAILED,
    pb.PACKET_OUTCOME_SKIPPED,
]


def filled(delays: list[int], outcomes: Sequence[int] | None = None) -> Window:
    window = Window(T0)
    outcomes = outcomes or [pb.PACKET_OUTCOME_REPLIED] * len(delays)
    times = T0 + np.arange(len(delays)) * SECOND
    window.add("n1", np.zeros(len(delays), np.intp), times, np.array(outcomes, np.uint8), np.array(delays, np.int64))
    return window


def only(window: Window) -> RoundTripWindow:
    (row,) = window.rows(np.array([0]), [7])
    return row


def test_our_own_failures_are_outside_the_loss_ratio() -> None:
    window = filled([100, 200, -1, -1, -1, -1, -1, -1], OUTCOMES)
    window.close("n1", [0])
    row = only(window)
    assert (row.sent, row.replied, row.lost, row.unreachable, row.corrupt) == (5, 2, 1, 1, 1)
    assert (row.unresolved, row.send_failed, row.skipped) == (1, 1, 1)
    assert window.sent[0].tolist() == [2, 2, 1, 0, 0]
    assert window.lost[0].tolist() == [0, 2, 1, 0, 0]


def test_quantiles_are_exact_within_the_window() -> None:
    window = filled([5, 3, 9, 1, 7])
    window.close("n1", [0])
    row = only(window)
    assert (row.delay_min_ns, row.delay_p50_ns, row.delay_p99_ns, row.delay_max_ns, row.delay_samples) == (
        1,
        5,
        9,
        9,
        5,
    )


def test_case_15_total_loss_has_no_delay() -> None:
    window = filled([-1, -1, -1], [pb.PACKET_OUTCOME_LOST] * 3)
    window.close("n1", [0])
    row = only(window)
    assert (row.sent, row.lost) == (3, 3)
    assert (row.delay_min_ns, row.delay_p50_ns, row.delay_p99_ns, row.delay_max_ns) == (None, None, None, None)


def test_case_19_a_reply_without_a_usable_delay_counts_as_received() -> None:
    window = filled([400_000, -1, 400_000])
    window.close("n1", [0])
    row = only(window)
    assert (row.sent, row.replied, row.lost, row.delay_samples) == (3, 3, 0, 2)
    assert row.delay_min_ns == row.delay_max_ns == 400_000


def test_marks_change_nothing_but_their_own_counts() -> None:
    window = filled([100, -1], [pb.PACKET_OUTCOME_REPLIED, pb.PACKET_OUTCOME_LOST])
    window.mark(0, pb.PACKET_MARK_LATE, closed=False)
    window.mark(0, pb.PACKET_MARK_DUPLICATE, closed=False)
    window.mark(0, pb.PACKET_MARK_DUPLICATE, closed=False)
    window.close("n1", [0])
    row = only(window)
    assert (row.sent, row.lost, row.duplicates, row.late) == (2, 1, 2, 1)


def test_a_closed_row_takes_late_samples_and_goes_through_the_store_unchanged() -> None:
    window = filled([100_000, 200_000])
    window.close("n1", [0])
    window.changed[:] = False
    window.add(
        "n1",
        np.array([0], np.intp),
        np.array([T0 + 9 * SECOND]),
        np.array([pb.PACKET_OUTCOME_LOST], np.uint8),
        np.array([-1]),
        closed=True,
    )
    assert window.changed[0]
    row = only(window)
    assert (row.sent, row.lost, row.delay_samples) == (3, 1, 2)
    again = Window(T0)
    (stored,) = window.stored(np.array([0]), [7])
    again.restore(3, stored)
    assert again.stored(np.array([3]), [0, 0, 0, 7]) == [stored]
    assert stored.row == row
    assert again.lost[3].tolist() == [0, 0, 0, 0, 1]
