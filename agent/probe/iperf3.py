"""Throughput tests with the ``iperf3`` program: a child process, or several, for each end of a slot.

The client starts at the slot's begin and tries again while it is refused or the server is busy. The server is a
one-off server on the planned address and port, open for its slot only (``iperf3_server``). Where one process would
measure a core and not the network there are several (``iperf3_several``). Both ends have a hard deadline: an iperf3
whose peer falls silent in the closing exchange never returns by itself. All times given are monotonic ns.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agent.clock import Clock
from agent.probe.affinity import Affinity, KernelAffinity
from agent.probe.iperf3_command import BadParametersError, Lane, check_version, checked_profile, client_arguments
from agent.probe.iperf3_ending import BEFORE_THE_TEST, ended_by_us, stopped
from agent.probe.iperf3_program import Program, ProgramFinder, Spawn, Unusable
from agent.probe.iperf3_run import Run
from agent.probe.iperf3_server import ReadVisitors, Server
from agent.probe.iperf3_several import Attempt, carried, client_lanes, combine, server_lanes
from agent.probe.port import port_fault_now
from agent.probe.process import Child
from agent.probe.visitors import read_visitors
from agent.probe.volume import Volume
from agent.result import PartState, ThroughputRun
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Slot

RETRY_PAUSE_NS = 75_000_000
MIN_CONNECT_TIMEOUT_MS = 250

# Names of ``Report.flags``, beside those of iperf3_report and iperf3_run.
PORT_NOT_RELEASED = "port_not_released"
RETRIED = "retried"  # the server was not ready at once


class Iperf3:
    """Runs tests; keeps nothing between them but the program's version.

    Args:
        clock: times and deadlines.
        program: name or path of iperf3.
        engine: ``iperf3`` for the program, ``libiperf`` for its library.
        root: of ``/proc`` and ``/sys``.
        spawn: starts a child process.
        port_fault: outcome and words when a server cannot listen on (address, port), None when it can.
        affinity: binds a process to CPUs.
        volume: what tests have carried over each NIC today.
        visitors: who is connected to (address, port) of this host; the kernel's table below ``root`` if not given.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        program: str = "iperf3",
        engine: str = "iperf3",
        root: Path = Path("/"),
        spawn: Spawn = Child.start,
        port_fault: Callable[[str, int], tuple[int, str] | None] = port_fault_now,
        affinity: Affinity | None = None,
        visitors: ReadVisitors | None = None,
        volume: Volume | None = None,
    ) -> None:
        self._clock = clock
        self._root = root
        self._spawn = spawn
        self._volume = volume or Volume()
        self._finder = ProgramFinder(program, clock, spawn, engine=engine)
        self._port_fault = port_fault
        self._affinity = affinity or KernelAffinity()
        self._visitors = visitors or (lambda address, port: read_visitors(root, address, port))

    @property
    def version(self) -> str:
        """Of the program as last seen; empty where there is none."""
        return self._finder.version

    def state(self) -> PartState:
        """Of the part ``throughput``."""
        return self._finder.state()

    async def check(self) -> PartState:
        """Looks for the program now, and says."""
        await self._finder.find()
        return self.state()

    def _run(self, slot: Slot, role: int, stop: asyncio.Event | None) -> Run:
        return Run(
            slot, role, clock=self._clock, root=self._root, spawn=self._spawn, stop=stop, affinity=self._affinity
        )

    async def _prepare(
        self, run: Run, begin_ns: int, last_attempt_ns: int, limit_ratio: float
    ) -> tuple[Program, pb.Profile] | ThroughputRun:
        """All that comes before a process at either end: what to run, or the record of why nothing is."""
        program = await self._finder.find()
        if isinstance(program, Unusable):
            return run.without_process(program.outcome, program.detail)
        try:
            profile = checked_profile(run.slot)
            check_version(profile, program.version)
        except BadParametersError as error:
            return run.without_process(pb.RUN_OUTCOME_BAD_PARAMETERS, str(error))
        refusal = self._volume.refusal(run.nic, run.speed_bps(), profile, self._clock.wall_ns())
        if refusal:
            return run.without_process(pb.RUN_OUTCOME_SKIPPED_LIMIT, refusal)
        quiet = await run.quiet_until(begin_ns, last_attempt_ns, limit_ratio)
        if run.stopped:
            return run.without_process(pb.RUN_OUTCOME_SKIPPED_PAUSED, "stopped before it began")
        if not quiet:
            return run.without_process(pb.RUN_OUTCOME_SKIPPED_OWN_TRAFFIC, "the NIC carries traffic of its own")
        run.begin()
        return program, profile

    # ------------------------------------------------------------ client

    async def run_client(
        self,
        slot: Slot,
        *,
        begin_ns: int,
        last_attempt_ns: int,
        deadline_ns: int,
        own_traffic_limit_ratio: float,
        stop: asyncio.Event | None = None,
    ) -> ThroughputRun:
        """The slot's test from the client's side: the attempt.

        Args:
            slot: as planned.
            begin_ns: when to connect; the NIC's own traffic is measured from now until then.
            last_attempt_ns: no new try after that.
            deadline_ns: the child is ended then.
            own_traffic_limit_ratio: above it the test is put off, and left out once ``last_attempt_ns`` has come.
            stop: once it is set the test is ended within half a second.
        """
        run = self._run(slot, pb.RUN_ROLE_CLIENT, stop)
        ready = await self._prepare(run, begin_ns, last_attempt_ns, own_traffic_limit_ratio)
        if isinstance(ready, ThroughputRun):
            return ready
        program, profile = ready
        lanes = client_lanes(slot, profile, program.version)
        async with run.watch.beside_test(), asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    self._attempt(run, ready, lane, last_attempt_ns=last_attempt_ns, deadline_ns=deadline_ns)
                )
                for lane in lanes
            ]
        attempts = [task.result() for task in tasks]
        self._volume.add(run.nic, carried(attempts), self._clock.wall_ns())
        return run.end(combine(attempts), attempts, profile, own_traffic_limit_ratio)

    async def _attempt(
        self, run: Run, ready: tuple[Program, pb.Profile], lane: Lane, *, last_attempt_ns: int, deadline_ns: int
    ) -> Attempt:
        """One process, tried again while the server is not ready."""
        program, profile = ready
        tries = 0
        while True:
            tries += 1
            left_ms = max(MIN_CONNECT_TIMEOUT_MS, (last_attempt_ns - self._clock.monotonic_ns()) // 1_000_000)
            arguments = client_arguments(run.slot, profile, program.version, lane, connect_timeout_ms=left_ms)
            attempt = await run.process(program, arguments, deadline_ns, profile)
            report = attempt.report
            next_ns = self._clock.monotonic_ns() + RETRY_PAUSE_NS
            again = report.outcome in BEFORE_THE_TEST and not report.intervals and not attempt.forced
            if not again or next_ns > last_attempt_ns:
                break
            await run.rest_until(next_ns)
            if run.stopped:
                break
        if run.stopped and (attempt.forced or report.outcome != pb.RUN_OUTCOME_OK):
            attempt = stopped(attempt)
        elif attempt.forced:
            attempt = ended_by_us(attempt)
        if tries > 1:
            attempt = replace(attempt, report=replace(attempt.report, flags=(*attempt.report.flags, RETRIED)))
        return attempt

    # ------------------------------------------------------------ server

    async def run_server(
        self,
        slot: Slot,
        *,
        begin_ns: int,
        last_attempt_ns: int,
        deadline_ns: int,
        own_traffic_limit_ratio: float,
        stop: asyncio.Event | None = None,
    ) -> ThroughputRun:
        """The slot's test from the server's side; arguments as for ``run_client``, ``begin_ns`` is when to listen."""
        run = self._run(slot, pb.RUN_ROLE_SERVER, stop)
        ready = await self._prepare(run, begin_ns, last_attempt_ns, own_traffic_limit_ratio)
        if isinstance(ready, ThroughputRun):
            return ready
        program, profile = ready
        served = asyncio.Event()
        servers = [
            Server(
                run,
                program,
                profile,
                lane,
                clock=self._clock,
                port_fault=self._port_fault,
                visitors=self._visitors,
                served=served,
            )
            for lane in server_lanes(slot, profile)
        ]
        async with run.watch.beside_test(), asyncio.TaskGroup() as group:
            tasks = [group.create_task(server.serve(last_attempt_ns, deadline_ns)) for server in servers]
        attempts = [task.result() for task in tasks]
        used = [attempt for server, attempt in zip(servers, attempts, strict=True) if server.came] or attempts[:1]
        report = combine(used)
        if self._in_use(slot, len(servers)) and report.outcome != pb.RUN_OUTCOME_PORT_IN_USE:
            report = replace(report, flags=(*report.flags, PORT_NOT_RELEASED))
        self._volume.add(run.nic, carried(attempts), self._clock.wall_ns())
        return run.end(report, used, profile, own_traffic_limit_ratio)

    def _in_use(self, slot: Slot, ports: int) -> bool:
        faults = [self._port_fault(slot.server.address, slot.port + number) for number in range(ports)]
        return any(fault is not None and fault[0] == pb.RUN_OUTCOME_PORT_IN_USE for fault in faults)
