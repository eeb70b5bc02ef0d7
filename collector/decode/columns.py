"""Columns of one record into numpy arrays, without a Python loop over samples. Pure.

Every length is checked against the bytes that were really sent before anything of that length is made: a run length
or a count costs a few bytes on the wire and must not cost gigabytes here.
"""

import numpy as np
from numpy.typing import NDArray

from bandwitness.v1.record_pb2 import (
    DELAY_FAULT_UNSPECIFIED,
    LOSS_DIRECTION_EITHER,
    LOSS_DIRECTION_FORWARD,
    PACKET_MARK_UNSPECIFIED,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_SKIPPED,
    NicColumns,
    OneWayColumns,
    RoundTripColumns,
)
from collector.model import CounterSetRow, NicSamples, OneWayDelays, OneWayLossRow, RoundTripSamples, Source

Ints = NDArray[np.int64]

MAX_TIME_NS = 1 << 62  # the year 2116; sums of two stay inside 63 bits
MAX_STEP_NS = 10 * 86_400 * 1_000_000_000  # between two samples, and of a round trip
MAX_COUNT = (1 << 63) - 1  # what a row holds
MAX_CELLS = 4_000_000  # counters × ticks of one record


class ColumnsError(ValueError):
    """Columns that contradict each other; the text says how."""


def round_trip(source: Source, columns: RoundTripColumns) -> RoundTripSamples:
    """Samples of one RoundTripColumns.

    Raises:
        ColumnsError: lengths that do not fit each other, or values beyond all sense.
    """
    path_ids = np.array(columns.path_id, np.uint64)
    counts = np.array(columns.sample_count, np.int64)
    first_sequences = np.array(columns.first_sequence, np.uint64)
    offsets = np.array(columns.first_send_offset_ns, np.int64)
    if not len(path_ids) == len(counts) == len(first_sequences) == len(offsets):
        raise ColumnsError("the path table has columns of different length")
    deviations = np.array(columns.send_deviation_ns, np.int64)
    total = len(deviations) + int(np.count_nonzero(counts))
    if int(counts.sum()) != total:
        raise ColumnsError(f"{int(counts.sum())} samples counted, {total} sent")
    outcomes = _outcomes(columns, total)
    return RoundTripSamples(
        source=source,
        method=columns.method,
        stamp_source=columns.stamp_source,
        interval_ns=_step(columns.interval_ns),
        waiting_time_ns=_step(columns.waiting_time_ns),
        path_ids=path_ids,
        first_sequences=first_sequences,
        sample_counts=counts,
        send_times_ns=_send_times(columns, counts, offsets, deviations),
        outcomes=outcomes,
        round_trip_delays_ns=_delays(columns, outcomes),
        marks=_marks(columns),
        hop_limits=_hop_limits(columns, len(path_ids)),
    )


def one_way_losses(source: Source, columns: OneWayColumns) -> list[OneWayLossRow]:
    """Losses of one OneWayColumns.

    Raises:
        ColumnsError: lengths that do not fit each other, or values beyond all sense.
    """
    names = ("loss_direction", "loss_first_sequence", "loss_last_sequence", "loss_count", "loss_send_offset_ns")
    table = [columns.loss_path_id, *(getattr(columns, name) for name in names)]
    if len({len(column) for column in table}) != 1:
        raise ColumnsError("one-way losses have columns of different length")
    rows = []
    for entry, (path_id, direction, first, last, lost, offset_ns) in enumerate(zip(*table, strict=True)):
        time_ns = columns.base_time_ns + offset_ns
        if not LOSS_DIRECTION_FORWARD <= direction <= LOSS_DIRECTION_EITHER:
            raise ColumnsError(f"a loss in direction {direction}")
        if not (first <= last < 1 << 63 and 0 < lost <= last - first + 1):
            raise ColumnsError(f"{lost} packets lost from {first} to {last}")
        if not 0 <= time_ns < MAX_TIME_NS:
            raise ColumnsError("times beyond all sense")
        rows.append(OneWayLossRow(source, entry, path_id, direction, first, last, lost, time_ns))
    return rows


