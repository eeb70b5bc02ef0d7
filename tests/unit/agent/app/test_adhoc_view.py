"""Figures, text and JSON of the ad hoc probes."""

from array import array
from collections import Counter

import pytest

from agent.app import adhoc_view as view
from agent.result import Mark, OneWayDelay, OneWayLoss, RoundTripBatch
from bandwitness.v1.record_pb2 import (
    DELAY_FAULT_NO_STAMP,
    PACKET_MARK_DUPLICATE,
    PACKET_MARK_LATE,
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_SEND_FAILED,
    PACKET_OUTCOME_SKIPPED,
    PACKET_OUTCOME_UNREACHABLE,
)

R, L, U, S, F = (
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_UNREACHABLE,
    PACKET_OUTCOME_SKIPPED,
    PACKET_OUTCOME_SEND_FAILED,
)
MICROSECOND = 1_000


def batch(
    outcomes: list[int],
    delays: list[int],
    *,
    path_id: int = 61_000,
    first: int = 0,
    faults: list[tuple[int, int]] | None = None,
    marks: list[Mark] | None = None,
) -> RoundTripBatch:
    return RoundTripBatch(
        method=0,
        stamp_source=1,
        interval_ns=1,
        waiting_time_ns=1,
        path_ids=[path_id],
        first_sequences=[first],
        sample_counts=[len(outcomes)],
        send_times_ns=[0] * len(outcomes),
        outcomes=outcomes,
        round_trip_delays_ns=delays,
        delay_faults=faults or [],
        marks=marks or [],
    )


def tally(outcomes: list[int], delays: list[int] | None = None, **fields: int) -> view.Tally:
    return view.Tally(Counter(outcomes), array("q", delays or []), **fields)


def test_a_batch_packet_by_packet() -> None:
    found = list(view.packets(batch([R, L, R, R], [10, 30], first=5, faults=[(2, DELAY_FAULT_NO_STAMP)])))
    assert found == [(61_000, 5, R, 10), (61_000, 6, L, None), (61_000, 7, R, None), (61_000, 8, R, 30)]


def test_only_so_many_packets_a_path_count() -> None:
    tallies = view.Tallies(3)
    assert len(tallies.add([batch([R, L], [10], first=7), batch([R, R], [1, 2], path_id=2)])) == 4
    assert tallies.add([batch([R, R], [30, 40], first=9)]) == [(61_000, 9, R, 30)]
    assert tallies.by_path[61_000].sent == 3
    assert list(tallies.by_path[61_000].delays_ns) == [10, 30]
    assert tallies.total().sent == 5


def test_marks_and_directions() -> None:
    tallies = view.Tallies(None)
    marks = [Mark(61_000, 0, PACKET_MARK_DUPLICATE, 5), Mark(61_000, 1, PACKET_MARK_LATE, None)]
    tallies.add([batch([R, L, L, L], [10], marks=marks)])
    tallies.add_losses([OneWayLoss(61_000, 1, 2, 1, 1)])
    found = tallies.by_path[61_000]
    assert (found.duplicates, found.late, found.forward_lost, found.reverse_lost) == (1, 1, 1, 1)
    assert found.undirected_lost == 1


def test_what_left_counts_in_the_ratio_and_our_own_failures_do_not() -> None:
    found = view.as_json(tally([R, R, L, U, S, F, F], [10, 20]))
    assert found == {
        "sent": 4,
        "replied": 2,
        "lost": 2,
        "loss_ratio": 0.5,
        "outcomes": {"lost": 1, "unreachable": 1, "send_failed": 2, "skipped": 1},
        "duplicates": 0,
        "late": 0,
        "delay_min_ns": 10,
        "delay_p50_ns": 10,
        "delay_p99_ns": 20,
        "delay_max_ns": 20,
    }


def test_what_is_not_known_is_null_and_never_0() -> None:
    found = view.as_json(tally([F]))
    assert found["loss_ratio"] is None
    assert found["delay_p50_ns"] is None


@pytest.mark.parametrize(("percent", "value"), [(1, 1), (50, 5), (90, 9), (99, 10), (100, 10)])
def test_nearest_rank(percent: int, value: int) -> None:
    assert view.nearest_rank(range(1, 11), percent) == value


def test_lines_of_ping() -> None:
    assert view.ping_line("gpu-1 (10.0.0.1)", 3, R, 123_456) == "gpu-1 (10.0.0.1)  seq 3  0.123 ms"
    assert view.ping_line("10.0.0.1", 3, R, None) == "10.0.0.1  seq 3  delay unknown"
    assert view.ping_line("10.0.0.1", 4, F, None) == "10.0.0.1  seq 4  send failed"


def test_the_summary_of_ping() -> None:
    found = tally([R, R, L, S], [100 * MICROSECOND, 300 * MICROSECOND], duplicates=2)
    assert view.summary_line("a", found) == (
        "a  3 sent, 2 replied, 1 lost (33.3 %) [1 skipped, 2 duplicates]  min/p50/p99/max 0.100/0.100/0.300/0.300 ms"
    )
    assert view.summary_line("a", tally([F])) == "a  0 sent, 0 replied, 0 lost [1 send failed]"


def test_the_table_of_stamp() -> None:
    ports = {
        61_001: tally([R, L, L, L], [200 * MICROSECOND], forward_lost=1, reverse_lost=1),
        61_000: tally([R], [100 * MICROSECOND]),
        61_002: tally([L]),
    }
    total = view.Tally()
    for found in ports.values():
        total.merge(found)
    assert "\n".join(view.stamp_table(ports, total)) == (
        " port  sent  lost  there  back  either    min    p50    p99  max ms\n"
        "61000     1     0      0     0       0  0.100  0.100  0.100   0.100\n"
        "61001     4     3      1     1       1  0.200  0.200  0.200   0.200\n"
        "61002     1     1      0     0       1      -      -      -       -\n"
        "  all     6     4      1     1       2  0.100  0.100  0.200   0.200"
    )


def test_a_subset_of_ports_that_loses_is_told_from_all_that_lose() -> None:
    good, bad = tally([R]), tally([R, L])
    assert view.lossy_ports({1: good, 2: good}) == ""
    assert view.lossy_ports({1: bad}) == ""
    assert view.lossy_ports({1: good, 2: bad, 3: bad}).startswith("2 of 3 ports lost packets (2, 3):")
    assert view.lossy_ports({1: bad, 2: bad}).startswith("all 2 ports lost packets")


def test_one_way_delays() -> None:
    assert view.one_way([]) is None
    delays = [OneWayDelay(1, n, 100 + n, 200 - n, 10, n) for n in range(3)]
    assert view.one_way(delays) == {"forward_p50_ns": 101, "reverse_p50_ns": 199, "clock_error_ns": 12}
