"""Builds every part of the agent, runs them side by side, and stops them in order.

Parts do not know each other: results are drained by the flush, plans go from the uplink's queue to ``_apply``. Without
a plan nothing is probed and only the agent's own state is reported. Order of a stop: throughput tests are ended and
recorded, the last flush is sealed, what probes goes, the uplink gets a moment for what is left, the spool is closed.
"""

import asyncio
import logging
import os
import random
import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.app import start
from agent.app.answer import answer
from agent.app.control import Control
from agent.app.control_command import SOCKET_FILE
from agent.app.flush import Flusher
from agent.app.memory import one_arena, settle
from agent.app.parts import Part, StateLog
from agent.app.pause import Pause
from agent.app.quiet import Load, Quiet
from agent.clock import Anchor, Clock, SystemClock
from agent.config import AgentConfig
from agent.enrol.renewing import Renewing
from agent.plan import PlanKeeper
from agent.probe.iperf3 import Iperf3
from agent.probe.path_mtu import PathMtus
from agent.probe.rates import limits
from agent.probe.round_trip import RoundTripProbes
from agent.probe.route_trace import RouteTraces
from agent.probe.self_check import SelfChecking
from agent.probe.stamp_probes import StampProbes
from agent.probe.stamp_reflecting import StampReflecting
from agent.probe.volume import Volume
from agent.record import Author, HeaderContext, Recorder
from agent.result import ClockReading, PartState, Status
from agent.sample.clockstate import read_clock
from agent.sample.cpuwait import read_cpu_times
from agent.sample.hostload import read_process
from agent.sample.mark import MarkListener, places
from agent.sample.mark_book import OpenMark
from agent.sample.nic import NicSampler
from agent.schedule import FileJournal, SlotRunner, pause_of_plan
from agent.spool import Journal, Limits, Spool, SpoolError
from agent.status import collect
from agent.uplink import Introduction, Uplink
from bandwitness import VERSION
from bandwitness.v1.plan_pb2 import Plan
from bandwitness.v1.record_pb2 import BatchClass

SPOOL_FILE = "spool.sqlite"
SLOTS_FILE = "slots.jsonl"
PAUSE_FILE = "paused.json"
VOLUME_FILE = "volume.json"
SECOND_NS = 1_000_000_000
MIN_COUNTER_INTERVAL_NS = SECOND_NS // 10
MAX_COUNTER_INTERVAL_NS = 60 * SECOND_NS
MARK_HASTE_NS = 3 * SECOND_NS  # renewed about once a second while a mark is open
FAREWELL_NS = 2 * SECOND_NS  # for the collector to acknowledge the last flush
FAREWELL_STEP_NS = SECOND_NS // 20

_log = logging.getLogger("bandwitness.agent")


