"""The real agent process against a real gRPC server: measuring, stopping, killed, started again, without rights."""

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.app.run import Agent
from agent.clock import SystemClock
from agent.config.file import read
from agent.probe.round_trip import RoundTripProbes
from agent.sample.nic import NicSampler
from agent.schedule import SlotRunner
from bandwitness.identity import canonical, short_id
from bandwitness.v1 import record_pb2 as pb
from tests.fakes.agent_process import ROOT, SECOND, WITHIN_S, World, make_plan
from tests.fakes.netns import inside, namespace
from tests.fakes.sink_collector import SinkCollector, tls_credentials


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    world.port = await world.sink.start()
    yield world
    await world.close()


async def test_from_no_plan_through_a_plan_to_a_clean_stop(world: World) -> None:
    process = await world.start()
    await world.until(world.status)
    status = world.status()
    assert status["plan"].state == "no_plan"
    assert status["uplink"].working
    assert world.sink.samples == 0
    world.sink.issue(make_plan(slot_in_ns=3 * SECOND))
    await world.until(lambda: len(world.sink.found("throughput_run")) == 2)
    await world.until(lambda: world.replied() >= 20)
    code, said = await world.end(process)
    assert code == 0, said
    assert world.sink.faults == []
    runs = {run.role: run for run in world.sink.found("throughput_run")}
    assert {run.outcome for run in runs.values()} == {pb.RUN_OUTCOME_OK}, [run.outcome_detail for run in runs.values()]
    client = runs[pb.RUN_ROLE_CLIENT]
    assert client.receiver_bytes > 1_000_000
    nic = [read for read in world.sink.found("nic") if read.nic][-1]  # others are of the whole host
    assert (nic.nic, nic.fault) == ("lo", "")
    assert world.status()["throughput"].state == "ok"
    newest = world.sink.headers[pb.BATCH_CLASS_EVIDENCE][-1]
    assert newest.plan_hash
    assert newest.witnessed_head
    # The last flush was sealed, sent and acknowledged before the process ended.
    assert said.splitlines()[-1].endswith("INFO bandwitness.agent stopped")


async def test_a_restart_goes_on_with_chain_and_plan_and_shows_the_gap(world: World) -> None:
    world.sink.issue(make_plan())
    first = await world.start()
    await world.until(lambda: world.replied() >= 5 and world.sink.found("nic"))  # both chains have come
    code, said = await world.end(first)
    assert code == 0, said
    before = dict(world.sink.tips)
    seen = world.replied()
    world.sink._plans.clear()  # the plan has to come from the agent's own disk
    second = await world.start()
    await world.until(lambda: world.replied() >= seen + 5)
    code, said = await world.end(second)
    assert code == 0, said
    assert set(world.sink.tips) == set(before)  # the same chains
    assert all(world.sink.tips[key].seq > tip.seq for key, tip in before.items())
    assert world.sink.faults == []
    gaps = world.sink.found("gap")
    assert {gap.reason for gap in gaps} == {pb.GAP_REASON_RESTART}
    assert {gap.batch_class for gap in gaps} == {pb.BATCH_CLASS_EVIDENCE, pb.BATCH_CLASS_TELEMETRY}


FULL = (
    'mount -t tmpfs -o size=64m tmpfs "$0" && cp -a "$1"/. "$0" && '
    '(cat /dev/zero > "$0/filler" 2> /dev/null || true) && shift && exec "$@"'
)
READ_ONLY = 'mount --bind "$1" "$0" && mount -o remount,ro,bind "$0" && shift && exec "$@"'


@pytest.mark.lab
@pytest.mark.parametrize(
    ("bad", "cure"),
    [(FULL, ("rm", "{}/filler")), (READ_ONLY, ("mount", "-o", "remount,rw,bind", "{}"))],
    ids=["full", "read_only"],
)
async def test_case_41_an_agent_started_on_a_bad_disk_measures_and_goes_on_when_it_is_well(
    world: World, bad: str, cure: tuple[str, ...]
) -> None:
    world.sink.issue(make_plan())
    first = await world.start()
    await world.until(lambda: world.replied() >= 5 and world.sink.found("nic"))
    await world.end(first)
    before, seen = dict(world.sink.tips), world.replied()
    state, kept = world.directory / "state", world.directory / "kept"
    state.rename(kept)
    state.mkdir()
    streams = len(world.sink.hellos)
    second = await world.start("unshare", "-m", "sh", "-c", bad, str(state), str(kept))
    await world.until(lambda: len(world.sink.hellos) > streams)
    assert world.replied() == seen  # nothing can be sealed yet
    healed = await asyncio.create_subprocess_exec(
        "nsenter", "-t", str(second.pid), "-m", *(word.format(state) for word in cure)
    )
    assert await healed.wait() == 0
    await world.until(lambda: world.replied() >= seen + 10)
    code, said = await world.end(second)
    assert code == 0, said
    assert "spool: " in said
    assert set(world.sink.tips) == set(before)  # the same chains
    assert world.sink.faults == []
    assert {gap.reason for gap in world.sink.found("gap")} == {pb.GAP_REASON_RESTART}


