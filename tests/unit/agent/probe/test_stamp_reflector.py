"""The reflector's replies: time stamps, size, count, and what is said of refusals."""

from agent.probe.stamp_admission import Limits
from agent.probe.stamp_packet import (
    Reply,
    build_request,
    decode_error,
    encode_error,
    from_ntp,
    parse_reply,
    request_tail,
    residence_ns,
    to_ntp,
)
from agent.probe.stamp_reflector import ERROR_REFRESH_NS, LIMITED_SHOWN_NS, READ_LIMIT, StampReflector
from agent.probe.stamp_reflector_socket import Arrival
from tests.fakes.clock import FakeClock

FRIEND, PORT = "10.0.0.1", 61_000
WAITED_NS = 345_678


class Socket:
    """What came, and what was answered."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.waiting: list[Arrival] = []
        self.replies: list[bytes] = []
        self.broken = False

    def put(self, data: bytes, *, address: str = FRIEND, stamped: bool = True, whole: bool = True) -> None:
        stamp = self.clock.wall_ns() if stamped else None
        self.waiting.append(Arrival(data, address, PORT, (address, PORT), stamp, 61, 0, whole, None))

    def fileno(self) -> int:
        return -1

    def receive(self) -> Arrival | None:
        return self.waiting.pop(0) if self.waiting else None

    def reply(self, packet: bytes, arrival: Arrival) -> None:
        if self.broken:
            raise OSError(1, "Operation not permitted")
        self.replies.append(packet)

    def close(self) -> None:
        """Nothing to give back."""


class Bench:
    """A reflector that allows FRIEND."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.clock = FakeClock()
        self.socket = Socket(self.clock)
        self.error_ns: int | None = None
        self.reflector = StampReflector(self.clock, [self.socket], clock_error=lambda: self.error_ns, limits=limits)
        self.reflector.allow([FRIEND])

    def answer(self, data: bytes) -> Reply:
        self.socket.put(data)
        self.clock.move(WAITED_NS)
        self.reflector.read(self.socket)
        return parse_reply(self.socket.replies[-1])


def request(sequence: int = 3, size: int = 44, ssid: int = 9) -> bytes:
    return build_request(sequence, 0x0123456789ABCDEF, 0x8A01, ssid, request_tail(size))


def test_a_reply() -> None:
    bench = Bench()
    arrived = bench.clock.wall_ns()
    reply = bench.answer(request())
    assert from_ntp(reply.receive_timestamp, arrived) == arrived
    assert residence_ns(reply) == WAITED_NS
    assert reply == Reply(
        sequence=0,
        timestamp=to_ntp(arrived + WAITED_NS),
        error_estimate=encode_error(None),
        ssid=9,
        receive_timestamp=to_ntp(arrived),
        sender_sequence=3,
        sender_timestamp=0x0123456789ABCDEF,
        sender_error_estimate=0x8A01,
        sender_ttl=61,
    )
    assert bench.answer(request()).sequence == 1


def test_a_reply_is_as_long_as_the_request() -> None:
    bench = Bench()
    for size in (41, 42, 44, 48, 60, 1472):
        bench.answer(request(size=size)[:size])
        assert len(bench.socket.replies[-1]) == size


def test_padding_comes_back_with_its_flag_cleared() -> None:
    bench = Bench()
    sent = request(size=100)
    bench.answer(sent)
    assert bench.socket.replies[-1][44:] == b"\0" + sent[45:]


def test_the_clocks_error_is_asked_once_a_second() -> None:
    bench = Bench()
    assert not decode_error(bench.answer(request()).error_estimate).synchronised
    bench.error_ns = 5_000
    assert not decode_error(bench.answer(request()).error_estimate).synchronised
    bench.clock.move(ERROR_REFRESH_NS)
    told = decode_error(bench.answer(request()).error_estimate)
    assert told.synchronised
    assert told.error_ns is not None
    assert 5_000 <= told.error_ns <= 5_050


def test_without_a_kernel_stamp_it_is_the_time_of_reading() -> None:
    bench = Bench()
    bench.socket.put(request(), stamped=False)
    bench.clock.move(WAITED_NS)
    bench.reflector.read(bench.socket)
    assert residence_ns(parse_reply(bench.socket.replies[0])) == 0
    assert bench.reflector.state().detail == "1 packets without a kernel stamp"


def test_what_was_cut_for_its_size_gets_nothing() -> None:
    bench = Bench()
    bench.socket.put(request(), whole=False)
    bench.reflector.read(bench.socket)
    assert not bench.socket.replies
    assert bench.reflector.state().detail == "1 refused: longer than a test packet may be"


def test_a_reply_that_the_kernel_refuses_counts_as_sent_in_the_sequence() -> None:
    """It was received: what the sender misses was lost on the way back."""
    bench = Bench()
    bench.answer(request())
    bench.socket.broken = True
    bench.socket.put(request())
    bench.reflector.read(bench.socket)
    bench.socket.broken = False
    assert bench.answer(request()).sequence == 2
    assert (bench.reflector.answered, bench.reflector.not_sent) == (2, 1)
    assert bench.reflector.state().detail == "1 replies not sent: the kernel refused them"


def test_a_flood_never_holds_the_loop() -> None:
    bench = Bench()
    for _ in range(READ_LIMIT + 1):
        bench.socket.put(request(), address="192.0.2.1")
    bench.reflector.read(bench.socket)
    assert len(bench.socket.waiting) == 1


def test_the_state_says_when_limits_are_met() -> None:
    bench = Bench(Limits(sender_rate=2))
    assert bench.reflector.state().state == "ok"
    for _ in range(3):
        bench.socket.put(request())
    bench.socket.put(request(), address="192.0.2.1")
    bench.reflector.read(bench.socket)
    state = bench.reflector.state()
    assert state.state == "limited"
    assert state.detail == "2 refused: more than one sender may send; 1 refused: not an allowed sender"
    bench.clock.move(LIMITED_SHOWN_NS)
    assert bench.reflector.state().state == "ok"  # it was; the count stays
    assert bench.reflector.state().detail == state.detail
