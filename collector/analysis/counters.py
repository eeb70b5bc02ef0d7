"""NIC counters: totals and rates per second, from differences that can never be negative or beyond the link's speed."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np

from collector.analysis.snapshot import YOUNG_NS, NicStatus
from collector.analysis.window import SECOND, WINDOW_NS
from collector.model import NicSamples
from collector.store.rows import Values, dump

BYTES = ("rx_bytes", "tx_bytes")
# What the kernel counts of packets that came to grief (rtnl_link_stats64 of if_link.h): fixed, since each is a label.
ERRORS = frozenset({
    "rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "collisions", "rx_length_errors", "rx_over_errors",
    "rx_crc_errors", "rx_frame_errors", "rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors",
    "tx_fifo_errors", "tx_heartbeat_errors", "tx_window_errors", "rx_nohandler",
})  # fmt: skip
SPEED_TOLERANCE = 1.05  # ticks and reads jitter by some milliseconds
MAX_GAP_NS = 120 * SECOND  # over a longer one a rate says nothing about any second in it
MAX_STEP = 1 << 62  # no port has sent that much in its life


@dataclass(frozen=True, slots=True)
class Steps:
    """Differences of one counter. A step over a reset, or beyond the speed, is left out and counted."""

    taken: Sequence[tuple[int, int, int]]  # end, span in ns, difference
    resets: int
    last: tuple[int, int] | None  # time and value to go on from


def steps(ticks: Iterable[tuple[int, int]], before: tuple[int, int] | None, speed_bps: int | None) -> Steps:
    """Differences between ticks (time, value) that follow each other; ``before`` is the last tick of the record before.

    These are 64-bit counters: a decrease is a reset (the device or its driver started anew), never a wrap. A record
    has some ten ticks, for which plain integers are several times as fast as arrays.
    """
    taken = []
    resets = 0
    limit = speed_bps / 8 / SECOND * SPEED_TOLERANCE if speed_bps else None  # bytes a nanosecond
    for tick in ticks:
        if before is not None and tick[0] > before[0]:
            span_ns, delta = tick[0] - before[0], tick[1] - before[1]
            if 0 <= delta < MAX_STEP and (limit is None or delta <= limit * span_ns):
                taken.append((tick[0], span_ns, delta))
            else:
                resets += 1
        before = tick
    return Steps(taken, resets, before)


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
        self.errors: dict[str, int] = {}  # since the process started, young samples only
        self._counters = (_Counter(), _Counter())
        self._window: _Window | None = None
        self._closed: _Window | None = None

    def add(self, samples: NicSamples, received_time_ns: int) -> list[_Window]:
        """Adds a record; gives back the windows it touched."""
        times: list[int] = np.asarray(samples.tick_times_ns).tolist()
        if not times or times[-1] <= self.time_ns:
            return []
        values: list[list[int]] = np.asarray(samples.values).tolist()
        present: list[list[bool]] = np.asarray(samples.present).tolist()
        starts = [time // WINDOW_NS * WINDOW_NS for time in times]
        touched = {start: self._window_at(start) for start in sorted(set(starts))}
        for start in starts:
            touched[start].ticks += 1
        for window in touched.values():
            window.speed_bps = samples.speed_bps
        young = received_time_ns - times[-1] <= YOUNG_NS
        resets = 0  # of the device: both directions show the same one
        for name, row, seen in zip(samples.counters, values, present, strict=True):
            if name in BYTES:
                ticks = compress(zip(times, row, strict=True), seen)
                found = self._count(BYTES.index(name), ticks, touched, speed_bps=samples.speed_bps, young=young)
                resets = max(resets, found)
            newest = next(compress(reversed(row), reversed(seen)), None)
            if newest is not None:
                if name in ERRORS:
                    self._count_errors(name, newest, young=young)
                self.raw[name] = newest
        self.resets += resets
        touched[max(touched)].resets += resets
        self.time_ns, self.speed_bps = times[-1], samples.speed_bps
        return list(touched.values())

    def _count_errors(self, name: str, newest: int, *, young: bool) -> None:
        """Adds what has come since the record before; a decrease is a reset, after which all is new but unknown."""
        before = self.raw.get(name)
        delta = newest - before if young and before is not None else 0
        self.errors[name] = self.errors.get(name, 0) + (delta if 0 <= delta < MAX_STEP else 0)

    def _window_at(self, start_ns: int) -> _Window:
        if self._window is None or start_ns > self._window.start_time_ns:
            self._closed, self._window = self._window, _Window(start_ns)
        return self._window

    def _count(
        self,
        which: int,
        ticks: Iterable[tuple[int, int]],
        touched: Mapping[int, _Window],
        *,
        speed_bps: int | None,
        young: bool,
    ) -> int:
        counter = self._counters[which]
        found = steps(ticks, counter.last, speed_bps)
        counter.last = found.last
        if young:
            counter.total += sum(delta for _, _, delta in found.taken)
        for end_ns, span_ns, delta in found.taken:
            if span_ns <= MAX_GAP_NS:
                window = touched[end_ns // WINDOW_NS * WINDOW_NS]
                window.deltas[which] += delta
                window.spans_ns[which] += span_ns
                rate, peak = delta / span_ns * SECOND, window.peaks[which]
                if peak is None or rate > peak:
                    window.peaks[which] = rate
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
            errors=dict(self.errors),
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
        self._windows: dict[tuple[int, str, str], _Window] = {}  # by start, node and NIC
        self._changed: set[tuple[str, str]] = set()

    def add(self, samples: NicSamples, received_time_ns: int) -> None:
        """Adds a record; one that is not newer than what is known changes nothing."""
        key = (samples.node, samples.nic)
        nic = self._nics.setdefault(key, Nic(*key))
        for window in nic.add(samples, received_time_ns):
            self._windows[window.start_time_ns, *key] = window
            self._changed.add(key)

    def take_changed(self) -> tuple[list[Values], list[Values]]:
        """Rows of ``nics`` and of ``nic_windows`` that changed since last asked."""
        states = [
            {"node": node, "nic": nic, "state": self._nics[node, nic].encode()} for node, nic in sorted(self._changed)
        ]
        windows = [self._nics[node, nic].window_values(window) for (_, node, nic), window in self._windows.items()]
        self._changed.clear()
        self._windows.clear()
        return states, windows

    def statuses(self) -> list[NicStatus]:
        """For metrics."""
        return [nic.status() for _, nic in sorted(self._nics.items())]
