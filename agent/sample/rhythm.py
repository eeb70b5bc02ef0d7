"""How often counters are read: oftener while a NIC carries a burst, seldomer where reading is slow. Pure.

The detector here only decides the rhythm; what a burst is, the collector says, from the whole series.
"""

from bisect import bisect_left, insort
from collections import deque

SECOND_NS = 1_000_000_000
MEMORY = 600  # rates of one second: ten minutes
LEAST = 30  # before that nothing is usual yet
AGAIN = 10  # seconds between two reckonings of what is usual
LINE_SHARE = 0.2
FLOOR = 50_000_000 / 8  # bytes a second: where the line's speed is not known, nothing below stands out
SPREADS = 6
QUIET_NS = 3 * SECOND_NS  # below half the threshold for so long: closed
LONGEST_NS = 3_600 * SECOND_NS  # what is high for an hour is usual
SLOW_NS = 20_000_000  # of one read
MAX_STRETCH = 16
RECOVERED = 8  # quick reads running, before a slowed source is read oftener again


class Watch:
    """One direction of one NIC: whether its rate is far above the usual."""

    def __init__(self) -> None:
        self._sorted: list[float] = []
        self._rates: deque[float] = deque()
        self._usual: float | None = None
        self._age = 0
        self._opened_ns = 0
        self._high_ns = 0

    @property
    def is_open(self) -> bool:
        """A burst is on, by what was added last."""
        return self._opened_ns != 0

    def add(self, rate: float, speed_bytes: float | None, now_ns: int) -> bool:
        """Takes the rate of the newest read in bytes a second; whether a burst is on."""
        threshold = self.threshold(speed_bytes)
        if threshold is None:
            self._remember(rate)
            return False
        is_open = self.is_open
        if rate > (threshold / 2 if is_open else threshold):
            self._high_ns = now_ns
            self._opened_ns = self._opened_ns or now_ns
        if self._opened_ns and now_ns - self._high_ns < QUIET_NS and now_ns - self._opened_ns < LONGEST_NS:
            return True
        if is_open and now_ns - self._opened_ns >= LONGEST_NS:
            self._sorted.clear()
            self._rates.clear()
            self._usual = None
        self._opened_ns = 0
        self._remember(rate)
        return False

    def threshold(self, speed_bytes: float | None) -> float | None:
        """Bytes a second above which a burst is on; None while neither speed nor habit is known."""
        if self._usual is None and not speed_bytes:
            return None
        return max(self._usual or 0.0, LINE_SHARE * speed_bytes if speed_bytes else FLOOR)

    def _remember(self, rate: float) -> None:
        if len(self._rates) == MEMORY:
            del self._sorted[bisect_left(self._sorted, self._rates.popleft())]
        self._rates.append(rate)
        insort(self._sorted, rate)
        self._age += 1
        if len(self._sorted) >= LEAST and (self._usual is None or self._age >= AGAIN):
            self._age = 0
            middle = self._sorted[len(self._sorted) // 2]
            spread = sorted(abs(one - middle) for one in self._sorted)[len(self._sorted) // 2]
            self._usual = middle + SPREADS * spread


class Patience:
    """When a source that can be slow is read next."""

    def __init__(self) -> None:
        self.stretch = 1  # times the interval
        self._next_ns = 0
        self._quick = 0

    def due(self, now_ns: int) -> bool:
        """Whether it is time."""
        return now_ns >= self._next_ns

    def took(self, elapsed_ns: int, now_ns: int, interval_ns: int) -> None:
        """Takes note of a read that was begun at ``now_ns``: a slow one halves the rate, quick ones bring it back."""
        if elapsed_ns > SLOW_NS:
            self.stretch, self._quick = min(self.stretch * 2, MAX_STRETCH), 0
        else:
            self._quick += 1
            if self._quick >= RECOVERED and self.stretch > 1:
                self.stretch, self._quick = self.stretch // 2, 0
        # A little early is in time: reads lie on a grid of ticks.
        self._next_ns = now_ns + self.stretch * interval_ns - interval_ns // 4
