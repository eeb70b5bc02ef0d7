"""``agent``: resident memory and CPU of a real agent process, with spool, signatures and mTLS.

Two cases, each a fresh agent beside a receiving collector in another process: 10 probes a second and counters of 8
NICs, and 2,500 targets once a second and the same counters. The network is made here and gone with us: one namespace
with the agent and 8 NICs (veth), one behind them whose kernel answers for all targets. CPU is
user and system time of the process over a steady stretch, as a share of one core; memory its highest resident size in
it (MB of 10^6 bytes). The figures count only when the measuring was whole: every target answered, every NIC read.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
NICS = tuple(f"nic{number}" for number in range(7))
VETH = "uplink0"
AGENT_ADDRESS, GATEWAY = "10.199.0.1", "10.199.0.2"
SECOND_NS = 1_000_000_000
MIN_WHOLE_RATIO = 0.97  # of the samples expected in the steady stretch and around it


class BenchError(Exception):
    """The bench could not be held, or what it measured was not whole."""


@dataclass(frozen=True, slots=True)
class Case:
    """``targets`` once every ``interval_ns``."""

    targets: int
    interval_ns: int
    warm_s: float
    steady_s: float

    @property
    def probes_per_second(self) -> float:
        return self.targets * SECOND_NS / self.interval_ns


def run(quick: bool) -> dict[str, Any]:
    """Both cases; within 60 s when quick."""
    inside = [sys.executable, "-m", "tests.bench.agent", "--inside", *(["--quick"] if quick else [])]
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    # sysfs shows the namespace that mounted it.
    command = ["unshare", *user, "--net", "--mount", "sh", "-c", 'mount -t sysfs sysfs /sys && exec "$@"', "sh"]
    done = subprocess.run([*command, *inside], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(done.stderr.strip()[-2000:])
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _inside(quick: bool) -> dict[str, Any]:
    warm_s, steady_s = (5.0, 17.0) if quick else (15.0, 60.0)
    few = Case(targets=10, interval_ns=SECOND_NS, warm_s=warm_s, steady_s=steady_s)
    many = Case(targets=2_500, interval_ns=SECOND_NS, warm_s=warm_s, steady_s=steady_s)
    with _network(), tempfile.TemporaryDirectory(prefix="bandwitness-bench-") as directory:
        certificates = Path(directory) / "certificates"
        make = [sys.executable, "deploy/make_certificates.py", str(certificates), "--collector", "collector"]
        _command([*make, "--address", "127.0.0.1", "--node", "bench"])
        first = _measure(few, Path(directory) / "few", certificates)
        second = _measure(many, Path(directory) / "many", certificates)
    return {**first, **{f"{key}_2500": value for key, value in second.items()}}


# ---------------------------------------------------------------- network


def _command(argv: list[str], text: str = "") -> str:
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise BenchError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def _network() -> Iterator[None]:
    """NICs here, and a namespace behind the veth that answers for 10.200.0.0/16; it ends with its holder."""
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=-1, stdout=-1)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        near = ["link set lo up"]
        for number, nic in enumerate((VETH, *NICS)):
            near += [f"link add {nic} type veth peer name far{number} netns {holder.pid}", f"link set {nic} up"]
        near.append(f"address add {AGENT_ADDRESS}/30 dev {VETH}")
        far = ["link set lo up", *(f"link set far{number} up" for number in range(8))]
        far.append(f"address add {GATEWAY}/30 dev far0")
        far.append("route add local 10.200.0.0/16 dev lo")  # its kernel takes all of them as its own
        _command(["ip", "-batch", "-"], "\n".join(near))
        _command(["nsenter", "--target", str(holder.pid), "--net", "ip", "-batch", "-"], "\n".join(far))
        _command(["ip", "route", "add", "10.200.0.0/16", "via", GATEWAY])
        yield
    finally:
        holder.kill()
        holder.communicate()


# ---------------------------------------------------------------- one case


def _plan(case: Case) -> bytes:
    from bandwitness.v1.plan_pb2 import Plan
    from bandwitness.v1.record_pb2 import PROTOCOL_ICMP_ECHO, Endpoint

    now_ns = time.time_ns()
    plan = Plan(
        version=1,
        node="bench",
        site="bench",
        rack="r1",
        issued_time_ns=now_ns,
        expiry_time_ns=now_ns + 86_400 * SECOND_NS,
        offline_test_grace_ns=SECOND_NS,
        counter_interval_ns=SECOND_NS,
        flush_interval_ns=2 * SECOND_NS,
        max_probes_per_second=5_000,
    )
    own = Endpoint(node="bench", nic=VETH, address=AGENT_ADDRESS, lane="rail0")
    plan.endpoint.append(own)
    plan.endpoint.extend(Endpoint(node="bench", nic=nic, lane="rail1") for nic in NICS)
    for number in range(case.targets):
        target = plan.round_trip.add(
            protocol=PROTOCOL_ICMP_ECHO,
            payload_bytes=56,
            interval_ns=case.interval_ns,
            waiting_time_ns=SECOND_NS,
        )
        target.source.CopyFrom(own)
        target.target.name = f"t{number}"
        target.target.address = f"10.200.{number // 250}.{number % 250 + 1}"
    return plan.SerializeToString()


def _measure(case: Case, directory: Path, certificates: Path) -> dict[str, Any]:
    directory.mkdir()
    (directory / "plan.bin").write_bytes(_plan(case))
    collect = [sys.executable, "-m", "tests.fakes.sink_collector", "--plan", str(directory / "plan.bin")]
    sink = subprocess.Popen(
        [*collect, "--tls", str(certificates), "collector"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    agent: subprocess.Popen[bytes] | None = None
    try:
        assert sink.stdout is not None
        port = int(sink.stdout.readline())
        (directory / "agent.yaml").write_text(_configuration(directory, certificates, port))
        with (directory / "agent.log").open("wb") as log:
            agent = subprocess.Popen(
                [sys.executable, "-m", "agent", "run", "--config", str(directory / "agent.yaml")],
                cwd=ROOT,
                stderr=log,
            )
        time.sleep(case.warm_s)  # start-up is not what is measured
        figures = _watch(agent.pid, case.steady_s)
        agent.send_signal(signal.SIGTERM)
        code = agent.wait(timeout=20)
        sink.send_signal(signal.SIGTERM)
        seen = json.loads(sink.stdout.read().splitlines()[-1])
        said = (directory / "agent.log").read_text(errors="replace")
        _check_whole(case, seen, code, said)
        return {**figures, "samples": seen["samples"], "batches": sum(seen["batches"].values())}
    finally:
        for process in (agent, sink):
            if process is not None:
                process.kill()
                process.wait()


def _configuration(directory: Path, certificates: Path, port: int) -> str:
    return f"""\
