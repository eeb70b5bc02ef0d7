"""Packets of a lab run with a TWAMP-Light sender and reflector that are not ours, replayed (tests/golden/stamp).

Our sender must send the same bytes again and read every answer; our reflector must give the same answers, byte by byte.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from agent.clock import Anchor
from agent.probe.matching import RoundTripTable
from agent.probe.stamp_packet import from_ntp, parse_reply, parse_request, residence_ns
from agent.probe.stamp_paths import StampPath
from agent.probe.stamp_reflector import StampReflector
from agent.probe.stamp_reflector_socket import Arrival
from agent.probe.stamp_wire import StampWire
from bandwitness.v1.record_pb2 import PACKET_OUTCOME_REPLIED
from tests.fakes.clock import FakeClock
from tests.fakes.network import SECOND, samples
from tests.fakes.stamp_network import FakeStampNetwork

GOLDEN = Path(__file__).parents[3] / "golden" / "stamp"
REFLECTOR = ("10.79.0.2", 20001)


class Packet(NamedTuple):
    """One line of a record."""

    back: bool
    ip_version: int
    port: int  # the sender's
    ttl: int
    time_ns: int  # at the sender
    data: bytes


def recorded(name: str) -> list[Packet]:
    lines = (GOLDEN / name).read_text().splitlines()
    fields = [line.split() for line in lines if not line.startswith("#")]
    return [Packet(way == "<", int(v), int(p), int(t), int(at), bytes.fromhex(h)) for way, v, p, t, at, h in fields]


class RecordedClock(FakeClock):
    """Says the times that stand in the packets, one a question; when there are no more, the last again."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[int] = []
        self.now_ns = 0

    def wall_ns(self) -> int:
        if self.times:
            self.now_ns = self.times.pop(0)
        return self.now_ns


class RecordedSsids(Random):
    """Draws the SSID that stands in the packets."""

    def __init__(self, ssid: int) -> None:
        super().__init__(0)
        self._ssid = ssid

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return self._ssid


def ports(packets: list[Packet]) -> Iterator[int]:
    yield from dict.fromkeys(packet.port for packet in packets)


@pytest.mark.parametrize("port", list(ports(recorded("our_sender.txt"))))
def test_our_sender_and_a_reflector_that_is_not_ours(port: int) -> None:
    packets = [packet for packet in recorded("our_sender.txt") if packet.port == port]
    asked = [packet for packet in packets if not packet.back]
    assert len(asked) == len(packets) - len(asked) == 5
    clock, random = RecordedClock(), RecordedSsids(parse_request(asked[0].data).ssid)
    network = FakeStampNetwork(clock)
    table = RoundTripTable()
    wire = StampWire(clock, table, network.open, random)
    slot = table.open(7, method=1, stamp_source=1, interval_ns=SECOND // 10, waiting_ns=SECOND)
    assert slot is not None
    path = StampPath(7, REFLECTOR[0], 4, port, destination_port=REFLECTOR[1], interval_ns=SECOND // 10)
    for packet in packets:
        if not packet.back:
            timestamp_ns = from_ntp(parse_request(packet.data).timestamp, packet.time_ns)
            clock.times = [timestamp_ns] * 3
            link = wire.send(slot, path, Anchor(timestamp_ns - 1000, packet.time_ns, packet.time_ns))
            assert link is not None
            assert network.sent[-1] == (port, packet.data)
        else:
            assert residence_ns(parse_reply(packet.data)) == 0  # it stamps once
            network.sockets[port].deliver(packet.data, REFLECTOR, 0, packet.time_ns)
            clock.now_ns = packet.time_ns
            assert wire.read(next(iter(wire.links.values()))) is False
    assert wire.strangers == 0
    assert [outcome for _, _, outcome in samples(table.drain(packets[-1].time_ns))] == [PACKET_OUTCOME_REPLIED] * 5
    (session,) = wire.sessions.values()
    assert session._directions.stateful  # its 0 beside our 1 shows that it counts


def test_its_replies_carry_what_the_rfc_wants_copied() -> None:
    packets = recorded("our_sender.txt")
    requests = {(packet.port, parse_request(packet.data).sequence): packet for packet in packets if not packet.back}
    for packet in packets:
        if packet.back:
            reply = parse_reply(packet.data)
            request = parse_request(requests[packet.port, reply.sender_sequence].data)
            assert (reply.sender_timestamp, reply.sender_error_estimate) == request[1:3]
            assert reply.ssid == 0  # it does not know RFC 8972


class Socket:
    """Plays the record to our reflector."""

    def __init__(self) -> None:
        self.waiting: list[Arrival] = []
        self.replies: list[bytes] = []

    def fileno(self) -> int:
        return -1

    def receive(self) -> Arrival | None:
        return self.waiting.pop(0) if self.waiting else None

    def reply(self, packet: bytes, arrival: Arrival) -> None:
        self.replies.append(packet)

    def close(self) -> None:
        """Nothing to give back."""


def test_our_reflector_and_a_sender_that_is_not_ours() -> None:
    """44 octets, padding behind them, 41 over IPv6; its packets of 14 octets get nothing."""
    packets = recorded("our_reflector.txt")
    clock, socket = RecordedClock(), Socket()
    reflector = StampReflector(clock, [socket])
    addresses = {4: "10.79.0.1", 6: "fd79::1"}
    reflector.allow(addresses.values())
    answers = iter([packet for packet in packets if packet.back])
    for packet in packets:
        if packet.back:
            continue
        if len(packet.data) == 14:
            clock.times, arrived = [packet.time_ns], packet.time_ns
            answer = None
        else:
            answer = next(answers)
            reply = parse_reply(answer.data)
            arrived, sent = (from_ntp(t, packet.time_ns) for t in (reply.receive_timestamp, reply.timestamp))
            clock.times = [arrived, sent]
        address = addresses[packet.ip_version]
        socket.waiting.append(
            Arrival(packet.data, address, packet.port, (address, packet.port), arrived, packet.ttl, 0, True, None)
        )
        before = len(socket.replies)
        reflector.read(socket)
        assert socket.replies[before:] == ([] if answer is None else [answer.data])
    assert next(answers, None) is None
    assert (reflector.answered, sum(reflector.sessions.refusals.values())) == (25, 3)
