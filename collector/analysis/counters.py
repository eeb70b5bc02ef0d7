"""Counters of NICs and hosts: totals, rates and rows of 10 s, from differences that can be believed.

Octets come from ``octets.Meter``, which knows which counters see all of them; everything else is counted by the names
of the vocabulary (``bandwitness.counters``). The highest second of a window stands beside its sum, and outlives every
larger window made of rows: a burst of five seconds inside a minute stays what it was.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from bandwitness.counters import Meaning
from bandwitness.v1.record_pb2 import (
    COUNTER_SOURCE_CPU,
    COUNTER_SOURCE_ETHTOOL,
    COUNTER_SOURCE_NETDEV,
    COUNTER_SOURCE_RDMA,
)
from collector.analysis.deltas import Doubt, difference
from collector.analysis.links import LinkHistory
from collector.analysis.octets import RECEIVE, TRANSMIT, Meter, Octets, Seconds, meaning_of, normalised
from collector.analysis.rules.link_degraded import Link
from collector.analysis.snapshot import YOUNG_NS, NicStatus
from collector.analysis.window import SECOND, WINDOW_NS
from collector.model import NicSamples
from collector.store.rows import Values, dump

MAX_GAP_NS = 120 * SECOND  # over a longer one a rate says nothing about any second in it
# ECN marks and congestion notifications of RDMA: no errors, but what comes before them.
CONGESTION = frozenset({"ecn_marked", "cnp_sent", "cnp_handled"})
_PAUSES = {"receive_pause_us": RECEIVE, "transmit_pause_us": TRANSMIT}
# In the counts of a row nothing that has columns of its own.
_NOT_COUNTED = frozenset({"rx_bytes", "tx_bytes", "wire_receive_bytes", "wire_transmit_bytes"})


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
    counts: dict[str, int] = field(default_factory=dict)  # rises in it, by names of the vocabulary
    pauses: dict[str, list[int]] = field(default_factory=dict)  # counter -> µs paused and ns watched

    def pause_ratio(self, direction: int) -> float | None:
        """The longest-paused priority's share of the time; None where no durations are counted."""
        shares = [
            min(1.0, paused_us * 1_000 / span_ns)
            for name, (paused_us, span_ns) in self.pauses.items()
            if _PAUSES[name.partition("/")[0]] == direction and span_ns
        ]
        return max(shares, default=None)


@dataclass(slots=True)
class _Source:
    """One source of a NIC's counters, such as its driver's statistics or one RDMA port."""

    time_ns: int = 0
    last: dict[str, tuple[int, int]] = field(default_factory=dict)  # counter -> time and value when it last changed
    announced: bool = False  # its errors are among the totals, be they 0


