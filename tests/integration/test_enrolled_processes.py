"""The programs as installed: a token, an enrolment, a renewal and a revocation; and no secret in anything they say."""

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.trust import make_certificates

ROOT = Path(__file__).parents[2]
CONFIG = """\
collector:
  grpc_listen: 127.0.0.1:0
  http_listen: 0.0.0.0:0
  state_dir: state
  tls: {ca: pki/ca.pem, certificate: pki/collector.pem, key: pki/collector.key, ca_key: pki/ca.key,
    certificate_lifetime: 60s}
  http_tls: {certificate: pki/collector.pem, key: pki/collector.key}
sites: [{name: a}]
nodes:
  - {name: n1, site: a, rack: r1, endpoints: [{nic: lo, address: 127.0.0.2}]}
measure: {throughput: {enabled: false}, flush: 1s}
"""


class Programs:
    """Runs both, and keeps what they say."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.said: list[str] = []
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.directory / f"{program}.out").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", program, *arguments], stdout=out, stderr=out, cwd=ROOT, env=self._environment()
            )
        self.running.append(process)
        return process

    def text(self, program: str) -> str:
        return (self.directory / f"{program}.out").read_text()

    def do(self, program: str, *arguments: str, token: bool = False, environment: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [sys.executable, "-m", program, *arguments],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**self._environment(), **(environment or {})},
            check=False,
        )
        if not token:
            self.said.append(done.stdout + done.stderr)
        return done.stdout + done.stderr

    @staticmethod
    def _environment() -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}"}

    def stop(self) -> None:
        """Both, as an operator would."""
        for process in reversed(self.running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(20)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    make_certificates(tmp_path / "pki")
    (tmp_path / "collector.yaml").write_text(CONFIG)
    one = Programs(tmp_path)
    yield one
    one.stop()


def until(condition: Callable[[], Any]) -> Any:
    """Polls what other processes bring about; pytest's timeout is the deadline."""
    while not (found := condition()):
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("renewed", [False, pytest.param(True, marks=(pytest.mark.long, pytest.mark.timeout(180)))])
def test_one_command_a_node_and_no_secret_in_anything_that_is_said(programs: Programs, renewed: bool) -> None:
    directory, config = programs.directory, str(programs.directory / "collector.yaml")
    agent = str(directory / "agent.yaml")
    programs.start("collector", "serve", "--config", config)
    ready = until(lambda: re.search(r"ready: .*HTTP https://0.0.0.0:(\d+)", programs.text("collector")))
    url = f"https://127.0.0.1:{ready[1]}"

    made = json.loads(programs.do("collector", "token", "create", "--all", "--json", "--config", config, token=True))
    token = made["tokens"][0]["token"]
    made_reader = programs.do("collector", "token", "create", "--read", "--config", config, token=True)
    (reader,) = (line for line in made_reader.splitlines() if line.startswith("bwr_"))
    enrol = ("enrol", "--collector", made["address"], "--config", agent, "--state-dir", "agent-state")
    wrong = programs.do("agent", *enrol, "--ca-fingerprint", "sha256:" + "0" * 64, "--token", token)
    assert "The token was not sent" in wrong
    assert "enrolled: this node is n1" in programs.do(
        "agent", *enrol, "--ca-fingerprint", made["ca_fingerprint"], "--token", token
    )
    again = programs.do("agent", *enrol, "--ca-fingerprint", made["ca_fingerprint"], "--token", token)
    assert "the token is used" in again
    identity = directory / "agent-state/identity/node.pem"
    first = identity.read_text()

    programs.start("agent", "run", "--config", agent)
    (directory / "token").write_text(reader)
    access = {"BANDWITNESS_TOKEN_FILE": str(directory / "token"), "BANDWITNESS_CA_FILE": str(directory / "pki/ca.pem")}

    def connected() -> bool:
        told = json.loads(programs.do("collector", "nodes", "--url", url, "--json", environment=access))
        return bool(told[0]["connected"] and told[0]["certificate_expiry_time"])

    until(connected)
    assert all(
        re.search(r"Max core file size +0 +0 ", Path(f"/proc/{one.pid}/limits").read_text()) for one in programs.running
    )
    context = ssl.create_default_context(cafile=str(directory / "pki/ca.pem"))
    for path in ("/metrics", "/healthz", "/api/v1/nodes"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url + path, None, 5, context=context)
        asked = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {reader}"})
        answer = urllib.request.urlopen(asked, None, 5, context=context)
        programs.said.append(answer.read().decode())
    assert 'bandwitness_collector_enrolments_total{result="enrolled"} 1' in programs.said[-3]

    if renewed:  # by itself, after two thirds of a minute
        until(lambda: identity.read_text() != first)
    assert programs.do("collector", "node", "revoke", "n1", "--reason", "sold", "--config", config)
    until(lambda: "was revoked on" in programs.do("agent", "status", "--config", agent))
    programs.do("collector", "node", "list", "--config", config)
    programs.do("collector", "token", "list", "--config", config)
    programs.stop()

    keys = [line for pem in (first, identity.read_text()) for line in _key_lines(pem)]
    keys += [
        line for file in ("ca.key", "collector.key") for line in _key_lines((directory / "pki" / file).read_text())
    ]
    secrets = [token.split("_", 2)[2], reader.split("_", 2)[2], *keys]
    assert len(secrets) >= 10
    told = "\n".join([*programs.said, programs.text("collector"), programs.text("agent")])
    kept = [path for place in ("state", "agent-state") for path in (directory / place).rglob("*") if path.is_file()]
    assert [secret for secret in secrets if secret in told] == []
    own = {identity}
    assert [
        path for path in kept if path not in own and any(one.encode() in path.read_bytes() for one in secrets)
    ] == []


def _key_lines(pem: str) -> list[str]:
    body = re.search(r"BEGIN PRIVATE KEY-----\n(.*?)\n-----END", pem, re.DOTALL)
    assert body is not None
    return [line for line in body[1].splitlines() if len(line) > 20]
