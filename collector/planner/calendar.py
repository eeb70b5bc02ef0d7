"""Which tokens are held when. Pure."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from collector.planner.endpoints import capacity


class Calendar:
    """Holds of equal length, by token."""

    def __init__(self, hold_ns: int, uplink_tokens: int) -> None:
        self._hold_ns = hold_ns
        self._uplink_tokens = uplink_tokens
        self._starts: dict[str, list[int]] = {}

    def enter(self, tokens: Iterable[str], start_ns: int) -> None:
        """Notes that each of ``tokens`` is held from ``start_ns`` on."""
        for token in tokens:
            insort(self._starts.setdefault(token, []), start_ns)

    def is_free(self, tokens: Iterable[str], start_ns: int, end_ns: int) -> bool:
        """Whether each entry of ``tokens`` (a token may stand there more than once) can be had for all of
        ``[start_ns, end_ns)``. Counts holds that follow each other inside the time as if they were at once."""
        wanted: dict[str, int] = {}
        for token in tokens:
            wanted[token] = wanted.get(token, 0) + 1
        for token, count in wanted.items():
            starts = self._starts.get(token, [])
            held = bisect_left(starts, end_ns) - bisect_right(starts, start_ns - self._hold_ns)
            if held + count > capacity(token, self._uplink_tokens):
                return False
        return True