async def test_a_killed_agent_comes_back_on_the_same_chain(world: World) -> None:
    world.sink.issue(make_plan())
    first = await world.start()
    await world.until(lambda: world.replied() >= 5 and world.sink.found("nic"))  # both chains have come
    code, _ = await world.end(first, by=signal.SIGKILL)
    assert code == -signal.SIGKILL
    before, seen = dict(world.sink.tips), world.replied()
    second = await world.start()
    await world.until(lambda: world.replied() >= seen + 5)
    code, said = await world.end(second)
    assert code == 0, said
    assert world.sink.faults == []
    assert set(world.sink.tips) == set(before)
    assert {gap.reason for gap in world.sink.found("gap")} == {pb.GAP_REASON_RESTART}


async def test_what_was_measured_while_the_collector_was_away_arrives_later(world: World) -> None:
    world.sink.issue(make_plan())
    process = await world.start()
    await world.until(lambda: world.replied() >= 3)
    await world.sink.stop()
    times = world.sink.headers[pb.BATCH_CLASS_EVIDENCE]
    away = times[-1].last_event_time_ns
    again = SinkCollector()  # as one that was killed, with its log
    again.tips, again.headers, again.records = world.sink.tips, world.sink.headers, world.sink.records
    again.outcomes = world.sink.outcomes
    world.sink = again
    await asyncio.to_thread(_wait_until, away + 2 * SECOND)
    assert await again.start(f"127.0.0.1:{world.port}") == world.port
    await world.until(lambda: times[-1].last_event_time_ns >= away + 2 * SECOND)
    code, said = await world.end(process)
    assert code == 0, said
    assert again.faults == []
    assert again.found("gap") == []
    sequences = [header.seq for header in times]
    assert sequences == list(range(1, len(sequences) + 1))


def _wait_until(wall_ns: int) -> None:
    while (left_ns := wall_ns - time.time_ns()) > 0:
        time.sleep(left_ns / 1e9)  # a slot has a time of day: the condition is the clock


async def test_mutual_tls_with_the_certificates_of_make_certificates(world: World, tmp_path: Path) -> None:
    await world.sink.stop()
    certificates = tmp_path / "certificates"
    making = await asyncio.create_subprocess_exec(
        *(sys.executable, "deploy/make_certificates.py", str(certificates)),
        *("--collector", "c", "--address", "127.0.0.1", "--node", "n1"),
        cwd=ROOT,
    )
    assert await making.wait() == 0
    world.sink = SinkCollector(make_plan())
    world.port = await world.sink.start("127.0.0.1:0", tls_credentials(certificates, "collector"))
    world.extra = "  identity: {ca: certificates/ca.pem, certificate: certificates/n1.pem, key: certificates/n1.key}\n"
    process = await world.start()
    await world.until(lambda: world.replied() >= 3)
    code, said = await world.end(process, by=signal.SIGINT)
    assert code == 0, said
    assert [hello.agent_id for hello in world.sink.hellos] == ["n1"]
    assert world.sink.faults == []


async def test_case_57_no_right_to_send_icmp_is_a_state_and_no_loss(world: World) -> None:
    """Neither the capability nor a group that may open datagram sockets: the range of a new namespace is "1 0"."""
    await world.sink.stop()
    world.sink = SinkCollector(make_plan())
    without = ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw"]
    with namespace(f"bwagent-{os.getpid()}") as name:
        with inside(name):
            world.port = await world.sink.start()
        process = await world.start("ip", "netns", "exec", name, *without)
        await world.until(lambda: world.replied() >= 3 and world.sink.found("nic"))
        code, said = await world.end(process)
    assert code == 0, said
    methods = {columns.method for columns in world.sink.found("round_trip")}
    assert methods == {pb.ROUND_TRIP_METHOD_TCP_CONNECT}
    state = world.status()["echo"]
    assert state.state == "icmp_unavailable"
    assert "CAP_NET_RAW" in state.detail
    assert "net.ipv4.ping_group_range (now '1" in state.detail
    assert set(world.sink.outcomes) == {pb.PACKET_OUTCOME_REPLIED}


async def test_iperf3_missing_is_an_outcome_and_the_rest_goes_on(world: World) -> None:
    world.extra = "  iperf3: ./none\n"
    world.sink.issue(make_plan(slot_in_ns=2 * SECOND))
    process = await world.start()
    await world.until(lambda: len(world.sink.found("throughput_run")) == 2 and world.replied() >= 3)
    code, said = await world.end(process)
    assert code == 0, said
    runs = world.sink.found("throughput_run")
    assert {run.outcome for run in runs} == {pb.RUN_OUTCOME_ENGINE_MISSING}
    assert not any(run.HasField("receiver_bytes") for run in runs)
    assert world.status()["throughput"].state == "iperf3_missing"


