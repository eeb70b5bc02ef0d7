"""The STAMP sender over a fake network and clock: outcomes, directions, delays, and what never disturbs it."""

import errno
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from agent.clock import Anchor
from agent.probe.matching import HOLD_NS
from agent.probe.stamp_packet import (
    Reply,
    build_reply,
    build_request,
    encode_error,
    parse_reply,
    parse_request,
    request_tail,
    to_ntp,
)
from agent.probe.stamp_paths import StampPath, refusal
from agent.probe.stamp_sender import StampSession
from agent.probe.stamp_session import Link, Sent, one_way_delay
from agent.probe.stamp_wire import MAX_ONE_WAY, READ_LIMIT, REOPEN_NS
from agent.probe.stamps import ORIGIN_ICMP, ErrorReport
from agent.result import OneWayDelay, OneWayLoss, RoundTripBatch
from bandwitness.v1.record_pb2 import (
    DELAY_FAULT_CLOCK_STEP,
    DELAY_FAULT_NO_STAMP,
    DELAY_FAULT_REFLECTOR,
    PACKET_MARK_DUPLICATE,
    PACKET_MARK_LATE,
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_SEND_FAILED,
    PACKET_OUTCOME_SKIPPED,
    PACKET_OUTCOME_UNREACHABLE,
    PACKET_OUTCOME_UNRESOLVED,
    ROUND_TRIP_METHOD_STAMP,
)
from tests.fakes.clock import FakeClock
from tests.fakes.network import MILLISECOND, SECOND, samples
from tests.fakes.stamp_network import ONE_WAY_NS, FakeReflector, FakeStampNetwork

PEER = "10.0.0.2"
REMOTE = (PEER, 8620)
REPLIED, LOST = PACKET_OUTCOME_REPLIED, PACKET_OUTCOME_LOST


