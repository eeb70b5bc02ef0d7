"""Pause, resume and status of a real agent, over its socket."""

import asyncio
import json
import stat
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.app.control import Control
from agent.clock import SystemClock
from bandwitness.identity import canonical
from bandwitness.v1 import record_pb2 as pb
from tests.fakes.agent_process import ROOT, SECOND, World, make_plan


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    world.port = await world.sink.start()
    yield world
    await world.close()


async def command(world: World, *arguments: str) -> tuple[int, str]:
    words = (sys.executable, "-m", "agent", *arguments, "--config", str(world.directory / "agent.yaml"))
    process = await asyncio.create_subprocess_exec(
        *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_a_pause_stops_a_running_test_within_a_second_and_outlives_the_agent(world: World) -> None:
    plan = make_plan(slot_in_ns=2 * SECOND)
    plan.slot[0].profile = canonical(
        pb.Profile(engine=pb.ENGINE_IPERF3, streams=1, duration_ns=20 * SECOND, congestion_control="cubic")
    )
    process = await world.start()
    world.sink.issue(plan)
    await world.until(lambda: (world.status().get("throughput") or pb.PartState()).state == "ok")
    assert stat.S_IMODE((world.directory / "state" / "control.sock").stat().st_mode) == 0o600
    code, said = await command(world, "status", "--json")
    shown = json.loads(said)
    assert (code, shown["node"], shown["tests"], shown["marks"]) == (0, "n1", "allowed", [])
    assert shown["plan"]["version"] == 1
    assert {"evidence", "telemetry"} <= set(shown["chains"])
    assert {"echo", "throughput", "marks", "spool", "clock"} <= {part["part"] for part in shown["parts"]}
    start_ns = plan.slot[0].start_time_ns
    await SystemClock().sleep_until(time.monotonic_ns() + start_ns + SECOND - time.time_ns())  # in the midst of it
    code, said = await command(world, "pause", "--reason", "acceptance test")
    done_ns = time.time_ns()
    assert (code, said) == (0, "tests            paused on this host: acceptance test\n")
    await world.until(lambda: len(world.sink.found("throughput_run")) == 2)
    for run in world.sink.found("throughput_run"):
        assert run.outcome == pb.RUN_OUTCOME_ABORTED_PAUSED, run.outcome_detail
        assert run.outcome_detail.startswith("paused on this host: acceptance test")
        assert run.end_time_ns - done_ns < SECOND
    await world.end(process)
    nobody = f"bandwitness-agent status: no agent runs on {world.directory / 'state'}\n"
    assert await command(world, "status") == (1, nobody)
    process = await world.start()
    world.sink.issue(make_plan(version=2, slot_in_ns=4 * SECOND))
    await world.until(lambda: len(world.sink.found("throughput_run")) == 4)
    assert {run.outcome for run in world.sink.found("throughput_run")[2:]} == {pb.RUN_OUTCOME_SKIPPED_PAUSED}
    assert await command(world, "resume") == (0, "tests            allowed\n")
    assert (await command(world, "status"))[1].splitlines()[3] == "tests            allowed"
    await world.end(process)


async def test_what_is_no_request_is_told_so_and_the_next_one_is_answered(tmp_path: Path) -> None:
    def fails(_: object) -> dict[str, Any]:
        raise RuntimeError("broken")

    control = Control(tmp_path / "c", SystemClock(), {"status": lambda _: {"fine": True}, "fails": fails})
    running = asyncio.create_task(control.run())
    while control.state().state != "ok":  # noqa: ASYNC110 - its first steps
        await asyncio.sleep(0)

    async def ask(line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "c"))
        writer.write(line)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    wrong = (b"nonsense", b"[]", b'{"do": "fly"}', b'{"do": "fails"}', b"[" * 3000, b'{"do": []}')
    for line in wrong:
        assert "error" in json.loads(await ask(line + b"\n"))
    assert await ask(b"x" * 4000) == await ask(b"x" * 20_000) == b""
    assert json.loads(await ask(b'{"do": "status"}\n')) == {"fine": True}
    running.cancel()
    await asyncio.wait([running])
    assert not (tmp_path / "c").exists()
