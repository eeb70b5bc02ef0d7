"""The demo: its final check, its words, its refusals; and once, in the long run, the whole of it."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab import demo, verdict
from tests.lab.demo_view import incident_lines, metric_lines, result
from tests.lab.lab import SYSTEM_PATH, processes_of_labs, wait_for
from tests.lab.topology import Tenant, Topology

ROOT = Path(__file__).parents[2]
TOPOLOGY = Topology({"r1": 2, "r2": 1}, tenant=Tenant("r1"))
INCIDENT = {
    "rule": "oversubscription",
    "severity": "warning",
    "summary": "peak 70 % below off-peak",
    "element": {"kind": "uplink", "name": "r1"},
    "opened_time": "2026-12-01T14:00:00Z",
    "closed_time": None,
}


def path(src: str, dst: str, swing: float | None, *, flagged: bool) -> dict[str, Any]:
    return {
        "src": src,
        "dst": dst,
        "offpeak_bps": 2e8,
        "peak_bps": None if swing is None else 2e8 * (1 - swing),
        "swing_ratio": swing,
        "flagged": flagged,
        "tests_offpeak": 5,
        "tests_peak": 0 if swing is None else 5,
    }


def right_paths() -> list[dict[str, Any]]:
    crossing = verdict.oversold_paths(TOPOLOGY)
    return [
        path(a, b, 0.7 if (a, b) in crossing else 0.01, flagged=(a, b) in crossing)
        for a, b in sorted(verdict.all_paths(TOPOLOGY))
    ]


def test_the_right_verdict_has_no_faults() -> None:
    assert len(verdict.oversold_paths(TOPOLOGY)) == 4
    assert verdict.faults(right_paths(), [INCIDENT], TOPOLOGY) == []


def test_every_way_to_be_wrong_is_said_plainly() -> None:
    paths = {(entry["src"], entry["dst"]): entry for entry in right_paths()}
    paths["gpu-r1-01", "gpu-r1-02"] = path("gpu-r1-01", "gpu-r1-02", 0.5, flagged=True)
    paths["gpu-r1-01", "gpu-r2-01"] = path("gpu-r1-01", "gpu-r2-01", 0.2, flagged=False)
    paths["gpu-r1-02", "gpu-r1-01"] = path("gpu-r1-02", "gpu-r1-01", None, flagged=False)
    del paths["gpu-r2-01", "gpu-r1-01"]
    assert verdict.faults(list(paths.values()), [], TOPOLOGY) == [
        "gpu-r2-01 → gpu-r1-01: the collector has no throughput path",
        "gpu-r1-01 → gpu-r1-02: flagged with a swing of 50%, but no tenant shares its way",
        "gpu-r1-01 → gpu-r2-01: not flagged with a swing of 20%, but a tenant shares its way",
        "gpu-r1-02 → gpu-r1-01: no verdict from 5 off-peak and 0 peak tests",
        "no incident names the oversold uplink",
    ]
    calm = Topology({"r1": 2})
    steady = [path(a, b, 0.0, flagged=False) for a, b in verdict.all_paths(calm)]
    assert verdict.faults(steady, [INCIDENT], calm) == [
        "an incident was opened though no tenant was there: peak 70 % below off-peak"
    ]


def test_a_failed_test_is_shown_as_its_outcome_and_not_as_a_figure() -> None:
    attempt: dict[str, Any] = {
        "client": {"node": "a"},
        "server": {"node": "b"},
        "reverse": False,
        "category": "failed",
        "outcome": "refused",
        "client_run": {"throughput_bps": None},
    }
    assert result(attempt) == "a → b  failed: refused"
    assert result(attempt | {"client_run": None, "category": "lost", "outcome": "lost"}) == "a → b  lost: lost"
    ok = attempt | {"category": "ok", "outcome": "ok", "client_run": {"throughput_bps": 187.4e6}, "reverse": True}
    assert result(ok) == "b → a  187 Mbit/s"


def test_incidents_and_metrics_in_a_few_lines() -> None:
    loss = INCIDENT | {"rule": "loss", "closed_time": "2026-12-01T14:01:00Z", "opened_time": "2026-12-01T13:00:00Z"}
    assert incident_lines([loss, INCIDENT])[0] == (
        "warning oversubscription at uplink r1: peak 70 % below off-peak (open)"
    )
    text = "# HELP bandwitness_swing_ratio x\n" + "".join(
        f'bandwitness_swing_ratio{{path="{n}"}} 0.{n}\n' for n in "1234"
    )
    assert metric_lines(text) == ['bandwitness_swing_ratio{path="1"} 0.1', 'bandwitness_swing_ratio{path="2"} 0.2']


def test_a_port_in_use_is_a_plain_message_with_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert demo.main(["--once", "--port", str(port)]) == 1
    said = capsys.readouterr().out
    assert f"127.0.0.1:{port} cannot be listened on" in said
    assert "--port N" in said


@pytest.mark.parametrize("words", [["--port", "70000"], ["--json", "/nowhere/at/all.json"], ["--seeds", "1"]])
def test_wrong_usage_is_said_at_once(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        demo.main(words)
    assert left.value.code == 2
    assert "usage: deploy/demo.sh" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_demo_that_is_stopped_leaves_nothing(number: int, status: int, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "tests.lab.demo", "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as said:
        assert any(line.startswith("Agents connected: gpu-r1-01") for line in said)
        assert len(list(tmp_path.glob("bandwitness-demo-*"))) == 1
        process.send_signal(number)
        assert process.wait(timeout=20) == status
    wait_for("the end of everything", lambda: processes_of_labs(process.pid) == [], within=10)
    assert list(tmp_path.glob("bandwitness-demo-*")) == []


@pytest.mark.long
@pytest.mark.timeout(420)
def test_the_whole_demo(tmp_path: Path) -> None:
    """By the script, as people start it: from any directory, and without this test's virtual environment."""
    words = [str(ROOT / "deploy" / "demo.sh"), "--once", "--seed", "2", "--port", "0"]
    done = subprocess.run(
        [*words, "--json", "table.json"],
        cwd=tmp_path,
        env={name: os.environ[name] for name in ("HOME", "USER", "LANG", "TMPDIR") if name in os.environ}
        | {"PATH": SYSTEM_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = json.loads((tmp_path / "table.json").read_text())
    assert set(table) == {"paths", "incidents", "elapsed_s"}
    assert len(table["paths"]) == 12
    assert table["elapsed_s"] <= 360
    assert "Every path across it is flagged, and none inside a rack." in done.stdout
