"""What the link of a NIC has been like over the last day, in a few numbers: speeds it held, errors."""

from collections.abc import Mapping
from typing import Any

from collector.analysis.rules.link_degraded import DOWNS, LINK_ERRORS, OVER_NS, SECOND, Link

DAY_NS = 24 * 3600 * SECOND
HELD_NS = 60 * SECOND
MIN_CELLS = 6  # an hour: before that nobody knows how many errors are usual
MAX_SPEEDS = 8
_CELL_NS = OVER_NS
_OF_LINK = LINK_ERRORS | DOWNS


class LinkHistory:
    """Fed with each window of 10 s as it closes."""

    def __init__(self) -> None:
        self._speeds: list[list[int]] = []  # speed, first and last time it was read; the newest last
        # Counts where there were any, oldest first: by end of the window as far back as is judged, before that by the
        # ten minutes. Their sums go along, so that a window costs the same however many there are.
        self._recent: dict[int, dict[str, int]] = {}
        self._cells: dict[int, dict[str, int]] = {}
        self._recent_sum: dict[str, int] = {}
        self._older_errors = 0
        self._first_ns = 0

    def add(self, end_ns: int, speed_bps: int | None, counts: Mapping[str, int]) -> None:
        """Takes in a window that ended at ``end_ns``, later than those before."""
        self._first_ns = self._first_ns or end_ns
        if speed_bps is not None:
            if self._speeds and self._speeds[-1][0] == speed_bps:
                self._speeds[-1][2] = end_ns
            else:
                self._speeds = [*self._speeds, [speed_bps, end_ns, end_ns]][-MAX_SPEEDS:]
        if self._speeds and self._speeds[0][2] <= end_ns - DAY_NS:
            self._speeds = [speed for speed in self._speeds if speed[2] > end_ns - DAY_NS]
        if not _OF_LINK.isdisjoint(counts):
            self._recent[end_ns] = {name: count for name, count in counts.items() if name in _OF_LINK}
            _add(self._recent_sum, self._recent[end_ns])
        self._let_go(end_ns)

    def _let_go(self, end_ns: int) -> None:
        """What is older than the stretch that is judged goes to its ten minutes, and what is too old goes."""
        while self._recent and (first := next(iter(self._recent))) <= end_ns - OVER_NS:
            counts = self._recent.pop(first)
            _add(self._recent_sum, counts, -1)
            _add(self._cells.setdefault(first // _CELL_NS * _CELL_NS, {}), counts)
            self._older_errors += _errors(counts)
        while self._cells and (first := next(iter(self._cells))) <= end_ns - DAY_NS - OVER_NS:
            self._older_errors -= _errors(self._cells.pop(first))

    def now(self, node: str, nic: str, time_ns: int) -> Link:
        """The link at the end of the newest window."""
        watched_ns = min(time_ns - OVER_NS - self._first_ns, DAY_NS)
        held = [speed for speed, first, last in self._speeds if last - first >= HELD_NS]
        newest = self._speeds[-1] if self._speeds and self._speeds[-1][2] == time_ns else None
        return Link(
            node=node,
            nic=nic,
            time_ns=time_ns,
            speed_bps=newest[0] if newest else None,
            best_bps=max(held, default=None),
            errors={name: count for name, count in self._recent_sum.items() if count},
            usual_per_s=self._older_errors / (watched_ns / SECOND) if watched_ns >= MIN_CELLS * _CELL_NS else None,
        )

    def encode(self) -> list[Any]:
        """For the store."""
        return [self._first_ns, self._speeds, list(self._recent.items()), list(self._cells.items())]

    @staticmethod
    def decode(values: list[Any]) -> "LinkHistory":
        """The same again."""
        found = LinkHistory()
        found._first_ns, found._speeds, recent, cells = values
        found._recent = {time_ns: dict(counts) for time_ns, counts in recent}
        found._cells = {time_ns: dict(counts) for time_ns, counts in cells}
        for counts in found._recent.values():
            _add(found._recent_sum, counts)
        found._older_errors = sum(map(_errors, found._cells.values()))
        return found


def _add(to: dict[str, int], counts: Mapping[str, int], sign: int = 1) -> None:
    for name, count in counts.items():
        to[name] = to.get(name, 0) + sign * count


def _errors(counts: Mapping[str, int]) -> int:
    return sum(count for name, count in counts.items() if name in LINK_ERRORS)