def path(port: int = 61_000, **changes: object) -> StampPath:
    usual = StampPath(
        path_id=port, address=PEER, ip_version=4, source_port=port, interval_ns=SECOND // 10, stateful=True
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


class Bench:
    """A session, its clock and its network with one reflector."""

    def __init__(self, *paths: StampPath, error_ns: int | None = None) -> None:
        self.clock = FakeClock()
        self.network = FakeStampNetwork(self.clock)
        self.reflector = self.network.reflectors[REMOTE] = FakeReflector()
        self.session = StampSession(
            self.clock, opener=self.network.open, clock_error=lambda: error_ns, random=Random(1)
        )
        self.session.configure(paths or [path()])
        self.batches: list[RoundTripBatch] = []
        self.losses: list[OneWayLoss] = []

    def pass_time(self, duration_ns: int, step_ns: int = 10 * MILLISECOND, *, drain: bool = True) -> None:
        for _ in range(duration_ns // step_ns):
            self.clock.move(step_ns)
            self.session.tick()
            if drain:
                self.drain()

    def drain(self) -> None:
        self.batches += self.session.drain(self.clock.monotonic_ns())
        self.losses += self.session.drain_losses()

    def outcomes(self, path_id: int = 61_000) -> list[int]:
        return [outcome for found, _, outcome in samples(self.batches) if found == path_id]

    def delays(self) -> list[int]:
        return [delay for batch in self.batches for delay in batch.round_trip_delays_ns]

    def faults(self) -> list[int]:
        return [fault for batch in self.batches for _, fault in batch.delay_faults]


def test_replies_and_their_delay_without_the_reflectors_own_time() -> None:
    bench = Bench()
    bench.reflector.residence_ns = 5 * MILLISECOND
    bench.reflector.clock_offset_ns = -1234 * SECOND  # its clock does not matter
    bench.pass_time(3 * SECOND)
    assert set(bench.outcomes()) == {REPLIED}
    assert len(bench.outcomes()) in range(28, 31)
    assert set(bench.delays()) == {2 * ONE_WAY_NS}
    assert {batch.method for batch in bench.batches} == {ROUND_TRIP_METHOD_STAMP}
    sequences = [sequence for _, sequence, _ in samples(bench.batches)]
    assert sequences == list(range(len(sequences)))


def test_the_hop_limit_of_the_replies_is_told() -> None:
    bench = Bench()
    bench.pass_time(2 * SECOND)
    assert {limit for batch in bench.batches for limit in batch.hop_limits} == {61}


def test_packets_are_as_the_rfc_wants_them() -> None:
    bench = Bench(path(payload_bytes=100))
    bench.pass_time(SECOND)
    requests = [parse_request(packet) for _, packet in bench.network.sent]
    assert [request.sequence for request in requests] == list(range(len(requests)))
    assert len({request.ssid for request in requests}) == 1
    assert requests[0].ssid
    assert len({request.timestamp for request in requests}) == len(requests)
    assert {len(packet) for _, packet in bench.network.sent} == {100}


def test_each_port_is_a_session_of_its_own() -> None:
    bench = Bench(*(path(61_000 + n) for n in range(16)))
    bench.pass_time(SECOND)
    assert len({parse_request(packet).ssid for _, packet in bench.network.sent}) == 16
    assert sorted(bench.network.sockets) == list(range(61_000, 61_016))
    bench.pass_time(SECOND)
    assert Counter(bench.outcomes(61_007)) == {REPLIED: len(bench.outcomes(61_007))}
    assert bench.reflector.counts.keys() == {(port, parse_request(packet).ssid) for port, packet in bench.network.sent}


def test_one_port_that_loses_shows_in_its_own_path_only() -> None:
    bench = Bench(*(path(61_000 + n) for n in range(4)))
    bench.reflector.dead_ports = {61_002}
    bench.pass_time(4 * SECOND)
    assert set(bench.outcomes(61_002)) == {LOST}
    assert all(set(bench.outcomes(61_000 + n)) == {REPLIED} for n in (0, 1, 3))


# ---------------------------------------------------------------- directions


@pytest.mark.parametrize(
    ("forward", "reverse", "knows_ssid", "stateful"),
    [(True, False, True, True), (False, True, True, True), (True, False, False, True), (False, True, False, False)],
)
def test_which_way_packets_are_lost(*, forward: bool, reverse: bool, knows_ssid: bool, stateful: bool) -> None:
    bench = Bench(path(stateful=stateful))
    bench.reflector.knows_ssid = knows_ssid
    if forward:
        bench.reflector.drop_forward = lambda number: number % 5 == 3
    if reverse:
        bench.reflector.drop_reverse = lambda number: number % 5 == 3
    bench.pass_time(10 * SECOND)
    lost = bench.outcomes().count(LOST)
    assert lost in range(15, 20)
    known = sum(loss.forward_lost + loss.reverse_lost for loss in bench.losses)
    assert lost - 1 <= known <= lost + 1  # one may be told before its outcome or after
    assert sum(loss.reverse_lost for loss in bench.losses) == (known if reverse else 0)
    by_sequence = {sequence: outcome for _, sequence, outcome in samples(bench.batches)}
    assert all(by_sequence.get(loss.first_sequence, LOST) == LOST for loss in bench.losses)


def test_a_reflector_that_only_copies_tells_no_direction() -> None:
    bench = Bench(path(stateful=False))
    bench.reflector.stateful = False
    bench.reflector.drop_reverse = lambda number: number % 3 == 1
    bench.pass_time(5 * SECOND)
    assert bench.outcomes().count(LOST) > 10
    assert {(loss.forward_lost, loss.reverse_lost) for loss in bench.losses} == {(0, 0)}
    assert sum(loss.either_lost for loss in bench.losses) > 10


def test_an_unknown_reflector_is_asked_from_1_on_and_a_known_one_from_0() -> None:
    bench = Bench(path(), path(61_001, stateful=False))
    bench.pass_time(SECOND)
    first = {port: parse_request(packet).sequence for port, packet in reversed(bench.network.sent)}
    assert first == {61_000: 0, 61_001: 1}


def test_a_reflector_that_restarts_is_no_loss_of_either_direction() -> None:
    bench = Bench()
    bench.pass_time(2 * SECOND)
    bench.reflector.drop_forward = lambda _: True
    bench.pass_time(SECOND)
    bench.reflector.restart()
    bench.reflector.drop_forward = lambda _: False
    bench.pass_time(3 * SECOND)
    assert bench.outcomes().count(LOST) in range(9, 12)
    (loss,) = bench.losses
    assert (loss.forward_lost, loss.reverse_lost, loss.either_lost) == (0, 0, bench.outcomes().count(LOST))


def test_a_long_silence_is_told_when_it_ends() -> None:
    bench = Bench()
    bench.pass_time(2 * SECOND)
    bench.reflector.drop_forward = lambda _: True
    bench.pass_time(60 * SECOND, step_ns=50 * MILLISECOND)
    assert bench.losses == []
    bench.reflector.drop_forward = lambda _: False
    bench.pass_time(3 * SECOND)
    (loss,) = bench.losses
    assert loss.forward_lost == bench.outcomes().count(LOST) == loss.last_sequence - loss.first_sequence + 1
    assert loss.reverse_lost == 0


# ---------------------------------------------------------------- one-way delay


def test_one_way_delays_beside_the_error_of_both_clocks() -> None:
    bench = Bench(error_ns=4_000)
    bench.reflector.error_ns, bench.reflector.clock_offset_ns = 6_000, -130_000
    bench.reflector.residence_ns = MILLISECOND
    bench.pass_time(SECOND)
    delays = bench.session.drain_delays()
    assert delays[0] == OneWayDelay(
        61_000,
        0,
        ONE_WAY_NS - 130_000,
        ONE_WAY_NS + 130_000,
        4_000,
        delays[0].reflector_error_ns,
        delays[0].send_time_ns,
    )
    assert 10_000 <= delays[0].clock_error_ns <= 10_100
    assert delays[1].send_time_ns > delays[0].send_time_ns > 0
    assert bench.session.drain_delays() == []


@pytest.mark.parametrize(("ours", "theirs"), [(None, 6_000), (4_000, None), (None, None)])
def test_no_one_way_delay_where_one_clock_is_not_known(ours: int | None, theirs: int | None) -> None:
    bench = Bench(error_ns=ours)
    bench.reflector.error_ns = theirs
    bench.pass_time(SECOND)
    assert bench.session.drain_delays() == []


def test_a_send_stamp_that_comes_too_late_is_no_other_packets() -> None:
    link = Link(path().source, FakeStampNetwork(FakeClock()).open(path().source))
    packets = [Sent(number, number, number, Anchor(number, number, number)) for number in range(300)]
    for sent in packets:
        link.remember(sent)
    assert link.take(0) is None  # its place is that of a newer one
    assert link.take(299) is packets[299]
    assert link.take(299) is None
    assert link.take(300) is None


def test_no_one_way_delay_from_a_clock_that_may_count_tai() -> None:
    """Its 37 s are not told from a wrong clock."""
    now = Anchor(1_700_000_000 * SECOND, SECOND, SECOND)
    sent = Sent(0, 0, to_ntp(now.wall_ns), now)
    sent.tx_ns = now.wall_ns
    for ptp in (False, True):
        stamps = (to_ntp(now.wall_ns + 1000), to_ntp(now.wall_ns + 900))
        reply = Reply(0, stamps[0], encode_error(6_000, ptp=ptp), 1, stamps[1], 0, sent.timestamp, 1, None)
        delay = one_way_delay(7, sent, reply, now.wall_ns + 2000, now=now, error_ns=4_000)
        assert (delay is None) == ptp


def test_no_one_way_delay_across_a_clock_step() -> None:
    bench = Bench(error_ns=4_000)
    bench.reflector.error_ns = 6_000
    bench.reflector.reverse_ns = 30 * MILLISECOND
    bench.pass_time(200 * MILLISECOND)
    bench.session.drain_delays()
    bench.clock.move(10 * MILLISECOND)
    bench.session.tick()
    sent = len(bench.network.sent)
    while len(bench.network.sent) == sent:
        bench.clock.move(10 * MILLISECOND)
        bench.session.tick()
    bench.session.drain_delays()
    bench.clock.step(-3 * SECOND)
    bench.clock.move(40 * MILLISECOND)
    bench.session.tick()
    assert bench.session.drain_delays() == []
    bench.drain()
    assert bench.faults() == [DELAY_FAULT_CLOCK_STEP]


def test_one_way_results_that_nobody_drains_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.probe.stamp_wire.MAX_ONE_WAY", 5)
    bench = Bench(error_ns=1)
    bench.reflector.error_ns = 1
    bench.pass_time(2 * SECOND)
    assert len(bench.session.drain_delays()) == 5
    assert "one-way results not kept" in bench.session.state().detail
    assert MAX_ONE_WAY > 5


# ---------------------------------------------------------------- outcomes


def test_duplicates_and_late_replies_are_marks() -> None:
    bench = Bench(path(waiting_ns=50 * MILLISECOND))
    bench.reflector.copies = 2
    bench.pass_time(SECOND)
    bench.reflector.reverse_ns = 200 * MILLISECOND
    bench.pass_time(SECOND)
    marks = Counter(mark.kind for batch in bench.batches for mark in batch.marks)
    assert marks[PACKET_MARK_DUPLICATE] >= 9
    assert marks[PACKET_MARK_LATE] >= 6
    assert set(bench.outcomes()) == {REPLIED, LOST}


@pytest.mark.parametrize(("ours", "outcome"), [(False, PACKET_OUTCOME_UNREACHABLE), (True, PACKET_OUTCOME_SEND_FAILED)])
def test_nobody_at_the_port_has_no_direction_and_is_no_loss_where_the_reflector_is_ours(
    ours: bool, outcome: int
) -> None:
    bench = Bench(path(stateful=ours))
    bench.pass_time(SECOND)
    bench.reflector.refuses = True
    bench.pass_time(SECOND)
    bench.reflector.refuses = False
    bench.pass_time(3 * SECOND)
    assert set(bench.outcomes()) == {REPLIED, outcome}
    assert bench.losses == []


def test_an_icmp_error_that_quotes_no_payload_is_about_the_newest_packet() -> None:
    bench = Bench()
    bench.network.reflectors.clear()
    bench.pass_time(150 * MILLISECOND)
    report = ErrorReport(ORIGIN_ICMP, errno.EHOSTUNREACH, 3, 1, 0, None)
    bench.network.sockets[61_000].errors.append((b"", REMOTE, report))
    bench.pass_time(2 * SECOND)
    assert bench.outcomes().count(PACKET_OUTCOME_UNREACHABLE) == 1


def test_forged_icmp_errors_change_nothing() -> None:
    bench = Bench()
    bench.reflector.reverse_ns = 500 * MILLISECOND
    bench.pass_time(150 * MILLISECOND)
    assert bench.network.sent  # and not answered yet
    opened = bench.network.sockets[61_000]
    report = ErrorReport(ORIGIN_ICMP, errno.ECONNREFUSED, 3, 3, 0, None)
    forged = build_request(0, to_ntp(1), 0x8A01, 1, request_tail(44))
    opened.errors.extend([(forged, REMOTE, report), (b"", ("192.0.2.1", 8620), report)])
    bench.pass_time(2 * SECOND)
    assert set(bench.outcomes()) == {REPLIED}


def test_few_refusals_speak_for_all_packets_that_found_no_reflector() -> None:
    """Linux sends one a second to each host: the others must not look lost."""
    ports = [path(port) for port in range(61_000, 61_008)]
    bench = Bench(*ports)
    bench.reflector.refusals_ns = SECOND
    bench.pass_time(5 * SECOND)
    bench.reflector.refuses = True
    bench.pass_time(8 * SECOND)
    bench.reflector.refuses = False
    bench.reflector.restart()
    bench.pass_time(4 * SECOND)
    for port in range(61_000, 61_008):
        assert Counter(bench.outcomes(port)).keys() == {REPLIED, PACKET_OUTCOME_SEND_FAILED}
        assert bench.outcomes(port).count(PACKET_OUTCOME_SEND_FAILED) in range(79, 82)
    assert sum(loss.forward_lost + loss.reverse_lost + loss.either_lost for loss in bench.losses) == 0


def test_loss_beside_a_reflector_that_is_there_stays_loss_also_after_it_was_away() -> None:
    bench = Bench()
    bench.reflector.refusals_ns = SECOND
    bench.pass_time(3 * SECOND)
    bench.reflector.refuses = True
    bench.pass_time(2 * SECOND)
    bench.reflector.refuses = False
    bench.pass_time(SECOND)
    bench.reflector.drop_forward = lambda number: number % 2 == 0
    bench.pass_time(2 * SECOND)
    bench.reflector.drop_forward = lambda _: False
    bench.pass_time(2 * SECOND)
    assert bench.outcomes().count(LOST) in range(9, 12)
    assert bench.outcomes().count(PACKET_OUTCOME_SEND_FAILED) in range(19, 22)


def test_a_host_that_says_nothing_any_more_is_lost_though_it_had_said_that_no_reflector_is_there() -> None:
    bench = Bench()
    bench.reflector.refusals_ns = SECOND
    bench.reflector.refuses = True
    bench.pass_time(2 * SECOND)
    del bench.network.reflectors[REMOTE]
    bench.pass_time(20 * SECOND)
    assert bench.outcomes().count(LOST) > 120
    assert set(bench.outcomes()[-100:]) == {LOST}


def test_a_reflector_that_is_not_ours_has_no_excuse() -> None:
    bench = Bench(path(stateful=False))
    bench.reflector.refusals_ns = SECOND
    bench.reflector.refuses = True
    bench.pass_time(5 * SECOND)
    assert set(bench.outcomes()) == {LOST, PACKET_OUTCOME_UNREACHABLE}


def test_a_refused_send_is_ours_and_the_next_goes_on() -> None:
    bench = Bench()
    bench.pass_time(SECOND)
    bench.network.send_errors.extend([errno.ENOBUFS, errno.ENOBUFS])
    bench.pass_time(3 * SECOND)
    assert Counter(bench.outcomes())[PACKET_OUTCOME_SEND_FAILED] == 1
    assert bench.outcomes().count(LOST) == 0
    assert bench.faults() == []
    numbers = [parse_request(packet).sequence for _, packet in bench.network.sent]
    assert numbers == list(range(len(numbers)))  # what was not sent used up no number on the wire


def test_a_pending_error_does_not_cost_a_packet() -> None:
    bench = Bench()
    bench.pass_time(SECOND)
    bench.network.send_errors.append(errno.ECONNREFUSED)
    bench.pass_time(3 * SECOND)
    assert set(bench.outcomes()) == {REPLIED}
    assert bench.faults() == []


def test_a_port_that_cannot_be_had_is_said_and_tried_again() -> None:
    bench = Bench(path(), path(61_001))
    bench.network.missing.add(61_001)
    bench.pass_time(2 * SECOND)
    assert set(bench.outcomes(61_001)) == {PACKET_OUTCOME_SEND_FAILED}
    assert set(bench.outcomes()) == {REPLIED}
    state = bench.session.state()
    assert (state.state, state.detail) == ("source_missing", "any port 61001: [Errno 98] Address already in use")
    bench.network.missing.clear()
    bench.pass_time(REOPEN_NS + 2 * SECOND)
    assert bench.outcomes(61_001)[-1] == REPLIED
    assert bench.session.state().state == "ok"


def test_a_source_that_goes_away_is_opened_again() -> None:
    bench = Bench()
    bench.pass_time(SECOND)
    first = bench.network.sockets[61_000]
    bench.network.send_errors.extend([errno.ENODEV, errno.ENODEV])
    bench.pass_time(SECOND)
    assert first.closed
    assert bench.session.state().state == "source_missing"
    bench.pass_time(REOPEN_NS + 2 * SECOND)
    assert bench.outcomes()[-1] == REPLIED
    assert len({parse_request(packet).ssid for _, packet in bench.network.sent}) == 2  # a session of its own


def test_turns_that_passed_are_skipped() -> None:
    bench = Bench()
    bench.pass_time(SECOND)
    bench.clock.move(SECOND)  # held up
    bench.pass_time(3 * SECOND)
    assert Counter(bench.outcomes())[PACKET_OUTCOME_SKIPPED] in range(8, 11)


def test_a_path_without_an_address_is_unresolved() -> None:
    bench = Bench(path(address=""))
    bench.pass_time(SECOND)
    assert set(bench.outcomes()) == {PACKET_OUTCOME_UNRESOLVED}
    assert bench.network.sent == []


def test_a_zone_that_is_no_device_here() -> None:
    bench = Bench(path(address="fe80::1%nosuchdev", ip_version=6))
    bench.pass_time(SECOND)
    assert set(bench.outcomes()) == {PACKET_OUTCOME_SEND_FAILED}


def test_no_send_stamp_no_delay_but_no_loss() -> None:
    bench = Bench()
    bench.network.stamps_sends = False
    bench.pass_time(2 * SECOND)
    assert set(bench.outcomes()) == {REPLIED}
    assert set(bench.faults()) == {DELAY_FAULT_NO_STAMP}


# ---------------------------------------------------------------- nonsense


def test_a_reflector_whose_times_cannot_be_still_answers() -> None:
    bench = Bench()
    bench.reflector.residence_ns = -5  # answered before it came
    bench.pass_time(SECOND)
    bench.reflector.residence_ns = 1
    bench.reflector.damage = lambda reply: reply[:4] + b"\xff" * 8 + reply[12:]
    bench.pass_time(2 * SECOND)
    assert set(bench.outcomes()) == {REPLIED}
    assert set(bench.faults()) == {DELAY_FAULT_REFLECTOR}
    assert bench.delays() == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda reply: b"",
        lambda reply: reply[:37],
        lambda reply: bytes(len(reply)),
        lambda reply: reply[:14] + b"\x77\x77" + reply[16:],  # another session's SSID
        lambda reply: reply[:24] + b"\xff\xff\xff\x00" + reply[28:],  # no such packet
        lambda reply: reply[:35] + bytes([reply[35] ^ 1]) + reply[36:],  # one bit of our timestamp
    ],
)
def test_what_is_no_reply_to_one_of_ours(damage: "object") -> None:
    bench = Bench()
    bench.reflector.damage = damage  # type: ignore[assignment]
    bench.pass_time(3 * SECOND)
    assert set(bench.outcomes()) == {LOST}
    assert "packets that are no reply to one of ours" in bench.session.state().detail


