"""When agents are asked for a trace: somebody wants one, or an incident of loss or delay has opened.

A request is a part of the node's plan, so it is signed and on record before the agent hears of it. Guards are code: few
paths an incident, each incident once, and not many in a minute over the whole fleet.
"""

import asyncio
import logging
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from bandwitness.v1.plan_pb2 import TraceRequest
from bandwitness.v1.record_pb2 import (
    PROTOCOL_ICMP_ECHO,
    PROTOCOL_STAMP,
    PROTOCOL_TCP_CONNECT,
    TRACE_REASON_REQUESTED,
    TRACE_REASON_VERDICT,
    Path,
    TraceReason,
)
from collector.app.planning import Planning
from collector.clock import Clock
from collector.export.way_api import TraceRefusedError
from collector.log import LogError
from collector.model import Incident, PathStatus

SECOND = 1_000_000_000
LOOK_NS = SECOND
EXPIRY_NS = 600 * SECOND
FRESH_NS = 300 * SECOND  # an incident that opened longer ago is not asked about: what it was like is past
PATHS_OF_REQUEST = 4
PATHS_OF_INCIDENT = 3
PER_MINUTE = 20  # traces asked for because of incidents, over all nodes
BY_HAND_PER_MINUTE = 30
MINUTE_NS = 60 * SECOND
RULES = frozenset({"loss", "delay"})
MAX_REMEMBERED = 10_000
TRACEABLE = (PROTOCOL_ICMP_ECHO, PROTOCOL_STAMP)

logger = logging.getLogger(__name__)


class Paths(Protocol):
    """What the store knows of paths; blocks."""

    def definitions(self, src: str, dst: str) -> list[tuple[PathStatus, bytes]]: ...
    def definitions_of(self, path_ids: Iterable[int]) -> dict[int, bytes]: ...


class Tracing:
    """Requests for traces. One event loop."""

    def __init__(
        self, planning: Planning, paths: Paths, incidents: Callable[[], Sequence[Incident]], clock: Clock
    ) -> None:
        """``incidents``: the open ones."""
        self._planning, self._paths, self._incidents, self._clock = planning, paths, incidents, clock
        self._asked: dict[str, None] = {}  # incidents
        self._recent: deque[int] = deque()  # when traces were asked for, monotonic
        self._by_hand: deque[int] = deque()

    async def ask(self, src: str, dst: str) -> Sequence[Mapping[str, str]]:
        """Has the paths from a node to a node or target traced.

        Raises:
            TraceRefusedError: no such path, too many requests, or the plan could not be written.
        """
        found = await asyncio.to_thread(self._paths.definitions, src, dst)
        traceable = [(status, path) for status, path in found if status.protocol in TRACEABLE]
        if not traceable and any(status.protocol == PROTOCOL_TCP_CONNECT for status, _ in found):
            raise TraceRefusedError(
                f"only TCP connects are made from {src} to {dst}, and these cannot be traced: the kernel does not say "
                "which router answered a SYN. Echo or STAMP can be: targets[].probes"
            )
        if not traceable:
            raise TraceRefusedError(
                f"no path by echo or STAMP from {src} to {dst} has been measured: see bandwitness-collector paths"
            )
        # Echo first, then one source port after another.
        chosen = sorted(traceable, key=lambda item: item[0].protocol != PROTOCOL_ICMP_ECHO)[:PATHS_OF_REQUEST]
        if not self._room(self._by_hand, BY_HAND_PER_MINUTE, len(chosen)):
            raise TraceRefusedError(f"more than {BY_HAND_PER_MINUTE} traces were asked for within a minute")
        requests = [self._request(secrets.token_hex(8), path, TRACE_REASON_REQUESTED) for _, path in chosen]
        try:
            taken = await self._planning.ask_traces(src, requests)
        except LogError as error:
            raise TraceRefusedError(f"the plan cannot be written: {error}") from None
        if not taken:
            raise TraceRefusedError(f"{src} has no plan, or as many traces asked of it as it may")
        protocols = {PROTOCOL_ICMP_ECHO: "icmp_echo", PROTOCOL_STAMP: "stamp"}
        return [
            {
                "request": request.request,
                "path_id": f"{status.path_id:016x}",
                "protocol": next(name for protocol, name in protocols.items() if protocol == status.protocol),
            }
            for request, (status, _) in zip(requests, chosen, strict=True)
        ]

    async def run(self) -> None:
        """Asks for traces when incidents open, for ever."""
        while True:
            await self._clock.sleep_until(self._clock.monotonic_ns() + LOOK_NS)
            for incident in self._incidents():
                if incident.rule in RULES and incident.incident_id not in self._asked:
                    await self._look_into(incident)

    async def _look_into(self, incident: Incident) -> None:
        while len(self._asked) >= MAX_REMEMBERED:
            del self._asked[next(iter(self._asked))]
        self._asked[incident.incident_id] = None
        if self._clock.wall_ns() - incident.opened_time_ns > FRESH_NS:
            return
        definitions = await asyncio.to_thread(self._paths.definitions_of, path_ids_of(incident))
        chosen: dict[str, list[TraceRequest]] = {}
        for path in spread(definitions.values())[:PATHS_OF_INCIDENT]:
            name = f"{incident.incident_id[:16]}-{sum(map(len, chosen.values())) + 1}"
            node = Path.FromString(path).source.node
            chosen.setdefault(node, []).append(self._request(name, path, TRACE_REASON_VERDICT))
        count = sum(map(len, chosen.values()))
        if not count:
            return
        if not self._room(self._recent, PER_MINUTE, count):
            logger.warning("tracing: incident %s is not traced: too many at a time", incident.incident_id[:12])
            return
        for node, requests in chosen.items():
            try:
                await self._planning.ask_traces(node, requests)
            except LogError as error:
                logger.error("tracing: incident %s is not traced: %s", incident.incident_id[:12], error)
                return

    def _request(self, name: str, path: bytes, reason: TraceReason.ValueType) -> TraceRequest:
        return TraceRequest(request=name, path=path, reason=reason, expiry_time_ns=self._clock.wall_ns() + EXPIRY_NS)

    def _room(self, recent: deque[int], limit: int, count: int) -> bool:
        now_ns = self._clock.monotonic_ns()
        while recent and now_ns - recent[0] >= MINUTE_NS:
            recent.popleft()
        if len(recent) + count > limit:
            return False
        recent.extend([now_ns] * count)
        return True


def path_ids_of(incident: Incident) -> list[int]:
    """Paths that an incident stands on."""
    found = []
    for child in incident.children:
        try:
            found.append(int(child, 16))
        except ValueError:
            continue  # a node's name
    return found


def spread(definitions: Iterable[bytes]) -> list[bytes]:
    """Traceable paths, those of nodes with few before them first, so that a few show the incident from many sides."""
    paths = sorted(path for path in definitions if Path.FromString(path).type_p.protocol in TRACEABLE)
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, int, bytes]] = []
    for path in paths:
        node = Path.FromString(path).source.node
        ranked.append((seen[node], len(ranked), path))
        seen[node] += 1
    return [path for _, _, path in sorted(ranked)]
