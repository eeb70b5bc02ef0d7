"""The whole collector as a process: start, plans, batches, answers, stop, and what it says when it cannot start."""

import asyncio
import contextlib
import json
import resource
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bandwitness.chain import check_signature, read_header, read_payload
from bandwitness.v1.plan_pb2 import Plan
from bandwitness.v1.record_pb2 import Record, SignedBatch
from tests.fakes.batches import FakeChain
from tests.fakes.uplink_client import UplinkClient

CONFIG = """
collector: {{grpc_listen: "127.0.0.1:0", http_listen: "{http}", state_dir: {state}}}
sites: [{{name: a, time_zone: UTC}}]
nodes:
  - {{name: n1, site: a, rack: r1, endpoints: [{{nic: e0, address: 10.0.0.1}}]}}
  - {{name: n2, site: a, rack: r2, endpoints: [{{nic: e0, address: 10.0.0.2}}]}}
{more}
"""


def written(directory: Path, *, state: str = "state", http: str = "127.0.0.1:0", more: str = "") -> Path:
    path = directory / "collector.yaml"
    path.write_text(CONFIG.format(state=state, http=http, more=more))
    return path


class Serving:
    """A running collector and its addresses."""

    def __init__(self, process: subprocess.Popen[str], ready: str) -> None:
        self.process = process
        words = ready.split()
        self.grpc = words[words.index("gRPC") + 1]
        self.http = words[words.index("HTTP") + 1]

    async def get(self, path: str) -> tuple[int, str]:
        def ask() -> tuple[int, str]:
            with urllib.request.urlopen(self.http + path, timeout=10) as answer:
                return answer.status, answer.read().decode()

        return await asyncio.to_thread(ask)

    async def items(self, resource: str) -> list[dict[str, Any]]:
        status, text = await self.get(f"/api/v1/{resource}")
        assert status == 200
        return list(json.loads(text)["items"])


@contextlib.asynccontextmanager
async def serving(
    config: Path, *, descriptors: Sequence[int] = (), open_files: int | None = None
) -> AsyncIterator[Serving]:
    """``open_files``: the soft limit that the process begins with."""
    command = [sys.executable, "-m", "collector", "serve", "--config", str(config)]
    if open_files is not None:
        command = ["prlimit", f"--nofile={open_files}:", *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=descriptors) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        try:
            yield Serving(process, await asyncio.to_thread(process.stdout.readline))
        finally:
            process.kill()


async def stopped(one: Serving) -> int:
    one.process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(one.process.wait)


async def plan_of(one: Serving) -> Plan:
    """The plan n1 is sent, after checking whose it is."""
    async with UplinkClient(one.grpc) as client:
        welcome = await client.hello("n1")
        batch = (await client.receive()).plan
        header = read_header(batch.header)
        check_signature(batch.header, header, batch.signature)
        assert header.public_key == welcome.public_key
        (record,) = read_payload(header, batch.payload)
        return Plan.FromString(Record.FromString(record).plan_issued.plan)


async def test_it_starts_plans_takes_batches_answers_and_stops(tmp_path: Path) -> None:
    async with serving(written(tmp_path)) as one:
        plan = await plan_of(one)
        assert (plan.node, plan.site, plan.rack) == ("n1", "a", "r1")
        assert plan.round_trip
        assert plan.slot
        chain = FakeChain()
        async with UplinkClient(one.grpc) as client:
            await client.hello("n1")
            await client.send(chain.next())
            await client.acknowledged(1)
            (n1,) = [node for node in await one.items("nodes") if node["name"] == "n1"]
            assert n1["connected"] is True
            assert n1["last_received_time"]
        assert len(await one.items("timetable")) > 0
        status, text = await one.get("/healthz")
        assert (status, json.loads(text)["status"]) == (200, "ok")
        metrics = (await one.get("/metrics"))[1].splitlines()
        assert 'bandwitness_collector_received_batches_total{result="new"} 1' in metrics
        assert "bandwitness_collector_log_failing 0" in metrics
        assert await stopped(one) == 0


async def test_a_restart_keeps_the_plan_and_what_was_acknowledged_also_after_sigkill(tmp_path: Path) -> None:
    config, chain, versions = written(tmp_path), FakeChain(), list[int]()
    sent: list[SignedBatch] = []
    for number in range(3):
        async with serving(config) as one:
            versions.append((await plan_of(one)).version)
            async with UplinkClient(one.grpc) as client:
                welcome = await client.hello("n1", [chain])
                assert [tip.seq for tip in welcome.durable] == ([len(sent)] if sent else [])
                sent.append(chain.next())
                await client.send(sent[-1])
                await client.acknowledged(len(sent))
            if number == 0:
                assert await stopped(one) == 0  # the others are killed
    assert len(set(versions)) == 1
    async with serving(written(tmp_path, more="measure: {seed: 3}")) as one:
        assert (await plan_of(one)).version > versions[0]


