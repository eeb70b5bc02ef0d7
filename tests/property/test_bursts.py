"""What holds for bursts of any traffic, however it is read and portioned."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.analysis.bursts.forecast import forecast
from collector.analysis.bursts.watch import NOTHING, Identity, Watch
from collector.analysis.octets import Octets
from collector.config import BurstRule
from collector.model import Burst

SECOND = 1_000_000_000
SPEED_BPS = 10**9
FLOOR = 25_000_000  # a fifth of it, octets a second
RULE = BurstRule()

rates = st.sampled_from([0, 1_000, 20_000_000, 26_000_000, 60_000_000, 125_000_000])
spans = st.sampled_from([SECOND // 10, SECOND, SECOND, SECOND, 2 * SECOND, 12 * SECOND])


@st.composite
def traffic(draw: st.DrawFn) -> list[Octets]:
    """Runs of like rates, now and then a hole, a direction not known or a strange span."""
    steps: list[Octets] = []
    time_ns = draw(st.integers(0, 120)) * SECOND
    for _ in range(draw(st.integers(1, 8))):
        receive, transmit, odd = draw(rates), draw(rates), draw(st.integers(0, 20))
        span_ns = draw(spans)
        for tick in range(draw(st.sampled_from([1, 2, 3, 4, 7, 45]))):
            time_ns += span_ns + (3 * SECOND if tick == odd else 0)
            counts = [rate * span_ns // SECOND for rate in (receive, transmit)]
            steps.append(Octets(time_ns, span_ns, counts[0], None if tick + 3 == odd else counts[1]))
    return steps


def bursts(parts: list[list[Octets]], *, restart: bool = False) -> list[Burst]:
    watch = Watch(Identity("n", "eth0", "storage"), RULE)
    found: dict[str, Burst] = {}
    for part in parts:
        for change in watch.add(part, speed_bps=SPEED_BPS, clock_error_ns=None, ours=lambda _, __: NOTHING):
            if change.burst is None:
                found.pop(change.burst_id, None)
            else:
                found[change.burst_id] = change.burst
        if restart:
            watch = Watch.decode(watch.identity, RULE, watch.encode())
    return sorted(found.values(), key=lambda burst: (burst.start_time_ns, burst.burst_id))


def known(step: Octets) -> bool:
    return step.receive_bytes is not None and step.transmit_bytes is not None and step.span_ns <= 10 * SECOND


@given(traffic())
@settings(max_examples=50, deadline=None)
def test_no_burst_without_a_crossing_and_bytes_are_the_octets_between(steps: list[Octets]) -> None:
    for burst in bursts([steps]):
        inside = [
            step for step in steps if known(step) and burst.start_time_ns < step.end_time_ns <= burst.last_time_ns
        ]
        forward = [(step.receive_bytes if burst.kind == "restore" else step.transmit_bytes) or 0 for step in inside]
        if burst.kind != "exchange":
            assert burst.bytes == sum(forward)
        over = [
            step for step in inside
            if max(step.receive_bytes or 0, step.transmit_bytes or 0) * SECOND > FLOOR * step.span_ns
        ]  # fmt: skip
        assert len(over) >= 2
        assert burst.start_time_ns == over[0].start_time_ns
        assert burst.last_time_ns in {step.end_time_ns for step in inside}
        assert burst.end_time_ns in (None, burst.last_time_ns)
        assert burst.mean_bps <= burst.peak_bps
        assert burst.opened_time_ns >= burst.start_time_ns


@given(traffic())
@settings(max_examples=50, deadline=None)
def test_bursts_of_one_signal_never_overlap_and_are_never_joined_by_less_than_five_seconds(steps: list[Octets]) -> None:
    for kind in ("save", "restore"):
        of_kind = [burst for burst in bursts([steps]) if burst.kind == kind]
        for before, after in pairwise(of_kind):
            assert before.end_time_ns is not None
            assert after.start_time_ns - before.end_time_ns >= 5 * SECOND


@given(traffic(), st.integers(1, 9), st.booleans())
@settings(max_examples=40, deadline=None)
def test_portions_and_restarts_change_nothing(steps: list[Octets], size: int, restart: bool) -> None:
    parts = [steps[place : place + size] for place in range(0, len(steps), size)]
    assert bursts(parts, restart=restart) == bursts([steps])


@given(
    st.integers(60, 3600),
    st.lists(st.booleans(), min_size=4, max_size=20).filter(lambda there: sum(there) >= 4 and there[0] and there[-1]),
    st.integers(0, 10**6),
)
def test_a_period_is_found_though_bursts_are_missed(period: int, there: list[bool], begin: int) -> None:
    starts = [(begin + place * period) * SECOND for place, seen in enumerate(there) if seen]
    found = forecast(starts)
    gaps = [b - a for a, b in pairwise(starts)]
    if found is not None and min(gaps) == period * SECOND:
        assert found.interval_ns in (period * SECOND, *gaps)
        assert found.next_start_time_ns > starts[-1]
    if all(there):
        assert found is not None
        assert found.next_start_time_ns == starts[-1] + period * SECOND


@pytest.mark.parametrize("starts", [[], [0], [0, 60, 120], [0, 60, 300, 310, 900]])
def test_too_few_or_irregular_starts_tell_nothing(starts: list[int]) -> None:
    assert forecast([start * SECOND for start in starts]) is None
