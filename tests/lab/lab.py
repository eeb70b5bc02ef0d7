"""The lab's namespaces and processes: built, entered, and gone with the process that made them.

A *holder* process sits in fresh network and mount namespaces (and in a user namespace where we are not root) with a
private ``/run``, so that ``ip netns`` works, no name collides with another lab, and nothing is ever visible in the
root namespace. All of it vanishes when the last process inside ends: the holder ends with our end of its pipe, and
every process started here carries SIGKILL as its parent-death signal. So a lab cannot outlive us, whatever ends us.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.lab.topology import Topology, build_script

MARK = "BANDWITNESS_LAB"  # in the environment of every process of a lab: whose it is
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class LabUnavailableError(Exception):
    """This machine cannot hold a lab; the message says what is missing and how to cure it."""


class LabError(Exception):
    """A command inside the lab failed."""


class Lab:
    """``with Lab(topology) as lab: lab.run("gpu-r1-01", ["ip", "address"])``."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._holder: subprocess.Popen[bytes] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}", MARK: _own_mark()}

    def __enter__(self) -> Self:
        end_strays()
        try:
            self._hold()
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process of the lab, and the lab with the last of them. May be called again."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
        if self._holder is not None and self._holder.poll() is None:
            for namespace in self.topology.namespaces():
                with suppress(LabError):
                    for pid in self._command([*self._enter(), "ip", "netns", "pids", namespace]).split():
                        _kill(int(pid))  # children of an agent that was killed
            self._holder.kill()
        for process in (*self._processes, *([self._holder] if self._holder else [])):
            process.wait(timeout=10)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self._processes.clear()
        self._holder = None

    def start(
        self,
        namespace: str | None,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | int = subprocess.DEVNULL,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """A process inside ``namespace`` (None: in the fabric); ``pid`` is its own, so that signals reach it."""
        process = subprocess.Popen(
            [*self._enter(namespace), *argv],
            env={**self._environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=pass_fds,
            process_group=0,  # Ctrl-C is for us, who then end them in order
        )
        self._processes.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes], *, by: int | None = signal.SIGTERM, within: float = 10) -> int:
        """Ends a process started here and gives its status; SIGKILL when it takes longer than ``within`` seconds.

        ``by`` None: it has its signal already (to many programs a second one means "at once").
        """
        if process.poll() is None:
            if by is not None:
                process.send_signal(by)
            try:
                process.wait(timeout=within)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)
        if process in self._processes:
            self._processes.remove(process)
        return process.returncode

    def run(self, namespace: str | None, argv: Sequence[str], *, text: str = "", timeout: float = 60) -> str:
        """A command inside ``namespace`` (None: in the fabric); its output.

        Raises:
            LabError: it failed or took longer than ``timeout`` seconds.
        """
        return self._command([*self._enter(namespace), *argv], text, timeout=timeout)

    def _command(self, argv: Sequence[str], text: str = "", *, timeout: float = 20) -> str:
        try:
            done = subprocess.run(
                argv, input=text, env=self._environment, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"{' '.join(argv)}: not done within {timeout:g} s") from None
        if done.returncode != 0:
            raise LabError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _build(self) -> None:
        try:
            self._command([*self._enter(), "sh"], build_script(self.topology), timeout=60)
        except LabError as error:
            raise LabUnavailableError(
                f"This kernel cannot build the network: {error}. It needs veth, bridge and tbf: as root, "
                "modprobe veth bridge sch_tbf (CONFIG_VETH, CONFIG_BRIDGE, CONFIG_NET_SCH_TBF)."
            ) from None

    def _hold(self) -> None:
        flags = ["--net", "--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net", "--mount"]
        inside = "mount -t tmpfs tmpfs /run && mkdir /run/netns && echo ready && exec cat"
        try:
            self._holder = subprocess.Popen(
                ["unshare", *flags, "setpriv", "--pdeathsig", "KILL", "sh", "-c", inside],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except FileNotFoundError:
            raise LabUnavailableError("The program unshare is missing. As root: apt-get install util-linux") from None
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        if self._holder.stdout.readline().strip() != b"ready":
            why = self._holder.stderr.read().decode(errors="replace").strip()
            raise LabUnavailableError(_cure(why))

    def _enter(self, namespace: str | None = None) -> list[str]:
        """The words that put a command inside; each replaces itself by the next, so the process id stays."""
        if self._holder is None:
            raise LabError("the lab is not open")
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        enter = ["nsenter", "--target", str(self._holder.pid), *user, "--net", "--mount", f"--wd={Path.cwd()}", "--"]
        return [
            *enter,
            *(["ip", "netns", "exec", namespace] if namespace else []),
            *("setpriv", "--pdeathsig", "KILL", "--"),
        ]


def _cure(why: str) -> str:
    if os.geteuid() == 0:
        return (
            f"Network namespaces cannot be made here ({why}). The lab needs CAP_SYS_ADMIN and CAP_NET_ADMIN: run it on "
            "the host itself, or in a container started with --privileged."
        )
    return (
        f"Network namespaces cannot be made by an ordinary user here ({why}). Run it as root, or let users do it: "
        "sysctl -w kernel.unprivileged_userns_clone=1 (Debian), "
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces above 0."
    )


# ---------------------------------------------------------------- what an earlier lab may have left


def _start_time(pid: int) -> str | None:
    """Field 22 of /proc/PID/stat: with the pid it names one process for good."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _own_mark() -> str:
    return f"{os.getpid()}-{_start_time(os.getpid())}"


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _marked() -> Iterator[tuple[int, int, str]]:
    """Every process of a lab that we may see: its id, and its maker's id and start time."""
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = environment.read_bytes().split(b"\0")
        except OSError:
            continue
        for word in words:
            name, _, value = word.partition(b"=")
            maker, _, started = value.decode(errors="replace").partition("-")
            if name == MARK.encode() and maker.isdecimal():
                yield int(environment.parent.name), int(maker), started


def processes_of_labs(maker: int) -> list[int]:
    """Every process of the labs that the process ``maker`` made, told by the mark in their environment."""
    return [pid for pid, of, _ in _marked() if of == maker]


def end_strays() -> int:
    """Ends processes of labs whose maker is gone; gives how many."""
    strays = [pid for pid, maker, started in _marked() if _start_time(maker) != started]
    for pid in strays:
        _kill(pid)
    return len(strays)


def wait_for(what: str, condition: Callable[[], bool], *, within: float, every: float = 0.1) -> None:
    """Waits until ``condition()`` is true.

    Raises:
        TimeoutError: it was not within ``within`` seconds.
    """
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within:g} s")
        time.sleep(every)
