"""STAMP from the plan to the API with real packets: what was lost on the way there is reported as just that.

Sender and reflector are the agent's parts, in one process, their sockets in two namespaces; nftables loses every third
packet of one source port in one direction. The records are sealed, decoded and folded as everywhere.
"""

import asyncio
import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from agent.clock import SystemClock
from agent.probe.stamp_probes import StampProbes
from agent.probe.stamp_reflecting import StampReflecting, open_place
from agent.probe.stamp_socket import KernelSenderSocket
from agent.record import Author, ChainState, HeaderContext, Recorder
from agent.result import ClockReading
from bandwitness.chain import ORIGIN
from bandwitness.v1.record_pb2 import BATCH_CLASS_EVIDENCE, CLOCK_SOURCE_ADJTIMEX
from collector.analysis.rules import ports
from collector.analysis.runner import Runner
from collector.config import Config, read_config
from collector.model import LogEntry, PairLoss
from collector.planner.plan import build_plans
from collector.store.reader import Reader
from collector.store.writer import Store

NEAR, FAR = f"bwwire-near-{os.getpid()}", f"bwwire-far-{os.getpid()}"
SECOND = 1_000_000_000
LOSSY_PORT = 61_001
EVER = (0, 1 << 62)
CLONE_NEWNET = 0x40000000
CONFIG = """
sites: [{name: s}]
nodes:
  - {name: near, site: s, rack: r1, endpoints: [{nic: bwwire0, address: 10.81.0.1}]}
  - {name: far, site: s, rack: r2, endpoints: [{nic: bwwire1, address: 10.81.0.2}]}
measure:
  stamp: {enabled: true, ports: 5, interval: 40ms, rate: 200}
  throughput: {enabled: false}
"""
T = TypeVar("T")


def run(*words: str, check: bool = True) -> None:
    subprocess.run(words, check=check, capture_output=True, timeout=50)


