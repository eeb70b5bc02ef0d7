"""Every planned test ends in exactly one way, and the sums hold."""

from dataclasses import replace

import pytest

from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_CONTENTION, WINDOW_KIND_PEAK
from collector.analysis.accounting import GRACE_NS, SILENT_NS, End, category, disagreement, overdue, valid
from collector.analysis.attempts import Attempts
from collector.decode import Definitions
from collector.decode.control import slot_row
from collector.model import PlanRow, RunRow, SlotRow, Source
from tests.fakes.measured_log import SECOND, planned_slot, throughput_path

SOURCE = Source("r1n1", bytes(16), 1, 1, 0, 1)
HOUR = 3600 * SECOND


def slot(number: int, source: str = "r1n1", destination: str = "r2n1", start_s: int = 100) -> SlotRow:
    return slot_row(
        planned_slot(number, source, destination, start_s * SECOND, WINDOW_KIND_PEAK), Definitions(), {}, {}
    )


def run(of: SlotRow, role: int = pb.RUN_ROLE_CLIENT, outcome: int = pb.RUN_OUTCOME_OK, **changes: object) -> RunRow:
    row = RunRow(
        source=replace(SOURCE, agent_id=(of.client if role == pb.RUN_ROLE_CLIENT else of.server).node),
        slot_id=of.slot_id,
        role=role,
        path_id=of.path_id,
        profile_id=of.profile_id,
        outcome=outcome,
        outcome_detail="",
        start_time_ns=of.start_time_ns,
        end_time_ns=of.start_time_ns + 12 * SECOND,
        engine_version="3.12",
        throughput_bps=4e8 if outcome == pb.RUN_OUTCOME_OK else None,
        sender_bytes=None,
        receiver_bytes=500_000_000 if outcome == pb.RUN_OUTCOME_OK else None,
        receiver_duration_ns=10 * SECOND,
        receiver_derived=False,
        retransmits=None,
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def plan(slots: list[SlotRow], *, node: str = "r1n1", version: int = 1, issued_s: int = 0) -> PlanRow:
    return PlanRow(SOURCE, node, version, b"", issued_s * SECOND, HOUR, 0, slots)


def attempts(*slots: SlotRow, uplink_tokens: int = 1) -> Attempts:
    made = Attempts(uplink_tokens, lambda _: None)
    made.plan(plan(list(slots)))
    return made


AT_END = {"r1n1": End(HOUR, HOUR), "r2n1": End(HOUR, HOUR)}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (pb.RUN_OUTCOME_OK, "ok"),
        (pb.RUN_OUTCOME_REFUSED, "failed"),
        (pb.RUN_OUTCOME_OTHER, "failed"),
        (pb.RUN_OUTCOME_SKIPPED_OWN_TRAFFIC, "skipped"),
        (pb.RUN_OUTCOME_SKIPPED_BURST, "skipped"),
        (pb.RUN_OUTCOME_ABORTED_BURST, "failed"),
        (pb.RUN_OUTCOME_LOST, "lost"),
    ],
)
def test_an_outcome_belongs_to_one_category(outcome: int, expected: str) -> None:
    assert category(outcome) == expected


def test_pending_until_its_time_has_passed_then_lost() -> None:
    one = slot(1)
    made = attempts(one)
    made.settle(AT_END, one.end_time_ns)
    assert made.get(one.slot_id).category == "pending"  # type: ignore[union-attr]
    made.settle(AT_END, one.end_time_ns + GRACE_NS)
    assert made.get(one.slot_id).category == "lost"  # type: ignore[union-attr]
    assert made.counts == {("r1n1", "r2n1", "rail0", "lost"): 1}


def test_not_lost_while_an_end_still_has_evidence_to_send() -> None:
    one = slot(1)
    behind = {"r1n1": End(one.start_time_ns, HOUR), "r2n1": End(HOUR, HOUR)}
    assert not overdue(one, behind.values(), HOUR)
    gone = {"r1n1": End(one.start_time_ns, one.start_time_ns), "r2n1": End(HOUR, HOUR)}
    deadline = one.end_time_ns + GRACE_NS
    assert not overdue(one, gone.values(), deadline + SILENT_NS - 1)
    assert overdue(one, gone.values(), deadline + SILENT_NS)


def test_a_record_that_comes_after_all_corrects_the_attempt() -> None:
    one = slot(1)
    made = attempts(one)
    made.settle(AT_END, HOUR)
    made.run(run(one))
    assert made.get(one.slot_id).category == "ok"  # type: ignore[union-attr]
    # What was counted stays so; the correction stands beside it.
    assert made.counts == {("r1n1", "r2n1", "rail0", "lost"): 1}
    assert made.corrections == {}
    made.run(run(one, pb.RUN_ROLE_SERVER))
    assert made.counts == {("r1n1", "r2n1", "rail0", "lost"): 1}
    assert made.corrections == {("r1n1", "r2n1", "rail0", "lost", "ok"): 1}


