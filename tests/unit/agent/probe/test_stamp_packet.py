"""The STAMP codec against RFC 8762, RFC 8972 and RFC 4656, octet by octet."""

import pytest

from agent.probe.stamp_packet import (
    BASE_BYTES,
    MAX_BYTES,
    ErrorEstimate,
    PacketError,
    Reply,
    build_reply,
    build_request,
    decode_error,
    encode_error,
    from_ntp,
    from_ptp,
    later_by,
    looks_reflected,
    parse_reply,
    parse_request,
    reply_tail,
    request_tail,
    residence_ns,
    to_ntp,
    to_ptp,
)

SECOND = 1_000_000_000
NOW = 1_767_225_600 * SECOND + 123_456_789  # 2026-01-01T00:00:00Z and some
PTP = 0x4000
GOOD = 0x8001


def reply(*, sent: int, received: int, error_estimate: int = GOOD) -> Reply:
    return Reply(0, sent, error_estimate, 0, received, 0, 0, GOOD, 64)


def test_the_request_octet_by_octet() -> None:
    packet = build_request(7, to_ntp(NOW), 0x8A01, 0x1234, request_tail(BASE_BYTES))
    assert packet.hex(" ", 4) == "00000007 ed003780 1f9add37 8a011234" + " 00000000" * 7
    assert parse_request(packet) == (7, to_ntp(NOW), 0x8A01, 0x1234)


def test_the_reply_octet_by_octet() -> None:
    request = parse_request(build_request(7, 0x1111111122222222, 0x8A01, 0x1234, b""))
    packet = build_reply(
        request, b"", sequence=5, received=0x3333333344444444, sent=0x5555555566666666, error_estimate=0x0102, ttl=63
    )
    assert packet.hex(" ", 4) == (
        "00000005 55555555 66666666 01021234 33333333 44444444 00000007 11111111 22222222 8a010000 3f000000"
    )
    assert len(packet) == BASE_BYTES
    assert parse_reply(packet) == Reply(
        5, 0x5555555566666666, 0x0102, 0x1234, 0x3333333344444444, 7, 0x1111111122222222, 0x8A01, 63
    )


@pytest.mark.parametrize("size", [0, 1, 13])
def test_too_few_bytes_for_a_request(size: int) -> None:
    with pytest.raises(PacketError, match="too few"):
        parse_request(b"\1" * size)


@pytest.mark.parametrize("size", [0, 14, 37])
def test_too_few_bytes_for_a_reply(size: int) -> None:
    with pytest.raises(PacketError, match="too few"):
        parse_reply(b"\1" * size)


def test_a_request_that_claims_no_error_at_all_is_corrupt() -> None:
    """RFC 4656 section 4.1.2: a multiplier of 0 marks a corrupt packet."""
    with pytest.raises(PacketError, match="multiplier"):
        parse_request(build_request(0, 1, 0x8A00, 0, b""))


@pytest.mark.parametrize(("size", "ttl"), [(38, None), (40, None), (41, 64), (44, 64)])
def test_a_short_reply_has_perhaps_no_ttl(size: int, ttl: int | None) -> None:
    packet = build_reply(
        parse_request(build_request(1, 2, 3, 0, b"")), b"", sequence=0, received=1, sent=1, error_estimate=1, ttl=64
    )
    assert parse_reply(packet[:size]).sender_ttl == ttl


@pytest.mark.parametrize(("wanted", "got"), [(0, 44), (44, 44), (45, 48), (48, 48), (49, 49), (1472, 1472)])
def test_padding_is_a_tlv(wanted: int, got: int) -> None:
    packet = build_request(0, 0, GOOD, 1, request_tail(wanted))
    assert len(packet) == got
    if got > BASE_BYTES:
        assert packet[44:48] == bytes([0x80, 1]) + (got - 48).to_bytes(2, "big")


# ---------------------------------------------------------------- TLVs


def tlv(flags: int, kind: int, value: bytes, length: int | None = None) -> bytes:
    return bytes([flags, kind]) + (len(value) if length is None else length).to_bytes(2, "big") + value


def test_a_known_tlv_comes_back_without_u_and_an_unknown_one_with_it() -> None:
    base = bytes(BASE_BYTES)
    asked = tlv(0x80, 1, b"abcd") + tlv(0x80, 4, b"\0\0\0\0") + tlv(0x9F, 250, b"x")
    assert reply_tail(base + asked, 7) == tlv(0, 1, b"abcd") + tlv(0x80, 4, b"\0\0\0\0") + tlv(0x80, 250, b"x")


def test_a_tlv_that_does_not_fit_is_marked_and_what_follows_is_left_alone() -> None:
    asked = tlv(0x80, 1, b"ab") + tlv(0x80, 9, b"xyz", length=200)
    assert reply_tail(bytes(BASE_BYTES) + asked, 7) == tlv(0, 1, b"ab") + tlv(0xC0, 9, b"xyz", length=200)


