"""How many octets a NIC carried between two reads, from whichever of its counters see them all. Pure.

RDMA passes the kernel by, so the kernel's table of a device shows none of it. In order: the port's own count of the
wire (driver statistics: RDMA and all else), or the kernel's table plus the RDMA port's count (on InfiniBand that count
alone, which holds IPoIB too), or the kernel's table. Never two that count the same octets. While the kernel's table
and the RDMA port are read much oftener than the driver's statistics (a burst is open) and miss nothing, they win.

Every difference is right or not there: never negative, and never above speed × time. What a counter that is not
brought up to date at each read shows too late is not thrown away but counted into the reads behind it.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from bandwitness import counters
from bandwitness.counters import BOUNDLESS, Meaning
from bandwitness.v1.record_pb2 import COUNTER_SOURCE_ETHTOOL, COUNTER_SOURCE_NETDEV, COUNTER_SOURCE_RDMA
from collector.analysis.deltas import MAX_STEP, SECOND, Doubt, difference, most_bytes
from collector.model import NicSamples

RECEIVE, TRANSMIT = 0, 1
INFINIBAND = "InfiniBand"
_BITS = 8 * SECOND
MOST_BPS = 10**13  # beyond what any host moves: of a NIC without a speed, and of one whose agent makes it up
TOLERANCE_NS = SECOND // 10  # the kernel counts a packet a little before or after the read says
SUDDEN = 4  # times what the refreshes before brought
LEARNED_MAX_NS = 4 * SECOND  # what comes seldomer is seldom traffic, not a seldom refresh
NEARLY_NS = SECOND * 19 // 20  # reads come a little early
STALE_MAX_NS = 10 * SECOND  # a counter that stands still for longer is simply still
REMEMBERED_NS = 60 * SECOND  # a source not heard of for longer is gone


Read = tuple[int, tuple[int, ...]]  # its time, and the counters' values


class Octets(NamedTuple):
    """What passed a NIC in ``(end_time_ns - span_ns, end_time_ns]``. A direction that is not counted is None.

    Steps of one NIC never overlap; where one does not begin at the end of the step before, what lies between is not
    known (a reset, a missed read, a saturated counter).
    """

    end_time_ns: int
    span_ns: int
    receive_bytes: int | None
    transmit_bytes: int | None

    @property
    def start_time_ns(self) -> int:
        """Time of the earlier read."""
        return self.end_time_ns - self.span_ns


_OCTET_NAMES: Mapping[int, tuple[str, str]] = {
    COUNTER_SOURCE_NETDEV: ("rx_bytes", "tx_bytes"),
    COUNTER_SOURCE_ETHTOOL: ("wire_receive_bytes", "wire_transmit_bytes"),
    COUNTER_SOURCE_RDMA: ("rdma_receive_bytes", "rdma_transmit_bytes"),
}


@dataclass(frozen=True, slots=True)
class _Column:
    place: int  # in the record
    direction: int
    meaning: Meaning


def normalised(source: int) -> int:
    """Records made before there were several sources are of the kernel's table."""
    return source or COUNTER_SOURCE_NETDEV


@lru_cache(maxsize=4096)
def meaning_of(source: int, driver: str, name: str) -> Meaning | None:
    """A counter of a record in our words; None outside the vocabulary."""
    source = normalised(source)
    if source == COUNTER_SOURCE_NETDEV:
        return counters.netdev(name)
    if source == COUNTER_SOURCE_ETHTOOL:
        return counters.ethtool(driver, name)
    return counters.rdma(name) if source == COUNTER_SOURCE_RDMA else counters.host(name)


@lru_cache(maxsize=256)
def _columns(source: int, driver: str, names: tuple[str, ...]) -> tuple[_Column, ...]:
    """Counters of a record that together hold its octets, each octet once."""
    wanted = _OCTET_NAMES[source]
    found: list[_Column] = []
    for direction, name in enumerate(wanted):
        of_name = [
            _Column(place, direction, meaning)
            for place, counter in enumerate(names)
            if (meaning := meaning_of(source, driver, counter)) is not None and meaning.name == name
        ]
        if of_name:  # several count the same: the widest
            found.append(max(of_name, key=lambda column: column.meaning.bits))
    return tuple(found)


