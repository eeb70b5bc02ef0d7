"""What is usual for a NIC: its rates over the last ten minutes, outside bursts. Pure.

Kept minute by minute. What is usual in a minute follows from the ten before it, so it stands still within the minute
and does not depend on how the ticks were portioned into records. At most one rate a second counts, however often the
counters are read.
"""

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collector.analysis.octets import Octets

SECOND = 1_000_000_000
MINUTE_NS = 60 * SECOND
MINUTES = 10
MIN_RATES = 30  # in whole minutes before; with fewer, those of this minute count too, and
LEAST_RATES = 10  # fewer than these say nothing of what is usual
SIGNALS = ("save", "restore", "exchange")
SAVE, RESTORE, EXCHANGE = range(3)


class Level(NamedTuple):
    """Median and median absolute deviation, octets a second."""

    median: float
    mad: float


class Usual:
    """Rates of one NIC."""

    def __init__(self) -> None:
        self._minute = 0
        self._steps: list[Octets] = []  # of that minute, both directions known
        self._blocks: dict[int, NDArray[np.float32]] = {}  # by minute: [direction, rate]
        self._levels: tuple[int, tuple[Level, ...] | None] = (-1, None)

    @property
    def minute(self) -> int:
        """The one being filled."""
        return self._minute

    def add(self, step: Octets) -> None:
        """Adds what passed between two reads, later than those before."""
        self.turn(step.end_time_ns // MINUTE_NS)
        self._steps.append(step)

    def extend(self, steps: Sequence[Octets]) -> None:
        """Adds some that lie in the minute being filled."""
        self._steps += steps

    def turn(self, minute: int) -> None:
        """Goes on to a minute, if it is a later one."""
        if minute <= self._minute:
            return
        if self._steps:
            self._blocks[self._minute] = self._block()
            self._steps = []
        self._minute = minute
        for old in [old for old in self._blocks if old < minute - MINUTES]:
            del self._blocks[old]

    def levels(self, minute: int) -> tuple[Level, ...] | None:
        """What is usual in a minute, by signal: transmitted beyond received, received beyond transmitted, both alike.
        None while too little is known."""
        if self._levels[0] == minute:
            return self._levels[1]
        blocks = [block for at, block in sorted(self._blocks.items()) if minute - MINUTES <= at < minute]
        if sum(block.shape[1] for block in blocks) >= MIN_RATES:
            self._levels = (minute, self._compute(blocks))
            return self._levels[1]
        if self._steps:
            blocks.append(self._block())
        return self._compute(blocks) if sum(block.shape[1] for block in blocks) >= LEAST_RATES else None

    @staticmethod
    def _compute(blocks: Sequence[NDArray[np.float32]]) -> tuple[Level, ...]:
        receive, transmit = np.concatenate(blocks, axis=1).astype(np.float64)
        signals = (np.maximum(transmit - receive, 0), np.maximum(receive - transmit, 0), np.minimum(receive, transmit))
        levels = []
        for values in signals:
            median = float(np.median(values))
            levels.append(Level(median, float(np.median(np.abs(values - median)))))
        return tuple(levels)

    def _block(self) -> NDArray[np.float32]:
        rates: list[float] = []
        second = -1
        for step in self._steps:
            if step.end_time_ns // SECOND != second:
                second = step.end_time_ns // SECOND
                rates += ((step.receive_bytes or 0) / step.span_ns, (step.transmit_bytes or 0) / step.span_ns)
        return np.array(rates, np.float32).reshape(-1, 2).T * np.float32(SECOND)

    def encode(self) -> list[Any]:
        """For the store."""
        blocks = {str(minute): base64.b64encode(block.tobytes()).decode() for minute, block in self._blocks.items()}
        return [self._minute, blocks, encode_steps(self._steps)]

    @staticmethod
    def decode(values: list[Any]) -> "Usual":
        """And back."""
        found = Usual()
        found._minute = values[0]
        for minute, text in values[1].items():
            found._blocks[int(minute)] = np.frombuffer(base64.b64decode(text), np.float32).reshape(2, -1)
        found._steps = [Octets(*step) for step in values[2]]
        return found


def encode_steps(steps: Sequence[Octets]) -> list[list[int | None]]:
    """As JSON knows them."""
    return [[step.end_time_ns, step.span_ns, step.receive_bytes, step.transmit_bytes] for step in steps]
