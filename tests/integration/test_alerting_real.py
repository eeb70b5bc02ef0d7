"""A real Prometheus and a real Alertmanager, as deploy/prometheus configures them, around our Exporter.

Time from fault to webhook is printed (pytest -s); from a packet on the wire: tests/lab/test_alerting.py.
"""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from collector.analysis.snapshot import Snapshot
from collector.export.exposition import TEXT_TYPE
from collector.export.prometheus import Exporter
from collector.model import Element, EndpointRow, Incident, NodeRow
from tests.fakes.alerting import TakesAlerts, Told, alertmanager_for, get, prometheus_for, until

Labels = dict[str, str]


def node(name: str, address: str) -> NodeRow:
    endpoint = EndpointRow(name, "eth0", address, "rail0")
    return NodeRow(
        name, "idc-a", "r1", (endpoint,), True, time.time_ns(), None, "0.1.0", "3.12", True, 2_000_000, 4096, 0
    )


def incident(rule: str, severity: str, kind: str, name: str) -> Incident:
    return Incident(f"{rule} {name}", rule, 1, Element(kind, name), severity, 1, None, 2, "", {})


class Stage(Told):
    """Serves what the collector would, and takes what Alertmanager sends."""

    def __init__(self) -> None:
        super().__init__(ServesMetrics)
        self.snapshot = Snapshot(
            made_time_ns=time.time_ns(), nodes=(node("n1", "198.18.1.1"), node("n2", "198.18.1.2"))
        )
        self.exporter = Exporter(lambda: self.snapshot, lambda row: row)

    def set_incidents(self, *incidents: Incident) -> None:
        self.snapshot = replace(self.snapshot, incidents=incidents)


