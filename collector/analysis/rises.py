"""How far a source's counters rose between two reads, by names of the vocabulary; octets apart (``octets``). Pure."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandwitness.counters import Meaning
from bandwitness.v1.record_pb2 import COUNTER_SOURCE_ETHTOOL
from collector.analysis.deltas import MAX_STEP, Doubt, difference
from collector.analysis.octets import RECEIVE, TRANSMIT, meaning_of

PAUSES = {"receive_pause_us": RECEIVE, "transmit_pause_us": TRANSMIT}
# Nothing that has columns of its own.
_NOT_COUNTED = frozenset({"rx_bytes", "tx_bytes", "wire_receive_bytes", "wire_transmit_bytes"})


class Counter(NamedTuple):
    """One that is counted."""

    place: int  # in the record
    name: str  # in the record
    meaning: Meaning
    plain: bool  # its difference needs no second thought
    pause: str  # under which a window keeps it, if it is the duration of pauses: those count while they stand, too


# Of one counter since the read at which it last changed: how far in the unit of its meaning, and in how many ns.
Rise = tuple[Counter, int, int]


@lru_cache(maxsize=256)
def counted(source: int, driver: str, names: tuple[str, ...], has_port: bool) -> tuple[Counter, ...]:
    """Which counters of a record are counted.

    A driver counts the octets of RDMA too; where there is a port of RDMA (``has_port``), that is who counts them.
    """
    left_out = set(_NOT_COUNTED)
    if has_port and source == COUNTER_SOURCE_ETHTOOL:
        left_out |= {"rdma_receive_bytes", "rdma_transmit_bytes"}
    found: dict[str, Counter] = {}
    for place, name in enumerate(names):
        meaning = meaning_of(source, driver, name)
        if meaning is not None and not meaning.gauge and meaning.name not in left_out and name not in found:
            plain = meaning.bits == 64 and meaning.scale == 1 and not meaning.saturates
            pause = f"{meaning.name}/{name}" if meaning.name in PAUSES else ""
            found[name] = Counter(place, name, meaning, plain, pause)
    return tuple(found.values())


class Source:
    """One source of a NIC's counters, such as its driver's statistics or one RDMA port."""

    def __init__(self, time_ns: int = 0, last: Mapping[str, tuple[int, int]] | None = None) -> None:
        self.time_ns = time_ns
        self.announced = False  # its errors are among the totals, be they 0
        self._counters: tuple[Counter, ...] = ()
        self._times: list[int] = []  # when each of them last changed, and
        self._values: list[int | None] = []  # to what; None: not seen yet
        self._others = dict(last or {})  # the same of those that the newest record does not name

    @property
    def last(self) -> dict[str, tuple[int, int]]:
        """Time and value of each counter when it last changed."""
        seen = zip(self._counters, self._times, self._values, strict=True)
        return self._others | {counter.name: (time_ns, value) for counter, time_ns, value in seen if value is not None}

    def begin(
        self, counters: tuple[Counter, ...], times: Sequence[int], values: NDArray[Any], present: NDArray[Any]
    ) -> None:
        """Before the reads of a record are taken in; of a counter never seen, what came within the record counts."""
        if counters is not self._counters:
            self._others = self.last
            self._counters = counters
            kept = [self._others.pop(counter.name, (0, None)) for counter in counters]
            self._times, self._values = [time_ns for time_ns, _ in kept], [value for _, value in kept]
        if None not in self._values:
            return
        for slot, counter in enumerate(counters):
            if self._values[slot] is None and present[counter.place].any():
                first = int(np.argmax(present[counter.place]))
                self._times[slot], self._values[slot] = times[first], int(values[counter.place, first])

    def rises(self, time_ns: int, values: Sequence[int | None], earlier: Mapping[int, int]) -> list[Rise]:
        """Takes in a read.

        Args:
            time_ns: of the read.
            values: by place in the record; None: absent.
            earlier: place -> time, of values that are of a read before.
        """
        found: list[Rise] = []
        for slot, (counter, before) in enumerate(zip(self._counters, self._values, strict=True)):
            place, _, meaning, plain, pause = counter
            value = values[place]
            if (value == before and not pause) or value is None or before is None:
                continue
            at_ns = earlier.get(place, time_ns) if earlier else time_ns
            span_ns = at_ns - self._times[slot]
            self._times[slot], self._values[slot] = at_ns, value
            delta = value - before
            if not plain or span_ns <= 0 or not 0 <= delta < MAX_STEP:
                told = difference(before, value, meaning, span_ns)
                if isinstance(told, Doubt):
                    continue
                delta = told * meaning.scale
            found.append((counter, delta, span_ns))
        return found

    def encode(self) -> list[Any]:
        """As JSON knows it."""
        return [self.time_ns, self.last]

    @staticmethod
    def decode(state: Sequence[Any]) -> "Source":
        """The source again; totals begin anew with the process, and so they are announced anew."""
        return Source(state[0], {name: (time_ns, value) for name, (time_ns, value) in state[1].items()})