class Nic:
    """One NIC's counters, going on from record to record. The one with no name is the host."""

    def __init__(self, node: str, nic: str) -> None:
        self.node, self.nic = node, nic
        self.speed_bps: int | None = None
        self.kind = ""
        self.driver = ""
        self.coverage: Sequence[str] = ()
        self.resets = 0
        self.errors: dict[str, int] = {}  # since the process started, young samples only
        self.congestion: dict[str, int] = {}  # the same of what congestion control says
        self.totals = [0, 0]  # the same of octets
        self._sources: dict[str, _Source] = {}
        self._has_port = False  # of RDMA
        self._meter = Meter()
        self._seconds = Seconds()
        self._window: _Window | None = None
        self._closed: _Window | None = None
        self._link = LinkHistory()
        self.link: Link | None = None  # as it was when the newest window closed; until somebody takes it

    def add(self, records: Sequence[NicSamples], received_time_ns: int) -> tuple[list[_Window], list[Octets]]:
        """Adds the records of one batch; gives back the windows they touched and the octets they show."""
        new = [record for record in records if self._is_new(record)]
        touched: dict[int, _Window] = {}
        for record in new:
            times: list[int] = np.asarray(record.tick_times_ns).tolist()
            young = received_time_ns - times[-1] <= YOUNG_NS
            self._has_port = self._has_port or record.counter_source == COUNTER_SOURCE_RDMA
            if record.counter_source != COUNTER_SOURCE_CPU:  # by core: stays in the log
                self._count(record, times, touched, young=young)
            if normalised(record.counter_source) == COUNTER_SOURCE_NETDEV:
                self.speed_bps, self.kind = record.speed_bps, record.kind
                self.driver, self.coverage = record.driver, record.coverage
                before = -1
                for end in _window_ends(times):
                    window = self._touch(touched, times[end])
                    window.ticks += end - before
                    window.speed_bps = record.speed_bps
                    before = end
        doubts = self._meter.doubts
        steps = self._meter.add(new)
        self._add_steps(steps, touched, received_time_ns)
        if self._meter.doubts > doubts and touched:
            touched[max(touched)].resets += self._meter.doubts - doubts
            self.resets += self._meter.doubts - doubts
        return list(touched.values()), steps

    def _is_new(self, record: NicSamples) -> bool:
        times = np.asarray(record.tick_times_ns)
        source = self._sources.setdefault(_key(record), _Source())
        if not len(times) or int(times[-1]) <= source.time_ns:
            return False
        source.time_ns = int(times[-1])
        return True

    def _touch(self, touched: dict[int, _Window], time_ns: int) -> _Window:
        start = time_ns // WINDOW_NS * WINDOW_NS
        if start not in touched:
            if self._window is None or start > self._window.start_time_ns:
                self._closed, self._window = self._window, _Window(start)
                if self._closed is not None:
                    self._link.add(start, self._closed.speed_bps, self._closed.counts)
                    self.link = self._link.now(self.node, self.nic, start)
            closed = self._closed
            late = closed is not None and start <= closed.start_time_ns
            # What a slow source says of a window before belongs to the newest that is still open.
            touched[start] = closed if late and closed is not None else self._window
        return touched[start]

    def _add_steps(self, steps: Iterable[Octets], touched: dict[int, _Window], received_time_ns: int) -> None:
        window: _Window | None = None
        end_ns = 0  # of that window
        for step in steps:
            time_ns, span_ns, received, sent = step
            if received_time_ns - time_ns <= YOUNG_NS:
                self.totals[RECEIVE] += received or 0
                self.totals[TRANSMIT] += sent or 0
            if span_ns > MAX_GAP_NS:
                continue
            if window is None or time_ns >= end_ns:
                window = self._touch(touched, time_ns)
                end_ns = time_ns // WINDOW_NS * WINDOW_NS + WINDOW_NS
            peaks = self._seconds.add(step)
            for direction, count, peak in ((RECEIVE, received, peaks[0]), (TRANSMIT, sent, peaks[1])):
                if count is not None:
                    window.deltas[direction] += count
                    window.spans_ns[direction] += span_ns
                highest = window.peaks[direction]
                if peak is not None and (highest is None or peak > highest):
                    window.peaks[direction] = peak

    def _count(self, record: NicSamples, times: list[int], touched: dict[int, _Window], *, young: bool) -> None:
        """Rises of everything in the vocabulary, into the window of the newest read in it."""
        source = self._sources[_key(record)]
        # A driver counts the octets of RDMA too; where there is a port of RDMA, that is who counts them.
        counted = _counted(record.counter_source, record.driver, tuple(record.counters), self._has_port)
        if young and not source.announced:
            source.announced = True
            for _, _, meaning in counted:
                totals = self._totals_of(meaning)
                if totals is not None:
                    totals.setdefault(meaning.name, 0)
        values, present = np.asarray(record.values), np.asarray(record.present)
        begin = 0
        for end in _window_ends(times):
            window = self._touch(touched, times[end])
            newest: list[int] = values[:, end].tolist()
            seen: list[bool] = present[:, end].tolist()
            for place, name, meaning in counted:
                tick, value = end, newest[place]
                if not seen[place]:
                    earlier = np.flatnonzero(present[place, begin:end])
                    if not len(earlier):
                        continue
                    tick = begin + int(earlier[-1])
                    value = int(values[place, tick])
                before = source.last.get(name)
                if before is None:  # first sight: what came within the record counts
                    first = int(np.argmax(present[place]))
                    before = (times[first], int(values[place, first]))
                    source.last[name] = before
                if value != before[1] or meaning.name in _PAUSES:
                    source.last[name] = (times[tick], value)
                    self._rise(window, name, meaning, before, source.last[name], young=young)
            begin = end + 1

    def _totals_of(self, meaning: Meaning) -> dict[str, int] | None:
        """Where rises of a counter are summed for metrics, if anywhere."""
        return self.errors if meaning.error else self.congestion if meaning.name in CONGESTION else None

    def _rise(
        self,
        window: _Window,
        name: str,
        meaning: Meaning,
        before: tuple[int, int],
        now: tuple[int, int],
        *,
        young: bool,
    ) -> None:
        span_ns = now[0] - before[0]
        delta = difference(before[1], now[1], meaning, span_ns)
        if isinstance(delta, Doubt):
            return
        delta *= meaning.scale
        if meaning.name in _PAUSES:
            pause = window.pauses.setdefault(f"{meaning.name}/{name}", [0, 0])
            pause[0] += delta
            pause[1] += span_ns
        if delta:
            window.counts[meaning.name] = window.counts.get(meaning.name, 0) + delta
            totals = self._totals_of(meaning)
            if totals is not None and young:
                totals[meaning.name] = totals.get(meaning.name, 0) + delta

    @property
    def time_ns(self) -> int:
        """Of the newest tick."""
        return max((source.time_ns for source in self._sources.values()), default=0)

    def status(self) -> NicStatus:
        """For metrics."""
        newest = self._closed or _Window(0)
        return NicStatus(
            node=self.node,
            nic=self.nic,
            time_ns=self.time_ns,
            receive_bytes_total=self.totals[RECEIVE],
            transmit_bytes_total=self.totals[TRANSMIT],
            receive_peak_bytes_per_second=newest.peaks[RECEIVE],
            transmit_peak_bytes_per_second=newest.peaks[TRANSMIT],
            speed_bps=self.speed_bps,
            resets=self.resets,
            counters={name: value for source in self._sources.values() for name, (_, value) in source.last.items()},
            errors=dict(self.errors),
            congestion=dict(self.congestion),
            kind=self.kind,
            driver=self.driver,
            coverage=self.coverage,
            receive_pause_ratio=newest.pause_ratio(RECEIVE),
            transmit_pause_ratio=newest.pause_ratio(TRANSMIT),
        )

    def window_values(self, window: _Window) -> Values:
        """Table row of a window."""
        return {
            "start_time_ns": window.start_time_ns,
            "node": self.node,
            "nic": self.nic,
            "receive_bytes": window.deltas[RECEIVE] if window.spans_ns[RECEIVE] else None,
            "transmit_bytes": window.deltas[TRANSMIT] if window.spans_ns[TRANSMIT] else None,
            "receive_span_ns": window.spans_ns[RECEIVE],
            "transmit_span_ns": window.spans_ns[TRANSMIT],
            "receive_peak_bytes_per_second": window.peaks[RECEIVE],
            "transmit_peak_bytes_per_second": window.peaks[TRANSMIT],
            "resets": window.resets,
            "ticks": window.ticks,
            "speed_bps": window.speed_bps,
            "kind": self.kind,
            "receive_pause_ratio": window.pause_ratio(RECEIVE),
            "transmit_pause_ratio": window.pause_ratio(TRANSMIT),
            "counts": dump(window.counts),
        }

    def encode(self) -> str:
        """What the next record goes on from."""
        return dump([
            self.speed_bps, self.kind, self.resets, self._has_port,
            {key: [source.time_ns, source.last] for key, source in self._sources.items()},
            [_encode(window) for window in (self._window, self._closed)],
            self._meter.encode(), self._seconds.encode(), self._link.encode(),
        ])  # fmt: skip

    def encode_meter(self) -> str:
        """Its meter alone."""
        return dump(self._meter.encode())

    @staticmethod
    def decode(node: str, nic: str, text: str) -> "Nic":
        """The NIC again; totals begin anew with the process."""
        found = Nic(node, nic)
        found.speed_bps, found.kind, found.resets, found._has_port, *more = json.loads(text)
        sources, windows, meter, seconds, link = more
        for key, (time_ns, last) in sources.items():
            found._sources[key] = _Source(time_ns, {name: (at, value) for name, (at, value) in last.items()})
        found._window, found._closed = (_Window(*window) if window else None for window in windows)
        found._meter, found._seconds = Meter.decode(meter), Seconds(seconds)
        found._link = LinkHistory.decode(link)
        return found


