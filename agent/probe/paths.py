"""The paths that one prober keeps: from targets and names to slots, turns and batches. No sockets.

Shared by the probers of all round-trip protocols. A change of targets or of a name's addresses is taken over at the
next tick; paths that stay go on with their sequence, those that come back go on where they were.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from agent.clock import Anchor
from agent.probe.matching import HOLD_NS, RoundTripTable
from agent.probe.pacing import Pacer
from agent.probe.resolve import MAX_NAMES, Resolver
from agent.probe.targets import PathSpec, TargetRefusedError, destination, name_to_resolve, path_of, source_version
from agent.result import RoundTripBatch
from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import PACKET_OUTCOME_SKIPPED, PACKET_OUTCOME_UNRESOLVED

MAX_PATHS = 5_000
MAX_RATE = 6_000  # packets a second, of all paths together
RATE_SLACK = 1 + 1e-9  # rates are sums of fractions
MAX_REMEMBERED = 20_000  # sequence numbers of paths that are gone

_SECOND_NS = 1_000_000_000
Method = tuple[int, int]  # RoundTripMethod, StampSource
_Key = tuple[int, int, int, Method]  # path id, interval, waiting time, method


class PathBook:
    """Slots, their paths, and what is due. ``table`` is where the prober writes what happens to packets."""

    def __init__(
        self,
        resolver: Resolver,
        method_of: Callable[[PathSpec], Method | None],
        *,
        phase: float = 0.0,
        user_stamps: bool = False,
        tcp_fallback: bool = False,
    ) -> None:
        """``method_of``: how a path is probed on this host; None: not at all, the path gets no samples."""
        self.table = RoundTripTable(user_stamps=user_stamps)
        self.specs: list[PathSpec | None] = []
        self.turns_not_recorded = 0
        self.max_rate: float = MAX_RATE  # from the next ``configure`` on
        self._resolver = resolver
        self._method_of = method_of
        self._tcp_fallback = tcp_fallback
        self._pacer = Pacer(phase)
        self._targets: list[tuple[RoundTripTarget, str | None, PathSpec]] = []  # name: None for an address
        self._refused: list[str] = []
        self._left_out: list[str] = []
        self._dirty = False
        self._slots: dict[_Key, int] = {}
        self._sequences: dict[int, int] = {}
        self._definitions: dict[int, bytes] = {}
        self._leaving: set[int] = set()

    @property
    def definitions(self) -> Mapping[int, bytes]:
        """Serialised Path by id, of all paths that the last drain could mention."""
        return self._definitions

    def configure(self, targets: Sequence[RoundTripTarget]) -> None:
        """These targets and no others, from the next tick on."""
        self._targets, self._refused = [], []
        for target in targets:
            try:
                name = name_to_resolve(target)
                address = destination(target) if name is None else ""
                spec = path_of(target, address, tcp_fallback=self._tcp_fallback)
            except TargetRefusedError as error:
                self._refused.append(str(error))
                continue
            self._targets.append((target, name, spec))
        beyond = self._resolver.watch(name for _, name, _ in self._targets if name is not None)
        if beyond:
            self._refused.append(f"{len(beyond)} names over the limit of {MAX_NAMES}")
        self._dirty = True

    def due(self, now: Anchor) -> list[int]:
        """Slots whose packet is to be sent now. Records on the way what is skipped or has no address."""
        if self._resolver.take_changed() or self._dirty:
            self._rebuild()
        slots: list[int] = []
        for slot, skipped, first_ns, interval_ns in self._pacer.take(now.monotonic_ns):
            spec = self.specs[slot]
            assert spec is not None
            if skipped:
                self._skip(slot, skipped, first_ns, interval_ns, now)
            if not self.table.room(slot):
                self.turns_not_recorded += 1
            elif spec.address:
                slots.append(slot)
            else:
                self.table.add(slot, now.monotonic_ns, now.wall_ns, PACKET_OUTCOME_UNRESOLVED)
        return slots

    def next_wake_ns(self, now_ns: int) -> int:
        """When ``due`` is to be called again."""
        return self._pacer.next_wake_ns(now_ns)

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        """What is resolved. Definitions of paths that ended go with the drain after their last."""
        for path_id in self._leaving:
            self._definitions.pop(path_id, None)
        batches = self.table.drain(monotonic_ns)
        self._leaving = self.table.ended - {key[0] for key in self._slots} if self.table.ended else set()
        return batches

    @property
    def ending(self) -> bool:
        """Whether a change is still under way: targets not taken over, or paths that end not wholly handed out."""
        return self._dirty or sum(1 for _ in self.open_specs()) > len(self._slots)

    def open_specs(self) -> Iterator[PathSpec]:
        """All paths that go on or have packets to hand out."""
        for slot, spec in enumerate(self.specs):
            if spec is not None and self.table.active(slot):
                yield spec

    def oldest_unresolved_ns(self, now: Anchor) -> int | None:
        """Smallest wall clock time of a packet that a later drain may give; None when there is none.

        That is the send time of the oldest one in the table, or an overdue turn, which ``due`` may yet record as
        skipped. A prober that has stopped has overdue turns for ever: older than HOLD_NS they count for nothing.
        """
        oldest = self.table.oldest_unresolved_wall_ns()
        turn = self._pacer.earliest_ns()
        if turn is None or turn > now.monotonic_ns:
            return oldest
        overdue = now.wall_ns - min(now.monotonic_ns - turn, HOLD_NS)
        return overdue if oldest is None else min(oldest, overdue)

    def state(self) -> tuple[str, list[str]]:
        """One word, and what keeps targets from being probed or packets from being recorded."""
        unresolved = [f"name {name}: {fault}" for name, fault in self._resolver.faults().items()]
        faults = [f"refused: {reason}" for reason in self._refused + self._left_out] + unresolved
        if self.turns_not_recorded:
            faults.append(f"{self.turns_not_recorded} turns not recorded: nothing was drained in time")
        if self.table.marks_dropped:
            faults.append(f"{self.table.marks_dropped} duplicates and late replies not recorded: too many at a time")
        return ("dns_failed" if unresolved else "degraded" if faults else "ok"), faults

    def _skip(self, slot: int, count: int, first_ns: int, interval_ns: int, now: Anchor) -> None:
        recorded = max(0, min(count, self.table.room(slot) - 1))
        self.turns_not_recorded += count - recorded
        offset = now.wall_ns - now.monotonic_ns
        for turn in range(count - recorded, count):
            at_ns = first_ns + turn * interval_ns
            self.table.add(slot, at_ns, at_ns + offset, PACKET_OUTCOME_SKIPPED)

    def _wanted(self) -> dict[int, PathSpec]:
        """Path id -> path, of all targets, each address of a name, and names without one."""
        wanted: dict[int, PathSpec] = {}
        for target, name, spec in self._targets:
            if name is None:
                wanted.setdefault(spec.path_id, spec)
                continue
            answer = self._resolver.answer(name)
            version = source_version(target.source.address)
            fitting = [found for found in answer.addresses if version in (0, 6 if ":" in found else 4)]
            for address in fitting:
                try:
                    path = path_of(target, address, tcp_fallback=self._tcp_fallback)
                except TargetRefusedError as error:
                    self._left_out.append(f"{name}: {error}")
                    continue
                wanted.setdefault(path.path_id, path)
            if answer.addresses and not fitting:
                self._left_out.append(f"{name}: no IPv{version} address, as {target.source.address} would need")
            if answer.fault or (answer.addresses and not fitting):
                wanted.setdefault(spec.path_id, spec)
        return wanted

    def _rebuild(self) -> None:
        self._dirty = False
        self._left_out = []
        wanted: dict[_Key, PathSpec] = {}
        rate = 0.0
        over = 0
        for spec in self._wanted().values():
            method = self._method_of(spec)
            if method is None:
                continue
            rate += _SECOND_NS / spec.interval_ns
            if len(wanted) >= MAX_PATHS or rate > self.max_rate * RATE_SLACK:
                over += 1
                continue
            wanted[spec.path_id, spec.interval_ns, spec.waiting_ns, method] = spec
        if over:
            self._left_out.append(
                f"{over} paths over the limit of {MAX_PATHS} paths and {self.max_rate:g} packets a second"
            )
        gone = {key: slot for key, slot in self._slots.items() if key not in wanted}
        before = {key[0]: slot for key, slot in gone.items()}
        if gone:
            self._pacer.remove(set(gone.values()))
        for key, slot in gone.items():
            del self._slots[key]
            self._sequences[key[0]] = self.table.retire(slot)
        while len(self._sequences) > MAX_REMEMBERED:
            del self._sequences[next(iter(self._sequences))]
        for key, spec in wanted.items():
            if key not in self._slots:
                self._open(key, spec, before.get(key[0]))

    def _open(self, key: _Key, spec: PathSpec, follows: int | None) -> None:
        path_id, interval_ns, waiting_ns, (method, stamp_source) = key
        slot = self.table.open(
            path_id,
            method=method,
            stamp_source=stamp_source,
            interval_ns=interval_ns,
            waiting_ns=waiting_ns,
            first_sequence=self._sequences.pop(path_id, 0),
            follows=follows,
        )
        if slot is None:
            self._left_out.append(f"{spec.address or spec.name}: no memory for so many packets at a time")
            return
        if slot == len(self.specs):
            self.specs.append(None)
        self.specs[slot] = spec
        self._slots[key] = slot
        self._definitions[path_id] = spec.definition
        self._leaving.discard(path_id)
        self._pacer.add(slot, interval_ns)
