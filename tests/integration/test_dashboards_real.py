"""Every query of Grafana's dashboards, run by a real Prometheus that scraped our real exporter.

Grafana's own part (filling in variables) is done here as Grafana documents it; no Grafana server takes part.
"""

import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from collector.analysis.snapshot import Snapshot
from collector.app.figures import enrolment_of, intake_of
from collector.app.remote import Remotes
from collector.config import Collector, RemoteWrite
from collector.export.exposition import TEXT_TYPE, Sample
from collector.export.prometheus import PARTS, Exporter, Scrape
from collector.ingest import Sessions
from collector.log import Log
from grafana.make_dashboards import DASHBOARDS
from grafana.panels import Json
from tests.fakes.dashboards import (
    Prometheus,
    Series,
    choose,
    figures,
    fill_in,
    options,
    prometheus,
    results,
    until,
)
from tests.fakes.moving_fleet import NODES, moving_fleet

SECOND = 1_000_000_000
SCRAPES = 10  # one a second: enough for three throughput results of each path


@contextmanager
def serving(exporter: Exporter) -> Iterator[int]:
    """The port at which ``exporter`` answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exporter.render().encode()
            self.send_response(200)
            self.send_header("Content-Type", TEXT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def broken(_: Scrape) -> Iterator[tuple[str, Sample]]:
    raise OSError("no such device")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Has scraped a fleet in which every kind of figure exists."""
    directory = tmp_path_factory.mktemp("full")
    start = time.time_ns()
    log, sessions = Log.open(directory / "collector"), Sessions()
    enrolled: Counter[str] = Counter()
    sessions.statistics.refused_streams["PERMISSION_DENIED"] += 1

    def snapshot() -> Snapshot:
        log.statistics.groups += 3
        log.statistics.commit_s += 0.01
        enrolled.update({"enrolled": 2, "wrong_token": 1})
        return moving_fleet(start, (time.time_ns() - start) // SECOND)

    to = (RemoteWrite(name="p", url="http://127.0.0.1:9090/api/v1/write"),)
    remotes = Remotes(Collector(remote_write=to), directory / "store.sqlite", time.time_ns)
    remotes.senders[0].statistics.last_success_ns = start
    remotes.senders[0].statistics.trouble = "503"
    parts = (*PARTS, intake_of(sessions, log), enrolment_of(enrolled, sessions), remotes.remote_write, broken)
    with (
        serving(Exporter(snapshot, lambda node: node, parts=parts)) as port,
        prometheus(directory, port, SCRAPES) as server,
    ):
        yield server
    log.close()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Has scraped a collector that knows nothing yet."""
    directory = tmp_path_factory.mktemp("empty")
    exporter = Exporter(Snapshot, lambda node: node)
    with serving(exporter) as port, prometheus(directory, port) as server:
        yield server


# ---------------------------------------------------------------- what is expected of it

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard["uid"])


def labels_of(series: Series) -> set[str]:
    return set(series["metric"]) - {"__name__"}


def points(series: Series) -> list[float]:
    return [float(value) for _, value in series.get("values", [series.get("value")])]


def legend(target: Json, series: Series) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: series["metric"][match[1]], target["legendFormat"])


def shown_columns(panel: Json) -> set[str]:
    """Labels that a table shows, by its transformations."""
    for step in panel["transformations"]:
        if step["id"] == "groupingToMatrix":
            return {step["options"]["rowField"], step["options"]["columnField"]}
    (organize,) = [step for step in panel["transformations"] if step["id"] == "organize"]
    return {name for name in organize["options"]["indexByName"] if not name.startswith("Value")}


def check_shape(panel: Json, target: Json, found: list[Series]) -> None:
    """Data of the shape that the panel's type and names ask for."""
    where = (panel["title"], target["expr"])
    assert found, where
    for series in found:
        assert any(math.isfinite(value) for value in points(series)), where
    if panel["type"] == "stat":
        assert len(found) == 1, where
    elif panel["type"] in ("table", "barchart"):
        assert [labels for labels in map(labels_of, found) if labels != shown_columns(panel)] == [], where
    elif panel["type"] == "heatmap":
        assert all(labels_of(series) == {"le"} for series in found), where
        assert len(found) > 10, where
    else:
        assert panel["type"] == "timeseries"
        for series in found:
            assert legend(target, series), where  # every label that it names is there
    if panel["fieldConfig"]["defaults"]["unit"] == "percentunit":
        assert all(-1 <= value <= 1.5 for series in found for value in points(series) if math.isfinite(value)), where


@each_dashboard
def test_every_variable_offers_values(full: Prometheus, dashboard: Json) -> None:
    values = choose(full, dashboard)
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            assert options(full, variable, values), variable["name"]


@each_dashboard
def test_every_query_returns_what_its_panel_shows(full: Prometheus, dashboard: Json) -> None:
    values = choose(full, dashboard)
    for panel in figures(dashboard):
        for target, found in zip(panel["targets"], results(full, panel, values), strict=True):
            check_shape(panel, target, found)


@each_dashboard
def test_lines_of_one_graph_have_names_of_their_own(full: Prometheus, dashboard: Json) -> None:
    values = choose(full, dashboard)
    if any("repeat" in row for row in dashboard["panels"]):
        values["node"] = values["node"][:1]  # opened for one node at a time
    for panel in figures(dashboard):
        if panel["type"] == "timeseries":
            names = [
                legend(target, series)
                for target, found in zip(panel["targets"], results(full, panel, values), strict=True)
                for series in found
            ]
            assert len(set(names)) == len(names), panel["title"]


@each_dashboard
def test_annotations_say_what_is_open(full: Prometheus, dashboard: Json) -> None:
    for annotation in dashboard["annotations"]["list"]:
        found = full.range(annotation["expr"])
        assert len(found) == {"Incidents · 事件": 5, "Marked checkpoints · 检查点标记": 1}[annotation["name"]]
        for series in found:
            text = annotation["titleFormat"] + annotation["textFormat"] + annotation["tagKeys"]
            named = set(re.findall(r"\{\{(\w+)\}\}", text)) - {"during"}  # a label that is empty is none
            assert named <= labels_of(series)


@each_dashboard
def test_a_collector_without_data_leaves_panels_empty_and_no_query_fails(empty: Prometheus, dashboard: Json) -> None:
    values = choose(empty, dashboard)
    for panel in figures(dashboard):
        for found in results(empty, panel, values):
            assert all(not value for series in found for value in points(series)) or "collector" in json.dumps(
                panel["targets"]
            ), panel["title"]


def test_counts_are_zero_where_nothing_is_wrong_and_empty_where_nobody_looked(empty: Prometheus) -> None:
    counted = [panel for dashboard in DASHBOARDS for panel in figures(dashboard) if " or 0 * max(" in json.dumps(panel)]
    assert len(counted) >= 7
    for panel in counted:
        expr = fill_in(panel["targets"][0]["expr"], {name: [".*"] for name in ("site", "rack", "node", "dst", "lane")})
        assert [points(series) for series in empty.instant(expr)] == [[0.0]], panel["title"]
        assert empty.instant(expr, at=empty.scraped_from - 1) == [], panel["title"]


def board(name: str) -> Json:
    (found,) = [dashboard for dashboard in DASHBOARDS if dashboard["uid"] == f"bandwitness-{name}"]
    return found


def panel_of(dashboard: Json, number: int) -> Json:
    (found,) = [panel for panel in figures(dashboard) if panel["id"] == number]
    return found


def test_rack_and_node_narrow_what_is_shown(full: Prometheus) -> None:
    fleet = board("fleet")
    values = choose(full, fleet, rack="a1")
    assert set(values["node"]) == {"a1-1", "a1-2"}
    ((*cells,),) = results(full, panel_of(fleet, 11), values)
    assert {cell["metric"]["src"] for cell in cells} == {"a1-1", "a1-2"}
    values = choose(full, fleet, node="b1-1", lane="rail1")
    ((*cells,),) = results(full, panel_of(fleet, 11), values)
    assert {cell["metric"]["src"] for cell in cells} == {"b1-1"}


def test_the_mesh_has_a_cell_for_each_pair(full: Prometheus) -> None:
    fleet = board("fleet")
    ((*cells,),) = results(full, panel_of(fleet, 13), choose(full, fleet))
    assert len(cells) == len(NODES) * (len(NODES) - 1)
    assert all(40e9 < points(cell)[0] < 100e9 for cell in cells)  # bit/s


def test_racks_have_the_loss_of_their_nodes(full: Prometheus) -> None:
    """20 of 1000 packets are lost on every path, whatever racks it joins; targets have no rack."""
    fleet = board("fleet")
    ((*cells,),) = results(full, panel_of(fleet, 15), choose(full, fleet))
    assert len(cells) == 8  # of 3 × 3; the one node of b1 has nobody in its rack
    assert [points(cell)[0] for cell in cells] == pytest.approx([0.02] * 8)


def test_planned_tests_are_the_sum_of_how_they_ended(full: Prometheus) -> None:
    oversubscription = board("oversubscription")
    panel = panel_of(oversubscription, 3)
    values = choose(full, oversubscription)
    # In one query, so that no scrape comes between.
    planned, *rest = (f"({fill_in(target['expr'], values)})" for target in panel["targets"])
    ((series,),) = [full.instant(f"{planned} - {' - '.join(rest)}")]
    assert points(series) == [0.0]
    assert all(points(found[0])[0] > 0 for found in results(full, panel, values))


def test_each_result_is_one_dot(full: Prometheus) -> None:
    """Results come every three seconds; the graph's step is one."""
    oversubscription = board("oversubscription")
    ((*dots,),) = results(full, panel_of(oversubscription, 21), choose(full, oversubscription))
    assert len(dots) == len(NODES) * (len(NODES) - 1) * 2
    for series in dots:
        assert 1 <= len(points(series)) <= 4
        assert len(set(points(series))) == len(points(series))  # each is faster than the one before it


def test_idle_and_loaded_are_apart(full: Prometheus) -> None:
    path = board("path")
    idle, loaded = results(full, panel_of(path, 11), choose(full, path))
    assert {series["metric"]["lane"] for series in idle} == {"rail0"}
    assert {series["metric"]["lane"] for series in loaded} == {"rail1"}


def test_a_collector_that_is_gone_shows_as_down(tmp_path: Path) -> None:
    scrape, critical = panel_of(board("itself"), 1), panel_of(board("fleet"), 1)
    with ExitStack() as collector, ExitStack() as rest:
        port = collector.enter_context(serving(Exporter(Snapshot, lambda node: node)))
        server = rest.enter_context(prometheus(tmp_path, port))
        shown = [[points(series) for series in results(server, panel, {})[0]] for panel in (scrape, critical)]
        assert shown == [[[1.0]], [[0.0]]]
        collector.close()
        until(lambda: [points(series) for series in results(server, scrape, {})[0]] == [[0.0]])
        assert results(server, critical, {}) == [[]]  # no longer "0 incidents"
