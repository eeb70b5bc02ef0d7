"""What tests of alerting share: a real Prometheus and a real Alertmanager as deploy/prometheus configures them, and who
is told. Only addresses, receivers and intervals differ from the samples."""

import contextlib
import json
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import yaml

FOLDER = Path(__file__).parents[2] / "deploy/prometheus"
WITHIN_S = 15.0
T = TypeVar("T")


def until(what: str, look: Callable[[], T | None], within_s: float = WITHIN_S) -> T:
    """The first answer that is true; fails after ``within_s``."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)  # between two looks at the condition
    raise AssertionError(f"not within {within_s} s: {what}")


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


class Told(ThreadingHTTPServer):
    """Takes what Alertmanager sends."""

    daemon_threads = True

    def __init__(self, handler: "type[BaseHTTPRequestHandler] | None" = None) -> None:
        super().__init__(("127.0.0.1", 0), handler or TakesAlerts)
        self.received: list[tuple[str, dict[str, Any]]] = []  # receiver, one alert

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def alerts(self, name: str, status: str) -> list[tuple[str, dict[str, Any]]]:
        """What was received of one alert."""
        return [
            (receiver, alert)
            for receiver, alert in list(self.received)
            if alert["labels"]["alertname"] == name and alert["status"] == status
        ]

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class TakesAlerts(BaseHTTPRequestHandler):
    server: Told

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.received += [(message["receiver"], alert) for alert in message["alerts"]]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: pytest shows what matters."""


@contextlib.contextmanager
def alertmanager_for(told: Told, home: Path) -> Iterator[str]:
    """Starts an Alertmanager whose receivers all lead to ``told``; yields its URL."""
    sample = yaml.safe_load((FOLDER / "alertmanager.yaml").read_text())
    sample["templates"] = [str(FOLDER / "templates/*.tmpl")]
    for route in (sample["route"], *sample["route"]["routes"]):
        route.update(group_wait="100ms", group_interval="500ms")
    sample["receivers"] = [
        {"name": receiver["name"], "webhook_configs": [{"url": f"http://{told.address}/", "send_resolved": True}]}
        for receiver in sample["receivers"]
    ]
    (home / "alertmanager.yaml").write_text(yaml.safe_dump(sample))
    with server(
        home / "log", "prometheus-alertmanager", f"--config.file={home / 'alertmanager.yaml'}",
        f"--storage.path={home / 'data'}", "--web.listen-address=127.0.0.1:0", "--cluster.listen-address=",
    ) as url:  # fmt: skip
        yield url


@contextlib.contextmanager
def prometheus_for(target: str, alertmanager: str, home: Path, *, every: str = "250ms") -> Iterator[str]:
    """Starts a Prometheus that scrapes ``target`` and looks at its rules ``every`` so often; yields its URL."""
    sample = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    sample["global"] = {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
    sample["rule_files"] = [str(FOLDER / name) for name in sample["rule_files"]]
    sample["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [alertmanager.removeprefix("http://")]
    job = sample["scrape_configs"][0]
    job.pop("scrape_timeout", None)
    job["static_configs"][0]["targets"] = [target]
    (home / "prometheus.yaml").write_text(yaml.safe_dump(sample))
    with server(
        home / "log", "prometheus", f"--config.file={home / 'prometheus.yaml'}",
        f"--storage.tsdb.path={home / 'data'}", "--web.listen-address=127.0.0.1:0",
    ) as url:  # fmt: skip
        yield url