def one_way_delays(source: Source, columns: OneWayColumns) -> OneWayDelays | None:
    """Delays of one OneWayColumns; None where there are none.

    Raises:
        ColumnsError: lengths that do not fit each other, or values beyond all sense.
    """
    path_ids, sequences = np.array(columns.delay_path_id, np.uint64), np.array(columns.delay_sequence, np.uint64)
    offsets = np.array(columns.delay_send_offset_ns, np.int64)
    forward, reverse = np.array(columns.forward_delay_ns, np.int64), np.array(columns.reverse_delay_ns, np.int64)
    ours = np.array(columns.sender_clock_error_ns, np.uint64)
    theirs = np.array(columns.reflector_clock_error_ns, np.uint64)
    if {len(column) for column in (sequences, offsets, forward, reverse, ours, theirs)} != {len(path_ids)}:
        raise ColumnsError("one-way delays have columns of different length")
    if not len(path_ids):
        return None
    base_ns = columns.base_time_ns
    if not 0 <= base_ns < MAX_TIME_NS or base_ns + int(offsets.min()) < 0:
        raise ColumnsError("times beyond all sense")
    if base_ns + int(offsets.max()) >= MAX_TIME_NS:
        raise ColumnsError("times beyond all sense")
    if max(max(int(column.max()), -int(column.min())) for column in (forward, reverse)) > MAX_STEP_NS:
        raise ColumnsError("a one-way delay beyond all sense")
    if max(int(ours.max()), int(theirs.max())) > MAX_STEP_NS:
        raise ColumnsError("a clock error beyond all sense")
    bounds = ours.astype(np.int64), theirs.astype(np.int64)
    return OneWayDelays(source, path_ids, sequences, offsets + base_ns, forward, reverse, *bounds)


def nic(source: Source, node: str, columns: NicColumns, counter_set: CounterSetRow) -> NicSamples:
    """Samples of one NicColumns, counters unfolded from their differences.

    Raises:
        ColumnsError: lengths that do not fit each other, or values beyond all sense.
    """
    counters, ticks = len(counter_set.counters), columns.tick_count
    deviations = np.array(columns.tick_deviation_ns, np.int64)
    if ticks != (len(deviations) + 1 if ticks else 0):
        raise ColumnsError(f"{ticks} ticks counted, {len(deviations)} deviations sent")
    if columns.speed_bps >= 1 << 63:
        raise ColumnsError(f"a speed of {columns.speed_bps} bit/s")
    if counters * ticks > MAX_CELLS:
        raise ColumnsError(f"{counters} counters × {ticks} ticks in one record")
    present, values = _unfolded(columns, counters, ticks)
    steps = deviations + _step(columns.interval_ns)
    _check_span(columns.base_time_ns, steps)
    times = np.empty(ticks, np.int64)
    if ticks:
        times[0] = 0
        steps.cumsum(out=times[1:])
        times += columns.base_time_ns
    return NicSamples(
        source=source,
        node=node,
        nic=columns.nic,
        counters=counter_set.counters,
        tick_times_ns=times,
        values=values,
        present=present,
        speed_bps=columns.speed_bps if columns.HasField("speed_bps") else None,
        mtu_bytes=columns.mtu_bytes if columns.HasField("mtu_bytes") else None,
        carrier=columns.carrier if columns.HasField("carrier") else None,
        fault=columns.fault,
        counter_source=columns.source,
        driver=columns.driver,
        device=columns.device,
        coverage=tuple(columns.coverage),
        interval_ns=columns.interval_ns,
        kind=columns.kind,
        lower=tuple(columns.lower),
        link_layer=columns.link_layer,
        carrier_changes=min(columns.carrier_changes, MAX_COUNT) if columns.HasField("carrier_changes") else None,
        full_duplex=columns.full_duplex if columns.HasField("full_duplex") else None,
    )


def _unfolded(columns: NicColumns, counters: int, ticks: int) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    """Presence and values, both [counter, tick]; values are running sums modulo 2^64, 0 where absent."""
    flat = np.array(columns.value, np.int64).view(np.uint64)
    if not columns.presence_run:
        if len(flat) != counters * ticks:
            raise ColumnsError(f"{len(flat)} values sent, {counters * ticks} announced")
        return np.ones((counters, ticks), np.bool_), flat.reshape(counters, ticks).cumsum(axis=1, dtype=np.uint64)
    present = _present(columns, counters, ticks)
    counts = np.count_nonzero(present, axis=1)
    if len(flat) != int(counts.sum()):
        raise ColumnsError(f"{len(flat)} values sent, {int(counts.sum())} announced")
    sums = flat.cumsum(dtype=np.uint64)
    starts = (counts.cumsum() - counts)[counts > 0]
    before = sums[starts] - flat[starts]  # modulo 2^64: 0 for the first counter
    values = np.zeros((counters, ticks), np.uint64)
    values[present] = sums - np.repeat(before, counts[counts > 0])
    return present, values