@dataclass(slots=True)
class _Track:
    """Steps of one set of counters, read together."""

    shape: tuple[_Column, ...] = ()
    time_ns: int = 0
    values: tuple[int, ...] = ()
    held_ns: int = 0  # reads since then brought nothing, which may be because nothing was refreshed; 0: none
    quiet_ns: int = 0  # reads brought nothing since then; 0: the newest did
    rise_ns: int = 0  # of the newest read that brought something
    gap_ns: int = 0  # between the two newest such reads, with empty ones between; 0: without
    learned_ns: int = 0  # refreshed this often, by what was seen
    carried: list[int] = field(default_factory=lambda: [0, 0])
    doubts: int = 0
    size: int = 0  # bytes of the newest read that brought something, where reads bring nothing in between
    plain: bool = False  # two counters of 64 bits, of bytes received and sent

    def add_all(
        self, shape: tuple[_Column, ...], reads: Sequence[Read], *, speed_bps: int | None, refresh: int
    ) -> list[Octets]:
        """The steps that end with these reads."""
        steps: list[Octets] = []
        place = 0
        while place < len(reads):
            if self.plain and shape is self.shape and not refresh:
                place = self._add_plain(reads, place, speed_bps, steps)
            if place < len(reads):
                step = self.add(shape, *reads[place], speed_bps=speed_bps, refresh=refresh)
                if step is not None:
                    steps.append(step)
                place += 1
        return steps

    def _add_plain(self, reads: Sequence[Read], place: int, speed_bps: int | None, steps: list[Octets]) -> int:
        """Takes in reads from ``place`` on while nothing is in doubt, which is nearly always: what ``add`` gives, in a
        fifth of the time. Gives back the place of the first that needs a second thought."""
        if self.held_ns or self.quiet_ns or self.learned_ns or self.gap_ns or self.carried[0] or self.carried[1]:
            return place
        before_ns, (before_received, before_sent) = self.time_ns, self.values
        first = place
        for time_ns, values in reads[first:] if first else reads:
            span = time_ns - before_ns
            received, sent = values[0] - before_received, values[1] - before_sent
            most = MAX_STEP if speed_bps is None else speed_bps * span // _BITS
            if span <= 0 or not 0 <= received <= most > 0 or not 0 <= sent <= most or not (received or sent):
                break
            steps.append(Octets(time_ns, span, received, sent))
            before_ns, (before_received, before_sent) = time_ns, values
            place += 1
        if place > first:
            self.time_ns = self.rise_ns = before_ns
            self.values = (before_received, before_sent)
        return place

    def add(
        self, shape: tuple[_Column, ...], time_ns: int, values: tuple[int, ...], *, speed_bps: int | None, refresh: int
    ) -> Octets | None:
        """The step that ends with this read; None where there is none, or not yet."""
        if not self.time_ns or (shape is not self.shape and shape != self.shape):
            self._begin(shape, time_ns, values)
            return None
        if time_ns <= self.time_ns:
            return None
        counted = self._counted(time_ns, values)
        start, self.time_ns, self.values = self.time_ns, time_ns, values
        if counted is None:
            self._doubt()
            return None
        empty = not any(counted)
        self._learn(start, time_ns, empty=empty)
        stale = max(refresh, self.learned_ns)
        if empty and stale and not any(self.carried) and time_ns - (self.held_ns or start) <= stale:
            self.held_ns = self.held_ns or start
            return None
        idle = start - self.quiet_ns if self.quiet_ns and not empty else 0
        if not empty:
            self.quiet_ns = 0
        # A burst after silence is no late refresh: its bytes came now, and the silence was one.
        sudden = not refresh and sum(counted) > SUDDEN * self.size
        start, self.held_ns = start if sudden else self.held_ns or start, 0
        self.size = self.size if empty else sum(counted)
        return self._step(start, time_ns, counted, speed_bps, slack_ns=min(max(stale, idle), STALE_MAX_NS))

    def _begin(self, shape: tuple[_Column, ...], time_ns: int, values: tuple[int, ...]) -> None:
        self.shape, self.time_ns, self.values = shape, time_ns, values
        self.plain = _is_plain(shape)
        self.held_ns = self.quiet_ns = self.rise_ns = self.gap_ns = self.learned_ns = 0
        self.carried = [0, 0]

    def _doubt(self) -> None:
        self.doubts += 1
        self.held_ns = self.quiet_ns = self.rise_ns = self.gap_ns = 0
        self.carried = [0, 0]

    def _counted(self, time_ns: int, values: tuple[int, ...]) -> list[int] | None:
        """Bytes by direction since the read before; None if one counter does not say."""
        total = [0, 0]
        for column, before, now in zip(self.shape, self.values, values, strict=True):
            delta = difference(before, now, column.meaning, time_ns - self.time_ns)
            if isinstance(delta, Doubt):
                return None
            total[column.direction] += delta * column.meaning.scale
        return total

    def _learn(self, start: int, time_ns: int, *, empty: bool) -> None:
        """Something at every third read, twice running: that is how often it is refreshed."""
        if empty:
            self.quiet_ns = self.quiet_ns or start
            return
        gap = time_ns - (self.rise_ns or self.quiet_ns) if self.quiet_ns else 0
        tick = time_ns - start
        alike = gap and self.gap_ns and abs(gap - self.gap_ns) <= tick and gap <= LEARNED_MAX_NS
        if alike:
            self.learned_ns = gap
        elif not gap and not self.gap_ns:
            self.learned_ns = 0  # two reads running that bring something, twice
        self.gap_ns, self.rise_ns = gap, time_ns

    def _step(
        self, start: int, time_ns: int, counted: Sequence[int], speed_bps: int | None, *, slack_ns: int
    ) -> Octets | None:
        most = most_bytes(speed_bps, time_ns - start)
        room = most_bytes(speed_bps, slack_ns + max(TOLERANCE_NS, (time_ns - start) // 20)) or 0
        shown: list[int | None] = [None, None]
        for direction in {column.direction for column in self.shape}:
            total = counted[direction] + self.carried[direction]
            given = total if most is None else min(total, most)
            if total - given > max(room, self.carried[direction]):
                self._doubt()
                return None
            shown[direction], self.carried[direction] = given, total - given
        return Octets(time_ns, time_ns - start, shown[RECEIVE], shown[TRANSMIT])

    def encode(self) -> list[Any]:
        columns = [
            [column.place, column.direction, column.meaning.name, column.meaning.scale, column.meaning.bits,
             column.meaning.saturates] for column in self.shape
        ]  # fmt: skip
        return [
            columns, self.time_ns, self.values, self.held_ns, self.quiet_ns, self.rise_ns, self.gap_ns,
            self.learned_ns, self.carried, self.doubts, self.size,
        ]  # fmt: skip

    @classmethod
    def decode(cls, state: Sequence[Any]) -> Self:
        shape = tuple(
            _Column(place, direction, Meaning(name, "bytes", scale, bits, saturates))
            for place, direction, name, scale, bits, saturates in state[0]
        )
        found = cls(shape, state[1], tuple(state[2]), *state[3:])
        found.plain = _is_plain(shape)
        return found


def _is_plain(shape: Sequence[_Column]) -> bool:
    wide = all(column.meaning.bits == 64 and column.meaning.scale == 1 for column in shape)
    return wide and [column.direction for column in shape] == [RECEIVE, TRANSMIT]


class Meter:
    """Octets of one NIC, going on from batch to batch."""

    def __init__(self) -> None:
        self._wire = _Track()  # driver statistics
        self._host = _Track()  # the kernel's table and the RDMA port
        self._through_ns = 0  # end of the newest step
        self._wire_ns = 0  # newest read of the wire's count
        self._wire_interval_ns = 0
        self._rdma_ns = 0  # newest word of an RDMA port
        self._sum: tuple[tuple[_Column, ...], ...] = ((), (), ())  # two shapes, and both as one

    @property
    def doubts(self) -> int:
        """Steps left out so far: resets, wraps that cannot be told, more than the link carries."""
        return self._wire.doubts + self._host.doubts

    def add(self, records: Iterable[NicSamples]) -> list[Octets]:
        """Steps that end with the reads of these records: those of one NIC out of one batch, each source once or more.

        Reads not newer than what is known change nothing.
        """
        by_source: dict[int, list[NicSamples]] = {}
        for record in records:
            by_source.setdefault(normalised(record.counter_source), []).append(record)
        wire = self._add_wire(by_source.get(COUNTER_SOURCE_ETHTOOL, ()))
        host = self._add_host(by_source)
        return self._joined(self._chosen(wire, host, by_source.get(COUNTER_SOURCE_NETDEV, ())))

    def _add_wire(self, records: Sequence[NicSamples]) -> list[Octets]:
        steps: list[Octets] = []
        for record in records:
            shape = _columns(COUNTER_SOURCE_ETHTOOL, record.driver, tuple(record.counters))
            if not shape:
                continue
            refresh = counters.refresh_ns(record.driver, of_netdev=False)
            reads = _ticks(record, shape)
            steps += self._wire.add_all(shape, reads, speed_bps=_limit(record), refresh=refresh)
            self._wire_ns = max([self._wire_ns, *(time_ns for time_ns, _ in reads)])
            self._wire_interval_ns = record.interval_ns
        return steps

    def _add_host(self, by_source: Mapping[int, Sequence[NicSamples]]) -> list[Octets]:
        table, rdma = by_source.get(COUNTER_SOURCE_NETDEV, ()), by_source.get(COUNTER_SOURCE_RDMA, ())
        self._rdma_ns = max([self._rdma_ns, *map(_newest, rdma)]) if rdma else self._rdma_ns
        if any(record.link_layer == INFINIBAND for record in rdma):
            parts = [(COUNTER_SOURCE_RDMA, rdma)]
        else:
            parts = [(COUNTER_SOURCE_NETDEV, table)]
            if self._rdma_ns and max(map(_newest, table), default=0) - self._rdma_ns < REMEMBERED_NS:
                parts.append((COUNTER_SOURCE_RDMA, rdma))
        if not parts[0][1]:
            return []
        record = parts[0][1][0]
        speed_bps, refresh = _limit(record), counters.refresh_ns(record.driver, of_netdev=True)
        if len(parts) == 1 and len(parts[0][1]) == 1:
            shape = _columns(parts[0][0], record.driver, tuple(record.counters))
            reads = _ticks(record, shape) if shape else ()
            return self._host.add_all(shape, reads, speed_bps=speed_bps, refresh=refresh)
        steps = []
        for time_ns, shape, values in self._summed(parts):
            step = self._host.add(shape, time_ns, values, speed_bps=speed_bps, refresh=refresh)
            if step is not None:
                steps.append(step)
        return steps

    def _summed(
        self, parts: Sequence[tuple[int, Sequence[NicSamples]]]
    ) -> Iterable[tuple[int, tuple[_Column, ...], tuple[int, ...]]]:
        """Reads at which every part of the sum was there."""
        read: list[dict[int, tuple[tuple[_Column, ...], tuple[int, ...]]]] = []
        for source, records in parts:
            found: dict[int, tuple[tuple[_Column, ...], tuple[int, ...]]] = {}
            for record in records:
                shape = _columns(source, record.driver, tuple(record.counters))
                found.update((time_ns, (shape, values)) for time_ns, values in (_ticks(record, shape) if shape else ()))
            read.append(found)
        first, *others = read
        for time_ns in sorted(first):
            shape, values = first[time_ns]
            if not others:
                yield time_ns, shape, values
            elif time_ns in others[0]:
                more, and_values = others[0][time_ns]
                if shape is not self._sum[0] or more is not self._sum[1]:
                    self._sum = (shape, more, shape + more)
                yield time_ns, self._sum[2], values + and_values

    def _chosen(self, wire: list[Octets], host: list[Octets], table: Sequence[NicSamples]) -> list[Octets]:
        newest = host[-1].end_time_ns if host else 0
        if not self._wire_ns or newest - self._wire_ns > REMEMBERED_NS:
            return host
        finer = any(
            record.interval_ns * 2 <= self._wire_interval_ns and not record.coverage and record.driver not in BOUNDLESS
            and not counters.refresh_ns(record.driver, of_netdev=True) for record in table
        )  # fmt: skip
        return host if finer else wire

    def _joined(self, steps: list[Octets]) -> list[Octets]:
        """Steps behind the newest given out; of one that began before its end, the share of time behind it."""
        if steps and steps[0].start_time_ns >= self._through_ns:
            self._through_ns = steps[-1].end_time_ns
            return steps
        found = []
        for step in steps:
            if step.end_time_ns > self._through_ns:
                found.append(_behind(step, self._through_ns))
                self._through_ns = step.end_time_ns
        return found

    def encode(self) -> list[Any]:
        """What the next batch goes on from, as JSON knows it."""
        numbers = [self._through_ns, self._wire_ns, self._wire_interval_ns, self._rdma_ns]
        return [self._wire.encode(), self._host.encode(), numbers]

    @classmethod
    def decode(cls, state: Sequence[Any]) -> Self:
        """The meter again."""
        found = cls()
        found._wire, found._host = _Track.decode(state[0]), _Track.decode(state[1])
        found._through_ns, found._wire_ns, found._wire_interval_ns, found._rdma_ns = state[2]
        return found


def _behind(step: Octets, through_ns: int) -> Octets:
    if step.start_time_ns >= through_ns:
        return step
    span = step.end_time_ns - through_ns
    shares = (None if n is None else n * span // step.span_ns for n in (step.receive_bytes, step.transmit_bytes))
    return Octets(step.end_time_ns, span, *shares)


def wire_octets(samples: Iterable[NicSamples]) -> list[Octets]:
    """Steps of one NIC over all its records of some time, in order: what a fresh meter gives."""
    batches: dict[tuple[int, int], list[NicSamples]] = {}
    for record in samples:
        batches.setdefault((record.source.position, record.source.seq), []).append(record)
    meter = Meter()
    return [step for batch in sorted(batches) for step in meter.add(batches[batch])]


class Seconds:
    """The highest rate over a second, whatever the reads: of steps shorter than that, the newest that make one up."""

    def __init__(self, steps: Iterable[Sequence[Any]] = ()) -> None:
        self._steps = deque(Octets(*step) for step in steps)

    def add(self, step: Octets) -> tuple[float | None, float | None]:
        """Bytes a second, received and sent, over the second that ends with the step; None: no whole second."""
        if step.span_ns >= NEARLY_NS:
            self._steps.clear()
            self._steps.append(step)
            received, sent = step.receive_bytes, step.transmit_bytes
            scale = SECOND / step.span_ns
            return None if received is None else received * scale, None if sent is None else sent * scale
        if self._steps and step.start_time_ns - self._steps[-1].end_time_ns > TOLERANCE_NS:
            self._steps.clear()
        self._steps.append(step)
        span = sum(one.span_ns for one in self._steps)
        while span - self._steps[0].span_ns >= NEARLY_NS:
            span -= self._steps.popleft().span_ns
        if span < NEARLY_NS:
            return None, None
        both = ([one.receive_bytes for one in self._steps], [one.transmit_bytes for one in self._steps])
        rates = [None if None in row else sum(count or 0 for count in row) * SECOND / span for row in both]
        return rates[RECEIVE], rates[TRANSMIT]

    def encode(self) -> list[list[int | None]]:
        """As JSON knows it."""
        return [[one.end_time_ns, one.span_ns, one.receive_bytes, one.transmit_bytes] for one in self._steps]


def _newest(record: NicSamples) -> int:
    times = np.asarray(record.tick_times_ns)
    return int(times[-1]) if len(times) else 0


def _limit(record: NicSamples) -> int:
    """What the NIC carries at most: its speed, where that is one. Whoever holds an agent's key can sign any count."""
    speed_bps = None if record.driver in BOUNDLESS else record.speed_bps
    return MOST_BPS if speed_bps is None else min(speed_bps, MOST_BPS)


def _ticks(record: NicSamples, shape: tuple[_Column, ...]) -> Sequence[Read]:
    """Reads at which all the counters were there."""
    times: list[int] = np.asarray(record.tick_times_ns).tolist()
    values, present = np.asarray(record.values), np.asarray(record.present)
    rows = [values[column.place].tolist() for column in shape]
    if np.count_nonzero(present) == present.size:
        return list(zip(times, zip(*rows, strict=True), strict=True))
    seen = zip(*(present[column.place].tolist() for column in shape), strict=True)
    found = zip(times, zip(*rows, strict=True), seen, strict=True)
    return [(time_ns, row) for time_ns, row, there in found if all(there)]
