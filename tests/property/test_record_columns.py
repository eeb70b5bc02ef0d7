"""What the columns say, read back by an independent reader that knows only ``proto/bandwitness/README.md``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent import result
from agent.record.columns import fill_gap, fill_nic, fill_round_trip, fill_status, fill_throughput_run
from bandwitness.identity import short_id
from bandwitness.v1 import record_pb2 as pb

SECOND = 1_000_000_000
WALL = st.integers(1_600_000_000 * SECOND, 1_900_000_000 * SECOND)
UINT64 = st.integers(0, 2**64 - 1)
REPLIED = pb.PACKET_OUTCOME_REPLIED


# ---------------------------------------------------------------- round trips


@dataclass(frozen=True)
class Sample:
    path_id: int
    sequence: int
    send_time_ns: int
    outcome: int
    delay_ns: int | None = None
    fault: int | None = None


@st.composite
def samples(draw: st.DrawFn) -> list[Sample]:
    """Paths one after another, each in order of sequence without holes."""
    found = []
    for path_id in draw(st.lists(UINT64, max_size=5, unique=True)):
        first = draw(st.integers(0, 2**63))
        for offset in range(draw(st.integers(0, 6))):
            outcome = draw(st.integers(REPLIED, pb.PACKET_OUTCOME_SKIPPED))
            delay, fault = None, None
            if outcome == REPLIED and draw(st.booleans()):
                delay = draw(st.integers(0, 2**63))
            elif outcome == REPLIED:
                fault = draw(st.integers(pb.DELAY_FAULT_CLOCK_STEP, pb.DELAY_FAULT_NO_STAMP))
            found.append(Sample(path_id, first + offset, draw(WALL), outcome, delay, fault))
    return found


def marks() -> st.SearchStrategy[list[result.Mark]]:
    kind = st.sampled_from([int(pb.PACKET_MARK_DUPLICATE), int(pb.PACKET_MARK_LATE)])
    return st.lists(st.builds(result.Mark, UINT64, UINT64, kind, st.none() | st.integers(1, 2**63)), max_size=4)


def batch_of(
    given_samples: Sequence[Sample], given_marks: Sequence[result.Mark], interval_ns: int
) -> result.RoundTripBatch:
    ids = list(dict.fromkeys(sample.path_id for sample in given_samples))
    of_path = [[sample for sample in given_samples if sample.path_id == path_id] for path_id in ids]
    return result.RoundTripBatch(
        method=pb.ROUND_TRIP_METHOD_ICMP_DATAGRAM,
        stamp_source=pb.STAMP_SOURCE_KERNEL,
        interval_ns=interval_ns,
        waiting_time_ns=3 * SECOND,
        path_ids=[*ids, next(i for i in range(10) if i not in ids)],  # a path with nothing to say leaves no entry
        first_sequences=[*(path[0].sequence for path in of_path), 0],
        sample_counts=[*(len(path) for path in of_path), 0],
        send_times_ns=[sample.send_time_ns for sample in given_samples],
        outcomes=[sample.outcome for sample in given_samples],
        round_trip_delays_ns=[sample.delay_ns for sample in given_samples if sample.delay_ns is not None],
        delay_faults=[(i, sample.fault) for i, sample in enumerate(given_samples) if sample.fault is not None],
        marks=given_marks,
        hop_limits=[*(1 + path[0].sequence % 255 for path in of_path), 0],
    )


def read_round_trip(columns: pb.RoundTripColumns) -> list[Sample]:
    outcomes = [run & 0xF for run in columns.outcome_run for _ in range(run >> 4)]
    faults = dict(zip(columns.delay_fault_position, columns.delay_fault, strict=True))
    delays = iter(columns.round_trip_delay_ns)
    deviations = iter(columns.send_deviation_ns)
    read: list[Sample] = []
    for path_id, first, count, offset in zip(
        columns.path_id, columns.first_sequence, columns.sample_count, columns.first_send_offset_ns, strict=True
    ):
        send_time_ns = columns.base_time_ns + offset
        for index in range(count):
            if index:
                send_time_ns += columns.interval_ns + next(deviations)
            position = len(read)
            outcome = outcomes[position]
            delay = next(delays) if outcome == REPLIED and position not in faults else None
            read.append(Sample(path_id, first + index, send_time_ns, outcome, delay, faults.get(position)))
    assert len(outcomes) == len(read)
    assert list(delays) == list(deviations) == []
    return read


@given(samples(), marks(), st.integers(1, 60 * SECOND))
def test_round_trips_come_back_as_they_were(
    given_samples: list[Sample], given_marks: list[result.Mark], interval_ns: int
) -> None:
    columns = pb.RoundTripColumns()
    fill_round_trip(columns, batch_of(given_samples, given_marks, interval_ns))
    columns = pb.RoundTripColumns.FromString(columns.SerializeToString())
    assert read_round_trip(columns) == given_samples
    assert list(columns.path_id) == list(dict.fromkeys(sample.path_id for sample in given_samples))
    assert list(columns.reply_hop_limit) == [1 + first % 255 for first in columns.first_sequence]
    assert (columns.method, columns.stamp_source) == (pb.ROUND_TRIP_METHOD_ICMP_DATAGRAM, pb.STAMP_SOURCE_KERNEL)
    assert (columns.interval_ns, columns.waiting_time_ns) == (interval_ns, 3 * SECOND)
    read_marks = [
        result.Mark(path_id, sequence, kind, delay_ns or None)
        for path_id, sequence, kind, delay_ns in zip(
            columns.mark_path_id, columns.mark_sequence, columns.mark, columns.mark_delay_ns, strict=True
        )
    ]
    assert read_marks == given_marks


def test_a_steady_minute_costs_seven_bytes_a_sample() -> None:
    """DESIGN section 6 has 6.9; a hundred paths once a second over ten seconds."""
    steady = [
        Sample(
            2**63 + path,
            10**6 + i,
            1_767_225_600 * SECOND + i * SECOND + path * 9_973_001 + i * 1_009,
            REPLIED,
            61_000 + i,
        )
        for path in range(100)
        for i in range(10)
    ]
    columns = pb.RoundTripColumns()
    fill_round_trip(columns, batch_of(steady, [], SECOND))
    assert read_round_trip(columns) == steady
    assert columns.ByteSize() / len(steady) < 8


# ---------------------------------------------------------------- counters


@st.composite
def nic_batches(draw: st.DrawFn) -> result.NicBatch:
    ticks = draw(st.integers(0, 5))
    names = [f"counter_{i}" for i in range(draw(st.integers(0, 4)))]
    times = sorted(draw(st.lists(st.integers(0, 2**62), min_size=ticks, max_size=ticks)))
    present = draw(st.booleans())
    value = UINT64 if present else st.none() | UINT64
    return result.NicBatch(
        nic=draw(st.sampled_from(["eth0", "ibr10:30"])),
        counters=names,
        base_time_ns=draw(WALL),
        base_monotonic_ns=times[0] if times else 0,
        interval_ns=draw(st.integers(1, 10 * SECOND)),
        tick_times_ns=times,
        values=[draw(st.lists(value, min_size=ticks, max_size=ticks)) for _ in names],
        speed_bps=draw(st.none() | st.integers(0, 2**63)),
        mtu_bytes=draw(st.none() | st.integers(0, 2**31)),
        carrier=draw(st.none() | st.booleans()),
        carrier_changes=draw(st.none() | st.integers(0, 2**63)),
        fault=draw(st.sampled_from(["", "no such device"])),
        source=draw(st.sampled_from(pb.CounterSource.values())),
        driver=draw(st.sampled_from(["", "mlx5_core"])),
        device=draw(st.sampled_from(["", "mlx5_0/1"])),
        coverage=draw(st.lists(st.sampled_from(["sriov_vf", "rdma_unseen"]), max_size=2).map(tuple)),
        full_duplex=draw(st.none() | st.booleans()),
        kind=draw(st.sampled_from(["", "physical", "bond"])),
        lower=draw(st.lists(st.sampled_from(["ens1f0", "ens1f1"]), max_size=2).map(tuple)),
        link_layer=draw(st.sampled_from(["", "Ethernet"])),
        numa_node=draw(st.none() | st.integers(0, 63)),
    )


def read_nic(columns: pb.NicColumns, names: Sequence[str]) -> result.NicBatch:
    times = [columns.base_monotonic_ns] * min(columns.tick_count, 1)
    for deviation in columns.tick_deviation_ns:
        times.append(times[-1] + columns.interval_ns + deviation)
    assert len(times) == columns.tick_count
    cells = columns.tick_count * len(names)
    present = [bool(run & 1) for run in columns.presence_run for _ in range(run >> 1)] or [True] * cells
    assert len(present) == cells
    stream = iter(columns.value)
    rows: list[list[int | None]] = []
    for counter in range(len(names)):
        row: list[int | None] = []
        before = 0
        for tick in range(columns.tick_count):
            if present[counter * columns.tick_count + tick]:
                before = (before + next(stream)) % 2**64
                row.append(before)
            else:
                row.append(None)
        rows.append(row)
    assert not list(stream)
    optional: dict[str, Any] = {
        name: getattr(columns, name) if columns.HasField(name) else None
        for name in ("speed_bps", "mtu_bytes", "carrier", "carrier_changes", "full_duplex", "numa_node")
    }
    plain = {name: getattr(columns, name) for name in ("fault", "source", "driver", "device", "kind", "link_layer")}
    return result.NicBatch(
        columns.nic,
        names,
        columns.base_time_ns,
        columns.base_monotonic_ns,
        columns.interval_ns,
        times,
        rows,
        coverage=tuple(columns.coverage),
        lower=tuple(columns.lower),
        **plain,
        **optional,
    )


@given(nic_batches())
def test_counters_come_back_with_missed_ticks_and_wraps(batch: result.NicBatch) -> None:
    columns = pb.NicColumns()
    fill_nic(columns, batch, counter_set_id=2**64 - 1)
    columns = pb.NicColumns.FromString(columns.SerializeToString())
    assert columns.counter_set_id == 2**64 - 1
    assert read_nic(columns, batch.counters) == batch


def test_case_23_a_counter_that_wraps_or_falls_stays_visible() -> None:
    batch = result.NicBatch("eth0", ["wraps", "reset"], 1, 1, 1, [1, 2], [[2**64 - 6, 4], [4_294_960_000, 12_296]])
    columns = pb.NicColumns()
    fill_nic(columns, batch, 1)
    assert list(columns.value) == [-6, 10, 4_294_960_000, 12_296 - 4_294_960_000]
    assert read_nic(columns, batch.counters) == batch


# ---------------------------------------------------------------- throughput, gaps, status


def _reports() -> st.SearchStrategy[result.Report]:
    count = st.none() | st.integers(0, 2**63)
    ratio = st.none() | st.floats(0, 8)
    interval = st.builds(
        result.Interval,
        start_ns=st.integers(0, 2**40),
        duration_ns=st.integers(0, 2**40),
        bytes=st.integers(0, 2**50),
        omitted=st.booleans(),
        retransmits=st.integers(0, 2**20),
        round_trip_delay_ns=st.none(),
        congestion_window_bytes=st.integers(0, 2**30),
    )
    return st.builds(
        result.Report,
        outcome=st.sampled_from([int(value) for value in pb.RunOutcome.values() if value]),
        detail=st.text(max_size=20),
        version=st.sampled_from(["", "3.12"]),
        congestion_control=st.sampled_from(["", "cubic"]),
        sender_bytes=count,
        sender_duration_ns=count,
        receiver_bytes=count,
        receiver_duration_ns=count,
        receiver_derived=st.booleans(),
        retransmits=count,
        local_cpu_ratio=ratio,
        remote_cpu_ratio=ratio,
        udp_packets=count,
        udp_lost_packets=count,
        interarrival_jitter_ns=count,
        intervals=st.lists(interval, max_size=3),
        flags=st.lists(st.sampled_from(["sum_mismatch", "exceeds_port_speed"]), max_size=2),
        peer_address=st.sampled_from(["", "10.0.1.12"]),
    )


def _gates() -> st.SearchStrategy[list[result.Gate]]:
    value = st.none() | st.floats(0, 1)
    gate = st.builds(
        result.Gate, st.integers(1, 5), st.integers(1, 3), st.booleans(), value, value, st.text(max_size=9)
    )
    return st.lists(gate, max_size=3)


def read_run(message: pb.ThroughputRun, path: bytes) -> result.ThroughputRun:
    def optional(name: str) -> int | None:
        return getattr(message, name) if message.HasField(name) else None  # type: ignore[arg-type]

    columns = message.interval
    intervals = [
        result.Interval(
            columns.start_ns[i],
            columns.duration_ns[i],
            columns.bytes[i],
            columns.omitted[i],
            columns.retransmits[i] if columns.retransmits else None,
            columns.round_trip_delay_ns[i] if columns.round_trip_delay_ns else None,
            columns.congestion_window_bytes[i] if columns.congestion_window_bytes else None,
        )
        for i in range(len(columns.start_ns))
    ]
    report = result.Report(
        outcome=message.outcome,
        detail=message.outcome_detail,
        version=message.engine_version,
        congestion_control=message.congestion_control,
        sender_bytes=optional("sender_bytes"),
        sender_duration_ns=optional("sender_duration_ns"),
        receiver_bytes=optional("receiver_bytes"),
        receiver_duration_ns=optional("receiver_duration_ns"),
        receiver_derived=message.receiver_derived,
        retransmits=optional("retransmits"),
        local_cpu_ratio=optional("local_cpu_ratio"),
        remote_cpu_ratio=optional("remote_cpu_ratio"),
        udp_packets=optional("udp_packets"),
        udp_lost_packets=optional("udp_lost_packets"),
        interarrival_jitter_ns=optional("interarrival_jitter_ns"),
        intervals=intervals,
        flags=list(message.flag),
        peer_address=message.peer_address,
    )
    gates = [
        result.Gate(
            gate.kind,
            gate.phase,
            gate.tripped,
            gate.value if gate.HasField("value") else None,
            gate.limit if gate.HasField("limit") else None,
            gate.detail,
        )
        for gate in message.gate
    ]
    assert message.path_id == short_id(path)
    return result.ThroughputRun(
        message.slot_id,
        message.group_id,
        message.role,
        path,
        message.profile,
        report,
        message.start_time_ns,
        message.end_time_ns,
        message.elapsed_ns,
        message.reverse,
        message.port,
        gates,
        message.raw_report,
        message.raw_report_cut,
        list(message.stranger),
    )


@given(
    st.builds(
        result.ThroughputRun,
        slot_id=st.binary(min_size=16, max_size=16),
        group_id=st.binary(min_size=16, max_size=16),
        role=st.integers(1, 2),
        path=st.binary(max_size=30),
        profile=st.binary(max_size=30),
        report=_reports(),
        start_time_ns=WALL,
        end_time_ns=WALL,
        elapsed_ns=st.integers(0, 2**50),
        reverse=st.booleans(),
        port=st.integers(1, 65535),
        gates=_gates(),
        raw_report=st.binary(max_size=50),
        raw_report_cut=st.booleans(),
        strangers=st.lists(st.sampled_from(["192.0.2.7", "2001:db8::1"]), max_size=2),
    )
)
def test_a_throughput_run_comes_back_and_what_was_absent_is_absent(run: result.ThroughputRun) -> None:
    message = pb.ThroughputRun()
    fill_throughput_run(message, run)
    assert read_run(pb.ThroughputRun.FromString(message.SerializeToString()), run.path) == run


@given(st.integers(1, 5), WALL, WALL, st.none() | UINT64, st.text(max_size=9))
def test_a_gap_comes_back(reason: int, start: int, end: int, count: int | None, detail: str) -> None:
    gap = result.Gap(reason, pb.BATCH_CLASS_EVIDENCE, start, end, count, detail)
    message = pb.Gap()
    fill_gap(message, gap)
    assert (message.from_time_ns, message.to_time_ns, message.detail) == (start, end, detail)
    assert (message.reason, message.batch_class) == (reason, pb.BATCH_CLASS_EVIDENCE)
    assert (message.records if message.HasField("records") else None) == count


@given(st.none() | WALL, st.none() | st.integers(0, 2**40), st.none() | st.integers(0, 2**60))
def test_a_status_comes_back(oldest: int | None, memory: int | None, cpu: int | None) -> None:
    parts = [result.PartState("spool", False, "disk_full", "free some space"), result.PartState("echo", True, "ok")]
    status = result.Status(5, 1_000, oldest, 7, parts, memory, cpu, "3.12")
    message = pb.AgentStatus()
    fill_status(message, status)
    read = [result.PartState(part.part, part.working, part.state, part.detail) for part in message.part]
    assert read == parts
    for name, value in (
        ("spool_oldest_time_ns", oldest),
        ("resident_memory_bytes", memory),
        ("cpu_time_ns", cpu),
    ):
        assert (getattr(message, name) if message.HasField(name) else None) == value  # type: ignore[arg-type]
    assert (message.time_ns, message.spool_bytes, message.records_dropped) == (5, 1_000, 7)