def test_a_slot_that_a_later_plan_leaves_out_is_skipped_and_may_come_back() -> None:
    one, two = slot(1), slot(2, start_s=200)
    made = attempts(one, two)
    made.plan(plan([one], version=2, issued_s=50))
    assert made.get(two.slot_id).category == "skipped"  # type: ignore[union-attr]
    assert made.get(two.slot_id).outcome == pb.RUN_OUTCOME_SKIPPED_WITHDRAWN  # type: ignore[union-attr]
    made.plan(plan([one, two], version=3, issued_s=60))
    assert made.get(two.slot_id).category == "pending"  # type: ignore[union-attr]


def test_a_slot_that_comes_back_with_a_new_time_is_waited_for_again() -> None:
    one = slot(1)
    made = attempts(one)
    made.plan(plan([], version=2, issued_s=50))
    made.settle(AT_END, HOUR)
    later = replace(one, start_time_ns=2 * HOUR, end_time_ns=2 * HOUR + 13 * SECOND)
    made.plan(plan([later], version=3, issued_s=3600))
    assert made.get(one.slot_id).category == "pending"  # type: ignore[union-attr]
    made.settle({"r1n1": End(3 * HOUR, 3 * HOUR), "r2n1": End(3 * HOUR, 3 * HOUR)}, 3 * HOUR)
    assert made.get(one.slot_id).category == "lost"  # type: ignore[union-attr]
    assert sum(made.counts.values()) == 1


def test_a_slot_that_had_begun_is_not_withdrawn() -> None:
    one = slot(1)
    made = attempts(one)
    made.plan(plan([], version=2, issued_s=101))
    assert made.get(one.slot_id).category == "pending"  # type: ignore[union-attr]


def test_a_run_before_its_plan_is_kept_for_it() -> None:
    one = slot(1)
    made = Attempts(1, lambda _: None)
    assert made.run(run(one)) is None
    made.plan(plan([one]))
    assert made.get(one.slot_id).category == "ok"  # type: ignore[union-attr]


@pytest.mark.parametrize("early", [False, True])
def test_only_the_node_at_an_end_can_tell_how_it_ended(early: bool) -> None:
    one = slot(1)
    made = Attempts(1, lambda _: None)
    other = run(one, source=replace(SOURCE, agent_id="r1n2"), throughput_bps=1.0)
    if early:
        assert made.may_say(other)
        made.run(other)
    made.plan(plan([one]))
    assert not made.may_say(other)
    assert made.run(other) is None
    made.settle(AT_END, HOUR)
    assert made.get(one.slot_id).category == "lost"  # type: ignore[union-attr]


def test_a_repeated_record_changes_nothing() -> None:
    one = slot(1)
    made = attempts(one)
    made.run(run(one))
    assert made.run(run(one, outcome=pb.RUN_OUTCOME_REFUSED)) is None
    assert made.get(one.slot_id).category == "ok"  # type: ignore[union-attr]


def test_planned_is_the_sum_of_all_ends() -> None:
    slots = [slot(number, start_s=100 + 20 * number) for number in range(12)]
    made = attempts(*slots)
    outcomes = [pb.RUN_OUTCOME_OK, pb.RUN_OUTCOME_REFUSED, pb.RUN_OUTCOME_SKIPPED_OWN_TRAFFIC]
    for number, one in enumerate(slots[:9]):
        made.run(run(one, outcome=outcomes[number % 3]))
    made.settle(AT_END, HOUR)
    assert sum(made.counts.values()) == 12
    assert made.counts["r1n1", "r2n1", "rail0", "lost"] == 3


def test_planning_again_every_hour_takes_nothing_from_the_sum() -> None:
    """A plan holds what is still to come. What it no longer names is either over, and keeps its end, or withdrawn."""
    slots = [slot(number, start_s=100 + 300 * number) for number in range(36)]
    made = attempts(*slots)
    for hour in range(1, 4):
        now_s = 3600 * hour
        for one in slots[12 * hour - 12 : 12 * hour : 2]:
            made.run(run(one))
        kept = [one for one in slots if one.end_time_ns > now_s * SECOND and one is not slots[-1]]
        made.plan(plan(kept, version=hour + 1, issued_s=now_s))
        heard = End(now_s * SECOND, now_s * SECOND)
        made.settle({"r1n1": heard, "r2n1": heard}, now_s * SECOND)
    assert made.counts == {
        ("r1n1", "r2n1", "rail0", "ok"): 18,
        ("r1n1", "r2n1", "rail0", "lost"): 17,
        ("r1n1", "r2n1", "rail0", "skipped_withdrawn"): 1,
    }


