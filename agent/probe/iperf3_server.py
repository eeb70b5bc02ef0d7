"""The server's side of one slot: a one-off server on each of its ports, opened again for as long as the planned client
may come. Whoever else uses one up, or holds it and says nothing, is recorded and sent away."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from agent.clock import Clock
from agent.probe.iperf3_command import Lane, server_arguments
from agent.probe.iperf3_ending import BEFORE_THE_TEST, ended_by_us, stopped
from agent.probe.iperf3_program import Program
from agent.probe.iperf3_run import Run
from agent.probe.iperf3_several import Attempt
from agent.probe.port import same_address
from agent.probe.visitors import LOOK_NS, Doorkeeper, Visitor
from agent.result import Report
from bandwitness.v1 import record_pb2 as pb

MAX_OPENINGS = 64  # of one port of one slot
REOPEN_PAUSE_NS = 20_000_000

UNKNOWN_STRANGER = "unknown"  # an empty connection used the server up before anybody could see whose it was

PortFault = Callable[[str, int], tuple[int, str] | None]
ReadVisitors = Callable[[str, int], list[Visitor]]


class Server:
    """One port of one slot.

    Args:
        run: the slot's end that this is a part of.
        program: iperf3.
        profile: of the slot.
        lane: the port.
        clock: times.
        port_fault: outcome and words when the port cannot be listened on.
        visitors: who is connected to an address and port of this host.
        served: set once the client's test on some port of the slot is over.
    """

    def __init__(
        self,
        run: Run,
        program: Program,
        profile: pb.Profile,
        lane: Lane,
        *,
        clock: Clock,
        port_fault: PortFault,
        visitors: ReadVisitors,
        served: asyncio.Event,
    ) -> None:
        self._run = run
        self._program = program
        self._profile = profile
        self._lane = lane
        self._clock = clock
        self._port_fault = port_fault
        self._visitors = visitors
        self._served = served
        self._sent_away: Visitor | None = None
        self.came = False  # the planned client's test was on this port

    async def serve(self, last_attempt_ns: int, deadline_ns: int) -> Attempt:
        """Until the planned client has been served, or has not come. Never without a report."""
        attempt = await self._openings(last_attempt_ns, deadline_ns)
        if self.came:
            self._served.set()
        return attempt

    async def _openings(self, last_attempt_ns: int, deadline_ns: int) -> Attempt:
        run, client = self._run, self._run.slot.client.address
        arguments = server_arguments(run.slot, self._profile, self._lane.port)
        served: Attempt | None = None  # the planned client's, while it may come again
        nobody = Attempt(
            Report(
                outcome=pb.RUN_OUTCOME_NO_CLIENT,
                detail=f"{client} did not come to port {self._lane.port}",
                version=self._program.version.text,
            ),
            self._clock.monotonic_ns(),
        )
        for _ in range(MAX_OPENINGS):
            fault = await self._free_port(last_attempt_ns)
            if fault is not None:
                faulty = Report(outcome=fault[0], detail=fault[1], version=self._program.version.text)
                return served or Attempt(faulty, self._clock.monotonic_ns())
            async with self._watched() as ended:
                attempt = await run.process(self._program, arguments, deadline_ns, self._profile, ended)
            report = attempt.report
            came = same_address(report.peer_address, client) or self._keeper.settled
            nobody = replace(nobody, raw=attempt.raw, raw_cut=attempt.raw_cut)
            if run.stopped and (attempt.forced or report.outcome != pb.RUN_OUTCOME_OK):
                return stopped(attempt)
            if self._sent_away is not None and attempt.forced:
                run.stranger(self._sent_away.address)
            elif attempt.forced:
                if came:
                    self.came = True
                    return ended_by_us(attempt)
                break
            elif came:
                if report.outcome not in BEFORE_THE_TEST or report.intervals:
                    self.came = True
                    return attempt
                served = attempt
            elif report.peer_address or report.outcome == pb.RUN_OUTCOME_ABORTED:
                run.stranger(report.peer_address or UNKNOWN_STRANGER)
            else:
                return attempt  # it could not serve at all: bad address, port taken in between
            if self._served.is_set() or self._clock.monotonic_ns() >= (last_attempt_ns if served else deadline_ns):
                break
            await run.rest_until(self._clock.monotonic_ns() + REOPEN_PAUSE_NS)
        last = served or nobody
        return stopped(last) if run.stopped else last

    @contextlib.asynccontextmanager
    async def _watched(self) -> AsyncIterator[asyncio.Event]:
        """The event that ends the process of the block: whenever the run is told to stop, somebody holds the server
        who is not to, or the slot's test is over and did not need this port."""
        self._sent_away = None
        self._keeper = Doorkeeper(self._run.slot.client.address, udp=bool(self._profile.udp_rate_bps))
        ended = asyncio.Event()
        tasks = [asyncio.create_task(self._relay(ended)), asyncio.create_task(self._look(ended))]
        try:
            yield ended
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _relay(self, ended: asyncio.Event) -> None:
        await self._run.stop.wait()
        ended.set()

    async def _look(self, ended: asyncio.Event) -> None:
        slot, keeper = self._run.slot, self._keeper
        while not keeper.settled:
            over = self._served.is_set()
            holder = keeper.look(self._visitors(slot.server.address, self._lane.port), self._clock.monotonic_ns())
            if holder is not None or (over and not keeper.here):
                self._sent_away = holder
                ended.set()
                return
            await self._clock.sleep_until(self._clock.monotonic_ns() + LOOK_NS)

    async def _free_port(self, until_ns: int) -> tuple[int, str] | None:
        """Waits for the port, which the slot before may hold a little longer; the fault when it does not come free."""
        run = self._run
        while True:
            fault = self._port_fault(run.slot.server.address, self._lane.port)
            if fault is None or run.stopped or self._clock.monotonic_ns() >= until_ns:
                return fault
            await run.rest_until(self._clock.monotonic_ns() + REOPEN_PAUSE_NS)
