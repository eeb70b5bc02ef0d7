"""STAMP test packets, unauthenticated mode: bytes <-> values. Pure.

RFC 8762 sections 4.2.1 and 4.3.1 (44 octets each way), RFC 8972 section 3 (SSID where RFC 8762 has zeros) and 4 (TLVs
behind the base packet). TWAMP-Light (RFC 5357) is the same on the wire, but for shorter packets, padding for TLVs and
no SSID.

Session-Sender::

     0 sequence number (4)
     4 timestamp T1 (8)
    12 error estimate (2)   14 SSID (2)
    16 zeros (28)
    44 TLVs

Session-Reflector::

     0 sequence number (4), of its own where it is stateful
     4 timestamp T3 (8)
    12 error estimate (2)   14 SSID (2)
    16 receive timestamp T2 (8)
    24 copied: sequence number (4), timestamp (8), error estimate (2); zeros (2)
    40 TTL of the received packet (1), zeros (3)
    44 TLVs, copied

Timestamps are 64 bits: NTP (seconds since 1900 and a fraction) or, with the error estimate's Z bit, truncated PTPv2
(seconds since 1970 in TAI, and nanoseconds; RFC 8186). Both wrap, NTP's in 2036.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812 - `error` is a field's name here
from typing import NamedTuple

BASE_BYTES = 44
MIN_REQUEST_BYTES = 14  # all that TWAMP-Light has before its padding
MIN_REPLY_BYTES = 38  # up to the copied error estimate: the rest is a TTL and zeros
MAX_BYTES = 8972  # a 9000 byte frame's worth of IPv4
TTL_OFFSET = 40

TLV_HEADER_BYTES = 4
TLV_EXTRA_PADDING = 1
TLV_UNRECOGNISED, TLV_MALFORMED = 0x80, 0x40

_REQUEST = Struct("!IQHH")
_REPLY = Struct("!IQHHQIQHHB3x")
_REPLY_HEAD = Struct("!IQHHQIQH")
_ONES_64 = (1 << 64) - 1
_NTP_MINUS_UNIX_S = 2_208_988_800
_TAI_MINUS_UTC_S = 37  # since 2017; leap seconds end by 2035 (CGPM 2022, resolution 4)
_SECOND_NS = 1_000_000_000
_WRAP_S = 1 << 32
_SYNCHRONISED, _PTP = 0x8000, 0x4000
_LARGEST = 63 << 8 | 255


class PacketError(ValueError):
    """Not a STAMP test packet; the text says why."""


class Request(NamedTuple):
    """What a Session-Sender sent. ``timestamp`` and ``error_estimate`` are the fields as they stand there."""

    sequence: int
    timestamp: int
    error_estimate: int
    ssid: int  # 0: a sender without RFC 8972


class Reply(NamedTuple):
    """What a Session-Reflector answered. ``error_estimate`` is about both its timestamps."""

    sequence: int
    timestamp: int  # T3
    error_estimate: int
    ssid: int
    receive_timestamp: int  # T2
    sender_sequence: int
    sender_timestamp: int  # T1, as it was sent
    sender_error_estimate: int
    sender_ttl: int | None  # TTL with which the request arrived; None: the packet ends before it


class ErrorEstimate(NamedTuple):
    """RFC 4656 section 4.1.2. ``error_ns`` None: a multiplier of 0, which no clock may claim."""

    synchronised: bool
    ptp: bool
    error_ns: int | None


def parse_request(data: bytes) -> Request:
    """Reads a Session-Sender's packet, also a TWAMP-Light sender's shorter one.

    Raises:
        PacketError: too short, or an error estimate of 0, by which RFC 4656 tells a corrupt packet.
    """
    try:
        request = Request._make(_REQUEST.unpack_from(data))
    except StructError:
        raise PacketError(f"{len(data)} bytes are too few for a test packet") from None
    if not request.error_estimate & 0xFF:
        raise PacketError("error estimate with a multiplier of 0")
    return request


def parse_reply(data: bytes) -> Reply:
    """Reads a Session-Reflector's packet.

    A multiplier of 0 is let pass: the packet has come back, and only its timestamps are worth nothing.

    Raises:
        PacketError: too short.
    """
    try:
        head = _REPLY_HEAD.unpack_from(data)
    except StructError:
        raise PacketError(f"{len(data)} bytes are too few for a reflected packet") from None
    return Reply._make((*head, data[TTL_OFFSET] if len(data) > TTL_OFFSET else None))


def build_request(sequence: int, timestamp: int, error_estimate: int, ssid: int, tail: bytes) -> bytes:
    """The base packet; ``tail`` is all behind it (``request_tail``), the zeros of the base packet included."""
    return _REQUEST.pack(sequence, timestamp, error_estimate, ssid) + tail


def request_tail(payload_bytes: int) -> bytes:
    """What follows the SSID in packets of this size: zeros, and an Extra Padding TLV for what is over the base.

    Sizes that leave no room for a TLV's header are rounded up to one. U is set, as a sender must (RFC 8972 section 4):
    who knows the TLV clears it. The padding counts up, so that no two parts of it are alike.
    """
    zeros = bytes(BASE_BYTES - _REQUEST.size)
    if payload_bytes <= BASE_BYTES:
        return zeros
    length = max(0, payload_bytes - BASE_BYTES - TLV_HEADER_BYTES)
    header = bytes([TLV_UNRECOGNISED, TLV_EXTRA_PADDING]) + length.to_bytes(2, "big")
    return zeros + header + bytes(i & 0xFF for i in range(0x10, 0x10 + length))


def build_reply(
    request: Request, tail: bytes, *, sequence: int, received: int, sent: int, error_estimate: int, ttl: int
) -> bytes:
    """The reflected packet: base, then ``tail`` (``reply_tail``). ``received`` T2, ``sent`` T3."""
    return (
        _REPLY.pack(
            sequence,
            sent,
            error_estimate,
            request.ssid,
            received,
            request.sequence,
            request.timestamp,
            request.error_estimate,
            0,
            ttl,
        )
        + tail
    )


def reply_tail(data: bytes, ssid: int) -> bytes:
    """What a reflector puts behind the base packet, so that the reply is as long as the request ``data``.

    With an SSID the sender speaks RFC 8972: its TLVs are returned, flagged. Without, it is padding, and copied.
    """
    tail = data[BASE_BYTES:]
    return _flag_tlvs(tail) if ssid and tail else tail


def _flag_tlvs(tail: bytes) -> bytes:
    """RFC 8972 section 4 for a reflector that knows only Extra Padding: U on all others, M where one does not fit."""
    flagged = bytearray(tail)
    at = 0
    while at + TLV_HEADER_BYTES <= len(tail):
        end = at + TLV_HEADER_BYTES + int.from_bytes(tail[at + 2 : at + 4], "big")
        flagged[at] = 0 if tail[at + 1] == TLV_EXTRA_PADDING else TLV_UNRECOGNISED
        if end > len(tail):
            flagged[at] |= TLV_MALFORMED
            break
        at = end
    return bytes(flagged)


def looks_reflected(data: bytes, wall_ns: int, *, within_ns: int = 3600 * _SECOND_NS) -> bool:
    """Whether a request is in truth a reflected packet: all three of its NTP timestamps are of about now.

    Two reflectors that answer each other's answers would never stop. A sender has zeros or padding there.
    """
    if len(data) < MIN_REPLY_BYTES:
        return False
    reply = parse_reply(data)
    return all(
        abs(from_ntp(stamp, wall_ns) - wall_ns) <= within_ns
        for stamp in (reply.receive_timestamp, reply.sender_timestamp, reply.timestamp)
    )


# ---------------------------------------------------------------- time


def to_ntp(wall_ns: int) -> int:
    """The NTP timestamp of a wall clock time; ``from_ntp`` gives the same nanosecond back."""
    seconds, rest = divmod(wall_ns, _SECOND_NS)
    fraction = ((rest << 32) + _SECOND_NS // 2) // _SECOND_NS
    return ((seconds + _NTP_MINUS_UNIX_S) % _WRAP_S) << 32 | fraction


def from_ntp(timestamp: int, near_ns: int) -> int:
    """The wall clock time of an NTP timestamp: of all it can mean, 136 years apart, the one next to ``near_ns``."""
    fraction_ns = ((timestamp & 0xFFFFFFFF) * _SECOND_NS + (1 << 31)) >> 32
    return _unwrap((timestamp >> 32) - _NTP_MINUS_UNIX_S, fraction_ns, near_ns)


def to_ptp(wall_ns: int) -> int:
    """The truncated PTPv2 timestamp of a wall clock time."""
    seconds, rest = divmod(wall_ns, _SECOND_NS)
    return ((seconds + _TAI_MINUS_UTC_S) % _WRAP_S) << 32 | rest


def from_ptp(timestamp: int, near_ns: int) -> int:
    """The wall clock time of a truncated PTPv2 timestamp, next to ``near_ns``.

    Raises:
        PacketError: more nanoseconds than a second has.
    """
    rest = timestamp & 0xFFFFFFFF
    if rest >= _SECOND_NS:
        raise PacketError(f"{rest} nanoseconds in a PTP timestamp")
    return _unwrap((timestamp >> 32) - _TAI_MINUS_UTC_S, rest, near_ns)


def _unwrap(seconds: int, rest_ns: int, near_ns: int) -> int:
    near_s = near_ns // _SECOND_NS
    return (near_s + (seconds - near_s + _WRAP_S // 2) % _WRAP_S - _WRAP_S // 2) * _SECOND_NS + rest_ns


def later_by(timestamp: int, earlier: int) -> int:
    """By how many units one timestamp is later than another of the same format; negative: it is earlier. Wraps."""
    return ((timestamp - earlier + (1 << 63)) & _ONES_64) - (1 << 63)


def residence_ns(reply: Reply) -> int | None:
    """How long the reflector kept the packet (T3 − T2); None where its timestamps cannot be."""
    if not reply.error_estimate & 0xFF:
        return None
    if not reply.error_estimate & _PTP:
        span = (later_by(reply.timestamp, reply.receive_timestamp) * _SECOND_NS + (1 << 31)) >> 32
    else:
        try:
            received_ns = from_ptp(reply.receive_timestamp, 0)
            span = from_ptp(reply.timestamp, received_ns) - received_ns
        except PacketError:
            return None
    return span if span >= 0 else None


# ---------------------------------------------------------------- error estimate


def encode_error(error_ns: int | None, *, ptp: bool = False) -> int:
    """The error estimate of a clock synchronised to within ``error_ns``, never less; None: not synchronised.

    multiplier · 2^-32 · 2^scale seconds. An unsynchronised clock claims nothing: the largest there is, S not set.
    """
    format_bit = _PTP if ptp else 0
    if error_ns is None:
        return format_bit | _LARGEST
    units = max(1, -((-error_ns << 32) // _SECOND_NS))
    scale = max(0, units.bit_length() - 8)
    multiplier = -(-units >> scale)
    if multiplier > 255:  # rounding up took it over
        scale, multiplier = scale + 1, 128
    return _SYNCHRONISED | format_bit | (scale << 8 | multiplier if scale <= 63 else _LARGEST)


def decode_error(error_estimate: int) -> ErrorEstimate:
    """What an error estimate says; its nanoseconds rounded up."""
    multiplier, scale = error_estimate & 0xFF, error_estimate >> 8 & 0x3F
    error_ns = -((-multiplier * _SECOND_NS << scale) >> 32) if multiplier else None
    return ErrorEstimate(bool(error_estimate & _SYNCHRONISED), bool(error_estimate & _PTP), error_ns)
