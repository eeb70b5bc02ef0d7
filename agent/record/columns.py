"""Frozen results -> the messages of ``record.proto``, column by column. Pure.

Each function fills a message in place, with one ``extend`` per column over a list built once: a message per sample
would cost eighty times as much (DESIGN, section 6). Results that contradict themselves are a fault of ours and fail
an assertion; what a column means stands in ``proto/bandwitness/README.md``.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, cast

from agent import result
from bandwitness.identity import short_id
from bandwitness.v1.record_pb2 import (
    LOSS_DIRECTION_EITHER,
    LOSS_DIRECTION_FORWARD,
    LOSS_DIRECTION_REVERSE,
    PACKET_OUTCOME_REPLIED,
    AgentStatus,
    ClockState,
    CounterSource,
    Gap,
    NicColumns,
    OneWayColumns,
    RoundTripColumns,
    SelfCheck,
    ThroughputRun,
    TrainerMark,
)

_MAX_RUN = (1 << 28) - 1  # outcome_run is 32 bits wide, 4 of them the outcome
_MASK_64 = (1 << 64) - 1
_SIGN_64 = 1 << 63


def signed_64(value: int) -> int:
    """``value`` modulo 2^64 as a signed number: how a counter or a difference of counters travels in a sint64."""
    value &= _MASK_64
    return value - (1 << 64) if value & _SIGN_64 else value


def _text(text: str) -> str:
    """``text`` as protobuf takes it: what a tool printed may hold bytes that are not UTF-8."""
    return text.encode("utf-8", "replace").decode()


def fill_round_trip(columns: RoundTripColumns, batch: result.RoundTripBatch) -> None:
    """Writes all samples and marks of ``batch``. Paths without a sample in this flush leave no entry."""
    counts, times, outcomes = batch.sample_counts, batch.send_times_ns, batch.outcomes
    assert len(batch.path_ids) == len(batch.first_sequences) == len(counts)
    assert sum(counts) == len(times) == len(outcomes)
    assert len(batch.round_trip_delays_ns) + len(batch.delay_faults) == list(outcomes).count(PACKET_OUTCOME_REPLIED)
    method: Any = batch.method
    stamp_source: Any = batch.stamp_source
    columns.method = method
    columns.stamp_source = stamp_source
    columns.interval_ns = batch.interval_ns
    columns.waiting_time_ns = batch.waiting_time_ns
    columns.base_time_ns = times[0] if times else 0
    _fill_paths(columns, batch)
    columns.outcome_run.extend(outcome_runs(outcomes))
    columns.round_trip_delay_ns.extend(batch.round_trip_delays_ns)
    if batch.delay_faults:
        columns.delay_fault_position.extend([position for position, _ in batch.delay_faults])
        faults: list[Any] = [fault for _, fault in batch.delay_faults]
        columns.delay_fault.extend(faults)
    if batch.marks:
        kinds: list[Any] = [mark.kind for mark in batch.marks]
        columns.mark_path_id.extend([mark.path_id for mark in batch.marks])
        columns.mark_sequence.extend([mark.sequence for mark in batch.marks])
        columns.mark.extend(kinds)
        columns.mark_delay_ns.extend([mark.delay_ns or 0 for mark in batch.marks])


def _fill_paths(columns: RoundTripColumns, batch: result.RoundTripBatch) -> None:
    base, interval, times = columns.base_time_ns, batch.interval_ns, batch.send_times_ns
    ids: list[int] = []
    sequences: list[int] = []
    counts: list[int] = []
    hop_limits: list[int] = []
    offsets: list[int] = []
    deviations: list[int] = []
    start = 0
    told = batch.hop_limits or [0] * len(batch.path_ids)
    table = zip(batch.path_ids, batch.first_sequences, batch.sample_counts, told, strict=True)
    for path_id, sequence, count, hop_limit in table:
        if not count:
            continue
        hop_limits.append(hop_limit)
        ids.append(path_id)
        sequences.append(sequence)
        counts.append(count)
        offsets.append(times[start] - base)
        end = start + count
        if count == 2:  # the common case: once a second, flushed every two
            deviations.append(times[start + 1] - times[start] - interval)
        elif count > 2:
            deviations.extend([times[i] - times[i - 1] - interval for i in range(start + 1, end)])
        start = end
    columns.path_id.extend(ids)
    columns.first_sequence.extend(sequences)
    columns.sample_count.extend(counts)
    if any(hop_limits):
        columns.reply_hop_limit.extend(hop_limits)
    columns.first_send_offset_ns.extend(offsets)
    columns.send_deviation_ns.extend(deviations)


def outcome_runs(outcomes: Sequence[int]) -> list[int]:
    """``length << 4 | outcome``, run after run, across the borders of paths."""
    runs: list[int] = []
    for outcome, group in groupby(outcomes):
        length = sum(1 for _ in group)
        while length > _MAX_RUN:
            runs.append(_MAX_RUN << 4 | outcome)
            length -= _MAX_RUN
        runs.append(length << 4 | outcome)
    return runs


def fill_one_way(columns: OneWayColumns, batch: result.OneWayBatch) -> None:
    """Writes one-way losses, an entry a direction, and one-way delays with both ends' clock errors."""
    starts = [part[0].send_time_ns for part in (batch.losses, batch.delays) if part]
    columns.base_time_ns = starts[0] if starts else 0
    for loss in batch.losses:
        for direction, count in (
            (LOSS_DIRECTION_FORWARD, loss.forward_lost),
            (LOSS_DIRECTION_REVERSE, loss.reverse_lost),
            (LOSS_DIRECTION_EITHER, loss.either_lost),
        ):
            if count:
                columns.loss_path_id.append(loss.path_id)
                columns.loss_direction.append(direction)
                columns.loss_first_sequence.append(loss.first_sequence)
                columns.loss_last_sequence.append(loss.last_sequence)
                columns.loss_count.append(count)
                columns.loss_send_offset_ns.append(loss.send_time_ns - columns.base_time_ns)
    columns.delay_path_id.extend([delay.path_id for delay in batch.delays])
    columns.delay_sequence.extend([delay.sequence for delay in batch.delays])
    columns.forward_delay_ns.extend([delay.forward_ns for delay in batch.delays])
    columns.reverse_delay_ns.extend([delay.reverse_ns for delay in batch.delays])
    columns.sender_clock_error_ns.extend([delay.sender_error_ns for delay in batch.delays])
    columns.reflector_clock_error_ns.extend([delay.reflector_error_ns for delay in batch.delays])
    columns.delay_send_offset_ns.extend([delay.send_time_ns - columns.base_time_ns for delay in batch.delays])


