"""The outstanding table: one outcome per packet, in order, whatever comes back."""

from collections.abc import Sequence

import pytest

from agent.probe.matching import EXPIRY_SLACK_NS, HOLD_NS, MAX_ENTRIES, MAX_MARKS, RoundTripTable
from agent.result import Mark, RoundTripBatch
from bandwitness.v1.record_pb2 import (
    DELAY_FAULT_CLOCK_STEP,
    DELAY_FAULT_NO_STAMP,
    PACKET_MARK_DUPLICATE,
    PACKET_MARK_LATE,
    PACKET_OUTCOME_CORRUPT,
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_SEND_FAILED,
    PACKET_OUTCOME_SKIPPED,
    PACKET_OUTCOME_UNREACHABLE,
)

SECOND = 1_000_000_000
US = 1_000
WALL = 1_700_000_000 * SECOND  # wall minus monotonic
PATH = 77


def opened(table: RoundTripTable, path_id: int = PATH, *, follows: int | None = None, interval_ns: int = SECOND) -> int:
    slot = table.open(path_id, method=1, stamp_source=1, interval_ns=interval_ns, waiting_ns=SECOND, follows=follows)
    assert slot is not None
    return slot


def send(table: RoundTripTable, slot: int, at: int, *, stamp: bool = True) -> int:
    """One packet at a monotonic time, its send stamp 5 µs later. Returns its sequence."""
    sequence = table.next_sequence(slot)
    entry = table.add(slot, at, WALL + at)
    if stamp:
        table.stamp(entry, at, WALL + at + 5 * US, WALL + at + 9 * US)
    return sequence


def reply(table: RoundTripTable, slot: int, sequence: int, at: int, *, read_after: int = 50 * US) -> None:
    """A reply that the kernel got at a monotonic time and that was read somewhat later."""
    table.reply(slot, sequence, WALL + at, at + read_after, WALL + at + read_after)


def only(batches: Sequence[RoundTripBatch]) -> RoundTripBatch:
    assert len(batches) == 1
    batch = batches[0]
    assert len(batch.send_times_ns) == len(batch.outcomes) == sum(batch.sample_counts)
    replied = list(batch.outcomes).count(PACKET_OUTCOME_REPLIED)
    assert len(batch.round_trip_delays_ns) + len(batch.delay_faults) == replied
    return batch


def test_a_reply_gives_the_delay_between_the_kernels_stamps() -> None:
    table = RoundTripTable()
    slot = opened(table)
    sequence = send(table, slot, 0)
    reply(table, slot, sequence, 205 * US)
    batch = only(table.drain(SECOND))
    assert batch.outcomes == [PACKET_OUTCOME_REPLIED]
    assert batch.round_trip_delays_ns == [200 * US]
    assert batch.send_times_ns == [WALL + 5 * US]
    assert (batch.path_ids, batch.first_sequences, batch.sample_counts) == ([PATH], [0], [1])
    assert table.drain(2 * SECOND) == []


def test_lost_only_once_the_waiting_time_has_passed() -> None:
    table = RoundTripTable()
    slot = opened(table)
    send(table, slot, 0)
    assert table.drain(SECOND + EXPIRY_SLACK_NS - 1) == []
    batch = only(table.drain(SECOND + EXPIRY_SLACK_NS))
    assert batch.outcomes == [PACKET_OUTCOME_LOST]
    assert list(batch.round_trip_delays_ns) == []