def _present(columns: NicColumns, counters: int, ticks: int) -> NDArray[np.bool_]:
    runs = np.array(columns.presence_run, np.int64)
    if int((runs >> 1).sum()) != counters * ticks:
        raise ColumnsError("the presence runs do not cover counters × ticks")
    return np.repeat((runs & 1).astype(np.bool_), runs >> 1).reshape(counters, ticks)


def _outcomes(columns: RoundTripColumns, total: int) -> NDArray[np.uint8]:
    runs = np.array(columns.outcome_run, np.int64)
    if int((runs >> 4).sum()) != total:
        raise ColumnsError(f"{int((runs >> 4).sum())} outcomes for {total} samples")
    outcome = (runs & 15).astype(np.uint8)
    if len(outcome) and (outcome.min() < PACKET_OUTCOME_REPLIED or outcome.max() > PACKET_OUTCOME_SKIPPED):
        raise ColumnsError("an outcome that is not defined")
    return np.repeat(outcome, runs >> 4)


def _send_times(columns: RoundTripColumns, counts: Ints, offsets: Ints, deviations: Ints) -> Ints:
    filled = counts > 0
    counts, starts = counts[filled], offsets[filled]
    firsts = np.cumsum(counts) - counts
    steps = np.zeros(int(counts.sum()), np.int64)
    is_first = np.zeros(len(steps), np.bool_)
    is_first[firsts] = True
    steps[~is_first] = deviations
    steps[~is_first] += _step(columns.interval_ns)
    _check_span(columns.base_time_ns, starts)
    _check_span(columns.base_time_ns, steps)
    sums = np.cumsum(steps)
    times: Ints = sums + np.repeat(starts + columns.base_time_ns - sums[firsts], counts)
    return times


def _check_span(base_ns: int, steps: Ints) -> None:
    """Refuses what would leave 63 bits when added up (numpy would wrap in silence)."""
    size = np.abs(steps, dtype=np.float64, casting="unsafe").sum() if len(steps) else 0.0
    if not 0 <= base_ns < MAX_TIME_NS or size >= float(1 << 60):
        raise ColumnsError("times beyond all sense")


def _step(value_ns: int) -> int:
    if value_ns > MAX_STEP_NS:
        raise ColumnsError(f"an interval or waiting time of {value_ns} ns")
    return value_ns


def _delays(columns: RoundTripColumns, outcomes: NDArray[np.uint8]) -> Ints:
    """One delay a sample; -1 where the sample has none."""
    usable = outcomes == PACKET_OUTCOME_REPLIED
    positions = np.array(columns.delay_fault_position, np.int64)
    if len(positions) != len(columns.delay_fault) or DELAY_FAULT_UNSPECIFIED in columns.delay_fault:
        raise ColumnsError("delay faults without a reason")
    if len(positions):
        if positions.max() >= len(usable) or not usable[positions].all() or len(np.unique(positions)) != len(positions):
            raise ColumnsError("a delay fault on a sample that was not replied, or twice on one")
        usable[positions] = False
    delays = np.array(columns.round_trip_delay_ns, np.uint64)
    if len(delays) != int(np.count_nonzero(usable)):
        raise ColumnsError(f"{len(delays)} delays for {int(np.count_nonzero(usable))} replies")
    if len(delays) and int(delays.max()) > MAX_STEP_NS:
        raise ColumnsError(f"a round trip of {int(delays.max())} ns")
    result = np.full(len(outcomes), -1, np.int64)
    result[usable] = delays.astype(np.int64)
    return result


def _hop_limits(columns: RoundTripColumns, paths: int) -> NDArray[np.uint8] | None:
    found = np.array(columns.reply_hop_limit, np.int64)
    if not len(found):
        return None
    if len(found) != paths or int(found.max()) > 255:
        raise ColumnsError(f"{len(found)} hop limits for {paths} paths, the largest {int(found.max())}")
    return found.astype(np.uint8)


def _marks(columns: RoundTripColumns) -> tuple[tuple[int, int, int, int | None], ...]:
    sizes = {len(columns.mark_path_id), len(columns.mark_sequence), len(columns.mark), len(columns.mark_delay_ns)}
    if len(sizes) != 1 or PACKET_MARK_UNSPECIFIED in columns.mark:
        raise ColumnsError("the marks have columns of different length")
    return tuple(
        (path_id, sequence, mark, _step(delay) or None)
        for path_id, sequence, mark, delay in zip(
            columns.mark_path_id, columns.mark_sequence, columns.mark, columns.mark_delay_ns, strict=True
        )
    )
