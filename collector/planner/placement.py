"""Puts the rounds of one window at their times. Pure.

All pairs get their first test, then all their second, and so on, each time in another order. The rounds are spread
evenly over the whole window, each at a random slot of its share, and each test begins at a random moment of its slot.
Randomness comes from a hash of the seed and of what the test is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from collector.config import Throughput
from collector.planner import PlanError
from collector.planner.calendar import Calendar
from collector.planner.endpoints import Pair, PlacedEndpoint
from collector.windows import OFFPEAK, OTHER, PEAK, SECOND, Occurrence, SiteWindows

MS = SECOND // 1000
KIND_NAMES = {PEAK: "peak", OFFPEAK: "off-peak", OTHER: "rest"}


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """One test: which pair, for which window, and when the client begins."""

    pair: Pair
    kind: int  # WindowKind
    day: str
    ordinal: int  # 0 … planned - 1, among the tests of this pair, window and day
    planned: int
    start_ns: int
    port: int


@dataclass(frozen=True, slots=True)
class WindowClass:
    """Pairs with common windows: those between two sites (or inside one), the one that is first by name first."""

    first: SiteWindows
    second: SiteWindows

    @property
    def key(self) -> tuple[object, ...]:
        return tuple((site.time_zone, site.peak, site.offpeak) for site in (self.first, self.second))

    @property
    def sites(self) -> str:
        return " and ".join(sorted({self.first.site, self.second.site}))


@dataclass(frozen=True, slots=True)
class DayWindow:
    """All spans of one kind on one day of one class.

    The rest of a day meets the windows and the rest of every other class, all day long. So that it can be placed
    without knowing theirs, classes take turns (``turn`` of ``turns``) on slots that are the same for all.
    """

    of: WindowClass
    kind: int
    day: str
    spans: tuple[Occurrence, ...]
    turn: int = 0
    turns: int = 1

    @property
    def length_ns(self) -> int:
        return sum(span.end_ns - span.start_ns for span in self.spans)

    def slots(self, slot_ns: int) -> list[int]:
        """Start of each slot that fits."""
        if self.kind == OTHER:
            return [
                index * slot_ns
                for span in self.spans
                for index in range(-(-span.start_ns // slot_ns), span.end_ns // slot_ns)
                if index % self.turns == self.turn
            ]
        return [
            span.start_ns + index * slot_ns
            for span in self.spans
            for index in range((span.end_ns - span.start_ns) // slot_ns)
        ]


class Placement:
    """Places windows, one after the other. With a calendar they find room beside each other and are entered into it;
    without one they must not overlap or share tokens."""

    def __init__(self, throughput: Throughput, seed: int, calendar: Calendar | None) -> None:
        self._throughput = throughput
        self._seed = seed
        self._calendar = calendar

    def place(self, window: DayWindow, planned: int, together: Sequence[Sequence[Pair]]) -> list[PlannedTest]:
        """The tests of ``window`` in order of start: ``planned`` of each pair in ``together``, the rounds of its class
        and day.

        Raises:
            PlanError: no room beside the windows placed before.
        """
        starts = sorted(self._starts(window, planned, together), key=_order)
        last: dict[PlacedEndpoint, int] = {}
        found = []
        for start_ns, ordinal, pair in starts:
            turn = last[pair.server] = self._turn(start_ns, last.get(pair.server))
            port = self._throughput.first_port + turn * self._throughput.ports_each
            found.append(PlannedTest(pair, window.kind, window.day, ordinal, planned, start_ns, port))
        return found

    def _turn(self, start_ns: int, before: int | None) -> int:
        """Which part of the range of ports. A server's ports turn with time, in steps of what one test holds: tests of
        one server are at least that far apart, so the next ones have others, and one comes again only after nearly a
        whole turn. By time and not by count, so that it is the same however the plan came about."""
        turns = self._throughput.ports // self._throughput.ports_each
        turn = (start_ns - self._throughput.margin) // self._throughput.hold_ns % turns
        # Tests far apart may meet in the same step of another turn.
        return (turn + 1) % turns if turn == before else turn

    def _starts(
        self, window: DayWindow, planned: int, together: Sequence[Sequence[Pair]]
    ) -> Iterator[tuple[int, int, Pair]]:
        slots = window.slots(self._throughput.slot_ns)
        used: set[int] = set()
        order: list[int] = []
        total = planned * len(together)
        for number in range(total):
            ordinal, position = divmod(number, len(together))
            if position == 0:
                ranks = [self._random("order", window.day, ordinal, index) for index in range(len(together))]
                order = sorted(range(len(together)), key=ranks.__getitem__)
            pairs = together[order[position]]
            share = range(number * len(slots) // total, (number + 1) * len(slots) // total)
            slot = share[self._random("slot", window.kind, window.day, number) % len(share)]
            if self._calendar is not None:
                free = self._free_slot(self._calendar, window, pairs, slots, near=slot, used=used)
                if free is None:
                    continue
                used.add(slot := free)
            for pair in pairs:
                start_ns = slots[slot] + self._throughput.margin + self._offset_ns(window, pair, ordinal)
                if self._calendar is not None:
                    self._calendar.enter(pair.tokens, start_ns - self._throughput.margin)
                yield start_ns, ordinal, pair

    def _offset_ns(self, window: DayWindow, pair: Pair, ordinal: int) -> int:
        """Where in its slot a test begins. The same in peak and off-peak: tests that run together overlap as much."""
        room_ms = (self._throughput.slot_ns - self._throughput.hold_ns) // MS
        name = (pair.source.address, pair.destination.address, pair.source.lane)
        return self._random("offset", window.day, ordinal, *name) % (room_ms + 1) * MS

    def _free_slot(
        self,
        calendar: Calendar,
        window: DayWindow,
        pairs: Sequence[Pair],
        slots: Sequence[int],
        *,
        near: int,
        used: set[int],
    ) -> int | None:
        """The free slot that is nearest. None only in the rest of a day, which is no reason to refuse a fleet.

        Raises:
            PlanError: there is none.
        """
        tokens = [token for pair in pairs for token in pair.tokens]
        for distance in range(len(slots)):
            for slot in dict.fromkeys((near - distance, near + distance)):
                if slot in used or not 0 <= slot < len(slots):
                    continue
                if calendar.is_free(tokens, slots[slot], slots[slot] + self._throughput.slot_ns):
                    return slot
        if window.kind == OTHER:
            return None
        problem = (
            f"the throughput tests of {window.of.sites} find no room in the {KIND_NAMES[window.kind]} window of "
            f"{window.day} beside those of other sites: {len(slots)} slots, {len(used)} used by its own; make the "
            "windows of the sites equal or longer, or planned, duration, omit or margin smaller (measure.throughput)"
        )
        raise PlanError([problem])

    def _random(self, *what: object) -> int:
        return int.from_bytes(sha256(repr((self._seed, *what)).encode()).digest()[:8], "big")


def _order(start: tuple[int, int, Pair]) -> tuple[int, PlacedEndpoint, PlacedEndpoint]:
    return start[0], start[2].source, start[2].destination
