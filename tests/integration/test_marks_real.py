"""Marks over the real socket: the listener under honest and hostile senders, and from a process into signed records."""

import array
import asyncio
import contextlib
import gc
import os
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent.clock import SystemClock
from agent.sample.mark import FALLBACK_NAME, MAX_UNDRAINED, MarkListener, open_socket, places
from agent.sample.mark_book import USER_BURST
from bandwitness.identity import canonical
from bandwitness.v1 import record_pb2 as pb
from tests.fakes.agent_process import ROOT, SECOND, World, make_plan

WITHIN_S = 30.0
BEGIN = b'{"v":1,"phase":"begin","kind":"checkpoint","job":"llm","step":5}'
END = BEGIN.replace(b"begin", b"end")


@contextlib.asynccontextmanager
async def listening(listener: MarkListener) -> AsyncIterator[Path]:
    task = asyncio.create_task(listener.run())
    await until(lambda: listener.place is not None)
    assert listener.place is not None
    try:
        yield listener.place
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 - what is waited for is on the socket
            await asyncio.sleep(0)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def say(path: Path, *datagrams: bytes) -> None:
    """Waits while the queue is full."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for data in datagrams:
            sender.sendto(data, str(path))


async def test_a_mark_is_heard_with_the_senders_ids_and_anybody_may_write(tmp_path: Path) -> None:
    begun: list[int] = []
    listener = MarkListener(SystemClock(), [tmp_path / "m"], on_open=lambda: begun.append(1))
    async with listening(listener) as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        say(path, BEGIN, END)
        await until(lambda: listener.accepted == 2)
        first, second = listener.drain()
        assert (first.phase, second.phase) == (pb.MARK_PHASE_BEGIN, pb.MARK_PHASE_END)
        assert (first.user_id, first.process_id) == (os.getuid(), os.getpid())
        assert (first.kind, first.job, first.step) == ("checkpoint", "llm", 5)
        assert first.time_ns <= second.time_ns
        assert begun
        assert listener.open() == ()
        assert listener.drain() == []
    assert not path.exists()


async def test_hostile_datagrams_are_counted_by_reason_and_the_next_good_one_is_heard(tmp_path: Path) -> None:
    listener = MarkListener(SystemClock(), [tmp_path / "m"])
    async with listening(listener) as path:
        open_before = descriptors()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(str(path))
            for data in (b"", b"[" * 4096, b"x" * 100_000, b'{"v":9}', b'{"v":1,"phase":"begin","kind":"\\u0000"}'):
                sender.send(data)
            # Descriptors, to fill the agent's table.
            passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sender.fileno()] * 50))]
            sender.sendmsg([BEGIN], passed)
            sender.send(BEGIN)
        await until(lambda: listener.accepted == 2)
        assert dict(listener.refused) == {"garbage": 2, "oversized": 1, "version": 1, "member": 1}
        assert descriptors() == open_before
        state = listener.state()
        assert state.working
        assert "refused for: garbage 2" in state.detail


async def test_a_flood_of_100_000_datagrams_is_bounded_and_leaves_the_loop_its_turns(tmp_path: Path) -> None:
    """The sender is another process that never pauses; what the loop does beside it is a tick every millisecond."""
    listener = MarkListener(SystemClock(), [tmp_path / "m"])
    async with listening(listener) as path:
        code = (
            "import socket,sys\n"
            "s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM|socket.SOCK_NONBLOCK)\n"
            "said=0\n"
            "for _ in range(100000):\n"
            "  try: s.sendto(sys.argv[2].encode(),sys.argv[1]); said+=1\n"
            "  except BlockingIOError: pass\n"
            "print(said)"
        )
        flood = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(path), BEGIN.decode(), stdout=asyncio.subprocess.PIPE
        )
        ticks = 0
        while flood.returncode is None:
            await asyncio.sleep(0.001)
            ticks += 1
        assert flood.stdout is not None
        sent = int(await flood.stdout.read())
        await until(lambda: listener.accepted + sum(listener.refused.values()) >= sent)
        assert listener.accepted <= MAX_UNDRAINED
        assert listener.accepted >= min(USER_BURST, sent)
        assert len(listener.drain()) == listener.accepted
        assert set(listener.refused) <= {"too_often"}
        assert ticks > 10
        assert len(listener.open()) == 1


async def test_what_nobody_drains_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sample.mark.MAX_UNDRAINED", 3)
    listener = MarkListener(SystemClock(), [tmp_path / "m"])
    async with listening(listener) as path:
        say(path, *[BEGIN] * 5)
        await until(lambda: listener.refused["undrained"] == 2)
        assert len(listener.drain()) == 3


async def test_what_a_killed_agent_left_is_replaced_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    place, other = tmp_path / "m", tmp_path / "state" / FALLBACK_NAME
    other.parent.mkdir()
    open_socket(place).close()  # the file stays
    first = MarkListener(SystemClock(), [place])
    async with listening(first):
        second = MarkListener(SystemClock(), [place, other])
        async with listening(second) as path:
            assert path == other
            assert second.state().state == "fallback"
            assert "another agent listens there" in second.state().detail
        say(place, BEGIN)
        await until(lambda: first.accepted == 1)


async def test_no_place_for_the_socket_is_a_state_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    listener = MarkListener(SystemClock(), [tmp_path / "missing" / "m", tmp_path / "file"])
    task = asyncio.create_task(listener.run())
    await until(lambda: listener.state().detail)
    state = listener.state()
    assert (state.working, state.state) == (False, "no_socket")
    assert "No such file or directory" in state.detail
    assert "something that is no socket is in its place" in state.detail
    task.cancel()
    await asyncio.wait([task])
    assert (tmp_path / "file").read_text() == "mine"
    assert MarkListener(SystemClock(), []).state().state == "off"


async def test_a_socket_whose_file_is_taken_away_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sample.mark.LOOK_AGAIN_NS", 1_000_000)
    listener = MarkListener(SystemClock(), [tmp_path / "m"])
    async with listening(listener) as path:
        path.unlink()
        await until(path.exists)
        say(path, BEGIN)
        await until(lambda: listener.accepted == 1)
    gc.collect()  # an unclosed socket would warn, and warnings are errors


def test_the_usual_places(tmp_path: Path) -> None:
    assert places(None, tmp_path) == (Path("/run/bandwitness/mark.sock"), tmp_path / "mark.sock")
    assert places(tmp_path / "x", tmp_path) == (tmp_path / "x",)


# ---------------------------------------------------------------- a whole agent


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    world.port = await world.sink.start()
    yield world
    await world.close()


async def mark_command(path: Path, *arguments: str) -> tuple[int, str]:
    words = (sys.executable, "-m", "agent", "mark", *arguments, "--socket", str(path))
    process = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_a_mark_of_a_process_becomes_a_signed_record(world: World, tmp_path: Path) -> None:
    process = await world.start()
    world.sink.issue(make_plan())
    await world.until(lambda: world.replied() and world.status().get("marks"))
    assert world.status()["marks"].state == "ok"
    arguments = ["--kind", "checkpoint", "--job", "llm", "--step", "500", "--rank", "3", "--label", "queue=big"]
    assert await mark_command(tmp_path / "mark.sock", "begin", *arguments) == (0, "")
    assert await mark_command(tmp_path / "mark.sock", "end", *arguments, "--bytes", "1000") == (0, "")
    await world.until(lambda: len(world.sink.found("trainer_mark")) == 2)
    code, said = await world.end(process)
    assert code == 0, said
    assert world.sink.faults == []  # each batch stood in its chain with its signature
    begin, end = world.sink.found("trainer_mark")
    assert (begin.phase, end.phase) == (pb.MARK_PHASE_BEGIN, pb.MARK_PHASE_END)
    assert (begin.kind, begin.job, begin.step, begin.rank) == ("checkpoint", "llm", 500, 3)
    assert dict(zip(begin.label_name, begin.label_value, strict=True))["queue"] == "big"
    assert (begin.HasField("bytes"), end.bytes) == (False, 1000)
    assert begin.user_id == os.getuid()
    assert 0 <= begin.time_ns - begin.said_time_ns < 30 * SECOND
    assert (await mark_command(tmp_path / "mark.sock", "begin", *arguments))[0] == 1  # it has gone, and its socket


async def test_a_flood_disturbs_neither_the_probes_nor_the_memory_of_an_agent(world: World, tmp_path: Path) -> None:
    """100,000 datagrams by a sender that waits for room and so gives the agent no rest, beside ten echoes a second."""
    process = await world.start()
    world.sink.issue(make_plan())
    await world.until(lambda: world.replied() >= 20)
    before = world.sink.found("agent_status")[-1].resident_memory_bytes
    code = (
        "import socket,sys\n"
        "s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM|socket.SOCK_NONBLOCK)\n"
        "import time\n"
        "end=time.monotonic()+1.5\n"
        "said=0\n"
        "while said<100000 and time.monotonic()<end:\n"
        "  try: s.sendto(sys.argv[2].encode(),sys.argv[1]); said+=1\n"
        "  except BlockingIOError: pass\n"
        "print(said)"
    )
    arguments = (sys.executable, "-c", code, str(tmp_path / "mark.sock"), BEGIN.decode())
    flood = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    said, _ = await flood.communicate()
    assert int(said) > USER_BURST
    replied = world.replied()
    await world.until(lambda: world.replied() >= replied + 20)
    lost = {outcome: count for outcome, count in world.sink.outcomes.items() if outcome != pb.PACKET_OUTCOME_REPLIED}
    assert lost == {}
    after = world.sink.found("agent_status")[-1].resident_memory_bytes
    assert after - before < 8 * 2**20
    assert "refused for: too_often" in world.status()["marks"].detail
    assert len(world.sink.found("trainer_mark")) <= MAX_UNDRAINED
    await world.end(process)


async def test_a_mark_ends_a_running_test_within_a_second_and_keeps_the_next_one_out(
    world: World, tmp_path: Path
) -> None:
    plan = make_plan(slot_in_ns=4 * SECOND)
    plan.slot[0].profile = canonical(
        pb.Profile(engine=pb.ENGINE_IPERF3, streams=1, duration_ns=20 * SECOND, congestion_control="cubic")
    )
    process = await world.start()
    world.sink.issue(plan)
    await world.until(lambda: (world.status().get("throughput") or pb.PartState()).state == "ok")
    start_ns = plan.slot[0].start_time_ns
    await SystemClock().sleep_until(time.monotonic_ns() + start_ns + SECOND - time.time_ns())  # in the midst of it
    said_ns = time.time_ns()
    say(tmp_path / "mark.sock", BEGIN)
    await world.until(lambda: len(world.sink.found("throughput_run")) == 2)
    runs = {run.role: run for run in world.sink.found("throughput_run")}
    for run in runs.values():
        assert run.outcome == pb.RUN_OUTCOME_ABORTED_BURST, run.outcome_detail
        assert run.outcome_detail.startswith("mark open: checkpoint of job llm, step 5")
        assert [gate.kind for gate in run.gate if gate.tripped] == [pb.GATE_KIND_BURST]
        assert run.end_time_ns - said_ns < SECOND
    assert sum(runs[pb.RUN_ROLE_CLIENT].interval.bytes)  # what was measured until then
    print("over after", max(run.end_time_ns for run in runs.values()) - said_ns, "ns")
    second = make_plan(version=2, slot_in_ns=2 * SECOND)
    world.sink.issue(second)
    await world.until(lambda: len(world.sink.found("throughput_run")) == 4)
    skipped = world.sink.found("throughput_run")[2:]
    assert {run.outcome for run in skipped} == {pb.RUN_OUTCOME_SKIPPED_BURST}
    say(tmp_path / "mark.sock", END)
    third = make_plan(version=3, slot_in_ns=3 * SECOND)
    world.sink.issue(third)
    await world.until(lambda: len(world.sink.found("throughput_run")) == 6)
    assert {run.outcome for run in world.sink.found("throughput_run")[4:]} == {pb.RUN_OUTCOME_OK}
    await world.end(process)