@lru_cache(maxsize=256)
def _counted(source: int, driver: str, names: tuple[str, ...], has_port: bool) -> tuple[tuple[int, str, Meaning], ...]:
    """Place, name and meaning of the counters of a record that are counted."""
    left_out = set(_NOT_COUNTED)
    if has_port and source == COUNTER_SOURCE_ETHTOOL:
        left_out |= {"rdma_receive_bytes", "rdma_transmit_bytes"}
    found = ((place, name, meaning_of(source, driver, name)) for place, name in enumerate(names))
    return tuple(
        (place, name, meaning)
        for place, name, meaning in found
        if meaning is not None and not meaning.gauge and meaning.name not in left_out
    )


def _window_ends(times: Sequence[int]) -> list[int]:
    """Place of the last read in each window that the reads fall into."""
    last = len(times) - 1
    if times[0] // WINDOW_NS == times[last] // WINDOW_NS:
        return [last]
    return [
        tick for tick in range(last + 1) if tick == last or times[tick + 1] // WINDOW_NS != times[tick] // WINDOW_NS
    ]


def _key(record: NicSamples) -> str:
    return f"{normalised(record.counter_source)} {record.device}"


def _encode(window: _Window | None) -> list[Any] | None:
    if window is None:
        return None
    return [
        window.start_time_ns, window.deltas, window.spans_ns, window.peaks, window.resets, window.ticks,
        window.speed_bps, window.counts, window.pauses,
    ]  # fmt: skip


