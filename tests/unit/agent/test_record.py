"""Headers, definitions, splitting and the watermark. What the columns say is in ``tests/property``."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from agent import result
from agent.clock import Anchor, ClockStep
from agent.record import Author, ChainState, HeaderContext, Recorder, SealedBatch, watermark_ns
from agent.record.recorder import MAX_PENDING_RECORDS, MAX_STEPS
from bandwitness import chain
from bandwitness.identity import short_id
from bandwitness.v1 import record_pb2 as pb

SECOND = 1_000_000_000
WALL = 1_767_225_600 * SECOND
EVIDENCE, TELEMETRY = pb.BATCH_CLASS_EVIDENCE, pb.BATCH_CLASS_TELEMETRY
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
AUTHOR = Author(
    agent_id="gpu-r1-01",
    public_key=KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw),
    sign=KEY.sign,
    boot_id=b"B" * 16,
    run_id=b"R" * 16,
    configuration_hash=b"C" * 32,
    software_version="0.1.0",
)
CONTEXT = HeaderContext(
    anchor=Anchor(WALL, 1000 * SECOND, 1001 * SECOND),
    clock=result.ClockReading(pb.CLOCK_SOURCE_ADJTIMEX, True, offset_ns=-5, error_bound_ns=1_000),
    plan_hash=b"P" * 32,
    witnessed_head=b"W" * 32,
)
PATH = pb.Path(source=pb.Endpoint(node="gpu-r1-01", address="10.0.1.11")).SerializeToString()
PATH_ID = short_id(PATH)


class Randomness:
    """Counts calls; every byte of one answer is the number of the call."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, count: int) -> bytes:
        self.calls.append(count)
        return bytes(i % 256 for i in range(count))


def recorder(**options: int) -> Recorder:
    chains: dict[int, ChainState] = {
        batch_class: ChainState(bytes([batch_class]) * 16, chain.ORIGIN, 0) for batch_class in (EVIDENCE, TELEMETRY)
    }
    return Recorder(AUTHOR, chains, random_bytes=Randomness(), **options)


def round_trips(count: int = 2, at: int = WALL) -> result.RoundTripBatch:
    return result.RoundTripBatch(
        method=pb.ROUND_TRIP_METHOD_ICMP_RAW,
        stamp_source=pb.STAMP_SOURCE_KERNEL,
        interval_ns=SECOND,
        waiting_time_ns=SECOND,
        path_ids=[PATH_ID],
        first_sequences=[0],
        sample_counts=[count],
        send_times_ns=[at + i * SECOND for i in range(count)],
        outcomes=[pb.PACKET_OUTCOME_REPLIED] * count,
        round_trip_delays_ns=[100_000] * count,
    )


def run(raw_report: bytes = b"{}") -> result.ThroughputRun:
    return result.ThroughputRun(
        slot_id=b"S" * 16,
        group_id=b"G" * 16,
        role=pb.RUN_ROLE_CLIENT,
        path=PATH,
        profile=pb.Profile(streams=4).SerializeToString(),
        report=result.Report(pb.RUN_OUTCOME_OK),
        start_time_ns=WALL,
        end_time_ns=WALL + SECOND,
        elapsed_ns=SECOND,
        reverse=False,
        port=5201,
        raw_report=raw_report,
    )


def nic(counters: Sequence[str] = ("rx_bytes",)) -> result.NicBatch:
    return result.NicBatch("eth0", counters, WALL, 5, SECOND, [5], [[1] for _ in counters])


def records(sealed: SealedBatch) -> list[pb.Record]:
    parsed = chain.read_header(sealed.header)
    return [pb.Record.FromString(data) for data in chain.read_payload(parsed, sealed.payload)]


def kinds(sealed: SealedBatch) -> list[str | None]:
    return [record.WhichOneof("kind") for record in records(sealed)]


def test_every_header_field_is_filled() -> None:
    subject = recorder()
    subject.note_step(ClockStep(WALL - 1, -7))
    subject.add_round_trip(round_trips(), {PATH_ID: PATH})
    [sealed] = subject.seal(EVIDENCE, CONTEXT, WALL + SECOND)
    header = chain.read_header(sealed.header)
    chain.check_signature(sealed.header, header, sealed.signature)
    missing = [field.name for field in header.DESCRIPTOR.fields if field not in {f for f, _ in header.ListFields()}]
    assert missing == ["previous_header_hash"]  # empty in the first
    assert header.agent_id == "gpu-r1-01"
    assert header.seq == 1
    assert (header.anchor.wall_time_ns, header.anchor.monotonic_ns, header.anchor.boottime_ns) == (
        WALL,
        1000 * SECOND,
        1001 * SECOND,
    )
    assert [(step.wall_time_ns, step.size_ns) for step in header.anchor.step] == [(WALL - 1, -7)]
    assert (header.first_event_time_ns, header.last_event_time_ns) == (WALL, WALL + SECOND)
    assert header.clock.offset_ns == -5


