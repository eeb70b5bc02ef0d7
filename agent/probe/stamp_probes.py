"""The Session-Sender as the plan asks for it: STAMP targets to one session a source port, and what their paths are.

Some source ports of a target stay, others change every hour (``stamp_ports``). Each is a path of its own.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random

from agent.clock import Clock
from agent.probe.stamp_admission import PORT
from agent.probe.stamp_packet import BASE_BYTES
from agent.probe.stamp_paths import StampPath
from agent.probe.stamp_ports import HOUR_NS, MAX_PORTS, rotating_ports
from agent.probe.stamp_sender import StampSession
from agent.probe.stamp_socket import KernelSenderSocket, SenderOpener
from agent.probe.stamp_way import StampWay
from agent.probe.targets import read_address
from agent.probe.zones import ZoneError, from_here
from agent.result import OneWayBatch, PartState, RoundTripBatch
from bandwitness.identity import canonical, short_id
from bandwitness.v1.plan_pb2 import StampTarget
from bandwitness.v1.record_pb2 import PROTOCOL_STAMP, Path


def paths_of(target: StampTarget, wall_ns: int) -> list[tuple[StampPath, bytes]]:
    """The paths of one target in the hour of ``wall_ns``, each with its serialised Path. What must not be probed is
    refused later (``stamp_paths.refusal``)."""
    parsed = read_address(target.endpoint.address)
    try:
        reached = from_here(target.endpoint.address, target.source.nic, peer=True)
    except ZoneError:
        reached = target.endpoint.address
    path = Path(source=target.source, endpoint=target.endpoint)
    path.endpoint.address = target.endpoint.address if parsed is None else str(parsed)
    path.type_p.protocol = PROTOCOL_STAMP
    path.type_p.ip_version = 0 if parsed is None else parsed.version
    path.type_p.payload_bytes = max(BASE_BYTES, target.payload_bytes)
    path.type_p.dscp = target.dscp
    path.type_p.destination_port = target.destination_port or PORT
    found = []
    rotating = rotating_ports(min(target.rotating_ports, MAX_PORTS), wall_ns)
    for port in dict.fromkeys([*target.source_port[:MAX_PORTS], *rotating]):
        path.type_p.source_port = port
        definition = canonical(path)
        planned = StampPath(
            path_id=short_id(definition),
            address=reached,
            ip_version=path.type_p.ip_version,
            source_port=port,
            source_address=target.source.address,
            nic=target.source.nic,
            destination_port=path.type_p.destination_port,
            dscp=target.dscp,
            payload_bytes=path.type_p.payload_bytes,
            interval_ns=target.interval_ns,
            waiting_ns=target.waiting_time_ns,
            stateful=True,
        )
        found.append((planned, definition))
    return found


class StampProbes:
    """All STAMP paths of one agent. Call everything from the event loop's thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        clock_error: Callable[[], int | None],
        opener: SenderOpener = KernelSenderSocket,
        random: Random | None = None,
    ) -> None:
        """Opens nothing before there are targets. Arguments as of ``StampSession``."""
        self._clock = clock
        self._session = StampSession(clock, opener=opener, clock_error=clock_error, random=random)
        self._targets: Sequence[StampTarget] = ()
        self._planned = asyncio.Event()
        self._hour = 0
        self._definitions: dict[int, bytes] = {}

    @property
    def definitions(self) -> Mapping[int, bytes]:
        """Serialised Path by path id, of all that the last drain mentions."""
        return self._definitions

    def configure(self, targets: Sequence[StampTarget]) -> None:
        """Probes these targets and no others, from the next tick on; paths that stay go on with their sequence."""
        self._targets = tuple(targets)
        self._take_over()
        if targets:
            self._planned.set()

    async def run(self) -> None:
        """Probes until cancelled; before the first target nothing is opened and nothing wakes."""
        await self._planned.wait()
        await self._session.run()

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        """Everything resolved by now (``StampSession.drain``)."""
        if self._clock.wall_ns() // HOUR_NS != self._hour:
            self._take_over()
        for gone in self._definitions.keys() - self._session.path_ids():
            del self._definitions[gone]
        return self._session.drain(monotonic_ns)

    def drain_one_way(self) -> OneWayBatch:
        """What the reflectors' counts and clocks have said by the last ``drain``."""
        return OneWayBatch(self._session.drain_losses(), self._session.drain_delays())

    def paths(self) -> list[tuple[StampPath, bytes, bool]]:
        """All paths of this hour, each with its serialised Path, and whether its source port stays."""
        wall_ns = self._clock.wall_ns()
        return [
            (path, definition, path.source_port in target.source_port)
            for target in self._targets
            for path, definition in paths_of(target, wall_ns)
        ]

    def way(self, path_id: int) -> StampWay | None:
        """Packets with a hop limit over the ports of one path; None while it has no session. Close it."""
        session = self._session.session_of(path_id)
        if session is None or session.link.guest is not None:
            return None
        return StampWay(self._clock, session, self._session.read)

    def oldest_unresolved_ns(self) -> int | None:
        """Wall clock send time of the oldest packet not yet drained; None when there is none."""
        return self._session.oldest_unresolved_ns()

    def state(self) -> PartState:
        """How it goes, and what is missing."""
        if not self._planned.is_set():
            return PartState("stamp", working=True, state="ok", detail="not planned")
        return self._session.state()

    def _take_over(self) -> None:
        wall_ns = self._clock.wall_ns()
        self._hour = wall_ns // HOUR_NS
        paths = [path for target in self._targets for path in paths_of(target, wall_ns)]
        self._definitions.update((path.path_id, definition) for path, definition in paths)
        self._session.configure([path for path, _ in paths])
