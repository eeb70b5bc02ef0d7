"""Marks out of signed records: what they say comes back, what cannot be a mark is refused."""

import pytest

from bandwitness.v1 import record_pb2 as pb
from collector.decode import Decoded, Definitions, decode
from tests.fakes.batches import START_NS, FakeChain, log_entry


def mark(**changes: object) -> pb.TrainerMark:
    said = {
        "time_ns": START_NS + 5,
        "said_time_ns": START_NS,
        "phase": pb.MARK_PHASE_BEGIN,
        "kind": "checkpoint",
        "job": "llm-7b",
        "step": 500,
        "bytes": 2**40,
        "rank": 0,
        "label_name": ["slurm_job_id", "k8s_pod"],
        "label_value": ["77", "worker-3"],
        "user_id": 1000,
        "process_id": 4242,
    }
    return pb.TrainerMark(**(said | changes))  # type: ignore[arg-type]


def decoded(record: pb.TrainerMark) -> Decoded:
    batch = FakeChain().next([pb.Record(trainer_mark=record).SerializeToString()])
    return decode(log_entry(batch), Definitions())


def test_a_mark_comes_back_as_it_was_said() -> None:
    (row,) = decoded(mark()).marks
    assert (row.node, row.time_ns, row.said_time_ns) == ("n1", START_NS + 5, START_NS)
    assert (row.phase, row.kind, row.job) == (pb.MARK_PHASE_BEGIN, "checkpoint", "llm-7b")
    assert (row.step, row.bytes, row.rank) == (500, 2**40, 0)
    assert row.labels == {"slurm_job_id": "77", "k8s_pod": "worker-3"}
    assert (row.user_id, row.process_id) == (1000, 4242)


def test_what_was_not_said_is_absent() -> None:
    (row,) = decoded(pb.TrainerMark(time_ns=START_NS, phase=pb.MARK_PHASE_END, kind="restore")).marks
    assert (row.said_time_ns, row.step, row.bytes, row.rank, row.job, dict(row.labels)) == (
        None, None, None, None, "", {},
    )  # fmt: skip


def test_a_trainer_whose_clock_is_beyond_all_sense_said_no_time() -> None:
    (row,) = decoded(mark(said_time_ns=-1)).marks
    assert row.said_time_ns is None


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": 0},
        {"phase": 9},
        {"time_ns": -1},
        {"time_ns": 1 << 62},
        {"kind": ""},
        {"kind": "k" * 33},
        {"job": "j" * 257},
        {"job": "two\nlines"},
        {"step": 1 << 63},
        {"bytes": 1 << 63},
        {"label_name": ["one"]},
        {"label_name": ["a", "esc\x1b[0m"]},
        {"label_name": [str(n) for n in range(33)], "label_value": [""] * 33},
    ],
)
def test_a_mark_that_cannot_be_one_is_refused(changes: dict[str, object]) -> None:
    found = decoded(mark(**changes))
    assert found.marks == []
    assert [row.reason for row in found.quarantined] == ["bad_record"]