def test_handed_out_in_order_of_sequence_however_replies_come() -> None:
    table = RoundTripTable()
    slot = opened(table)
    sequences = [send(table, slot, turn * 100 * US) for turn in range(3)]
    reply(table, slot, sequences[2], 400 * US)
    reply(table, slot, sequences[1], 500 * US)
    assert table.drain(SECOND // 2) == []  # the first is still waited for
    batch = only(table.drain(SECOND + EXPIRY_SLACK_NS + 100 * US))
    assert batch.outcomes == [PACKET_OUTCOME_LOST, PACKET_OUTCOME_REPLIED, PACKET_OUTCOME_REPLIED]
    assert batch.round_trip_delays_ns == [395 * US, 195 * US]


def test_case_13_duplicate_replies_never_hide_a_loss() -> None:
    for replies, lost in (([0, 0, 1, 1, 2, 2, 3], 0), ([0, 0, 1, 2], 1)):
        table = RoundTripTable()
        slot = opened(table)
        for turn in range(4):
            send(table, slot, turn * SECOND)
        for count, sequence in enumerate(replies):
            reply(table, slot, sequence, sequence * SECOND + 200 * US + count * US)
        batch = only(table.drain(5 * SECOND))
        assert list(batch.outcomes).count(PACKET_OUTCOME_REPLIED) == 4 - lost
        assert list(batch.outcomes).count(PACKET_OUTCOME_LOST) == lost
        duplicates = [mark for mark in batch.marks if mark.kind == PACKET_MARK_DUPLICATE]
        assert len(duplicates) == len(replies) - (4 - lost)
        assert duplicates[0] == Mark(PATH, 0, PACKET_MARK_DUPLICATE, 196 * US)


def test_case_15_total_loss_has_no_delay_at_all() -> None:
    table = RoundTripTable()
    slot = opened(table)
    for turn in range(3):
        send(table, slot, turn * SECOND)
        table.unreachable(slot, turn)
    batch = only(table.drain(4 * SECOND))
    assert batch.outcomes == [PACKET_OUTCOME_UNREACHABLE] * 3
    assert list(batch.round_trip_delays_ns) == []
    assert list(batch.delay_faults) == []


@pytest.mark.parametrize("step", [-1_759_986_000, SECOND, 60 * US])
def test_case_19_negative_rtt_after_a_clock_step(step: int) -> None:
    """The clock set while a reply of 0.4 ms is on its way: back by the case's 1.759986 s, or forward, where the delay
    would not be negative but a plausible wrong one, or one that counts as late."""
    table = RoundTripTable()
    slot = opened(table)
    sequence = send(table, slot, 0)
    table.reply(slot, sequence, WALL + 400 * US + step, 450 * US, WALL + 450 * US + step)
    again = send(table, slot, SECOND)
    reply(table, slot, again, SECOND + 405 * US)
    batch = only(table.drain(2 * SECOND))
    assert batch.outcomes == [PACKET_OUTCOME_REPLIED, PACKET_OUTCOME_REPLIED]
    assert batch.round_trip_delays_ns == [400 * US]
    assert batch.delay_faults == [(0, DELAY_FAULT_CLOCK_STEP)]


def test_case_19_a_small_step_back_while_a_slow_reply_is_on_its_way() -> None:
    """Its stamp lies where it may, and the delay would be wrong by the step and look right."""
    table = RoundTripTable()
    slot = opened(table)
    sequence = send(table, slot, 0)
    step, read = -1_000 * US, 10_050 * US
    table.reply(slot, sequence, WALL + 10_000 * US + step, read, WALL + read + step)
    assert only(table.drain(SECOND)).delay_faults == [(0, DELAY_FAULT_CLOCK_STEP)]


def test_a_step_and_back_between_two_readings_shows_in_the_stamp() -> None:
    table = RoundTripTable()
    slot = opened(table)
    sequence = send(table, slot, 0)
    table.reply(slot, sequence, WALL + 3 * SECOND, 450 * US, WALL + 450 * US)
    assert only(table.drain(SECOND)).delay_faults == [(0, DELAY_FAULT_CLOCK_STEP)]


def test_a_reply_without_a_send_or_receive_stamp_has_no_delay() -> None:
    table = RoundTripTable()
    slot = opened(table)
    without_send = send(table, slot, 0, stamp=False)
    without_receive = send(table, slot, SECOND)
    reply(table, slot, without_send, 200 * US)
    table.reply(slot, without_receive, None, SECOND + 200 * US, WALL + SECOND + 200 * US)
    batch = only(table.drain(2 * SECOND))
    assert batch.outcomes == [PACKET_OUTCOME_REPLIED] * 2
    assert batch.delay_faults == [(0, DELAY_FAULT_NO_STAMP), (1, DELAY_FAULT_NO_STAMP)]
    assert list(batch.round_trip_delays_ns) == []


def test_a_reply_read_after_the_waiting_time_is_late_where_no_stamp_says_when_it_came() -> None:
    table = RoundTripTable()
    slot = opened(table)
    sequence = send(table, slot, 0, stamp=False)
    reply(table, slot, sequence, SECOND + EXPIRY_SLACK_NS)
    batch = only(table.drain(2 * SECOND))
    assert batch.outcomes == [PACKET_OUTCOME_LOST]
    assert batch.marks == [Mark(PATH, sequence, PACKET_MARK_LATE, None)]


def test_an_icmp_error_after_the_reply_changes_nothing() -> None:
    table = RoundTripTable()
    slot = opened(table)
    sequence = send(table, slot, 0)
    reply(table, slot, sequence, 205 * US)
    table.unreachable(slot, sequence)
    batch = only(table.drain(SECOND))
    assert (batch.outcomes, batch.round_trip_delays_ns) == ([PACKET_OUTCOME_REPLIED], [200 * US])


def test_the_first_send_stamp_stands() -> None:
    table = RoundTripTable()
    slot = opened(table)
    entry = table.add(slot, 0, WALL)
    table.stamp(entry, 0, WALL + 5 * US, WALL + 9 * US)
    table.stamp(entry, 0, WALL + 100 * US, WALL + SECOND)
    reply(table, slot, 0, 205 * US)
    assert only(table.drain(SECOND)).round_trip_delays_ns == [200 * US]


def test_a_send_stamp_that_comes_after_the_reply_still_counts() -> None:
    table = RoundTripTable()
    slot = opened(table)
    entry = table.add(slot, 0, WALL)
    reply(table, slot, 0, 205 * US)
    table.stamp(entry, 0, WALL + 5 * US, WALL + SECOND)
    assert only(table.drain(SECOND)).round_trip_delays_ns == [200 * US]


def test_a_stamp_of_another_packet_or_out_of_its_time_is_not_taken() -> None:
    table = RoundTripTable()
    slot = opened(table)
    entry = table.add(slot, 1000, WALL + 1000)
    table.stamp(entry, 999, WALL + 2000, WALL + SECOND)  # another packet's
    table.stamp(entry, 1000, WALL + 999, WALL + SECOND)  # before it was sent
    table.stamp(entry, 1000, WALL + 2 * SECOND, WALL + SECOND)  # in the future
    reply(table, slot, 0, 205 * US)
    assert only(table.drain(SECOND)).delay_faults == [(0, DELAY_FAULT_NO_STAMP)]


def test_a_late_reply_is_a_mark_and_the_packet_stays_lost() -> None:
    table = RoundTripTable()
    slot = opened(table)
    sequence = send(table, slot, 0)
    lost = only(table.drain(SECOND + EXPIRY_SLACK_NS))
    assert lost.outcomes == [PACKET_OUTCOME_LOST]
    reply(table, slot, sequence, SECOND + 300 * EXPIRY_SLACK_NS // 100)
    reply(table, slot, sequence, 2 * SECOND)
    batch = table.drain(3 * SECOND)[0]
    assert [mark.kind for mark in batch.marks] == [PACKET_MARK_LATE, PACKET_MARK_DUPLICATE]
    assert batch.marks[0].delay_ns == SECOND + 3 * EXPIRY_SLACK_NS - 5 * US
    assert list(batch.outcomes) == []


def test_the_kernels_stamps_say_what_is_late_not_when_we_read() -> None:
    table = RoundTripTable()
    slot = opened(table)
    in_time, late = send(table, slot, 0), send(table, slot, 0)
    reply(table, slot, in_time, SECOND, read_after=3 * SECOND)  # we were held up
    reply(table, slot, late, SECOND + 6 * US, read_after=0)
    batch = only(table.drain(4 * SECOND))
    assert batch.outcomes == [PACKET_OUTCOME_REPLIED, PACKET_OUTCOME_LOST]
    assert batch.round_trip_delays_ns == [SECOND - 5 * US]
    assert batch.marks == [Mark(PATH, late, PACKET_MARK_LATE, SECOND + US)]


def test_a_damaged_reply_is_corrupt_and_the_first_word_stands() -> None:
    table = RoundTripTable()
    slot = opened(table)
    sequence = send(table, slot, 0)
    table.reply(slot, sequence, WALL + 200 * US, 300 * US, WALL + 300 * US, corrupt=True)
    reply(table, slot, sequence, 400 * US)
    batch = only(table.drain(SECOND))
    assert batch.outcomes == [PACKET_OUTCOME_CORRUPT]
    assert [mark.kind for mark in batch.marks] == [PACKET_MARK_DUPLICATE]


def test_what_is_ours_is_no_loss_and_stands_in_its_place() -> None:
    table = RoundTripTable()
    slot = opened(table)
    table.add(slot, 0, WALL, PACKET_OUTCOME_SKIPPED)
    entry = table.add(slot, SECOND, WALL + SECOND)
    table.settle(entry, PACKET_OUTCOME_SEND_FAILED)
    sequence = send(table, slot, 2 * SECOND)
    reply(table, slot, sequence, 2 * SECOND + 200 * US)
    batch = only(table.drain(3 * SECOND))
    assert batch.outcomes == [PACKET_OUTCOME_SKIPPED, PACKET_OUTCOME_SEND_FAILED, PACKET_OUTCOME_REPLIED]
    assert batch.first_sequences == [0]


def test_the_wire_sequence_wraps_and_finds_its_packet() -> None:
    table = RoundTripTable()
    slot = table.open(PATH, method=1, stamp_source=1, interval_ns=SECOND, waiting_ns=SECOND, first_sequence=2**16 - 2)
    assert slot is not None
    for turn in range(4):
        send(table, slot, turn * SECOND)
    offset = 5
    for sequence in range(2**16 - 2, 2**16 + 2):
        assert table.find(slot, (sequence + offset) & 0xFFFF, offset) == sequence
    assert table.find(slot, (2**16 + 2 + offset) & 0xFFFF, offset) is None
    assert table.find(slot, (2**16 - 3 + offset) & 0xFFFF, offset) is None


def test_replies_to_nothing_known_are_told_and_leave_no_trace() -> None:
    table = RoundTripTable()
    slot = opened(table)
    send(table, slot, 0)
    for stranger, sequence in ((slot, 1), (slot, 2**40), (99, 0)):
        assert not table.reply(stranger, sequence, WALL + 200 * US, 300 * US, WALL + 300 * US)
    assert only(table.drain(3 * SECOND)).outcomes == [PACKET_OUTCOME_LOST]


def test_a_flood_of_duplicates_is_bounded() -> None:
    table = RoundTripTable()
    slot = opened(table)
    sequence = send(table, slot, 0)
    for _ in range(MAX_MARKS + 101):
        reply(table, slot, sequence, 200 * US)
    batch = only(table.drain(SECOND))
    assert batch.outcomes == [PACKET_OUTCOME_REPLIED]
    assert len(batch.marks) == MAX_MARKS
    assert table.marks_dropped == 100


def test_when_nobody_drains_there_is_no_more_room() -> None:
    table = RoundTripTable()
    slot = opened(table)
    sent = 0
    while table.room(slot):
        send(table, slot, sent * SECOND)
        sent += 1
    assert sent * SECOND > HOLD_NS
    table.drain(sent * SECOND)
    assert table.room(slot)


def test_memory_has_a_limit_and_rings_are_used_again() -> None:
    table = RoundTripTable()
    slots = []
    while (slot := table.open(1, method=1, stamp_source=1, interval_ns=20_000_000, waiting_ns=SECOND)) is not None:
        slots.append(slot)
    assert 1 < len(slots) <= MAX_ENTRIES // 256
    table.retire(slots[0])
    table.drain(0)
    assert opened(table, interval_ns=20_000_000) == slots[0]


def test_a_path_with_new_settings_is_handed_out_after_the_old() -> None:
    table = RoundTripTable()
    old = opened(table)
    send(table, old, 0)
    following = table.retire(old)
    new = opened(table, follows=old)
    assert following == 1
    reply(table, new, send(table, new, 100 * US), 305 * US)
    assert table.drain(SECOND) == []
    first = only(table.drain(SECOND + EXPIRY_SLACK_NS))
    # Old and new share a group here, so one batch may hold both: old first.
    assert first.outcomes[0] == PACKET_OUTCOME_LOST
    rest = table.drain(2 * SECOND)
    assert [*first.outcomes[1:], *(rest[0].outcomes if rest else ())] == [PACKET_OUTCOME_REPLIED]
    assert table.ended or not table.active(old)


def test_user_stamps_are_monotonic_and_know_no_step() -> None:
    table = RoundTripTable(user_stamps=True)
    slot = opened(table)
    send(table, slot, SECOND, stamp=False)
    table.reply(slot, 0, None, SECOND + 700 * US, WALL + SECOND + 700 * US - 5 * SECOND)
    batch = only(table.drain(2 * SECOND))
    assert batch.round_trip_delays_ns == [700 * US]
    assert list(batch.delay_faults) == []
    assert batch.send_times_ns == [WALL + SECOND]


def test_the_oldest_packet_not_handed_out_bounds_the_watermark() -> None:
    table = RoundTripTable()
    assert table.oldest_unresolved_wall_ns() is None
    first, second = opened(table, 1), opened(table, 2)
    send(table, second, 50)
    send(table, first, 60)
    assert table.oldest_unresolved_wall_ns() == WALL + 50
    reply(table, second, 0, 200 * US)
    table.drain(SECOND // 2)
    assert table.oldest_unresolved_wall_ns() == WALL + 60


def test_paths_of_other_settings_come_in_batches_of_their_own() -> None:
    table = RoundTripTable()
    slow, fast = opened(table, 1), opened(table, 2, interval_ns=SECOND // 2)
    for slot in (slow, fast):
        reply(table, slot, send(table, slot, 0), 205 * US)
    batches = table.drain(SECOND)
    assert sorted((batch.interval_ns, tuple(batch.path_ids)) for batch in batches) == [
        (SECOND // 2, (2,)),
        (SECOND, (1,)),
    ]