async def test_half_open_connections_stop_neither_agents_nor_readers(tmp_path: Path) -> None:
    """More of them than the process had descriptors before it asked for all it may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > 1024
    async with serving(written(tmp_path), open_files=200) as one:
        host, _, port = one.http.removeprefix("http://").rpartition(":")
        with contextlib.ExitStack() as held:
            for _ in range(400):
                held.enter_context(socket.create_connection((host, int(port)))).send(b"GET")
            assert (await one.get("/healthz"))[0] == 200
            grpc_host, _, grpc_port = one.grpc.rpartition(":")
            for _ in range(400):
                held.enter_context(socket.create_connection((grpc_host, int(grpc_port)))).send(b"PRI")
            async with UplinkClient(one.grpc) as client:
                await client.hello("n1")
                await client.send(FakeChain().next())
                await client.acknowledged(1)
        assert await stopped(one) == 0


async def test_times_beyond_what_the_store_can_hold_are_answered(tmp_path: Path) -> None:
    spans = [
        "to=9999-12-31T23:59:59Z",
        "to=9999-12-31T23:59:59.999999999-23:59",
        "from=1600-01-01T00:00:00Z",
        "from=0001-01-01T00:00:00%2B23:59",
        "from=0001-01-01T00:00:00Z&to=9999-12-31T23:59:59Z",
        "from=1970-01-01T00:00:00Z&to=2262-04-11T23:47:16Z",
        "to=2262-04-11T23:47:17Z",
        "to=1677-09-21T00:12:44Z",
    ]
    async with serving(written(tmp_path)) as one:
        for resource in ("incidents", "timetable", "accounting"):
            for span in spans:
                status, text = await one.get(f"/api/v1/{resource}?{span}")
                assert (status, span, "items" in json.loads(text)) == (200, span, True)
            for span in ("from=9998-01-01T00:00:00Z&to=9999-01-01T00:00:00Z", "from=2026-12-01T00:00:00%2B99:99"):
                with pytest.raises(urllib.error.HTTPError, match="400"):
                    await one.get(f"/api/v1/{resource}?{span}")


async def test_damage_found_at_the_start_is_told_by_healthz(tmp_path: Path) -> None:
    config = written(tmp_path)
    async with serving(config) as one:
        assert await stopped(one) == 0
    (day,) = (tmp_path / "state" / "log" / "control").glob("*.log")
    with day.open("ab") as file:
        file.write(b"torn")
    async with serving(config) as one:
        status, text = await one.get("/healthz")
    assert status == 200
    assert "4 bytes at" in json.loads(text)["warnings"]["log"]


async def test_a_receiver_of_remote_write_that_is_away_holds_nothing_up(tmp_path: Path, taken: str) -> None:
    """It says nothing: what is on its way is not waited for at the stop either."""
    config = written(tmp_path)
    remote = f'remote_write: [{{name: p, url: "http://{taken}/api/v1/write"}}]'
    config.write_text(config.read_text().replace("state_dir: state", f"state_dir: state, {remote}"))
    async with serving(config) as one:
        assert await plan_of(one)
        metrics = (await one.get("/metrics"))[1].splitlines()
        assert 'bandwitness_collector_remote_write_entries_waiting{remote="p"} 0' in metrics
        assert 'bandwitness_collector_remote_write_working{remote="p"} 1' in metrics
        assert await stopped(one) == 0


async def test_it_serves_on_a_socket_that_it_inherits(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.fileno()
        async with serving(written(tmp_path, http=f"fd:{number}"), descriptors=[number]) as one:
            assert one.http == f"http://127.0.0.1:{listener.getsockname()[1]}"
            assert (await one.get("/healthz"))[0] == 200


def refused(config: Path) -> str:
    """What a collector that cannot start says; its exit status is 2."""
    command = [sys.executable, "-m", "collector", "serve", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_state_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert f"{tmp_path}/file/state" in refused(written(tmp_path, state="file/state"))


def test_a_control_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/control.key").write_text("x")
    (tmp_path / "state/control.key").chmod(0o644)
    assert "chmod 600" in refused(written(tmp_path))


def test_a_store_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "state/store.sqlite").mkdir(parents=True)
    words = refused(written(tmp_path))
    assert "the store cannot be opened" in words
    assert "sqlalche.me" not in words


def test_a_fleet_that_does_not_fit_is_refused_with_the_arithmetic(tmp_path: Path) -> None:
    assert "cannot be measured as configured" in refused(written(tmp_path, more="measure: {throughput: {slot: 1h}}"))


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_addresses_in_use_are_named(tmp_path: Path, taken: str) -> None:
    assert f"cannot listen on {taken}" in refused(written(tmp_path, http=taken))
    config = written(tmp_path)
    config.write_text(config.read_text().replace('grpc_listen: "127.0.0.1:0"', f'grpc_listen: "{taken}"'))
    assert f"cannot listen on {taken}" in refused(config)


async def test_a_second_collector_on_the_same_state_is_refused(tmp_path: Path) -> None:
    config = written(tmp_path)
    async with serving(config):
        assert "another collector" in await asyncio.to_thread(refused, config)
