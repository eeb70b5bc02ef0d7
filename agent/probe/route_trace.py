"""Traces of the paths that an agent probes: who answers on the way, hop after hop, with the path's own flow.

One at a time, and so seldom that no router's limit on ICMP errors is met: guards are code. Traced is what the plan
asks for, then paths whose replies come with another hop limit than before, then paths that are new to this process.
ICMP echo paths are traced with echo, STAMP paths over their own ports. TCP connect paths are not
traced: TCP has no error queue (ip(7)), so the kernel does not say which router answered a SYN.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from agent.clock import Clock
from agent.probe.icmp_socket import Rights, Source, hold_receive_stamping
from agent.probe.route_sweep import Sweep
from agent.probe.sounding import KernelSoundingSocket, Sounding, SoundingOpener, To, Way
from agent.probe.stamp_paths import StampPath
from agent.probe.targets import PathSpec
from agent.result import Hop, PartState, RoundTripBatch, RouteTrace
from bandwitness.identity import short_id
from bandwitness.v1.plan_pb2 import TraceRequest
from bandwitness.v1.record_pb2 import TRACE_REASON_HOP_COUNT, TRACE_REASON_REFERENCE

SECOND_NS = 1_000_000_000
LOOK_NS = 10_000_000  # between two looks at what has come
GAP_NS = 10 * SECOND_NS  # between two traces; each router has answered at most three times before
REFERENCE_GAP_NS = 60 * SECOND_NS  # of those that nobody asked for
SAME_GAP_NS = 600 * SECOND_NS  # of one path, because its hop limit changed
SEEN = 3  # flushes in a row with another hop limit: then it has changed
MAX_WAITING = 256  # traces asked for
MAX_REMEMBERED = 10_000
MAX_RESULTS = 64


class Traced(NamedTuple):
    """A path that can be traced, and how packets are sent over it (None: not now). Those that do not stay are traced
    only where that is asked for."""

    definition: bytes  # serialised Path
    waiting_ns: int
    way: Callable[[], Way | None]
    stays: bool = True


class _Wanted(NamedTuple):
    path_id: int
    reason: int
    request: str
    expiry_ns: int  # wall clock; 0: never


class _HopLimit:
    """With which hop limit replies of one path come."""

    __slots__ = ("asked_ns", "candidate", "known", "seen")

    def __init__(self, known: int) -> None:
        self.known = self.candidate = known
        self.seen = 0
        self.asked_ns: int | None = None


async def trace(clock: Clock, way: Way, sweep: Sweep, look: Callable[[Hop], None] = lambda _: None) -> None:
    """Runs one sweep to its end. ``look`` is shown each answer as it comes."""
    while True:
        now_ns = clock.monotonic_ns()
        hop_limit = sweep.due(now_ns)
        if hop_limit is not None:
            try:
                sweep.sent(hop_limit, way.send(hop_limit), now_ns)
            except OSError:
                sweep.failed(hop_limit, now_ns)
        for answer in way.read():
            hop = sweep.answer(answer)
            if hop is not None:
                look(hop)
        if sweep.finished(clock.monotonic_ns()):
            return
        await clock.sleep_until(clock.monotonic_ns() + LOOK_NS)


def echo_way(
    clock: Clock, spec: PathSpec, rights: Rights, random: Random, opener: SoundingOpener = KernelSoundingSocket
) -> Way | None:
    """Echo over one path with hop limits; None where no ICMP may be sent.

    Raises:
        OSError: no such address or device here.
    """
    method = rights.method(spec.ip_version)
    if method is None:
        return None
    source = Source(spec.ip_version, spec.source_address, spec.nic, spec.dscp)
    to = To(spec.address, source)
    return Sounding(
        clock, to, method, opener=opener, random=random, payload_bytes=spec.payload_bytes, flow=spec.path_id
    )


class RouteTraces:
    """The tracing part of one agent. Call everything from the event loop's thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        echo_paths: Callable[[], Sequence[PathSpec]],
        stamp_paths: Callable[[], Sequence[tuple[StampPath, bytes, bool]]],
        stamp_way: Callable[[int], Way | None],
        rights: Rights,
        opener: SoundingOpener = KernelSoundingSocket,
        random: Random | None = None,
    ) -> None:
        """Args:
        clock: the host's.
        echo_paths: paths probed by echo that have an address.
        stamp_paths: paths probed by STAMP, with their definitions and whether their source port stays.
        stamp_way: how packets are sent over a STAMP path, by path id.
        rights: which ICMP sockets may be opened.
        opener: how they are.
        random: of identifiers and tokens.
        """
        self._clock = clock
        self._echo_paths, self._stamp_paths, self._stamp_way = echo_paths, stamp_paths, stamp_way
        self._rights = rights
        self._opener = opener
        self._random = random or Random()  # noqa: S311 - tokens tell packets apart, they keep no secret
        self._wanted: deque[_Wanted] = deque()
        self._done: dict[str, None] = {}  # requests taken up
        self._seen: dict[int, None] = {}  # paths traced, or tried to
        self._later_ns: dict[int, int] = {}  # new paths that could not be traced: when to try again
        self._hop_limits: dict[int, _HopLimit] = {}
        self._results: list[RouteTrace] = []
        self._running_since_ns: int | None = None  # wall clock
        self._next_ns = 0
        self._next_reference_ns = 0
        self._reference = True
        self.not_kept = 0  # requests and results over a limit
        self._fault = ""

    def configure(self, requests: Sequence[TraceRequest], reference: bool = True) -> None:
        """Takes up what the plan asks for; each request once. ``reference``: trace paths that are new, too."""
        self._reference = reference
        for request in requests:
            if request.request in self._done:
                continue
            _remember(self._done, request.request)
            self._want(
                _Wanted(short_id(request.path), request.reason, request.request, request.expiry_time_ns), first=True
            )

    def note(self, batches: Sequence[RoundTripBatch]) -> None:
        """Looks for replies that come with another hop limit than before."""
        now_ns = self._clock.monotonic_ns()
        for batch in batches:
            for path_id, hop_limit in zip(batch.path_ids, batch.hop_limits, strict=False):
                if hop_limit:
                    self._note(path_id, hop_limit, now_ns)

    async def run(self) -> None:
        """Traces until cancelled."""
        with hold_receive_stamping():
            while True:
                now_ns = self._clock.monotonic_ns()
                wanted = self._take(now_ns) if now_ns >= self._next_ns else None
                if wanted is not None and await self._trace(wanted):
                    self._next_ns = self._clock.monotonic_ns() + GAP_NS
                await self._clock.sleep_until(self._clock.monotonic_ns() + SECOND_NS)

    def drain(self) -> list[RouteTrace]:
        """Traces that ended since the last call."""
        found, self._results = self._results, []
        return found

    def oldest_unresolved_ns(self) -> int | None:
        """Wall clock time of the first packet of a trace not drained yet; None: there is none."""
        times = [result.time_ns for result in self._results]
        return min(times + ([] if self._running_since_ns is None else [self._running_since_ns]), default=None)

    def state(self) -> PartState:
        """How it goes."""
        details = [self._fault] if self._fault else []
        if self.not_kept:
            details.append(f"{self.not_kept} traces not made or kept: too many at a time")
        return PartState("route_trace", True, "degraded" if details else "ok", "; ".join(details))

    # ------------------------------------------------------------ what is next

    def _want(self, wanted: _Wanted, *, first: bool = False) -> None:
        if len(self._wanted) >= MAX_WAITING:
            self.not_kept += 1
        elif first:
            at = next((i for i, w in enumerate(self._wanted) if not w.request), len(self._wanted))
            self._wanted.insert(at, wanted)
        else:
            self._wanted.append(wanted)

    def _take(self, now_ns: int) -> _Wanted | None:
        wall_ns = self._clock.wall_ns()
        while self._wanted:
            wanted = self._wanted.popleft()
            if not wanted.expiry_ns or wall_ns < wanted.expiry_ns:
                return wanted
        if not self._reference or now_ns < self._next_reference_ns:
            return None
        paths = self._paths().items()
        fresh = (path_id for path_id, path in paths if path.stays and path_id not in self._seen)
        new = next((path_id for path_id in fresh if self._later_ns.get(path_id, 0) <= now_ns), None)
        if new is None:
            self._next_reference_ns = now_ns + GAP_NS  # to look costs too, where there are many
            return None
        self._next_reference_ns = now_ns + REFERENCE_GAP_NS
        return _Wanted(new, int(TRACE_REASON_REFERENCE), "", 0)

    def _paths(self) -> dict[int, Traced]:
        found: dict[int, Traced] = {}
        for spec in self._echo_paths():
            found[spec.path_id] = Traced(
                spec.definition,
                spec.waiting_ns,
                lambda spec=spec: echo_way(self._clock, spec, self._rights, self._random, self._opener),  # type: ignore[misc]
            )
        for path, definition, stays in self._stamp_paths():
            found[path.path_id] = Traced(
                definition,
                path.waiting_ns,
                lambda path_id=path.path_id: self._stamp_way(path_id),  # type: ignore[misc]
                stays,
            )
        return found

    def _note(self, path_id: int, hop_limit: int, now_ns: int) -> None:
        kept = self._hop_limits.get(path_id)
        if kept is None:
            while len(self._hop_limits) >= MAX_REMEMBERED:
                del self._hop_limits[next(iter(self._hop_limits))]
            self._hop_limits[path_id] = _HopLimit(hop_limit)
            return
        if hop_limit == kept.known:
            kept.candidate, kept.seen = hop_limit, 0
            return
        kept.seen = kept.seen + 1 if hop_limit == kept.candidate else 1
        kept.candidate = hop_limit
        if kept.seen < SEEN:
            return
        kept.known, kept.seen = hop_limit, 0
        if kept.asked_ns is None or now_ns - kept.asked_ns >= SAME_GAP_NS:
            kept.asked_ns = now_ns
            self._want(_Wanted(path_id, int(TRACE_REASON_HOP_COUNT), "", 0))

    def _put_off(self, wanted: _Wanted) -> None:
        """There is no way to send now: no right, or a session that has not begun."""
        if wanted.request:
            self._fault = f"request {wanted.request}: no right to send ICMP, or no socket for the path's port"
            return
        self._seen.pop(wanted.path_id, None)
        while len(self._later_ns) >= MAX_REMEMBERED:
            del self._later_ns[next(iter(self._later_ns))]
        self._later_ns[wanted.path_id] = self._clock.monotonic_ns() + REFERENCE_GAP_NS
        self._next_reference_ns = 0  # another path's turn

    # ------------------------------------------------------------ one trace

    async def _trace(self, wanted: _Wanted) -> bool:
        """False: nothing was sent."""
        _remember(self._seen, wanted.path_id)
        traced = self._paths().get(wanted.path_id)
        if traced is None:
            if wanted.request:
                self._fault = (
                    f"request {wanted.request}: no echo or STAMP path of this node, or no address for its name"
                )
            return False
        started_ns = self._clock.wall_ns()
        self._running_since_ns = started_ns
        try:
            way = traced.way()
            if way is None:
                self._put_off(wanted)
                return False
            sweep = Sweep(min(traced.waiting_ns, SECOND_NS))
            try:
                await trace(self._clock, way, sweep)
            finally:
                way.close()
            self._fault = ""
            found = RouteTrace(
                traced.definition, started_ns, wanted.reason, wanted.request, sweep.hops(), sweep.reached
            )
            if len(self._results) >= MAX_RESULTS:
                self.not_kept += 1
            else:
                self._results.append(found)
        except OSError as error:
            self._fault = f"a path could not be traced: {error}"
            return False
        finally:
            self._running_since_ns = None
        return True


def _remember(kept: dict[int, None] | dict[str, None], key: int | str) -> None:
    """Adds a key; the oldest go where there are too many."""
    while len(kept) >= MAX_REMEMBERED:
        del kept[next(iter(kept))]  # type: ignore[arg-type]
    kept[key] = None  # type: ignore[index]
