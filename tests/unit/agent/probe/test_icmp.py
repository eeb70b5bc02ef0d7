"""The echo prober over a fake network and clock: every packet's outcome, and what never disturbs it."""

import asyncio
import errno
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from agent.probe.icmp import EchoSession
from agent.probe.icmp_socket import DATAGRAM, RAW, Arrived, Rights, find_rights, warm_up
from agent.probe.icmp_wire import READ_LIMIT, REOPEN_NS
from agent.probe.matching import HOLD_NS
from agent.probe.path_slots import MAX_PATHS
from agent.probe.resolve import Resolver
from agent.probe.round_trip import RoundTripProbes
from agent.result import RoundTripBatch
from bandwitness.identity import short_id
from bandwitness.v1.plan_pb2 import RoundTripTarget
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
    PROTOCOL_TCP_CONNECT,
    ROUND_TRIP_METHOD_ICMP_DATAGRAM,
    ROUND_TRIP_METHOD_ICMP_RAW,
    ROUND_TRIP_METHOD_TCP_CONNECT,
    STAMP_SOURCE_KERNEL,
)
from bandwitness.v1.record_pb2 import Path as PathMessage
from tests.fakes.clock import START_MONOTONIC_NS, FakeClock
from tests.fakes.network import (
    MILLISECOND,
    SECOND,
    FakeConnects,
    FakeEchoSocket,
    FakeNetwork,
    Host,
    echo_reply,
    outcomes_by_address,
    round_trip_target,
    samples,
    wire_sequence,
)

ALIVE, DEAD = "198.51.100.7", "198.51.100.8"