@pytest.mark.parametrize("remote", [("10.0.0.3", 8620), (PEER, 8621)])
def test_replies_from_the_wrong_address_or_port(remote: tuple[str, int]) -> None:
    bench = Bench()
    bench.reflector.answers_from = remote
    bench.pass_time(3 * SECOND)
    assert set(bench.outcomes()) == {LOST}


def test_a_flood_of_forged_replies() -> None:
    """They cost a counter, hold the loop for one reading at a time, and change nothing."""
    bench = Bench()
    bench.pass_time(SECOND)
    opened = bench.network.sockets[61_000]
    request = parse_request(bench.network.sent[-1][1])
    now = bench.clock.monotonic_ns()
    for number in range(20 * READ_LIMIT):
        guess = request._replace(sequence=number, timestamp=request.timestamp + 1 + number)
        forged = build_reply(guess, b"", sequence=number, received=1, sent=1, error_estimate=0x8A01, ttl=9)
        opened.deliver(forged, REMOTE, now, bench.clock.wall_ns())
    bench.session.tick()
    assert len(opened.pending) >= 19 * READ_LIMIT - 2
    bench.pass_time(3 * SECOND)
    assert set(bench.outcomes()) == {REPLIED}
    assert bench.losses == []
    assert "5120 packets that are no reply" in bench.session.state().detail


