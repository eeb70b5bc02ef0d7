"""One signal of one NIC: when a burst opens, goes on and ends. Pure, in event time.

Opens when two of three samples cross the threshold, and then began where the first of them began. Closes when the
signal has stayed below the closing level for 3 s, and then ended at the last tick before. If it opens again less than
5 s after that end, it is the same burst.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from collector.analysis.octets import Octets

SECOND = 1_000_000_000
CROSSINGS, OF = 2, 3
QUIET_NS = 3 * SECOND
JOIN_NS = 5 * SECOND
FULL_SECOND = 0.95  # ticks are off by milliseconds


class Seen(NamedTuple):
    """A sample as one signal sees it."""

    start_ns: int
    end_ns: int
    crossed: bool
    forward: int  # octets in the direction of the burst
    back: int


@dataclass(slots=True)
class Open:
    """A burst that has not ended. Octets of a pause count once the burst has gone on behind it."""

    start_ns: int
    opened_ns: int
    last_ns: int  # newest tick not below the closing level
    threshold: float  # octets a second, like all that follow
    closing: float
    usual: float
    both_ways: float  # usual of what goes both ways alike
    kind: str
    forward: int = 0
    back: int = 0
    held_forward: int = 0
    held_back: int = 0
    peak: float = 0.0
    first_span_ns: int = 0  # of the samples at its start and at its end: it is known no better
    last_span_ns: int = 0
    closed: bool = False
    second: list[tuple[int, int]] = field(default_factory=list)  # span and octets of the newest second

    def note_second(self, span_ns: int, forward: int) -> None:
        """Keeps the highest rate over a second; of a shorter burst its mean stands for it."""
        self.second.append((span_ns, forward))
        while len(self.second) > 1 and sum(span for span, _ in self.second[1:]) >= FULL_SECOND * SECOND:
            del self.second[0]
        total = sum(span for span, _ in self.second)
        if total >= FULL_SECOND * SECOND:
            self.peak = max(self.peak, sum(octets for _, octets in self.second) / total * SECOND)

    @property
    def duration_ns(self) -> int:
        return self.last_ns - self.start_ns

    @property
    def mean(self) -> float:
        return self.forward / max(self.duration_ns, 1) * SECOND


class Crossed(NamedTuple):
    """What a sample that crossed is measured by."""

    threshold: float
    closing: float
    usual: float
    both_ways: float
    kind: str


class Detector:
    """State of one signal."""

    def __init__(self) -> None:
        self.recent: list[Seen] = []
        self.open: Open | None = None

    @property
    def quiet(self) -> bool:
        """Whether nothing is open or about to open."""
        return self.open is None and (not self.recent or not any(seen.crossed for seen in self.recent))

    def rest(self) -> None:
        """Samples passed that crossed nothing."""
        self.recent.clear()

    def step(self, sample: Octets, value: float, octets: tuple[int, int], crossed: Crossed | None) -> Open | None:
        """Takes in the next sample; gives back a burst that has ended with it.

        Args:
            sample: the sample.
            value: of the signal, octets a second.
            octets: in the direction of the burst, and in the other.
            crossed: the threshold that was crossed; None: it was not.
        """
        self.recent.append(Seen(sample.start_time_ns, sample.end_time_ns, crossed is not None, *octets))
        del self.recent[:-OF]
        if self.open is None:
            if crossed is not None:
                self._open(crossed)
            return None
        return self._go_on(self.open, value)

    def end(self) -> Open | None:
        """Ends what is open, here and now."""
        ended, self.open = self.open, None
        self.recent.clear()
        return ended

    def _open(self, crossed: Crossed) -> None:
        first = next(place for place, seen in enumerate(self.recent) if seen.crossed)
        since = self.recent[first:]
        if sum(seen.crossed for seen in since) < CROSSINGS:
            return
        now = since[-1]
        self.open = Open(since[0].start_ns, now.end_ns, now.end_ns, *crossed)
        for seen in since:
            self.open.forward += seen.forward
            self.open.back += seen.back
            self.open.note_second(seen.end_ns - seen.start_ns, seen.forward)
        self.open.first_span_ns = since[0].end_ns - since[0].start_ns
        self.open.last_span_ns = now.end_ns - now.start_ns

    def _go_on(self, burst: Open, value: float) -> Open | None:
        now = self.recent[-1]
        if now.start_ns - burst.last_ns >= QUIET_NS:
            burst.closed = True
        burst.held_forward += now.forward
        burst.held_back += now.back
        burst.note_second(now.end_ns - now.start_ns, now.forward)
        if not burst.closed and value >= burst.closing:
            self._extend(burst, now)
            return None
        burst.closed |= now.end_ns - burst.last_ns >= QUIET_NS
        if not burst.closed:
            return None
        joining = [
            seen for seen in self.recent if seen.crossed and 0 <= seen.start_ns - burst.last_ns < JOIN_NS
        ]  # what is older belongs to the burst
        if now.crossed and joining and sum(seen.crossed for seen in self.recent if seen >= joining[0]) >= CROSSINGS:
            self._extend(burst, now)
            return None
        if now.end_ns - burst.last_ns < JOIN_NS or any(seen in joining for seen in self.recent[1 - OF :]):
            return None
        self.open = None
        self.recent = [seen for seen in self.recent if seen.start_ns >= burst.last_ns + JOIN_NS]
        return burst

    @staticmethod
    def _extend(burst: Open, now: Seen) -> None:
        burst.forward += burst.held_forward
        burst.back += burst.held_back
        burst.held_forward = burst.held_back = 0
        burst.last_ns = now.end_ns
        burst.last_span_ns = now.end_ns - now.start_ns
        burst.closed = False

    def encode(self) -> list[Any]:
        """For the store."""
        return [[list(seen) for seen in self.recent], None if self.open is None else asdict(self.open)]

    @staticmethod
    def decode(values: list[Any]) -> "Detector":
        """And back."""
        found = Detector()
        found.recent = [Seen(*seen) for seen in values[0]]
        if values[1] is not None:
            found.open = Open(**values[1])
            found.open.second = [(span, octets) for span, octets in values[1]["second"]]
        return found
