"""Runs the slots of the plan: the only part of the agent that starts throughput tests.

Each end of each slot is dealt with exactly once, also through a restart and a plan sent again: it runs, or it is
recorded as skipped with the reason. One NIC carries one test at a time; slots on different NICs run side by side, and
a fault in one is recorded and stops no other. While a ``Hold`` is in force no test begins, and those that run are told
to stop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from agent.clock import Clock
from agent.result import Gate, PartState, Report, ThroughputRun
from agent.schedule.hold import Hold, burst_gate, held
from agent.schedule.journal import KEEP_NS, FileJournal, SlotKey
from agent.schedule.timing import RUN, WAIT, Skip, SlotTimes, decide, slot_times
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_CONTENTION, Plan, Slot

MAX_SLEEP_NS = 1_000_000_000  # a step of the wall clock is noticed this soon
MAX_SLOTS = 50_000
MAX_UNDRAINED = 10_000
SLOT_ID_BYTES = 16
HOLD_LOOK_NS = 100_000_000  # how often holds are looked for beside a test that runs or waits
LOAD_LINGERS_NS = 10_000_000_000  # counters show a test for a while after its end

log = logging.getLogger(__name__)


class Engine(Protocol):
    """What runs one end of a slot (``probe.iperf3``). Times are monotonic ns.

    Once ``stop`` is set the test must be over within a second: outcome ABORTED_PAUSED, or SKIPPED_PAUSED when it had
    not begun; why it was stopped is not the engine's to know.
    """

    async def run_client(
        self,
        slot: Slot,
        *,
        begin_ns: int,
        last_attempt_ns: int,
        deadline_ns: int,
        own_traffic_limit_ratio: float,
        stop: asyncio.Event,
    ) -> ThroughputRun:
        """The attempt."""

    async def run_server(
        self,
        slot: Slot,
        *,
        begin_ns: int,
        last_attempt_ns: int,
        deadline_ns: int,
        own_traffic_limit_ratio: float,
        stop: asyncio.Event,
    ) -> ThroughputRun:
        """The other end of it."""

    def state(self) -> PartState:
        """Whether it can run anything."""


@dataclass(slots=True)
class _Planned:
    slot: Slot
    role: int
    times: SlotTimes
    nic: str
    began_ns: int = 0  # wall
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    hold: Hold | None = None  # why ``stop`` was set
    others: int = 0  # runs of other slots on the NIC when it began; more than 0 is a fault of ours

    @property
    def key(self) -> SlotKey:
        return self.slot.slot_id, self.role


class SlotRunner:
    """See the module.

    Args:
        node: this node's name.
        clock: times.
        engine: runs one end of a slot.
        journal: what was begun and done before a restart.
        offline_ns: how long the collector has been away, 0 while connected.
        hold: what keeps tests out just now, None when nothing does.
    """

    def __init__(
        self,
        node: str,
        clock: Clock,
        engine: Engine,
        journal: FileJournal,
        *,
        offline_ns: Callable[[], int] = lambda: 0,
        hold: Callable[[], Hold | None] = lambda: None,
    ) -> None:
        self._node = node
        self._clock = clock
        self._engine = engine
        self._journal = journal
        self._offline_ns = offline_ns
        self._hold = hold
        self._plan = Plan()
        self._pending: dict[SlotKey, _Planned] = {}
        self._running: dict[SlotKey, _Planned] = {}
        self._finished: deque[tuple[SlotKey, int, ThroughputRun]] = deque()
        self._handed: list[tuple[SlotKey, int]] = []  # given by ``drain``, not yet known to be kept
        self._wake = asyncio.Event()
        self._loads: dict[tuple[str, str], int] = {}  # NIC and direction -> until when, monotonic
        self.faults = 0
        self.dropped = 0
        remembered = journal.load(clock.wall_ns())
        self._handled: dict[SlotKey, int] = dict(remembered.done)
        for entry in remembered.begun:
            detail = "the agent stopped during this slot"
            run = self._bare(entry.slot, entry.role, pb.RUN_OUTCOME_ABORTED, detail, began_ns=entry.time_ns)
            self._finish((entry.slot.slot_id, entry.role), entry.slot.start_time_ns, run)

    # ------------------------------------------------------------ what others ask

    def set_plan(self, plan: Plan) -> None:
        """Takes over a plan. Slots dealt with stay so; slots gone before their start are recorded as withdrawn."""
        now_ns = self._clock.wall_ns()
        self._plan = plan
        before, self._pending = self._pending, {}
        for slot in self._plan.slot[:MAX_SLOTS]:
            for role, endpoint in ((pb.RUN_ROLE_CLIENT, slot.client), (pb.RUN_ROLE_SERVER, slot.server)):
                if endpoint.node == self._node:
                    self._take(slot, role, endpoint)
        for key, planned in before.items():
            if key not in self._pending and key not in self._handled:
                self._gone(planned, now_ns)
        oldest_ns = now_ns - KEEP_NS
        self._handled = {
            key: start for key, start in self._handled.items() if start > oldest_ns or key in self._pending
        }
        self._wake.set()

    def drain(self) -> list[ThroughputRun]:
        """Records since the last call, in the order in which they ended. Handed over once."""
        self._handed += [(key, start_ns) for key, start_ns, _ in self._finished]
        runs = [run for _, _, run in self._finished]
        self._finished.clear()
        return runs

    def kept(self) -> None:
        """All that ``drain`` gave is in the spool. A crash before this says of a slot once more that it was cut short;
        one that came after the slot was written off too early would leave it without any record."""
        self._journal.done(self._handed)
        self._handed.clear()

    def earliest_running_ns(self) -> int | None:
        """Wall clock begin of the oldest run whose record ``drain`` has not yet given; None when there is none."""
        times = [planned.began_ns for planned in self._running.values()]
        times += [run.start_time_ns for _, _, run in self._finished]
        return min(times, default=None)

    def look(self) -> None:
        """Something that keeps tests out may have come or gone: look at once."""
        self._wake.set()

    def loads(self) -> set[tuple[str, str]]:
        """NICs and directions (``receive``, ``transmit``) that carry a test, or have carried one until just now."""
        now_ns = self._clock.monotonic_ns()
        self._loads = {load: until_ns for load, until_ns in self._loads.items() if until_ns > now_ns}
        return {_load(planned) for planned in self._running.values()} | self._loads.keys()

    def state(self) -> PartState:
        """Of the part ``throughput``: the engine's, unless a plan is missing."""
        engine = self._engine.state()
        if not engine.working:
            return engine
        if not self._plan.node:
            return PartState("throughput", working=True, state="no_plan", detail="waiting for a plan of the collector")
        troubles = {
            "faults": self.faults,
            "dropped": self.dropped,
            "journal_faults": self._journal.faults,
            "slots_over_the_limit": max(0, len(self._plan.slot) - MAX_SLOTS),
        }
        detail = ", ".join(f"{name} {count}" for name, count in troubles.items() if count)
        return PartState("throughput", working=True, state="ok", detail=detail)

    # ------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Runs slots until cancelled; then ends what runs and records it."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                hold = self._hold()
                if hold is not None:
                    self._stop_running(hold)
                self._begin_due(group, hold)
                await self._sleep(hold)

    def _stop_running(self, hold: Hold) -> None:
        for planned in self._running.values():
            if planned.hold is None:
                planned.hold = hold
                planned.stop.set()

    def _begin_due(self, group: asyncio.TaskGroup, hold: Hold | None) -> None:
        now_ns = self._clock.wall_ns()
        offline_ns = self._offline_ns()
        due = [planned for planned in self._pending.values() if planned.times.act_ns <= now_ns]
        for planned in sorted(due, key=lambda each: (each.times.act_ns, each.key)):
            verdict = decide(
                planned.times,
                now_ns,
                expiry_ns=self._plan.expiry_time_ns,
                offline_ns=offline_ns,
                offline_grace_ns=self._plan.offline_test_grace_ns,
                nic_busy=self._others(planned) > 0,
                hold=hold,
            )
            if isinstance(verdict, Skip):
                self._skip(planned, verdict.outcome, verdict.detail, hold)
            elif verdict == RUN:
                self._begin(group, planned, now_ns)
            else:
                assert verdict == WAIT

    def _begin(self, group: asyncio.TaskGroup, planned: _Planned, now_ns: int) -> None:
        del self._pending[planned.key]
        self._handled[planned.key] = planned.times.start_ns
        # Never after the time that the records of this run will carry: the watermark is held below it.
        planned.began_ns = min(now_ns, self._clock.event_time_ns(self._clock.monotonic_ns()))
        self._journal.begun(planned.slot, planned.role, planned.began_ns)
        self._running[planned.key] = planned
        task = group.create_task(self._attempt(planned), name=f"slot {planned.slot.slot_id.hex()}")
        task.add_done_callback(lambda _: self._left_behind(planned))

    async def _attempt(self, planned: _Planned) -> None:
        slot, role = planned.slot, planned.role
        to_monotonic_ns = self._clock.monotonic_ns() - self._clock.wall_ns()
        times = planned.times
        run_end = self._engine.run_client if role == pb.RUN_ROLE_CLIENT else self._engine.run_server
        try:
            planned.others = self._others(planned)
            run = await run_end(
                slot,
                begin_ns=times.begin_ns + to_monotonic_ns,
                last_attempt_ns=times.last_attempt_ns + to_monotonic_ns,
                deadline_ns=times.deadline_ns + to_monotonic_ns,
                own_traffic_limit_ratio=self._plan.own_traffic_limit_ratio,
                stop=planned.stop,
            )
            if planned.hold is not None:
                run = held(run, planned.hold)
        except asyncio.CancelledError:
            why = "the agent was stopped during this slot"
            self._end(planned, self._bare(slot, role, pb.RUN_OUTCOME_ABORTED, why, began_ns=planned.began_ns))
            raise
        except Exception as error:
            self.faults += 1
            log.exception("slot %s: fault", slot.slot_id.hex())
            detail = f"{type(error).__name__}: {error}"[:400]
            run = self._bare(slot, role, pb.RUN_OUTCOME_AGENT_FAULT, detail, began_ns=planned.began_ns)
        self._end(planned, run)

    def _left_behind(self, planned: _Planned) -> None:
        """A task cancelled before its first step never came to its own record."""
        if planned.key in self._running:
            outcome, why = pb.RUN_OUTCOME_ABORTED, "stopped before it began"
            self._end(planned, self._bare(planned.slot, planned.role, outcome, why, began_ns=planned.began_ns))

    def _end(self, planned: _Planned, run: ThroughputRun) -> None:
        del self._running[planned.key]
        count = planned.others
        gate = Gate(pb.GATE_KIND_OVERLAP, pb.GATE_PHASE_DURING, tripped=count > 0, value=float(count), limit=0.0)
        gates = (*run.gates, gate, burst_gate(planned.hold, pb.GATE_PHASE_DURING))
        self._finish(planned.key, planned.times.start_ns, replace(run, gates=gates))
        self._loads[_load(planned)] = self._clock.monotonic_ns() + LOAD_LINGERS_NS
        self._wake.set()

    async def _sleep(self, hold: Hold | None) -> None:
        now_ns = self._clock.wall_ns()
        # A slot past its act time waits for its NIC: woken when that is free, else due at its start.
        due = (
            times.act_ns if times.act_ns > now_ns else times.start_ns
            for times in (planned.times for planned in self._pending.values())
        )
        waiting = hold is not None and any(each.times.act_ns <= now_ns for each in self._pending.values())
        longest_ns = HOLD_LOOK_NS if self._running or waiting else MAX_SLEEP_NS
        wait_ns = min(longest_ns, max(0, min(due, default=now_ns + longest_ns) - now_ns))
        sleeping = asyncio.ensure_future(self._clock.sleep_until(self._clock.monotonic_ns() + wait_ns))
        waking = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait((sleeping, waking), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            waking.cancel()

    # ------------------------------------------------------------ bookkeeping

    def _take(self, slot: Slot, role: int, endpoint: pb.Endpoint) -> None:
        key = (slot.slot_id, role)
        if key in self._handled or key in self._running:
            return
        try:
            if len(slot.slot_id) != SLOT_ID_BYTES:
                raise ValueError(f"slot id of {len(slot.slot_id)} bytes, not {SLOT_ID_BYTES}")
            times = slot_times(slot, role)
        except ValueError as error:
            self._handled[key] = slot.start_time_ns
            run = self._bare(slot, role, pb.RUN_OUTCOME_BAD_PARAMETERS, str(error))
            self._finish(key, slot.start_time_ns, run)
            return
        self._pending[key] = _Planned(slot, role, times, nic=endpoint.nic or endpoint.address)

    def _gone(self, planned: _Planned, now_ns: int) -> None:
        """A pending slot is not in the new plan."""
        if now_ns > planned.times.missed_ns:
            self._record_skip(planned, pb.RUN_OUTCOME_SKIPPED_MISSED_START, "not begun when a new plan came without it")
        elif planned.role == pb.RUN_ROLE_CLIENT:
            self._record_skip(planned, pb.RUN_OUTCOME_SKIPPED_WITHDRAWN, f"not in plan {self._plan.version}")

    def _skip(self, planned: _Planned, outcome: int, detail: str, hold: Hold | None) -> None:
        del self._pending[planned.key]
        self._record_skip(planned, outcome, detail, hold)

    def _record_skip(self, planned: _Planned, outcome: int, detail: str, hold: Hold | None = None) -> None:
        self._handled[planned.key] = planned.times.start_ns
        run = self._bare(planned.slot, planned.role, outcome, detail)
        if outcome == pb.RUN_OUTCOME_SKIPPED_BURST:
            run = replace(run, gates=(burst_gate(hold, pb.GATE_PHASE_BEFORE),))
        self._finish(planned.key, planned.times.start_ns, run)

    def _finish(self, key: SlotKey, start_ns: int, run: ThroughputRun) -> None:
        self._handled[key] = start_ns
        if len(self._finished) >= MAX_UNDRAINED:  # nobody drains; the journal still knows that it is dealt with
            old_key, old_start_ns, _ = self._finished.popleft()
            self._journal.done([(old_key, old_start_ns)])
            self.dropped += 1
        self._finished.append((key, start_ns, run))

    def _others(self, planned: _Planned) -> int:
        """Runs of other slots on the same NIC. Both ends of one slot may sit on one NIC (a test to oneself), and slots
        of one contention group run side by side on purpose."""
        return sum(
            each.nic == planned.nic
            and each.slot.slot_id != planned.slot.slot_id
            and not (
                planned.slot.purpose == SLOT_PURPOSE_CONTENTION
                and each.slot.purpose == SLOT_PURPOSE_CONTENTION
                and each.slot.group_id == planned.slot.group_id
            )
            for each in self._running.values()
        )

    def _bare(self, slot: Slot, role: int, outcome: int, detail: str, *, began_ns: int | None = None) -> ThroughputRun:
        """A record without a report. ``began_ns``: wall clock begin of a run that was under way."""
        now_ns = self._clock.event_time_ns(self._clock.monotonic_ns())
        start_ns = now_ns if began_ns is None else min(began_ns, now_ns)
        peer = slot.server.address if role == pb.RUN_ROLE_CLIENT else slot.client.address
        return ThroughputRun(
            slot_id=slot.slot_id,
            group_id=slot.group_id,
            role=role,
            path=slot.path,
            profile=slot.profile,
            report=Report(outcome=outcome, detail=detail, peer_address=peer),
            start_time_ns=start_ns,
            end_time_ns=now_ns,
            elapsed_ns=now_ns - start_ns,
            reverse=slot.reverse,
            port=slot.port,
        )


def _load(planned: _Planned) -> tuple[str, str]:
    sends = (planned.role == pb.RUN_ROLE_CLIENT) != planned.slot.reverse
    return planned.nic, "transmit" if sends else "receive"