def fill_throughput_run(message: ThroughputRun, run: result.ThroughputRun) -> None:
    """Writes one end's view of one attempt; what the report does not say stays absent."""
    report = run.report
    role: Any = run.role
    outcome: Any = report.outcome
    message.slot_id = run.slot_id
    message.group_id = run.group_id
    message.role = role
    message.path_id = short_id(run.path)
    message.profile = run.profile
    message.outcome = outcome
    message.outcome_detail = _text(report.detail)
    message.start_time_ns = run.start_time_ns
    message.end_time_ns = run.end_time_ns
    message.elapsed_ns = run.elapsed_ns
    message.reverse = run.reverse
    message.port = run.port
    message.peer_address = _text(report.peer_address)
    message.engine_version = _text(report.version)
    message.congestion_control = _text(report.congestion_control)
    message.receiver_derived = report.receiver_derived
    for name in (
        "sender_bytes",
        "sender_duration_ns",
        "receiver_bytes",
        "receiver_duration_ns",
        "retransmits",
        "local_cpu_ratio",
        "remote_cpu_ratio",
        "udp_packets",
        "udp_lost_packets",
        "interarrival_jitter_ns",
        "return_sender_bytes",
        "return_receiver_bytes",
        "return_receiver_duration_ns",
    ):
        value = getattr(report, name)
        if value is not None:
            setattr(message, name, value)
    message.processes = run.processes
    if run.port_bytes is not None and run.port_duration_ns is not None:
        message.port_bytes, message.port_duration_ns = run.port_bytes, run.port_duration_ns
    _fill_intervals(message, report.intervals)
    for gate in run.gates:
        kind: Any = gate.kind
        phase: Any = gate.phase
        message.gate.add(
            kind=kind, phase=phase, tripped=gate.tripped, value=gate.value, limit=gate.limit, detail=_text(gate.detail)
        )
    message.flag.extend([_text(flag) for flag in report.flags])
    message.raw_report = run.raw_report
    message.raw_report_cut = run.raw_report_cut
    message.stranger.extend([_text(stranger) for stranger in run.strangers])


def _fill_intervals(message: ThroughputRun, intervals: Sequence[result.Interval]) -> None:
    if not intervals:
        return
    columns = message.interval
    columns.start_ns.extend([interval.start_ns for interval in intervals])
    columns.duration_ns.extend([interval.duration_ns for interval in intervals])
    columns.bytes.extend([interval.bytes for interval in intervals])
    columns.omitted.extend([interval.omitted for interval in intervals])
    for name in ("retransmits", "round_trip_delay_ns", "congestion_window_bytes", "return_bytes"):
        values = [getattr(interval, name) for interval in intervals]
        if None not in values:  # a column is whole or absent: half of one could not be told apart from zeros
            getattr(columns, name).extend(values)


