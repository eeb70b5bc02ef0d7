"""Columns come back as they were measured; what contradicts itself costs only itself, and never memory."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from bandwitness.identity import canonical, short_id
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import SLOT_PURPOSE_PAIR, WINDOW_KIND_PEAK, Plan, Slot
from collector.decode import Decoded, Definitions, decode
from tests.fakes.batches import START_NS, FakeChain, log_entry

SECOND = 1_000_000_000
COUNTER_SET = canonical(pb.CounterSet(name=["rx_bytes", "tx_bytes", "rx_crc_errors"]))


def decoded(
    *records: pb.Record, batch_class: int = pb.BATCH_CLASS_EVIDENCE, known: Definitions | None = None
) -> Decoded:
    chain = FakeChain(batch_class=batch_class)
    batch = chain.next([record.SerializeToString() for record in records])
    return decode(log_entry(batch), known or Definitions([COUNTER_SET]))


def round_trips() -> pb.RoundTripColumns:
    """Two paths: 3 samples (replied, lost, replied by a stepped clock) and 2 (both replied)."""
    return pb.RoundTripColumns(
        method=pb.ROUND_TRIP_METHOD_ICMP_RAW,
        stamp_source=pb.STAMP_SOURCE_KERNEL,
        base_time_ns=START_NS,
        interval_ns=SECOND,
        waiting_time_ns=SECOND,
        path_id=[7, 1 << 63],
        first_sequence=[0, 41],
        sample_count=[3, 2],
        first_send_offset_ns=[10, -5],
        send_deviation_ns=[100, -50, 0],
        outcome_run=[1 << 4 | 1, 1 << 4 | 2, 3 << 4 | 1],
        round_trip_delay_ns=[400_000, 500_000, 600_000],
        delay_fault_position=[2],
        delay_fault=[pb.DELAY_FAULT_CLOCK_STEP],
        mark_path_id=[7],
        mark_sequence=[1],
        mark=[pb.PACKET_MARK_LATE],
        mark_delay_ns=[1_500_000_000],
    )


def nic_columns() -> pb.NicColumns:
    return pb.NicColumns(
        nic="ens1f0",
        counter_set_id=short_id(COUNTER_SET),
        base_time_ns=START_NS,
        interval_ns=SECOND,
        tick_count=3,
        tick_deviation_ns=[1000, -1000],
        value=[100, 50, -20, -1, 5, 9],  # rx: 100 150 130; tx: 2^64 - 1, absent, wraps to 4; crc: absent, 9, absent
        presence_run=[4 << 1 | 1, 1 << 1, 1 << 1 | 1, 1 << 1, 1 << 1 | 1, 1 << 1],
    )


def one_way(**changes: object) -> pb.OneWayColumns:
    columns = pb.OneWayColumns(
        base_time_ns=START_NS,
        loss_path_id=[1 << 63, 7],
        loss_direction=[pb.LOSS_DIRECTION_FORWARD, pb.LOSS_DIRECTION_EITHER],
        loss_first_sequence=[3, 9],
        loss_last_sequence=[6, 9],
        loss_count=[2, 1],
        loss_send_offset_ns=[0, -SECOND],
    )
    for name, value in changes.items():
        del getattr(columns, name)[:]
        getattr(columns, name).extend(value)
    return columns


def test_one_way_losses_come_back_entry_by_entry() -> None:
    found = decoded(pb.Record(one_way=one_way())).one_way_losses
    assert [(row.entry, row.path_id, row.direction, row.lost) for row in found] == [
        (0, 1 << 63, pb.LOSS_DIRECTION_FORWARD, 2),
        (1, 7, pb.LOSS_DIRECTION_EITHER, 1),
    ]
    assert [(row.first_sequence, row.last_sequence) for row in found] == [(3, 6), (9, 9)]
    assert [row.send_time_ns - START_NS for row in found] == [0, -SECOND]


@pytest.mark.parametrize(
    "changes",
    [
        {"loss_count": [2]},
        {"loss_count": [5, 1]},
        {"loss_count": [0, 1]},
        {"loss_direction": [0, 1]},
        {"loss_direction": [1, 77]},
        {"loss_last_sequence": [2, 9]},
        {"loss_last_sequence": [1 << 63, 9]},
        {"loss_send_offset_ns": [-(1 << 63), 0]},
    ],
)
def test_one_way_losses_that_contradict_themselves_are_refused(changes: dict[str, object]) -> None:
    found = decoded(pb.Record(one_way=one_way(**changes)))
    assert found.one_way_losses == []
    assert [row.reason for row in found.quarantined] == ["bad_record"]


DELAYS: dict[str, object] = {
    "delay_path_id": [1 << 63, 7],
    "delay_sequence": [3, 9],
    "forward_delay_ns": [-40_000, 90_000],
    "reverse_delay_ns": [240_000, 110_000],
    "sender_clock_error_ns": [150_000, 20_000],
    "reflector_clock_error_ns": [90_000, 30_000],
    "delay_send_offset_ns": [0, SECOND],
}


def test_one_way_delays_come_back_beside_both_clock_errors() -> None:
    (found,) = decoded(pb.Record(one_way=one_way(**DELAYS))).one_way_delays
    columns = (
        *(found.path_ids, found.sequences, found.send_times_ns, found.forward_delays_ns, found.reverse_delays_ns),
        *(found.sender_clock_errors_ns, found.reflector_clock_errors_ns),
    )
    assert [np.asarray(column).tolist() for column in columns] == [
        [1 << 63, 7],
        [3, 9],
        [START_NS, START_NS + SECOND],
        [-40_000, 90_000],
        [240_000, 110_000],
        [150_000, 20_000],
        [90_000, 30_000],
    ]


@pytest.mark.parametrize("name", DELAYS)
def test_a_one_way_delay_that_lacks_anything_is_refused(name: str) -> None:
    found = decoded(pb.Record(one_way=one_way(**DELAYS | {name: [1]})))
    assert not found.one_way_delays
    assert [row.reason for row in found.quarantined] == ["bad_record"]


@pytest.mark.parametrize(
    "changes",
    [
        {"forward_delay_ns": [-(1 << 63), 1]},
        {"reverse_delay_ns": [1, 1 << 62]},
        {"sender_clock_error_ns": [(1 << 64) - 1, 1]},
        {"reflector_clock_error_ns": [1, 1 << 63]},
        {"delay_send_offset_ns": [-(1 << 63), 0]},
        {"delay_send_offset_ns": [0, (1 << 63) - 1]},
    ],
)
def test_one_way_delays_beyond_all_sense_are_refused(changes: dict[str, object]) -> None:
    found = decoded(pb.Record(one_way=one_way(**DELAYS | changes)))
    assert not found.one_way_delays
    assert [row.reason for row in found.quarantined] == ["bad_record"]


def test_round_trips_come_back_sample_by_sample() -> None:
    (samples,) = decoded(pb.Record(round_trip=round_trips())).round_trips
    assert list(samples.path_ids) == [7, 1 << 63]  # type: ignore[call-overload]
    assert list(samples.first_sequences) == [0, 41]  # type: ignore[call-overload]
    assert list(np.asarray(samples.send_times_ns) - START_NS) == [
        10,
        SECOND + 110,
        2 * SECOND + 60,
        -5,
        SECOND - 5,
    ]
    assert list(samples.outcomes) == [1, 2, 1, 1, 1]  # type: ignore[call-overload]
    assert list(samples.round_trip_delays_ns) == [400_000, -1, -1, 500_000, 600_000]  # type: ignore[call-overload]
    assert samples.marks == ((7, 1, pb.PACKET_MARK_LATE, 1_500_000_000),)
    assert samples.source.record_index == 0


def test_case_19_a_reply_across_a_clock_step_counts_as_received_without_a_delay() -> None:
    (samples,) = decoded(pb.Record(round_trip=round_trips())).round_trips
    assert np.asarray(samples.outcomes)[2] == pb.PACKET_OUTCOME_REPLIED
    assert np.asarray(samples.round_trip_delays_ns)[2] == -1


def test_a_path_without_samples_leaves_the_others_right() -> None:
    columns = round_trips()
    columns.path_id[:] = [7, 8, 9]
    columns.first_sequence[:] = [0, 0, 41]
    columns.sample_count[:] = [3, 0, 2]
    columns.first_send_offset_ns[:] = [10, 77, -5]
    (samples,) = decoded(pb.Record(round_trip=columns)).round_trips
    assert (np.asarray(samples.send_times_ns) - START_NS)[3] == -5


def test_hop_limits_stand_beside_their_paths_and_are_absent_where_none_is_known() -> None:
    columns = round_trips()
    (samples,) = decoded(pb.Record(round_trip=columns)).round_trips
    assert samples.hop_limits is None
    columns.reply_hop_limit[:] = [61, 0]
    (samples,) = decoded(pb.Record(round_trip=columns)).round_trips
    assert np.asarray(samples.hop_limits).tolist() == [61, 0]


@pytest.mark.parametrize("kind", [field.name for field in pb.Record.DESCRIPTOR.oneofs_by_name["kind"].fields])
def test_a_record_of_any_kind_is_read_or_refused_or_left_in_the_log(kind: str) -> None:
    record = pb.Record()
    getattr(record, kind).SetInParent()
    for batch_class in (pb.BATCH_CLASS_EVIDENCE, pb.BATCH_CLASS_TELEMETRY, pb.BATCH_CLASS_CONTROL):
        decoded(record, batch_class=batch_class)


def test_an_empty_record_of_round_trips_is_fine() -> None:
    (samples,) = decoded(pb.Record(round_trip=pb.RoundTripColumns(base_time_ns=START_NS))).round_trips
    assert len(np.asarray(samples.outcomes)) == 0


def test_counters_unfold_from_their_differences() -> None:
    (samples,) = decoded(pb.Record(nic=nic_columns()), batch_class=pb.BATCH_CLASS_TELEMETRY).nics
    assert samples.counters == ("rx_bytes", "tx_bytes", "rx_crc_errors")
    assert samples.node == "n1"
    values, present = np.asarray(samples.values), np.asarray(samples.present)
    assert values[0].tolist() == [100, 150, 130]
    assert values[1].tolist() == [(1 << 64) - 1, 0, 4]
    assert present[1].tolist() == [True, False, True]
    assert (present[2].tolist(), values[2][1]) == ([False, True, False], 9)
    assert (np.asarray(samples.tick_times_ns) - START_NS).tolist() == [0, SECOND + 1000, 2 * SECOND]
    assert samples.speed_bps is None
    assert samples.carrier is None


def test_counters_without_holes_need_no_presence() -> None:
    columns = pb.NicColumns(nic="a", counter_set_id=short_id(COUNTER_SET), base_time_ns=START_NS, interval_ns=SECOND)
    columns.tick_count = 2
    columns.tick_deviation_ns.append(0)
    columns.value.extend([1, 1, 2, 2, 3, 3])
    (samples,) = decoded(pb.Record(nic=columns)).nics
    assert np.asarray(samples.values).tolist() == [[1, 2], [2, 4], [3, 6]]


def test_counters_of_a_set_that_was_never_defined_are_kept_apart() -> None:
    result = decoded(pb.Record(nic=nic_columns()), known=Definitions())
    assert not result.nics
    assert [row.reason for row in result.quarantined] == ["undefined_counters"]


def test_a_nic_that_could_not_be_read_says_so_without_a_counter_set() -> None:
    columns = pb.NicColumns(nic="ens9", base_time_ns=START_NS, fault="no such device")
    (samples,) = decoded(pb.Record(nic=columns), known=Definitions()).nics
    assert samples.fault == "no such device"
    assert np.asarray(samples.values).shape == (0, 0)


def test_a_definition_serves_the_records_behind_it_and_later_batches() -> None:
    known = Definitions()
    result = decoded(
        pb.Record(definition=pb.Definition(counter_set=COUNTER_SET)), pb.Record(nic=nic_columns()), known=known
    )
    assert len(result.counter_sets) == len(result.nics) == 1
    assert len(decoded(pb.Record(nic=nic_columns()), known=known).nics) == 1


def _path(node: str = "n2") -> pb.Path:
    return pb.Path(
        source=pb.Endpoint(node="n1", nic="e0", address="10.0.0.1", lane="rail0"),
        endpoint=pb.Endpoint(node=node, nic="e0", address="10.0.0.2", lane="rail0"),
        type_p=pb.TypeP(protocol=pb.PROTOCOL_ICMP_ECHO, ip_version=4, payload_bytes=56),
    )


def test_a_path_definition_says_what_its_id_means() -> None:
    definition = canonical(_path())
    (row,) = decoded(pb.Record(definition=pb.Definition(path=definition))).paths
    assert row.path_id == short_id(definition)
    assert row.destination is not None
    assert (row.source.node, row.destination.node, row.target, row.profile_id) == ("n1", "n2", None, None)


@pytest.mark.parametrize(
    "definition",
    [
        pb.Definition(),
        pb.Definition(path=b"\xff"),
        pb.Definition(path=canonical(pb.Path(source=pb.Endpoint(node="a")))),
        pb.Definition(path=canonical(_path("n" * 600))),
        pb.Definition(counter_set=canonical(pb.CounterSet(name=["a", "a"]))),
        pb.Definition(counter_set=b""),
        pb.Definition(profile=canonical(pb.Profile(duration_ns=1 << 63))),
    ],
)
def test_a_bad_definition_is_refused(definition: pb.Definition) -> None:
    result = decoded(pb.Record(definition=definition))
    assert [row.reason for row in result.quarantined] == ["bad_definition"]
    assert not result.paths
    assert not result.counter_sets


def test_a_second_meaning_for_a_known_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.decode.definitions.short_id", lambda definition: 1)
    result = decoded(
        pb.Record(definition=pb.Definition(path=canonical(_path("n2")))),
        pb.Record(definition=pb.Definition(path=canonical(_path("n3")))),
        known=Definitions(),
    )
    assert len(result.paths) == 1
    assert result.quarantined[0].source.record_index == 1


def test_an_agent_defines_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.decode.definitions.MAX_DEFINITIONS_OF_AGENT", 2)
    monkeypatch.setattr("collector.decode.definitions.MAX_COUNTER_SETS_OF_AGENT", 1)
    known = Definitions()
    paths = [pb.Record(definition=pb.Definition(path=canonical(_path(f"n{number}")))) for number in (2, 3, 4)]
    assert [row.reason for row in decoded(*paths, known=known).quarantined] == ["bad_definition"]
    again = decoded(*paths, known=known)
    assert len(again.paths) == 2  # those known may be told again
    known = Definitions()
    sets = [pb.Record(definition=pb.Definition(counter_set=canonical(pb.CounterSet(name=[name])))) for name in "ab"]
    result = decoded(*sets, batch_class=pb.BATCH_CLASS_TELEMETRY, known=known)
    assert (len(result.counter_sets), len(result.quarantined)) == (1, 1)
    assert known.counters(short_id(canonical(pb.CounterSet(name=["b"])))) is None


def test_a_path_is_defined_by_one_of_its_ends() -> None:
    path = _path("n2")
    path.source.node = "n3"
    result = decoded(pb.Record(definition=pb.Definition(path=canonical(path))))
    assert [row.reason for row in result.quarantined] == ["foreign_path"]
    assert not result.paths


def _run(**fields: object) -> pb.Record:
    run = pb.ThroughputRun(slot_id=bytes(16), role=pb.RUN_ROLE_CLIENT, path_id=5, outcome=pb.RUN_OUTCOME_OK)
    run.receiver_bytes, run.receiver_duration_ns = 125_000_000, SECOND
    run.MergeFrom(pb.ThroughputRun(**fields))  # type: ignore[arg-type]
    return pb.Record(throughput_run=run)


def test_throughput_is_what_arrived_over_the_time_it_took() -> None:
    gates = [pb.Gate(kind=pb.GATE_KIND_TEST_CPU, tripped=True), pb.Gate(kind=pb.GATE_KIND_LINK, tripped=False)]
    (run,) = decoded(_run(gate=gates, flag=["sum_mismatch"])).runs
    assert run.throughput_bps == 1e9
    assert (run.gates_tripped, run.flags) == (("test_cpu",), ("sum_mismatch",))


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": pb.RUN_OUTCOME_REFUSED},
        {"outcome": pb.RUN_OUTCOME_FAILED_PARTIAL},
        {"outcome": pb.RUN_OUTCOME_SKIPPED_NO_PLAN},
        {"receiver_duration_ns": 0},
    ],
)
def test_case_44_a_test_without_a_result_has_no_throughput_rather_than_0(fields: dict[str, int]) -> None:
    (run,) = decoded(_run(**fields)).runs
    assert run.throughput_bps is None


@pytest.mark.parametrize(
    "fields", [{"slot_id": b"short"}, {"outcome": pb.RUN_OUTCOME_LOST}, {"role": 9}, {"receiver_bytes": 1 << 63}]
)
def test_a_run_that_contradicts_itself_is_refused(fields: dict[str, object]) -> None:
    assert [row.reason for row in decoded(_run(**fields)).quarantined] == ["bad_record"]


@pytest.mark.parametrize(
    "fields",
    [
        {"start_time_ns": 0, "end_time_ns": (1 << 63) - 1},
        {"start_time_ns": -1, "end_time_ns": START_NS},
        {"start_time_ns": START_NS, "end_time_ns": START_NS - 1},
        {"start_time_ns": START_NS, "end_time_ns": START_NS + 601 * SECOND},
        {"start_time_ns": START_NS, "end_time_ns": START_NS + SECOND, "elapsed_ns": 1 << 62},
        {"receiver_bytes": (1 << 63) - 1, "receiver_duration_ns": 1},
    ],
)
def test_times_and_rates_that_no_test_can_have_are_refused(fields: dict[str, int]) -> None:
    result = decoded(_run(**fields))
    assert [row.reason for row in result.quarantined] == ["bad_record"]
    assert not result.runs


def test_a_test_cut_short_may_be_told_of_days_later() -> None:
    late = START_NS + 3 * 86_400 * SECOND
    (run,) = decoded(_run(outcome=pb.RUN_OUTCOME_ABORTED, start_time_ns=START_NS, end_time_ns=late)).runs
    assert run.end_time_ns == late


@pytest.mark.parametrize("time_ns", [-1, (1 << 63) - 1])
def test_absurd_times_of_gaps_and_states_are_refused(time_ns: int) -> None:
    gap = pb.Gap(reason=pb.GAP_REASON_RESTART, to_time_ns=time_ns)
    assert [row.reason for row in decoded(pb.Record(gap=gap)).quarantined] == ["bad_record"]
    status = pb.Record(agent_status=pb.AgentStatus(time_ns=time_ns))
    result = decoded(status, batch_class=pb.BATCH_CLASS_TELEMETRY)
    assert [row.reason for row in result.quarantined] == ["bad_record"]


def test_an_agents_state_keeps_absence() -> None:
    status = pb.AgentStatus(time_ns=START_NS, spool_bytes=10, records_dropped=2)
    status.part.add(part="echo", working=False, state="icmp_unavailable", detail="setcap")
    result = decoded(pb.Record(agent_status=status), batch_class=pb.BATCH_CLASS_TELEMETRY)
    (row,) = result.statuses
    assert row.spool_oldest_time_ns is None
    assert row.parts == (("echo", False, "icmp_unavailable", "setcap"),)


def test_a_gap_keeps_an_unknown_number_apart_from_none() -> None:
    result = decoded(pb.Record(gap=pb.Gap(reason=pb.GAP_REASON_RESTART)), pb.Record(gap=pb.Gap(records=0)))
    assert [gap.records for gap in result.gaps] == [None, 0]


def _plan() -> Plan:
    profile = canonical(pb.Profile(engine=pb.ENGINE_IPERF3, streams=4, duration_ns=10 * SECOND, omit_ns=2 * SECOND))
    path = _path()
    path.type_p.CopyFrom(pb.TypeP(protocol=pb.PROTOCOL_TCP_THROUGHPUT, ip_version=4, profile_id=short_id(profile)))
    slot = Slot(
        slot_id=bytes(range(16)),
        purpose=SLOT_PURPOSE_PAIR,
        window=WINDOW_KIND_PEAK,
        start_time_ns=START_NS,
        margin_ns=2 * SECOND,
        client=path.source,
        server=path.endpoint,
        port=5201,
        profile=profile,
        path=canonical(path),
        token=["nic:n1/e0"],
        day="2026-01-01",
    )
    return Plan(version=3, node="n1", issued_time_ns=1, expiry_time_ns=2, slot=[slot])


def test_a_plan_brings_its_slots_paths_and_profiles() -> None:
    issued = pb.Record(plan_issued=pb.PlanIssued(node="n1", plan=canonical(_plan())))
    result = decoded(issued, batch_class=pb.BATCH_CLASS_CONTROL)
    (plan,) = result.plans
    (slot,) = plan.slots
    assert (plan.node, plan.version, slot.day) == ("n1", 3, "2026-01-01")
    assert slot.end_time_ns == START_NS + 14 * SECOND
    assert result.paths[0].path_id == slot.path_id
    assert result.profiles[0].profile_id == slot.profile_id == result.paths[0].profile_id


def test_only_the_control_chain_may_plan_and_it_measures_nothing() -> None:
    issued = pb.Record(plan_issued=pb.PlanIssued(node="n1", plan=canonical(_plan())))
    assert [row.reason for row in decoded(issued).quarantined] == ["wrong_class"]
    stray = decoded(pb.Record(gap=pb.Gap()), batch_class=pb.BATCH_CLASS_CONTROL)
    assert [row.reason for row in stray.quarantined] == ["wrong_class"]


def test_windows_and_starts_and_chains_are_read() -> None:
    windows = pb.WindowsFixed(site="a", time_zone="UTC", peak=[pb.TimeOfDayRange(start_s=1, end_s=2)])
    result = decoded(
        pb.Record(windows_fixed=windows),
        pb.Record(collector_started=pb.CollectorStarted(collector_id="c")),
        pb.Record(chain_opened=pb.ChainOpened(agent_id="n1", batch_class=pb.BATCH_CLASS_EVIDENCE)),
        batch_class=pb.BATCH_CLASS_CONTROL,
    )
    assert (result.windows[0].peak, result.windows[0].offpeak) == (((1, 2),), ())
    assert result.collectors_started[0].collector_id == "c"
    assert result.chains_opened[0].agent_id == "n1"


def test_one_bad_record_leaves_the_others_of_its_batch() -> None:
    batch = FakeChain().next([b"\xff\xff", pb.Record().SerializeToString(), _run().SerializeToString()])
    result = decode(log_entry(batch), Definitions())
    assert [row.reason for row in result.quarantined] == ["bad_record", "unknown_kind"]
    assert [run.source.record_index for run in result.runs] == [2]


def test_a_quarantined_batch_gives_no_rows_but_its_definitions_hold_where_the_signature_does() -> None:
    records = [pb.Record(definition=pb.Definition(counter_set=COUNTER_SET)), pb.Record(nic=nic_columns())]
    batch = FakeChain().next([record.SerializeToString() for record in records])
    gap = decode(log_entry(batch, quarantine="gap"), Definitions())
    assert (len(gap.counter_sets), len(gap.nics), gap.quarantined[0].reason) == (1, 0, "gap")
    forged = decode(log_entry(batch, quarantine="bad_signature"), Definitions())
    assert (len(forged.counter_sets), len(forged.nics), forged.quarantined[0].reason) == (0, 0, "bad_signature")


def test_a_withheld_payload_is_missing_and_not_wrong() -> None:
    batch = FakeChain().next([_run().SerializeToString()])
    batch.payload = b""
    result = decode(log_entry(batch), Definitions())
    assert result.payload_missing
    assert not result.quarantined
    assert result.batch is not None


def test_a_changed_payload_and_a_garbled_header_are_refused() -> None:
    batch = FakeChain().next([_run().SerializeToString()])
    batch.payload += _run().SerializeToString()
    entry = log_entry(batch)
    assert decode(entry, Definitions()).quarantined[0].reason == "payload_mismatch"
    garbled = decode(replace(entry, header=b"\xff"), Definitions())
    assert garbled.batch is None
    assert garbled.quarantined[0].reason == "unreadable_header"


def _changed(**fields: object) -> pb.Record:
    columns = round_trips()
    for name, value in fields.items():
        if isinstance(value, list):
            columns.ClearField(name)  # type: ignore[arg-type]
            getattr(columns, name).extend(value)
        else:
            setattr(columns, name, value)
    return pb.Record(round_trip=columns)


@pytest.mark.parametrize(
    "record",
    [
        _changed(sample_count=[3]),
        _changed(sample_count=[3, 4_000_000_000]),
        _changed(outcome_run=[0xFFFFFFF << 4 | 1]),
        _changed(outcome_run=[5 << 4 | 9]),
        _changed(outcome_run=[1 << 4 | 1, 1 << 4 | 9, 3 << 4 | 1]),
        _changed(outcome_run=[5 << 4]),
        _changed(round_trip_delay_ns=[1]),
        _changed(round_trip_delay_ns=[1, 2, 1 << 63]),
        _changed(delay_fault_position=[1]),
        _changed(delay_fault_position=[9]),
        _changed(delay_fault_position=[2, 2], delay_fault=[pb.DELAY_FAULT_CLOCK_STEP] * 2),
        _changed(delay_fault=[]),
        _changed(send_deviation_ns=[1 << 62, 0, 0]),
        _changed(send_deviation_ns=[-(1 << 63), 0, 0]),
        _changed(base_time_ns=-1),
        _changed(interval_ns=(1 << 64) - 1),
        _changed(first_send_offset_ns=[1 << 62, 0]),
        _changed(mark=[]),
        _changed(mark_delay_ns=[1 << 63]),
        _changed(reply_hop_limit=[64]),
        _changed(reply_hop_limit=[64, 256]),
        pb.Record(nic=pb.NicColumns(counter_set_id=short_id(COUNTER_SET), tick_count=0xFFFFFFFF)),
        pb.Record(nic=pb.NicColumns(counter_set_id=short_id(COUNTER_SET), tick_count=1, value=[1])),
        pb.Record(nic=pb.NicColumns(counter_set_id=short_id(COUNTER_SET), tick_count=1, presence_run=[0xFFFFFFFF])),
        pb.Record(nic=pb.NicColumns(counter_set_id=short_id(COUNTER_SET), speed_bps=1 << 63)),
    ],
)
def test_absurd_columns_are_refused_before_memory_is_spent_on_them(record: pb.Record) -> None:
    batch = FakeChain().next([record.SerializeToString()])
    entry, known = log_entry(batch), Definitions([COUNTER_SET])
    tracemalloc.start()
    try:
        result = decode(entry, known)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [row.reason for row in result.quarantined] == ["bad_record"]
    assert peak < 1_000_000