def test_one_way_losses_have_an_entry_a_direction_and_delays_stand_beside_both_clock_errors() -> None:
    subject = recorder()
    losses = [
        result.OneWayLoss(PATH_ID, 3, 7, 2, 1, 0, WALL),
        result.OneWayLoss(PATH_ID, 9, 9, 0, 0, 1, WALL + SECOND),
    ]
    delays = [result.OneWayDelay(PATH_ID, 8, -40_000, 260_000, 150_000, 90_000, WALL + 2 * SECOND)]
    subject.add_one_way(result.OneWayBatch(), {})
    subject.add_one_way(result.OneWayBatch(losses, delays), {PATH_ID: PATH})
    [sealed] = subject.seal(EVIDENCE, CONTEXT, WALL + SECOND)
    assert kinds(sealed) == ["definition", "one_way"]
    columns = records(sealed)[1].one_way
    assert list(columns.loss_direction) == [
        pb.LOSS_DIRECTION_FORWARD,
        pb.LOSS_DIRECTION_REVERSE,
        pb.LOSS_DIRECTION_EITHER,
    ]
    assert list(columns.loss_count) == [2, 1, 1]
    assert list(columns.loss_first_sequence) == [3, 3, 9]
    assert list(columns.loss_last_sequence) == [7, 7, 9]
    assert [columns.base_time_ns + offset for offset in columns.loss_send_offset_ns] == [WALL, WALL, WALL + SECOND]
    assert [*columns.forward_delay_ns, *columns.reverse_delay_ns] == [-40_000, 260_000]
    assert [columns.base_time_ns + offset for offset in columns.delay_send_offset_ns] == [WALL + 2 * SECOND]
    assert [*columns.sender_clock_error_ns, *columns.reflector_clock_error_ns] == [150_000, 90_000]


def test_batches_link_and_each_class_is_a_chain_of_its_own() -> None:
    subject = recorder()
    sealed = [subject.seal(EVIDENCE, CONTEXT, WALL + i)[0] for i in range(3)]
    subject.seal(TELEMETRY, CONTEXT, WALL)
    tip = chain.ORIGIN
    for batch in sealed:
        header = chain.read_header(batch.header)
        chain.check_link(header, tip)
        assert batch.previous_header_hash == tip.header_hash
        tip = chain.Tip(header.seq, chain.header_hash(batch.header))
    assert subject.chain_state(EVIDENCE) == ChainState(b"\x01" * 16, tip, WALL + 2)
    assert subject.chain_state(TELEMETRY).tip.seq == 1


def test_an_empty_batch_still_carries_the_watermark() -> None:
    [sealed] = recorder().seal(EVIDENCE, CONTEXT, WALL)
    header = chain.read_header(sealed.header)
    assert (header.record_count, header.last_event_time_ns, sealed.payload) == (0, WALL, b"")


def test_salts_come_from_one_call_and_differ() -> None:
    randomness = Randomness()
    subject = Recorder(AUTHOR, {EVIDENCE: ChainState(b"E" * 16, chain.ORIGIN, 0)}, random_bytes=randomness)
    for _ in range(3):
        subject.add_round_trip(round_trips(), {PATH_ID: PATH})
    [sealed] = subject.seal(EVIDENCE, CONTEXT, WALL)
    assert randomness.calls == [16 * 4]  # one definition, three records
    salts = [record.salt for record in records(sealed)]
    assert len(set(salts)) == 4
    assert {len(salt) for salt in salts} == {16}


def test_definitions_stand_before_first_use_once_and_again_when_due() -> None:
    subject = recorder(definition_interval_ns=3600 * SECOND)
    at = CONTEXT.anchor
    seen = []
    for passed_s in (0, 2, 3599, 3600, 3602):
        subject.add_round_trip(round_trips(), {PATH_ID: PATH})
        context = replace(CONTEXT, anchor=Anchor(at.wall_ns, at.monotonic_ns + passed_s * SECOND, at.boottime_ns))
        seen.append(kinds(subject.seal(EVIDENCE, context, WALL)[0]))
    assert seen == [
        ["definition", "round_trip"],
        ["round_trip"],
        ["round_trip"],
        ["definition", "round_trip"],
        ["round_trip"],
    ]


def test_definitions_are_what_the_ids_hash() -> None:
    subject = recorder()
    subject.add_throughput_run(run())
    subject.add_nic(nic(["rx_bytes", "tx_bytes"]))
    path, profile, attempt = records(subject.seal(EVIDENCE, CONTEXT, WALL)[0])
    assert short_id(path.definition.path) == attempt.throughput_run.path_id
    assert profile.definition.profile == attempt.throughput_run.profile
    counter_set, columns = records(subject.seal(TELEMETRY, CONTEXT, WALL)[0])
    assert short_id(counter_set.definition.counter_set) == columns.nic.counter_set_id
    assert list(pb.CounterSet.FromString(counter_set.definition.counter_set).name) == ["rx_bytes", "tx_bytes"]


