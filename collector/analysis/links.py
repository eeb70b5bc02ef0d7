"""What the link of a NIC has been like over the last day, in a few numbers: speeds it held, errors."""

from collections.abc import Mapping
from typing import Any

from collector.analysis.rules.link_degraded import DOWNS, LINK_ERRORS, OVER_NS, SECOND, Link

DAY_NS = 24 * 3600 * SECOND
HELD_NS = 60 * SECOND
MIN_CELLS = 6  # an hour: before that nobody knows how many errors are usual
MAX_SPEEDS = 8
_CELL_NS = OVER_NS


class LinkHistory:
    """Fed with each window of 10 s as it closes."""

    def __init__(self) -> None:
        self._speeds: list[list[int]] = []  # speed, first and last time it was read; the newest last
        self._errors: dict[int, dict[str, int]] = {}  # end of the window -> counts, where there were any
        self._first_ns = 0

    def add(self, end_ns: int, speed_bps: int | None, counts: Mapping[str, int]) -> None:
        """Takes in a window that ended at ``end_ns``."""
        self._first_ns = self._first_ns or end_ns
        if speed_bps is not None:
            if self._speeds and self._speeds[-1][0] == speed_bps:
                self._speeds[-1][2] = end_ns
            else:
                self._speeds = [*self._speeds, [speed_bps, end_ns, end_ns]][-MAX_SPEEDS:]
        bad = {name: count for name, count in counts.items() if name in LINK_ERRORS or name in DOWNS}
        if bad:
            self._errors[end_ns] = bad
        self._speeds = [speed for speed in self._speeds if speed[2] > end_ns - DAY_NS]
        for old in [time_ns for time_ns in self._errors if time_ns <= end_ns - DAY_NS - OVER_NS]:
            del self._errors[old]
        self._fold(end_ns)

    def _fold(self, end_ns: int) -> None:
        """What is older than the stretch that is judged is kept by ten minutes."""
        for time_ns in [time_ns for time_ns in self._errors if time_ns <= end_ns - OVER_NS and time_ns % _CELL_NS]:
            cell = self._errors.setdefault(time_ns // _CELL_NS * _CELL_NS, {})
            for name, count in self._errors.pop(time_ns).items():
                cell[name] = cell.get(name, 0) + count

    def now(self, node: str, nic: str, time_ns: int) -> Link:
        """The link at the end of the newest window."""
        recent: dict[str, int] = {}
        older = 0
        for at_ns, counts in self._errors.items():
            for name, count in counts.items():
                if at_ns > time_ns - OVER_NS:
                    recent[name] = recent.get(name, 0) + count
                elif name in LINK_ERRORS:
                    older += count
        watched_ns = min(time_ns - OVER_NS - self._first_ns, DAY_NS)
        held = [speed for speed, first, last in self._speeds if last - first >= HELD_NS]
        newest = self._speeds[-1] if self._speeds and self._speeds[-1][2] == time_ns else None
        return Link(
            node=node,
            nic=nic,
            time_ns=time_ns,
            speed_bps=newest[0] if newest else None,
            best_bps=max(held, default=None),
            errors=recent,
            usual_per_s=older / (watched_ns / SECOND) if watched_ns >= MIN_CELLS * _CELL_NS else None,
        )

    def encode(self) -> list[Any]:
        """For the store."""
        return [self._first_ns, self._speeds, list(self._errors.items())]

    @staticmethod
    def decode(values: list[Any]) -> "LinkHistory":
        """The same again."""
        found = LinkHistory()
        found._first_ns, found._speeds = values[0], values[1]
        found._errors = {time_ns: dict(counts) for time_ns, counts in values[2]}
        return found
