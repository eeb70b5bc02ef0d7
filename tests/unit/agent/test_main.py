"""The program's surface: exit codes, help, faults one a line, log lines."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from agent.__main__ import OneLine, main
from bandwitness import VERSION

GOOD = """\
agent:
  name: a
  state_dir: state
  collectors: ["127.0.0.1:1"]
"""
BAD = GOOD.replace("name: a", "name: [a]").replace("state_dir", "stat_dir")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    (tmp_path / "agent.yaml").write_text(GOOD)
    return tmp_path / "agent.yaml"


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    (tmp_path / "bad.yaml").write_text(BAD)
    return tmp_path / "bad.yaml"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bandwitness-agent {VERSION}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["check", "--help"], ["run", "--help"]])
def test_help_has_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 0
    assert "bandwitness-agent run --config /etc/bandwitness/agent.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["fly"], ["run"], ["check", "--config"], ["run", "--config", "x", "--json"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("usage: bandwitness-agent")


@pytest.mark.parametrize("command", ["run", "check"])
def test_faults_of_the_file_come_one_a_line_and_exit_with_2(
    command: str, bad: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--config", str(bad)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.removeprefix(f"{bad}: ").split(": ")[0] for line in lines] == [
        "line 1:1 agent",
        "line 2:3 agent.name",
        "line 3:3 agent.stat_dir",
    ]


def test_faults_of_the_file_as_json(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", "--config", str(bad)]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["faults"][0] == {"line": 1, "column": 1, "key": "agent", "message": "the key state_dir is missing"}


def test_check_lists_what_it_looked_at(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", "--json", "--config", str(good)])
    document = json.loads(capsys.readouterr().out)
    assert document["faults"] == []
    assert code == (0 if document["ok"] else 1)
    assert document["ok"] is all(finding["level"] != "fault" for finding in document["checks"])
    assert {finding["subject"] for finding in document["checks"]} >= {"iperf3", "icmp", "state_dir", "collectors"}
    assert main(["check", "--config", str(good)]) == code
    assert capsys.readouterr().out.startswith(f"ok      {good}: valid\n")


def test_check_exits_with_1_when_the_host_lacks_something(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "agent.yaml").write_text(GOOD + "  iperf3: ./none\n")
    assert main(["check", "--config", str(tmp_path / "agent.yaml")]) == 1
    assert "(cure: apt-get install iperf3)" in capsys.readouterr().out


def test_help_and_version_import_nothing_heavy() -> None:
    code = (
        "import sys; from agent.__main__ import main; main(['--version']); "
        "print(*[name for name in ('grpc', 'google', 'cryptography', 'yaml', 'asyncio', 'psutil') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


def test_an_event_is_one_log_line() -> None:
    record = logging.makeLogRecord({"name": "n", "levelname": "INFO", "msg": "a\nb", "created": 0.25, "msecs": 250})
    assert OneLine().format(record) == "1970-01-01T00:00:00.250Z INFO n a\\nb"
