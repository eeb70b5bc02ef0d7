"""Rows as JSON values, times and paging."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_PAIR, WINDOW_KIND_PEAK
from bandwitness.v1.record_pb2 import RUN_OUTCOME_OK, RUN_OUTCOME_REFUSED
from collector.export import views
from collector.export.queries import DAY_NS
from collector.export.views import BadQueryError
from collector.model import Attempt, Element, EndpointRow, Incident, RunRow, SlotRow, Source

A = EndpointRow("a", "eth0", "198.18.1.1", "rail0")
B = EndpointRow("b", "eth0", "198.18.1.2", "rail0")
SLOT = SlotRow(
    slot_id=b"\x01" * 16,
    group_id=b"\x02" * 16,
    purpose=SLOT_PURPOSE_PAIR,
    window=WINDOW_KIND_PEAK,
    day="2026-12-01",
    start_time_ns=1_000_000_000,
    end_time_ns=3_500_000_000,
    margin_ns=400_000_000,
    client=A,
    server=B,
    port=5201,
    reverse=False,
    path_id=255,
    profile_id=1,
    tokens=("nic:a/eth0",),
    reason="pair a to b, 1 of 5",
)


def test_a_slot_with_its_outcome_is_one_flat_item() -> None:
    attempt = Attempt(SLOT, "failed", RUN_OUTCOME_REFUSED, None, None)
    assert views.item(attempt) == {
        "slot_id": "01" * 16,
        "group_id": "02" * 16,
        "purpose": "pair",
        "window": "peak",
        "day": "2026-12-01",
        "start_time": "1970-01-01T00:00:01Z",
        "end_time": "1970-01-01T00:00:03.500000000Z",
        "margin_ns": 400_000_000,
        "client": {"node": "a", "nic": "eth0", "address": "198.18.1.1", "lane": "rail0"},
        "server": {"node": "b", "nic": "eth0", "address": "198.18.1.2", "lane": "rail0"},
        "port": 5201,
        "reverse": False,
        "path_id": "00000000000000ff",
        "profile_id": "0000000000000001",
        "tokens": ["nic:a/eth0"],
        "reason": "pair a to b, 1 of 5",
        "category": "failed",
        "outcome": "refused",
        "client_run": None,
        "server_run": None,
        "disagreement": "",
        "valid": False,
        "advice": "",
        "left_out": "",
    }


def run(**changes: Any) -> RunRow:
    source = Source("a", b"c" * 16, 1, 1, 0, 1)
    row = RunRow(source, b"\x01" * 16, 1, 255, 1, RUN_OUTCOME_OK, "", 0, 1, "3.12", 1e9, None, 1, 1, False, None)
    return replace(row, **changes)


@pytest.mark.parametrize(
    ("client", "server", "reason"),
    [
        ({"flags": ("exceeds_port_speed", "retried")}, {}, "client exceeds_port_speed"),
        ({"gates_tripped": ("test_cpu",)}, {"gates_tripped": ("clock",)}, "client test_cpu, server clock"),
        ({}, {"outcome": RUN_OUTCOME_REFUSED}, "server refused"),
        ({}, {}, "other tests ran at the same time"),
        ({}, None, "the server's record is waited for"),
    ],
)
def test_a_result_that_enters_no_verdict_says_why(
    client: dict[str, Any], server: dict[str, Any] | None, reason: str
) -> None:
    ends = (run(**client), None if server is None else run(**server))
    assert views.item(Attempt(SLOT, "ok", RUN_OUTCOME_OK, *ends))["left_out"] == reason
    assert views.item(Attempt(SLOT, "ok", RUN_OUTCOME_OK, *ends, valid=True))["left_out"] == ""


def test_what_is_absent_stays_absent() -> None:
    incident = Incident("id", "loss", 1, Element("path", "x"), "critical", 1, None, 2, "s", {"lost": 3})
    shown = views.item(incident)
    assert shown["closed_time"] is None
    assert shown["values"] == {"lost": 3}
    assert shown["element"] == {"kind": "path", "name": "x"}


@given(st.integers(0, 4_000_000_000_000_000_000))
def test_times_come_back_to_the_microsecond(time_ns: int) -> None:
    # datetime parses microseconds; the API's own nanoseconds are finer than a query needs.
    whole = time_ns // 1000 * 1000
    assert views.parse_time("from", views.rfc3339(whole)) == whole


def test_times_beyond_what_the_store_can_hold_are_its_ends() -> None:
    assert views.parse_time("from", "0001-01-01T00:00:00Z") == 0
    last_ns = views.parse_time("to", "9999-12-31T00:00:00Z")
    # A question may reach a day beyond, and the database still has to hold it.
    assert (1 << 63) - 60 * DAY_NS < last_ns < (1 << 63) - DAY_NS


def test_times_carry_their_offset() -> None:
    assert views.parse_time("to", "1970-01-01T08:00:01+08:00") == 1_000_000_000
    assert views.parse_time("to", "1970-01-01T08:00:01 08:00") == 1_000_000_000  # "+" unescaped in a query


@pytest.mark.parametrize("text", ["", "yesterday", "2026-12-01", "2026-12-01T19:00:00", "99999-01-01T00:00:00Z"])
def test_not_times(text: str) -> None:
    with pytest.raises(BadQueryError, match=r"to: .* is not an RFC 3339 time"):
        views.parse_time("to", text)


@given(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=30), st.integers(1, 7))
def test_paging_gives_every_row_once(rows: list[str], limit: int) -> None:
    cursor, seen = None, []
    while True:
        chosen, cursor = views.page(rows, lambda row: row, cursor, limit)
        assert len(chosen) <= limit
        seen += chosen
        if cursor is None:
            break
    assert seen == sorted(rows)


def test_a_cursor_by_time_is_a_time_that_the_store_can_hold() -> None:
    assert views.read_time_cursor(views.make_time_cursor(10**18)) == 10**18
    for text in ("", "-1", "1.0", "x", "9" * 19, "9" * 700, "²", "1 2"):
        with pytest.raises(BadQueryError, match="cursor"):
            views.read_time_cursor(views.make_cursor(text))


def test_a_foreign_cursor_is_refused() -> None:
    with pytest.raises(BadQueryError, match="cursor"):
        views.page(["a"], lambda row: row, "ü*", 1)
