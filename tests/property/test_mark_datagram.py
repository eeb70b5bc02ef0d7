"""Whatever anybody writes into the socket is a mark within its limits, or is refused."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from agent.record.columns import fill_mark
from agent.result import TrainerMark
from agent.sample.mark_datagram import BEGIN, MAX_DATAGRAM_BYTES, DatagramError, parse
from bandwitness.v1 import record_pb2 as pb
from collector.decode import Definitions, decode
from tests.fakes.batches import START_NS, FakeChain, log_entry

REASONS = {"oversized", "garbage", "version", "member"}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["phase", "kind", "job", "step", "bytes", "rank", "time_ns", "labels", "other"])
messages = st.dictionaries(names, values, max_size=6).map(
    lambda found: {"v": 1, "phase": "begin", "kind": "checkpoint"} | found
)
whole = st.integers(0, 2**63 - 1) | st.none()
good = st.fixed_dictionaries(
    {"v": st.just(1), "phase": st.sampled_from(["begin", "end"]), "kind": st.from_regex(r"\A[a-z0-9_-]{1,32}\Z")},
    optional={
        "job": st.text(max_size=20).filter(str.isprintable),
        "step": whole,
        "bytes": whole,
        "rank": st.integers(0, 2**32 - 1),
        "time_ns": st.integers(0, 2**62 - 1),
        "labels": st.dictionaries(
            st.from_regex(r"\A[A-Za-z0-9_./-]{1,64}\Z"), st.text(max_size=9).filter(str.isprintable), max_size=4
        ),
    },
)


@given(st.binary(max_size=200) | messages.map(lambda found: json.dumps(found).encode()))
@example(b"[" * MAX_DATAGRAM_BYTES)
@example(b'{"v":1,' * 500)
def test_garbage_gives_a_mark_or_a_reason(data: bytes) -> None:
    try:
        said = parse(data)
    except DatagramError as error:
        refused = error
        assert refused.reason in REASONS
        assert len(str(refused)) < 200
        return
    assert said.job.isprintable()
    assert all(count is None or 0 <= count < 2**63 for count in (said.step, said.bytes, said.rank, said.time_ns))


@given(good)
def test_what_is_accepted_passes_through_the_record_and_is_never_refused_by_the_collector(
    found: dict[str, object],
) -> None:
    said = parse(json.dumps(found).encode())
    phase = pb.MARK_PHASE_BEGIN if said.phase == BEGIN else pb.MARK_PHASE_END
    record = pb.Record()
    mark = TrainerMark(
        START_NS, said.time_ns, phase, said.kind, said.job, said.step, said.bytes, said.rank, said.labels, 1000, 42
    )
    fill_mark(record.trainer_mark, mark)
    decoded = decode(log_entry(FakeChain().next([record.SerializeToString()])), Definitions())
    (row,) = decoded.marks
    assert (row.phase, row.kind, row.job, row.step, row.bytes, row.rank) == (
        phase, said.kind, said.job, said.step, said.bytes, said.rank,
    )  # fmt: skip
    assert tuple(sorted(row.labels.items())) == said.labels
    assert row.said_time_ns == said.time_ns
