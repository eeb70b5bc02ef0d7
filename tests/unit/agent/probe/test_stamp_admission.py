"""The reflector on a hostile network: whom it answers, how often, and that nothing it keeps grows."""

import pytest

from agent.probe.stamp_admission import MAX_SENDERS, PORT, Admitted, Limits, ReflectorSessions, Refusal
from agent.probe.stamp_packet import build_reply, build_request, encode_error, parse_request, request_tail, to_ntp
from tests.fakes.clock import START_MONOTONIC_NS, START_WALL_NS

SECOND = 1_000_000_000
FRIEND, OTHER, STRANGER = "10.0.0.1", "10.0.0.2", "192.0.2.66"
SENDER_PORT = 61_000


class Bench:
    """Decisions, and the time of the next packet."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.sessions = ReflectorSessions(limits=limits)
        self.sessions.allow([FRIEND, OTHER, "fd00::1"])
        self.now_ns = 0

    def ask(
        self, data: bytes | None = None, address: str = FRIEND, port: int = SENDER_PORT, **fields: int
    ) -> Admitted | Refusal:
        return self.sessions.consider(
            request(**fields) if data is None else data,
            address,
            port,
            monotonic_ns=START_MONOTONIC_NS + self.now_ns,
            wall_ns=START_WALL_NS + self.now_ns,
        )

    def number(self, address: str = FRIEND, port: int = SENDER_PORT, **fields: int) -> int:
        admitted = self.ask(None, address, port, **fields)
        assert isinstance(admitted, Admitted), admitted
        return admitted.sequence


def request(sequence: int = 0, ssid: int = 5, size: int = 44) -> bytes:
    return build_request(sequence, to_ntp(START_WALL_NS), encode_error(None), ssid, request_tail(size))


def test_each_session_has_its_own_count() -> None:
    bench = Bench()
    assert [bench.number(sequence=n) for n in range(3)] == [0, 1, 2]
    assert bench.number(ssid=6) == 0
    assert bench.number(port=61_001) == 0
    assert bench.number(OTHER) == 0
    assert bench.number("fd00::1") == 0
    assert bench.number(sequence=9) == 3
    assert bench.sessions.sessions == 5


def test_the_count_goes_on_whatever_the_sender_counts() -> None:
    bench = Bench()
    assert [bench.number(sequence=n) for n in (0, 5, 5, 2, 0)] == [0, 1, 2, 3, 4]


def test_a_sender_without_ssid_begins_again_with_sequence_0() -> None:
    bench = Bench()
    assert [bench.number(sequence=n, ssid=0) for n in (0, 1, 2, 0, 1)] == [0, 1, 2, 0, 1]


def test_strangers_get_nothing_and_leave_nothing() -> None:
    bench = Bench()
    for last in range(256):
        assert bench.ask(address=f"192.0.2.{last}") is Refusal.STRANGER
    assert bench.sessions.sessions == 0
    assert bench.sessions.refusals == {Refusal.STRANGER: 256}


@pytest.mark.parametrize("port", [0, 7, 19, 53, 123, 862, 1023, PORT])
def test_ports_that_may_answer_back_get_nothing(port: int) -> None:
    assert Bench().ask(port=port) is Refusal.PORT


def test_another_reflectors_reply_gets_nothing() -> None:
    stamp = to_ntp(START_WALL_NS)
    reply = build_reply(parse_request(request()), b"", sequence=0, received=stamp, sent=stamp, error_estimate=1, ttl=64)
    assert Bench().ask(reply, port=9000) is Refusal.LOOP


@pytest.mark.parametrize("size", [0, 1, 14, 40])
def test_what_could_only_be_answered_with_more_gets_nothing(size: int) -> None:
    assert Bench().ask(request()[:size]) is Refusal.SIZE


@pytest.mark.parametrize("size", [41, 44, 1472])
def test_twamp_lights_own_size_and_more_is_answered(size: int) -> None:
    assert isinstance(Bench().ask(request(size=size)[:size]), Admitted)


def test_a_corrupt_request() -> None:
    assert Bench().ask(b"\0" * 44) is Refusal.CORRUPT


def test_one_sender_that_floods_does_not_cost_the_others() -> None:
    bench = Bench(Limits(sender_rate=100, total_rate=200))
    answered = sum(isinstance(bench.ask(), Admitted) for _ in range(1000))
    assert answered == 50  # half a second's worth at once
    assert isinstance(bench.ask(address=OTHER), Admitted)
    bench.now_ns += SECOND // 10
    assert sum(isinstance(bench.ask(), Admitted) for _ in range(100)) == 10
    assert bench.sessions.refusals == {Refusal.SENDER_RATE: 950 + 90}


def test_a_flood_under_a_senders_address_costs_its_settled_sessions_nothing() -> None:
    bench = Bench(Limits(sender_rate=100, sender_sessions=8))
    for number in range(30):  # five a second over six seconds
        bench.now_ns = number * SECOND // 5
        assert bench.number(sequence=number) == number
    refused = 0
    for number in range(30, 60):
        bench.now_ns = number * SECOND // 5
        for forged in range(200):
            refused += isinstance(bench.ask(port=62_000 + forged, ssid=number), Refusal)
        assert bench.number(sequence=number) == number
    assert refused > 5_000
    assert bench.sessions.sessions <= 8
    assert isinstance(bench.ask(port=SENDER_PORT, ssid=77), Refusal)  # another session has no share yet


def test_a_settled_session_has_no_more_than_its_share_and_what_is_left_of_the_senders() -> None:
    bench = Bench(Limits(sender_rate=100, session_rate=10))
    for number in range(30):
        bench.now_ns = number * SECOND // 5
        bench.ask(sequence=number)
    answered = sum(isinstance(bench.ask(sequence=n), Admitted) for n in range(1_000))
    assert 50 <= answered <= 60


def test_all_together_have_a_limit_too() -> None:
    bench = Bench(Limits(sender_rate=1000, total_rate=100))
    assert sum(isinstance(bench.ask(address=a), Admitted) for a in (FRIEND, OTHER) for _ in range(40)) == 50
    assert bench.sessions.refusals == {Refusal.TOTAL_RATE: 30}


def test_a_clock_that_stands_or_goes_back_gives_no_tokens() -> None:
    bench = Bench(Limits(sender_rate=2, total_rate=100))
    assert isinstance(bench.ask(), Admitted)
    bench.now_ns -= SECOND
    assert bench.ask() is Refusal.SENDER_RATE


def test_a_sender_has_so_many_sessions_and_loses_the_least_used() -> None:
    bench = Bench(Limits(sender_sessions=3))
    for ssid in (1, 2, 3):
        bench.number(ssid=ssid)
    bench.number(ssid=1)
    assert bench.number(ssid=4) == 0  # takes the place of 2
    assert bench.sessions.sessions == 3
    assert bench.number(ssid=1) == 2
    assert bench.number(ssid=3) == 1
    assert bench.number(ssid=2) == 0
    assert bench.number(OTHER, ssid=1) == 0


def test_sessions_live_so_long_unused() -> None:
    bench = Bench(Limits(session_age_ns=10 * SECOND))
    bench.number(ssid=1)
    bench.number(ssid=2)
    bench.now_ns += 10 * SECOND
    assert bench.number(ssid=1) == 1
    bench.now_ns += 1
    assert bench.number(ssid=2) == 0
    assert bench.number(ssid=1) == 2
    assert bench.sessions.sessions == 2


def test_when_all_room_is_in_use_a_newcomer_gets_none_until_some_is_free() -> None:
    bench = Bench(Limits(total_sessions=4, session_age_ns=10 * SECOND))
    for ssid in (1, 2, 3, 4):
        bench.number(ssid=ssid)
    assert bench.ask(address=OTHER) is Refusal.SESSIONS
    assert bench.number(ssid=5) == 0  # its own sender's room
    assert bench.sessions.sessions == 4
    bench.now_ns += 11 * SECOND
    assert bench.number(OTHER) == 0
    assert bench.sessions.sessions == 1


def test_a_flood_of_sessions_is_bounded() -> None:
    bench = Bench(Limits(sender_rate=1_000_000, total_rate=1_000_000))
    for number in range(20_000):
        bench.ask(port=1024 + number % 7000, ssid=1 + number // 7000)
    assert bench.sessions.sessions == bench.sessions.limits.sender_sessions


def test_senders_that_stay_keep_their_sessions() -> None:
    bench = Bench()
    assert bench.number() == 0
    assert bench.number(OTHER) == 0
    bench.sessions.allow([FRIEND])
    assert bench.number() == 1
    assert bench.ask(address=OTHER) is Refusal.STRANGER
    assert bench.sessions.sessions == 1


@pytest.mark.parametrize(
    "address", ["", "gpu-1", "0.0.0.0", "255.255.255.255", "224.0.0.1", "ff02::1", "::", "10.0.0.0/8"]
)
def test_senders_that_are_not_one_host(address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        ReflectorSessions().allow([address])


def test_too_many_senders() -> None:
    with pytest.raises(ValueError, match="4097 senders"):
        ReflectorSessions().allow(f"10.{n >> 8}.{n & 255}.1" for n in range(MAX_SENDERS + 1))


def test_other_spellings_of_an_address() -> None:
    sessions = ReflectorSessions()
    sessions.allow(["FD00:0::1", "fe80::1%eth0"])
    for address in ("fd00::1", "fe80::1"):
        decided = sessions.consider(request(), address, SENDER_PORT, monotonic_ns=1, wall_ns=START_WALL_NS)
        assert isinstance(decided, Admitted)
