"""The iperf3 program of this host: where it is, which version, and how to cure it when it is missing."""

import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agent.clock import Clock
from agent.probe.iperf3_command import OLDEST_VERSION, Version, parse_version, supported
from agent.probe.process import Ending, Running, die_with_parent
from agent.result import PartState
from bandwitness.v1 import record_pb2 as pb

_VERSION_DEADLINE_NS = 5_000_000_000
LIBIPERF = ("-m", "agent.probe.libiperf")  # of this Python
_FileKey = tuple[str, int, int, int]

Spawn = Callable[[Sequence[str], Clock], Awaitable[Running]]


@dataclass(frozen=True, slots=True)
class Program:
    """A usable iperf3. ``prefix`` stands before the arguments on every command line."""

    prefix: tuple[str, ...]
    version: Version
    library: bool = False  # run by libiperf.py


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why there is none: a ``RunOutcome``, one word for the state, and the cure."""

    outcome: int
    state: str
    detail: str


class ProgramFinder:
    """Finds the program and asks its version once; again only when the file has changed (one ``stat`` a test)."""

    def __init__(self, program: str, clock: Clock, spawn: Spawn, *, engine: str = "iperf3") -> None:
        self._library = engine == "libiperf"
        self._program = sys.executable if self._library else program
        self._clock = clock
        self._spawn = spawn
        self._key: _FileKey | None = None
        self._found: Program | Unusable = Unusable(pb.RUN_OUTCOME_ENGINE_MISSING, "not_checked", "not looked for yet")

    @property
    def version(self) -> str:
        """As last seen; empty where there is none."""
        return self._found.version.text if isinstance(self._found, Program) else ""

    def state(self) -> PartState:
        """Of the part ``throughput``, as last seen."""
        if isinstance(self._found, Program):
            return PartState("throughput", working=True, state="ok")
        return PartState("throughput", working=False, state=self._found.state, detail=self._found.detail)

    async def find(self) -> Program | Unusable:
        """The program to use now. Never raises."""
        path = shutil.which(self._program)
        if path is None:
            self._key, self._found = None, self._missing()
            return self._found
        try:
            status = os.stat(path)  # noqa: PTH116 — one system call, on a name that the shell's rule gave
        except OSError:
            self._key, self._found = None, self._missing()
            return self._found
        key = (path, status.st_ino, status.st_size, status.st_mtime_ns)
        if key != self._key:
            self._found = await self._ask(path)
            self._key = key if isinstance(self._found, Program) else None
        return self._found

    async def _ask(self, path: str) -> Program | Unusable:
        wrapper, output = die_with_parent(), ""
        for prefix in (wrapper, ()) if wrapper else ((),):  # a setpriv without --pdeathsig must not stop tests
            program = (*prefix, path, *(LIBIPERF if self._library else ()))
            output = await self._version_text((*program, "--version"))
            version = parse_version(output)
            if version is None:
                continue
            if supported(version):
                return Program(program, version, self._library)
            wanted = ".".join(map(str, OLDEST_VERSION))
            return Unusable(
                pb.RUN_OUTCOME_UNSUPPORTED_VERSION,
                "iperf3_unsupported",
                f"{path} is iperf {version.text}; install iperf3 {wanted} or newer",
            )
        if self._library:
            return Unusable(
                pb.RUN_OUTCOME_ENGINE_MISSING,
                "libiperf_unusable",
                f"libiperf does not tell a version ({_last_line(output)}); install the library and its wrapper (apt "
                "install libiperf0, pip install 'bandwitness[libiperf]')",
            )
        return Unusable(
            pb.RUN_OUTCOME_ENGINE_MISSING,
            "iperf3_unusable",
            f"{path} does not tell a version; install the iperf3 package (apt install iperf3, dnf install iperf3)",
        )

    async def _version_text(self, argv: Sequence[str]) -> str:
        try:
            child = await self._spawn(argv, self._clock)
            ending: Ending = await child.finish(self._clock.monotonic_ns() + _VERSION_DEADLINE_NS)
        except OSError:
            return ""
        return (ending.stdout + ending.stderr).decode(errors="replace")  # 3.0 prints it on stderr

    def _missing(self) -> Unusable:
        return Unusable(
            pb.RUN_OUTCOME_ENGINE_MISSING,
            "iperf3_missing",
            f"{self._program} not found, or not executable; install it (apt install iperf3, dnf install iperf3) or set "
            "agent.iperf3",
        )


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1][:200] if lines else "no output"
