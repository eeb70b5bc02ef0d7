"""planned = ok + failed + skipped + lost, in whatever order records come, and through restarts; no counter falls."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bandwitness.v1 import record_pb2 as pb
from collector.analysis.accounting import GRACE_NS, End
from collector.analysis.attempts import Attempts, Tracked
from tests.unit.collector.analysis.test_attempts import HOUR, plan, run, slot

SLOTS = [slot(number, start_s=100 + 20 * number) for number in range(5)]
LATE = HOUR + 2 * GRACE_NS
OUTCOMES = (
    pb.RUN_OUTCOME_OK,
    pb.RUN_OUTCOME_REFUSED,
    pb.RUN_OUTCOME_SKIPPED_PAUSED,
    pb.RUN_OUTCOME_ABORTED_PAUSED,
    pb.RUN_OUTCOME_SKIPPED_OWN_TRAFFIC,
)
records = st.tuples(
    st.just("run"),
    st.sampled_from(range(5)),
    st.sampled_from((pb.RUN_ROLE_CLIENT, pb.RUN_ROLE_SERVER)),
    st.sampled_from(OUTCOMES),
)
plans = st.tuples(st.just("plan"), st.sets(st.sampled_from(range(5))), st.integers(0, 250))
times = st.tuples(st.just("time"), st.integers(0, 400))
restarts = st.tuples(st.just("restart"))


def again(made: Attempts) -> Attempts:
    """As the store gives it back: slots as they are, counts out of what each was counted as."""
    fresh = Attempts(1, lambda _: None)
    fresh.restore([replace_all(tracked) for tracked in made._tracked.values()])
    fresh.restore_early(run for kept in made._early.values() for run in kept)
    fresh.counts, fresh.corrections = dict(made.counts), dict(made.corrections)
    return fresh


def replace_all(tracked: Tracked) -> Tracked:
    return replace(tracked)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(records, plans, times, restarts), max_size=40))
def test_every_slot_is_counted_once_and_nothing_is_ever_taken_back(events: list[tuple[Any, ...]]) -> None:
    made = Attempts(1, lambda _: None)
    made.plan(plan(SLOTS))
    version, before = 1, dict[Any, int]()
    for kind, *rest in events:
        if kind == "run":
            number, role, outcome = rest
            made.run(run(SLOTS[number], role, outcome))
        elif kind == "plan":
            version += 1
            made.plan(plan([SLOTS[n] for n in sorted(rest[0])], version=version, issued_s=rest[1]))
        elif kind == "time":
            heard = End(rest[0] * 1_000_000_000, rest[0] * 1_000_000_000)
            made.settle({"r1n1": heard, "r2n1": heard}, rest[0] * 1_000_000_000)
        else:
            made = again(made)
        now: dict[Any, int] = dict([*made.counts.items(), *made.corrections.items()])
        assert all(now.get(key, 0) >= count for key, count in before.items())
        before = now
    made.settle({"r1n1": End(LATE, LATE), "r2n1": End(LATE, LATE)}, LATE)
    kinds = [tracked.category for tracked in made._tracked.values()]
    assert sorted(set(kinds) - {"ok", "failed", "skipped", "lost"}) == []
    assert len(kinds) == len(SLOTS) == sum(made.counts.values())
    # What was counted, corrected by the corrections, is what the slots are.
    now_by_outcome = {key[3]: count for key, count in made.counts.items()}
    for (*_, was, became), count in made.corrections.items():
        now_by_outcome[was] = now_by_outcome.get(was, 0) - count
        now_by_outcome[became] = now_by_outcome.get(became, 0) + count
    found: dict[str, int] = {}
    for tracked in made._tracked.values():
        found[tracked.counted[-1]] = found.get(tracked.counted[-1], 0) + 1
    assert {name: count for name, count in now_by_outcome.items() if count} == found