def test_an_old_reply_sent_again_is_a_mark_and_memory_is_bounded() -> None:
    bench = Bench()
    recorded: list[bytes] = []
    bench.reflector.damage = lambda reply: (recorded.append(reply), reply)[1]  # type: ignore[func-returns-value]
    bench.pass_time(60 * SECOND, step_ns=50 * MILLISECOND)
    opened = bench.network.sockets[61_000]
    for reply in recorded:
        opened.deliver(reply, REMOTE, bench.clock.monotonic_ns(), bench.clock.wall_ns())
    bench.pass_time(3 * SECOND)
    assert set(bench.outcomes()) == {REPLIED}
    (session,) = bench.session._wire.sessions.values()
    assert len(session._sent) < 40
    assert bench.losses == []
    assert parse_reply(recorded[0]).sequence == 0


# ---------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"interval_ns": 19_999_999}, "interval 0.02 s"),
        ({"interval_ns": 3601 * SECOND}, "interval 3601 s"),
        ({"waiting_ns": 1}, "waiting time"),
        ({"waiting_ns": 11 * SECOND}, "waiting time 11 s"),
        ({"payload_bytes": 43}, "payload 43"),
        ({"payload_bytes": 9000}, "payload 9000"),
        ({"dscp": 64}, "DSCP 64"),
        ({"source_port": 862}, "source port 862 is a service's"),
        ({"source_port": 70_000}, "source port 70000"),
        ({"destination_port": 0}, "destination port 0"),
        ({"address": "gpu-1"}, "'gpu-1' is not an address"),
        ({"address": "224.0.0.1"}, "224.0.0.1 is not the address of one host"),
        ({"address": "255.255.255.255"}, "not the address of one host"),
        ({"address": "::1"}, "::1 is not of IP version 4"),
        ({"address": "fe80::1", "ip_version": 6}, "say on which link"),
        ({"source_address": "::1"}, "cannot be reached from ::1"),
        ({"source_address": "eth0"}, "cannot be reached from eth0"),
    ],
)
def test_guards_refuse_and_the_others_go_on(changes: dict[str, object], reason: str) -> None:
    bad = path(61_009, **changes)
    assert reason in refusal(bad)
    bench = Bench(path(), replace(bad, path_id=5))
    bench.pass_time(2 * SECOND)
    assert {found for found, _, _ in samples(bench.batches)} == {61_000}
    state = bench.session.state()
    assert state.state == "degraded"
    assert reason in state.detail


