"""STAMP under arbitrary bytes and histories: garbage gives a typed error or a refusal, never anything else."""

from dataclasses import replace
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.probe.stamp_admission import Admitted, Limits, ReflectorSessions, Refusal
from agent.probe.stamp_direction import Gap, LossDirections, Position
from agent.probe.stamp_packet import (
    BASE_BYTES,
    PacketError,
    Reply,
    Request,
    build_reply,
    build_request,
    decode_error,
    encode_error,
    from_ntp,
    from_ptp,
    looks_reflected,
    parse_reply,
    parse_request,
    reply_tail,
    request_tail,
    residence_ns,
    to_ntp,
    to_ptp,
)
from agent.probe.stamp_paths import StampPath
from agent.probe.stamp_reflector import StampReflector
from agent.probe.stamp_reflector_socket import Arrival
from agent.probe.stamp_sender import StampSession
from bandwitness.v1.record_pb2 import PACKET_OUTCOME_LOST
from tests.fakes.clock import START_WALL_NS, FakeClock
from tests.fakes.network import MILLISECOND, SECOND, samples
from tests.fakes.stamp_network import FakeReflector, FakeStampNetwork

FRIEND = "10.0.0.1"
u16, u32, u64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
walls = st.integers(0, (1 << 63) - 1)
garbage = st.binary(max_size=200)


@given(garbage)
def test_garbage_is_a_value_or_a_packet_error(data: bytes) -> None:
    try:
        request = parse_request(data)
    except PacketError:
        request = None
    if request is not None:
        assert build_request(*request, data[16:]) == data
    try:
        reply = parse_reply(data)
    except PacketError:
        return
    residence = residence_ns(reply)
    assert residence is None or residence >= 0
    decode_error(reply.error_estimate)
    looks_reflected(data, START_WALL_NS)


@given(u32, u64, u16.filter(lambda value: value & 0xFF), u16, st.integers(44, 300))
def test_a_request_reads_as_it_was_built(sequence: int, timestamp: int, error: int, ssid: int, size: int) -> None:
    packet = build_request(sequence, timestamp, error, ssid, request_tail(size))
    assert parse_request(packet) == Request(sequence, timestamp, error, ssid)
    assert len(packet) in (size, 48)


@given(st.builds(Request, u32, u64, u16, u16), st.tuples(u32, u64, u64, u16, st.integers(0, 255)))
def test_a_reply_reads_as_it_was_built(request: Request, fields: tuple[int, int, int, int, int]) -> None:
    sequence, received, sent, error, ttl = fields
    packet = build_reply(request, b"", sequence=sequence, received=received, sent=sent, error_estimate=error, ttl=ttl)
    assert len(packet) == BASE_BYTES
    assert parse_reply(packet) == Reply(
        sequence, sent, error, request.ssid, received, request.sequence, request.timestamp, request.error_estimate, ttl
    )


@given(garbage, u16)
def test_tlvs_keep_their_bytes_but_for_the_flags(tail: bytes, ssid: int) -> None:
    returned = reply_tail(bytes(BASE_BYTES) + tail, ssid)
    assert len(returned) == len(tail)
    changed = [at for at, (ours, theirs) in enumerate(zip(returned, tail, strict=True)) if ours != theirs]
    assert not changed or ssid
    assert all(returned[at] in (0x00, 0x40, 0x80, 0xC0) for at in changed)


@given(walls)
def test_time_stamps_keep_the_nanosecond(wall: int) -> None:
    assert from_ntp(to_ntp(wall), wall) == wall
    assert from_ptp(to_ptp(wall), wall) == wall


@given(walls, st.integers(-(1 << 60), 1 << 60))
def test_a_time_stamp_means_the_time_next_to_what_is_expected(wall: int, off: int) -> None:
    near = max(0, wall + off)
    if abs(wall - near) < (1 << 31) * SECOND:
        assert from_ntp(to_ntp(wall), near) == wall


@given(st.integers(0, 1 << 62))
def test_an_error_is_never_told_smaller(error_ns: int) -> None:
    told = decode_error(encode_error(error_ns)).error_ns
    assert told is not None
    assert told >= error_ns


# ---------------------------------------------------------------- reflector

sources = st.tuples(st.sampled_from([FRIEND, "10.0.0.2", "192.0.2.1", "nonsense"]), st.integers(0, 65535))
near_requests = st.builds(
    lambda sequence, ssid, size, cut: build_request(
        sequence, to_ntp(START_WALL_NS), encode_error(None), ssid, request_tail(size)
    )[:cut],
    u32,
    st.integers(0, 5),
    st.integers(44, 120),
    st.integers(0, 200),
)


