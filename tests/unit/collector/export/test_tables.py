"""Tables over items as the API gives them."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_PAIR, WINDOW_KIND_PEAK
from bandwitness.v1.record_pb2 import PROTOCOL_ICMP_ECHO, PROTOCOL_TCP_THROUGHPUT, RUN_OUTCOME_REFUSED
from collector.analysis.uplink_capacity import Capacity, Step
from collector.export import views
from collector.export.tables import COLUMNS, build, burst_score, delay, rate, show, size
from collector.model import (
    AccountingRow,
    Attempt,
    BurstEvent,
    CarrierStatus,
    ContentionView,
    Element,
    EndpointRow,
    GapRow,
    HopRow,
    Incident,
    LaneVerdict,
    MarkRow,
    MtuTrialRow,
    NodeRow,
    PairLoss,
    PairOneWay,
    PathMtuView,
    PathStatus,
    PauseView,
    PortLoss,
    RoundTripWindow,
    RouteChangeView,
    SelfCheckStatus,
    SlotRow,
    Source,
    TargetHops,
    ThroughputStatus,
    TraceView,
    TreeHeadRow,
)
from tests.fakes.bursts import BURST, CLUSTER, SCORE

A = EndpointRow("a", "eth0", "198.18.1.1", "rail0")
B = EndpointRow("b", "eth0", "198.18.1.2", "rail0")
SAID = Source("a", bytes(16), 1, 7, 2, 40)
SECOND = 1_000_000_000


WINDOW = RoundTripWindow(
    1, SECOND, 10 * SECOND, 50, 45, 3, 1, 1, 2, 4, 0, 6, 7, 45, 80_000, 96_000, 1_200_000, 3_000_000, None
)
CHECK = SelfCheckStatus(SECOND, 8, 0, 15_000, 10**6, 5 * 10**8, 0.9, 0.4, 0.0, ("late", "starved"), 9, {"late": 2})


def path(protocol: int, throughput: ThroughputStatus | None) -> PathStatus:
    return PathStatus(
        1, "a", "b", A, B, B.address, "rail0", protocol, 0, 20, 1, 0.05, 96_000, 6_000_000, False, throughput
    )


def slot(*, reverse: bool) -> SlotRow:
    return SlotRow(
        b"\x01" * 16, b"\x01" * 16, SLOT_PURPOSE_PAIR, WINDOW_KIND_PEAK, "2026-12-01", SECOND, 3 * SECOND, SECOND,
        A, B, 5201, reverse, 255, 1, (), "why",
    )  # fmt: skip


CONTENTION = ContentionView(
    b"t" * 16, "s", "r1", "V", SECOND, 61 * SECOND, "", 10**9, 2, 1e6, 10, 9, ["client test_cpu"],
    Capacity(
        3, {"a": 19e7}, 57e7, (Step(1, 3, 19e7, 2e8), Step(3, 2, 188e6, 199e6)), 1, 189e6, 199.5e6, False, 0.331, 0.32,
        0.342, 3, 15e7, 0.2, 1.4e9, "clean", 1, "uplink_limited",
    ),
)  # fmt: skip
ROWS: Mapping[str, Sequence[Any]] = {
    "nodes": [
        NodeRow("never", "s", "r1", (A,), False, None, None, None, None, None, None, None, None),
        NodeRow(
            "there", "s", "r1", (A,), True, SECOND, None, "0.1.0", "3.12", True, 2_000_000, 4096, 7,
            ({"part": "echo", "state": "icmp_unavailable", "detail": ""},),
            self_check=CHECK, gaps=2, last_gap_time_ns=61 * SECOND,
        ),
    ],
    "paths": [
        path(PROTOCOL_ICMP_ECHO, None),
        path(PROTOCOL_TCP_THROUGHPUT, ThroughputStatus(187.4e6, SECOND, 180e6, 60e6, 0.667, True, 5, 5)),
        path(PROTOCOL_TCP_THROUGHPUT, ThroughputStatus(None, None, 180e6, None, None, False, 5, 0)),
    ],
    "carriers": [
        CarrierStatus("s", "中国电信", PROTOCOL_ICMP_ECHO, 0, SECOND, 3, 2, ("gw",), 10, 2, 0.2, 0, 8, 7_000_000, None,
                      (TargetHops("dns", (9, 11)), TargetHops("gw", (7,))))
    ],
    "samples": [
        WINDOW,
        replace(WINDOW, loaded_by=bytes(16)),
        replace(WINDOW, doubtful="late peer_stolen", delay_min_ns=None, delay_p50_ns=None),
    ],
    "gaps": [
        GapRow(SAID, 2, 1, SECOND, 61 * SECOND, 70, "spool over its limit", "a"),
        GapRow(SAID, 1, 1, SECOND, 61 * SECOND, None, "", "a"),
    ],
    "bursts": [
        BurstEvent(CLUSTER, [BURST]),
        BurstEvent(replace(CLUSTER, marked=False, next_start_time_ns=None, end_time_ns=CLUSTER.last_time_ns), [BURST]),
    ],
    "lanes": [LaneVerdict("s", "storage", "rail0", "shared", 3, 1, "shared: 1 of 3 …", SECOND, 2 * SECOND, ["i"])],
    "traces": [
        TraceView(
            1, "a", "b", "rail0", 1, "10.0.0.2", SECOND, 4, "", True, "10.9.0.1", None, "10.9.0.3",
            (HopRow(1, 1, "10.9.0.1", 1), HopRow(2, 4, None, None), HopRow(3, 1, "10.9.0.3", 1), HopRow(4, 2, "b", 1)),
        ),
        TraceView(1, "a", "b", "rail0", 1, "10.0.0.2", SECOND, 1, "r", True, None, None, None, (HopRow(1, 2, "b", 1),)),
        TraceView(1, "a", "b", "rail0", 1, "", SECOND, 1, "r", False, None, None, None, (HopRow(1, 4, None, None),)),
    ],
    "path-mtus": [
        PathMtuView(1, "a", "b", "rail0", "10.0.0.2", SECOND, 1400, 9000, True, ()),
        PathMtuView(
            1, "a", "b", "rail0", "", SECOND, 1400, 9000, False, (MtuTrialRow(8972, 2, 1, 0, "10.9.0.2", 1400),)
        ),
        PathMtuView(1, "a", "b", "rail0", "10.0.0.2", SECOND, None, None, False, ()),
    ],
    "route-changes": [RouteChangeView(1, "a", "b", "rail0", SECOND, "hop_count", "3", "4")],
    "marks": [
        MarkRow(SAID, "a", SECOND, None, 1, "checkpoint", "llm", 500, 2**30, 3, {"k": "v"}),
        MarkRow(SAID, "a", SECOND, None, 2, "checkpoint", "", None, None, None),
    ],
    "pairs": [
        PairLoss(
            "a", "b", "rail0", A.address, B.address, 200, 4, 0.02, 3, 0, 1,
            (PortLoss(61_000, 100, 4, 3, 0), PortLoss(61_001, 100, 0, 0, 0)), "some",
            PairOneWay(0, 20, 2_000, 3_000, 5_000, 96_000, 120_000, True, -1_000, 4_000, False),
        ),
    ],
    "incidents": [Incident("x" * 32, "loss", 1, Element("uplink", "r1"), "critical", SECOND, None, 2, "lost", {})],
    "timetable": [
        Attempt(slot(reverse=False), "failed", RUN_OUTCOME_REFUSED, None, None),
        Attempt(slot(reverse=True), "pending", 0, None, None),
    ],
    "contention": [CONTENTION],
    "pauses": [
        PauseView("a", SECOND, 7201 * SECOND, None, "checkpoint"),
        PauseView("", SECOND, None, 2 * SECOND, ""),
    ],
    "heads": [TreeHeadRow(SAID, "2026-12-01", 12, b"r" * 32, 12, 10**18)],
    "accounting": [AccountingRow("a", "b", "rail0", WINDOW_KIND_PEAK, 5, 4, 1, 0, 0, 2, {"ok": 4, "refused": 1})],
}  # fmt: skip


def shown(resource: str) -> list[list[str]]:
    table = build(resource, [views.item(row) for row in ROWS[resource]])
    return [[str(cell) for cell in cells] for cells in zip(*(column.cells for column in table.columns), strict=True)]


def test_a_pair_says_which_way_and_over_how_many_ports() -> None:
    assert shown("pairs") == [
        [
            "a",
            "b",
            "rail0",
            "200",
            "2.00 %",
            "3",
            "0",
            "1",
            "some: 61000 of 2",
            "96 µs ±5 µs",
            "-1 µs ±5 µs: means nothing",
        ]
    ]


def test_a_lane_that_is_shared_is_told_with_how_many_bursts() -> None:
    assert shown("lanes") == [
        ["s", "storage", "rail0", "shared", "3", "1", "1970-01-01 00:00:02Z", "shared: 1 of 3 …"]
    ]  # fmt: skip


def test_a_contention_test_shows_sums_knee_rate_and_how_sure() -> None:
    (row,) = shown("contention")
    assert row[2:] == [
        "9 of 10", "570.0 Mbit/s", "1: 190.0 Mbit/s, 3: 188.0 Mbit/s", "1", "199.5 Mbit/s",
        "33.1 % (32.0–34.2, 3 repeats)", "20.0 %", "clean", "uplink_limited", "client test_cpu",
    ]  # fmt: skip


def test_a_pause_says_where_until_when_and_whether_it_was_ended() -> None:
    assert shown("pauses") == [
        ["a", "1970-01-01 00:00:01Z", "1970-01-01 02:00:01Z", "–", "checkpoint"],
        ["all", "1970-01-01 00:00:01Z", "resumed", "1970-01-01 00:00:02Z", ""],
    ]


def test_there_is_a_table_for_each_resource() -> None:
    assert COLUMNS.keys() == ROWS.keys()


def test_a_node_that_was_never_seen_is_not_one_that_is_away() -> None:
    never, there = shown("nodes")
    assert never[3:6] == ["never seen", "–", "–"]
    assert there[3:8] == ["connected", "1970-01-01 00:00:01Z", "synchronised, ±2.0 ms", "4.0 KiB", "7"]
    assert never[8:10] == ["0", "–"]
    assert there[8:10] == ["2, last 1970-01-01 00:01:01Z", "doubtful: late, starved"]
    assert there[-1] == "echo: icmp_unavailable"


def test_a_path_shows_what_it_measures_and_a_verdict_only_where_there_is_one() -> None:
    echo, flagged, short = shown("paths")
    assert echo[4:14] == ["20", "5.00 %", "96 µs", "6.0 ms", "–", "–", "–", "–", "–", ""]
    assert flagged[10:14] == ["180.0 Mbit/s", "60.0 Mbit/s", "66.7 %", "flagged"]
    assert short[10:14] == ["180.0 Mbit/s", "–", "–", "not enough tests"]


def test_what_paths_are_made_of() -> None:
    routed, direct, silent = shown("traces")
    assert routed[4:8] == ["reference", "yes", "10.9.0.1 > * > 10.9.0.3", "–"]
    assert direct[4:8] == ["requested", "yes", "direct", "–"]
    assert silent[4:8] == ["requested", "no", "–", "–"]
    assert [row[4:7] for row in shown("path-mtus")] == [
        ["1400", "9000", "larger packets vanish"],
        ["1400", "9000", "limited by 10.9.0.2"],
        ["–", "–", "unknown"],
    ]
    assert shown("route-changes")[0][4:7] == ["hop_count", "3", "4"]


def test_the_timetable_shows_the_direction_of_the_data_and_no_outcome_before_there_is_one() -> None:
    failed, pending = shown("timetable")
    assert failed[1:] == ["a", "b", "rail0", "peak", "refused", "–", "", "why"]
    assert pending[1:] == ["b", "a", "rail0", "peak", "pending", "–", "", "why"]


def test_a_head_shows_all_that_somebody_has_to_keep() -> None:
    assert shown("heads") == [["2026-12-01", "12", "2001-09-09 01:46:40Z", "nobody", "72" * 32]]


def test_accounting_and_incidents() -> None:
    assert shown("accounting") == [["a", "b", "rail0", "peak", "5", "4", "1", "0", "0", "2", "ok 4, refused 1"]]
    assert shown("incidents")[0][3:] == ["uplink r1", "1970-01-01 00:00:01Z", "open", "", "lost"]


def test_figures_keep_three_digits_at_any_size() -> None:
    assert [rate(bps) for bps in (None, 0, 999, 2500, 187.4e6, 25e9)] == [
        "–", "0 bit/s", "999 bit/s", "2.5 kbit/s", "187.4 Mbit/s", "25.0 Gbit/s",
    ]  # fmt: skip
    assert [delay(ns) for ns in (None, 96_400, 999_999, 1_000_000)] == ["–", "96 µs", "1000 µs", "1.0 ms"]
    assert [size(count) for count in (None, 5, 1536, 2**31)] == ["–", "5 B", "1.5 KiB", "2.0 GiB"]


@pytest.mark.parametrize("resource", list(COLUMNS))
def test_nothing_is_said_to_be_nothing(resource: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(resource, [])
    assert capsys.readouterr().out == f"no {resource.replace('-', ' ')}\n"


def test_markup_in_a_name_is_shown_and_not_obeyed() -> None:
    row = views.item(Incident("x", "loss", 1, Element("rack", "[red]r1"), "critical", 1, None, 2, "[/]", {}))
    output = io.StringIO()
    Console(width=200, file=output).print(build("incidents", [row]))
    assert "rack [red]r1" in output.getvalue()


def test_a_window_says_what_was_lost_and_why_it_is_left_out() -> None:
    plain, loaded, doubtful = shown("samples")
    assert plain[:9] == ["1970-01-01 00:00:01Z", "50", "3", "1", "1", "6", "7", "2", "4"]
    assert plain[9:] == ["80 µs", "96 µs", "1.2 ms", "3.0 ms", ""]
    assert loaded[-1] == "a test of ours"
    assert doubtful[9:11] == ["–", "–"]
    assert doubtful[-1] == "delay: late peer_stolen"


def test_a_gap_says_why_and_how_much_where_that_is_known() -> None:
    limit, restart = shown("gaps")
    assert limit[:6] == ["a", "evidence", "1970-01-01 00:00:01Z", "1970-01-01 00:01:01Z", "spool_limit", "70"]
    assert restart[4:] == ["restart", "–", ""]


def test_a_burst_says_who_how_much_and_when_the_next_one_comes() -> None:
    told = [column.value(views.item(ROWS["bursts"][0])) for column in COLUMNS["bursts"]]
    assert told == [
        "2026-12-01 00:10:00Z", "on", "save", "job llm", "storage", "3", "953.7 MiB", "800.0 Mbit/s", "900.0 Mbit/s",
        "a 800.0 Mbit/s", "0.3 s", "1.0 s", "job llm step 500", "2026-12-01 00:20:00Z ±4.0 s (5 intervals)",
    ]  # fmt: skip
    ended = [column.value(views.item(ROWS["bursts"][1])) for column in COLUMNS["bursts"]]
    assert (ended[1], ended[12], ended[13]) == ("10.0 s", "counters alone", "–")


def test_the_score_is_a_line() -> None:
    assert burst_score(views.item(SCORE)) == (
        "against marks: precision 90 % (9 of 10 bursts), recall 75 % (9 of 12 marked),"
        " start error 0.5 s median, 0.9 s p90"
    )


def test_a_carrier_shows_what_it_reaches() -> None:
    assert shown("carriers") == [
        ["s", "中国电信", "icmp_echo", "2 of 3", "10", "20.00 %", "7.0 ms", "–", "dns 9|11, gw 7", "gw"]
    ]


def test_what_would_steer_a_terminal_is_not_shown() -> None:
    evil = {
        "node": "n\x1b[2J",
        "time": "2026-12-01T00:00:00Z",
        "kind": "a\x9b31m",
        "phase": "begin",
        "job": "\u202e中国电信",
    }
    item = evil | {"step": None, "rank": None, "bytes": None, "user_id": 0, "labels": {"a": "b\r\nc"}}
    console = Console(width=240, file=io.StringIO())
    with console.capture() as captured:
        console.print(build("marks", [item]))
    text = captured.get()
    assert [found for found in ("\x1b", "\x9b", "\u202e", "\r") if found in text] == []
    assert "n\ufffd[2J" in text
    assert "\ufffd中国电信" in text