def test_lost_batches_and_a_new_chain_bring_the_definitions_again() -> None:
    subject = recorder()
    subject.add_round_trip(round_trips(), {PATH_ID: PATH})
    subject.seal(EVIDENCE, CONTEXT, WALL)
    subject.add_gap(result.Gap(pb.GAP_REASON_SPOOL_LIMIT, EVIDENCE, WALL, WALL + 1, 3))
    subject.add_round_trip(round_trips(), {PATH_ID: PATH})
    assert kinds(subject.seal(EVIDENCE, CONTEXT, WALL)[0]) == ["definition", "gap", "round_trip"]
    subject.resume(EVIDENCE, ChainState(b"N" * 16, chain.ORIGIN, WALL))
    subject.add_round_trip(round_trips(), {PATH_ID: PATH})
    [sealed] = subject.seal(EVIDENCE, CONTEXT, WALL)
    assert kinds(sealed) == ["definition", "round_trip"]
    assert (sealed.chain_id, sealed.seq) == (b"N" * 16, 1)


def test_a_path_without_definition_is_our_fault_and_raised() -> None:
    with pytest.raises(KeyError):
        recorder().add_round_trip(round_trips(), {})


def test_a_large_batch_is_split_and_only_the_last_part_moves_the_watermark() -> None:
    subject = recorder(max_payload_bytes=5_000)
    subject.seal(EVIDENCE, CONTEXT, WALL - 5)
    for i in range(10):
        subject.add_throughput_run(run(raw_report=bytes([i]) * 1_000))
    parts = subject.seal(EVIDENCE, CONTEXT, WALL)
    assert len(parts) == 3
    assert all(len(part.payload) <= 5_000 for part in parts)
    assert [part.last_event_time_ns for part in parts] == [WALL - 5, WALL - 5, WALL]
    attempts = [r.throughput_run for part in parts for r in records(part) if r.WhichOneof("kind") == "throughput_run"]
    assert [attempt.raw_report[0] for attempt in attempts] == list(range(10))
    assert all(b.previous_header_hash == chain.header_hash(a.header) for a, b in pairwise(parts))
    assert subject.set_aside == 0


def test_a_record_over_the_limit_is_set_aside_with_a_note() -> None:
    subject = recorder(max_payload_bytes=5_000)
    subject.add_throughput_run(run(raw_report=b"x" * 6_000))
    subject.add_throughput_run(run())
    [sealed] = subject.seal(EVIDENCE, CONTEXT, WALL)
    notes = [record.gap for record in records(sealed) if record.WhichOneof("kind") == "gap"]
    assert [(note.records, note.from_time_ns, note.to_time_ns) for note in notes] == [(1, WALL, WALL + SECOND)]
    assert "throughput_run record of" in notes[0].detail
    assert kinds(sealed).count("throughput_run") == 1
    assert subject.set_aside == 1


def test_what_waits_is_bounded() -> None:
    subject = recorder()
    for _ in range(MAX_PENDING_RECORDS + 3):
        subject.add_gap(result.Gap(pb.GAP_REASON_SUSPENDED, EVIDENCE, 1, 2))
    assert subject.pending(EVIDENCE) == MAX_PENDING_RECORDS
    assert subject.set_aside == 3
    assert subject.discard(EVIDENCE) == (MAX_PENDING_RECORDS, 2, 2)
    assert subject.pending(EVIDENCE) == 0


def test_many_steps_are_added_up() -> None:
    subject = recorder()
    for i in range(MAX_STEPS + 10):
        subject.note_step(ClockStep(WALL + i, 1_000))
    [sealed] = subject.seal(TELEMETRY, CONTEXT, WALL)
    steps = chain.read_header(sealed.header).anchor.step
    assert len(steps) == MAX_STEPS
    assert sum(step.size_ns for step in steps) == (MAX_STEPS + 10) * 1_000
    assert not chain.read_header(subject.seal(TELEMETRY, CONTEXT, WALL)[0].header).anchor.step


@pytest.mark.parametrize(
    ("unresolved", "running", "expected"),
    [(None, None, 100), (90, None, 89), (None, 50, 49), (90, 50, 49), (200, None, 100)],
)
def test_the_watermark_stays_before_all_that_is_unsaid(
    unresolved: int | None, running: int | None, expected: int
) -> None:
    assert watermark_ns(100, oldest_unresolved_ns=unresolved, earliest_running_ns=running) == expected


def test_the_watermark_falls_only_behind_a_clock_set_back() -> None:
    subject = recorder()
    subject.seal(EVIDENCE, CONTEXT, WALL)
    assert subject.seal(EVIDENCE, CONTEXT, WALL - 9)[0].last_event_time_ns == WALL
    back = replace(CONTEXT, anchor=Anchor(WALL - 3600 * SECOND, 1002 * SECOND, 1003 * SECOND))
    assert subject.seal(EVIDENCE, back, WALL - 3601 * SECOND)[0].last_event_time_ns == WALL - 3601 * SECOND


def test_words_of_a_tool_that_are_not_text_do_not_stop_the_record() -> None:
    subject = recorder()
    report = result.Report(pb.RUN_OUTCOME_OTHER, detail="broken \udcff byte")
    subject.add_throughput_run(replace(run(), report=report))
    [sealed] = subject.seal(EVIDENCE, CONTEXT, WALL)
    assert records(sealed)[-1].throughput_run.outcome_detail == "broken ? byte"
