"""When each path's next packet is due: periodic with a phase (RFC 3432), spread over the interval. Pure.

A packet whose turn has wholly passed when we come to it is not sent any more: it is skipped, so that a process that was
held up does not answer with a burst.
"""

from heapq import heapify, heappush, heapreplace
from typing import NamedTuple

TICK_NS = 10_000_000
MAX_SENDS_PER_TICK = 64  # more at a time and the replies overflow the socket before they are read
IDLE_NS = 500_000_000  # a changed list of targets is seen at the latest after this
MIN_INTERVAL_NS = 2 * TICK_NS  # shorter turns would pass between two ticks

_SLOT_BITS = 16
_SLOT_MASK = (1 << _SLOT_BITS) - 1
_GOLDEN = 0.6180339887498949  # successive phases n * golden mod 1 lie as evenly as can be, for any number of paths


class Turn(NamedTuple):
    """One path's turn: send now, after ``skipped`` turns, ``interval_ns`` apart, the first at ``first_skipped_ns``."""

    slot: int
    skipped: int
    first_skipped_ns: int
    interval_ns: int


class Pacer:
    """Due times of all slots in one heap of integers (time << 16 | slot)."""

    def __init__(self, phase: float = 0.0) -> None:
        """``phase`` 0–1: where this process begins, so that agents started together do not send together."""
        self._heap: list[int] = []
        self._intervals: dict[int, int] = {}
        self._fresh: list[int] = []
        self._phase = phase
        self._added = 0

    def add(self, slot: int, interval_ns: int) -> None:
        """From the next ``take`` on, at its phase of the interval."""
        assert interval_ns >= MIN_INTERVAL_NS
        self._intervals[slot] = interval_ns
        self._fresh.append(slot)

    def remove(self, slots: set[int]) -> None:
        """No more turns for these."""
        for slot in slots:
            self._intervals.pop(slot, None)
        self._heap = [item for item in self._heap if item & _SLOT_MASK not in slots]
        heapify(self._heap)
        self._fresh = [slot for slot in self._fresh if slot not in slots]

    def take(self, now_ns: int) -> list[Turn]:
        """The turns that are due, at most MAX_SENDS_PER_TICK; the others stay due."""
        for slot in self._fresh:
            interval = self._intervals[slot]
            phase = (self._phase + self._added * _GOLDEN) % 1.0
            self._added += 1
            heappush(self._heap, (now_ns + int(phase * interval)) << _SLOT_BITS | slot)
        self._fresh.clear()
        heap = self._heap
        turns: list[Turn] = []
        limit = now_ns + 1 << _SLOT_BITS
        while heap and heap[0] < limit and len(turns) < MAX_SENDS_PER_TICK:
            item = heap[0]
            slot, due = item & _SLOT_MASK, item >> _SLOT_BITS
            interval = self._intervals[slot]
            skipped = (now_ns - due) // interval
            heapreplace(heap, item + ((skipped + 1) * interval << _SLOT_BITS))
            turns.append(Turn(slot, skipped, due, interval))
        return turns

    def earliest_ns(self) -> int | None:
        """When the next turn is due, which may have passed; None when there is none."""
        return self._heap[0] >> _SLOT_BITS if self._heap else None

    def next_wake_ns(self, now_ns: int) -> int:
        """When to call ``take`` again: the first tick at which something is due, and never long idle."""
        if not self._heap:
            return now_ns + (TICK_NS if self._fresh else IDLE_NS)
        due = self._heap[0] >> _SLOT_BITS
        on_tick = -(-due // TICK_NS) * TICK_NS
        return min(max(on_tick, now_ns + TICK_NS if due <= now_ns else now_ns + 1), now_ns + IDLE_NS)
