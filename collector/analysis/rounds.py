"""Round-trip windows being filled: which are open, which rows have closed, what must be read again after a restart."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from collector.analysis.paths import Indexes, PathIndex
from collector.analysis.window import SECOND, WINDOW_NS, Window
from collector.model import RoundTripSamples, StoredWindow

AHEAD_NS = 60 * SECOND  # no agent's clock is believed further than this beyond the collector's
MAX_OPEN = 64  # windows of one agent; ten minutes
MAX_ROWS = 500_000  # windows times paths, some 600 bytes each
MARK_BACK_NS = 3600 * SECOND  # the oldest packet that a mark can be laid to
Span = tuple[int, int]


def window_start(time_ns: int) -> int:
    """Start of the window that holds a time."""
    return time_ns // WINDOW_NS * WINDOW_NS


def union(first: Span | None, second: Span | None) -> Span | None:
    """The stretch that covers both."""
    if first is None or second is None:
        return first or second
    return min(first[0], second[0]), max(first[1], second[1])


class StoredWindows(Protocol):
    """Rows that were written before."""

    def rows(self, start_ns: int) -> Sequence[StoredWindow]:
        """All rows of one window start."""

    def next_start(self, from_ns: int) -> int | None:
        """First start at or after a time."""

    def newest_start(self) -> int | None:
        """Last start of all."""


class Rounds:
    """Windows in memory. One that has left memory comes back from the store when late samples need it."""

    def __init__(self, paths: PathIndex, stored: StoredWindows) -> None:
        self._paths = paths
        self._stored = stored
        newest = stored.newest_start()
        self._highest = -1 if newest is None else newest
        self._windows: dict[int, Window] = {}
        self._open: dict[str, dict[int, int]] = {}  # agent -> start of each open window -> first position in the log

    def window(self, start_ns: int) -> Window:
        """The window with this start."""
        window = self._windows.get(start_ns)
        if window is None:
            window = self._windows[start_ns] = Window(start_ns)
            window.grow(len(self._paths))
            if start_ns <= self._highest:
                for stored in self._stored.rows(start_ns):
                    index = self._paths.find(stored.row.path_id)
                    if index is not None:
                        window.restore(index, stored)
            self._highest = max(self._highest, start_ns)
        return window

    def find(self, start_ns: int) -> Window | None:
        """The window with this start if there is anything in it, in memory or stored."""
        if start_ns not in self._windows and start_ns > self._highest:
            return None
        return self.window(start_ns)

    def next_start(self, from_ns: int) -> int | None:
        """First start at or after the window of ``from_ns`` that may hold something, in memory or stored."""
        first = window_start(from_ns)
        starts = [start for start in self._windows if start >= first]
        stored = self._stored.next_start(first) if first <= self._highest else None
        return min([*starts, stored] if stored is not None else starts, default=None)

    def add(
        self, samples: RoundTripSamples, closed_through_ns: int, received_time_ns: int, *, again: bool = False
    ) -> Span | None:
        """Adds the samples of one record, all of paths of its sender.

        Args:
            samples: columns of the record.
            closed_through_ns: the agent's windows up to here are rows already.
            received_time_ns: collector's clock.
            again: the record is read a second time after a restart: only what is still open counts.

        Returns:
            The stretch of event time in which rows that had closed were changed.
        """
        agent = samples.source.agent_id
        per_path = self._paths.indexes(np.asarray(samples.path_ids).tolist())
        counts = np.asarray(samples.sample_counts)
        indexes = np.repeat(per_path, counts)
        times = np.asarray(samples.send_times_ns)
        outcomes, delays = np.asarray(samples.outcomes), np.asarray(samples.round_trip_delays_ns)
        starts = times // WINDOW_NS * WINDOW_NS
        late: Span | None = None
        for start in np.unique(starts).tolist():
            closed = start + WINDOW_NS <= closed_through_ns
            if closed and again:
                continue
            here = starts == start
            self.window(start).add(agent, indexes[here], times[here], outcomes[here], delays[here], closed=closed)
            if closed:
                late = union(late, (start, start + WINDOW_NS))
            else:
                self._open.setdefault(agent, {}).setdefault(start, samples.source.position)
        self._mark(samples, per_path, closed_through_ns, received_time_ns, again=again)
        return late

    def _mark(
        self, samples: RoundTripSamples, per_path: Indexes, closed_through_ns: int, received_ns: int, *, again: bool
    ) -> None:
        """Marks name a packet by its sequence. When it was sent follows from the path's samples in the same record, so
        that reading the record again gives the same; without any it counts to the window that is open."""
        if not samples.marks:
            return
        agent = samples.source.agent_id
        firsts = _first_samples(samples, per_path)
        for path_id, sequence, kind, _ in samples.marks:
            index = int(self._paths.indexes([path_id])[0])
            time_ns = closed_through_ns
            if index in firsts:
                first_sequence, first_time_ns = firsts[index]
                back_ns = (first_sequence - sequence) * samples.interval_ns
                time_ns = first_time_ns - max(min(back_ns, MARK_BACK_NS), -MARK_BACK_NS)
            start = window_start(min(time_ns, received_ns + AHEAD_NS))
            closed = start + WINDOW_NS <= closed_through_ns
            if closed and again:
                continue
            self.window(start).mark(index, kind, closed=closed)
            if not closed:
                self._open.setdefault(agent, {}).setdefault(start, samples.source.position)

    def close(self, agent: str, through_ns: int) -> list[tuple[Window, Indexes]]:
        """Closes an agent's windows that end at or before ``through_ns``, oldest first."""
        opened = self._open.get(agent, {})
        closed = []
        for start in sorted(start for start in opened if start + WINDOW_NS <= through_ns):
            del opened[start]
            window = self.window(start)
            closed.append((window, window.close(agent, self._paths.of_agent(agent))))
        return closed

    def open_through(self, agent: str) -> int | None:
        """End of the newest window that an agent has open."""
        opened = self._open.get(agent)
        return max(opened) + WINDOW_NS if opened else None

    def overfull_through(self, agent: str) -> int | None:
        """End of the newest window that is one too many: an agent whose watermark stands still would open ever more."""
        opened = self._open.get(agent, {})
        if len(opened) <= MAX_OPEN:
            return None
        return sorted(opened)[-MAX_OPEN - 1] + WINDOW_NS

    @property
    def overfull(self) -> bool:
        """Whether late data of many hours are held: those that are written can be let go."""
        return len(self._windows) > MAX_OPEN and sum(map(len, self._windows.values())) > MAX_ROWS

    def safe_position(self, position: int) -> int:
        """Reading the log again from behind here fills every open window as it is now."""
        return min((first - 1 for opened in self._open.values() for first in opened.values()), default=position)

    def take_changed(self) -> list[StoredWindow]:
        """Closed rows that are not written yet; they count as written from now on."""
        taken = []
        for window in self._windows.values():
            taken += window.stored(np.flatnonzero(window.changed), self._paths.ids)
            window.changed[:] = False
        return taken

    def forget(self, before_ns: int) -> None:
        """Lets windows go that end before a time, are written, and that no agent has open."""
        still_open = {start for opened in self._open.values() for start in opened}
        for start in [start for start in self._windows if start + WINDOW_NS <= before_ns]:
            if start not in still_open and not self._windows[start].changed.any():
                del self._windows[start]


def _first_samples(samples: RoundTripSamples, per_path: Indexes) -> dict[int, tuple[int, int]]:
    """Path index -> sequence and time of sending of its first sample in the record."""
    counts: NDArray[np.int64] = np.asarray(samples.sample_counts)
    times: NDArray[np.int64] = np.asarray(samples.send_times_ns)
    firsts = np.cumsum(counts) - counts
    sequences = np.asarray(samples.first_sequences).tolist()
    return {
        index: (sequence, int(times[first]))
        for index, sequence, first, count in zip(
            per_path.tolist(), sequences, firsts.tolist(), counts.tolist(), strict=True
        )
        if count
    }
