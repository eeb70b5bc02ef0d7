"""One end of one attempt under way: readings before and after, gates, the process, and the record made of them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent.clock import Clock
from agent.probe import cores, gates
from agent.probe.affinity import Affinity
from agent.probe.iperf3_command import THREADED_VERSION
from agent.probe.iperf3_program import Program, Spawn
from agent.probe.iperf3_report import parse_report
from agent.probe.iperf3_several import Attempt
from agent.probe.iperf3_watch import Watch, stretch_ns
from agent.result import Gate, Report, ThroughputRun
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Slot

MAX_RAW_REPORT_BYTES = 256 * 1024
MAX_STRANGERS = 16
_PARSE_IN_THREAD_BYTES = 64 * 1024
_MIN_GATE_WINDOW_NS = 20_000_000
_GATE_AGAIN_NS = 300_000_000

# Names of ``Report.flags``, beside those of iperf3_report.
EXCEEDS_PORT_SPEED = "exceeds_port_speed"
CONGESTION_CONTROL_DIFFERS = "congestion_control_differs"
LIBIPERF_USED = "libiperf"  # by the library and not the program: the same code, another process around it
DEFERRED = "deferred"  # put off inside the margin, because the NIC carried traffic of its own
NO_NUMA_CPUS = "no_numa_cpus"  # asked for, and the kernel does not tell or allow them


class Run:
    """One end of one attempt under way: readings, gates, and what the process printed."""

    def __init__(
        self,
        slot: Slot,
        role: int,
        *,
        clock: Clock,
        root: Path,
        spawn: Spawn,
        stop: asyncio.Event | None = None,
        affinity: Affinity,
    ) -> None:
        self.slot = slot
        self._role = role
        self._nic = slot.client.nic if role == pb.RUN_ROLE_CLIENT else slot.server.nic
        self._clock = clock
        self._root = root
        self._spawn = spawn
        self._gates: list[Gate] = []
        self._deferred = 0
        self._strangers: list[str] = []
        self._flags: list[str] = []
        self._attempts: Sequence[Attempt] = ()
        self._port: tuple[int, int] | None = None
        self._start_ns = self._clock.monotonic_ns()
        self._stop = stop or asyncio.Event()
        self._watch = Watch(root, self._nic, clock)
        self._affinity = affinity

    @property
    def nic(self) -> str:
        """Of this end."""
        return self._nic

    def speed_bps(self) -> int | None:
        """Of the NIC; None where the kernel does not tell."""
        return gates.read_nic(self._root, self._nic).speed_bps

    @property
    def watch(self) -> Watch:
        """To be kept going beside the processes."""
        return self._watch

    @property
    def stop(self) -> asyncio.Event:
        """Set: it was told to stop."""
        return self._stop

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

    async def quiet_until(self, until_ns: int, last_ns: int, limit_ratio: float) -> bool:
        """Measures the NIC's own traffic until then. While it is over the limit the test is put off, and measured
        again, up to ``last_ns``. False: over the limit until then."""
        while True:
            first, first_ns = gates.read_nic(self._root, self._nic), self._clock.monotonic_ns()
            await self.rest_until(until_ns)
            elapsed_ns = self._clock.monotonic_ns() - first_ns
            if elapsed_ns < _MIN_GATE_WINDOW_NS:  # late: one packet would look like a full port
                gate = Gate(pb.GATE_KIND_OWN_TRAFFIC, pb.GATE_PHASE_BEFORE, tripped=False, detail="no time to measure")
            else:
                last = gates.read_nic(self._root, self._nic)
                gate = gates.own_traffic_gate(first, last, elapsed_ns, limit_ratio, phase=pb.GATE_PHASE_BEFORE)
            until_ns = self._clock.monotonic_ns() + _GATE_AGAIN_NS
            if self.stopped or not gate.tripped or until_ns > last_ns:
                break
            self._deferred += 1
        if self._deferred:
            said = f"put off {self._deferred} times" + (f"; {gate.detail}" if gate.detail else "")
            gate = replace(gate, detail=said)
            self._flags.append(DEFERRED)
        self._gates.append(gate)
        return not gate.tripped

    def begin(self) -> None:
        """The readings that those of ``end`` are held against."""
        self._nic_first = gates.read_nic(self._root, self._nic)
        self._anchor_first = self._clock.anchor()
        self._begin_ns = self._start_ns = self._clock.monotonic_ns()

    async def process(
        self,
        program: Program,
        arguments: list[str],
        deadline_ns: int,
        profile: pb.Profile,
        stop: asyncio.Event | None = None,
    ) -> Attempt:
        """One child process from start to end; its report, with the outcome as printed.

        Args:
            program: with what stands before the arguments.
            arguments: of iperf3.
            deadline_ns: it is ended then.
            profile: as planned.
            stop: ends it too; that of the run where it is not given.
        """
        start_ns = self._start_ns = self._clock.monotonic_ns()
        try:
            child = await self._spawn((*program.prefix, *arguments), self._clock)
        except OSError as error:
            why = f"cannot start iperf3: {error.strerror or error}"
            return Attempt(Report(outcome=pb.RUN_OUTCOME_AGENT_FAULT, detail=why), start_ns)
        if program.library:
            self._flags.append(LIBIPERF_USED)
        if profile.numa_cpus:
            self._bind_cpus(child.pid)
        ticks: list[tuple[int, Mapping[int, int]]] = []
        async with self._watch.threads(child.pid, ticks):
            ending = await child.finish(deadline_ns, stop or self._stop)
        text, stderr = ending.stdout.decode(errors="replace"), ending.stderr.decode(errors="replace")
        reverse, udp = self.slot.reverse, bool(profile.udp_rate_bps)
        if len(text) > _PARSE_IN_THREAD_BYTES:  # tens of ms: the event loop has packets to send
            report = await asyncio.to_thread(parse_report, text, self._role, reverse=reverse, udp=udp, stderr=stderr)
        else:
            report = parse_report(text, self._role, reverse=reverse, udp=udp, stderr=stderr)
        busiest = cores.busiest(ticks, stretch_ns(profile.duration_ns))
        return Attempt(
            report,
            start_ns,
            forced=ending.forced,
            raw=ending.stdout or ending.stderr,
            raw_cut=ending.cut,
            cpu_ratio=busiest[0] if busiest else None,
            threaded=program.version.number >= THREADED_VERSION,
        )

    def _bind_cpus(self, pid: int) -> None:
        """The threads that iperf3 starts later inherit it."""
        cpus = cores.numa_cpus(self._root, self._nic) & self._affinity.allowed()
        if not cpus or not self._affinity.set(pid, cpus):
            self._flags.append(NO_NUMA_CPUS)

    def stranger(self, address: str) -> None:
        """Somebody used the server up who was not planned; the first MAX_STRANGERS are recorded."""
        if len(self._strangers) < MAX_STRANGERS:
            self._strangers.append(address)

    def end(
        self, report: Report, attempts: Sequence[Attempt], profile: pb.Profile, limit_ratio: float
    ) -> ThroughputRun:
        """The record of a run for which a process was (or, at a server without a port, would have been) started."""
        self._attempts = attempts
        nic, anchor, now_ns = gates.read_nic(self._root, self._nic), self._clock.anchor(), self._clock.monotonic_ns()
        omitted = sum(interval.bytes for interval in report.intervals if interval.omitted)
        counted = sum(interval.bytes for interval in report.intervals if not interval.omitted)
        moved = max(report.sender_bytes or 0, report.receiver_bytes or 0) or counted
        rate_bps = _rate_bps(report)
        self._gates += [
            gates.own_traffic_gate(
                self._nic_first,
                nic,
                now_ns - self._begin_ns,
                limit_ratio,
                phase=pb.GATE_PHASE_DURING,
                test_bytes=moved + omitted,
            ),
            gates.cpu_gate(_busiest_thread(report, attempts), self._watch.softirq(profile.duration_ns)),
            gates.window_gate(report.intervals, rate_bps, nic.speed_bps, gates.send_buffer_limit(self._root)),
            gates.link_gate(self._nic_first, nic),
            gates.clock_gate(self._anchor_first, anchor),
        ]
        flags = [*report.flags, *dict.fromkeys(self._flags)]
        if rate_bps is not None and nic.speed_bps is not None and rate_bps > nic.speed_bps:
            flags.append(EXCEEDS_PORT_SPEED)
        asked, used = profile.congestion_control, report.congestion_control
        if asked and used and asked != used and not profile.udp_rate_bps:
            flags.append(CONGESTION_CONTROL_DIFFERS)
        if report.outcome == pb.RUN_OUTCOME_OK:
            sends = self.slot.reverse == (self._role == pb.RUN_ROLE_SERVER)
            from_ns = now_ns - profile.duration_ns
            self._port = self._watch.port_bytes(sends=sends, from_ns=from_ns, to_ns=now_ns)
        return self._result(replace(report, flags=tuple(flags)), now_ns)

    def without_process(self, outcome: int, detail: str) -> ThroughputRun:
        """A run that ended before a process was started."""
        self._start_ns = self._clock.monotonic_ns()
        return self._result(Report(outcome=outcome, detail=detail), self._start_ns)

    def _result(self, report: Report, end_ns: int) -> ThroughputRun:
        slot = self.slot
        raw, cut = self._raw_reports()
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
            raw_report=raw,
            raw_report_cut=cut,
            strangers=tuple(self._strangers),
            processes=len(self._attempts),
            port_bytes=self._port[0] if self._port else None,
            port_duration_ns=self._port[1] if self._port else None,
        )

    def _raw_reports(self) -> tuple[bytes, bool]:
        """All that was printed, one process after the other, and whether any of it is cut."""
        if not self._attempts:
            return b"", False
        room = MAX_RAW_REPORT_BYTES // len(self._attempts)
        kept = [attempt.raw[: room - 1 if len(self._attempts) > 1 else room] for attempt in self._attempts]
        cut = any(attempt.raw_cut or len(attempt.raw) > room for attempt in self._attempts)
        return b"\n".join(kept), cut


def _busiest_thread(report: Report, attempts: Sequence[Attempt]) -> float | None:
    """Up to 3.15 a process has one thread, and the report tells of the time of the test alone. From 3.16 on each stream
    has one, and the report's figure is their sum, so they were read from outside."""
    seen = [attempt.cpu_ratio for attempt in attempts if attempt.cpu_ratio is not None]
    if seen and any(attempt.threaded for attempt in attempts):
        return max(seen)
    return report.local_cpu_ratio if report.local_cpu_ratio is not None else max(seen, default=None)


def _rate_bps(report: Report) -> float | None:
    if not report.receiver_bytes or not report.receiver_duration_ns:
        return None
    return report.receiver_bytes * 8e9 / report.receiver_duration_ns
