"""The Session-Sender as the plan asks for it: STAMP targets to one session a source port, and what their paths are.

Some source ports of a target stay, others change every hour (``stamp_ports``). Each is a path of its own.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

from agent.clock import Clock
from agent.probe.path_slots import MAX_RATE
from agent.probe.resolve import MAX_NAMES, Resolver
from agent.probe.stamp_admission import PORT
from agent.probe.stamp_packet import BASE_BYTES
from agent.probe.stamp_paths import StampPath
from agent.probe.stamp_ports import HOUR_NS, MAX_PORTS, rotating_ports
from agent.probe.stamp_sender import MAX_DETAIL, StampSession
from agent.probe.stamp_socket import KernelSenderSocket, SenderOpener
from agent.probe.stamp_way import StampWay
from agent.probe.targets import read_address, source_version
from agent.probe.zones import ZoneError, from_here
from agent.result import OneWayBatch, PartState, RoundTripBatch
from bandwitness.identity import canonical, short_id
from bandwitness.v1.plan_pb2 import StampTarget
from bandwitness.v1.record_pb2 import PROTOCOL_STAMP, Path

RESOLVE_NS = 1_000_000_000  # between two looks at which names are due


def paths_of(target: StampTarget, wall_ns: int, address: str | None = None) -> list[tuple[StampPath, bytes]]:
    """The paths of one target in the hour of ``wall_ns``, each with its serialised Path. What must not be probed is
    refused later (``stamp_paths.refusal``).

    Args:
        target: as planned.
        wall_ns: of the hour.
        address: one of a name's (empty: not resolved); None: the target's own.
    """
    ours = not target.HasField("target")
    if address is None:
        address = target.endpoint.address if ours else target.target.address
    parsed = read_address(address)
    try:
        reached = from_here(address, target.source.nic, peer=ours)
    except ZoneError:
        reached = address
    path = Path(source=target.source)
    if ours:
        path.endpoint.CopyFrom(target.endpoint)
        path.endpoint.address = address if parsed is None else str(parsed)
    else:
        path.target.name = target.target.name or target.target.address
        path.target.address = reached
    path.type_p.protocol = PROTOCOL_STAMP
    path.type_p.ip_version = source_version(target.source.address) if parsed is None else parsed.version
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
            stateful=ours,
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
        resolver: Resolver | None = None,
    ) -> None:
        """Opens nothing before there are targets. Arguments as of ``StampSession`` and ``EchoSession``."""
        self._clock = clock
        self._session = StampSession(clock, opener=opener, clock_error=clock_error, random=random)
        self._resolver = resolver or Resolver(clock)
        self._targets: Sequence[StampTarget] = ()
        self._max_rate: float = MAX_RATE
        self._left_out: list[str] = []
        self._planned = asyncio.Event()
        self._hour = 0
        self._definitions: dict[int, bytes] = {}
        self._too_many: list[str] = []

    @property
    def definitions(self) -> Mapping[int, bytes]:
        """Serialised Path by path id, of all that the last drain mentions."""
        return self._definitions

    def configure(self, targets: Sequence[StampTarget], max_rate: float = MAX_RATE) -> None:
        """Probes these targets and no others, from the next tick on; paths that stay go on with their sequence.
        ``max_rate``: packets a second in all; paths over it are left out, and said."""
        self._targets = tuple(targets)
        self._max_rate = max_rate
        names = [name for target in targets if (name := name_of(target))]
        beyond = self._resolver.watch(names)
        self._too_many = [f"{len(beyond)} names over the limit of {MAX_NAMES}"] if beyond else []
        self._take_over()
        if targets:
            self._planned.set()

    async def run(self) -> None:
        """Probes until cancelled; before the first target nothing is opened and nothing wakes."""
        await self._planned.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._session.run())
            group.create_task(self._resolve())

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        """Everything resolved by now (``StampSession.drain``)."""
        if self._resolver.take_changed() or self._clock.wall_ns() // HOUR_NS != self._hour:
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
        state = self._session.state()
        unresolved = [f"name {name}: {fault}" for name, fault in self._resolver.faults().items()]
        if not (unresolved or self._left_out or self._too_many):
            return state
        word = "dns_failed" if unresolved else "degraded"
        details = [*unresolved, *self._left_out, *self._too_many, *([state.detail] if state.detail else [])]
        return replace(state, state=word if state.working else state.state, detail="; ".join(details)[:MAX_DETAIL])

    async def _resolve(self) -> None:
        """Keeps the names of targets fresh, until cancelled."""
        while True:
            self._resolver.tick()
            await self._clock.sleep_until(self._clock.monotonic_ns() + RESOLVE_NS)

    def _take_over(self) -> None:
        wall_ns = self._clock.wall_ns()
        self._hour = wall_ns // HOUR_NS
        self._left_out = []
        paths = {
            path.path_id: (path, definition)
            for target in self._targets
            for address in self._addresses(target)
            for path, definition in paths_of(target, wall_ns, address)
        }
        self._definitions.update((path_id, definition) for path_id, (_, definition) in paths.items())
        self._session.configure([path for path, _ in paths.values()], max_rate=self._max_rate)

    def _addresses(self, target: StampTarget) -> Sequence[str | None]:
        """Those to probe: each of a name's that the source can reach, an empty one where there is none."""
        name = name_of(target)
        if not name:
            return (None,)
        answer = self._resolver.answer(name)
        version = source_version(target.source.address)
        fitting = [address for address in answer.addresses if version in (0, 6 if ":" in address else 4)]
        if answer.addresses and not fitting:
            self._left_out.append(f"{name}: no IPv{version} address, as {target.source.address} would need")
        failed = answer.fault or (answer.addresses and not fitting)
        return [*fitting, ""] if failed else fitting


def name_of(target: StampTarget) -> str:
    """What is to be resolved; empty where the target is an address."""
    text = target.target.address if target.HasField("target") else ""
    return "" if read_address(text) is not None else text
