from dataclasses import replace

import pytest

from agent.probe.iperf3_command import Lane, Version
from agent.probe.iperf3_several import (
    APART_NS,
    PROCESSES_APART,
    SEVERAL_PROCESSES,
    Attempt,
    client_lanes,
    combine,
    server_lanes,
)
from agent.result import Interval, Report
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Slot

SECOND = 1_000_000_000
OLD, NEW = Version("3.12", (3, 12)), Version("3.16", (3, 16))
SLOT = Slot(port=5201, ports=4)


@pytest.mark.parametrize(
    ("streams", "ports", "lanes"),
    [
        (4, 4, [(5201, 1), (5202, 1), (5203, 1), (5204, 1)]),
        (6, 4, [(5201, 2), (5202, 2), (5203, 1), (5204, 1)]),
        (4, 0, [(5201, 4)]),  # a plan that gives one port
        (1, 4, [(5201, 1)]),
    ],
)
def test_streams_are_shared_out_below_3_16(streams: int, ports: int, lanes: list[tuple[int, int]]) -> None:
    slot, profile = Slot(port=5201, ports=ports), pb.Profile(streams=streams)
    assert client_lanes(slot, profile, OLD) == server_lanes(slot, profile) == [Lane(*lane) for lane in lanes]
    assert client_lanes(slot, profile, NEW) == [Lane(5201, streams)]


def interval(octets: int, *, omitted: bool = False) -> Interval:
    return Interval(
        start_ns=0,
        duration_ns=SECOND,
        bytes=octets,
        omitted=omitted,
        retransmits=1,
        round_trip_delay_ns=2_000,
        congestion_window_bytes=10,
        receive_window_bytes=20,
        senders=1,
    )


OK = Report(
    outcome=pb.RUN_OUTCOME_OK,
    version="3.12",
    congestion_control="cubic",
    sender_bytes=110,
    sender_duration_ns=SECOND,
    receiver_bytes=100,
    receiver_duration_ns=SECOND,
    retransmits=2,
    local_cpu_ratio=0.5,
    intervals=(interval(7, omitted=True), interval(60), interval(40)),
)
REFUSED = Report(outcome=pb.RUN_OUTCOME_REFUSED, detail="refused", version="3.12")


def test_one_report_stays_as_it_is() -> None:
    assert combine([Attempt(OK, 0)]) is OK


def test_bytes_and_rates_are_sums_in_total_and_in_each_interval() -> None:
    slow = replace(OK, receiver_bytes=100, receiver_duration_ns=2 * SECOND, local_cpu_ratio=0.9)
    whole = combine([Attempt(OK, 0), Attempt(slow, APART_NS)])
    assert (whole.outcome, whole.receiver_bytes, whole.sender_bytes, whole.retransmits) == (1, 200, 220, 4)
    assert whole.receiver_duration_ns is not None
    assert 200 / whole.receiver_duration_ns == pytest.approx(100 / SECOND + 50 / SECOND)
    assert [(each.bytes, each.omitted, each.retransmits) for each in whole.intervals] == [
        (14, True, 2),
        (120, False, 2),
        (80, False, 2),
    ]
    first = whole.intervals[0]
    assert (first.congestion_window_bytes, first.receive_window_bytes, first.senders) == (20, 40, 2)
    assert whole.local_cpu_ratio == 0.9
    assert whole.flags == (SEVERAL_PROCESSES,)
    assert (whole.version, whole.congestion_control) == ("3.12", "cubic")


def test_processes_that_did_not_share_their_time_are_flagged() -> None:
    assert PROCESSES_APART in combine([Attempt(OK, 0), Attempt(OK, APART_NS + 1)]).flags


def test_a_test_of_which_one_process_failed_has_no_result() -> None:
    whole = combine([Attempt(OK, 0), Attempt(REFUSED, 0)])
    assert (whole.outcome, whole.receiver_bytes) == (pb.RUN_OUTCOME_FAILED_PARTIAL, None)
    assert whole.detail == "1 of 2 processes worked; another: refused"


def test_processes_that_all_failed_say_why() -> None:
    whole = combine([Attempt(REFUSED, 0), Attempt(REFUSED, 0)])
    assert (whole.outcome, whole.detail, whole.receiver_bytes) == (pb.RUN_OUTCOME_REFUSED, "refused", None)


def test_a_figure_that_one_process_lacks_is_absent() -> None:
    whole = combine([Attempt(OK, 0), Attempt(replace(OK, retransmits=None, receiver_duration_ns=None), 0)])
    assert (whole.retransmits, whole.receiver_duration_ns) == (None, None)
