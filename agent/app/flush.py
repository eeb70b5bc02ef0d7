"""The flush: every few seconds all that the parts have measured becomes one sealed batch a class, in the spool.

A source that fails while it is drained costs its own results of that flush and no others'. What is drained is told by
event time: the clock's offset is taken over first, and the watermark before anything is drained.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from agent.app.parts import Part
from agent.clock import Anchor, Clock, ClockEvent
from agent.record import HeaderContext, Recorder, watermark_ns
from agent.result import (
    NicBatch,
    OneWayBatch,
    PathMtu,
    RoundTripBatch,
    RouteTrace,
    SelfCheck,
    Status,
    ThroughputRun,
    TrainerMark,
)
from bandwitness.v1.record_pb2 import BATCH_CLASS_EVIDENCE, BATCH_CLASS_TELEMETRY

DEFAULT_INTERVAL_NS = 2_000_000_000
MIN_INTERVAL_NS = 100_000_000
MAX_INTERVAL_NS = 5_000_000_000  # the probers hold what is measured for 8 s at most


class Prober(Protocol):
    """An ICMP, TCP or STAMP session."""

    @property
    def definitions(self) -> Mapping[int, bytes]: ...
    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]: ...
    def oldest_unresolved_ns(self) -> int | None: ...


class OneWay(Prober, Protocol):
    """A prober whose far end counts and has a clock."""

    def drain_one_way(self) -> OneWayBatch: ...


class Runs(Protocol):
    """The slot runner."""

    def drain(self) -> list[ThroughputRun]: ...
    def kept(self) -> None: ...
    def earliest_running_ns(self) -> int | None: ...


class Counters(Protocol):
    """The NIC sampler."""

    def drain(self) -> list[NicBatch]: ...


class Doubter(Protocol):
    """The check of the agent by itself."""

    def drain(self) -> SelfCheck | None: ...


class Marks(Protocol):
    """The listener for marks."""

    def drain(self) -> list[TrainerMark]: ...


class Traces(Protocol):
    """What sweeps over hop limits."""

    def note(self, batches: Sequence[RoundTripBatch]) -> None: ...
    def drain(self) -> list[RouteTrace]: ...
    def oldest_unresolved_ns(self) -> int | None: ...


class Mtus(Protocol):
    """What looks for the MTU of paths."""

    def drain(self) -> list[PathMtu]: ...
    def oldest_unresolved_ns(self) -> int | None: ...


class Keeper(Protocol):
    """``spool.Journal``."""

    def note_clock(self, events: Iterable[ClockEvent]) -> None: ...
    async def flush(self, context: HeaderContext, watermarks: Mapping[int, int]) -> None: ...


class Flusher:
    """Drains, records, seals.

    Args:
        clock: its ``tick`` is called here and nowhere else.
        recorder: takes the results.
        keeper: seals them into the spool.
        context: what the headers say of the moment.
        probers, one_way, runs, counters, marks: what is drained, each with the part that answers for it; what is in
            ``one_way`` is not in ``probers``.
        status: the agent on itself.
        self_check: whether its own host stood in its way.
        traces, mtus: what feels out the paths, each with its part.
    """

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        keeper: Keeper,
        *,
        context: Callable[[Anchor], HeaderContext],
        probers: Sequence[tuple[Part, Prober]],
        one_way: Sequence[tuple[Part, OneWay]] = (),
        runs: tuple[Part, Runs],
        counters: tuple[Part, Counters],
        marks: tuple[Part, Marks],
        status: Callable[[], Status],
        self_check: tuple[Part, Doubter] | None = None,
        traces: tuple[Part, Traces] | None = None,
        mtus: tuple[Part, Mtus] | None = None,
    ) -> None:
        self._clock = clock
        self._recorder = recorder
        self._keeper = keeper
        self._context = context
        self._probers = [*probers, *one_way]
        self._one_way = one_way
        self._runs = runs
        self._counters = counters
        self._marks = marks
        self._status = status
        self._self_check = self_check
        self._traces = traces
        self._mtus = mtus
        self._interval_ns = DEFAULT_INTERVAL_NS
        self._one = asyncio.Lock()

    def every(self, interval_ns: int) -> None:
        """Sets the interval, within limits; 0 is the default."""
        self._interval_ns = min(max(interval_ns or DEFAULT_INTERVAL_NS, MIN_INTERVAL_NS), MAX_INTERVAL_NS)

    async def run(self) -> None:
        """Flushes for ever. A flush that takes longer than the interval delays the next, it is not made up for."""
        next_ns = self._clock.monotonic_ns() + self._interval_ns
        while True:
            await self._clock.sleep_until(next_ns)
            await self.flush()
            next_ns = max(next_ns + self._interval_ns, self._clock.monotonic_ns())

    async def stop(self, running: "asyncio.Task[None]") -> None:
        """Ends ``run`` between two flushes, never within one."""
        async with self._one:
            running.cancel()

    async def flush(self) -> None:
        """One flush; returns when it is durable, or waits in the spool's memory."""
        async with self._one:
            self._keeper.note_clock(self._clock.tick())
            anchor = self._clock.anchor()
            watermarks: dict[int, int] = {
                BATCH_CLASS_EVIDENCE: self._watermark(anchor.wall_ns),
                BATCH_CLASS_TELEMETRY: anchor.wall_ns,
            }
            self._drain()
            self._recorder.add_status(self._status())
            await self._keeper.flush(self._context(anchor), watermarks)
            part, runs = self._runs
            part.guard(None, runs.kept)

    def _watermark(self, now_ns: int) -> int:
        # A source that cannot say what it still owes would let the watermark pass over it: then it stands still.
        standing: int | None = self._recorder.last_event_time_ns(BATCH_CLASS_EVIDENCE) + 1
        unresolved = [part.guard(standing, prober.oldest_unresolved_ns) for part, prober in self._probers]
        for part, feeler in (found for found in (self._traces, self._mtus) if found is not None):
            unresolved.append(part.guard(standing, feeler.oldest_unresolved_ns))
        part, runs = self._runs
        return watermark_ns(
            now_ns,
            oldest_unresolved_ns=min((at for at in unresolved if at is not None), default=None),
            earliest_running_ns=part.guard(standing, runs.earliest_running_ns),
        )

    def _drain(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for part, prober in self._probers:
            batches = part.guard([], prober.drain, now_ns)
            for batch in batches:
                part.guard(None, self._recorder.add_round_trip, batch, prober.definitions)
            if self._traces is not None:
                tracing, traces = self._traces
                tracing.guard(None, traces.note, batches)
        for part, sender in self._one_way:
            found = part.guard(OneWayBatch(), sender.drain_one_way)
            part.guard(None, self._recorder.add_one_way, found, sender.definitions)
        if self._self_check is not None:
            part, doubter = self._self_check
            check = part.guard(None, doubter.drain)
            if check is not None:
                part.guard(None, self._recorder.add_self_check, check)
        self._drain_ways()
        part, runs = self._runs
        for run in part.guard([], runs.drain):
            part.guard(None, self._recorder.add_throughput_run, run)
        part, listener = self._marks
        for mark in part.guard([], listener.drain):
            part.guard(None, self._recorder.add_mark, mark)
        part, counters = self._counters
        for read in part.guard([], counters.drain):
            part.guard(None, self._recorder.add_nic, read)

    def _drain_ways(self) -> None:
        """What paths are made of."""
        if self._traces is not None:
            part, traces = self._traces
            for trace in part.guard([], traces.drain):
                part.guard(None, self._recorder.add_route_trace, trace)
        if self._mtus is not None:
            part, mtus = self._mtus
            for found in part.guard([], mtus.drain):
                part.guard(None, self._recorder.add_path_mtu, found)