class Inside:
    """Calls made in a network namespace: a socket stays in the one it was opened in."""

    def __init__(self, namespace: str) -> None:
        self._thread = ThreadPoolExecutor(1, initializer=self._enter, initargs=(namespace,))

    @staticmethod
    def _enter(namespace: str) -> None:
        with Path("/run/netns", namespace).open("rb") as place:
            assert ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET) == 0

    def call(self, what: Callable[..., T], *arguments: object) -> T:
        return self._thread.submit(what, *arguments).result(20)

    def close(self) -> None:
        self._thread.shutdown()


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Inside, Inside]]:
    """Two hosts on one cable."""
    try:
        for name in (NEAR, FAR):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", NEAR, "link", "add", "bwwire0", "type", "veth", "peer", "name", "bwwire1", "netns", FAR)
        for name, device, number in ((NEAR, "bwwire0", 1), (FAR, "bwwire1", 2)):
            run("ip", "-n", name, "address", "add", f"10.81.0.{number}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
        near, far = Inside(NEAR), Inside(FAR)
        yield near, far
        near.close()
        far.close()
    finally:
        for name in (NEAR, FAR):
            run("ip", "netns", "delete", name, check=False)


def lose(namespace: str, match: str) -> None:
    """Every third packet that comes into the namespace and matches; in the other nothing."""
    for name in (NEAR, FAR):
        run("ip", "netns", "exec", name, "nft", "flush ruleset")
    chain = "add table inet t; add chain inet t in { type filter hook input priority 0; }"
    rule = f"add rule inet t in {match} numgen inc mod 3 == 0 drop"
    run("ip", "netns", "exec", namespace, "nft", f"{chain}; {rule}")


async def measure(config: Config, near: Inside, far: Inside, packets: int) -> Recorder:
    """Runs what the plan says until so many packets are resolved."""
    clock = SystemClock()
    plans = build_plans(config, clock.wall_ns()).plans
    probes = StampProbes(clock, clock_error=lambda: 9_000, opener=lambda source: near.call(KernelSenderSocket, source))
    reflecting = StampReflecting(clock, clock_error=lambda: 9_000, opener=lambda place: far.call(open_place, place))
    reflecting.configure(plans["far"].stamp_reflector, plans["far"].endpoint)
    recorder = Recorder(
        Author("near", bytes(32), lambda _: bytes(64), bytes(16), bytes(16), bytes(32), "0"),
        {int(BATCH_CLASS_EVIDENCE): ChainState(b"c" * 16, ORIGIN, 0)},
    )
    tasks = [asyncio.create_task(reflecting.run())]
    try:
        async with asyncio.timeout(60):
            while reflecting.state().detail == "not planned":  # noqa: ASYNC110 - it opens sockets and tells nobody
                await asyncio.sleep(0.01)
            probes.configure(plans["near"].stamp)
            tasks.append(asyncio.create_task(probes.run()))
            resolved = 0
            while resolved < packets:
                await asyncio.sleep(0.2)
                for batch in probes.drain(clock.monotonic_ns()):
                    resolved += len(batch.outcomes)
                    recorder.add_round_trip(batch, probes.definitions)
                recorder.add_one_way(probes.drain_one_way(), probes.definitions)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return recorder


class SealedLog:
    """``collector.analysis.runner.Log`` over what the recorder sealed, received when the last window had passed."""

    def __init__(self, recorder: Recorder) -> None:
        self.received_ns = SystemClock().wall_ns() + 20 * SECOND
        context = HeaderContext(
            replace(SystemClock().anchor(), wall_ns=self.received_ns), ClockReading(CLOCK_SOURCE_ADJTIMEX, True)
        )
        self.entries = [
            LogEntry(
                position,
                self.received_ns,
                "near",
                batch.chain_id,
                batch.batch_class,
                batch.seq,
                "",
                batch.header,
                batch.payload,
                batch.signature,
            )
            for position, batch in enumerate(recorder.seal(BATCH_CLASS_EVIDENCE, context, self.received_ns), 1)
        ]

    @property
    def last_position(self) -> int:
        return len(self.entries)

    def read(self, after_position: int, limit: int) -> Sequence[LogEntry]:
        return self.entries[after_position : after_position + limit]


def reported(recorder: Recorder, config: Config, path: Path) -> tuple[PairLoss, set[int | None]]:
    """The pair as the API has it, and the source ports of all paths."""
    log, store = SealedLog(recorder), Store(path)
    reader = Reader(path, config)
    try:
        runner = Runner(log, store, config, lambda: log.received_ns, notice_pauses=False)
        while runner.step():
            pass
        (pair,) = reader.pairs(*EVER, ports.pattern)
        return pair, {status.source_port for status in reader.paths()}
    finally:
        reader.close()
        store.close()


@pytest.mark.parametrize("way", ["forward", "reverse"])
async def test_loss_of_one_direction_is_reported_as_of_that_direction_and_port(
    hosts: tuple[Inside, Inside], tmp_path: Path, way: str
) -> None:
    if way == "forward":
        lose(FAR, f"udp dport 8620 udp sport {LOSSY_PORT}")
    else:
        lose(NEAR, f"udp sport 8620 udp dport {LOSSY_PORT}")
    config = read_config(CONFIG, "collector.yaml")
    recorder = await measure(config, *hosts, packets=400)
    pair, ports = reported(recorder, config, tmp_path / "store.sqlite")
    assert ports >= set(range(61_000, 61_004))
    assert len(ports) >= 5  # one turns by the hour
    lossy = next(port for port in pair.ports if port.source_port == LOSSY_PORT)
    assert lossy.lost in range(lossy.sent // 3 - 1, lossy.sent // 3 + 3)
    assert pair.lost == lossy.lost
    there, back = (pair.forward_lost, pair.reverse_lost) if way == "forward" else (pair.reverse_lost, pair.forward_lost)
    assert lossy.lost - 1 <= there <= lossy.lost  # the last gap may be open
    assert back == 0
    told = pair.one_way
    assert told is not None
    assert 18_000 <= told.clock_error_ns <= 18_100  # both say 9 µs; the packet's form of it is a little coarser
    assert told.forward_delay_p50_ns > 0  # one clock for both here, and packets do not arrive before they are sent
    assert told.reverse_delay_p50_ns > 0
    assert pair.pattern in ("some", "unclear")  # 400 packets do not always tell
