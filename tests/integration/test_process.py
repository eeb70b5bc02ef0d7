"""Child processes: bounded, ended, and harmless beside a running gRPC stream."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from agent.clock import SystemClock
from agent.probe import process
from agent.probe.process import Child, die_with_parent

MS = 1_000_000
SECOND = 1_000_000_000


def gone(pid: int) -> bool:
    """No such process, or a corpse that only waits for its parent's glance."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(10):
        while not gone(pid):  # noqa: ASYNC110 — another process's child: no event tells
            await asyncio.sleep(0.01)


async def test_output_and_exit_code() -> None:
    clock = SystemClock()
    child = await Child.start(["sh", "-c", "echo out; echo err >&2; exit 3"], clock)
    ending = await child.finish(clock.monotonic_ns() + 10 * SECOND)
    assert (ending.returncode, ending.stdout, ending.stderr) == (3, b"out\n", b"err\n")
    assert (ending.cut, ending.forced) == (False, "")


async def test_a_group_and_environment_of_its_own_and_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("SECRET", "x")
    clock = SystemClock()
    script = (
        "import os; print(os.getpgid(0) == os.getsid(0) == os.getpid(), sorted(os.environ),"
        " os.listdir('/proc/self/fd'), os.nice(0))"
    )
    child = await Child.start([sys.executable, "-c", script], clock)
    ending = await child.finish(clock.monotonic_ns() + 10 * SECOND)
    own, rest = ending.stdout.decode().split(" ", 1)
    assert own == "True"
    assert "SECRET" not in rest
    assert "['0', '1', '2', '3']" in rest  # 3 is the listing itself
    assert rest.rstrip().endswith(str(process.NICE))
    assert child.pid != os.getpid()


async def test_one_that_ignores_the_polite_signal_is_killed_with_its_children() -> None:
    clock = SystemClock()
    child = await Child.start(["sh", "-c", "trap '' TERM; sleep 300 & echo $!; wait; wait"], clock)
    ending = await child.finish(clock.monotonic_ns() + 300 * MS)
    assert ending.forced == "KILL"
    assert ending.returncode == -signal.SIGKILL
    await until_gone(int(ending.stdout))


async def test_endless_output_is_cut_and_read_on() -> None:
    clock = SystemClock()
    child = await Child.start(["sh", "-c", f"head -c {process.MAX_STDOUT_BYTES * 2} /dev/zero; echo done >&2"], clock)
    ending = await child.finish(clock.monotonic_ns() + 20 * SECOND)
    assert (len(ending.stdout), ending.cut, ending.stderr) == (process.MAX_STDOUT_BYTES, True, b"done\n")


async def test_cancelling_ends_the_process() -> None:
    clock = SystemClock()
    child = await Child.start(["sleep", "300"], clock)
    task = asyncio.create_task(child.finish(clock.monotonic_ns() + 300 * SECOND))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(child.pid)


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        await Child.start(["/no/such/program"], SystemClock())


async def test_an_agent_that_is_killed_takes_its_children_along() -> None:
    script = (
        "import asyncio, sys\n"
        "from agent.clock import SystemClock\n"
        "from agent.probe.process import Child, die_with_parent\n"
        "async def main():\n"
        "    child = await Child.start([*die_with_parent(), 'sleep', '300'], SystemClock())\n"
        "    print(child.pid, flush=True)\n"
        "    await asyncio.sleep(300)\n"
        "asyncio.run(main())\n"
    )
    assert die_with_parent()  # util-linux, part of every Debian
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert agent.stdout is not None
    pid = int(await agent.stdout.readline())
    assert not gone(pid)
    agent.kill()
    await agent.wait()
    await until_gone(pid)


# ---------------------------------------------------------------- beside gRPC


def _as_is(message: bytes) -> bytes:
    return message


@contextlib.asynccontextmanager
async def echo_stream() -> AsyncIterator["grpc.aio.StreamStreamCall[bytes, bytes]"]:
    """One open bidirectional stream whose other end acknowledges each message."""

    async def acknowledge(requests: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(acknowledge, _as_is, _as_is)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", {"Stream": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_stream("/test.Echo/Stream", _as_is, _as_is)()
            yield call
            await call.done_writing()
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    "children",
    [
        300,
        # What the case asks for: the deadlocks it is about came after days.
        pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
async def test_case_43_children_beside_an_open_grpc_stream(children: int) -> None:
    forks: list[int] = []
    os.register_at_fork(before=lambda: forks.append(1))  # gRPC's own handler would run where this one does
    clock = SystemClock()
    async with asyncio.timeout(max(50, children // 12)), echo_stream() as stream:

        async def acknowledged(number: int) -> None:
            await stream.write(b"%d" % number)
            assert await stream.read() == b"%d" % number

        for number in range(children // 4):
            started = [await Child.start([*die_with_parent(), "true"], clock) for _ in range(4)]
            deadline_ns = clock.monotonic_ns() + 10 * SECOND
            finishing = [asyncio.create_task(child.finish(deadline_ns)) for child in started]
            await acknowledged(number)
            endings = [await task for task in finishing]
            assert [(ending.returncode, ending.forced) for ending in endings] == [(0, "")] * 4
        # One that does not return is ended at its deadline, and acknowledgements go on meanwhile.
        hung = await Child.start(["sleep", "300"], clock)
        finishing_hung = asyncio.create_task(hung.finish(clock.monotonic_ns() + 300 * MS))
        number = children
        while not finishing_hung.done():
            await acknowledged(number := number + 1)
        assert finishing_hung.result().forced == "TERM"
    assert forks == []