def test_too_many_packets_a_second_are_refused() -> None:
    paths = [path(61_000 + n, interval_ns=20 * MILLISECOND) for n in range(121)]
    bench = Bench(*paths)
    bench.session.tick()
    assert "1 paths over the limit of 5000 paths and 6000 packets a second" in bench.session.state().detail


def test_a_path_that_is_there_twice_is_refused() -> None:
    bench = Bench(path(), path(dscp=8))
    assert "path 61000 is there twice" in bench.session.state().detail


def test_a_changed_list_lets_what_stays_go_on() -> None:
    bench = Bench(path(), path(61_001))
    bench.pass_time(2 * SECOND)
    bench.session.configure([path()])
    bench.pass_time(3 * SECOND)
    assert bench.network.sockets[61_001].closed
    gone = bench.outcomes(61_001)
    assert set(gone) == {REPLIED}
    bench.session.configure([path(), path(61_001)])
    bench.pass_time(3 * SECOND)
    sequences = [sequence for found, sequence, _ in samples(bench.batches) if found == 61_001]
    assert sequences == list(range(len(sequences)))
    assert len(sequences) > len(gone)
    assert not bench.network.sockets[61_000].closed


def test_a_path_with_another_interval_follows_on_its_own_sequence() -> None:
    bench = Bench()
    bench.pass_time(2 * SECOND)
    bench.session.configure([path(interval_ns=50 * MILLISECOND)])
    bench.pass_time(3 * SECOND)
    assert set(bench.outcomes()) == {REPLIED}
    sequences = [sequence for _, sequence, _ in samples(bench.batches)]
    assert sequences == list(range(len(sequences)))


