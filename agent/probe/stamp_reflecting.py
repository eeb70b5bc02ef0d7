"""The Session-Reflector as the plan asks for it: one socket on each endpoint of this node, answering planned senders.

An address that is not there yet, or a port that somebody else holds, is tried again, and costs only itself. Port 862
(RFC 8762) is wanted beside our own where the plan says so: it needs CAP_NET_BIND_SERVICE, and is no fault where it
cannot be had.
"""

import asyncio
from collections.abc import Callable, Sequence

from agent.clock import Clock
from agent.probe.stamp_admission import PORT, WELL_KNOWN_PORT
from agent.probe.stamp_reflector import StampReflector
from agent.probe.stamp_reflector_socket import KernelReflectorSocket, ReflectorSocket
from agent.result import PartState
from bandwitness.v1.plan_pb2 import StampReflector as Planned
from bandwitness.v1.record_pb2 import Endpoint

AGAIN_NS = 5_000_000_000  # before an address that could not be had is tried again

Place = tuple[str, str, int]  # address, NIC, port


def open_place(place: Place) -> ReflectorSocket:
    """The real socket of one endpoint. Raises OSError as ``KernelReflectorSocket``."""
    address, nic, port = place
    return KernelReflectorSocket(address, port, ip_version=6 if ":" in address else 4, nic=nic)


class StampReflecting:
    """The reflector of one agent. Call everything from the event loop's thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        clock_error: Callable[[], int | None],
        opener: Callable[[Place], ReflectorSocket] = open_place,
    ) -> None:
        """Opens nothing before it is planned.

        Args:
            clock: the host's.
            clock_error: as of ``StampReflector``.
            opener: how an endpoint's socket is opened.
        """
        self._clock = clock
        self._clock_error = clock_error
        self._opener = opener
        self._places: tuple[Place, ...] = ()
        self._optional: frozenset[Place] = frozenset()
        self._allowed: Sequence[str] = ()
        self._changed = asyncio.Event()
        self._reflector: StampReflector | None = None
        self._missing: dict[Place, str] = {}

    def configure(self, planned: Planned | None, endpoints: Sequence[Endpoint]) -> None:
        """Answers as planned on these endpoints; None: not at all. New senders alone disturb no session.

        Raises:
            ValueError: a sender that is no address of one host, or too many; nothing changes.
        """
        allowed = () if planned is None else tuple(planned.allowed_sender)
        port = 0 if planned is None else planned.port or PORT
        places = () if planned is None else tuple((end.address, end.nic, port) for end in endpoints)
        well_known = planned is not None and planned.well_known_port and port != WELL_KNOWN_PORT
        optional = tuple((address, nic, WELL_KNOWN_PORT) for address, nic, _ in places) if well_known else ()
        # Checked even where nothing is open yet.
        (self._reflector or StampReflector(self._clock, [])).allow(allowed)
        self._allowed = allowed
        if places + optional != self._places:
            self._places, self._optional = places + optional, frozenset(optional)
            self._changed.set()

    async def run(self) -> None:
        """Answers until cancelled."""
        while True:
            self._changed.clear()
            if not self._places:
                await self._changed.wait()
                continue
            ports = {PORT, WELL_KNOWN_PORT, *(port for _, _, port in self._places)}
            reflector = StampReflector(self._clock, [], clock_error=self._clock_error, ports=ports)
            reflector.allow(self._allowed)
            self._reflector = reflector
            self._missing = dict.fromkeys(self._places, "")
            serving = asyncio.create_task(reflector.run())
            try:
                await self._serve(reflector, serving)
            finally:
                self._reflector = None
                self._missing = {}
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    async def _serve(self, reflector: StampReflector, serving: "asyncio.Task[None]") -> None:
        """Until the plan asks for other places. A reflector that fails ends the part, which is started again."""
        while not self._changed.is_set():
            for place in list(self._missing):
                try:
                    reflector.listen(self._opener(place))
                except OSError as error:
                    self._missing[place] = error.strerror or str(error)
                else:
                    del self._missing[place]
            changed = asyncio.create_task(self._changed.wait())
            again = asyncio.create_task(self._clock.sleep_until(self._clock.monotonic_ns() + AGAIN_NS))
            waits: set[asyncio.Task[object]] = {changed, serving}
            if self._missing:
                waits.add(again)
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (changed, again):
                    task.cancel()
                await asyncio.gather(changed, again, return_exceptions=True)
            if serving.done():
                serving.result()

    def state(self) -> PartState:
        """Where it answers and what it has answered, what not and why, and where it cannot listen."""
        reflector = self._reflector
        if reflector is None:
            return PartState("stamp_reflector", working=True, state="ok", detail="not planned")
        state = reflector.state()
        missing = {place: why for place, why in self._missing.items() if why}
        refused = [f"{address} port {port}: {why}" for (address, _, port), why in missing.items()]
        open_ports = sorted({place[2] for place in self._places if place not in self._missing})
        answers = f"answers on port {' and '.join(str(port) for port in open_ports)}"
        details = [*([answers] if open_ports else []), *refused, *([state.detail] if state.detail else [])]
        if missing.keys() <= self._optional:
            return PartState(state.part, state.working, state.state, "; ".join(details))
        return PartState(state.part, bool(reflector.sockets), "cannot_listen", "; ".join(details))
