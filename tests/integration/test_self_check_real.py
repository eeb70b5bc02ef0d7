"""Self-doubt over the real kernel: what a starved prober measures, and that it does not accuse the network."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.clock import SystemClock
from agent.probe.self_check import SelfChecking
from agent.sample.cpuwait import read_cpu_times
from bandwitness.v1 import record_pb2 as pb
from tests.fakes.analysis_bench import Bench
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import SECOND, MeasuredLog, Packet, fleet_config, replied

HOGS = 3
QUIET_CHECKS = 3
MAX_STARVED_CHECKS = 40
WORST = 2  # checks in which a connect took ten times as long as any before: mostly the kernel refuses within the call
# Refused connects to our own loopback, and the check beside them: one JSON object for each 2 s. A line on stdin says
# that the hogs run: from then on at nice 19.
PROBER = """
import asyncio, json, os, sys
from pathlib import Path
from typing import Any
from agent.clock import SystemClock
from agent.probe.round_trip import RoundTripProbes
from agent.probe.self_check import SelfChecking
from agent.sample.cpuwait import read_cpu_times
from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import PROTOCOL_TCP_CONNECT, Endpoint, Target

async def main():
    clock = SystemClock()
    checking = SelfChecking(clock, cpu=lambda: read_cpu_times(Path("/")))
    probes = RoundTripProbes(checking.clock)
    source = Endpoint(node="here", address="127.0.0.1")
    target = Target(name="refusing", address="127.0.0.1")
    probes.configure([RoundTripTarget(source=source, target=target, protocol=PROTOCOL_TCP_CONNECT, destination_port=1,
                                      interval_ns=50_000_000, waiting_time_ns=900_000_000)])
    tasks = [asyncio.create_task(part.run()) for part in (checking, probes)]
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), lambda: sys.stdin.readline() and os.nice(19))
    await clock.sleep_until(clock.monotonic_ns() + 1_000_000_000)
    checking.drain(), probes.drain(clock.monotonic_ns())
    while True:
        await clock.sleep_until(clock.monotonic_ns() + 2_000_000_000)
        check = checking.drain()
        delays = [ns for batch in probes.drain(clock.monotonic_ns()) for ns in batch.round_trip_delays_ns]
        print(json.dumps({"delays": delays, "reasons": list(check.reasons)}), flush=True)

asyncio.run(main())
"""


@contextmanager
def hogging(cpu: int) -> Iterator[None]:
    """Loops that never sleep, all on one CPU."""
    busy = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    hogs = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(HOGS)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def measure() -> tuple[list[int], list[list[int]], list[list[str]]]:
    """Delays while nothing starves, and then delays and reasons of the worst checks of a starved prober."""
    cpu = min(os.sched_getaffinity(0))
    pinned = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\n" + PROBER
    command = [sys.executable, "-c", pinned]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as prober:
        assert prober.stdin is not None
        assert prober.stdout is not None
        try:
            quiet = [ns for _ in range(QUIET_CHECKS) for ns in json.loads(prober.stdout.readline())["delays"]]
            with hogging(cpu):
                prober.stdin.write("go\n")
                prober.stdin.flush()
                prober.stdout.readline()  # half of this one was quiet
                starved: list[dict[str, Any]] = []
                while len([each for each in starved if max(each["delays"], default=0) > 10 * max(quiet)]) < WORST:
                    assert len(starved) < MAX_STARVED_CHECKS, "nothing made the connects of a starved process slow"
                    starved.append(json.loads(prober.stdout.readline()))
        finally:
            prober.kill()
    assert sum(bool(each["reasons"]) for each in starved) >= 3 * len(starved) // 4, starved
    worst = [each for each in starved if max(each["delays"], default=0) > 10 * max(quiet)]
    return quiet, [each["delays"] for each in worst], [each["reasons"] for each in worst]


def analysed(directory: Path, quiet: list[int], starved: list[list[int]], reasons: list[list[str]] | None) -> Bench:
    """What the collector makes of it: r1n1 measured ``quiet`` for 400 s and then what a starved prober did."""
    config = fleet_config()
    slow = [ns for delays in starved for ns in delays]

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        if src != "r1n1":
            return replied(src, dst, sequence, time_ns)
        inside = 400 <= (time_ns - START_NS) / SECOND < 600
        return pb.PACKET_OUTCOME_REPLIED, (slow if inside else quiet)[sequence % len(slow if inside else quiet)]

    def doubt(node: str, time_ns: int) -> list[str]:
        second = (time_ns - START_NS) // SECOND
        return reasons[second // 2 % len(reasons)] if reasons and node == "r1n1" and 400 <= second < 600 else []

    log = MeasuredLog(config, fate=fate)
    log.doubt = doubt
    log.pass_time(680)
    bench = Bench(directory / f"store{reasons is not None}.sqlite", log, config)
    bench.drain()
    return bench


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_starved_prober_is_marked_and_accuses_nobody_and_unmarked_it_would(tmp_path: Path) -> None:
    quiet, starved, reasons = measure()
    assert all({"late", "starved"} & set(words) for words in reasons), reasons
    unmarked = analysed(tmp_path, quiet, starved, None)
    try:
        accused = {incident.element.name.partition(">")[0] for incident in unmarked.incidents("delay")}
        assert accused == {"r1n1/eth0"}
    finally:
        unmarked.close()
    marked = analysed(tmp_path, quiet, starved, reasons)
    try:
        assert marked.incidents() == []
        windows = [
            window
            for path in marked.reader.paths()
            if path.src == "r1n1"
            for window in marked.reader.round_trips(path.path_id, START_NS + 400 * SECOND, START_NS + 600 * SECOND)
        ]
        assert windows
        assert all(window.doubtful for window in windows)
    finally:
        marked.close()


async def test_the_real_loopback_answers_and_the_kernel_says_how_long_tasks_waited() -> None:
    clock = SystemClock()
    checking = SelfChecking(clock, cpu=lambda: read_cpu_times(Path("/")))
    running = asyncio.create_task(checking.run())
    try:
        sent, delays = 0, []
        while sent < 4:
            await clock.sleep_until(clock.monotonic_ns() + SECOND // 4)
            check = checking.drain()
            assert check is not None
            sent += check.loopback_sent
            delays += [] if check.loopback_delay_p50_ns is None else [check.loopback_delay_p50_ns]
            assert check.lateness_max_ns is None or check.lateness_max_ns >= 0
        assert delays
        assert 0 < min(delays) < SECOND // 100
        assert checking.state().state in ("ok", "doubtful")
    finally:
        running.cancel()