def fill_nic(columns: NicColumns, batch: result.NicBatch, counter_set_id: int) -> None:
    """Writes the counters of one NIC over one flush: values, then differences, present ones only."""
    ticks = batch.tick_times_ns
    assert len(batch.values) == len(batch.counters)
    assert all(len(row) == len(ticks) for row in batch.values)
    assert not ticks or ticks[0] == batch.base_monotonic_ns
    columns.nic = batch.nic
    columns.counter_set_id = counter_set_id
    columns.base_time_ns = batch.base_time_ns
    columns.base_monotonic_ns = batch.base_monotonic_ns
    columns.interval_ns = batch.interval_ns
    columns.tick_count = len(ticks)
    columns.tick_deviation_ns.extend(
        [ticks[i] - ticks[i - 1] - batch.interval_ns for i in range(1, len(ticks))],
    )
    values: list[int] = []
    for row in batch.values:
        before = 0
        for value in row:
            if value is not None:
                values.append(signed_64(value - before))
                before = value
    columns.value.extend(values)
    if len(values) != len(ticks) * len(batch.values):
        columns.presence_run.extend(presence_runs(batch.values))
    for name in ("speed_bps", "mtu_bytes", "carrier", "carrier_changes", "full_duplex", "numa_node"):
        value = getattr(batch, name)
        if value is not None:
            setattr(columns, name, value)
    columns.fault = _text(batch.fault)
    columns.source = cast("CounterSource.ValueType", batch.source)
    columns.driver, columns.device = _text(batch.driver), _text(batch.device)
    columns.kind, columns.link_layer = batch.kind, _text(batch.link_layer)
    columns.coverage.extend(batch.coverage)
    columns.lower.extend(map(_text, batch.lower))


def presence_runs(rows: Sequence[Sequence[int | None]]) -> list[int]:
    """``length << 1 | present`` over counters × ticks."""
    flat = (value is not None for row in rows for value in row)
    return [sum(1 for _ in group) << 1 | present for present, group in groupby(flat)]


def fill_gap(message: Gap, gap: result.Gap) -> None:
    """Writes what is missing, and why."""
    reason: Any = gap.reason
    batch_class: Any = gap.batch_class
    message.reason = reason
    message.batch_class = batch_class
    message.from_time_ns = gap.from_time_ns
    message.to_time_ns = gap.to_time_ns
    if gap.records is not None:
        message.records = gap.records
    message.detail = _text(gap.detail)


def fill_mark(message: TrainerMark, mark: result.TrainerMark) -> None:
    """Writes what a trainer said; what it did not say stays absent."""
    phase: Any = mark.phase
    message.phase = phase
    message.time_ns = mark.time_ns
    message.kind = mark.kind
    message.job = mark.job
    for name in ("said_time_ns", "step", "bytes", "rank"):
        value = getattr(mark, name)
        if value is not None:
            setattr(message, name, value)
    message.label_name.extend(name for name, _ in mark.labels)
    message.label_value.extend(value for _, value in mark.labels)
    message.user_id = mark.user_id
    message.process_id = mark.process_id


def fill_status(message: AgentStatus, status: result.Status) -> None:
    """Writes the agent's word on itself."""
    message.time_ns = status.time_ns
    message.spool_bytes = status.spool_bytes
    message.records_dropped = status.records_dropped
    for name in ("spool_oldest_time_ns", "resident_memory_bytes", "cpu_time_ns"):
        value = getattr(status, name)
        if value is not None:
            setattr(message, name, value)
    for part in status.parts:
        message.part.add(part=part.part, working=part.working, state=part.state, detail=_text(part.detail))
    message.iperf3_version = _text(status.iperf3_version)


_CHECK_PLAIN = ("from_time_ns", "to_time_ns", "loopback_sent", "loopback_lost")
_CHECK_OPTIONAL = (
    "loopback_delay_p50_ns", "loopback_delay_max_ns", "lateness_p50_ns", "lateness_max_ns", "cpu_pressure_ratio",
    "own_wait_ratio", "steal_ratio",
)  # fmt: skip


def fill_self_check(message: SelfCheck, check: result.SelfCheck) -> None:
    """Writes what the agent found when it measured itself."""
    for name in _CHECK_PLAIN:
        setattr(message, name, getattr(check, name))
    for name in _CHECK_OPTIONAL:
        value = getattr(check, name)
        if value is not None:
            setattr(message, name, value)
    message.doubtful = bool(check.reasons)
    message.reason.extend(check.reasons)


def fill_clock(message: ClockState, reading: result.ClockReading) -> None:
    """Writes what the kernel or chrony says of the wall clock."""
    source: Any = reading.source
    message.source = source
    message.synchronised = reading.synchronised
    if reading.offset_ns is not None:
        message.offset_ns = reading.offset_ns
    if reading.error_bound_ns is not None:
        message.error_bound_ns = reading.error_bound_ns