class Nics:
    """All NICs, and the table rows that changed."""

    def __init__(self, states: Sequence[Mapping[str, str]] = ()) -> None:
        self._nics = {(row["node"], row["nic"]): Nic.decode(row["node"], row["nic"], row["state"]) for row in states}
        self._windows: dict[tuple[int, str, str], _Window] = {}  # by start, node and NIC
        self._changed: set[tuple[str, str]] = set()
        self._links: list[Link] = []  # as they were when a window closed

    def add(self, records: Iterable[NicSamples], received_time_ns: int) -> list[tuple[str, str, list[Octets]]]:
        """Adds the counter records of one batch; those that are not newer than what is known change nothing.

        Returns:
            Node, NIC and what it carried between reads, in order of time: the input of the burst detector.
        """
        by_nic: dict[tuple[str, str], list[NicSamples]] = {}
        for record in records:
            by_nic.setdefault((record.node, record.nic), []).append(record)
        carried = []
        for key, own in by_nic.items():
            nic = self._nics.setdefault(key, Nic(*key))
            windows, steps = nic.add(own, received_time_ns)
            for window in windows:
                self._windows[window.start_time_ns, *key] = window
                self._changed.add(key)
            if nic.link is not None:
                if nic.nic:  # the host has none
                    self._links.append(nic.link)
                nic.link = None
            if steps:
                carried.append((*key, steps))
        return carried

    def meter(self, node: str, nic: str) -> str:
        """State of a NIC's meter, for who reads a part of the log again."""
        return self._nics[node, nic].encode_meter()

    def take_changed(self) -> tuple[list[Values], list[Values]]:
        """Rows of ``nics`` and of ``nic_windows`` that changed since last asked."""
        states = [
            {"node": node, "nic": nic, "state": self._nics[node, nic].encode()} for node, nic in sorted(self._changed)
        ]
        windows = [self._nics[node, nic].window_values(window) for (_, node, nic), window in self._windows.items()]
        self._changed.clear()
        self._windows.clear()
        return states, windows

    def take_links(self) -> list[Link]:
        """Links of NICs of which a window has closed since last asked."""
        links, self._links = self._links, []
        return sorted(links, key=lambda link: (link.node, link.nic))

    def unsaved(self, nodes: Collection[str]) -> list[Values]:
        """Rows of ``nic_windows`` of some nodes that are not in the store yet."""
        return [
            self._nics[of, nic].window_values(window) for (_, of, nic), window in self._windows.items() if of in nodes
        ]

    def statuses(self) -> list[NicStatus]:
        """For metrics."""
        return [nic.status() for (_, name), nic in sorted(self._nics.items()) if name]
