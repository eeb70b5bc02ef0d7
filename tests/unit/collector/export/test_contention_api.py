"""From runs and NIC reads to a group's figure."""

from dataclasses import replace

from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_CONTENTION
from collector.export.contention_api import figure_of, results
from collector.model import Attempt, SeriesPoint
from tests.unit.collector.analysis.test_attempts import run, slot

SECOND = 1_000_000_000
PROFILES: dict[int, bytes] = {}


def attempt(
    number: int, source: str, destination: str, *, outcome: int = pb.RUN_OUTCOME_OK, late_s: float = 0
) -> Attempt:
    one = replace(slot(number, source, destination), group_id=b"g" * 16, purpose=SLOT_PURPOSE_CONTENTION)
    PROFILES[one.profile_id] = pb.Profile(omit_ns=2 * SECOND).SerializeToString()
    start_ns = one.start_time_ns + round(late_s * SECOND)
    client = run(one, outcome=outcome, start_time_ns=start_ns)
    return Attempt(one, "ok" if outcome == pb.RUN_OUTCOME_OK else "failed", outcome, client, None)


def reads(node: str, _: str, from_ns: int, to_ns: int, __: int) -> tuple[list[SeriesPoint], bool]:
    """A read a second, 100 Mbit/s but for the first two, at times that differ by node."""
    shift = 300_000_000 if node == "r2n2" else 0
    points = [
        SeriesPoint(second * SECOND + shift, SECOND, 0, 0, 100e6 if second > 104 else 1e6, 0.0)
        for second in range(90, 130)
    ]
    return [point for point in points if from_ns <= point.time_ns < to_ns], False


def group(senders: int) -> pb.TestGroup:
    return pb.TestGroup(part=pb.GROUP_PART_CONCURRENT, senders=senders)


def test_the_octets_are_those_of_all_receivers_while_all_send() -> None:
    both = [attempt(1, "r1n1", "r2n1"), attempt(2, "r1n2", "r2n2", late_s=0.4)]
    figure = figure_of(group(2), both, PROFILES, reads)
    assert figure.link_bps == 200e6
    assert figure.goodput_bps == {"r1n1": 4e8, "r1n2": 4e8}


def test_a_run_without_result_leaves_its_host_without_a_figure() -> None:
    both = [attempt(1, "r1n1", "r2n1"), attempt(2, "r1n2", "r2n2", outcome=pb.RUN_OUTCOME_REFUSED)]
    figure = figure_of(group(2), both, PROFILES, reads)
    assert (figure.link_bps, figure.total_bps, figure.goodput_bps["r1n2"]) == (None, None, None)


def test_without_counters_there_is_no_rate_of_the_link() -> None:
    assert figure_of(group(1), [attempt(1, "r1n1", "r2n1")], PROFILES, lambda *_: ([], False)).link_bps is None


class Store:
    def __init__(self, *tests: pb.SharedTest) -> None:
        self.tests = [test.SerializeToString() for test in tests]

    def shared_tests(self, from_ns: int, to_ns: int) -> list[bytes]:
        return self.tests

    def timetable(self, from_ns: int, to_ns: int) -> list[Attempt]:
        return [attempt(1, "r1n1", "r2n1")]

    def profiles(self, profile_ids: object) -> dict[int, bytes]:
        return PROFILES


def test_a_test_that_was_called_off_says_why_and_shows_what_came_of_it() -> None:
    ordered = pb.SharedTest(
        test_id=b"t" * 16,
        site="s",
        rack="r1",
        ordered_time_ns=SECOND,
        permission=pb.TestPermission(approver="V"),
        group=[
            pb.TestGroup(group_id=b"g" * 16, part=pb.GROUP_PART_SOLO, senders=1, slots=1, start_time_ns=100 * SECOND)
        ],
    )
    word = pb.SharedTest(test_id=b"t" * 16, ended_reason="incident abc: lost")
    (view,) = results(Store(ordered, word), reads, 0, 1)
    assert (view.called_off, view.approver, view.runs, view.ok) == ("incident abc: lost", "V", 1, 1)