class Agent:
    """One agent, built and not yet running. ``root`` is where ``proc`` and ``sys`` are found.

    Raises:
        StartError: no key, or nowhere to keep anything.
    """

    def __init__(self, config: AgentConfig, clock: Clock, *, root: Path = Path("/")) -> None:
        self._config = config
        self._clock = clock
        self._root = root
        self._run_id = os.urandom(16)
        self._boot_id = start.boot_id(root)
        self._identity = start.identity(config.state_dir)
        self._state_log = StateLog()
        self._reading = ClockReading(source=0, synchronised=False)
        self.spool = Spool(
            config.state_dir / SPOOL_FILE,
            Limits(max_bytes=config.spool_max_bytes, max_age_ns=config.spool_max_age_ns),
            wall_ns=clock.wall_ns,
        )
        self.keeper = PlanKeeper(config.state_dir, config.name)
        self.checking = SelfChecking(clock, cpu=lambda: read_cpu_times(root))
        self.probes = RoundTripProbes(self.checking.clock)
        self.stamp = StampProbes(clock, clock_error=self._clock_error_ns)
        self.reflecting = StampReflecting(clock, clock_error=self._clock_error_ns)
        self.traces = RouteTraces(
            clock,
            echo_paths=self.probes.echo_paths,
            stamp_paths=self.stamp.paths,
            stamp_way=self.stamp.way,
            rights=self.probes.rights,
        )
        self.mtus = PathMtus(clock, paths=self.probes.echo_paths, rights=self.probes.rights)
        self.sampler = NicSampler(root, clock)
        mark = config.mark
        self.marks = MarkListener(
            clock,
            places(mark.socket, config.state_dir) if mark.enabled else (),
            expiry_ns=mark.expiry_ns,
            on_open=self._on_mark,
        )
        self.engine = Iperf3(
            clock, program=config.iperf3, engine=config.engine, root=root, volume=Volume(config.state_dir / VOLUME_FILE)
        )
        self.pause = Pause(config.state_dir / PAUSE_FILE)
        actions = {"pause": self._do_pause, "resume": self._do_resume, "status": self._do_status}
        self.control = Control(config.state_dir / SOCKET_FILE, clock, actions)

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until ``stop`` is set; on return everything measured is in the closed spool.

        Raises:
            StartError: the spool cannot be opened.
        """
        try:
            await self.spool.open()
        except SpoolError as error:
            raise start.StartError(str(error)) from None
        try:
            self._compose()
            await self._run_parts(stop)
        finally:
            self.sampler.close()
            await self.spool.close()

    def _compose(self) -> None:
        """Everything that needs the open spool, and the parts."""
        config, clock = self._config, self._clock
        author = Author(
            agent_id=config.name,
            public_key=self._identity.public_key,
            sign=self._identity.sign,
            boot_id=self._boot_id,
            run_id=self._run_id,
            configuration_hash=config.sha256,
            software_version=VERSION,
        )
        recorder = Recorder(author, self.spool.tips())
        self.keeper.load()
        self.uplink = Uplink(
            introduction=Introduction(config.name, VERSION, self._boot_id, self._run_id),
            collectors=config.collectors,
            identity=config.identity,
            spool=self.spool,
            keeper=self.keeper,
            clock=clock,
            source=random.SystemRandom(),
        )
        self.quiet = Quiet(
            marks=self._open_marks, bursts=self._open_bursts, own_loads=self._own_loads, paused=self._paused
        )
        self.slots = SlotRunner(
            config.name,
            clock,
            self.engine,
            FileJournal(config.state_dir / SLOTS_FILE),
            offline_ns=self.uplink.offline_ns,
            hold=self.quiet.hold,
        )
        self.renewing = Renewing(config.identity, renewable=config.enrolled, collectors=config.collectors, clock=clock)
        self._renewing = Part("identity", clock, self.renewing.run, self.renewing.state)
        self._echo = Part("echo", clock, self.probes.run, self.probes.state)
        self._self_check = Part("self_check", clock, self.checking.run, self.checking.state)
        self._stamp = Part("stamp", clock, self.stamp.run, self.stamp.state)
        self._reflector = Part("stamp_reflector", clock, self.reflecting.run, self.reflecting.state)
        self._trace = Part("route_trace", clock, self.traces.run, self.traces.state)
        self._mtu = Part("path_mtu", clock, self.mtus.run, self.mtus.state)
        self._throughput = Part("throughput", clock, self._run_slots, self.slots.state)
        self._nic = Part("nic", clock, self.sampler.run, self.sampler.state)
        self._marks = Part("marks", clock, self.marks.run, self.marks.state)
        self._control = Part("control", clock, self.control.run, self.control.state)
        self._uplink = Part("uplink", clock, self.uplink.run, self.uplink.state)
        self._plan = Part("plan", clock, self._follow_plans, lambda: self.keeper.state(clock.wall_ns()))
        self.flusher = Flusher(
            clock,
            recorder,
            Journal(recorder, self.spool, clock.wall_ns()),
            context=self._context,
            probers=[(self._echo, self.probes)],
            one_way=[(self._stamp, self.stamp)],
            runs=(self._throughput, self.slots),
            counters=(self._nic, self.sampler),
            marks=(self._marks, self.marks),
            status=self._status,
            self_check=(self._self_check, self.checking),
            traces=(self._trace, self.traces),
            mtus=(self._mtu, self.mtus),
        )
        self._flush = Part("flush", clock, self.flusher.run)

    def _parts(self) -> tuple[Part, ...]:
        return (
            self._echo,
            self._self_check,
            self._stamp,
            self._reflector,
            self._trace,
            self._mtu,
            self._throughput,
            self._nic,
            self._marks,
            self._control,
            self._renewing,
            self._uplink,
            self._plan,
            self._flush,
        )

    # ------------------------------------------------------------ running

    async def _run_parts(self, stop: asyncio.Event) -> None:
        if self.keeper.current is not None:
            self._apply(self.keeper.current.plan)
        async with asyncio.TaskGroup() as group:
            tasks = {part.name: group.create_task(part.keep(), name=part.name) for part in self._parts()}
            _log.info("started: node %s, version %s, state in %s", self._config.name, VERSION, self._config.state_dir)
            settle()
            await stop.wait()
            _log.info("stopping")
            tasks["throughput"].cancel()
            await asyncio.wait([tasks["throughput"]])
            await self.flusher.stop(tasks["flush"])
            await self._last_flush()
            probing = ("echo", "self_check", "stamp", "stamp_reflector", "route_trace", "path_mtu")
            for name in (*probing, "nic", "marks", "control", "identity", "plan"):
                tasks[name].cancel()
            await self._farewell()
            tasks["uplink"].cancel()
        _log.info("stopped")

    async def _run_slots(self) -> None:
        await self.engine.check()
        await self.slots.run()

    def _do_pause(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            self.pause.set(str(request.get("reason", "")))
        finally:
            self.slots.look()
        return {"tests": self.pause.why()}

    def _do_resume(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            self.pause.clear()
        finally:
            self.slots.look()
        return {"tests": "allowed"}

    def _do_status(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        return answer(
            self._status(),
            node=self._config.name,
            hold=self.quiet.hold(),
            marks=self._open_marks(),
            plan=None if self.keeper.current is None else self.keeper.current.plan,
            chains={BatchClass.Name(BatchClass.ValueType(kind)): each.tip for kind, each in self.spool.tips().items()},
            clock=self._reading,
        )

    def _paused(self) -> str:
        """The word of somebody on this host, else that of the plan."""
        plan = None if self.keeper.current is None else self.keeper.current.plan
        return self.pause.why() or ("" if plan is None else pause_of_plan(plan.pause, self._clock.wall_ns()))

    def _open_marks(self) -> Sequence[OpenMark]:
        return self._marks.guard((), self.marks.open)

    def _open_bursts(self) -> Collection[Load]:
        return self._nic.guard((), self.sampler.open_bursts)

    def _own_loads(self) -> Collection[Load]:
        return self.slots.loads()

    def _on_mark(self) -> None:
        """Something has begun, or goes on: tests stop, counters are read as in a burst."""
        self.sampler.hasten(self._clock.monotonic_ns() + MARK_HASTE_NS)
        self.slots.look()

    async def _follow_plans(self) -> None:
        while True:
            kept = await self.uplink.plans.get()
            _log.info("plan %d of collector %s: %s", kept.plan.version, kept.collector_id, _extent(kept.plan))
            self._apply(kept.plan)
            settle()

    def _apply(self, plan: Plan) -> None:
        """Gives each part its share of the plan; one that cannot take it costs no other."""
        interval_ns = plan.counter_interval_ns or SECOND_NS
        interval_ns = min(max(interval_ns, MIN_COUNTER_INTERVAL_NS), MAX_COUNTER_INTERVAL_NS)
        own = [endpoint for endpoint in plan.endpoint if endpoint.node == self._config.name]
        reflector = plan.stamp_reflector if plan.HasField("stamp_reflector") else None
        most, most_stamp = limits(plan)
        self._echo.guard(None, self.probes.configure, plan.round_trip, most)
        self._stamp.guard(None, self.stamp.configure, plan.stamp, most_stamp)
        self._reflector.guard(None, self.reflecting.configure, reflector, own)
        self._trace.guard(None, self.traces.configure, plan.trace, not plan.no_reference_traces)
        self._mtu.guard(None, self.mtus.configure, plan.path_mtu if plan.HasField("path_mtu") else None)
        nics = [end.nic for end in own if end.nic]
        fast_ns = plan.burst_counter_interval_ns
        fast_ns = max(fast_ns, MIN_COUNTER_INTERVAL_NS) if fast_ns else 0
        speeds = {one.nic: one.speed_bps for one in plan.nic_speed if one.speed_bps}
        self._nic.guard(None, self.sampler.configure, nics, interval_ns, fast_ns, speeds)
        self._throughput.guard(None, self.slots.set_plan, plan)
        self.flusher.every(plan.flush_interval_ns)

    async def _last_flush(self) -> None:
        try:
            await self.flusher.flush()
        except Exception:  # noqa: BLE001 - whatever it is, the spool must still be closed
            _log.exception("the last flush failed")

    async def _farewell(self) -> None:
        """Waits, not for long, until a collector that is there has everything."""
        end_ns = self._clock.monotonic_ns() + FAREWELL_NS
        while self.uplink.connected and self._clock.monotonic_ns() < end_ns:
            tips = self.spool.tips()
            if all(self.spool.acknowledged(kind)[0] >= state.tip.seq for kind, state in tips.items()):
                return
            await self._clock.sleep_until(self._clock.monotonic_ns() + FAREWELL_STEP_NS)

    # ------------------------------------------------------------ the agent on itself

    def _context(self, anchor: Anchor) -> HeaderContext:
        current = self.keeper.current
        return HeaderContext(
            anchor=anchor,
            clock=self._reading,
            plan_hash=b"" if current is None else current.plan_hash,
            witnessed_head=self.uplink.witnessed_head,
        )

    def _clock_error_ns(self) -> int | None:
        return self._reading.error_bound_ns if self._reading.synchronised else None

    def _clock_state(self) -> PartState:
        if self._reading.synchronised:
            return PartState("clock", True, "ok")
        return PartState("clock", True, "unsynchronised", "no NTP or PTP keeps this clock: apt-get install chrony")

    def _status(self) -> Status:
        self._reading = read_clock()
        stats = self.spool.stats()
        status = collect(
            time_ns=self._clock.wall_ns(),
            parts=[*(part.state for part in self._parts()), self.spool.state, self._clock_state],
            load=read_process(self._root),
            spool_bytes=stats.bytes,
            spool_oldest_time_ns=stats.oldest_time_ns,
            records_dropped=stats.dropped,
            iperf3_version=self.engine.version,
        )
        self._state_log.note(status.parts)
        return status


def _extent(plan: Plan) -> str:
    return f"{len(plan.endpoint)} endpoints, {len(plan.round_trip) + len(plan.stamp)} targets, {len(plan.slot)} slots"


def run(config: AgentConfig) -> None:
    """Runs the agent until SIGTERM or SIGINT; a second signal ends it at once.

    Raises:
        StartError: it cannot run at all.
    """

    async def until_signal() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stopping(number: signal.Signals) -> None:
            stop.set()
            loop.remove_signal_handler(number)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping, number)
        await Agent(config, SystemClock()).run(stop)

    one_arena()
    asyncio.run(until_signal())
