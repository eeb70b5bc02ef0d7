"""All paths over one stretch of 10 s, in arrays with one row a path."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bandwitness.v1.record_pb2 import (
    PACKET_MARK_DUPLICATE,
    PACKET_OUTCOME_CORRUPT,
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_SEND_FAILED,
    PACKET_OUTCOME_SKIPPED,
    PACKET_OUTCOME_UNREACHABLE,
    PACKET_OUTCOME_UNRESOLVED,
)
from collector.analysis import statistics
from collector.analysis.paths import Indexes
from collector.model import RoundTripWindow, StoredWindow

Ints = NDArray[np.int64]

SECOND = 1_000_000_000
WINDOW_NS = 10 * SECOND
BUCKET_NS = 2 * SECOND
BUCKETS = WINDOW_NS // BUCKET_NS
OUTCOMES = PACKET_OUTCOME_SKIPPED  # 1 … 7; column outcome - 1
_IN_RATIO = (PACKET_OUTCOME_REPLIED, PACKET_OUTCOME_LOST, PACKET_OUTCOME_UNREACHABLE, PACKET_OUTCOME_CORRUPT)
_LOST = (PACKET_OUTCOME_LOST, PACKET_OUTCOME_UNREACHABLE, PACKET_OUTCOME_CORRUPT)
_IN_RATIO_LAST = PACKET_OUTCOME_CORRUPT  # outcomes up to here are inside
IS_SENT = np.isin(np.arange(OUTCOMES + 1), _IN_RATIO)
IS_LOST = np.isin(np.arange(OUTCOMES + 1), _LOST)
_NO_DELAY = np.iinfo(np.int64).max
_CODES = 1024  # above any code of a delay: bucket * BINS + bin


class Window:
    """Counts and delays by time of sending. A row *closes* when its agent's watermark has passed: its quantiles are
    then exact. What still comes for a closed row is added, and its quantiles are read from the histogram."""

    def __init__(self, start_time_ns: int) -> None:
        self.start_time_ns = start_time_ns
        self.outcomes = np.zeros((0, OUTCOMES), np.int64)
        self.duplicates = np.zeros(0, np.int64)
        self.late = np.zeros(0, np.int64)
        self.sent = np.zeros((0, BUCKETS), np.int32)  # by bucket
        self.lost = np.zeros((0, BUCKETS), np.int32)
        self.histogram = np.zeros((0, statistics.BINS), np.uint16)
        self.delay_min = np.zeros(0, np.int64)
        self.delay_max = np.zeros(0, np.int64)
        self.delay_p50 = np.zeros(0, np.int64)
        self.delay_p99 = np.zeros(0, np.int64)
        self.loaded_by: dict[int, bytes] = {}  # path index -> slot id
        self.doubtful: dict[int, str] = {}  # path index -> why its delays are
        self.closed = np.zeros(0, np.bool_)
        self.changed = np.zeros(0, np.bool_)  # closed and not yet written
        self._raw: dict[str, list[tuple[Indexes, Ints]]] = {}
        self._codes: list[NDArray[np.int32]] = []  # path * _CODES + code, one entry a delay

    @property
    def end_time_ns(self) -> int:
        return self.start_time_ns + WINDOW_NS

    def __len__(self) -> int:
        return len(self.closed)

    def grow(self, size: int) -> None:
        """Makes room for path indexes below ``size``."""
        if size <= len(self):
            return
        extra = max(size, len(self) * 2, 16) - len(self)
        for name in ("outcomes", "duplicates", "late", "sent", "lost", "histogram", "delay_max", "closed", "changed"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros((extra, *array.shape[1:]), array.dtype)]))
        self.delay_min = np.concatenate([self.delay_min, np.full(extra, _NO_DELAY, np.int64)])
        for name in ("delay_p50", "delay_p99"):
            setattr(self, name, np.concatenate([getattr(self, name), np.full(extra, -1, np.int64)]))

    def add(
        self,
        agent: str,
        paths: Indexes,
        times_ns: Ints,
        outcomes: NDArray[np.uint8],
        delays_ns: Ints,
        *,
        closed: bool = False,
    ) -> None:
        """Adds samples of one agent, all of this window, one entry a sample; ``closed``: its rows have closed."""
        if not len(paths):
            return
        self.grow(int(paths.max()) + 1)
        np.add.at(self.outcomes, (paths, outcomes.astype(np.intp) - 1), 1)
        buckets = (times_ns - self.start_time_ns) // BUCKET_NS
        sent, lost = IS_SENT[outcomes], IS_LOST[outcomes]
        np.add.at(self.sent, (paths[sent], buckets[sent]), 1)
        np.add.at(self.lost, (paths[lost], buckets[lost]), 1)
        has_delay = delays_ns >= 0
        with_delay, delays = paths[has_delay], delays_ns[has_delay]
        bins = statistics.bins_of(delays)
        np.add.at(self.histogram, (with_delay, bins), 1)
        self._codes.append((with_delay * _CODES + buckets[has_delay] * statistics.BINS + bins).astype(np.int32))
        np.minimum.at(self.delay_min, with_delay, delays)
        np.maximum.at(self.delay_max, with_delay, delays)
        if closed:
            touched = np.unique(paths)
            self._read_quantiles(touched)
            self.closed[touched] = True
            self.changed[touched] = True
        else:
            self._raw.setdefault(agent, []).append((with_delay, delays))

    def mark(self, path: int, kind: int, *, closed: bool) -> None:
        """Counts a duplicate of, or a late reply to, a packet of this window. The packet's outcome stays."""
        self.grow(path + 1)
        (self.duplicates if kind == PACKET_MARK_DUPLICATE else self.late)[path] += 1
        if closed:
            self.closed[path] = True
            self.changed[path] = True

    def close(self, agent: str, paths: Iterable[int]) -> Indexes:
        """Closes the rows of an agent's paths that hold anything; gives back their indexes."""
        known = np.array([path for path in paths if path < len(self)], np.intp)
        open_ = known[~self.closed[known] & self.filled[known]]
        raw = self._raw.pop(agent, [])
        if raw:
            self._measure_quantiles(
                np.concatenate([part[0] for part in raw]), np.concatenate([part[1] for part in raw])
            )
        self.closed[open_] = True
        self.changed[open_] = True
        return open_

    def delays(self) -> tuple[Indexes, Indexes, Indexes]:
        """Path index, bucket and bin of each delay there is."""
        paths, codes = np.divmod(self._all_codes().astype(np.intp), _CODES)
        buckets, bins = np.divmod(codes, statistics.BINS)
        return paths, buckets, bins

    def _all_codes(self) -> NDArray[np.int32]:
        if len(self._codes) > 1:
            self._codes = [np.concatenate(self._codes)]
        return self._codes[0] if self._codes else np.zeros(0, np.int32)

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Rows that hold anything."""
        return (self.outcomes.any(axis=1)) | (self.duplicates > 0) | (self.late > 0)

    def _measure_quantiles(self, paths: Indexes, delays_ns: Ints) -> None:
        """Nearest rank over all delays of each path, sorted together."""
        order = np.lexsort((delays_ns, paths))
        delays = delays_ns[order]
        indexes, firsts, counts = np.unique(paths[order], return_index=True, return_counts=True)
        for name, percent in (("delay_p50", 50), ("delay_p99", 99)):
            ranks = np.maximum(-(-percent * counts // 100), 1)
            getattr(self, name)[indexes] = delays[firsts + ranks - 1]

    def _read_quantiles(self, paths: Indexes) -> None:
        for name, percent in (("delay_p50", 50), ("delay_p99", 99)):
            edges = statistics.histogram_quantiles(self.histogram[paths], percent)
            getattr(self, name)[paths] = np.where(edges < 0, -1, np.minimum(edges, self.delay_max[paths]))

    def rows(self, paths: Indexes, path_ids: Sequence[int]) -> list[RoundTripWindow]:
        """Statistics of some paths; ``path_ids`` are the ids of all."""
        columns = zip(
            paths.tolist(),
            self.outcomes[paths].tolist(),
            self.duplicates[paths].tolist(),
            self.late[paths].tolist(),
            self.histogram[paths].sum(axis=1).tolist(),
            self.delay_min[paths].tolist(),
            self.delay_p50[paths].tolist(),
            self.delay_p99[paths].tolist(),
            self.delay_max[paths].tolist(),
            strict=True,
        )
        return [
            RoundTripWindow(
                path_id=path_ids[path],
                start_time_ns=self.start_time_ns,
                length_ns=WINDOW_NS,
                sent=sum(outcomes[:_IN_RATIO_LAST]),
                replied=outcomes[PACKET_OUTCOME_REPLIED - 1],
                lost=outcomes[PACKET_OUTCOME_LOST - 1],
                unreachable=outcomes[PACKET_OUTCOME_UNREACHABLE - 1],
                corrupt=outcomes[PACKET_OUTCOME_CORRUPT - 1],
                unresolved=outcomes[PACKET_OUTCOME_UNRESOLVED - 1],
                send_failed=outcomes[PACKET_OUTCOME_SEND_FAILED - 1],
                skipped=outcomes[PACKET_OUTCOME_SKIPPED - 1],
                duplicates=duplicates,
                late=late,
                delay_samples=samples,
                delay_min_ns=delay_min if samples else None,
                delay_p50_ns=p50 if samples else None,
                delay_p99_ns=p99 if samples else None,
                delay_max_ns=delay_max if samples else None,
                loaded_by=self.loaded_by.get(path),
                doubtful=self.doubtful.get(path),
            )
            for path, outcomes, duplicates, late, samples, delay_min, p50, p99, delay_max in columns
        ]

    def stored(self, paths: Indexes, path_ids: Sequence[int]) -> list[StoredWindow]:
        """The same with what is needed to judge these paths again later."""
        if not len(paths):
            return []
        buckets = np.concatenate([self.sent[paths], self.lost[paths]], axis=1).astype("<u2")
        keys, counts = np.unique(self._all_codes(), return_counts=True)
        firsts = np.searchsorted(keys, paths * _CODES).tolist()
        lasts = np.searchsorted(keys, (paths + 1) * _CODES).tolist()
        codes = np.stack([keys % _CODES, counts]).astype("<u4")
        return [
            StoredWindow(row, sums.tobytes(), codes[:, first:last].tobytes())
            for row, sums, first, last in zip(self.rows(paths, path_ids), buckets, firsts, lasts, strict=True)
        ]

    def restore(self, path: int, stored: StoredWindow) -> None:
        """Puts back what ``stored`` gave away."""
        self.grow(path + 1)
        row = stored.row
        self.outcomes[path] = (
            row.replied, row.lost, row.unreachable, row.corrupt, row.unresolved, row.send_failed, row.skipped
        )  # fmt: skip
        self.duplicates[path], self.late[path] = row.duplicates, row.late
        buckets = np.frombuffer(stored.buckets, "<u2").reshape(2, BUCKETS)
        self.sent[path], self.lost[path] = buckets
        codes, counts = np.frombuffer(stored.histogram, "<u4").reshape(2, -1).astype(np.int64)
        np.add.at(self.histogram[path], codes % statistics.BINS, counts)
        self._codes.append(np.repeat(path * _CODES + codes, counts).astype(np.int32))
        for name in ("delay_min", "delay_max", "delay_p50", "delay_p99"):
            value = getattr(row, f"{name}_ns")
            if value is not None:
                getattr(self, name)[path] = value
        if row.loaded_by is not None:
            self.loaded_by[path] = row.loaded_by
        if row.doubtful is not None:
            self.doubtful[path] = row.doubtful
        self.closed[path] = True
