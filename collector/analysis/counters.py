"""Counters of NICs and hosts: totals, rates and rows of 10 s, from differences that can be believed.

Octets come from ``octets.Meter``, which knows which counters see all of them; everything else is counted by the names
of the vocabulary (``bandwitness.counters``). The highest second of a window stands beside its sum, and outlives every
larger window made of rows: a burst of five seconds inside a minute stays what it was.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bandwitness.v1.record_pb2 import COUNTER_SOURCE_CPU, COUNTER_SOURCE_NETDEV, COUNTER_SOURCE_RDMA
from collector.analysis.links import LinkHistory
from collector.analysis.nic_window import NicWindow
from collector.analysis.octets import RECEIVE, TRANSMIT, Meter, Octets, Seconds, normalised
from collector.analysis.rises import Counter, Rise, Source, counted
from collector.analysis.rules.link_degraded import Link
from collector.analysis.snapshot import YOUNG_NS, NicStatus
from collector.analysis.window import SECOND, WINDOW_NS
from collector.model import NicSamples
from collector.store.rows import Values, dump

SAVE_AFTER_NS = 60 * SECOND  # by the receipt of what was not written yet
NEVER_NS = 1 << 63
MAX_GAP_NS = 120 * SECOND  # over a longer one a rate says nothing about any second in it
# ECN marks and congestion notifications of RDMA: no errors, but what comes before them.
CONGESTION = frozenset({"ecn_marked", "cnp_sent", "cnp_handled"})
Key = tuple[str, str]  # node and NIC


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
        self._sources: dict[str, Source] = {}
        self._has_port = False  # of RDMA
        self._meter = Meter()
        self._seconds = Seconds()
        self._window: NicWindow | None = None
        self._closed: NicWindow | None = None
        self._link = LinkHistory()
        self.link: Link | None = None  # as it was when the newest window closed; until somebody takes it

    def add(
        self, records: Sequence[NicSamples], received_time_ns: int, *, into_totals: bool = True
    ) -> tuple[list[NicWindow], list[Octets]]:
        """Adds the records of one batch; gives back the windows they touched and the octets they show."""
        oldest_ns = received_time_ns - YOUNG_NS if into_totals else NEVER_NS  # of what counts into totals
        new = [record for record in records if self._is_new(record)]
        touched: dict[int, NicWindow] = {}
        for record in new:
            self._has_port = self._has_port or record.counter_source == COUNTER_SOURCE_RDMA
            if record.counter_source == COUNTER_SOURCE_CPU:
                continue  # by core: stays in the log
            times: list[int] = np.asarray(record.tick_times_ns).tolist()
            ends = _window_ends(times)
            windows = self._count(record, times, ends, touched, young=times[-1] >= oldest_ns)
            if normalised(record.counter_source) == COUNTER_SOURCE_NETDEV:
                self.speed_bps, self.kind = record.speed_bps, record.kind
                self.driver, self.coverage = record.driver, record.coverage
                before = -1
                for end, window in zip(ends, windows, strict=True):
                    window.ticks += end - before
                    window.speed_bps = record.speed_bps
                    before = end
        doubts = self._meter.doubts
        steps = self._meter.add(new)
        self._add_steps(steps, touched, oldest_ns)
        if self._meter.doubts > doubts and touched:
            touched[max(touched)].resets += self._meter.doubts - doubts
            self.resets += self._meter.doubts - doubts
        return list(touched.values()), steps

    def _is_new(self, record: NicSamples) -> bool:
        times = np.asarray(record.tick_times_ns)
        source = self._sources.setdefault(_key(record), Source())
        if not len(times) or int(times[-1]) <= source.time_ns:
            return False
        source.time_ns = int(times[-1])
        return True

    def _touch(self, touched: dict[int, NicWindow], time_ns: int) -> NicWindow:
        start = time_ns // WINDOW_NS * WINDOW_NS
        if start not in touched:
            if self._window is None or start > self._window.start_time_ns:
                self._closed, self._window = self._window, NicWindow(start)
                if self._closed is not None:
                    self._link.add(start, self._closed.speed_bps, self._closed.counts)
                    self.link = self._link.now(self.node, self.nic, start)
            closed = self._closed
            late = closed is not None and start <= closed.start_time_ns
            # What a slow source says of a window before belongs to the newest that is still open.
            touched[start] = closed if late and closed is not None else self._window
        return touched[start]

    def _add_steps(self, steps: Iterable[Octets], touched: dict[int, NicWindow], oldest_ns: int) -> None:
        window: NicWindow | None = None
        end_ns = 0  # of that window
        for step in steps:
            time_ns, span_ns, received, sent = step
            if time_ns >= oldest_ns:
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

    def _count(
        self,
        record: NicSamples,
        times: Sequence[int],
        ends: Sequence[int],
        touched: dict[int, NicWindow],
        *,
        young: bool,
    ) -> list[NicWindow]:
        """Rises of everything in the vocabulary, into the window of the newest read in it; gives back the windows."""
        source = self._sources[_key(record)]
        values, present = np.asarray(record.values), np.asarray(record.present)
        counters = counted(record.counter_source, record.driver, tuple(record.counters), self._has_port)
        source.begin(counters, times, values, present)
        if young and not source.announced:
            source.announced = True
            self._sum((counter, 0, 0) for counter in counters)
        whole = np.count_nonzero(present) == present.size
        windows: list[NicWindow] = []
        begin = 0
        for end in ends:
            window = self._touch(touched, times[end])  # closes the one before, which must be whole by then
            windows.append(window)
            read: list[int | None] = values[:, end].tolist()
            earlier = {} if whole else _fill_in(read, counters, record, (begin, end))
            rises = source.rises(times[end], read, {place: times[tick] for place, tick in earlier.items()})
            window.count(rises)
            if young:
                self._sum(rises)
            begin = end + 1
        return windows

    def _sum(self, rises: Iterable[Rise]) -> None:
        """Adds to the totals for metrics."""
        for counter, amount, _ in rises:
            name = counter.meaning.name
            if counter.meaning.error:
                self.errors[name] = self.errors.get(name, 0) + amount
            elif name in CONGESTION:
                self.congestion[name] = self.congestion.get(name, 0) + amount

    @property
    def time_ns(self) -> int:
        """Of the newest tick."""
        return max((source.time_ns for source in self._sources.values()), default=0)

    def status(self) -> NicStatus:
        """For metrics."""
        newest = self._closed or NicWindow(0)
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

    def window_values(self, window: NicWindow) -> Values:
        """Table row of a window."""
        return window.values(self.node, self.nic, self.kind)

    def encode(self) -> list[Any]:
        """What the next record goes on from, as JSON knows it."""
        return [
            self.speed_bps, self.kind, self.resets, self._has_port,
            {key: source.encode() for key, source in self._sources.items()},
            [window and window.encode() for window in (self._window, self._closed)],
            self._meter.encode(), self._seconds.encode(), self._link.encode(),
        ]  # fmt: skip

    def encode_meter(self) -> str:
        """Its meter alone."""
        return dump(self._meter.encode())

    @staticmethod
    def decode(node: str, nic: str, state: Sequence[Any]) -> "Nic":
        """The NIC again; totals begin anew with the process."""
        found = Nic(node, nic)
        found.speed_bps, found.kind, found.resets, found._has_port, *more = state
        sources, windows, meter, seconds, link = more
        found._sources = {key: Source.decode(source) for key, source in sources.items()}
        found._window, found._closed = (NicWindow(*window) if window else None for window in windows)
        found._meter, found._seconds = Meter.decode(meter), Seconds(seconds)
        found._link = LinkHistory.decode(link)
        return found


def _window_ends(times: Sequence[int]) -> list[int]:
    """Place of the last read in each window that the reads fall into."""
    last = len(times) - 1
    if times[0] // WINDOW_NS == times[last] // WINDOW_NS:
        return [last]
    windows = [time_ns // WINDOW_NS for time_ns in times]
    return [tick for tick in range(last) if windows[tick] != windows[tick + 1]] + [last]


def _fill_in(
    read: list[int | None], counters: Iterable[Counter], record: NicSamples, ticks: tuple[int, int]
) -> dict[int, int]:
    """Where a value is absent at the last of these ticks, the newest before it; gives back place -> tick of those."""
    values, present = np.asarray(record.values), np.asarray(record.present)
    begin, end = ticks
    earlier: dict[int, int] = {}
    for counter in counters:
        place = counter.place
        if present[place, end]:
            continue
        seen = np.flatnonzero(present[place, begin:end])
        read[place] = None
        if len(seen):
            earlier[place] = begin + int(seen[-1])
            read[place] = int(values[place, earlier[place]])
    return earlier


def _key(record: NicSamples) -> str:
    return f"{normalised(record.counter_source)} {record.device}"


def _by_nic(records: Iterable[NicSamples]) -> dict[Key, list[NicSamples]]:
    found: dict[Key, list[NicSamples]] = {}
    for record in records:
        found.setdefault((record.node, record.nic), []).append(record)
    return found


class Nics:
    """All NICs, and the table rows that changed."""

    def __init__(self, states: Sequence[Mapping[str, str]] = ()) -> None:
        self._nics: dict[Key, Nic] = {}
        self._saved: dict[Key, int] = {}  # position in the log through which the stored state goes
        for row in states:
            key = (row["node"], row["nic"])
            self._saved[key], *state = json.loads(row["state"])
            self._nics[key] = Nic.decode(*key, state)
        self._unsaved: dict[Key, tuple[int, int]] = {}  # position and receipt of the first batch not written
        self._windows: dict[tuple[int, str, str], NicWindow] = {}  # by start, node and NIC
        self._links: list[Link] = []  # as they were when a window closed

    def add(self, records: Iterable[NicSamples], received_time_ns: int) -> list[tuple[str, str, list[Octets]]]:
        """Adds the counter records of one batch; those that are not newer than what is known change nothing.

        Returns:
            Node, NIC and what it carried between reads, in order of time: the input of the burst detector.
        """
        carried = []
        for key, own in _by_nic(records).items():
            nic = self._nics.get(key)
            if nic is None:
                nic = self._nics[key] = Nic(*key)
            windows, steps = nic.add(own, received_time_ns)
            for window in windows:
                self._windows[window.start_time_ns, *key] = window
            if windows and key not in self._unsaved:
                self._unsaved[key] = (own[0].source.position, received_time_ns)
            if nic.link is not None:
                if nic.nic:  # the host has none
                    self._links.append(nic.link)
                nic.link = None
            if steps:
                carried.append((*key, steps))
        return carried

    def add_again(self, records: Iterable[NicSamples], received_time_ns: int) -> None:
        """Adds a batch that was added before a restart, as far as the state that came of it was not written.

        What followed from it was: rows, incidents, bursts. Totals begin anew with the process.
        """
        for key, own in _by_nic(records).items():
            if own[0].source.position <= self._saved.get(key, 0):
                continue
            nic = self._nics.setdefault(key, Nic(*key))
            windows, _ = nic.add(own, received_time_ns, into_totals=False)
            if windows:
                self._unsaved.setdefault(key, (own[0].source.position, received_time_ns))
            nic.link = None

    def meter(self, node: str, nic: str) -> str:
        """State of a NIC's meter, for who reads a part of the log again."""
        return self._nics[node, nic].encode_meter()

    def take_windows(self) -> list[Values]:
        """Rows of ``nic_windows`` that changed since last asked."""
        windows = [self._nics[node, nic].window_values(window) for (_, node, nic), window in self._windows.items()]
        self._windows.clear()
        return windows

    def take_states(self, position: int, received_ns: int) -> list[Values]:
        """Rows of ``nics`` that are due to be written, all entries through ``position`` taken in.

        A state is as large as all that its NIC counts, and changes with every batch: it is written once a minute, and
        after a restart the log is read again from ``safe_position``.
        """
        due = [key for key, (_, first_ns) in self._unsaved.items() if received_ns - first_ns >= SAVE_AFTER_NS]
        for key in due:
            del self._unsaved[key]
            self._saved[key] = position
        return [
            {"node": key[0], "nic": key[1], "state": dump([position, *self._nics[key].encode()])} for key in sorted(due)
        ]

    def safe_position(self, position: int) -> int:
        """Behind which the log must be read again after a restart."""
        return min((first - 1 for first, _ in self._unsaved.values()), default=position)

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