def test_a_reverse_test_is_counted_in_the_direction_of_the_data() -> None:
    one = replace(slot(1), reverse=True)
    made = attempts(one)
    made.run(run(one))
    made.run(run(one, pb.RUN_ROLE_SERVER))
    assert made.counts == {("r2n1", "r1n1", "rail0", "ok"): 1}


def test_what_the_ends_say_differently_is_named() -> None:
    one = slot(1)
    assert disagreement(run(one), run(one, pb.RUN_ROLE_SERVER)) == ""
    assert disagreement(run(one), None) == ""
    no_client = run(one, pb.RUN_ROLE_SERVER, pb.RUN_OUTCOME_NO_CLIENT)
    assert disagreement(run(one), no_client) == "client ok, server no_client"
    other = run(one, pb.RUN_ROLE_SERVER, receiver_bytes=400_000_000)
    assert disagreement(run(one), other) == "receiver bytes: client 500000000, server 400000000"


@pytest.mark.parametrize(
    ("client", "server", "expected"),
    [
        ({}, {}, True),
        ({"gates_tripped": ("test_cpu",)}, {}, False),
        ({}, {"gates_tripped": ("own_traffic",)}, False),
        ({"flags": ("exceeds_port_speed",)}, {}, False),
        ({"flags": ("retried",)}, {}, True),
        ({}, {"outcome": pb.RUN_OUTCOME_ABORTED}, False),
        ({"outcome": pb.RUN_OUTCOME_TIMEOUT}, {}, False),
    ],
)
def test_only_a_result_without_doubt_enters_a_verdict(
    client: dict[str, object], server: dict[str, object], expected: bool
) -> None:
    one = slot(1)

    def end(role: int, changes: dict[str, object]) -> RunRow:
        row = run(one, role, int(changes.get("outcome", pb.RUN_OUTCOME_OK)))  # type: ignore[call-overload]
        return replace(row, **{name: value for name, value in changes.items() if name != "outcome"})  # type: ignore[arg-type]

    ends = end(pb.RUN_ROLE_CLIENT, client), end(pb.RUN_ROLE_SERVER, server)
    assert valid(*ends, settled=True, contended=False) is expected


def test_without_the_server_a_result_counts_only_once_no_record_can_come() -> None:
    one = slot(1)
    assert not valid(run(one), None, settled=False, contended=False)
    assert valid(run(one), None, settled=True, contended=False)


def test_case_36_tests_that_collide_are_kept_out() -> None:
    """Twenty nodes start on the hour and share one uplink; none of the results counts, and nobody is accused."""
    slots = [slot(number, f"r1n{number}", f"r2n{number}") for number in range(1, 21)]
    made = attempts(*slots)
    for one in slots:
        for role in (pb.RUN_ROLE_CLIENT, pb.RUN_ROLE_SERVER):
            made.run(run(one, role))
    assert all(made.get(one.slot_id).contended for one in slots)  # type: ignore[union-attr]
    assert all(made.get(one.slot_id).result is None for one in slots)  # type: ignore[union-attr]
    alone = slot(99, start_s=1000)
    made.plan(plan([*slots, alone]))
    made.run(run(alone))
    made.run(run(alone, pb.RUN_ROLE_SERVER))
    assert made.get(alone.slot_id).result is not None  # type: ignore[union-attr]


def test_as_many_tests_as_the_uplink_has_tokens_do_not_collide() -> None:
    slots = [slot(number, f"r1n{number}", f"r2n{number}") for number in (1, 2, 3)]
    made = attempts(*slots, uplink_tokens=2)
    for one in slots[:2]:
        made.run(run(one))
    assert not any(made.get(one.slot_id).contended for one in slots[:2])  # type: ignore[union-attr]
    made.run(run(slots[2]))
    assert all(made.get(one.slot_id).contended for one in slots)  # type: ignore[union-attr]


def test_a_path_is_named_in_the_direction_of_the_data() -> None:
    assert slot(1).path_id == Definitions().path(throughput_path("r1n1", "r2n1")).path_id


def test_a_result_far_from_its_slot_is_not_that_of_the_slot() -> None:
    one = slot(1, start_s=1000)
    made = attempts(one)
    for start_s in (1000 - 700, 1000 + 700):
        ran = run(one, start_time_ns=start_s * SECOND, end_time_ns=(start_s + 12) * SECOND)
        assert not made.is_inside(ran)
        assert made.run(ran) is None
    assert made.is_inside(run(one))
    assert made.is_inside(run(one, outcome=pb.RUN_OUTCOME_ABORTED, start_time_ns=0))


