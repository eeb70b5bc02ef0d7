"""Bandwitness itself in a lab: real certificates, a real collector process, a real agent process on every host."""

import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from json import load
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.lab.configuration import COLLECTOR_NAME, Evening, Measuring, agent_file, collector_file
from tests.lab.lab import SYSTEM_PATH, Lab, wait_for
from tests.lab.topology import COLLECTOR, COLLECTOR_ADDRESS, Host

ROOT = Path(__file__).parents[2]
API_TIMEOUT_S = 10.0


class InstallationError(Exception):
    """A part of Bandwitness did not start or ended by itself; the message holds the end of its log."""


class PortInUseError(Exception):
    """The address for the collector's HTTP interface is taken; the message says what to do."""


class Installation:
    """A collector and its agents in an open lab. Files go to ``directory``; the API is at ``url``.

    The HTTP socket is opened here, outside every namespace, and passed on: so the collector answers on this machine's
    loopback while it sits in the lab. It stays open while the collector is down, as a socket unit of systemd would.
    """

    def __init__(
        self, lab: Lab, directory: Path, evening: Evening, measuring: Measuring | None = None, *, port: int = 0
    ) -> None:
        self.lab = lab
        self.directory = directory
        self.evening = evening
        self.measuring = measuring or Measuring()
        self.collector: subprocess.Popen[bytes] | None = None
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self._socket = _listen(port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._write_files()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self.agents.values(), *([self.collector] if self.collector else [])):
            self.lab.stop(process, by=signal.SIGKILL)
        self._socket.close()

    # ---------------------------------------------------------------- files

    @property
    def certificates(self) -> Path:
        return self.directory / "certificates"

    @property
    def collector_state(self) -> Path:
        return self.directory / "collector"

    def agent_state(self, name: str) -> Path:
        return self.directory / name

    def _iperf3(self, name: str) -> Path:
        return self.directory / f"{name}.bin" / "iperf3"

    def _write_files(self) -> None:
        hosts = self.lab.topology.hosts
        make = [sys.executable, "deploy/make_certificates.py", str(self.certificates), "--collector", COLLECTOR_NAME]
        nodes = [word for host in hosts for word in ("--node", host.name)]
        done = subprocess.run(
            [*make, "--address", COLLECTOR_ADDRESS, *nodes], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise InstallationError(f"deploy/make_certificates.py: exit {done.returncode}: {done.stderr.strip()}")
        self._collector_yaml.write_text(
            collector_file(
                self.lab.topology,
                self.evening,
                self.measuring,
                certificates=self.certificates,
                state_dir=self.collector_state,
                http_fd=self._socket.fileno(),
            )
        )
        for host in hosts:
            self._iperf3(host.name).parent.mkdir()
            self.show_iperf3(host.name)
            text = agent_file(
                host,
                certificates=self.certificates,
                state_dir=self.agent_state(host.name),
                iperf3=self._iperf3(host.name),
            )
            self._agent_yaml(host).write_text(text)

    @property
    def _collector_yaml(self) -> Path:
        return self.directory / "collector.yaml"

    def _agent_yaml(self, host: Host) -> Path:
        return self.directory / f"{host.name}.yaml"

    def hide_iperf3(self, name: str) -> None:
        """From now on this agent finds no iperf3."""
        self._iperf3(name).unlink()

    def show_iperf3(self, name: str) -> None:
        program = shutil.which("iperf3", path=SYSTEM_PATH)
        if program is None:
            raise InstallationError("The program iperf3 is missing. As root: apt-get install iperf3")
        self._iperf3(name).symlink_to(program)

    # ---------------------------------------------------------------- processes

    def start_collector(self, *, within: float = 30) -> None:
        """Returns once it answers ``/healthz``."""
        self.collector = self._start(
            COLLECTOR,
            ["collector", "serve", "--config", str(self._collector_yaml)],
            "collector.log",
            pass_fds=[self._socket.fileno()],
        )
        wait_for("an answer of the collector", lambda: self.health() is not None, within=within, every=0.2)

    def start_agent(self, name: str, *, through: Sequence[str] = ()) -> None:
        """``through``: the words of a program that becomes the agent."""
        host = self.lab.topology.host(name)
        words = ["agent", "run", "--config", str(self._agent_yaml(host))]
        self.agents[name] = self._start(name, words, f"{name}.log", through=through)

    def start_agents(self, *, within: float = 30, through: Mapping[str, Sequence[str]] | None = None) -> None:
        """Returns once every agent is connected. ``through``: as in ``start_agent``, by host."""
        for host in self.lab.topology.hosts:
            self.start_agent(host.name, through=(through or {}).get(host.name, ()))
        wait_for("all agents to connect", lambda: len(self.connected()) == len(self.agents), within=within, every=0.2)

    def kill_collector(self) -> None:
        """SIGKILL."""
        assert self.collector is not None
        self.lab.stop(self.collector, by=signal.SIGKILL)
        self.collector = None

    def kill_agent(self, name: str) -> None:
        """SIGKILL; its iperf3 children may live on, as they do when that happens in life."""
        self.lab.stop(self.agents.pop(name), by=signal.SIGKILL)

    def stop_agents(self) -> None:
        """SIGTERM, all at once; they seal what they hold."""
        for process in self.agents.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self.agents.items():
            if (status := self.lab.stop(process, by=None)) != 0:
                raise InstallationError(f"{name} ended with {status} after SIGTERM:\n{self.log_end(f'{name}.log')}")
        self.agents.clear()

    def stop_collector(self) -> None:
        assert self.collector is not None
        if (status := self.lab.stop(self.collector)) != 0:
            raise InstallationError(f"the collector ended with {status}:\n{self.log_end('collector.log')}")
        self.collector = None

    def check_alive(self) -> None:
        """Raises InstallationError where a process has ended by itself."""
        for name, process in (*self.agents.items(), *([("collector", self.collector)] if self.collector else [])):
            if process.poll() is not None:
                raise InstallationError(
                    f"{name} ended by itself (exit {process.returncode}):\n{self.log_end(f'{name}.log')}"
                )

    def _start(
        self,
        namespace: str,
        words: Sequence[str],
        log: str,
        *,
        pass_fds: Sequence[int] = (),
        through: Sequence[str] = (),
    ) -> "subprocess.Popen[bytes]":
        with (self.directory / log).open("ab") as output:
            return self.lab.start(
                namespace,
                [*through, sys.executable, "-m", *words],
                output=output,
                pass_fds=pass_fds,
                environment={"PYTHONUNBUFFERED": "1"},
            )

    def log_end(self, log: str, lines: int = 15) -> str:
        """The last lines of what a process said."""
        with suppress(FileNotFoundError):
            text = (self.directory / log).read_text(errors="replace")
            return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])
        return "  (it said nothing)"

    # ---------------------------------------------------------------- what the collector says

    def health(self) -> dict[str, Any] | None:
        """``/healthz``, also when it is 503; None while nobody answers."""
        self.check_alive()
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=2) as response:
                return dict(load(response))
        except urllib.error.HTTPError as error:
            with error:
                return dict(load(error))
        except OSError:
            return None

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=API_TIMEOUT_S) as response:
            return str(response.read().decode())

    def items(self, resource: str, **query: str) -> list[dict[str, Any]]:
        """All items of ``/api/v1/<resource>``, page after page."""
        items: list[dict[str, Any]] = []
        while True:
            address = f"{self.url}/api/v1/{resource}?{urllib.parse.urlencode(query)}"
            with urllib.request.urlopen(address, timeout=API_TIMEOUT_S) as response:
                page = load(response)
            items += page["items"]
            if page["next"] is None:
                return items
            query["cursor"] = page["next"]

    def connected(self) -> list[str]:
        self.check_alive()
        with suppress(OSError):
            return [node["name"] for node in self.items("nodes") if node["connected"]]
        return []

    def _span(self, start_s: int, end_s: int) -> dict[str, str]:
        return {"from": _rfc3339(start_s), "to": _rfc3339(end_s)}

    def timetable(self) -> list[dict[str, Any]]:
        """Slots of this night and this evening; those of the days to come are of no interest here."""
        return self.items("timetable", **self._span(self.evening.night_start_s, self.evening.evening_end_s))

    def accounting(self) -> list[dict[str, Any]]:
        return self.items("accounting", **self._span(self.evening.night_start_s, self.evening.evening_end_s))

    def throughput_paths(self) -> list[dict[str, Any]]:
        """Paths with throughput, in order of source and destination."""
        paths = [path for path in self.items("paths") if path["throughput"] is not None]
        return sorted(paths, key=lambda path: (path["src"], path["dst"]))

    def incidents(self, rule: str | None = None, *, active: bool = False) -> list[dict[str, Any]]:
        found = self.items("incidents", **({"active": "true"} if active else {}))
        return [incident for incident in found if rule in (None, incident["rule"])]

    def wait_until_decided(self, *, within: float, one_end: Callable[[Mapping[str, Any]], bool] | None = None) -> None:
        """Returns once no slot of this night and evening is pending, and both ends of each good one have reported.

        ``one_end`` says of a slot that its server's record need not come. A slot is decided by its client's record;
        the server's joins when it arrives.
        """

        def decided() -> bool:
            self.check_alive()
            slots = self.timetable()
            return bool(slots) and all(
                slot["category"] not in ("pending", "ok")
                or (slot["category"] == "ok" and (slot["server_run"] is not None or (one_end and one_end(slot))))
                for slot in slots
            )

        wait_for("the last tests' records", decided, within=within, every=0.5)


def wait_until(epoch_s: float, installation: Installation) -> None:
    """Waits for a moment of the virtual evening, and raises at once where a process ends by itself."""
    while (left := epoch_s - time.time()) > 0:
        installation.check_alive()
        time.sleep(min(left, 0.5))


def _rfc3339(epoch_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch_s))


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise PortInUseError(
            f"127.0.0.1:{port} cannot be listened on ({error.strerror}): another collector or demo may be running. "
            "Choose another port with --port N (0: any free one)."
        ) from None