@pytest.mark.parametrize("rest", [b"", b"\x80", b"\x80\x01\x00"])
def test_what_is_too_short_for_a_tlv_is_copied(rest: bytes) -> None:
    assert reply_tail(bytes(BASE_BYTES) + tlv(0x80, 1, b"") + rest, 7) == tlv(0, 1, b"") + rest


def test_without_an_ssid_there_is_padding_and_no_tlv() -> None:
    """RFC 8762 section 4.6: what a TWAMP-Light sender has behind 44 octets is copied."""
    padding = tlv(0x12, 9, b"random", length=9)
    assert reply_tail(bytes(BASE_BYTES) + padding, 0) == padding


# ---------------------------------------------------------------- time


@pytest.mark.parametrize("wall", [0, 1, NOW, NOW + 999, 2_085_978_495 * SECOND, 2_085_978_496 * SECOND + 5])
def test_a_nanosecond_survives_both_formats(wall: int) -> None:
    assert from_ntp(to_ntp(wall), wall) == wall
    assert from_ptp(to_ptp(wall), wall) == wall


def test_ntp_begins_anew_in_2036() -> None:
    rollover = 2_085_978_496 * SECOND  # 2036-02-07T06:28:16Z
    assert to_ntp(rollover) == 0
    assert from_ntp(0, rollover - 5 * SECOND) == rollover
    assert from_ntp(to_ntp(rollover - SECOND), rollover + SECOND) == rollover - SECOND


def test_ptp_counts_tai() -> None:
    assert to_ptp(NOW) >> 32 == NOW // SECOND + 37
    assert to_ptp(NOW) & 0xFFFFFFFF == 123_456_789


def test_more_nanoseconds_than_a_second_has() -> None:
    with pytest.raises(PacketError):
        from_ptp(SECOND, NOW)


def test_later_by_wraps() -> None:
    assert later_by(3, 1) == 2
    assert later_by(1, 3) == -2
    assert later_by(1, (1 << 64) - 1) == 2


def test_residence_in_both_formats() -> None:
    assert residence_ns(reply(sent=to_ntp(NOW + 1_234), received=to_ntp(NOW))) == 1_234
    assert residence_ns(reply(sent=to_ptp(NOW + 1_234), received=to_ptp(NOW), error_estimate=GOOD | PTP)) == 1_234


def test_residence_over_the_end_of_the_ntp_era() -> None:
    rollover = 2_085_978_496 * SECOND
    assert residence_ns(reply(sent=to_ntp(rollover + 10), received=to_ntp(rollover - 10))) == 20


@pytest.mark.parametrize(
    "nonsense",
    [
        reply(sent=to_ntp(NOW), received=to_ntp(NOW + 1)),  # answered before it came
        reply(sent=to_ntp(NOW), received=to_ntp(NOW), error_estimate=0x8000),  # a clock without an error
        reply(sent=0xFFFFFFFF, received=0, error_estimate=GOOD | PTP),  # no such nanosecond
    ],
)
def test_residence_that_cannot_be(nonsense: Reply) -> None:
    assert residence_ns(nonsense) is None


def test_a_reflected_packet_is_known_for_one() -> None:
    request = build_request(0, to_ntp(NOW), GOOD, 9, request_tail(44))
    reflected = build_reply(
        parse_request(request), b"", sequence=0, received=to_ntp(NOW), sent=to_ntp(NOW), error_estimate=GOOD, ttl=64
    )
    assert looks_reflected(reflected, NOW + SECOND)
    assert looks_reflected(reflected[:41], NOW + SECOND)
    assert not looks_reflected(request, NOW + SECOND)
    assert not looks_reflected(request[:20], NOW + SECOND)


# ---------------------------------------------------------------- error estimate


@pytest.mark.parametrize("error_ns", [0, 1, 59, 60, 61, 999, 5_000, 1_000_000, 16 * SECOND])
def test_an_error_is_never_told_smaller(error_ns: int) -> None:
    told = decode_error(encode_error(error_ns))
    assert told.synchronised
    assert not told.ptp
    assert told.error_ns is not None
    assert error_ns <= told.error_ns <= error_ns * 1.01 + 1


def test_an_unsynchronised_clock_claims_nothing() -> None:
    told = decode_error(encode_error(None, ptp=True))
    assert told == ErrorEstimate(synchronised=False, ptp=True, error_ns=told.error_ns)
    assert told.error_ns is not None
    assert told.error_ns > 10_000 * SECOND


def test_an_error_of_centuries_still_fits() -> None:
    assert decode_error(encode_error(1 << 70)).synchronised


def test_a_multiplier_of_0_says_no_error() -> None:
    assert decode_error(0x8A00).error_ns is None


def test_the_largest_packet() -> None:
    assert len(build_request(0, 0, GOOD, 1, request_tail(MAX_BYTES))) == MAX_BYTES
