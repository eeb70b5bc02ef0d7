"""One end of one attempt under way: readings before and after, gates, the process, and the record made of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from agent.clock import Clock
from agent.probe import gates
from agent.probe.iperf3_command import THREADED_VERSION
from agent.probe.iperf3_program import Program, Spawn
from agent.probe.iperf3_report import parse_report
from agent.probe.process import Ending
from agent.result import Gate, Report, ThroughputRun
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Slot

MAX_RAW_REPORT_BYTES = 256 * 1024
MAX_STRANGERS = 16
_THREAD_SAMPLE_NS = 250_000_000
_PARSE_IN_THREAD_BYTES = 64 * 1024
_MIN_GATE_WINDOW_NS = 20_000_000

# Names of ``Report.flags``, beside those of iperf3_report.
EXCEEDS_PORT_SPEED = "exceeds_port_speed"
CONGESTION_CONTROL_DIFFERS = "congestion_control_differs"


class Run:
    """One end of one attempt under way: readings, gates, and what the process printed."""

    def __init__(
        self, slot: Slot, role: int, *, clock: Clock, root: Path, spawn: Spawn, stop: asyncio.Event | None = None
    ) -> None:
        self.slot = slot
        self._role = role
        self._nic = slot.client.nic if role == pb.RUN_ROLE_CLIENT else slot.server.nic
        self._clock = clock
        self._root = root
        self._spawn = spawn
        self._gates: list[Gate] = []
        self._strangers: list[str] = []
        self._raw, self._raw_cut = b"", False
        self._start_ns = self._clock.monotonic_ns()
        self._threads: float | None = None
        self._stop = stop or asyncio.Event()
        self.forced = ""

    @property
    def stopped(self) -> bool:
        """Whether it was told to stop."""
        return self._stop.is_set()

    async def rest_until(self, until_ns: int) -> None:
        """Sleeps, but not through being told to stop."""
        sleeping = asyncio.ensure_future(self._clock.sleep_until(until_ns))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((sleeping, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            stopping.cancel()

    async def quiet_until(self, until_ns: int, limit_ratio: float) -> bool:
        """Measures the NIC's own traffic until then. False: over the limit."""
        first, first_ns = gates.read_nic(self._root, self._nic), self._clock.monotonic_ns()
        await self.rest_until(until_ns)
        elapsed_ns = self._clock.monotonic_ns() - first_ns
        if elapsed_ns < _MIN_GATE_WINDOW_NS:  # late: one packet would look like a full port
            gate = Gate(pb.GATE_KIND_OWN_TRAFFIC, pb.GATE_PHASE_BEFORE, tripped=False, detail="no time to measure")
        else:
            last = gates.read_nic(self._root, self._nic)
            gate = gates.own_traffic_gate(first, last, elapsed_ns, limit_ratio, phase=pb.GATE_PHASE_BEFORE)
        self._gates.append(gate)
        return not gate.tripped

    def begin(self) -> None:
        """The readings that those of ``end`` are held against."""
        self._nic_first = gates.read_nic(self._root, self._nic)
        self._anchor_first = self._clock.anchor()
        self._begin_ns = self._start_ns = self._clock.monotonic_ns()

    async def process(self, program: Program, arguments: list[str], deadline_ns: int, profile: pb.Profile) -> Report:
        """One child process from start to end; its report, with the outcome as printed."""
        self._start_ns = self._clock.monotonic_ns()
        try:
            child = await self._spawn((*program.prefix, *arguments), self._clock)
        except OSError as error:
            return Report(outcome=pb.RUN_OUTCOME_AGENT_FAULT, detail=f"cannot start iperf3: {error.strerror or error}")
        threaded = program.version.number >= THREADED_VERSION and profile.streams > 1
        async with self._watch_threads(child.pid) if threaded else contextlib.nullcontext():
            ending = await child.finish(deadline_ns, self._stop)
        self.forced = ending.forced
        self._keep_raw(ending)
        text, stderr = ending.stdout.decode(errors="replace"), ending.stderr.decode(errors="replace")
        reverse, udp = self.slot.reverse, bool(profile.udp_rate_bps)
        if len(text) > _PARSE_IN_THREAD_BYTES:  # tens of ms: the event loop has packets to send
            return await asyncio.to_thread(parse_report, text, self._role, reverse=reverse, udp=udp, stderr=stderr)
        return parse_report(text, self._role, reverse=reverse, udp=udp, stderr=stderr)

    def stranger(self, address: str) -> None:
        """Somebody used the server up who was not planned; the first MAX_STRANGERS are recorded."""
        if len(self._strangers) < MAX_STRANGERS:
            self._strangers.append(address)

    def end(self, report: Report, profile: pb.Profile, limit_ratio: float) -> ThroughputRun:
        """The record of a run for which a process was (or, at a server without a port, would have been) started."""
        nic, anchor, now_ns = gates.read_nic(self._root, self._nic), self._clock.anchor(), self._clock.monotonic_ns()
        omitted = sum(interval.bytes for interval in report.intervals if interval.omitted)
        counted = sum(interval.bytes for interval in report.intervals if not interval.omitted)
        moved = max(report.sender_bytes or 0, report.receiver_bytes or 0) or counted
        self._gates += [
            gates.own_traffic_gate(
                self._nic_first,
                nic,
                now_ns - self._begin_ns,
                limit_ratio,
                phase=pb.GATE_PHASE_DURING,
                test_bytes=moved + omitted,
            ),
            gates.cpu_gate(self._threads if self._threads is not None else report.local_cpu_ratio),
            gates.link_gate(self._nic_first, nic),
            gates.clock_gate(self._anchor_first, anchor),
        ]
        flags = list(report.flags)
        rate_bps = _rate_bps(report)
        if rate_bps is not None and nic.speed_bps is not None and rate_bps > nic.speed_bps:
            flags.append(EXCEEDS_PORT_SPEED)
        asked, used = profile.congestion_control, report.congestion_control
        if asked and used and asked != used and not profile.udp_rate_bps:
            flags.append(CONGESTION_CONTROL_DIFFERS)
        return self._result(replace(report, flags=tuple(flags)), now_ns)

    def without_process(self, outcome: int, detail: str) -> ThroughputRun:
        """A run that ended before a process was started."""
        self._start_ns = self._clock.monotonic_ns()
        return self._result(Report(outcome=outcome, detail=detail), self._start_ns)

    def _result(self, report: Report, end_ns: int) -> ThroughputRun:
        slot = self.slot
        planned = slot.server.address if self._role == pb.RUN_ROLE_CLIENT else slot.client.address
        return ThroughputRun(
            slot_id=slot.slot_id,
            group_id=slot.group_id,
            role=self._role,
            path=slot.path,
            profile=slot.profile,
            report=replace(report, peer_address=report.peer_address or planned),
            start_time_ns=self._clock.event_time_ns(self._start_ns),
            end_time_ns=self._clock.event_time_ns(end_ns),
            elapsed_ns=end_ns - self._start_ns,
            reverse=slot.reverse,
            port=slot.port,
            gates=tuple(self._gates),
            raw_report=self._raw,
            raw_report_cut=self._raw_cut,
            strangers=tuple(self._strangers),
        )

    def _keep_raw(self, ending: Ending) -> None:
        printed = ending.stdout or ending.stderr
        self._raw = printed[:MAX_RAW_REPORT_BYTES]
        self._raw_cut = ending.cut or len(printed) > MAX_RAW_REPORT_BYTES

    @contextlib.asynccontextmanager
    async def _watch_threads(self, pid: int) -> AsyncIterator[None]:
        """From 3.16 on each stream has a thread: the report's CPU figure is their sum, so each is read from outside."""
        watching = asyncio.create_task(self._sample_threads(pid))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _sample_threads(self, pid: int) -> None:
        first, first_ns = gates.read_thread_ticks(self._root, pid), self._clock.monotonic_ns()
        while True:
            await self._clock.sleep_until(self._clock.monotonic_ns() + _THREAD_SAMPLE_NS)
            last = gates.read_thread_ticks(self._root, pid)
            ratio = gates.busiest_thread_ratio(first, last, self._clock.monotonic_ns() - first_ns)
            self._threads = ratio if ratio is not None else self._threads


def _rate_bps(report: Report) -> float | None:
    if not report.receiver_bytes or not report.receiver_duration_ns:
        return None
    return report.receiver_bytes * 8e9 / report.receiver_duration_ns