class ServesMetrics(TakesAlerts):
    server: Stage

    def do_GET(self) -> None:
        body = self.server.exporter.render().encode()
        self.send_response(200)
        self.send_header("Content-Type", TEXT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    with stage.listening():
        yield stage


@pytest.fixture(scope="module")
def alertmanager(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with alertmanager_for(stage, tmp_path_factory.mktemp("alertmanager")) as url:
        yield url


@pytest.fixture
def prometheus(stage: Stage, alertmanager: str, tmp_path: Path) -> Iterator[str]:
    with prometheus_for(stage.address, alertmanager, tmp_path) as url:
        yield url


def query(prometheus: str, expression: str) -> list[Labels]:
    answer = get(f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    return [row["metric"] for row in answer["data"]["result"]] if answer else []


def states(alertmanager: str, instance: str) -> dict[str, str]:
    """Alerts of one collector, active or suppressed."""
    found = get(f"{alertmanager}/api/v2/alerts?" + urllib.parse.urlencode({"filter": f'instance="{instance}"'}))
    return {alert["labels"]["alertname"]: alert["status"]["state"] for alert in found or ()}


@pytest.mark.timeout(90)
def test_a_fault_pages_once_and_is_resolved(stage: Stage, alertmanager: str, prometheus: str) -> None:
    until("a first scrape", lambda: query(prometheus, "bandwitness:collector_speaks"))
    until("no alert", lambda: not query(prometheus, "ALERTS"))  # before the first scrape there was no target

    loss = incident("loss", "critical", "endpoint", "n1/eth0")
    begun = time.monotonic()
    stage.set_incidents(loss)
    [(receiver, alert), *_] = until("the page", lambda: stage.alerts("BandwitnessLoss", "firing"))
    print(f"from fault to webhook: {time.monotonic() - begun:.2f} s")
    assert receiver == "page"
    expected = {"severity": "critical", "node": "n1", "job": "bandwitness", "instance": stage.address}
    assert expected.items() <= alert["labels"].items()
    assert alert["annotations"]["summary"] == "Packets are lost at endpoint n1/eth0"
    assert alert["annotations"]["summary_zh"] == "endpoint n1/eth0 丢包"

    # What follows from it is seen and told to nobody.
    stage.set_incidents(
        loss, incident("delay", "warning", "endpoint", "n1/eth0"), incident("agent_silent", "warning", "agent", "n1")
    )
    whole = {
        "BandwitnessLoss": "active",
        "BandwitnessDelay": "suppressed",
        "BandwitnessAgentSilent": "suppressed",
    }
    until("the effects", lambda: states(alertmanager, stage.address) == whole)
    stage.set_incidents(loss)
    until("the effects' end", lambda: states(alertmanager, stage.address) == {"BandwitnessLoss": "active"})

    stage.set_incidents()
    until("the all-clear", lambda: stage.alerts("BandwitnessLoss", "resolved"))
    assert {alert["labels"]["alertname"] for _, alert in stage.received} == {"BandwitnessLoss"}
    assert len(stage.alerts("BandwitnessLoss", "firing")) == 1


AGENT = {"site": "idc-a", "node": "n1"}
LOSS = ("BandwitnessLoss", {"severity": "critical", "kind": "uplink", "element": "r1", "rack": "r1"})
SILENT = ("BandwitnessAgentSilent", AGENT)
SITE = ("BandwitnessSiteSilent", {"site": "idc-a"})
PAIR = ("BandwitnessThroughputPairNotTested", {"src": "n1", "dst": "n2"})
DOWN: tuple[str, Labels] = ("BandwitnessCollectorDown", {})
LOG: tuple[str, Labels] = ("BandwitnessCollectorLogFailing", {})
CAUSES: Sequence[tuple[str, tuple[str, Labels], tuple[str, Labels], str]] = (
    ("collector down, loss", DOWN, LOSS, "suppressed"),
    ("log failing, agents silent", LOG, SILENT, "suppressed"),
    ("log failing, site silent", LOG, SITE, "suppressed"),
    ("log failing, loss", LOG, LOSS, "active"),
    ("analysis", ("BandwitnessCollectorAnalysisFailing", {}), ("BandwitnessCollectorAnalysisBehind", {}), "suppressed"),
    ("site, its agents", SITE, SILENT, "suppressed"),
    ("another site", ("BandwitnessSiteSilent", {"site": "idc-b"}), ("BandwitnessAgentSilent", AGENT), "active"),
    ("agent, its part", ("BandwitnessAgentSilent", AGENT), ("BandwitnessAgentPartNotWorking", AGENT), "suppressed"),
    ("another agent", ("BandwitnessAgentSilent", {"node": "n2"}), ("BandwitnessAgentPartNotWorking", AGENT), "active"),
    ("rack, its agents", LOSS, ("BandwitnessAgentSilent", {**AGENT, "rack": "r1"}), "suppressed"),
    ("another rack", LOSS, ("BandwitnessAgentSilent", {**AGENT, "rack": "r2"}), "active"),
    ("loss and delay", LOSS, ("BandwitnessDelay", {"kind": "uplink", "element": "r1"}), "suppressed"),
    ("delay elsewhere", LOSS, ("BandwitnessDelay", {"kind": "uplink", "element": "r2"}), "active"),
    ("tests, a pair", ("BandwitnessThroughputTestsFailing", {}), PAIR, "suppressed"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "cause", "effect", "state"), CAUSES, ids=[case[0] for case in CAUSES])
def test_one_cause_is_told_once(
    alertmanager: str, name: str, cause: tuple[str, Labels], effect: tuple[str, Labels], state: str
) -> None:
    of_scraping = {"job": "bandwitness", "instance": name}
    alerts = [
        {"labels": {"severity": "warning", **of_scraping, **labels, "alertname": alert}}
        for alert, labels in (cause, effect)
    ]
    elsewhere = {"labels": {**alerts[1]["labels"], "instance": f"{name}, another collector"}}
    request = urllib.request.Request(
        f"{alertmanager}/api/v2/alerts", json.dumps([*alerts, elsewhere]).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=5):
        pass
    expected = {cause[0]: "active", effect[0]: state}
    until("both known", lambda: states(alertmanager, name) == expected)
    until("the other's", lambda: states(alertmanager, f"{name}, another collector") == {effect[0]: "active"})
