"""One child process that cannot outlive its deadline, its agent, or the memory given to it.

A process group and session of its own, so it is ended by its own group id and nothing else is. No ``preexec_fn``:
CPython then starts it with vfork and no fork handler runs (Modules/_posixsubprocess.c), neither Python's nor gRPC's,
whose handlers deadlock when a stream is open (grpc/grpc#22624). Descriptors are closed, ``setpriv --pdeathsig`` (where
there is one) lets the kernel end the child when the agent dies, and niceness is set from outside.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.clock import Clock

NICE = 5
TERM_GRACE_NS = 1_000_000_000  # iperf3 writes its report on SIGTERM
STOP_GRACE_NS = 400_000_000  # the same, where others wait for the network
KILL_GRACE_NS = 2_000_000_000  # past it the child hangs in the kernel; it is left behind, not waited for
MAX_STDOUT_BYTES = 4 * 1024 * 1024
MAX_STDERR_BYTES = 16 * 1024
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child ended. ``forced``: "" by itself, else "TERM", "KILL", or "STUCK" when not even that helped."""

    returncode: int | None
    stdout: bytes
    stderr: bytes
    cut: bool = False  # more was printed than is kept
    forced: str = ""
    stopped: bool = False  # forced because it was told to stop, and not by the deadline


class Running(Protocol):
    """A started process."""

    @property
    def pid(self) -> int:
        """Of the process, and of the group that it leads."""

    async def finish(self, deadline_ns: int, stop: asyncio.Event | None = None) -> Ending:
        """Waits for the end, at the latest until shortly after ``deadline_ns`` (monotonic) or ``stop``."""


class Child:
    """A started process; ``finish`` must be awaited (cancelling it ends the process at once)."""

    def __init__(self, process: asyncio.subprocess.Process, clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self._pid = process.pid
        self._stdout, self._stderr = bytearray(), bytearray()
        self._cut = False

    @property
    def pid(self) -> int:
        return self._pid

    @classmethod
    async def start(cls, argv: Sequence[str], clock: Clock) -> "Child":
        """Starts ``argv`` with an environment of its own: no locale (error texts are read), nothing inherited.

        Raises:
            OSError: it cannot be started.
        """
        environment = {"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)}
        if "TMPDIR" in os.environ:
            environment["TMPDIR"] = os.environ["TMPDIR"]  # iperf3 keeps a buffer file for each stream there
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=environment,
            limit=_CHUNK_BYTES,
        )
        with contextlib.suppress(OSError):  # gone already, or not allowed: it runs all the same
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        return cls(process, clock)

    async def finish(self, deadline_ns: int, stop: asyncio.Event | None = None) -> Ending:
        """Waits for the end; at ``deadline_ns`` (monotonic) or once ``stop`` is set SIGTERM, and SIGKILL a second
        (when stopped: less than half of one) later, to the whole group."""
        collecting = asyncio.create_task(self._collect())
        forced, stopped = "", False
        try:
            if not await self._within(collecting, deadline_ns, stop):
                forced, stopped = "TERM", stop is not None and stop.is_set()
                self._signal(signal.SIGTERM)
                grace_ns = STOP_GRACE_NS if stopped else TERM_GRACE_NS
                if not await self._within(collecting, self._clock.monotonic_ns() + grace_ns):
                    forced = "KILL"
                    self._signal(signal.SIGKILL)
                    if not await self._within(collecting, self._clock.monotonic_ns() + KILL_GRACE_NS):
                        forced = "STUCK"
        finally:
            if not collecting.done():  # cancelled, or stuck
                self._signal(signal.SIGKILL)
                await asyncio.wait([collecting], timeout=KILL_GRACE_NS / 1e9)
            if not collecting.done():
                collecting.cancel()
                self._close_pipes()
        if forced != "STUCK":
            collecting.result()  # a fault while reading is ours and goes up
        return Ending(self._process.returncode, bytes(self._stdout), bytes(self._stderr), self._cut, forced, stopped)

    async def _within(self, collecting: "asyncio.Task[None]", until_ns: int, stop: asyncio.Event | None = None) -> bool:
        limits = [asyncio.ensure_future(self._clock.sleep_until(until_ns))]
        if stop is not None:
            limits.append(asyncio.ensure_future(stop.wait()))  # type: ignore[arg-type]
        try:
            await asyncio.wait((collecting, *limits), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for limit in limits:
                limit.cancel()
        return collecting.done()

    async def _collect(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        await asyncio.gather(
            self._read(self._process.stdout, self._stdout, MAX_STDOUT_BYTES),
            self._read(self._process.stderr, self._stderr, MAX_STDERR_BYTES),
        )
        await self._process.wait()

    async def _read(self, stream: asyncio.StreamReader, kept: bytearray, limit: int) -> None:
        while chunk := await stream.read(_CHUNK_BYTES):
            room = limit - len(kept)
            kept += chunk[:room]
            self._cut = self._cut or len(chunk) > room  # read on all the same: a full pipe would stop the child

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:  # once reaped, the number may belong to somebody else
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, number)

    def _close_pipes(self) -> None:
        # The child lives on in the kernel; asyncio has no public way to let go of its pipes.
        transport = getattr(self._process, "_transport", None)
        if transport is not None:
            transport.close()


def die_with_parent() -> tuple[str, ...]:
    """Words to put before a command line so that the kernel kills it when its parent dies; empty if not to be had."""
    program = shutil.which("setpriv")
    return (program, "--pdeathsig", "KILL", "--") if program else ()