class CollectingSocket:
    """A reflector's socket that is given arrivals and keeps replies."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.replies: list[tuple[bytes, Arrival]] = []

    def fileno(self) -> int:
        return -1

    def receive(self) -> Arrival | None:
        return self.arrivals.pop(0) if self.arrivals else None

    def reply(self, packet: bytes, arrival: Arrival) -> None:
        self.replies.append((packet, arrival))

    def close(self) -> None:
        """Nothing to give back."""


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(sources, garbage | near_requests, st.booleans(), st.integers(0, SECOND)), max_size=60))
def test_a_reflector_never_sends_more_than_it_was_sent(
    packets: list[tuple[tuple[str, int], bytes, bool, int]],
) -> None:
    clock = FakeClock()
    socket = CollectingSocket()
    limits = Limits(sender_rate=20, total_rate=30, sender_sessions=3, total_sessions=4)
    reflector = StampReflector(clock, [socket], limits=limits)
    reflector.allow([FRIEND, "10.0.0.2"])
    for (address, port), data, stamped, pause_ns in packets:
        clock.move(pause_ns)
        stamp = clock.wall_ns() if stamped else None
        socket.arrivals.append(Arrival(data, address, port, (address, port), stamp, 64, 0, True, None))
        reflector.read(socket)
        assert reflector.sessions.sessions <= limits.total_sessions
    for packet, arrival in socket.replies:
        assert len(packet) == len(arrival.data) >= 41
        assert arrival.address in (FRIEND, "10.0.0.2")
        assert parse_reply(packet)[5:8] == parse_request(arrival.data)[:3]
    assert len(socket.replies) + sum(reflector.sessions.refusals.values()) == len(packets)


@given(st.lists(st.tuples(sources, garbage, st.integers(-SECOND, SECOND)), max_size=40))
def test_decisions_are_answers_or_named_refusals(packets: list[tuple[tuple[str, int], bytes, int]]) -> None:
    sessions = ReflectorSessions()
    sessions.allow([FRIEND])
    now = START_WALL_NS
    for (address, port), data, step in packets:
        now += step
        decided = sessions.consider(data, address, port, monotonic_ns=now, wall_ns=now)
        assert isinstance(decided, Admitted | Refusal)


# ---------------------------------------------------------------- sender

fates = st.sampled_from(["ok", "forward", "reverse"])


@given(st.lists(fates, min_size=1, max_size=200))
def test_every_loss_between_two_replies_is_told_its_way(history: list[str]) -> None:
    """Of a gap that holds both, how many each; never more than were lost."""
    directions = LossDirections(stateful=True)
    number = 0
    gaps: list[Gap] = []
    positions: list[Position | None] = []
    for sent, fate in enumerate(history):
        if fate == "ok":
            positions.append(directions.arrived(sent, number, 1000 + sent, fresh=True))
        else:
            positions.append(None)
        number += fate != "forward"
    for sent, position in enumerate(positions):
        gap = directions.settle(sent, position)
        if gap is not None:
            gaps.append(gap)
    last = max((sent for sent, fate in enumerate(history) if fate == "ok"), default=-1)
    before = history[: last + 1]
    assert sum(gap.forward_lost for gap in gaps) == before.count("forward")
    assert sum(gap.reverse_lost for gap in gaps) == before.count("reverse")


@given(replies=st.lists(st.none() | st.tuples(u32, u64), max_size=100), stateful=st.booleans(), fresh=st.booleans())
def test_any_numbers_of_a_reflector_are_borne(
    replies: list[tuple[int, int] | None], *, stateful: bool, fresh: bool
) -> None:
    directions = LossDirections(stateful=stateful)
    positions = [
        None if reply is None else directions.arrived(sent, *reply, fresh=fresh) for sent, reply in enumerate(replies)
    ]
    told = 0
    for sent, position in enumerate(positions):
        gap = directions.settle(sent, position)
        if gap is not None:
            assert gap.forward_lost >= 0
            assert gap.reverse_lost >= 0
            told += gap.forward_lost + gap.reverse_lost
    assert told <= replies.count(None)


PATH = StampPath(
    path_id=1, address="10.0.0.2", ip_version=4, source_port=61_000, interval_ns=SECOND // 10, stateful=True
)


@settings(max_examples=60, deadline=None)
@given(st.lists(garbage, max_size=30), st.randoms(use_true_random=False))
def test_garbage_from_the_wire_never_makes_or_unmakes_a_reply(packets: list[bytes], random: Random) -> None:
    clock = FakeClock()
    network = FakeStampNetwork(clock)
    network.reflectors["10.0.0.2", 8620] = FakeReflector(drop_forward=lambda number: number % 2 == 1)
    session = StampSession(clock, opener=network.open, random=Random(1))
    session.configure([replace(PATH)])
    outcomes: list[int] = []
    for _ in range(300):
        clock.move(10 * MILLISECOND)
        if network.sockets and packets:
            source = random.choice([("10.0.0.2", 8620), ("192.0.2.1", 8620)])
            network.sockets[61_000].deliver(random.choice(packets), source, clock.monotonic_ns(), clock.wall_ns())
        session.tick()
        outcomes += [outcome for _, _, outcome in samples(session.drain(clock.monotonic_ns()))]
    assert outcomes == [PACKET_OUTCOME_LOST if number % 2 else 1 for number in range(len(outcomes))]
