"""Whatever an agent signs as a check of itself becomes a row that holds together, or a typed refusal."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from agent.record.columns import fill_self_check
from agent.result import SelfCheck
from bandwitness.v1 import record_pb2 as pb
from collector.decode.self_checks import SelfCheckError, self_check_row
from collector.model import Source

SOURCE = Source("a", bytes(16), 1, 1, 0, 1)
counts = st.integers(0, 2**32 - 1)
sizes = st.none() | st.integers(0, 2**63 - 1)
ratios = st.none() | st.floats(0, 1)
words = st.lists(st.sampled_from(["late", "starved", "stolen", "suspended"]), unique=True)


checks = st.builds(
    SelfCheck,
    from_time_ns=st.integers(0, 2**61),
    to_time_ns=st.integers(2**61 + 1, 2**62 - 1),
    loopback_sent=counts,
    loopback_lost=st.just(0),
    loopback_delay_p50_ns=sizes,
    loopback_delay_max_ns=sizes,
    lateness_p50_ns=sizes,
    lateness_max_ns=sizes,
    cpu_pressure_ratio=ratios,
    own_wait_ratio=ratios,
    steal_ratio=ratios,
    reasons=words.map(tuple),
)


@given(checks)
def test_what_an_agent_writes_is_what_the_collector_reads(check: SelfCheck) -> None:
    message = pb.SelfCheck()
    fill_self_check(message, check)
    row = self_check_row(SOURCE, pb.SelfCheck.FromString(message.SerializeToString()))
    assert {name: getattr(row, name) for name in SelfCheck.__slots__} == {
        name: getattr(check, name) for name in SelfCheck.__slots__
    }
    assert row.node == "a"


@given(st.binary(max_size=200))
def test_garbage_is_refused_by_its_own_error_or_makes_a_row_that_holds(data: bytes) -> None:
    try:
        message = pb.SelfCheck.FromString(data)
    except DecodeError:
        return
    try:
        row = self_check_row(SOURCE, message)
    except SelfCheckError:
        return
    assert row.from_time_ns < row.to_time_ns
    assert row.loopback_lost <= row.loopback_sent
    assert all(word.isidentifier() for word in row.reasons)


@pytest.mark.parametrize(
    "wrong",
    [
        {"from_time_ns": 2, "to_time_ns": 2},
        {"from_time_ns": -1},
        {"to_time_ns": 2**62},
        {"loopback_sent": 1, "loopback_lost": 2},
        {"steal_ratio": 1.5},
        {"steal_ratio": float("nan")},
        {"lateness_p50_ns": 2**64 - 1},
        {"doubtful": True, "reason": ["no word"]},
        {"doubtful": True, "reason": ["x" * 33]},
        {"doubtful": True, "reason": [f"r{number}" for number in range(9)]},
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SelfCheckError):
        self_check_row(SOURCE, pb.SelfCheck(**{"from_time_ns": 1, "to_time_ns": 2} | wrong))  # type: ignore[arg-type]


def test_a_doubt_without_a_word_is_one_and_words_without_a_doubt_are_none() -> None:
    assert self_check_row(SOURCE, pb.SelfCheck(from_time_ns=1, to_time_ns=2, doubtful=True)).reasons == ("unsaid",)
    assert self_check_row(SOURCE, pb.SelfCheck(from_time_ns=1, to_time_ns=2, reason=["late"])).reasons == ()