def test_a_path_with_so_many_turns_ends_by_itself() -> None:
    bench = Bench(path(turns=7), path(61_001, turns=20))
    bench.pass_time(500 * MILLISECOND)
    bench.clock.move(2 * SECOND)  # held up: its last turns are skipped
    bench.pass_time(6 * SECOND)
    assert len(bench.outcomes()) == 7
    assert len(bench.outcomes(61_001)) == 20
    assert Counter(bench.outcomes())[PACKET_OUTCOME_SKIPPED] >= 1


def test_the_watermark_waits_for_what_is_still_out() -> None:
    bench = Bench()
    assert bench.session.oldest_unresolved_ns() is None
    bench.reflector.drop_forward = lambda _: True
    bench.pass_time(150 * MILLISECOND)
    oldest = bench.session.oldest_unresolved_ns()
    assert oldest is not None
    assert oldest <= bench.clock.wall_ns()
    bench.pass_time(500 * MILLISECOND)
    assert bench.session.oldest_unresolved_ns() == oldest


def test_when_nobody_drains_turns_are_not_recorded() -> None:
    bench = Bench()
    bench.pass_time(HOLD_NS + 10 * SECOND, step_ns=100 * MILLISECOND, drain=False)
    assert "turns not recorded" in bench.session.state().detail


def test_ttls_with_which_packets_arrive() -> None:
    bench = Bench()
    bench.pass_time(SECOND)
    assert bench.session.arrival_ttls() == {61_000: 60}
