"""A collector in this process, and real agent processes that report to it."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bandwitness.identity import canonical
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_PAIR, WINDOW_KIND_PEAK, Plan
from tests.fakes.sink_collector import SinkCollector

ROOT = Path(__file__).parents[2]
SECOND = 1_000_000_000
WITHIN_S = 30.0
OWN = pb.Endpoint(node="n1", nic="lo", address="127.0.0.1", lane="rail0")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def make_plan(version: int = 1, *, slot_in_ns: int | None = None) -> Plan:
    """Echo to loopback ten times a second, counters of lo, and when asked a test of the node with itself."""
    now = time.time_ns()
    plan = Plan(
        version=version,
        node="n1",
        site="s",
        rack="r",
        issued_time_ns=now,
        expiry_time_ns=now + 3_600 * SECOND,
        offline_test_grace_ns=3_600 * SECOND,
        endpoint=[OWN],
        counter_interval_ns=SECOND // 10,
        flush_interval_ns=SECOND // 5,
        max_probes_per_second=100,
    )
    target = plan.round_trip.add(
        source=OWN,
        protocol=pb.PROTOCOL_ICMP_ECHO,
        payload_bytes=56,
        interval_ns=SECOND // 10,
        waiting_time_ns=SECOND // 2,
    )
    target.target.name, target.target.address = "me", "127.0.0.2"
    if slot_in_ns is not None:
        profile = pb.Profile(engine=pb.ENGINE_IPERF3, streams=1, duration_ns=SECOND, congestion_control="cubic")
        path = pb.Path(source=OWN, endpoint=OWN, type_p=pb.TypeP(protocol=pb.PROTOCOL_TCP_THROUGHPUT, ip_version=4))
        plan.slot.add(
            slot_id=os.urandom(16),
            group_id=os.urandom(16),
            purpose=SLOT_PURPOSE_PAIR,
            window=WINDOW_KIND_PEAK,
            start_time_ns=now + slot_in_ns,
            margin_ns=SECOND,
            client=OWN,
            server=OWN,
            port=free_port(),
            profile=canonical(profile),
            path=canonical(path),
        )
    return plan


class World:
    """A collector in this process, and agent processes on one state directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sink = SinkCollector()
        self.port = 0
        self.extra = ""
        self.processes: list[asyncio.subprocess.Process] = []

    def write(self) -> Path:
        path = self.directory / "agent.yaml"
        path.write_text(
            f"agent:\n  name: n1\n  state_dir: state\n  collectors: ['127.0.0.1:{self.port}']\n"
            f"  mark: {{socket: mark.sock}}\n{self.extra}"
        )
        return path

    async def start(self, *before: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *before,
            sys.executable,
            "-m",
            "agent",
            "run",
            "--config",
            str(self.write()),
            cwd=ROOT,
            stderr=asyncio.subprocess.PIPE,
        )
        self.processes.append(process)
        return process

    async def until(self, condition: Callable[[], Any]) -> None:
        """Waits for what the collector sees."""
        async with asyncio.timeout(WITHIN_S):
            while not condition():
                self.sink.changed.clear()
                await self.sink.changed.wait()

    async def end(self, process: asyncio.subprocess.Process, by: int = signal.SIGTERM) -> tuple[int, str]:
        process.send_signal(by)
        async with asyncio.timeout(WITHIN_S):
            _, said = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    def status(self) -> dict[str, pb.PartState]:
        """The newest word of each part."""
        statuses = self.sink.found("agent_status")
        return {part.part: part for part in statuses[-1].part} if statuses else {}

    async def close(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()
        await self.sink.stop()

    def replied(self) -> int:
        return self.sink.outcomes[pb.PACKET_OUTCOME_REPLIED]
