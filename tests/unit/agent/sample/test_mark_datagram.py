"""One datagram is one mark, or is refused for a reason of a small set."""

import json
from typing import Any

import pytest

from agent.sample.mark_datagram import BEGIN, END, MAX_DATAGRAM_BYTES, DatagramError, Said, parse

FULL: dict[str, Any] = {
    "v": 1,
    "phase": "begin",
    "kind": "checkpoint",
    "job": "大模型-7b",
    "step": 500,
    "bytes": 141_000_000_000,
    "rank": 3,
    "time_ns": 1_767_225_600_000_000_000,
    "labels": {"slurm_job_id": "77", "k8s_pod": "worker-3"},
}


def datagram(**changes: Any) -> bytes:
    return json.dumps(FULL | changes, ensure_ascii=False).encode()


def test_everything_said_comes_out() -> None:
    assert parse(datagram()) == Said(
        BEGIN, "checkpoint", "大模型-7b", 500, 141_000_000_000, 3, 1_767_225_600_000_000_000,
        (("k8s_pod", "worker-3"), ("slurm_job_id", "77")),
    )  # fmt: skip


def test_what_is_not_said_is_absent() -> None:
    assert parse(b'{"v":1,"phase":"end","kind":"x","step":null}') == Said(END, "x", "", None, None, None, None, ())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "garbage"),
        (b"\xff\xfe", "garbage"),
        (b"checkpoint", "garbage"),
        (b"[1]", "garbage"),
        (b"[" * 4000, "garbage"),
        (b'{"a":' * 600, "garbage"),
        (b"1" * 4096, "garbage"),
        (b'{"v":NaN}', "garbage"),
        (b" " * (MAX_DATAGRAM_BYTES + 1), "oversized"),
        (b"{}", "version"),
        (datagram(v=2), "version"),
        (datagram(v=True), "version"),
        (datagram(v="1"), "version"),
        (b'{"v":1,"v":1,"phase":"end","kind":"x"}', "member"),
        (datagram(color="red"), "member"),
        (datagram(phase="middle"), "member"),
        (datagram(phase=["begin"]), "member"),
        (datagram(kind=""), "member"),
        (datagram(kind="Check point"), "member"),
        (datagram(kind="k" * 33), "member"),
        (datagram(kind=None), "member"),
        (datagram(job="j" * 129), "member"),
        (datagram(job="two\nlines"), "member"),
        (datagram(job="\x1b[31mred"), "member"),
        (datagram(job="\u202egnirts"), "member"),
        (b'{"v":1,"phase":"end","kind":"x","job":"\\ud800"}', "member"),
        (datagram(job=7), "member"),
        (datagram(step=-1), "member"),
        (datagram(step=1.5), "member"),
        (datagram(step=1e300), "member"),
        (datagram(step=True), "member"),
        (datagram(step="5"), "member"),
        (datagram(step=1 << 63), "member"),
        (datagram(rank=1 << 32), "member"),
        (datagram(time_ns=1 << 63), "member"),
        (datagram(labels=[]), "member"),
        (datagram(labels={"": "x"}), "member"),
        (datagram(labels={"a b": "x"}), "member"),
        (datagram(labels={"a": 1}), "member"),
        (datagram(labels={"a": "x" * 129}), "member"),
        (datagram(labels={str(number): "" for number in range(17)}), "member"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_anything_else_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(DatagramError) as refused:
        parse(data)
    assert refused.value.reason == reason
    assert str(refused.value).isprintable()