async def test_a_stop_in_the_middle_of_a_test_records_it(world: World) -> None:
    plan = make_plan(slot_in_ns=6 * SECOND)  # later than a loaded machine takes to be measuring
    world.sink.issue(plan)
    process = await world.start()
    await world.until(lambda: world.replied() >= 3)
    await asyncio.to_thread(_wait_until, plan.slot[0].start_time_ns + SECOND // 4)
    code, said = await world.end(process)
    assert code == 0, said
    runs = world.sink.found("throughput_run")
    assert {run.role for run in runs} == {pb.RUN_ROLE_CLIENT, pb.RUN_ROLE_SERVER}
    assert {run.outcome for run in runs} == {pb.RUN_OUTCOME_ABORTED}


async def test_a_second_agent_on_the_same_state_is_refused(world: World) -> None:
    first = await world.start()
    await world.until(world.status)
    second = await world.start()
    async with asyncio.timeout(WITHIN_S):
        _, said = await second.communicate()
    assert second.returncode == 1
    assert "cannot start: another process holds" in said.decode()
    code, words = await world.end(first)
    assert code == 0, words


async def test_a_state_directory_that_cannot_be_had_is_one_line_and_exit_1(world: World, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    process = await world.start()
    async with asyncio.timeout(WITHIN_S):
        _, said = await process.communicate()
    assert process.returncode == 1
    assert len(said.decode().splitlines()) == 1
    assert "cannot start: " in said.decode()


@pytest.mark.parametrize("failing", ["echo", "nic", "throughput"])
async def test_a_part_that_fails_does_not_stop_the_others(
    world: World, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: object) -> None:
        raise RuntimeError("broken on purpose")

    part = {"echo": RoundTripProbes, "nic": NicSampler, "throughput": SlotRunner}[failing]
    monkeypatch.setattr(part, "run", broken)
    world.sink.issue(make_plan())
    stop = asyncio.Event()
    running = asyncio.create_task(Agent(read(world.write()), SystemClock()).run(stop))
    await world.until(lambda: failing in world.status() and world.status()["plan"].state == "ok")
    await world.until(lambda: failing == "echo" or world.replied() >= 3)
    await world.until(lambda: failing == "nic" or world.sink.found("nic"))
    status = world.status()
    assert "RuntimeError: broken on purpose" in status[failing].detail
    machines = ("clock", "self_check")  # what these two say depends on the machine
    others = {name: state.state for name, state in status.items() if name not in (failing, *machines)}
    assert set(others.values()) <= {"ok", "connected"}, others
    stop.set()
    async with asyncio.timeout(WITHIN_S):
        await running
    assert world.sink.faults == []


async def test_the_program_is_installed_under_its_name() -> None:
    program = shutil.which("bandwitness-agent", path=str(Path(sys.executable).parent))
    assert program is not None
    asked = await asyncio.create_subprocess_exec(program, "--version", stdout=asyncio.subprocess.PIPE)
    said, _ = await asked.communicate()
    assert said.startswith(b"bandwitness-agent ")


async def test_a_plan_has_paths_traced_and_their_mtu_found(world: World) -> None:
    """From the plan to signed records; the request is answered once, under its id."""
    process = await world.start()
    await world.until(world.status)
    plan = make_plan()
    plan.path_mtu.interval_ns = 3600 * SECOND
    plan.path_mtu.payload_bytes.extend([1472, 8972])
    target = plan.round_trip[0]
    path = pb.Path(source=target.source, target=target.target)
    path.type_p.protocol, path.type_p.ip_version, path.type_p.payload_bytes = pb.PROTOCOL_ICMP_ECHO, 4, 56
    plan.trace.add(
        request="asked",
        path=canonical(path),
        reason=pb.TRACE_REASON_REQUESTED,
        expiry_time_ns=time.time_ns() + 600 * SECOND,
    )
    world.sink.issue(plan)
    await world.until(lambda: world.sink.found("path_mtu") and world.sink.found("route_trace"))
    code, said = await world.end(process)
    assert code == 0, said
    assert world.sink.faults == []
    (trace,) = world.sink.found("route_trace")
    assert (trace.request, trace.reason, trace.reached) == ("asked", pb.TRACE_REASON_REQUESTED, True)
    assert {(hop.hop_limit, hop.address) for hop in trace.hop} == {(1, "127.0.0.2")}
    assert trace.path_id == short_id(canonical(path))
    (found,) = world.sink.found("path_mtu")
    assert (found.mtu_bytes, found.black_hole) == (9000, False)
