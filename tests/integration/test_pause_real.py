"""The kill switch, from the command to the processes: a real collector and real agents on this host's loopback."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.integration.test_collector_real import Serving, serving, stopped

SECOND = 1_000_000_000
WITHIN_S = 30
ENDS = ("ok", "failed", "skipped", "lost")
OBEYED_WITHIN_S = 2.0
CONFIG = """
collector: {{grpc_listen: "127.0.0.1:0", http_listen: "127.0.0.1:0", state_dir: state}}
sites: [{{name: a, time_zone: UTC, windows: {{peak: ["{peak}"], offpeak: ["{offpeak}"]}}}}]
nodes:
  - {{name: n1, site: a, rack: r1, endpoints: [{{nic: lo, address: 127.0.1.1}}]}}
  - {{name: n2, site: a, rack: r1, endpoints: [{{nic: lo, address: 127.0.1.2}}]}}
measure:
  flush: 200ms
  throughput: {{duration: 3s, omit: 0s, margin: 500ms, slot: 4s, streams: 1, planned: 2, around_the_clock: 0}}
"""


def written(directory: Path, now_s: int) -> Path:
    """Tests from five seconds from now on, in both directions in turn; the second begins 4 s after the first."""

    def at(seconds: int) -> str:
        return datetime.fromtimestamp(now_s + seconds, UTC).strftime("%H:%M:%S")

    path = directory / "collector.yaml"
    path.write_text(CONFIG.format(peak=f"{at(5)}-{at(40)}", offpeak=f"{at(3600)}-{at(3700)}"))
    return path


@contextmanager
def agents(directory: Path, grpc: str) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    running = {}
    try:
        for name in ("n1", "n2"):
            home = directory / name
            home.mkdir()
            (home / "agent.yaml").write_text(
                f"agent: {{name: {name}, state_dir: state, collectors: ['{grpc}'], mark: {{enabled: false}}}}\n"
            )
            command = [sys.executable, "-m", "agent", "run", "--config", str(home / "agent.yaml")]
            running[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        yield running
    finally:
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        for process in running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def clients_of(parents: set[int]) -> list[int]:
    """Process ids of iperf3 clients that these agents run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent in parents and any(word.endswith(b"iperf3") for word in words) and b"-c" in words:
            found.append(int(entry.name))
    return found


async def until(condition: Callable[[], Any], what: str) -> float:
    """Monotonic seconds at which it held."""
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.01)
    return time.monotonic()


async def command(one: Serving, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "collector", *words, "--url", one.http]
    return await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False)


async def sent(one: Serving) -> int:
    """Probes that the collector has counted."""
    lines = (await one.get("/metrics"))[1].splitlines()
    return sum(int(line.split()[-1]) for line in lines if line.startswith("bandwitness_probe_packets_sent_total{"))


async def probes_go_on(one: Serving) -> None:
    before, deadline = await sent(one), time.monotonic() + WITHIN_S
    while await sent(one) <= before:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def settled(one: Serving, outcomes: set[str]) -> list[dict[str, Any]]:
    """Slots that are dealt with, once these outcomes are among them."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        slots = [slot for slot in await one.items("timetable") if slot["category"] != "pending"]
        if outcomes <= {slot["outcome"] for slot in slots}:
            return slots
        assert time.monotonic() < deadline, slots
        await asyncio.sleep(0.1)


@asynccontextmanager
async def measuring(directory: Path) -> AsyncIterator[tuple[Serving, set[int], Path]]:
    config = written(directory, int(time.time()))
    async with serving(config) as one:
        with agents(directory, one.grpc) as running:
            yield one, {process.pid for process in running.values()}, config


async def test_a_pause_ends_what_runs_within_two_seconds_and_leaves_out_what_follows(tmp_path: Path) -> None:
    async with measuring(tmp_path) as (one, parents, config):
        await until(lambda: clients_of(parents), "a test begins")
        began_s = time.monotonic()
        said = await command(one, "pause", "--site", "a", "--reason", "a demo", "--json")
        assert said.returncode == 0, said.stderr
        answered_s = time.monotonic()
        assert json.loads(said.stdout)[0]["plans"] == 2
        ended_s = await until(lambda: not clients_of(parents), "the test ends")
        slots = await settled(one, {"aborted_paused", "skipped_paused"})
        (pause,) = await one.items("pauses")
        assert (pause["site"], pause["end_time"], pause["reason"]) == ("a", None, "a demo")
        (aborted,) = [slot for slot in slots if slot["outcome"] == "aborted_paused"]
        assert "paused at site a by the collector: a demo" in aborted["client_run"]["outcome_detail"]
        assert all(slot["category"] == "skipped" for slot in slots if slot is not aborted)
        ended, said_at = (
            datetime.fromisoformat(text) for text in (aborted["client_run"]["end_time"], pause["start_time"])
        )
        obeyed_s = (ended - said_at).total_seconds()
        print(
            f"\nobeyed {obeyed_s:.2f} s after the word, {ended_s - answered_s:.2f} s after the command's answer, "
            f"{ended_s - began_s:.2f} s after it was started"
        )
        assert obeyed_s < OBEYED_WITHIN_S
        rows = await one.items("accounting")
        assert any(row["outcomes"].get("skipped_paused") for row in rows)
        assert all(row["planned"] == sum(row[name] for name in ENDS) for row in rows)
        await probes_go_on(one)
        assert await stopped(one) == 0
        async with serving(config) as again:
            (pause,) = await again.items("pauses")
            assert pause["end_time"] is None
            assert (await command(again, "resume", "--site", "a")).returncode == 0
            assert (await command(again, "resume", "--site", "a")).returncode == 1  # nothing left to resume