agent:
  name: bench
  state_dir: {directory}/state
  collectors: ["127.0.0.1:{port}"]
  identity: {{ca: {certificates}/ca.pem, certificate: {certificates}/bench.pem, key: {certificates}/bench.key}}
"""


def _watch(pid: int, seconds: float) -> dict[str, float]:
    """Highest resident memory and share of one core of a process over ``seconds``."""
    process = psutil.Process(pid)
    begin, spent = time.monotonic(), sum(process.cpu_times()[:2])
    highest = 0
    while (elapsed := time.monotonic() - begin) < seconds:
        highest = max(highest, process.memory_info().rss)
        time.sleep(0.25)  # a reading now and then: watching must not cost what is watched
    spent = sum(process.cpu_times()[:2]) - spent
    return {"rss_mb": round(highest / 1e6, 1), "cpu_ratio": round(spent / elapsed, 4)}


def _check_whole(case: Case, seen: dict[str, Any], code: int, said: str) -> None:
    expected = case.probes_per_second * (case.steady_s + case.warm_s / 2)
    replied = seen["outcomes"].get("PACKET_OUTCOME_REPLIED", 0)
    nics = seen["records"].get("nic", 0)
    flushes = seen["batches"].get("BATCH_CLASS_TELEMETRY", 0)
    complaints = []
    if code:
        complaints.append(f"the agent ended with {code}")
    if seen["samples"] < MIN_WHOLE_RATIO * expected:
        complaints.append(f"{seen['samples']} samples, expected {expected:.0f}")
    if replied < MIN_WHOLE_RATIO * seen["samples"]:
        complaints.append(f"{replied} of {seen['samples']} replied")
    if nics < MIN_WHOLE_RATIO * 8 * (flushes - 2):
        complaints.append(f"{nics} NIC records in {flushes} flushes")
    if seen["faults"]:
        complaints.append(f"faults: {seen['faults'][:3]}")
    if complaints:
        raise BenchError("; ".join([*complaints, said[-1500:]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    with suppress(KeyboardInterrupt):
        print(json.dumps(_inside(asked.quick) if asked.inside else run(asked.quick)))


if __name__ == "__main__":
    main()
