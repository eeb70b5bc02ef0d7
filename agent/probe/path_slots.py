"""Paths, each with its slot in the outcome table and its turns. Pure.

What the probers of all round-trip protocols share. Paths that stay go on with their sequence, those that come back go
on where they were, and one under other settings follows on its own packets.
"""

from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from agent.clock import Anchor
from agent.probe.matching import HOLD_NS, RoundTripTable
from agent.probe.pacing import Pacer
from agent.result import RoundTripBatch
from bandwitness.v1.record_pb2 import PACKET_OUTCOME_SKIPPED, PACKET_OUTCOME_UNRESOLVED

MAX_PATHS = 5_000
MAX_RATE = 6_000  # packets a second, of all paths together
RATE_SLACK = 1 + 1e-9  # rates are sums of fractions
MAX_REMEMBERED = 20_000  # sequence numbers of paths that are gone

_SECOND_NS = 1_000_000_000
Method = tuple[int, int]  # RoundTripMethod, StampSource


class Slotted(Protocol):
    """A path under its settings; equal ones are one and the same."""

    @property
    def path_id(self) -> int:
        """Of what its results are about."""

    @property
    def address(self) -> str:
        """Empty: not resolved."""

    @property
    def interval_ns(self) -> int:
        """Between two packets."""

    @property
    def waiting_ns(self) -> int:
        """After this a packet is lost."""

    @property
    def turns(self) -> int:
        """It ends by itself after so many packets; 0: never."""


P = TypeVar("P", bound=Slotted)


class PathSlots(Generic[P]):
    """``table`` is where the prober writes what happens to packets."""

    def __init__(self, *, phase: float = 0.0, user_stamps: bool = False) -> None:
        self.table = RoundTripTable(user_stamps=user_stamps)
        self.turns_not_recorded = 0
        self.max_rate: float = MAX_RATE  # packets a second, of all paths together
        self._pacer = Pacer(phase)
        self._slots: dict[tuple[P, Method], int] = {}  # of those that go on
        self._specs: dict[int, P] = {}  # by slot, also of those that end
        self._turns_left: dict[int, int] = {}  # by slot, of those that end by themselves
        self._sequences: dict[int, int] = {}  # path id -> where it left off

    def take_over(self, wanted: Mapping[P, Method]) -> list[str]:
        """These paths and no others, from now on. Returns what is left out, in words."""
        left_out: list[str] = []
        admitted: dict[tuple[P, Method], None] = {}
        rate, over = 0.0, 0
        for spec, method in wanted.items():
            rate += _SECOND_NS / spec.interval_ns
            if len(admitted) >= MAX_PATHS or rate > self.max_rate * RATE_SLACK:
                over += 1
            else:
                admitted[spec, method] = None
        if over:
            limit = f"the limit of {MAX_PATHS} paths and {self.max_rate:g} packets a second"
            left_out.append(f"{over} paths over {limit}")
        gone = {key: slot for key, slot in self._slots.items() if key not in admitted}
        before = {spec.path_id: slot for (spec, _), slot in gone.items()}
        if gone:
            self._pacer.remove(set(gone.values()))
        for key, slot in gone.items():
            del self._slots[key]
            self._sequences[key[0].path_id] = self.table.retire(slot)
        while len(self._sequences) > MAX_REMEMBERED:
            del self._sequences[next(iter(self._sequences))]
        fresh = [key for key in admitted if key not in self._slots]
        unheld = [spec for spec, method in fresh if not self._open((spec, method), before.get(spec.path_id))]
        return left_out + [f"{spec.address or 'a name'}: no memory for so many packets at a time" for spec in unheld]

    def due(self, now: Anchor) -> Iterator[tuple[int, P]]:
        """Slots and paths whose packet is to be sent now. Records on the way what is skipped or has no address."""
        for slot, passed, first_ns, interval_ns in self._pacer.take(now.monotonic_ns):
            spec, skipped = self._specs[slot], passed
            if spec.turns:
                skipped = min(passed, self._turns_left[slot] - 1)
                self._turns_left[slot] -= skipped + 1
                if not self._turns_left[slot]:
                    self._pacer.remove({slot})
            if skipped:
                self._skip(slot, skipped, first_ns, interval_ns, now)
            if not self.table.room(slot):
                self.turns_not_recorded += 1
            elif spec.address:
                yield slot, spec
            else:
                self.table.add(slot, now.monotonic_ns, now.wall_ns, PACKET_OUTCOME_UNRESOLVED)

    def next_wake_ns(self, now_ns: int) -> int:
        """When ``due`` is to be called again."""
        return self._pacer.next_wake_ns(now_ns)

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        """What is resolved."""
        batches = self.table.drain(monotonic_ns)
        for slot in [slot for slot in self._specs if not self.table.active(slot)]:
            del self._specs[slot], self._turns_left[slot]
        return batches

    def open_specs(self) -> Iterator[P]:
        """All paths that go on or have packets to hand out."""
        yield from self._specs.values()

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

    def not_recorded(self) -> list[str]:
        """What kept packets from being recorded, in words."""
        faults = []
        if self.turns_not_recorded:
            faults.append(f"{self.turns_not_recorded} turns not recorded: nothing was drained in time")
        if self.table.marks_dropped:
            faults.append(f"{self.table.marks_dropped} duplicates and late replies not recorded: too many at a time")
        return faults

    def _skip(self, slot: int, count: int, first_ns: int, interval_ns: int, now: Anchor) -> None:
        recorded = max(0, min(count, self.table.room(slot) - 1))
        self.turns_not_recorded += count - recorded
        offset = now.wall_ns - now.monotonic_ns
        for turn in range(count - recorded, count):
            at_ns = first_ns + turn * interval_ns
            self.table.add(slot, at_ns, at_ns + offset, PACKET_OUTCOME_SKIPPED)

    def _open(self, key: tuple[P, Method], follows: int | None) -> bool:
        spec, (method, stamp_source) = key
        slot = self.table.open(
            spec.path_id,
            method=method,
            stamp_source=stamp_source,
            interval_ns=spec.interval_ns,
            waiting_ns=spec.waiting_ns,
            first_sequence=self._sequences.pop(spec.path_id, 0),
            follows=follows,
        )
        if slot is None:
            return False
        self._slots[key] = slot
        self._specs[slot] = spec
        self._turns_left[slot] = spec.turns
        self._pacer.add(slot, spec.interval_ns)
        return True
