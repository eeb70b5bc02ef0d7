"""`bandwitness-agent mark`: what it sends, and how it ends."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agent.__main__ import main
from agent.app import mark_command
from agent.sample import mark
from agent.sample.mark_datagram import parse


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*mark_command.LABELS, mark_command.SOCKET_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    monkeypatch.setenv(mark_command.SOCKET_VARIABLE, str(tmp_path / "m"))
    return mark.open_socket(tmp_path / "m")


def test_all_that_is_said_arrives(listener: socket.socket) -> None:
    with listener:
        arguments = ["--kind", "checkpoint", "--job", "llm", "--step", "5", "--bytes", "9", "--rank", "0"]
        assert main(["mark", "begin", *arguments, "--label", "a=b=c", "--label", "d="]) == 0
        said = parse(listener.recv(4096))
    assert (said.phase, said.kind, said.job, said.step, said.bytes, said.rank) == (
        "begin",
        "checkpoint",
        "llm",
        5,
        9,
        0,
    )
    assert said.labels == (("a", "b=c"), ("d", ""))
    assert said.time_ns is not None


def test_what_slurm_says_is_found(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_JOB_NAME", "pretrain")
    monkeypatch.setenv("SLURM_NODEID", "")
    with listener:
        assert main(["mark", "end", "--kind", "restore", "--label", "slurm_job_name=mine"]) == 0
        said = parse(listener.recv(4096))
    assert said.job == "77"
    assert said.labels == (("slurm_job_id", "77"), ("slurm_job_name", "mine"))


def test_nobody_listens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "m")
    command = ["mark", "begin", "--kind", "checkpoint", "--socket", path]
    assert main(command) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"bandwitness-agent mark: no agent listens on {path}: is it running?")
    assert "--socket" in said
    assert main([*command, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_full_queue_is_not_waited_for(
    tmp_path: Path, listener: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["mark", "begin", "--kind", "checkpoint"]
    with listener:
        while main(command) == 0:
            pass
    assert "is full: not said" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [["--kind", "Check point"], ["--kind", "x", "--job", "a\nb"], ["--kind", "x", "--label", "=1"]],
)
def test_what_the_agent_would_refuse_is_said_at_once(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mark", "begin", *wrong]) == 2
    assert capsys.readouterr().err.startswith("bandwitness-agent mark: ")


@pytest.mark.parametrize("wrong", [["middle"], ["begin"], ["begin", "--kind", "x", "--step", "-1"]])
def test_wrong_usage(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["mark", *wrong])
    assert left.value.code == 2


def test_it_starts_without_the_heavy_imports() -> None:
    code = (
        "import json, sys; from agent.__main__ import main\n"
        "main(['mark', 'end', '--kind', 'x', '--quiet', '--socket', '/0'])\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert not {"google.protobuf", "grpc", "msgspec", "yaml", "psutil", "asyncio", "cryptography"} & loaded


def test_both_programs_mean_the_same_socket() -> None:
    assert str(mark.DEFAULT_SOCKET) == mark_command.DEFAULT_SOCKET
