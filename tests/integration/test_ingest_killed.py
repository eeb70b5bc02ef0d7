"""SIGKILL at any moment: every acknowledged batch is there exactly once, and the chain has no scar."""

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from bandwitness.v1.record_pb2 import BATCH_CLASS_EVIDENCE, BATCH_CLASS_TELEMETRY, SignedBatch
from collector.log import Log
from tests.fakes.batches import FakeChain
from tests.fakes.uplink_client import UplinkClient


class Agent:
    """Two chains and what was acknowledged of them; after each restart sends again what was not."""

    def __init__(self) -> None:
        self.chains = {
            number: FakeChain(batch_class=number) for number in (BATCH_CLASS_EVIDENCE, BATCH_CLASS_TELEMETRY)
        }
        self.sealed: dict[int, list[SignedBatch]] = {number: [] for number in self.chains}
        self.acknowledged: dict[int, int] = dict.fromkeys(self.chains, 0)

    async def talk(self, address: str, *, until: int | None = None) -> None:
        """Sends without end, or until ``until`` of each chain is acknowledged; returns when the collector is gone."""
        async with UplinkClient(address) as client:
            welcome = await client.hello("n1", list(self.chains.values()))
            durable: dict[int, int] = {tip.batch_class: tip.seq for tip in welcome.durable}
            for number, seq in self.acknowledged.items():
                assert durable.get(number, 0) >= seq, "what was acknowledged is gone"
            self.acknowledged |= durable
            sending = asyncio.ensure_future(self._send(client, dict(self.acknowledged), until))
            try:
                while until is None or min(self.acknowledged.values()) < until:
                    response = await client.receive()
                    if response.WhichOneof("message") == "ack":
                        ack = response.ack
                        assert ack.durable_through_seq > self.acknowledged[ack.batch_class]
                        self.acknowledged[ack.batch_class] = ack.durable_through_seq
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, client: UplinkClient, durable: dict[int, int], until: int | None) -> None:
        sent = dict(durable)
        while until is None or min(sent.values()) < until:
            for number, chain in self.chains.items():
                if sent[number] == len(self.sealed[number]):
                    self.sealed[number].append(chain.next())
                await client.send(self.sealed[number][sent[number]])
                sent[number] += 1
            if sent[BATCH_CLASS_EVIDENCE] - self.acknowledged[BATCH_CLASS_EVIDENCE] > 50:
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def collector(directory: Path, *extra: str) -> AsyncIterator[tuple[subprocess.Popen[bytes], str]]:
    """A process and its port, empty if it was killed while it started; gone on leaving."""
    command = [sys.executable, "-m", "tests.fakes.ingest_process", str(directory), *extra]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        try:
            yield process, (await asyncio.to_thread(process.stdout.readline)).decode().strip()
        finally:
            process.kill()
            assert await asyncio.to_thread(process.wait) == -signal.SIGKILL


async def one_life(directory: Path, agent: Agent, *extra: str, kill_after: int | None = None) -> None:
    """From a start of the collector to its death; ``kill_after`` so many more batches are acknowledged."""
    async with collector(directory, *extra) as (process, port):
        if not port:
            return
        talking = asyncio.ensure_future(agent.talk(f"127.0.0.1:{port}"))
        if kill_after is not None:
            goal = sum(agent.acknowledged.values()) + kill_after
            while sum(agent.acknowledged.values()) < goal and not talking.done():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            process.kill()
        with contextlib.suppress(grpc.aio.AioRpcError):
            await talking


async def settle_and_check(directory: Path, agent: Agent) -> None:
    """A last life without a kill, in which everything is acknowledged; then the log is read whole."""
    goal = max(map(len, agent.sealed.values())) + 5
    async with collector(directory) as (_, port):
        await agent.talk(f"127.0.0.1:{port}", until=goal)
    log = Log.open(directory / "log")
    entries = [entry for entry in log.read(0, 100_000) if entry.agent_id == "n1"]
    log.close()
    assert {entry.quarantine for entry in entries} == {""}
    for number, sealed in agent.sealed.items():
        of_class = [entry for entry in entries if entry.batch_class == number]
        counts = Counter(entry.seq for entry in of_class)
        assert counts == Counter(range(1, max(counts) + 1)), "lost or doubled"
        assert max(counts) >= agent.acknowledged[number]
        assert [entry.header for entry in of_class] == [batch.header for batch in sealed[: len(of_class)]]


async def test_killed_at_each_moment_at_which_the_disk_is_touched(tmp_path: Path) -> None:
    agent = Agent()
    for moment in range(1, 15):  # the first file's magic, the control chain, then both chains of the agent
        await one_life(tmp_path, agent, "--kill-at", str(moment))
    await settle_and_check(tmp_path, agent)


@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_at_random_moments(tmp_path: Path, seed: int) -> None:
    agent, chance = Agent(), random.Random(seed)
    for _ in range(5):
        await one_life(tmp_path, agent, kill_after=chance.randrange(1, 200))
    await settle_and_check(tmp_path, agent)
