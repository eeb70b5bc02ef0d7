"""How many counter samples a second one core of the collector takes into its durable log.

Many agents over mTLS, each with its own certificate, connection and signed chain, send batches of 960 samples (8 NICs,
12 counters, 10 ticks), four unacknowledged at a time, from a process of their own, to a whole collector. CPU is that
of the collector's process, all threads, from the first batch until the last one is acknowledged *and* analysed. How far
analysis is behind when the last one is acknowledged is ``analysis_lag_s``: the time it takes from then on. Afterwards
the log is read whole: what is lost, what is there twice. Then VictoriaMetrics gets as many samples by remote write.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from agent.sample.device import COUNTERS
from bandwitness.identity import canonical, short_id
from bandwitness.v1 import record_pb2 as pb
from collector.log import Log
from tests.bench import victoria_metrics
from tests.fakes.batches import FakeChain
from tests.fakes.uplink_client import UplinkClient

ROOT = Path(__file__).parents[2]
NICS, TICKS = 8, 10
SAMPLES = NICS * len(COUNTERS) * TICKS
WINDOW = 4
SECOND = 1_000_000_000
CONNECTING_AT_ONCE = 20


# ---------------------------------------------------------------- the agents


@dataclass
class LoadAgent:
    """One agent with its batches sealed beforehand."""

    name: str
    batches: list[pb.SignedBatch]
    acknowledged: int = 0
    room: asyncio.Event = field(default_factory=asyncio.Event)


def sealed(number: int, batches: int, now_ns: int) -> LoadAgent:
    """An agent whose first batch defines the counters and whose others hold samples; busy, slow and idle ones."""
    name = f"n{number:04d}"
    chain = FakeChain(
        name,
        pb.BATCH_CLASS_TELEMETRY,
        chain_id=number.to_bytes(16, "big"),
        key_seed=number + 1,
        start_ns=now_ns - (batches + 1) * TICKS * SECOND,
        step_ns=TICKS * SECOND,
    )
    counter_set = canonical(pb.CounterSet(name=COUNTERS))
    definition = pb.Record(salt=bytes(16), definition=pb.Definition(counter_set=counter_set))
    made = [chain.next([definition.SerializeToString()])]
    for batch in range(batches):
        at_ns = chain.start_ns + chain.tip.seq * TICKS * SECOND
        made.append(chain.next([_record(nic, batch, at_ns, short_id(counter_set)) for nic in range(NICS)]))
    return LoadAgent(name, made)


def _record(nic: int, batch: int, at_ns: int, counter_set_id: int) -> bytes:
    columns = pb.NicColumns(
        nic=f"ens{nic}f0",
        counter_set_id=counter_set_id,
        base_time_ns=at_ns,
        base_monotonic_ns=at_ns,
        interval_ns=SECOND,
        tick_count=TICKS,
        speed_bps=100_000_000_000,
        carrier=True,
    )
    columns.tick_deviation_ns.extend((tick * 7919 + batch * 31) % 200_000 - 100_000 for tick in range(TICKS - 1))
    for counter in range(len(COUNTERS)):
        step = (900_000_000, 3, 0)[counter % 3]
        deltas = [step + (step and tick * 104_729 % (step // 20 + 1)) for tick in range(TICKS)]
        columns.value.append(counter * 10**9 + batch * sum(deltas))  # where the batch before ended
        columns.value.extend(deltas[1:])
    return pb.Record(salt=nic.to_bytes(16, "big"), nic=columns).SerializeToString()


async def _agent(
    agent: LoadAgent, address: str, certificates: Path, connect: asyncio.Semaphore, go: asyncio.Event
) -> None:
    credentials = grpc.ssl_channel_credentials(
        (certificates / "ca.pem").read_bytes(),
        (certificates / f"{agent.name}.key").read_bytes(),
        (certificates / f"{agent.name}.pem").read_bytes(),
    )
    async with UplinkClient(address, credentials) as client:
        async with connect:
            await client.hello(agent.name)
            await client.send(agent.batches[0])
            await client.acknowledged(1)
        agent.acknowledged = 1
        await go.wait()
        receiving = asyncio.ensure_future(_receive(agent, client))
        for sent, batch in enumerate(agent.batches[1:], start=1):
            while sent - agent.acknowledged >= WINDOW:
                agent.room.clear()
                await agent.room.wait()
            await client.send(batch)
        await receiving


async def _receive(agent: LoadAgent, client: UplinkClient) -> None:
    while agent.acknowledged < len(agent.batches):
        response = await client.receive()
        if response.WhichOneof("message") == "ack":
            agent.acknowledged = response.ack.durable_through_seq
            agent.room.set()


async def load(address: str, certificates: Path, agents: int, batches: int) -> None:
    """Prints ``ready`` once all are connected, waits for a line, prints ``done`` once all is acknowledged."""
    now_ns = time.time_ns()
    made = [sealed(number, batches, now_ns) for number in range(agents)]
    connect, go = asyncio.Semaphore(CONNECTING_AT_ONCE), asyncio.Event()
    running = [asyncio.ensure_future(_agent(agent, address, certificates, connect, go)) for agent in made]
    while any(not agent.acknowledged for agent in made):
        await asyncio.sleep(0.05)
        for task in running:
            if task.done():
                task.result()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    go.set()
    await asyncio.gather(*running)
    print("done", flush=True)


# ---------------------------------------------------------------- the receiver


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _make_certificates(directory: Path, agents: int) -> None:
    command = [sys.executable, str(ROOT / "deploy/make_certificates.py"), str(directory)]
    command += ["--collector", "collector", "--address", "127.0.0.1"]
    for number in range(agents):
        command += ["--node", f"n{number:04d}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"{process.args!r} ended")
    return line


def _count(state: Path, agents: int, batches: int) -> tuple[int, int]:
    """Batches lost and doubled, from the log itself."""
    log, seen = Log.open(state / "log"), Counter[tuple[str, int]]()
    position = 0
    while entries := log.read(position, 5000):
        position = entries[-1].position
        for entry in entries:
            if entry.batch_class == pb.BATCH_CLASS_TELEMETRY:
                assert not entry.quarantine
                seen[entry.agent_id, entry.seq] += 1
    log.close()
    lost = agents * (batches + 1) - len(seen)
    return lost, sum(count - 1 for count in seen.values())


def _configure(directory: Path, agents: int) -> Path:
    nodes = [
        f"  - {{name: n{number:04d}, site: a, rack: r{number // 32}, "
        f"endpoints: [{{nic: ens0f0, address: 10.{number // 65536}.{number // 256 % 256}.{number % 256}}}]}}"
        for number in range(agents)
    ]
    tls = "{ca: certificates/ca.pem, certificate: certificates/collector.pem, key: certificates/collector.key}"
    text = [
        f'collector: {{grpc_listen: "127.0.0.1:0", http_listen: "127.0.0.1:0", state_dir: state, tls: {tls}}}',
        "sites: [{name: a, time_zone: UTC}]",
        "measure: {throughput: {enabled: false}}",
        "nodes:",
        *nodes,
    ]
    path = directory / "collector.yaml"
    path.write_text("\n".join(text) + "\n")
    return path


def _analysed(url: str) -> int:
    """Telemetry batches that analysis has taken in."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.search(r"^bandwitness_collector_batches_total\{.*telemetry.*\} (\S+)$", text, re.MULTILINE)
    return int(float(found[1])) if found else 0


