"""A real Prometheus and a real Alertmanager, as deploy/prometheus configures them, around our Exporter.

Only addresses, receivers and intervals differ from the samples. Time from fault to webhook is printed (pytest -s).
"""

import contextlib
import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from collector.analysis.snapshot import Snapshot
from collector.export.exposition import TEXT_TYPE
from collector.export.prometheus import Exporter
from collector.model import Element, EndpointRow, Incident, NodeRow

FOLDER = Path(__file__).parents[2] / "deploy/prometheus"
WITHIN_S = 15.0
T = TypeVar("T")
Labels = dict[str, str]


def node(name: str, address: str) -> NodeRow:
    endpoint = EndpointRow(name, "eth0", address, "rail0")
    return NodeRow(
        name, "idc-a", "r1", (endpoint,), True, time.time_ns(), None, "0.1.0", "3.12", True, 2_000_000, 4096, 0
    )


def incident(rule: str, severity: str, kind: str, name: str) -> Incident:
    return Incident(f"{rule} {name}", rule, 1, Element(kind, name), severity, 1, None, 2, "", {})


def until(what: str, look: Callable[[], T | None]) -> T:
    """The first answer that is true; fails after WITHIN_S."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)  # between two looks at the condition
    raise AssertionError(f"not within {WITHIN_S} s: {what}")


class Stage(ThreadingHTTPServer):
    """Serves what the collector would, and takes what Alertmanager sends."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.snapshot = Snapshot(
            made_time_ns=time.time_ns(), nodes=(node("n1", "198.18.1.1"), node("n2", "198.18.1.2"))
        )
        self.exporter = Exporter(lambda: self.snapshot, lambda row: row)
        self.received: list[tuple[str, dict[str, Any]]] = []  # receiver, one alert

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def set_incidents(self, *incidents: Incident) -> None:
        self.snapshot = replace(self.snapshot, incidents=incidents)

    def alerts(self, name: str, status: str) -> list[tuple[str, dict[str, Any]]]:
        """What was received of one alert."""
        return [
            (receiver, alert)
            for receiver, alert in list(self.received)
            if alert["labels"]["alertname"] == name and alert["status"] == status
        ]


class Handler(BaseHTTPRequestHandler):
    server: Stage

    def do_GET(self) -> None:
        body = self.server.exporter.render().encode()
        self.send_response(200)
        self.send_header("Content-Type", TEXT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.received += [(message["receiver"], alert) for alert in message["alerts"]]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: pytest shows what matters."""


@contextlib.contextmanager
def server(log: Path, *command: str) -> Iterator[str]:
    """Starts a server on a port that the kernel chooses; yields its URL."""
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:

        def listening() -> str | None:
            assert process.poll() is None, log.read_text()
            found = re.search(r'msg="Listening on" address=(\S+)', log.read_text())
            return f"http://{found[1]}" if found else None

        try:
            yield until(f"{command[0]} listens", listening)
        finally:
            process.terminate()
            process.wait(10)


def get(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except OSError:  # not ready yet
        return None


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        thread = threading.Thread(target=stage.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield stage
        stage.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def alertmanager(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("alertmanager")
    sample = yaml.safe_load((FOLDER / "alertmanager.yaml").read_text())
    sample["templates"] = [str(FOLDER / "templates/*.tmpl")]
    for route in (sample["route"], *sample["route"]["routes"]):
        route.update(group_wait="100ms", group_interval="500ms")
    sample["receivers"] = [
        {"name": receiver["name"], "webhook_configs": [{"url": f"http://{stage.address}/", "send_resolved": True}]}
        for receiver in sample["receivers"]
    ]
    (home / "alertmanager.yaml").write_text(yaml.safe_dump(sample))
    with server(
        home / "log", "prometheus-alertmanager", f"--config.file={home / 'alertmanager.yaml'}",
        f"--storage.path={home / 'data'}", "--web.listen-address=127.0.0.1:0", "--cluster.listen-address=",
    ) as url:  # fmt: skip
        yield url


@pytest.fixture
def prometheus(stage: Stage, alertmanager: str, tmp_path: Path) -> Iterator[str]:
    sample = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    sample["global"] = {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "250ms"}
    sample["rule_files"] = [str(FOLDER / name) for name in sample["rule_files"]]
    sample["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [alertmanager.removeprefix("http://")]
    job = sample["scrape_configs"][0]
    del job["scrape_timeout"]
    job["static_configs"][0]["targets"] = [stage.address]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(sample))
    with server(
        tmp_path / "log", "prometheus", f"--config.file={tmp_path / 'prometheus.yaml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}", "--web.listen-address=127.0.0.1:0",
    ) as url:  # fmt: skip
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
