"""The flush: order, watermarks, and sources that fail."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.app.flush import Flusher
from agent.app.parts import Part
from agent.clock import Anchor, ClockEvent, ClockStep
from agent.record import Author, ChainState, HeaderContext, Recorder
from agent.result import (
    ClockReading,
    NicBatch,
    OneWayBatch,
    OneWayLoss,
    PartState,
    Report,
    RoundTripBatch,
    SelfCheck,
    Status,
    ThroughputRun,
    TrainerMark,
)
from bandwitness.chain import ORIGIN
from bandwitness.identity import canonical, short_id
from bandwitness.v1 import record_pb2 as pb
from tests.fakes.clock import SECOND, FakeClock

PATH = canonical(pb.Path(source=pb.Endpoint(node="a")))


@dataclass
class FakeProber:
    clock: FakeClock
    oldest_ns: int | None = None
    broken: bool = False
    definitions: Mapping[int, bytes] = field(default_factory=lambda: {short_id(PATH): PATH})

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        if self.broken:
            raise RuntimeError("socket")
        return [
            RoundTripBatch(
                method=pb.ROUND_TRIP_METHOD_ICMP_RAW,
                stamp_source=pb.STAMP_SOURCE_KERNEL,
                interval_ns=SECOND,
                waiting_time_ns=SECOND,
                path_ids=[short_id(PATH)],
                first_sequences=[0],
                sample_counts=[1],
                send_times_ns=[self.clock.wall_ns()],
                outcomes=[pb.PACKET_OUTCOME_LOST],
                round_trip_delays_ns=[],
            )
        ]

    def oldest_unresolved_ns(self) -> int | None:
        if self.broken:
            raise RuntimeError("socket")
        return self.oldest_ns


class FakeStamp(FakeProber):
    def drain_one_way(self) -> OneWayBatch:
        return OneWayBatch([OneWayLoss(short_id(PATH), 0, 0, 1, 0, send_time_ns=self.clock.wall_ns())])


@dataclass
class FakeRuns:
    earliest_ns: int | None = None
    runs: list[ThroughputRun] = field(default_factory=list)
    kept_calls: int = 0

    def drain(self) -> list[ThroughputRun]:
        runs, self.runs = self.runs, []
        return runs

    def kept(self) -> None:
        self.kept_calls += 1

    def earliest_running_ns(self) -> int | None:
        return self.earliest_ns


@dataclass
class FakeCounters:
    clock: FakeClock
    damaged: bool = False

    def drain(self) -> list[NicBatch]:
        now = self.clock.monotonic_ns()
        good = NicBatch("eth0", ("rx_bytes",), self.clock.event_time_ns(now), now, SECOND, (now,), ((1,),))
        bad = NicBatch("eth1", ("rx_bytes",), 0, now, SECOND, (now,), ())
        return [bad, good] if self.damaged else [good]


class FakeDoubter:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def drain(self) -> SelfCheck | None:
        now = self.clock.wall_ns()
        return SelfCheck(now - 2 * SECOND, now, 8, 1, reasons=("loopback_lost",))


@dataclass
class FakeMarks:
    clock: FakeClock
    waiting: int = 0
    broken: bool = False

    def drain(self) -> list[TrainerMark]:
        if self.broken:
            raise RuntimeError("socket")
        waiting, self.waiting = self.waiting, 0
        now = self.clock.wall_ns()
        return [TrainerMark(now, None, pb.MARK_PHASE_BEGIN, "save", "j", None, None, None, (), 0, 0)] * waiting


class FakeKeeper:
    """Seals into a list instead of a spool."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.events: list[ClockEvent] = []
        self.flushes: list[Mapping[int, int]] = []
        self.kinds: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def note_clock(self, events: Iterable[ClockEvent]) -> None:
        self.events += events

    async def flush(self, context: HeaderContext, watermarks: Mapping[int, int]) -> None:
        await self.gate.wait()
        self.flushes.append(watermarks)
        kinds: list[str] = []
        for batch_class, watermark in watermarks.items():
            for batch in self.recorder.seal(batch_class, context, watermark):
                records = map(pb.Record.FromString, pb.Payload.FromString(batch.payload).record)
                kinds += [record.WhichOneof("kind") or "" for record in records]
        self.kinds.append(kinds)


