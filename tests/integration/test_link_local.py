"""Nothing but link-local addresses (RFC 4007): the programs themselves, in two namespaces, with a zone everywhere an
address can stand. Each host has a device before the cable to which the same addresses could go astray."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.probe.iperf3_command import Lane, Version, checked_profile, client_arguments, server_arguments
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Slot
from tests.fakes.netns import ip, namespace

ROOT = Path(__file__).parents[2]
NEAR, FAR = f"bwlink-near-{os.getpid()}", f"bwlink-far-{os.getpid()}"
# gRPC would take the zones %ab0 and %cd0 for encoded bytes.
NEAR_NIC, FAR_NIC = "ab0", "cd0"
NEAR_ADDRESS, FAR_ADDRESS = f"fe80::1%{NEAR_NIC}", f"fe80::2%{FAR_NIC}"


@pytest.fixture(scope="module")
def hosts() -> Iterator[None]:
    with namespace(NEAR), namespace(FAR):
        for name in (NEAR, FAR):
            ip("-n", name, "link", "add", "astray", "type", "veth", "peer", "name", "nowhere")
            ip("-n", name, "link", "set", "astray", "up")
            ip("-n", name, "link", "set", "nowhere", "up")
        ip("-n", NEAR, "link", "add", NEAR_NIC, "type", "veth", "peer", "name", FAR_NIC, "netns", FAR)
        for name, nic, address in ((NEAR, NEAR_NIC, "fe80::1"), (FAR, FAR_NIC, "fe80::2")):
            ip("-n", name, "link", "set", nic, "addrgenmode", "none")
            ip("-n", name, "address", "add", f"{address}/64", "dev", nic, "nodad")
            ip("-n", name, "link", "set", nic, "up")
        until(lambda: ping(f"fe80::2%{NEAR_NIC}")["paths"][0]["replied"])
        yield


def run(name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    command = ["ip", "netns", "exec", name, *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=50)


def ping(address: str) -> Any:
    words = ("probe", "ping", address, "--count=2", "--interval=20ms", "--wait=100ms", "--json")
    return json.loads(run(NEAR, sys.executable, "-m", "agent", *words).stdout)


def until(condition: Callable[[], Any], within_s: float = 30) -> Any:
    end = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.1)  # between two looks
    return found


@pytest.mark.usefixtures("hosts")
def test_ping_and_stamp_by_hand_stay_on_the_link_that_was_named() -> None:
    (path,) = ping(f"fe80::2%{NEAR_NIC}")["paths"]
    assert path["address"] == f"fe80::2%{NEAR_NIC}"
    assert path["replied"]
    assert not path["lost"]
    (path,) = ping("fe80::2%astray")["paths"]
    assert path["replied"] == 0
    assert "say on which link" in ping("fe80::2")["unresolved"]["fe80::2"]


@pytest.mark.usefixtures("hosts")
def test_iperf3_takes_the_addresses_of_a_planned_slot() -> None:
    slot = Slot(port=5201, profile=pb.Profile(streams=1, duration_ns=10**9).SerializeToString())
    slot.client.address, slot.client.nic = NEAR_ADDRESS, NEAR_NIC
    slot.server.address, slot.server.nic = FAR_ADDRESS, FAR_NIC
    profile = checked_profile(slot)
    server = subprocess.Popen(["ip", "netns", "exec", FAR, "iperf3", *server_arguments(slot, profile, slot.port)],
                              stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        words = client_arguments(slot, profile, Version("3.12", (3, 12)), Lane(5201, 1), connect_timeout_ms=1000)
        until(lambda: "error" not in json.loads(run(NEAR, "iperf3", *words).stdout))
    finally:
        server.kill()
        server.wait()


@pytest.mark.long
@pytest.mark.usefixtures("hosts")
def test_a_fleet_on_link_local_addresses(tmp_path: Path) -> None:
    """mTLS, plan, echo, STAMP, a target and its TCP connect, to the API, all over fe80::/10."""
    make = [sys.executable, "deploy/make_certificates.py", str(tmp_path / "pki"), "--collector", "c"]
    make += ["--address", "fe80::2", "--node", "near", "--node", "far"]
    subprocess.run(make, check=True, capture_output=True, cwd=ROOT)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.set_inheritable(True)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        (tmp_path / "collector.yaml").write_text(collector_yaml(listener.fileno()))
        start(stack, FAR, ["collector", "serve"], tmp_path / "collector.yaml", listener.fileno())
        until(lambda: said(f"{url}/healthz"))
        for node, name, collector in (("near", NEAR, f"fe80::2%{NEAR_NIC}"), ("far", FAR, FAR_ADDRESS)):
            (tmp_path / f"{node}.yaml").write_text(agent_yaml(node, collector))
            start(stack, name, ["agent", "run"], tmp_path / f"{node}.yaml")
        paths = until(lambda: measured(url))
    assert {(path["src"], path["dst_address"]) for path in paths} == {
        ("near", FAR_ADDRESS),
        ("far", NEAR_ADDRESS),
        ("near", f"fe80::2%{NEAR_NIC}"),
    }
    assert all(path["lost"] == 0 for path in paths)


def start(stack: ExitStack, name: str, program: list[str], config: Path, *fds: int) -> None:
    command = ["ip", "netns", "exec", name, sys.executable, "-m", *program, "--config", str(config)]
    out = stack.enter_context(config.with_suffix(".log").open("wb"))
    process = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, pass_fds=fds)
    stack.callback(process.wait)
    stack.callback(process.kill)


def said(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return None


def measured(url: str) -> list[dict[str, Any]]:
    """All round-trip paths, once each has a whole window with replies; nothing before."""
    items = (said(f"{url}/api/v1/paths") or {"items": []})["items"]
    paths = [path for path in items if path["protocol"] != "tcp_throughput"]
    wanted = 2 * (1 + 2) + 2  # echo and two STAMP ports each way, and the target's two
    return paths if len(paths) == wanted and all(path["sent"] for path in paths) else []


def collector_yaml(http_fd: int) -> str:
    return f"""
collector:
  name: c
  grpc_listen: "[{FAR_ADDRESS}]:7443"
  http_listen: fd:{http_fd}
  state_dir: ./collector
  tls: {{ca: pki/ca.pem, certificate: pki/collector.pem, key: pki/collector.key}}
sites: [{{name: s}}]
nodes:
  - {{name: near, site: s, rack: r, endpoints: [{{nic: {NEAR_NIC}, address: "{NEAR_ADDRESS}"}}]}}
  - {{name: far, site: s, rack: r, endpoints: [{{nic: {FAR_NIC}, address: "{FAR_ADDRESS}"}}]}}
targets:
  - {{name: peer, address: "fe80::2%{NEAR_NIC}", probes: [echo, tcp_connect], port: 7443}}
measure:
  echo: {{interval: 100ms, rate: 100}}
  stamp: {{enabled: true, ports: 2, interval: 100ms, rate: 100}}
  throughput: {{enabled: false}}
"""


def agent_yaml(node: str, collector: str) -> str:
    return f"""
agent:
  name: {node}
  state_dir: ./{node}
  collectors: ["[{collector}]:7443"]
  identity: {{ca: pki/ca.pem, certificate: pki/{node}.pem, key: pki/{node}.key}}
"""
