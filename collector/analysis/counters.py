"""NIC counters: totals and rates per second, from differences that can never be negative or beyond the link's speed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collector.analysis.snapshot import YOUNG_NS, NicStatus
from collector.analysis.window import SECOND, WINDOW_NS
from collector.model import NicSamples
from collector.store.rows import Values, dump

BYTES = ("rx_bytes", "tx_bytes")
SPEED_TOLERANCE = 1.05  # ticks and reads jitter by some milliseconds
MAX_GAP_NS = 120 * SECOND  # over a longer one a rate says nothing about any second in it


@dataclass(frozen=True, slots=True)
class Steps:
    """Differences of one counter. A step over a reset, or beyond the speed, is left out and counted."""

    ends_ns: NDArray[np.int64]
    spans_ns: NDArray[np.int64]
    deltas: NDArray[np.int64]
    resets: int
    last: tuple[int, int] | None  # time and value to go on from


def steps(
    times_ns: NDArray[np.int64],
    values: NDArray[np.uint64],
    before: tuple[int, int] | None,
    speed_bps: int | None,
) -> Steps:
    """Differences between ticks that follow each other; ``before`` is the last tick of the record before.

    These are 64-bit counters: a decrease is a reset (the device or its driver started anew), never a wrap.
    """
    if before is not None:
        times_ns = np.concatenate([np.array([before[0]], np.int64), times_ns])
        values = np.concatenate([np.array([before[1]], np.uint64), values])
    if not len(times_ns):
        return Steps(times_ns, times_ns, times_ns, 0, before)
    spans = np.diff(times_ns)
    rises = values[1:] >= values[:-1]
    deltas = (values[1:] - values[:-1]).astype(np.float64)
    possible = rises & (spans > 0) & (deltas < 2.0**62)
    if speed_bps:
        possible &= deltas <= speed_bps / 8 * spans / SECOND * SPEED_TOLERANCE
    resets = int(np.count_nonzero(~possible & (spans > 0)))
    last = (int(times_ns[-1]), int(values[-1]))
    kept = values[1:][possible] - values[:-1][possible]
    return Steps(times_ns[1:][possible], spans[possible], kept.astype(np.int64), resets, last)


@dataclass(slots=True)
class _Counter:
    last: tuple[int, int] | None = None
    total: int = 0  # since the process started, young samples only


@dataclass(slots=True)
class _Window:
    """One NIC over 10 s."""

    start_time_ns: int
    deltas: list[int] = field(default_factory=lambda: [0, 0])
    spans_ns: list[int] = field(default_factory=lambda: [0, 0])
    peaks: list[float | None] = field(default_factory=lambda: [None, None])
    resets: int = 0
    ticks: int = 0
    speed_bps: int | None = None


class Nic:
    """One NIC's counters, going on from record to record."""

    def __init__(self, node: str, nic: str) -> None:
        self.node, self.nic = node, nic
        self.time_ns = 0
        self.speed_bps: int | None = None
        self.resets = 0
        self.raw: dict[str, int] = {}
        self._counters = (_Counter(), _Counter())
        self._window: _Window | None = None
        self._closed: _Window | None = None

    def add(self, samples: NicSamples, received_time_ns: int) -> list[_Window]:
        """Adds a record; gives back the windows it touched."""
        times: NDArray[np.int64] = np.asarray(samples.tick_times_ns)
        if not len(times) or int(times[-1]) <= self.time_ns:
            return []
        values: NDArray[np.uint64] = np.asarray(samples.values)
        present: NDArray[np.bool_] = np.asarray(samples.present)
        young = received_time_ns - int(times[-1]) <= YOUNG_NS
        touched: dict[int, _Window] = {}
        for start in np.unique(times // WINDOW_NS * WINDOW_NS).tolist():
            window = touched[start] = self._window_at(start)
            window.ticks += int(np.count_nonzero(times // WINDOW_NS * WINDOW_NS == start))
            window.speed_bps = samples.speed_bps
        resets = 0  # of the device: both directions show the same one
        for which, name in enumerate(BYTES):
            if name in samples.counters:
                row = samples.counters.index(name)
                seen = present[row]
                found = self._count(
                    which, times[seen], values[row][seen], touched, speed_bps=samples.speed_bps, young=young
                )
                resets = max(resets, found)
        self.resets += resets
        touched[max(touched)].resets += resets
        last = values.shape[1] - 1 - present[:, ::-1].argmax(axis=1)
        newest = values[np.arange(len(last)), last].tolist()
        for name, value, seen in zip(samples.counters, newest, np.any(present, axis=1), strict=True):
            if seen:
                self.raw[name] = value
        self.time_ns, self.speed_bps = int(times[-1]), samples.speed_bps
        return list(touched.values())

    def _window_at(self, start_ns: int) -> _Window:
        if self._window is None or start_ns > self._window.start_time_ns:
            self._closed, self._window = self._window, _Window(start_ns)
        return self._window

    def _count(
        self,
        which: int,
        times: NDArray[np.int64],
        values: NDArray[np.uint64],
        touched: Mapping[int, _Window],
        *,
        speed_bps: int | None,
        young: bool,
    ) -> int:
        counter = self._counters[which]
        found = steps(times, values, counter.last, speed_bps)
        counter.last = found.last
        if young:
            counter.total += int(found.deltas.sum())
        starts = found.ends_ns // WINDOW_NS * WINDOW_NS
        rates = found.deltas / found.spans_ns * SECOND
        for start, window in touched.items():
            here = (starts == start) & (found.spans_ns <= MAX_GAP_NS)
            if here.any():
                window.deltas[which] += int(found.deltas[here].sum())
                window.spans_ns[which] += int(found.spans_ns[here].sum())
                window.peaks[which] = max(float(rates[here].max()), window.peaks[which] or 0.0)
        return found.resets

    def status(self) -> NicStatus:
        """For metrics."""
        newest = self._closed or _Window(0)
        return NicStatus(
            node=self.node,
            nic=self.nic,
            time_ns=self.time_ns,
            receive_bytes_total=self._counters[0].total,
            transmit_bytes_total=self._counters[1].total,
            receive_peak_bytes_per_second=newest.peaks[0],
            transmit_peak_bytes_per_second=newest.peaks[1],
            speed_bps=self.speed_bps,
            resets=self.resets,
            counters=dict(self.raw),
        )

    def window_values(self, window: _Window) -> Values:
        """Table row of a window."""
        return {
            "start_time_ns": window.start_time_ns,
            "node": self.node,
            "nic": self.nic,
            "receive_bytes": window.deltas[0] if window.spans_ns[0] else None,
            "transmit_bytes": window.deltas[1] if window.spans_ns[1] else None,
            "receive_span_ns": window.spans_ns[0],
            "transmit_span_ns": window.spans_ns[1],
            "receive_peak_bytes_per_second": window.peaks[0],
            "transmit_peak_bytes_per_second": window.peaks[1],
            "resets": window.resets,
            "ticks": window.ticks,
            "speed_bps": window.speed_bps,
        }

    def encode(self) -> str:
        """What the next record goes on from."""
        windows = [_encode(window) for window in (self._window, self._closed)]
        return dump([self.time_ns, self.speed_bps, self.resets, self.raw, [c.last for c in self._counters], windows])

    @staticmethod
    def decode(node: str, nic: str, text: str) -> "Nic":
        """The NIC again; totals begin anew with the process."""
        found = Nic(node, nic)
        found.time_ns, found.speed_bps, found.resets, found.raw, lasts, windows = json.loads(text)
        for counter, last in zip(found._counters, lasts, strict=True):
            counter.last = None if last is None else (last[0], last[1])
        found._window, found._closed = (_Window(*window) if window else None for window in windows)
        return found


def _encode(window: _Window | None) -> list[Any] | None:
    if window is None:
        return None
    return [
        window.start_time_ns, window.deltas, window.spans_ns, window.peaks, window.resets, window.ticks,
        window.speed_bps,
    ]  # fmt: skip


class Nics:
    """All NICs, and the table rows that changed."""

    def __init__(self, states: Sequence[Mapping[str, str]] = ()) -> None:
        self._nics = {(row["node"], row["nic"]): Nic.decode(row["node"], row["nic"], row["state"]) for row in states}
        self._windows: dict[tuple[int, str, str], Values] = {}
        self._changed: set[tuple[str, str]] = set()

    def add(self, samples: NicSamples, received_time_ns: int) -> None:
        """Adds a record; one that is not newer than what is known changes nothing."""
        key = (samples.node, samples.nic)
        nic = self._nics.setdefault(key, Nic(*key))
        for window in nic.add(samples, received_time_ns):
            values = nic.window_values(window)
            self._windows[(window.start_time_ns, *key)] = values
            self._changed.add(key)

    def take_changed(self) -> tuple[list[Values], list[Values]]:
        """Rows of ``nics`` and of ``nic_windows`` that changed since last asked."""
        states = [
            {"node": node, "nic": nic, "state": self._nics[node, nic].encode()} for node, nic in sorted(self._changed)
        ]
        windows = list(self._windows.values())
        self._changed.clear()
        self._windows.clear()
        return states, windows

    def statuses(self) -> list[NicStatus]:
        """For metrics."""
        return [nic.status() for _, nic in sorted(self._nics.items())]