class Bench:
    """A session, its clock and its network."""

    def __init__(self, *targets: RoundTripTarget, rights: Rights | None = None) -> None:
        self.clock = FakeClock()
        self.network = FakeNetwork(self.clock)
        self.network.hosts[ALIVE] = Host()
        self.session = EchoSession(
            self.clock,
            opener=self.network.open,
            resolver=Resolver(self.clock, lambda _: []),
            random=Random(1),
            rights=rights,
        )
        self.network.sockets.clear()  # those of the self-test
        self.session.configure(targets)
        self.batches: list[RoundTripBatch] = []
        self.definitions: dict[int, bytes] = {}  # also of paths that have ended

    def pass_time(self, duration_ns: int, step_ns: int = 10 * MILLISECOND) -> None:
        """Ticks as ``run`` would."""
        for _ in range(duration_ns // step_ns):
            self.clock.move(step_ns)
            self.session.tick()

    def drain(self) -> list[RoundTripBatch]:
        drained = self.session.drain(self.clock.monotonic_ns())
        self.batches += drained
        self.definitions |= self.session.definitions
        return drained

    def finish(self) -> dict[str, list[int]]:
        """Stops sending, waits for the rest, and returns all outcomes by address."""
        self.drain()
        self.session.configure([])
        self.pass_time(4 * SECOND)
        self.drain()
        return outcomes_by_address(self.batches, self.definitions)


def test_replies_give_the_kernels_delay() -> None:
    bench = Bench(round_trip_target(ALIVE))
    bench.pass_time(3 * SECOND)
    (batch,) = bench.drain()
    assert batch.method == ROUND_TRIP_METHOD_ICMP_RAW
    assert batch.stamp_source == STAMP_SOURCE_KERNEL
    assert (batch.interval_ns, batch.waiting_time_ns) == (SECOND, SECOND)
    assert set(batch.outcomes) == {PACKET_OUTCOME_REPLIED}
    assert set(batch.round_trip_delays_ns) == {200_000}
    (path_id,) = batch.path_ids
    definition = bench.session.definitions[path_id]
    assert short_id(definition) == path_id
    path = PathMessage.FromString(definition)
    assert (path.type_p.ip_version, path.type_p.payload_bytes) == (4, 56)
    assert bench.session.state().state == "ok"


def test_the_hop_limit_is_that_of_the_newest_reply_of_the_flush() -> None:
    bench = Bench(round_trip_target(ALIVE), round_trip_target(DEAD))
    bench.network.hosts[ALIVE].hop_limit = 61
    bench.pass_time(2 * SECOND)
    bench.network.hosts[ALIVE].hop_limit = 59  # the way back has become two routers longer
    bench.pass_time(SECOND)
    (batch,) = bench.drain()
    addresses = [
        PathMessage.FromString(bench.session.definitions[path_id]).target.address for path_id in batch.path_ids
    ]
    assert dict(zip(addresses, batch.hop_limits, strict=True)) == {ALIVE: 59, DEAD: 0}
    bench.network.hosts[ALIVE] = Host(delays=())
    bench.pass_time(3 * SECOND)
    (batch,) = bench.drain()
    assert set(batch.hop_limits) == {0}  # nothing came since


def test_case_13_duplicate_replies() -> None:
    bench = Bench(round_trip_target(ALIVE))
    bench.network.hosts[ALIVE] = Host(delays_of={0: (200_000, 300_000), 1: (200_000, 250_000), 2: (200_000,), 3: ()})
    while len(bench.network.sent) < 4:
        bench.pass_time(10 * MILLISECOND)
    found = bench.finish()[ALIVE]
    assert found == [PACKET_OUTCOME_REPLIED] * 3 + [PACKET_OUTCOME_LOST]
    marks = [mark for batch in bench.batches for mark in batch.marks]
    assert [(mark.sequence, mark.kind, mark.delay_ns) for mark in marks] == [
        (0, PACKET_MARK_DUPLICATE, 300_000),
        (1, PACKET_MARK_DUPLICATE, 250_000),
    ]


def test_case_15_total_loss_by_icmp_errors() -> None:
    bench = Bench(round_trip_target(DEAD))
    bench.network.hosts[DEAD] = Host(refuses=True)
    bench.pass_time(3 * SECOND)
    found = bench.finish()[DEAD]
    assert found == [PACKET_OUTCOME_UNREACHABLE] * 3
    assert all(not batch.round_trip_delays_ns and not batch.delay_faults for batch in bench.batches)


def test_case_17_two_probers_share_one_icmp_id() -> None:
    bench = Bench(round_trip_target(ALIVE), round_trip_target(DEAD))
    bench.pass_time(SECOND)
    (socket,) = bench.network.sockets
    requests = dict(bench.network.sent)
    # The stranger's reply: our identifier and wire sequence, from both addresses, with its own payload.
    for address in (ALIVE, DEAD):
        stranger = requests[address][:8] + bytes(range(56))
        socket.deliver(echo_reply(stranger), address)
    # And ours for the dead host, answered by the live one.
    socket.deliver(echo_reply(requests[DEAD]), ALIVE)
    found = bench.finish()
    assert found[ALIVE] == [PACKET_OUTCOME_REPLIED]
    assert found[DEAD] == [PACKET_OUTCOME_LOST]
    assert [mark for batch in bench.batches for mark in batch.marks] == []


def test_a_reply_whose_wire_sequence_is_not_that_of_its_number_is_no_reply() -> None:
    """Damaged so that even its checksum fits: no packet of ours has gone out like that."""
    bench = Bench(round_trip_target(DEAD))
    bench.pass_time(SECOND)
    (socket,), request = bench.network.sockets, dict(bench.network.sent)[DEAD]
    socket.deliver(echo_reply(request[:6] + bytes([request[6] ^ 0x40, request[7]]) + request[8:]), DEAD)
    assert bench.finish()[DEAD] == [PACKET_OUTCOME_LOST]


def test_case_17_the_datagram_sockets_identifier_is_read_back() -> None:
    bench = Bench(round_trip_target(ALIVE), rights=Rights(DATAGRAM, DATAGRAM))
    bench.pass_time(SECOND)
    (socket,) = bench.network.sockets
    assert {packet[4:6] for _, packet in bench.network.sent} == {socket.identifier.to_bytes(2, "big")}
    assert bench.finish()[ALIVE] == [PACKET_OUTCOME_REPLIED]
    assert {batch.method for batch in bench.batches} == {ROUND_TRIP_METHOD_ICMP_DATAGRAM}


@pytest.mark.parametrize("step_ns", [-1_759_986_000, SECOND, MILLISECOND])
def test_case_19_negative_rtt_after_a_clock_step(step_ns: int) -> None:
    bench = Bench(round_trip_target(ALIVE))
    bench.network.hosts[ALIVE] = Host(delays=(400_000,))
    while not bench.network.sent:
        bench.pass_time(10 * MILLISECOND)
    bench.clock.move(100_000)
    bench.clock.step(step_ns)
    bench.pass_time(2 * SECOND)
    bench.drain()
    (batch,) = bench.batches
    assert batch.outcomes[0] == PACKET_OUTCOME_REPLIED
    assert batch.delay_faults == [(0, DELAY_FAULT_CLOCK_STEP)]
    assert set(batch.round_trip_delays_ns) == {400_000}
    assert set(bench.finish()[ALIVE]) == {PACKET_OUTCOME_REPLIED}


def test_a_missing_send_stamp_leaves_the_delay_out() -> None:
    bench = Bench(round_trip_target(ALIVE))
    bench.network.stamps_sends = False
    bench.pass_time(SECOND)
    (batch,) = bench.drain()
    assert batch.outcomes == [PACKET_OUTCOME_REPLIED]
    assert batch.delay_faults == [(0, DELAY_FAULT_NO_STAMP)]


def test_a_late_reply_is_a_mark_on_a_lost_packet() -> None:
    bench = Bench(round_trip_target(ALIVE, waiting_ns=100 * MILLISECOND))
    bench.network.hosts[ALIVE] = Host(delays=(150 * MILLISECOND,))
    bench.pass_time(SECOND)
    assert bench.finish()[ALIVE] == [PACKET_OUTCOME_LOST]
    (mark,) = [mark for batch in bench.batches for mark in batch.marks]
    assert (mark.kind, mark.delay_ns) == (PACKET_MARK_LATE, 150 * MILLISECOND)


@pytest.mark.parametrize("at", [20, 27, 31, 63, 2])
def test_a_damaged_reply_is_corrupt(at: int) -> None:
    """Bits of slot, sequence, fill and checksum."""

    def damage(message: bytes) -> bytes:
        return message[:at] + bytes([message[at] ^ 0x11]) + message[at + 1 :]

    bench = Bench(round_trip_target(ALIVE))
    bench.network.hosts[ALIVE] = Host(damage=damage)
    bench.pass_time(SECOND)
    assert bench.finish()[ALIVE] == [PACKET_OUTCOME_CORRUPT]


@pytest.mark.parametrize("damage", [lambda m: m[:20], lambda m: m[:8] + bytes([m[8] ^ 0x80]) + m[9:]])
def test_a_reply_cut_or_with_a_bit_of_its_token_flipped_is_corrupt(damage: Callable[[bytes], bytes]) -> None:
    bench = Bench(round_trip_target(ALIVE))
    bench.network.hosts[ALIVE] = Host(damage=damage)
    bench.pass_time(SECOND)
    assert bench.finish()[ALIVE] == [PACKET_OUTCOME_CORRUPT]


def test_an_error_that_quotes_8_bytes_is_matched_and_a_strangers_is_not() -> None:
    bench = Bench(round_trip_target(ALIVE), round_trip_target(DEAD))
    bench.network.hosts[ALIVE] = Host(delays=())
    bench.pass_time(SECOND)
    (socket,) = bench.network.sockets
    requests = dict(bench.network.sent)
    socket.report(requests[DEAD][:8], DEAD)
    other_token = requests[ALIVE][:8] + bytes(8) + requests[ALIVE][16:]
    other_identifier = requests[ALIVE][:4] + bytes(2) + requests[ALIVE][6:]
    for quoted in (other_token, other_identifier, requests[ALIVE][:7], echo_reply(requests[ALIVE])):
        socket.report(quoted, ALIVE)
    socket.report(requests[ALIVE], DEAD)
    found = bench.finish()
    assert found == {DEAD: [PACKET_OUTCOME_UNREACHABLE], ALIVE: [PACKET_OUTCOME_LOST]}
    assert socket.closed


def test_local_send_errors_are_not_loss() -> None:
    refusals = [errno.EPERM, errno.ENOBUFS, errno.ENETUNREACH]
    bench = Bench(round_trip_target(ALIVE))
    bench.network.send_errors[ALIVE] = deque(code for code in refusals for _ in range(2))
    bench.pass_time(4 * SECOND)
    assert bench.finish()[ALIVE] == [PACKET_OUTCOME_SEND_FAILED] * 3 + [PACKET_OUTCOME_REPLIED]
    delays = [delay for batch in bench.batches for delay in batch.round_trip_delays_ns]
    assert delays == [200_000]  # the stamps fit again after the refusals


def test_a_refusal_that_is_another_packets_pending_error_costs_nothing() -> None:
    bench = Bench(round_trip_target(ALIVE))
    bench.network.send_errors[ALIVE] = deque([errno.EHOSTUNREACH, 0])
    bench.pass_time(SECOND)
    assert bench.finish()[ALIVE] == [PACKET_OUTCOME_REPLIED]
    assert [delay for batch in bench.batches for delay in batch.round_trip_delays_ns] == [200_000]


def test_a_source_that_is_not_there_fails_to_send_until_it_is() -> None:
    bench = Bench(round_trip_target(ALIVE, source="192.0.2.1"))
    bench.network.missing_sources.add("192.0.2.1")
    bench.pass_time(2 * SECOND)
    assert bench.session.state().state == "source_missing"
    assert not bench.session.state().working  # shown to people as not working
    bench.network.missing_sources.clear()
    bench.pass_time(REOPEN_NS)
    found = bench.finish()[ALIVE]
    assert found[:2] == [PACKET_OUTCOME_SEND_FAILED] * 2
    assert found[-1] == PACKET_OUTCOME_REPLIED
    assert bench.session.state().state == "ok"


def test_a_device_that_goes_is_opened_anew() -> None:
    bench = Bench(round_trip_target(ALIVE))
    bench.pass_time(SECOND)
    bench.network.send_errors[ALIVE] = deque([errno.ENODEV, errno.ENODEV])
    bench.pass_time(REOPEN_NS + 3 * SECOND)
    assert len(bench.network.sockets) == 2
    found = bench.finish()[ALIVE]
    assert found[0] == found[-1] == PACKET_OUTCOME_REPLIED
    assert PACKET_OUTCOME_SEND_FAILED in found
    assert PACKET_OUTCOME_LOST not in found


def test_a_process_that_was_held_up_skips_and_does_not_burst() -> None:
    bench = Bench(round_trip_target(ALIVE))
    bench.pass_time(SECOND)
    before = len(bench.network.sent)
    bench.clock.move(4 * SECOND + 500 * MILLISECOND)
    bench.session.tick()
    assert len(bench.network.sent) <= before + 1
    bench.pass_time(SECOND)
    found = bench.finish()[ALIVE]
    assert found.count(PACKET_OUTCOME_SKIPPED) in (3, 4)
    assert PACKET_OUTCOME_LOST not in found
    sequences = [sequence for _, sequence, _ in samples(bench.batches)]
    assert sequences == list(range(len(sequences)))


def test_the_watermark_waits_for_turns_that_will_be_skipped() -> None:
    bench = Bench(round_trip_target(ALIVE))
    bench.pass_time(SECOND)
    bench.drain()
    assert bench.session.oldest_unresolved_ns() is None
    bench.clock.move(3 * SECOND)  # held up, and whoever asks comes before the next tick
    bound = bench.session.oldest_unresolved_ns()
    assert bound is not None
    bench.session.tick()
    (batch,) = bench.drain()
    assert PACKET_OUTCOME_SKIPPED in batch.outcomes
    assert batch.send_times_ns[0] == bound
    bench.pass_time(10 * MILLISECOND)
    bench.drain()
    bench.clock.move(3600 * SECOND)  # a prober that has stopped does not hold it for ever
    bound = bench.session.oldest_unresolved_ns()
    assert bound is not None
    assert bench.clock.wall_ns() - bound == HOLD_NS


def test_a_reply_read_late_was_in_time() -> None:
    bench = Bench(round_trip_target(ALIVE))
    while not bench.network.sent:
        bench.pass_time(10 * MILLISECOND)
    bench.clock.move(5 * SECOND)  # nobody reads
    (batch,) = bench.drain()
    assert batch.outcomes == [PACKET_OUTCOME_REPLIED]
    assert batch.round_trip_delays_ns == [200_000]


def test_sequences_go_on_through_changes_of_the_targets() -> None:
    bench = Bench(round_trip_target(ALIVE))
    bench.pass_time(2 * SECOND)
    bench.session.configure([round_trip_target(ALIVE), round_trip_target(DEAD)])
    bench.pass_time(2 * SECOND)
    bench.drain()
    bench.session.configure([round_trip_target(ALIVE, interval_ns=SECOND // 2)])
    bench.pass_time(2 * SECOND)
    bench.drain()
    bench.session.configure([])
    bench.pass_time(2 * SECOND)
    bench.drain()
    bench.session.configure([round_trip_target(ALIVE)])
    bench.pass_time(2 * SECOND)
    found = bench.finish()
    assert (set(found[DEAD]), set(found[ALIVE])) == ({PACKET_OUTCOME_LOST}, {PACKET_OUTCOME_REPLIED})
    by_path: dict[int, list[int]] = {}
    for path_id, sequence, _ in samples(bench.batches):
        by_path.setdefault(path_id, []).append(sequence)
    assert len(by_path) == 2
    for sequences in by_path.values():
        assert sequences == list(range(len(sequences)))
    assert bench.session.oldest_unresolved_ns() is None
    assert all(socket.closed for socket in bench.network.sockets)


def test_the_16_bit_wire_sequence_wraps_without_a_trace() -> None:
    bench = Bench(round_trip_target(ALIVE, interval_ns=20 * MILLISECOND))
    for _ in range(330):
        bench.pass_time(4 * SECOND, step_ns=20 * MILLISECOND)
        bench.drain()
        del bench.network.sent[1:-1]
    found = bench.finish()[ALIVE]
    assert set(found) == {PACKET_OUTCOME_REPLIED}
    sequences = [sequence for _, sequence, _ in samples(bench.batches)]
    assert sequences == list(range(len(sequences)))
    assert len(sequences) > 65_536
    assert wire_sequence(bench.network.sent[0][1]) != wire_sequence(bench.network.sent[-1][1])


def test_a_flood_of_forged_and_doubled_replies_is_bounded_and_changes_nothing() -> None:
    bench = Bench(round_trip_target(ALIVE), round_trip_target(DEAD))
    bench.pass_time(SECOND)
    (socket,) = bench.network.sockets
    random = Random(2)
    genuine = echo_reply(next(packet for address, packet in bench.network.sent if address == ALIVE))
    for _ in range(5000):
        socket.deliver(echo_reply(b"\x08\0\0\0" + random.randbytes(60)), DEAD)
        socket.deliver(genuine, ALIVE)
    bench.session.tick()
    assert len(socket.read_replies(100_000)) in range(
        10_000 - 2 * READ_LIMIT, 10_001
    )  # one wake-up takes a bounded part
    for _ in range(5000):
        socket.deliver(genuine, ALIVE)
    found = bench.finish()
    assert found[ALIVE] == [PACKET_OUTCOME_REPLIED]
    assert found[DEAD] == [PACKET_OUTCOME_LOST]
    assert sum(len(batch.marks) for batch in bench.batches) <= 5000
    assert "duplicates and late replies not recorded" in bench.session.state().detail


def test_ipv6_and_each_source_has_a_socket_of_its_own() -> None:
    bench = Bench(
        round_trip_target("2001:db8::7", source="2001:db8::1"),
        round_trip_target(ALIVE, source="192.0.2.1", nic="eth1"),
        round_trip_target(ALIVE, source="192.0.2.2", nic="eth2"),
    )
    bench.network.hosts["2001:db8::7"] = Host()
    bench.pass_time(SECOND)
    sources = {(socket.source.ip_version, socket.source.address, socket.source.nic) for socket in bench.network.sockets}
    assert sources == {(6, "2001:db8::1", ""), (4, "192.0.2.1", "eth1"), (4, "192.0.2.2", "eth2")}
    assert len({socket.identifier for socket in bench.network.sockets}) == 3
    found = bench.finish()
    assert found["2001:db8::7"] == [PACKET_OUTCOME_REPLIED]
    assert found[ALIVE] == [PACKET_OUTCOME_REPLIED] * 2


def test_an_ipv6_target_on_a_host_without_ipv6_fails_to_send() -> None:
    bench = Bench(round_trip_target("2001:db8::7"), rights=Rights(RAW, None))
    bench.pass_time(SECOND)
    assert bench.finish()["2001:db8::7"] == [PACKET_OUTCOME_SEND_FAILED]


def test_what_is_no_single_host_is_refused_and_told() -> None:
    bench = Bench(
        round_trip_target("224.0.0.1"),
        round_trip_target("255.255.255.255"),
        round_trip_target(ALIVE, source="2001:db8::1"),
        round_trip_target(ALIVE),
    )
    bench.pass_time(SECOND)
    assert set(bench.finish()) == {ALIVE}
    bench.session.configure([round_trip_target("224.0.0.1")])
    assert bench.session.state().state == "degraded"
    assert "224.0.0.1 is not the address of one host" in bench.session.state().detail


def test_no_more_paths_than_the_limit() -> None:
    targets = [round_trip_target(f"10.{i >> 8}.{i & 255}.1", interval_ns=2 * SECOND) for i in range(MAX_PATHS + 3)]
    bench = Bench(*targets)
    bench.pass_time(2 * SECOND + 50 * MILLISECOND)
    assert len({address for address, _ in bench.network.sent}) == MAX_PATHS
    assert f"3 paths over the limit of {MAX_PATHS}" in bench.session.state().detail


def test_paths_over_the_plans_rate_are_left_out_and_said() -> None:
    bench = Bench()
    bench.session.configure([round_trip_target(f"10.0.0.{i}") for i in range(1, 13)], max_rate=10)
    bench.pass_time(2 * SECOND)
    assert len({address for address, _ in bench.network.sent}) == 10
    assert f"2 paths over the limit of {MAX_PATHS} paths and 10 packets a second" in bench.session.state().detail


def test_what_breaks_a_guard_is_refused_whatever_the_plan_asks() -> None:
    bench = Bench(round_trip_target(ALIVE, interval_ns=5 * MILLISECOND), round_trip_target(DEAD, payload_bytes=9000))
    bench.pass_time(SECOND)
    assert not bench.network.sent
    assert "refused: interval 0.005 s is not within 0.02 to 3600 s" in bench.session.state().detail
    assert "refused: payload 9000" in bench.session.state().detail


def test_sends_of_many_targets_are_spread_over_the_interval() -> None:
    bench = Bench(*[round_trip_target(f"10.0.{i >> 8}.{i & 255}") for i in range(1000)])
    bench.session.tick()
    per_tick = []
    for _ in range(100):
        before = len(bench.network.sent)
        bench.pass_time(10 * MILLISECOND)
        per_tick.append(len(bench.network.sent) - before)
    assert max(per_tick) <= 13
    assert len(set(Counter(address for address, _ in bench.network.sent).values())) <= 2


# ---------------------------------------------------------------- rights


def proc_with(tmp_path: Path, groups: str) -> Path:
    (tmp_path / "sys/net/ipv4").mkdir(parents=True)
    (tmp_path / "sys/net/ipv4/ping_group_range").write_text(groups)
    return tmp_path


def test_case_57_raw_sockets_are_preferred_then_datagram(tmp_path: Path) -> None:
    network = FakeNetwork(FakeClock())
    assert find_rights(network.open, tmp_path) == Rights(RAW, RAW)
    network.denied = {RAW}
    rights = find_rights(network.open, tmp_path)
    assert (rights.ipv4, rights.ipv6, rights.missing) == (DATAGRAM, DATAGRAM, "")
    network.families = {4}
    assert find_rights(network.open, tmp_path).ipv6 is None
    assert all(socket.closed for socket in network.sockets)


@pytest.mark.parametrize(
    ("denied", "families", "said"),
    [
        (set(), {4, 6}, "raw IPv4 and raw IPv6 sockets"),
        ({RAW}, {4, 6}, "datagram IPv4 and datagram IPv6 sockets"),
        (set(), {4}, "raw IPv4 and no IPv6 sockets"),
    ],
)
def test_the_state_says_which_right_was_chosen(denied: set[int], families: set[int], said: str) -> None:
    clock = FakeClock()
    network = FakeNetwork(clock)
    network.denied, network.families = denied, families
    probes = RoundTripProbes(clock, icmp=network.open, tcp=FakeConnects(clock).open, lookup=lambda _: [])
    state = probes.state()
    assert (state.state, state.detail.partition(";")[0]) == ("ok", said)


def test_case_57_no_right_to_send_icmp(tmp_path: Path) -> None:
    """EPERM for both kinds, ping_group_range "1 0": a state that names the right, and TCP connects instead."""
    clock = FakeClock()
    network = FakeNetwork(clock)
    network.denied = {RAW, DATAGRAM}
    connects = FakeConnects(clock)
    connects.hosts[ALIVE] = (300_000, errno.ECONNREFUSED)
    probes = RoundTripProbes(
        clock,
        icmp=network.open,
        tcp=connects.open,
        lookup=lambda _: [],
        random=Random(1),
        proc=proc_with(tmp_path, "1\t0\n"),
    )
    probes.configure([round_trip_target(ALIVE), round_trip_target(DEAD)])
    state = probes.state()
    assert (state.part, state.working, state.state) == ("echo", False, "icmp_unavailable")
    assert "CAP_NET_RAW" in state.detail
    assert "net.ipv4.ping_group_range (now '1 0')" in state.detail
    for _ in range(250):
        clock.move(10 * MILLISECOND)
        for session in (probes._echo, probes._tcp):
            session.tick()
    batches = probes.drain(clock.monotonic_ns())
    assert {batch.method for batch in batches} == {ROUND_TRIP_METHOD_TCP_CONNECT}
    (batch,) = batches
    assert set(batch.outcomes) == {PACKET_OUTCOME_REPLIED, PACKET_OUTCOME_LOST}
    for path_id in batch.path_ids:
        assert PathMessage.FromString(probes.definitions[path_id]).type_p.protocol == PROTOCOL_TCP_CONNECT
    assert network.sent == []


def test_case_57_a_session_without_rights_takes_no_samples() -> None:
    bench = Bench(round_trip_target(ALIVE), rights=Rights(None, None, missing="CAP_NET_RAW"))
    bench.pass_time(3 * SECOND)
    assert bench.drain() == []
    assert bench.session.state().state == "icmp_unavailable"


async def test_run_ticks_until_cancelled_and_closes_its_sockets() -> None:
    bench = Bench(round_trip_target(ALIVE))
    task = asyncio.create_task(bench.session.run())
    await bench.clock.advance(3 * SECOND)
    (batch,) = bench.drain()
    assert batch.outcomes == [PACKET_OUTCOME_REPLIED] * len(batch.outcomes)
    assert len(batch.outcomes) in (2, 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(socket.closed for socket in bench.network.sockets)


# ---------------------------------------------------------------- warm up


def test_the_warm_up_lets_time_pass_where_replies_come_at_once_without_a_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receive stamping comes a moment after it was asked for: tries that do not wait see none of it."""
    clock = FakeClock()
    network = FakeNetwork(clock)
    network.hosts["127.0.0.1"] = Host(delays=(0,))

    class SlowToStamp(FakeEchoSocket):
        def read_replies(self, limit: int) -> list[Arrived]:
            late = clock.monotonic_ns() >= START_MONOTONIC_NS + 60 * MILLISECOND
            return [
                (data, remote, stamp if late else None, 64) for data, remote, stamp, _ in super().read_replies(limit)
            ]

    def wait(*arguments: object) -> tuple[list[int], list[int], list[int]]:
        clock.move(20 * MILLISECOND)
        return [], [], []

    monkeypatch.setattr("agent.probe.icmp_socket.select.select", wait)
    assert warm_up(lambda *place: SlowToStamp(network, *place), RAW, 4, 1) == ""