def test_a_test_cut_short_and_told_of_later_collides_with_nothing_in_between() -> None:
    one, other = slot(1), slot(2, start_s=1000)
    made = attempts(one, other)
    made.run(run(one, outcome=pb.RUN_OUTCOME_ABORTED, end_time_ns=5000 * SECOND))
    made.run(run(other))
    tracked = made.get(other.slot_id)
    assert tracked is not None
    assert not tracked.contended
    aborted = made.get(one.slot_id)
    assert aborted is not None
    assert aborted.loads == (one.start_time_ns - SECOND // 10, one.end_time_ns + 60 * SECOND)


def test_tests_left_out_of_or_ended_by_a_burst_are_counted_with_their_reason_and_enter_no_verdict() -> None:
    one, two, three = slot(1), slot(2, start_s=200), slot(3, start_s=300)
    made = attempts(one, two, three)
    made.run(run(one, outcome=pb.RUN_OUTCOME_SKIPPED_BURST))
    made.run(run(one, pb.RUN_ROLE_SERVER, pb.RUN_OUTCOME_NO_CLIENT))
    made.run(run(two, outcome=pb.RUN_OUTCOME_ABORTED_BURST))
    made.run(run(two, pb.RUN_ROLE_SERVER, pb.RUN_OUTCOME_ABORTED))
    made.run(run(three, gates_tripped=("burst",)))
    made.run(run(three, pb.RUN_ROLE_SERVER))
    found = [made.get(each.slot_id) for each in (one, two, three)]
    assert [(each.category, each.valid) for each in found if each is not None] == [
        ("skipped", False),
        ("failed", False),
        ("ok", False),
    ]
    pair = ("r1n1", "r2n1", "rail0")
    assert made.counts == {(*pair, "skipped_burst"): 1, (*pair, "aborted_burst"): 1, (*pair, "ok"): 1}


@pytest.mark.parametrize("server_first", [True, False])
@pytest.mark.parametrize(
    ("client", "server", "outcome"),
    [
        (pb.RUN_OUTCOME_REFUSED, pb.RUN_OUTCOME_SKIPPED_BURST, "skipped_burst"),
        (pb.RUN_OUTCOME_REFUSED, pb.RUN_OUTCOME_SKIPPED_PAUSED, "skipped_paused"),
        (pb.RUN_OUTCOME_FAILED_PARTIAL, pb.RUN_OUTCOME_ABORTED_BURST, "aborted_burst"),
        (pb.RUN_OUTCOME_REFUSED, pb.RUN_OUTCOME_PORT_IN_USE, "refused"),
        (pb.RUN_OUTCOME_OK, pb.RUN_OUTCOME_ABORTED_BURST, "ok"),
        (pb.RUN_OUTCOME_SKIPPED_OWN_TRAFFIC, pb.RUN_OUTCOME_SKIPPED_BURST, "skipped_own_traffic"),
    ],
)
def test_a_server_that_kept_out_of_the_way_is_the_reason_for_what_its_client_met(
    client: int, server: int, outcome: str, server_first: bool
) -> None:
    one = slot(1)
    made = attempts(one)
    ends = [run(one, outcome=client), run(one, pb.RUN_ROLE_SERVER, server)]
    for end in reversed(ends) if server_first else ends:
        made.run(end)
    assert {key[3]: count for key, count in made.counts.items() if count} == {outcome: 1}


def test_slots_of_one_contention_group_do_not_disturb_each_other_and_enter_no_swing() -> None:
    together = [
        replace(slot(number, "r1n1", f"r2n{number}"), group_id=b"g" * 16, purpose=SLOT_PURPOSE_CONTENTION)
        for number in (1, 2, 3)
    ]
    other = slot(4, "r1n1", "r2n1")
    made = attempts(*together, other)
    for one in (*together, other):
        made.run(run(one))
        made.run(run(one, pb.RUN_ROLE_SERVER))
    found = [made.get(one.slot_id) for one in together]
    assert all(each is not None and each.result is None and each.category == "ok" for each in found)
    assert all(each is not None and each.loads is not None for each in found)
    # One more at the same time is no part of it: all of them are contended.
    assert all(each is not None and each.contended for each in [*found, made.get(other.slot_id)])
    alone = attempts(*together)
    for one in together:
        alone.run(run(one))
    assert not any(each.contended for one in together if (each := alone.get(one.slot_id)) is not None)
