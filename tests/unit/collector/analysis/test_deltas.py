"""Differences of counters: the right one or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwitness import counters
from bandwitness.counters import Meaning
from collector.analysis.deltas import Doubt, difference, most_bytes

SECOND = 1_000_000_000
NARROW, WIDE = Meaning("bytes", "bytes", bits=32), Meaning("bytes", "bytes")


@pytest.mark.parametrize(
    ("meaning", "span_s", "speed_bps", "expected"),
    [
        (NARROW, 1, 10**7, 19_592),
        (WIDE, 1, 10**7, Doubt.RESET),
        (NARROW, 10, 10**11, Doubt.AMBIGUOUS),  # comes round every 0.34 s
    ],
)
def test_case_23_wrap_or_reset(meaning: Meaning, span_s: int, speed_bps: int, expected: int | Doubt) -> None:
    most = most_bytes(speed_bps, span_s * SECOND)
    assert difference(4_294_960_000, 12_296, meaning, span_s * SECOND, most) == expected


def test_case_25_a_counter_at_its_top_says_nothing() -> None:
    words = counters.rdma("counters/port_xmit_data")
    assert words is not None
    assert difference(4_294_967_295, 4_294_967_295, words, SECOND) == Doubt.SATURATED
    assert difference(4_294_967_000, 4_294_967_295, words, SECOND) == Doubt.SATURATED
    assert difference(4_294_967_295, 17, words, SECOND) == Doubt.RESET
    assert difference(2**40, 2**40 + 781_250_000, words, SECOND) == 781_250_000  # a wide one of the same name


def test_small_port_counters_stop_at_their_top() -> None:
    downs = counters.rdma("counters/link_downed")
    assert downs is not None
    assert difference(254, 255, downs, SECOND) == Doubt.SATURATED
    assert difference(3, 5, downs, SECOND) == 2


def test_a_queue_counter_comes_round() -> None:
    sequence = counters.rdma("hw_counters/out_of_sequence")
    assert sequence is not None
    assert difference(2**32 - 2, 3, sequence, SECOND) == 5
    assert difference(1000, 3, sequence, SECOND) == Doubt.RESET  # nearly once round: cleared


def test_backwards_in_time() -> None:
    assert difference(1, 2, WIDE, 0) == Doubt.BACKWARDS
    assert difference(1, 2, WIDE, -5) == Doubt.BACKWARDS


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.tuples(st.sampled_from([4, 8, 16, 32, 64]), st.booleans()),
    st.integers(-5, 100 * SECOND),
    st.none() | st.integers(0, 10**12),
)
def test_never_negative_and_never_more_than_the_link_carries(
    before: int, now: int, width: tuple[int, bool], span_ns: int, speed_bps: int | None
) -> None:
    most = most_bytes(speed_bps, span_ns)
    bits, saturates = width
    found = difference(before, now, Meaning("x", bits=bits, saturates=saturates), span_ns, most)
    if not isinstance(found, Doubt):
        assert span_ns > 0
        assert found >= 0
        assert most is None or found <= most
        assert (before + found - now) % (1 << bits) == 0
