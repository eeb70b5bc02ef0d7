"""The HTTP interface over rows in memory: shapes, spans, errors, health."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from starlette.testclient import TestClient

from bandwitness.v1.record_pb2 import PROTOCOL_ICMP_ECHO
from collector.export import views
from collector.export.burst_api import MOST_MARKS
from collector.export.contention_api import ContentionRefusedError
from collector.export.exposition import OPENMETRICS_TYPE, TEXT_TYPE
from collector.export.http import Sources, create_app
from collector.export.pause_api import PauseRefusedError
from collector.export.queries import DAY_NS
from collector.export.way_api import TraceRefusedError
from collector.model import (
    AccountingRow,
    Attempt,
    Burst,
    BurstEvent,
    ClusterBurst,
    Element,
    EndpointRow,
    GapRow,
    HopRow,
    Incident,
    LaneBurst,
    MarkRow,
    MtuTrialRow,
    NodeRow,
    PairLoss,
    PairOneWay,
    PathMtuView,
    PathRow,
    PathStatus,
    PauseView,
    PortLoss,
    RoundTripWindow,
    RouteChangeView,
    SeriesPoint,
    Source,
    StoredWindow,
    TraceView,
)
from collector.store.pairs import PatternOf
from tests.fakes.bursts import BURST, CLUSTER, T0

# As Prometheus 2.42 sends it.
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
A = EndpointRow("a", "eth0", "198.18.1.1", "rail0")

WINDOW_NS = 10**10


class Rows:
    """A reader that answers from lists and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.fault: Exception | None = None
        self.said = 1

    def nodes(self) -> Sequence[NodeRow]:
        return [NodeRow("a", "s", "r1", (A,), False, None, None, None, None, None, None, None, None)]

    def paths(self) -> Sequence[PathStatus]:
        if self.fault:
            raise self.fault
        return [
            PathStatus(
                index, "a", "b", A, None, "198.18.1.2", "rail0", PROTOCOL_ICMP_ECHO, 0, 20, 1, 0.05, 90_000, 120_000,
                False, None,
            )
            for index in (3, 1, 2)
        ]  # fmt: skip

    def pairs(self, from_ns: int, to_ns: int, pattern_of: PatternOf) -> Sequence[PairLoss]:
        self.asked.append(("pairs", from_ns, to_ns))
        ports = (PortLoss(61_000, 100, 4, 3, 0), PortLoss(61_001, 100, 0, 0, 0))
        pattern = pattern_of(np.array([61_000, 61_001]), np.full((2, 9), 50.0), np.repeat([[2.0], [0.0]], 9, 1))
        delays = PairOneWay(0, 20, 2_000, 3_000, 5_000, 96_000, 120_000, True, -1_000, 4_000, False)
        return [PairLoss("a", "b", "rail0", "10.0.0.1", "10.0.0.2", 200, 4, 0.02, 3, 0, 1, ports, pattern, delays)]

    def incidents(self, from_ns: int, to_ns: int, active_only: bool) -> Sequence[Incident]:
        self.asked.append(("incidents", from_ns, to_ns, active_only))
        return [Incident("x", "loss", 1, Element("uplink", "r1"), "critical", 1, None, 2, "lost", {"lost": 3})]

    def target_windows(self, from_ns: int, to_ns: int) -> Iterator[tuple[PathRow, StoredWindow]]:
        self.asked.append(("carriers", from_ns, to_ns))
        yield from ()

    def target_hops(self) -> Sequence[tuple[PathRow, int]]:
        return []

    def gaps(self, from_ns: int, to_ns: int) -> Sequence[GapRow]:
        self.asked.append(("gaps", from_ns, to_ns))
        return [GapRow(Source("a", bytes(16), 1, 7, 2, 40), 2, 1, 10**18, 2 * 10**18, 5, "full", "a")]

    def lane_bursts(self, from_ns: int, to_ns: int) -> Sequence[LaneBurst]:
        self.asked.append(("lanes", from_ns, to_ns))
        return [LaneBurst("b", "s", "storage", 10**18, frozenset({"rail0"}), {"rail0": "i"})]

    @property
    def lanes(self) -> Sequence[tuple[str, str]]:
        return [("s", "rail0"), ("s", "storage")]

    def round_trips(
        self, path_id: int, from_ns: int, to_ns: int, limit: int | None = None
    ) -> Sequence[RoundTripWindow]:
        self.asked.append(("samples", path_id, from_ns, to_ns))
        starts = range(-(-from_ns // WINDOW_NS) * WINDOW_NS, min(to_ns, 25 * WINDOW_NS), WINDOW_NS)
        return [
            RoundTripWindow(path_id, start, WINDOW_NS, 50, 48, 2, *(0,) * 7, 48, 1, 2, 3, 4, None, "late")
            for start in starts
        ][:limit]

    def marks(
        self, from_ns: int, to_ns: int, after: tuple[int, int, int] = (0, 0, -1), limit: int | None = None
    ) -> Sequence[MarkRow]:
        self.asked.append(("marks", from_ns, to_ns))
        labels = {"slurm_job_id": "77"}
        said = [
            MarkRow(source, "a", 10**18, None, 1, "checkpoint", "llm", 500, 2**30, 3, labels, 1000, 4242)
            for source in (Source("a", bytes(16), 1, 7, index, 40) for index in range(2, 2 + self.said))
            if (10**18, 40, source.record_index) > after
        ]
        return said[:limit]

    def cluster_bursts(self, from_ns: int, to_ns: int) -> Sequence[ClusterBurst]:
        self.asked.append(("cluster_bursts", from_ns, to_ns))
        return [CLUSTER]

    def bursts(self, from_ns: int, to_ns: int) -> Sequence[Burst]:
        return [BURST]

    def burst_events(self, from_ns: int, to_ns: int, active_only: bool) -> Sequence[BurstEvent]:
        self.asked.append(("bursts", from_ns, to_ns, active_only))
        return [BurstEvent(CLUSTER, [BURST])]

    def shared_tests(self, from_ns: int, to_ns: int) -> Sequence[bytes]:
        return []

    def profiles(self, profile_ids: Iterable[int]) -> Mapping[int, bytes]:
        return {}

    def pauses(self, from_ns: int, to_ns: int) -> Sequence[PauseView]:
        self.asked.append(("pauses", from_ns, to_ns))
        return [PauseView("a", 10**18, None, None, "checkpoint")]

    def traces(self, from_ns: int, to_ns: int) -> Sequence[TraceView]:
        self.asked.append(("traces", from_ns, to_ns))
        hops = (HopRow(1, 1, "10.0.0.1", 90_000), HopRow(2, 4, None, None))
        return [TraceView(1, "a", "b", "rail0", 1, "10.0.0.2", 10**18, 2, "q", False, "10.0.0.1", None, None, hops)]

    def path_mtus(self, from_ns: int, to_ns: int) -> Sequence[PathMtuView]:
        trial = MtuTrialRow(1472, 2, 1, 0, "10.0.0.1", 1400)
        return [PathMtuView(1, "a", "b", "rail0", "10.0.0.2", 10**18, 1400, 9000, False, (trial,))]

    def route_changes(self, from_ns: int, to_ns: int) -> Sequence[RouteChangeView]:
        return [RouteChangeView(1, "a", "b", "rail0", 10**18, "hop_count", "3", "4")]

    def timetable(self, from_ns: int, to_ns: int) -> Sequence[Attempt]:
        self.asked.append(("timetable", from_ns, to_ns))
        return []

    def accounting(self, from_ns: int, to_ns: int) -> Sequence[AccountingRow]:
        return [AccountingRow("a", "b", "rail0", 1, 5, 4, 1, 0, 0, 0, {"ok": 4, "refused": 1})]


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def client(rows: Rows) -> TestClient:
    return make(rows)


def series(node: str, nic: str, from_ns: int, to_ns: int, limit: int) -> tuple[list[SeriesPoint], int | None]:
    """A point each second for three seconds."""
    assert (node, nic) == ("a", "eth0")
    times = [time_ns for time_ns in range(T0, T0 + 3 * 10**9, 10**9) if from_ns <= time_ns < to_ns]
    points = [SeriesPoint(time_ns, 10**9, 1000, 10**6, 8e3, 8e6) for time_ns in times[:limit]]
    return points, points[-1].time_ns if len(times) > limit else None


def make(
    rows: Rows,
    metrics: Callable[..., str] = lambda openmetrics: f"up {int(openmetrics)}\n",
    health: Callable[[], Mapping[str, str]] = lambda: {"log": "ok"},
    warnings: Callable[[], Mapping[str, str]] = dict,
) -> TestClient:
    sources = Sources(rows, metrics, health, lambda row: replace(row, connected=True), warnings, series)
    return TestClient(create_app(sources), raise_server_exceptions=False)


def test_a_trace_shows_who_answered_hop_after_hop(client: TestClient) -> None:
    (trace,) = client.get("/api/v1/traces").json()["items"]
    assert (trace["trace_reason"], trace["reached"], trace["near_side"]) == ("verdict", False, "10.0.0.1")
    assert trace["hops"] == [
        {"hop_limit": 1, "answer": "time_exceeded", "address": "10.0.0.1", "round_trip_delay_ns": 90_000},
        {"hop_limit": 2, "answer": "silent", "address": None, "round_trip_delay_ns": None},
    ]


def test_a_path_mtu_shows_the_sizes_tried_and_a_change_what_was_before(client: TestClient) -> None:
    (check,) = client.get("/api/v1/path-mtus").json()["items"]
    assert (check["mtu_bytes"], check["trials"][0]["fate"]) == (1400, "too_big")
    (change,) = client.get("/api/v1/route-changes").json()["items"]
    assert (change["change"], change["before"], change["after"]) == ("hop_count", "3", "4")


HERE = "http://127.0.0.1:7480"


def asking(rows: Rows, host: str = "127.0.0.1") -> TestClient:
    """A client from some address, to a collector that takes requests for traces."""

    async def ask(src: str, dst: str) -> Sequence[Mapping[str, str]]:
        if dst == "nowhere":
            raise TraceRefusedError("no path")
        return [{"request": "r", "path_id": f"{src}-{dst}", "protocol": "icmp_echo"}]

    sources = Sources(rows, lambda openmetrics: "", dict, lambda row: row, ask_trace=ask)
    return TestClient(create_app(sources), HERE, raise_server_exceptions=False, client=(host, 50_000))


def test_a_trace_can_be_asked_for_on_this_host(rows: Rows) -> None:
    answer = asking(rows).post("/api/v1/traces", params={"src": "a", "dst": "b"})
    assert (answer.status_code, answer.json()["items"][0]["path_id"]) == (202, "a-b")
    refused = asking(rows).post("/api/v1/traces", params={"src": "a", "dst": "nowhere"})
    assert (refused.status_code, refused.json()["error"]["message"]) == (409, "no path")


def test_a_trace_cannot_be_asked_for_from_elsewhere_or_by_a_web_page(rows: Rows, client: TestClient) -> None:
    query = {"src": "a", "dst": "b"}
    assert asking(rows, "192.0.2.7").post("/api/v1/traces", params=query).status_code == 403
    for header in (
        {"Origin": "http://example.org"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},  # which resolves to a loopback address by now
        {"Host": "evil.example:7480"},
        {"Host": "localhost.evil.example"},
        {"Host": "192.0.2.7"},
    ):
        assert asking(rows).post("/api/v1/traces", params=query, headers=header).status_code == 403, header
    for name in ("localhost:7480", "127.0.0.1", "[::1]:7480"):
        assert asking(rows).post("/api/v1/traces", params=query, headers={"Host": name}).status_code == 202, name
    assert asking(rows).post("/api/v1/traces").status_code == 400
    assert client.post("/api/v1/traces", params=query).status_code == 403  # the test client's own name is no address


def switching(rows: Rows, host: str = "127.0.0.1") -> tuple[TestClient, list[tuple[object, ...]]]:
    said: list[tuple[object, ...]] = []

    async def say(
        site: str | None, *, paused: bool, for_ns: int | None = None, reason: str = ""
    ) -> Sequence[Mapping[str, object]]:
        if site == "nowhere":
            raise PauseRefusedError("no site nowhere")
        said.append((site, paused, for_ns, reason))
        return [{"site": site or "", "paused": paused}]

    sources = Sources(rows, lambda openmetrics: "", dict, lambda row: row, say_pause=say)
    return TestClient(create_app(sources), HERE, raise_server_exceptions=False, client=(host, 50_000)), said


def test_tests_can_be_paused_and_resumed_on_this_host(rows: Rows) -> None:
    here, said = switching(rows)
    answer = here.post("/api/v1/pauses", params={"site": "a", "for_s": "1.5", "reason": "demo"})
    assert (answer.status_code, answer.json()["items"][0]["site"]) == (202, "a")
    assert here.post("/api/v1/resumes", params={"all": "true"}).status_code == 202
    assert said == [("a", True, 1_500_000_000, "demo"), (None, False, None, "")]
    (shown,) = here.get("/api/v1/pauses").json()["items"]
    assert (shown["site"], shown["until_time"], shown["reason"]) == ("a", None, "checkpoint")
    assert here.post("/api/v1/pauses", params={"site": "nowhere"}).status_code == 409


def test_tests_cannot_be_paused_from_elsewhere_by_a_web_page_or_without_saying_where(
    rows: Rows, client: TestClient
) -> None:
    here, said = switching(rows)
    for resource in ("/api/v1/pauses", "/api/v1/resumes"):
        assert switching(rows, "192.0.2.7")[0].post(resource, params={"all": "true"}).status_code == 403
        page = here.post(resource, params={"all": "true"}, headers={"Origin": "http://example.org"})
        assert page.status_code == 403
        assert here.post(resource).status_code == 400
        assert here.post(resource, params={"all": "true", "site": "a"}).status_code == 400
    assert here.post("/api/v1/pauses", params={"all": "true", "for_s": "-1"}).status_code == 400
    assert said == []


def test_a_contention_test_can_be_asked_about_and_ordered_on_this_host_only(rows: Rows, client: TestClient) -> None:
    asked: list[tuple[object, ...]] = []

    async def order(
        site: str, rack: str, *, repeats: int, lane: str | None = None, dry_run: bool = False
    ) -> Mapping[str, object]:
        if rack == "r9":
            raise ContentionRefusedError("no permission")
        asked.append((site, rack, repeats, lane, dry_run))
        return {"ordered": not dry_run}

    sources = Sources(rows, lambda openmetrics: "", dict, lambda row: row, order_contention=order)
    here, there = (
        TestClient(create_app(sources), HERE, raise_server_exceptions=False, client=(host, 50_000))
        for host in ("127.0.0.1", "192.0.2.7")
    )
    query: dict[str, str] = {"site": "s", "rack": "r1", "dry_run": "true"}
    assert here.post("/api/v1/contention", params=query).json()["items"] == [{"ordered": False}]
    assert asked == [("s", "r1", 3, None, True)]
    assert here.post("/api/v1/contention", params=query | {"rack": "r9"}).status_code == 409
    assert here.post("/api/v1/contention", params=query | {"repeats": "99"}).status_code == 400
    assert there.post("/api/v1/contention", params=query).status_code == 403
    assert client.get("/api/v1/contention").json()["items"] == []


def test_a_pair_shows_loss_by_direction_and_by_source_port(client: TestClient, rows: Rows) -> None:
    (pair,) = client.get("/api/v1/pairs").json()["items"]
    assert (pair["forward_lost"], pair["reverse_lost"], pair["either_lost"]) == (3, 0, 1)
    assert pair["ports"][0] == {"source_port": 61_000, "sent": 100, "lost": 4, "forward_lost": 3, "reverse_lost": 0}
    assert pair["pattern"] == "some"
    delays = pair["one_way"]
    assert (delays["clock_error_ns"], delays["forward_known"], delays["reverse_known"]) == (5_000, True, False)
    (asked,) = rows.asked
    assert asked[2] - asked[1] == 3_600 * 10**9  # type: ignore[operator]


def test_pairs_over_more_than_a_day_are_refused(client: TestClient) -> None:
    span = {"from": "2026-12-01T00:00:00Z", "to": "2026-12-02T00:00:01Z"}
    assert client.get("/api/v1/pairs", params=span).status_code == 400


def test_items_come_in_order_and_in_pages(client: TestClient) -> None:
    first = client.get("/api/v1/paths", params={"limit": 2}).json()
    second = client.get("/api/v1/paths", params={"limit": 2, "cursor": first["next"]}).json()
    assert [row["path_id"][-1] for row in first["items"] + second["items"]] == ["1", "2", "3"]
    assert second["next"] is None
    assert first["items"][0]["protocol"] == "icmp_echo"
    assert first["items"][0]["loss_ratio"] == 0.05


def test_a_node_shows_its_live_session(client: TestClient) -> None:
    assert client.get("/api/v1/nodes").json()["items"][0]["connected"] is True


def test_a_span_is_passed_on(client: TestClient, rows: Rows) -> None:
    query = {"from": "1970-01-01T00:00:01Z", "to": "1970-01-01T00:00:02Z", "active": "true"}
    assert client.get("/api/v1/incidents", params=query).json()["items"][0]["rule"] == "loss"
    assert rows.asked == [("incidents", 1_000_000_000, 2_000_000_000, True)]


def test_the_timetable_looks_a_day_ahead(client: TestClient, rows: Rows) -> None:
    assert client.get("/api/v1/timetable").json() == {"items": [], "next": None}
    _, from_ns, to_ns = rows.asked[0]
    assert isinstance(from_ns, int)
    assert isinstance(to_ns, int)
    assert to_ns - from_ns == 2 * DAY_NS


def test_accounting_names_every_outcome(client: TestClient) -> None:
    row = client.get("/api/v1/accounting").json()["items"][0]
    assert row["planned"] == row["ok"] + row["failed"] + row["skipped"] + row["lost"]
    assert row["window"] == "peak"
    assert row["outcomes"] == {"ok": 4, "refused": 1}


@pytest.mark.parametrize(
    ("url", "status", "code"),
    [
        ("/api/v1/incidents?from=never", 400, "bad_query"),
        ("/api/v1/incidents?from=2026-12-02T00:00:00Z&to=2026-12-01T00:00:00Z", 400, "bad_query"),
        ("/api/v1/paths?limit=0", 400, "bad_query"),
        ("/api/v1/paths?limit=x", 400, "bad_query"),
        ("/api/v1/paths?cursor=*", 400, "bad_query"),
        ("/api/v1/samples", 400, "bad_query"),
        ("/api/v1/samples?path=1", 400, "bad_query"),
        ("/api/v1/samples?path=00000000000000ff&cursor=eHg=", 400, "bad_query"),
        (f"/api/v1/samples?path=00000000000000ff&cursor={views.make_cursor('9' * 19)}", 400, "bad_query"),
        (f"/api/v1/series?node=a&nic=b&cursor={views.make_cursor('9' * 19)}", 400, "bad_query"),
        (f"/api/v1/series?node=a&nic=b&cursor={views.make_cursor('9' * 700)}", 400, "bad_query"),
        (f"/api/v1/series?node=a&nic=b&cursor={views.make_cursor('-1')}", 400, "bad_query"),
        (f"/api/v1/marks?cursor={views.make_cursor('1')}", 400, "bad_query"),
        (f"/api/v1/marks?cursor={views.make_cursor('1 2 ²')}", 400, "bad_query"),
        ("/api/v1/nothing", 404, "not_found"),
    ],
)
def test_errors_have_one_shape(client: TestClient, url: str, status: int, code: str) -> None:
    answer = client.get(url)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["message"]


def test_marks_come_page_by_page_each_once(client: TestClient, rows: Rows) -> None:
    rows.said = 5
    seen, pages, cursor = 0, 0, None
    while pages == 0 or cursor is not None:
        query = {"from": "2001-01-01T00:00:00Z", "to": "2002-01-01T00:00:00Z", "limit": "2"}
        answer = client.get("/api/v1/marks", params=query | ({"cursor": cursor} if cursor else {})).json()
        seen, pages, cursor = seen + len(answer["items"]), pages + 1, answer["next"]
    assert (seen, pages) == (5, 3)


def test_a_score_over_more_marks_than_are_read_is_refused(client: TestClient, rows: Rows) -> None:
    rows.said = MOST_MARKS + 1
    refused = client.get("/api/v1/bursts/score")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_query")


def test_windows_of_a_path_come_page_by_page_each_once(client: TestClient, rows: Rows) -> None:
    query = {"path": "00000000000000ff", "from": "1970-01-01T00:00:00Z", "to": "1970-01-01T01:00:00Z", "limit": "10"}
    starts: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = client.get("/api/v1/samples", params=query | ({"cursor": cursor} if cursor else {})).json()
        starts += [item["start_time"] for item in answer["items"]]
        cursor = answer["next"]
    assert starts == [f"1970-01-01T00:{second // 60:02d}:{second % 60:02d}Z" for second in range(0, 250, 10)]
    first = client.get("/api/v1/samples", params=query).json()["items"][0]
    assert (first["sent"], first["lost"], first["delay_p99_ns"], first["doubtful"]) == (50, 2, 3, "late")
    assert rows.asked[0] == ("samples", 255, 0, 3600 * 10**9)
    assert len(rows.asked) == 4  # no more is read than a page shows


def test_without_targets_there_are_no_carriers(client: TestClient) -> None:
    assert client.get("/api/v1/carriers").json() == {"items": [], "next": None}


def test_gaps_say_why(client: TestClient) -> None:
    item = client.get("/api/v1/gaps").json()["items"][0]
    assert (item["node"], item["reason"], item["batch_class"], item["records"]) == ("a", "spool_limit", "evidence", 5)


def test_nothing_can_be_written(client: TestClient) -> None:
    assert client.post("/api/v1/paths").json()["error"]["code"] == "method_not_allowed"


def test_a_fault_of_ours_tells_no_more_than_its_kind(client: TestClient, rows: Rows) -> None:
    rows.fault = RuntimeError("secret path")
    answer = client.get("/api/v1/paths")
    assert answer.status_code == 500
    assert answer.json()["error"] == {"code": "internal", "message": "the collector failed to answer: RuntimeError"}


def test_metrics_are_prometheus_text(client: TestClient) -> None:
    answer = client.get("/metrics")
    assert (answer.status_code, answer.text, answer.headers["content-type"]) == (200, "up 0\n", TEXT_TYPE)


def test_metrics_are_openmetrics_for_who_prefers_it(client: TestClient) -> None:
    answer = client.get("/metrics", headers={"Accept": PROMETHEUS_2})
    assert (answer.text, answer.headers["content-type"]) == ("up 1\n", OPENMETRICS_TYPE)


def test_damage_of_the_past_is_a_warning_and_no_failure(rows: Rows) -> None:
    answer = make(rows, warnings=lambda: {"log": "evidence/2026-12-01.log is gone"}).get("/healthz")
    assert answer.status_code == 200
    assert answer.json()["warnings"] == {"log": "evidence/2026-12-01.log is gone"}


def test_health_names_the_part_that_fails(rows: Rows) -> None:
    assert make(rows).get("/healthz").json() == {"status": "ok", "parts": {"log": "ok"}, "warnings": {}}
    failing = make(rows, health=lambda: {"log": "ok", "analysis": "stopped"}).get("/healthz")
    assert failing.status_code == 503
    parts = {"log": "ok", "analysis": "stopped"}
    assert failing.json() == {"status": "failing", "parts": parts, "warnings": {}}


def test_the_description_of_the_api_is_served(client: TestClient) -> None:
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    assert {f"/api/v1/{name}" for name in ("nodes", "paths", "incidents", "timetable", "accounting")} <= set(paths)


def test_marks_are_shown_with_names_and_utc_times(client: TestClient) -> None:
    (item,) = client.get("/api/v1/marks").json()["items"]
    assert (item["node"], item["time"], item["phase"], item["kind"]) == (
        "a",
        "2001-09-09T01:46:40Z",
        "begin",
        "checkpoint",
    )
    assert (item["step"], item["bytes"], item["rank"], item["said_time"]) == (500, 2**30, 3, None)
    assert item["labels"] == {"slurm_job_id": "77"}


def test_lanes_are_judged_over_a_week(client: TestClient, rows: Rows) -> None:
    other, item = client.get("/api/v1/lanes").json()["items"]
    assert (other["lane"], other["verdict"]) == ("rail0", "not known")
    assert item == {
        "site": "s", "lane": "storage", "other_lane": "rail0", "verdict": "shared", "bursts": 1, "hurting": 1,
        "answer": "shared: 1 of 1 bursts on storage hurt rail0", "first_time": "2001-09-09T01:46:40Z",
        "last_time": "2001-09-09T01:46:40Z", "incidents": ["i"],
    }  # fmt: skip
    _, from_ns, to_ns = rows.asked[-1]
    assert int(str(to_ns)) - int(str(from_ns)) == 7 * 86_400 * 10**9


def test_bursts_are_shown_with_their_members(client: TestClient, rows: Rows) -> None:
    (item,) = client.get("/api/v1/bursts?from=2026-12-01T00:00:00Z&to=2026-12-02T00:00:00Z&active=true").json()["items"]
    assert (item["scope"], item["name"], item["kind"], item["marked"], item["step"]) == (
        "job",
        "llm",
        "save",
        True,
        500,
    )
    assert (item["start_time"], item["next_start_time"]) == ("2026-12-01T00:10:00Z", "2026-12-01T00:20:00Z")
    (member,) = item["members"]
    assert (member["node"], member["nic"], member["bytes"], member["end_time"]) == ("a", "eth0", 10**9, None)
    assert rows.asked[-1] == ("bursts", 1_796_083_200 * 10**9, 1_796_169_600 * 10**9, True)


def test_the_score_of_bursts_is_one_object(client: TestClient) -> None:
    score = client.get("/api/v1/bursts/score?from=2026-12-01T00:00:00Z&to=2026-12-02T00:00:00Z").json()
    assert (score["detections"], score["precision_ratio"], score["events"]) == (1, 0.0, 1)


def test_a_series_is_given_page_by_page(client: TestClient) -> None:
    asked = "/api/v1/series?node=a&nic=eth0&from=2026-12-01T00:00:00Z&to=2026-12-01T00:01:00Z&limit=2"
    first = client.get(asked).json()
    assert [item["time"] for item in first["items"]] == ["2026-12-01T00:00:00Z", "2026-12-01T00:00:01Z"]
    assert first["items"][0]["transmit_bps"] == 8e6
    second = client.get(f"{asked}&cursor={first['next']}").json()
    assert [item["time"] for item in second["items"]] == ["2026-12-01T00:00:02Z"]
    assert second["next"] is None
    refused = client.get(f"{asked}&cursor=bm9uc2Vuc2U=")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_query")
    assert client.get("/api/v1/series?node=a").status_code == 400
