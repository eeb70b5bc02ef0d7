"""Whatever text comes, a report is read: never an exception, never a NaN, never a result without its receiver."""

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.probe.iperf3_intervals import CROSS_CHECK_RATIO, INTERVALS_DISAGREE
from agent.probe.iperf3_report import parse_report
from agent.result import Report
from bandwitness.v1 import record_pb2 as pb

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "iperf3").iterdir())
TEXTS = [path.read_text() for path in GOLDEN]
ROLES = st.sampled_from([pb.RUN_ROLE_CLIENT, pb.RUN_ROLE_SERVER])
NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.none(), st.booleans(), st.text(max_size=5))


def sound(found: Report) -> None:
    for field in fields(found):
        value = getattr(found, field.name)
        if isinstance(value, float):
            assert math.isfinite(value)
        if isinstance(value, int):
            assert 0 <= value < 2**63
    for interval in found.intervals:
        assert min(interval.start_ns, interval.duration_ns, interval.bytes) >= 0
    if found.outcome != pb.RUN_OUTCOME_OK:
        assert found.receiver_bytes is None
        assert found.receiver_duration_ns is None
    else:
        assert found.receiver_bytes != 0


@given(st.text(max_size=400), ROLES)
def test_any_text(text: str, role: int) -> None:
    sound(parse_report(text, role))


@given(st.sampled_from(TEXTS), ROLES, st.data())
@settings(max_examples=150, deadline=None)
def test_a_report_damaged_anywhere(text: str, role: int, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 40)))
    patch = data.draw(st.sampled_from(["", "-nan", "5.9e 06", "{", "}", '"', "\\", "null", "9" * 400, "1e999"]))
    sound(parse_report(text[:begin] + patch + text[end:], role))


def _leaves(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(child, dict | list):
            found += _leaves(child)
        else:
            found.append((value, key))
    return found


@given(st.sampled_from([text for text in TEXTS if text.startswith("{") and "-nan" not in text]), ROLES, st.data())
@settings(max_examples=150, deadline=None)
def test_any_value_anywhere(text: str, role: int, data: st.DataObject) -> None:
    document = json.loads(text)
    holder, key = data.draw(st.sampled_from(_leaves(document)))
    holder[key] = data.draw(NUMBERS)
    sound(parse_report(json.dumps(document), role))


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=20), st.integers(1, 10**13))
def test_the_cross_check_is_one_percent(counts: list[int], total: int) -> None:
    document = {
        "intervals": [{"sum": {"start": n, "seconds": 1, "bytes": count}} for n, count in enumerate(counts)],
        "end": {"sum_sent": {"bytes": total, "seconds": 1}, "sum_received": {"bytes": total, "seconds": 1}},
    }
    found = parse_report(json.dumps(document), pb.RUN_ROLE_CLIENT)
    assert found.receiver_bytes == total
    assert (INTERVALS_DISAGREE in found.flags) == (abs(sum(counts) - total) > CROSS_CHECK_RATIO * total)
