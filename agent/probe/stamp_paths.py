"""The paths that a STAMP sender keeps: which are let in, when each is due, and its slot in the outcome table. Pure.

Guards stand here and not in configuration: what breaks one is refused, with the reason, and the others go on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from agent.clock import Anchor
from agent.probe.matching import HOLD_NS, RoundTripTable
from agent.probe.pacing import Pacer
from agent.probe.paths import MAX_PATHS, MAX_RATE, MAX_REMEMBERED, RATE_SLACK
from agent.probe.stamp_admission import PORT
from agent.probe.stamp_packet import BASE_BYTES, MAX_BYTES
from agent.probe.stamp_socket import PortSource
from agent.probe.targets import guarded, read_address
from agent.probe.zones import ZoneError, from_here
from agent.result import RoundTripBatch
from bandwitness.v1.record_pb2 import PACKET_OUTCOME_SKIPPED, PACKET_OUTCOME_UNRESOLVED

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


@dataclass(slots=True)
class StampBook:
    """Slots, their paths, and what is due. ``table`` is where the sender writes what happens to packets."""

    method: tuple[int, int]  # RoundTripMethod, StampSource
    max_rate: float = MAX_RATE  # packets a second, of all paths together
    phase: float = 0.0
    table: RoundTripTable = field(default_factory=RoundTripTable)
    turns_not_recorded: int = 0
    _pacer: Pacer = field(init=False)
    _wanted: dict[StampPath, None] = field(default_factory=dict)
    _faults: list[str] = field(default_factory=list)
    _dirty: bool = False
    _slots: dict[StampPath, int] = field(default_factory=dict)
    _paths: dict[int, StampPath] = field(default_factory=dict)  # by slot, also of those that end
    _turns_left: dict[int, int] = field(default_factory=dict)  # by slot, of those that end by themselves
    _sequences: dict[int, int] = field(default_factory=dict)  # path id -> where it left off

    def __post_init__(self) -> None:
        self._pacer = Pacer(self.phase)

    def configure(self, paths: Sequence[StampPath]) -> None:
        """These paths and no others, from the next ``due`` on."""
        self._faults, self._wanted, self._dirty = [], {}, True
        most = self.max_rate * RATE_SLACK
        rate = 0.0
        over = 0
        known: set[int] = set()
        for path in paths:
            reason = refusal(path) or (f"path {path.path_id} is there twice" if path.path_id in known else "")
            if reason:
                self._faults.append(f"refused: {reason}")
                continue
            known.add(path.path_id)
            rate += _SECOND_NS / path.interval_ns
            if len(self._wanted) >= MAX_PATHS or rate > most:
                over += 1
                continue
            self._wanted[path] = None
        if over:
            self._faults.append(f"refused: {over} paths over {MAX_PATHS} paths and {self.max_rate:g} packets a second")

    def due(self, now: Anchor) -> Iterator[tuple[int, StampPath]]:
        """Slots and paths whose packet is to be sent now. Records on the way what is skipped or has no address."""
        if self._dirty:
            self._rebuild()
        for slot, passed, first_ns, interval_ns in self._pacer.take(now.monotonic_ns):
            path = self._paths[slot]
            skipped = passed
            if path.turns:
                skipped = min(passed, self._turns_left[slot] - 1)
                self._turns_left[slot] -= skipped + 1
                if not self._turns_left[slot]:
                    self._pacer.remove({slot})
            if skipped:
                self._skip(slot, skipped, first_ns, interval_ns, now)
            if not self.table.room(slot):
                self.turns_not_recorded += 1
            elif path.address:
                yield slot, path
            else:
                self.table.add(slot, now.monotonic_ns, now.wall_ns, PACKET_OUTCOME_UNRESOLVED)

    def next_wake_ns(self, now_ns: int) -> int:
        """When ``due`` is to be called again."""
        return self._pacer.next_wake_ns(now_ns)

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        """What is resolved."""
        batches = self.table.drain(monotonic_ns)
        for slot in [slot for slot in self._paths if not self.table.active(slot)]:
            del self._paths[slot], self._turns_left[slot]
        return batches

    def slots(self) -> set[int]:
        """Of all paths that go on or have packets to hand out."""
        return set(self._paths)

    def path_ids(self) -> set[int]:
        """Of the same paths, and of those not taken over yet."""
        return {path.path_id for path in self._paths.values()} | {path.path_id for path in self._wanted}

    def sources(self) -> set[PortSource]:
        """Sockets that paths use."""
        return {path.source for path in self._paths.values()} | {path.source for path in self._wanted}

    def oldest_unresolved_ns(self, now: Anchor) -> int | None:
        """As ``PathBook.oldest_unresolved_ns``."""
        oldest = self.table.oldest_unresolved_wall_ns()
        turn = self._pacer.earliest_ns()
        if turn is None or turn > now.monotonic_ns:
            return oldest
        overdue = now.wall_ns - min(now.monotonic_ns - turn, HOLD_NS)
        return overdue if oldest is None else min(oldest, overdue)

    def state(self) -> tuple[str, list[str]]:
        """One word, and what keeps paths from being probed or packets from being recorded."""
        faults = list(self._faults)
        if self.turns_not_recorded:
            faults.append(f"{self.turns_not_recorded} turns not recorded: nothing was drained in time")
        if self.table.marks_dropped:
            faults.append(f"{self.table.marks_dropped} duplicates and late replies not recorded: too many at a time")
        return ("degraded" if faults else "ok"), faults

    def _skip(self, slot: int, count: int, first_ns: int, interval_ns: int, now: Anchor) -> None:
        recorded = max(0, min(count, self.table.room(slot) - 1))
        self.turns_not_recorded += count - recorded
        offset = now.wall_ns - now.monotonic_ns
        for turn in range(count - recorded, count):
            at_ns = first_ns + turn * interval_ns
            self.table.add(slot, at_ns, at_ns + offset, PACKET_OUTCOME_SKIPPED)

    def _rebuild(self) -> None:
        self._dirty = False
        gone = {path: slot for path, slot in self._slots.items() if path not in self._wanted}
        before = {path.path_id: slot for path, slot in gone.items()}
        if gone:
            self._pacer.remove(set(gone.values()))
        for path, slot in gone.items():
            del self._slots[path]
            self._sequences[path.path_id] = self.table.retire(slot)
        while len(self._sequences) > MAX_REMEMBERED:
            del self._sequences[next(iter(self._sequences))]
        for path in self._wanted:
            if path not in self._slots:
                self._open(path, before.get(path.path_id))

    def _open(self, path: StampPath, follows: int | None) -> None:
        method, stamp_source = self.method
        slot = self.table.open(
            path.path_id,
            method=method,
            stamp_source=stamp_source,
            interval_ns=path.interval_ns,
            waiting_ns=path.waiting_ns,
            first_sequence=self._sequences.pop(path.path_id, 0),
            follows=follows,
        )
        if slot is None:
            self._faults.append(f"{path.address}: no memory for so many packets at a time")
            return
        self._slots[path] = slot
        self._paths[slot] = path
        self._turns_left[slot] = path.turns
        self._pacer.add(slot, path.interval_ns)
