"""Throughput tests with the ``iperf3`` program: one child process for each end of a slot.

The client starts at the slot's begin and tries again while it is refused or the server is busy. The server is a
one-off server on the planned address and port, open for its slot only; whoever else uses it up is recorded and it is
opened again. Both ends have a hard deadline: an iperf3 whose peer falls silent in the closing exchange never returns by
itself. All times given are monotonic ns.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agent.clock import Clock
from agent.probe.iperf3_command import BadParametersError, checked_profile, client_arguments, server_arguments
from agent.probe.iperf3_program import Program, ProgramFinder, Spawn, Unusable
from agent.probe.iperf3_run import Run
from agent.probe.port import port_fault_now, same_address
from agent.probe.process import Child
from agent.result import PartState, Report, ThroughputRun
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Slot

MAX_OPENINGS = 64  # of one slot's server
RETRY_PAUSE_NS = 75_000_000
REOPEN_PAUSE_NS = 20_000_000
MIN_CONNECT_TIMEOUT_MS = 250

# Names of ``Report.flags``, beside those of iperf3_report and iperf3_run.
PORT_NOT_RELEASED = "port_not_released"
RETRIED = "retried"  # the server was not ready at once

UNKNOWN_STRANGER = "unknown"  # an empty connection used the server up; iperf3 does not say whose

_BEFORE_THE_TEST = (pb.RUN_OUTCOME_REFUSED, pb.RUN_OUTCOME_BUSY, pb.RUN_OUTCOME_ABORTED)


class Iperf3:
    """Runs tests; keeps nothing between them but the program's version.

    Args:
        clock: times and deadlines.
        program: name or path of iperf3.
        root: of ``/proc`` and ``/sys``.
        spawn: starts a child process.
        port_fault: outcome and words when a server cannot listen on (address, port), None when it can.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        program: str = "iperf3",
        root: Path = Path("/"),
        spawn: Spawn = Child.start,
        port_fault: Callable[[str, int], tuple[int, str] | None] = port_fault_now,
    ) -> None:
        self._clock = clock
        self._root = root
        self._spawn = spawn
        self._finder = ProgramFinder(program, clock, spawn)
        self._port_fault = port_fault

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
        return Run(slot, role, clock=self._clock, root=self._root, spawn=self._spawn, stop=stop)

    async def _prepare(self, run: Run, begin_ns: int, limit_ratio: float) -> tuple[Program, pb.Profile] | ThroughputRun:
        """All that comes before a process at either end: what to run, or the record of why nothing is."""
        program = await self._finder.find()
        if isinstance(program, Unusable):
            return run.without_process(program.outcome, program.detail)
        try:
            profile = checked_profile(run.slot)
        except BadParametersError as error:
            return run.without_process(pb.RUN_OUTCOME_BAD_PARAMETERS, str(error))
        quiet = await run.quiet_until(begin_ns, limit_ratio)
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
            own_traffic_limit_ratio: above it the test is left out.
            stop: once it is set the test is ended within half a second.
        """
        run = self._run(slot, pb.RUN_ROLE_CLIENT, stop)
        ready = await self._prepare(run, begin_ns, own_traffic_limit_ratio)
        if isinstance(ready, ThroughputRun):
            return ready
        program, profile = ready
        tries = 0
        while True:
            tries += 1
            left_ms = max(MIN_CONNECT_TIMEOUT_MS, (last_attempt_ns - self._clock.monotonic_ns()) // 1_000_000)
            arguments = client_arguments(slot, profile, program.version, connect_timeout_ms=left_ms)
            report = await run.process(program, arguments, deadline_ns, profile)
            next_ns = self._clock.monotonic_ns() + RETRY_PAUSE_NS
            again = report.outcome in _BEFORE_THE_TEST and not report.intervals and not run.forced
            if not again or next_ns > last_attempt_ns:
                break
            await run.rest_until(next_ns)
            if run.stopped:
                break
        if run.stopped and (run.forced or report.outcome != pb.RUN_OUTCOME_OK):
            report = _stopped(report)
        elif run.forced:
            report = _ended_by_us(report, run.forced)
        if tries > 1:
            report = replace(report, flags=(*report.flags, RETRIED))
        return run.end(report, profile, own_traffic_limit_ratio)

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
        ready = await self._prepare(run, begin_ns, own_traffic_limit_ratio)
        if isinstance(ready, ThroughputRun):
            return ready
        program, profile = ready
        report = await self._serve(run, program, profile, last_attempt_ns, deadline_ns)
        after = self._port_fault(slot.server.address, slot.port)
        in_use = after is not None and after[0] == pb.RUN_OUTCOME_PORT_IN_USE
        if in_use and report.outcome != pb.RUN_OUTCOME_PORT_IN_USE:
            report = replace(report, flags=(*report.flags, PORT_NOT_RELEASED))
        return run.end(report, profile, own_traffic_limit_ratio)

    async def _serve(
        self, run: Run, program: Program, profile: pb.Profile, last_attempt_ns: int, deadline_ns: int
    ) -> Report:
        slot = run.slot
        arguments = server_arguments(slot, profile)
        served: Report | None = None  # the planned client's, while it may come again
        for _ in range(MAX_OPENINGS):
            fault = await self._free_port(run, last_attempt_ns)
            if fault is not None:
                return served or Report(outcome=fault[0], detail=fault[1], version=program.version.text)
            report = await run.process(program, arguments, deadline_ns, profile)
            came = same_address(report.peer_address, slot.client.address)
            if run.stopped and (run.forced or report.outcome != pb.RUN_OUTCOME_OK):
                return _stopped(report)
            if run.forced:
                if came:
                    return _ended_by_us(report, run.forced)
                break
            if came:
                if report.outcome not in _BEFORE_THE_TEST or report.intervals:
                    return report
                served = report
            elif report.peer_address or report.outcome == pb.RUN_OUTCOME_ABORTED:
                run.stranger(report.peer_address or UNKNOWN_STRANGER)
            else:
                return report  # it could not serve at all: bad address, port taken in between
            if self._clock.monotonic_ns() >= (last_attempt_ns if served else deadline_ns):
                break
            await run.rest_until(self._clock.monotonic_ns() + REOPEN_PAUSE_NS)
        if run.stopped:
            return _stopped(served or Report(outcome=pb.RUN_OUTCOME_NO_CLIENT, version=program.version.text))
        if served is not None:
            return served
        return Report(
            outcome=pb.RUN_OUTCOME_NO_CLIENT,
            detail=f"{slot.client.address} did not come to port {slot.port}",
            version=program.version.text,
        )

    async def _free_port(self, run: Run, until_ns: int) -> tuple[int, str] | None:
        """Waits for the port, which the slot before may hold a little longer; the fault when it does not come free."""
        while True:
            fault = self._port_fault(run.slot.server.address, run.slot.port)
            if fault is None or run.stopped or self._clock.monotonic_ns() >= until_ns:
                return fault
            await run.rest_until(self._clock.monotonic_ns() + REOPEN_PAUSE_NS)


def _stopped(report: Report) -> Report:
    """A test that we ended before its time. What its intervals counted stays; sums over a part of it are no result."""
    return _without_sums(report, pb.RUN_OUTCOME_ABORTED_PAUSED, f"stopped{_said(report)}")


def _ended_by_us(report: Report, forced: str) -> Report:
    if report.outcome == pb.RUN_OUTCOME_STALLED_SUSPECT_MTU:
        return report  # says more than that we ended it
    return _without_sums(report, pb.RUN_OUTCOME_TIMEOUT, f"ended at its deadline ({forced}){_said(report)}")


def _said(report: Report) -> str:
    return f"; it said: {report.detail}" if report.detail and report.detail != "no output" else ""


def _without_sums(report: Report, outcome: int, detail: str) -> Report:
    return replace(
        report,
        outcome=outcome,
        detail=detail,
        sender_bytes=None,
        sender_duration_ns=None,
        receiver_bytes=None,
        receiver_duration_ns=None,
    )