class World:
    """A flusher over fakes."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        author = Author("a", bytes(32), lambda _: bytes(64), bytes(16), bytes(16), b"", "0")
        classes = (pb.BATCH_CLASS_EVIDENCE, pb.BATCH_CLASS_TELEMETRY)
        chains = {int(batch_class): ChainState(bytes(16), ORIGIN, 0) for batch_class in classes}
        self.recorder = Recorder(author, chains)
        self.keeper = FakeKeeper(self.recorder)
        self.echo, self.tcp = FakeProber(self.clock), FakeProber(self.clock)
        self.stamp = FakeStamp(self.clock)
        self.runs = FakeRuns()
        self.counters = FakeCounters(self.clock)
        self.marks = FakeMarks(self.clock)
        self.parts = {
            name: Part(name, self.clock, asyncio.Event().wait)  # type: ignore[arg-type]
            for name in ("echo", "tcp", "stamp", "runs", "nic", "marks", "self_check")
        }
        self.flusher = Flusher(
            self.clock,
            self.recorder,
            self.keeper,
            context=self.context,
            probers=[(self.parts["echo"], self.echo), (self.parts["tcp"], self.tcp)],
            one_way=[(self.parts["stamp"], self.stamp)],
            runs=(self.parts["runs"], self.runs),
            counters=(self.parts["nic"], self.counters),
            marks=(self.parts["marks"], self.marks),
            status=lambda: Status(self.clock.wall_ns(), 0, None, 0, (PartState("echo", True, "ok"),)),
            self_check=(self.parts["self_check"], FakeDoubter(self.clock)),
        )

    @staticmethod
    def context(anchor: Anchor) -> HeaderContext:
        return HeaderContext(anchor, ClockReading(pb.CLOCK_SOURCE_ADJTIMEX, False))

    def run(self, end_ns: int) -> ThroughputRun:
        report = Report(outcome=pb.RUN_OUTCOME_SKIPPED_PAUSED)
        return ThroughputRun(
            bytes(16), bytes(16), pb.RUN_ROLE_CLIENT, PATH, b"", report, end_ns - 5, end_ns, 5, False, 5201
        )


async def test_one_flush_drains_everything_into_its_class() -> None:
    world = World()
    world.runs.runs = [world.run(world.clock.wall_ns())]
    await world.flusher.flush()
    now = world.clock.wall_ns()
    assert world.keeper.flushes == [{pb.BATCH_CLASS_EVIDENCE: now, pb.BATCH_CLASS_TELEMETRY: now}]
    assert sorted(world.keeper.kinds[0]) == sorted(
        # Path and profile of the run, the counter set of the NIC.
        ["definition"] * 3 + ["round_trip"] * 3 + ["one_way", "self_check", "throughput_run", "nic", "agent_status"]
    )


async def test_runs_are_written_off_only_once_they_are_in_the_spool() -> None:
    world = World()
    world.keeper.gate.clear()
    flushing = asyncio.create_task(world.flusher.flush())
    await world.clock.advance(0)
    assert world.runs.kept_calls == 0
    world.keeper.gate.set()
    await flushing
    assert world.runs.kept_calls == 1


async def test_the_watermark_waits_for_what_is_not_told_yet() -> None:
    world = World()
    now = world.clock.wall_ns()
    world.echo.oldest_ns, world.tcp.oldest_ns, world.runs.earliest_ns = now - 10, now - 20, now - 5
    await world.flusher.flush()
    world.runs.earliest_ns = now - 30
    await world.flusher.flush()
    assert [flush[pb.BATCH_CLASS_EVIDENCE] - now for flush in world.keeper.flushes] == [-21, -31]
    assert [flush[pb.BATCH_CLASS_TELEMETRY] - now for flush in world.keeper.flushes] == [0, 0]


async def test_a_source_that_fails_costs_only_itself_and_holds_the_watermark() -> None:
    world = World()
    await world.flusher.flush()
    first = world.clock.wall_ns()
    world.clock.move(2 * SECOND)
    world.echo.broken = world.counters.damaged = True
    await world.flusher.flush()
    assert sorted(world.keeper.kinds[1]) == [
        "agent_status", "nic", "one_way", "round_trip", "round_trip", "self_check"
    ]  # fmt: skip
    assert world.keeper.flushes[1][pb.BATCH_CLASS_EVIDENCE] == first
    assert world.parts["echo"].failures == 2  # asked for its oldest, and drained
    assert world.parts["nic"].failures == 1
    assert world.parts["tcp"].failures == 0


async def test_a_step_is_noted_before_anything_is_drained() -> None:
    world = World()
    world.clock.step(-3 * SECOND)
    await world.flusher.flush()
    assert world.keeper.events == [ClockStep(world.clock.wall_ns(), -3 * SECOND)]
    assert world.keeper.flushes[0][pb.BATCH_CLASS_TELEMETRY] == world.clock.wall_ns()


async def test_flushes_come_at_the_interval_and_a_slow_one_is_not_made_up_for() -> None:
    world = World()
    running = asyncio.create_task(world.flusher.run())
    await world.clock.advance(5 * SECOND)
    assert len(world.keeper.flushes) == 2
    world.keeper.gate.clear()
    await world.clock.advance(10 * SECOND)
    world.keeper.gate.set()
    await world.clock.advance(0)
    # The one that waited, and the next at once; from then on every two seconds.
    assert len(world.keeper.flushes) == 4
    await world.clock.advance(2 * SECOND)
    assert len(world.keeper.flushes) == 5
    running.cancel()


async def test_the_interval_has_limits() -> None:
    world = World()
    world.flusher.every(1)
    running = asyncio.create_task(world.flusher.run())
    await world.clock.advance(SECOND)
    assert len(world.keeper.flushes) == 10
    running.cancel()


async def test_a_stop_never_falls_into_a_flush() -> None:
    world = World()
    world.keeper.gate.clear()
    running = asyncio.create_task(world.flusher.run())
    await world.clock.advance(2 * SECOND)  # now within a flush
    stopping = asyncio.create_task(world.flusher.stop(running))
    await world.clock.advance(SECOND)
    assert not running.done()
    world.keeper.gate.set()
    await stopping
    await asyncio.wait([running])
    assert running.cancelled()
    assert len(world.keeper.flushes) == 1
    await world.flusher.flush()  # the last one
    assert len(world.keeper.flushes) == 2


async def test_marks_are_evidence_and_a_listener_that_fails_costs_nothing_else() -> None:
    world = World()
    world.marks.waiting = 2
    await world.flusher.flush()
    assert world.keeper.kinds[-1].count("trainer_mark") == 2
    world.marks.broken = True
    await world.flusher.flush()
    assert "trainer_mark" not in world.keeper.kinds[-1]
    assert {"round_trip", "nic"} <= set(world.keeper.kinds[-1])
    assert world.parts["marks"].failures == 1
