"""When packets are due: spread, capped, and never in a burst."""

from itertools import pairwise

from agent.probe.pacing import IDLE_NS, MAX_SENDS_PER_TICK, TICK_NS, Pacer

SECOND = 1_000_000_000


def test_turns_are_spread_over_the_interval() -> None:
    pacer = Pacer(phase=0.25)
    for slot in range(1000):
        pacer.add(slot, SECOND)
    counts = []
    now = 0
    pacer.take(now)
    for _ in range(100):
        now += TICK_NS
        counts.append(len(pacer.take(now)))
    assert sum(counts) in range(998, 1002)
    assert max(counts) <= 13  # 10 on average


def test_each_path_keeps_its_phase() -> None:
    pacer = Pacer()
    pacer.add(0, SECOND)
    times = [now for now in range(0, 5 * SECOND, TICK_NS) for turn in pacer.take(now) if turn.slot == 0]
    assert [later - earlier for earlier, later in pairwise(times)] == [SECOND] * 4


def test_a_tick_sends_no_more_than_its_cap_and_the_rest_next_time() -> None:
    pacer = Pacer()
    for slot in range(200):
        pacer.add(slot, SECOND)
    pacer.take(0)
    seen = []
    for tick in range(4):
        turns = pacer.take(SECOND - 1 + tick)
        assert len(turns) <= MAX_SENDS_PER_TICK
        seen += [turn.slot for turn in turns]
    assert len(set(seen)) == len(seen) >= 199
    assert pacer.next_wake_ns(SECOND) > SECOND


def test_missed_turns_are_told_and_not_made_up_for() -> None:
    pacer = Pacer()
    pacer.add(7, SECOND)
    assert [turn.slot for turn in pacer.take(0)] == [7]
    (turn,) = pacer.take(5 * SECOND + 30)
    assert (turn.slot, turn.skipped, turn.first_skipped_ns, turn.interval_ns) == (7, 4, SECOND, SECOND)
    assert pacer.take(5 * SECOND + 40) == []
    assert len(pacer.take(6 * SECOND)) == 1


def test_wakes_at_the_tick_of_the_next_turn_and_never_sleeps_long() -> None:
    pacer = Pacer()
    assert pacer.next_wake_ns(5) == 5 + IDLE_NS
    pacer.add(0, SECOND)
    pacer.take(0)
    assert pacer.next_wake_ns(0) == IDLE_NS
    assert pacer.next_wake_ns(SECOND - 1) == SECOND
    assert pacer.next_wake_ns(SECOND) == SECOND + TICK_NS  # overdue: at the next tick


def test_removed_slots_have_no_turns() -> None:
    pacer = Pacer()
    for slot in range(3):
        pacer.add(slot, SECOND)
    pacer.take(0)
    pacer.add(3, SECOND)
    pacer.remove({1, 3})
    assert {turn.slot for now in range(0, 3 * SECOND, TICK_NS) for turn in pacer.take(now)} == {0, 2}
