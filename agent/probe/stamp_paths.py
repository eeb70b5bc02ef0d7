"""The paths that a STAMP sender keeps: which are let in, when each is due, and its slot in the outcome table. Pure.

Guards stand here and not in configuration: what breaks one is refused, with the reason, and the others go on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from agent.clock import Anchor
from agent.probe.path_slots import Method, PathSlots
from agent.probe.stamp_admission import PORT
from agent.probe.stamp_packet import BASE_BYTES, MAX_BYTES
from agent.probe.stamp_socket import PortSource
from agent.probe.targets import guarded, read_address
from agent.probe.zones import ZoneError, from_here

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class StampPath:
    """One session: a pair of addresses, a source port, a Type-P. ``path_id`` is what its results carry."""

    path_id: int
    address: str  # RFC 5952, with %zone; empty: not resolved
    ip_version: int
    source_port: int  # 0: the kernel's choice, one for all paths that ask so
    source_address: str = ""
    nic: str = ""
    destination_port: int = PORT
    dscp: int = 0
    payload_bytes: int = BASE_BYTES
    interval_ns: int = _SECOND_NS
    waiting_ns: int = _SECOND_NS
    stateful: bool = False  # the reflector is known to count (ours do); else it must show it
    turns: int = 0  # it ends by itself after so many packets; 0: never

    @property
    def source(self) -> PortSource:
        """The socket it uses."""
        return PortSource(self.ip_version, self.source_address, self.nic, self.dscp, self.source_port)


def refusal(path: StampPath) -> str:
    """Why this path must not be probed; empty: it may be."""
    if reason := guarded(path.interval_ns, path.waiting_ns, path.dscp):
        return reason
    for name, value, low, high in (
        ("payload", path.payload_bytes, BASE_BYTES, MAX_BYTES),
        ("source port", path.source_port, 0, 65535),
        ("destination port", path.destination_port, 1, 65535),
    ):
        if not low <= value <= high:
            return f"{name} {value} is not within {low} to {high}"
    if path.source_port and path.source_port < 1024:
        return f"source port {path.source_port} is a service's"
    if not path.address:
        return ""
    if path.ip_version not in (4, 6):
        return f"IP version {path.ip_version} is not 4 or 6"
    try:
        parsed = ip_address(path.address)
    except ValueError:
        return f"{path.address!r} is not an address"
    if parsed.is_multicast or parsed.is_unspecified or int(parsed) == 0xFFFFFFFF:
        return f"{path.address} is not the address of one host"
    if parsed.version != path.ip_version:
        return f"{path.address} is not of IP version {path.ip_version}"
    source = read_address(path.source_address)
    if path.source_address and (source is None or source.version != path.ip_version):
        return f"{path.address} cannot be reached from {path.source_address}: not an address of its IP version"
    try:
        from_here(path.address, path.nic)
    except ZoneError as error:
        return str(error)
    return ""


class StampBook(PathSlots[StampPath]):
    """Slots, their paths, and what is due."""

    def __init__(self, method: Method, *, phase: float = 0.0) -> None:
        super().__init__(phase=phase)
        self._method = method
        self._wanted: dict[StampPath, Method] = {}
        self._refused: list[str] = []
        self._left_out: list[str] = []
        self._dirty = False

    def configure(self, paths: Sequence[StampPath]) -> None:
        """These paths and no others, from the next ``due`` on."""
        self._refused, self._wanted, self._dirty = [], {}, True
        known: set[int] = set()
        for path in paths:
            reason = refusal(path) or (f"path {path.path_id} is there twice" if path.path_id in known else "")
            if reason:
                self._refused.append(reason)
                continue
            known.add(path.path_id)
            self._wanted[path] = self._method

    def due(self, now: Anchor) -> Iterator[tuple[int, StampPath]]:
        """As ``PathSlots.due``, after what has changed is taken over."""
        if self._dirty:
            self._dirty = False
            self._left_out = self.take_over(self._wanted)
        return super().due(now)

    def slots(self) -> set[int]:
        """Of all paths that go on or have packets to hand out."""
        return set(self._specs)

    def path_ids(self) -> set[int]:
        """Of the same paths, and of those not taken over yet."""
        return {path.path_id for path in (*self._specs.values(), *self._wanted)}

    def sources(self) -> set[PortSource]:
        """Sockets that paths use."""
        return {path.source for path in (*self._specs.values(), *self._wanted)}

    def state(self) -> tuple[str, list[str]]:
        """One word, and what keeps paths from being probed or packets from being recorded."""
        faults = [f"refused: {reason}" for reason in self._refused + self._left_out] + self.not_recorded()
        return ("degraded" if faults else "ok"), faults
