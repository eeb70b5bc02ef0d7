"""What Grafana does with a dashboard, done on a real Prometheus: variables filled in as Grafana documents it, and every
query asked."""

import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from agent.probe.process import die_with_parent
from grafana.panels import Json

ENOUGH_S = 60
BUILT_IN = {"__interval": "1s", "__rate_interval": "10s", "__range": "10s"}

Series = dict[str, Any]


@dataclass(frozen=True)
class Prometheus:
    """A running one, and what it saw."""

    http: httpx2.Client
    scraped_from: float  # some moment before the first scrape

    def ask(self, path: str, **parameters: str | float | list[str]) -> Any:
        answer = self.http.get(f"/api/v1/{path}", params=parameters).json()
        assert answer["status"] == "success", (parameters, answer)
        return answer["data"]

    def instant(self, expr: str, at: float | None = None) -> list[Series]:
        data = self.ask("query", query=expr, **({} if at is None else {"time": at}))
        return [] if data["resultType"] == "scalar" else list(data["result"])

    def range(self, expr: str, seconds: float = 8) -> list[Series]:
        now = time.time()
        return list(self.ask("query_range", query=expr, start=now - seconds, end=now, step=1)["result"])


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ENOUGH_S
    while not what():
        assert time.monotonic() < deadline, "Prometheus does not come as far"
        time.sleep(0.1)  # between two looks at the condition


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def prometheus(directory: Path, target: int, scrapes: int = 2, interval: str = "1s") -> Iterator[Prometheus]:
    """Scrapes ``target`` each second, or as often as told; ended with the block."""
    configuration = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval},
        "scrape_configs": [{"job_name": "bandwitness", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
    }
    (directory / "prometheus.yml").write_text(json.dumps(configuration))
    port, begun = free_port(), time.time()
    command = [
        *die_with_parent(), "prometheus", f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (directory / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as http:
                server = Prometheus(http, begun)

                def scraped() -> bool:
                    assert process.poll() is None, (directory / "log").read_text()
                    try:
                        if http.get("/-/ready").status_code != 200:
                            return False
                    except httpx2.TransportError:
                        return False
                    times = server.instant("count_over_time(scrape_samples_scraped[1m])")
                    return bool(times) and float(times[0]["value"][1]) >= scrapes

                until(scraped)
                yield server
        finally:
            process.terminate()
            process.wait(20)


# ---------------------------------------------------------------- what Grafana does


def fill_in(text: str, values: Mapping[str, list[str]]) -> str:
    """As for a Prometheus data source: several values become a group of a regular expression."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name.isdigit():
            return match[0]  # label_replace's
        if name in BUILT_IN:
            return BUILT_IN[name]
        chosen = values[name]
        return chosen[0] if len(chosen) == 1 else f"({'|'.join(map(escaped, chosen))})"

    return re.sub(r"\$(\w+)", value, text)


def escaped(value: str) -> str:
    """For a regular expression inside a PromQL string."""
    return re.sub(r"[\\^$*+?.()|\[\]{}]", lambda match: r"\\" + match[0], value)


def options(server: Prometheus, variable: Json, values: Mapping[str, list[str]]) -> list[str]:
    """What the variable offers."""
    match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
    assert match, variable["query"]
    return list(server.ask(f"label/{match[2]}/values", **{"match[]": fill_in(match[1], values)}))


def choose(server: Prometheus, dashboard: Json, **chosen: str) -> dict[str, list[str]]:
    """Each variable's value: as chosen, else All where it is offered, else the first one."""
    values: dict[str, list[str]] = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        offered = options(server, variable, values)
        if variable["name"] in chosen:
            assert chosen[variable["name"]] in offered
            values[variable["name"]] = [chosen[variable["name"]]]
        elif variable["includeAll"]:
            values[variable["name"]] = [variable["allValue"]] if "allValue" in variable else offered or [""]
        else:
            values[variable["name"]] = offered[:1] or [""]
    return values


def figures(dashboard: Json) -> Iterator[Json]:
    for panel in dashboard["panels"]:
        yield from panel["panels"] if panel["type"] == "row" else [panel]


def empty_panels(server: Prometheus, dashboard: Json, seconds: float) -> list[str]:
    """Titles of panels for which none of the queries has anything, over the last so many seconds."""
    values = choose(server, dashboard)
    found = []
    for panel in figures(dashboard):
        queries = [(fill_in(target["expr"], values), target["instant"]) for target in panel["targets"]]
        answers = [server.instant(expr) if instant else server.range(expr, seconds) for expr, instant in queries]
        if not any(answers):
            found.append(panel["title"])
    return found


def results(server: Prometheus, panel: Json, values: Mapping[str, list[str]]) -> list[list[Series]]:
    """Of each query, at the end of the time range or over it."""
    found = []
    for target in panel["targets"]:
        expr = fill_in(target["expr"], values)
        found.append(server.instant(expr) if target["instant"] else server.range(expr))
    return found
