"""Any bytes decode to rows or to a reason; columns come back whatever they held."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bandwitness.identity import canonical, short_id
from bandwitness.v1 import record_pb2 as pb
from collector.decode import Definitions, decode
from tests.fakes.batches import START_NS, FakeChain, log_entry

SECOND = 1_000_000_000


def _one(record: bytes, definitions: Definitions | None = None, batch_class: int = pb.BATCH_CLASS_EVIDENCE):  # type: ignore[no-untyped-def]
    return decode(log_entry(FakeChain(batch_class=batch_class).next([record])), definitions or Definitions())


@given(st.binary(max_size=300), st.sampled_from([1, 2, 3]))
def test_garbage_gives_rows_or_a_reason(record: bytes, batch_class: int) -> None:
    _one(record, batch_class=batch_class)


@given(st.data())
@settings(max_examples=200)
def test_a_damaged_record_gives_rows_or_a_reason(data: st.DataObject) -> None:
    names = canonical(pb.CounterSet(name=["a", "b"]))
    kinds = [
        pb.Record(
            nic=pb.NicColumns(counter_set_id=short_id(names), tick_count=2, tick_deviation_ns=[5], value=[1] * 4)
        ),
        pb.Record(
            round_trip=pb.RoundTripColumns(
                base_time_ns=START_NS,
                path_id=[1],
                first_sequence=[0],
                sample_count=[2],
                first_send_offset_ns=[0],
                send_deviation_ns=[0],
                outcome_run=[2 << 4 | 1],
                round_trip_delay_ns=[5, 6],
            )
        ),
        pb.Record(
            throughput_run=pb.ThroughputRun(
                slot_id=bytes(16), role=pb.RUN_ROLE_CLIENT, outcome=pb.RUN_OUTCOME_OK, receiver_bytes=1
            )
        ),
        pb.Record(
            one_way=pb.OneWayColumns(
                base_time_ns=START_NS,
                delay_path_id=[1, 1],
                delay_sequence=[0, 1],
                forward_delay_ns=[5, -6],
                reverse_delay_ns=[7, 8],
                sender_clock_error_ns=[1, 1],
                reflector_clock_error_ns=[2, 2],
                delay_send_offset_ns=[0, SECOND],
            )
        ),
        pb.Record(definition=pb.Definition(counter_set=names)),
        pb.Record(
            trainer_mark=pb.TrainerMark(
                time_ns=START_NS,
                phase=pb.MARK_PHASE_BEGIN,
                kind="checkpoint",
                label_name=["a"],
                label_value=["b"],
                step=1,
            )
        ),
    ]
    record = bytearray(data.draw(st.sampled_from(kinds)).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    _one(bytes(record), Definitions([names]))


sample = st.tuples(
    st.integers(-(10**8), 10**8),  # deviation
    st.integers(1, 7),  # outcome
    st.one_of(st.none(), st.integers(0, 10**9)),  # delay, None: fault
)


@given(st.lists(st.lists(sample, max_size=6), max_size=5))
def test_round_trips_come_back(paths: list[list[tuple[int, int, int | None]]]) -> None:
    columns = pb.RoundTripColumns(base_time_ns=START_NS, interval_ns=SECOND, waiting_time_ns=SECOND)
    times: list[int] = []
    outcomes: list[int] = []
    delays: list[int] = []
    for number, samples in enumerate(paths):
        columns.path_id.append(number)
        columns.first_sequence.append(0)
        columns.sample_count.append(len(samples))
        columns.first_send_offset_ns.append(number * 1000)
        at = START_NS + number * 1000
        for index, (deviation, outcome, delay) in enumerate(samples):
            if index:
                at += SECOND + deviation
                columns.send_deviation_ns.append(deviation)
            replied = outcome == pb.PACKET_OUTCOME_REPLIED
            if replied and delay is None:
                columns.delay_fault_position.append(len(outcomes))
                columns.delay_fault.append(pb.DELAY_FAULT_NO_STAMP)
            elif replied and delay is not None:
                columns.round_trip_delay_ns.append(delay)
            times.append(at)
            outcomes.append(outcome)
            delays.append(delay if replied and delay is not None else -1)
            columns.outcome_run.append(1 << 4 | outcome)
    (samples_row,) = _one(pb.Record(round_trip=columns).SerializeToString()).round_trips
    assert np.asarray(samples_row.send_times_ns).tolist() == times
    assert np.asarray(samples_row.outcomes).tolist() == outcomes
    assert np.asarray(samples_row.round_trip_delays_ns).tolist() == delays


cell = st.one_of(st.none(), st.integers(0, (1 << 64) - 1))


@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_counters_come_back(counters: int, ticks: int, data: st.DataObject) -> None:
    table = [[data.draw(cell) for _ in range(ticks)] for _ in range(counters)]
    names = canonical(pb.CounterSet(name=[f"c{number}" for number in range(counters)]))
    columns = pb.NicColumns(counter_set_id=short_id(names), base_time_ns=START_NS, tick_count=ticks)
    columns.tick_deviation_ns.extend([SECOND] * (ticks - 1))
    for row in table:
        before = 0
        for value in row:
            columns.presence_run.append(1 << 1 | (value is not None))
            if value is not None:
                delta = (value - before) % (1 << 64)
                columns.value.append(delta - (1 << 64) if delta >= 1 << 63 else delta)
                before = value
    (samples,) = _one(pb.Record(nic=columns).SerializeToString(), Definitions([names])).nics
    assert np.asarray(samples.values).tolist() == [[value or 0 for value in row] for row in table]
    assert np.asarray(samples.present).tolist() == [[value is not None for value in row] for row in table]