def measure(directory: Path, agents: int, batches: int) -> dict[str, float | int]:
    """One run in ``directory``."""
    certificates, state = directory / "certificates", directory / "state"
    _make_certificates(certificates, agents)
    receive = [sys.executable, "-m", "collector", "serve", "--config", str(_configure(directory, agents))]
    quiet = {"stderr": (directory / "collector.log").open("w")}
    with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True, cwd=ROOT, **quiet) as receiver:  # type: ignore[call-overload]
        try:
            words = _line(receiver).split()
            address, url = words[words.index("gRPC") + 1], words[words.index("HTTP") + 1]
            send = [sys.executable, "-m", "tests.bench.ingest", address, str(certificates), str(agents), str(batches)]
            with subprocess.Popen(send, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as sender:
                _line(sender)
                cpu_s, started = _cpu_s(receiver.pid), time.monotonic()
                assert sender.stdin is not None
                sender.stdin.write("go\n")
                sender.stdin.flush()
                _line(sender)
                acknowledged = time.monotonic()
            while _analysed(url) < agents * (batches + 1):
                time.sleep(1)  # a scrape costs the collector too
            analysed = time.monotonic()
            cpu_s = _cpu_s(receiver.pid) - cpu_s
            rss_mb = _peak_rss_mb(receiver.pid)
        finally:
            receiver.send_signal(signal.SIGTERM)
    lost, doubled = _count(state, agents, batches)
    total = agents * batches
    return {
        "samples_per_core_s": round(total * SAMPLES / cpu_s),
        "batches_per_core_s": round(total / cpu_s),
        "samples_per_s": round(total * SAMPLES / (acknowledged - started)),
        "rss_mb": round(rss_mb, 1),
        "agents": agents,
        "batches": total,
        "lost": lost,
        "doubled": doubled,
        "analysis_lag_s": round(analysed - acknowledged, 2),
        # The same samples into VictoriaMetrics in the same run; not like for like (tests/bench/victoria_metrics.py).
        "victoria_metrics_samples_per_core_s": victoria_metrics.samples_per_core_s(
            directory, agents=agents, batches=batches, nics=NICS, counters=COUNTERS, ticks=TICKS
        ),
    }


def run(quick: bool) -> dict[str, float | int]:
    """The bench; ``quick`` with fewer agents and batches."""
    directory = Path(tempfile.mkdtemp(prefix="bandwitness-ingest-"))
    try:
        return measure(directory, *((60, 80) if quick else (250, 80)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) == 5:
        asyncio.run(load(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
    else:
        parser = argparse.ArgumentParser()
        parser.add_argument("--quick", action="store_true")
        print(json.dumps(run(parser.parse_args().quick)))
