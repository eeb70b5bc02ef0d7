"""Bytes of echo messages against hand-computed ones and a plain RFC 1071 sum."""

import pytest

from agent.probe.echo_packet import (
    MIN_PAYLOAD_BYTES,
    EchoTemplate,
    message_offset,
    ones_complement_sum,
    parse_quote,
    parse_reply,
    parse_stub,
    pattern,
)
from tests.fakes.network import echo_reply

TOKEN = bytes.fromhex("0102030405060708")


def template(ip_version: int = 4, payload: int = 32, slot: int = 3) -> EchoTemplate:
    return EchoTemplate(ip_version=ip_version, identifier=0x1234, token=TOKEN, slot=slot, fill=pattern(payload))


def plain_sum(data: bytes) -> int:
    """RFC 1071 word by word."""
    total = 0
    for i in range(0, len(data), 2):
        total += int.from_bytes(data[i : i + 2].ljust(2, b"\0"), "big")
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_request_bytes_are_those_of_rfc_792() -> None:
    packet = template(payload=24).request(sequence=7, wire_sequence=0xFFFF)
    assert packet[:2] == b"\x08\x00"
    assert packet[4:] == bytes.fromhex("1234 ffff 0102030405060708 00000003 0000000000000007 10111213")
    assert plain_sum(packet) == 0xFFFF  # the checksum makes the whole add up to all ones


@pytest.mark.parametrize("payload", [20, 21, 33, 56, 1472])
@pytest.mark.parametrize("sequence", [0, 1, 65_535, 65_536, 2**40 + 12_345, 2**64 - 1])
def test_checksum_is_right_for_every_length_and_sequence(payload: int, sequence: int) -> None:
    packet = template(payload=payload).request(sequence, sequence & 0xFFFF)
    assert len(packet) == 8 + payload
    assert plain_sum(packet) == 0xFFFF
    assert ones_complement_sum(packet) == 0


def test_a_reply_is_read_back_and_found_intact() -> None:
    ours = template()
    message = echo_reply(ours.request(sequence=2**33, wire_sequence=5))
    reply = parse_reply(message, 0, 4)
    assert reply is not None
    assert (reply.identifier, reply.wire_sequence, reply.token, reply.slot, reply.sequence) == (
        0x1234,
        5,
        TOKEN,
        3,
        2**33,
    )
    assert ours.intact(reply, message, 0)


@pytest.mark.parametrize("at", [2, 3, 30, 39])
def test_a_flipped_bit_in_checksum_or_fill_is_seen(at: int) -> None:
    ours = template()
    message = bytearray(echo_reply(ours.request(sequence=1, wire_sequence=1)))
    message[at] ^= 0x04
    reply = parse_reply(bytes(message), 0, 4)
    assert reply is not None
    assert not ours.intact(reply, bytes(message), 0)


def test_a_reply_cut_short_or_grown_is_not_intact() -> None:
    ours = template()
    message = echo_reply(ours.request(sequence=1, wire_sequence=1))
    for other in (message[:-1], message + b"\0", message[:28] + bytes(2) + message[28:]):
        reply = parse_reply(other, 0, 4)
        assert reply is not None
        assert not ours.intact(reply, other, 0)


def test_ipv6_types_and_no_checksum_of_ours() -> None:
    ours = template(ip_version=6)
    message = echo_reply(ours.request(sequence=1, wire_sequence=1))
    assert message[0] == 129
    reply = parse_reply(message, 0, 6)
    assert reply is not None
    assert ours.intact(reply, message, 0)
    assert parse_reply(message, 0, 4) is None


@pytest.mark.parametrize("data", [b"", b"\x00", bytes(27), b"\x08" + bytes(40), b"\x00\x01" + bytes(40), b"\x45" * 60])
def test_what_is_no_echo_reply_is_none(data: bytes) -> None:
    assert parse_reply(data, 0, 4) is None


def test_a_stub_too_short_for_our_payload_still_says_whose_it_is() -> None:
    message = echo_reply(template().request(sequence=1, wire_sequence=9))[:16]
    assert parse_reply(message, 0, 4) is None
    assert parse_stub(message, 4) == (0x1234, 9)
    assert parse_stub(message[:5], 4) is None


def test_a_quote_has_a_token_only_when_the_router_quoted_that_much() -> None:
    request = template().request(sequence=11, wire_sequence=12)
    whole = parse_quote(request, 4)
    assert whole == (0x1234, 12, TOKEN, 3, 11)
    short = parse_quote(request[:8], 4)
    assert short is not None
    assert (short.identifier, short.wire_sequence, short.token) == (0x1234, 12, None)
    assert parse_quote(request[:7], 4) is None
    assert parse_quote(echo_reply(request), 4) is None


def test_the_ipv4_header_length_is_taken_from_its_own_field() -> None:
    assert message_offset(b"\x45" + bytes(19)) == 20
    assert message_offset(b"\x4f" + bytes(59)) == 60
    assert message_offset(b"") == 0


def test_the_smallest_payload_holds_our_fields_alone() -> None:
    assert pattern(MIN_PAYLOAD_BYTES) == b""
    assert len(template(payload=MIN_PAYLOAD_BYTES).request(0, 0)) == 28
