"""ICMP and ICMPv6 echo messages: bytes <-> values. Pure.

RFC 792 (type 8 request, 0 reply) and RFC 4443 (128, 129): type, code, checksum, identifier, sequence, payload.
Our payload, big endian: 8 bytes of token (keyed, one a path), 4 bytes of slot (where the prober keeps the path), 8
bytes of sequence number, and a pattern up to the wished length. The wire's sequence has 16 bits and starts anywhere;
the 64-bit number in the payload is the one that counts, so a wrap means nothing.
"""

from struct import Struct, error
from typing import NamedTuple

ECHO_REPLY_V4, ECHO_REQUEST_V4 = 0, 8
ECHO_REQUEST_V6, ECHO_REPLY_V6 = 128, 129
HEADER_BYTES = 8
MIN_PAYLOAD_BYTES = 20  # token, slot, sequence
MAX_PAYLOAD_BYTES = 8972  # a 9000 byte frame's worth of IPv4: probes are small
TOKEN_BYTES = 8

_MESSAGE = Struct("!BBHHH8sIQ")
_HEADER = Struct("!BBHHH")
_PAYLOAD = Struct("!8sIQ")
_ONES = 0xFFFF


class Reply(NamedTuple):
    """An echo reply, or what it looks like; nothing about it is checked yet."""

    identifier: int
    wire_sequence: int
    token: bytes
    slot: int
    sequence: int
    checksum: int


class Quote(NamedTuple):
    """Our request as an ICMP error quotes it. Routers need not quote more than 8 bytes (RFC 792): then no token."""

    identifier: int
    wire_sequence: int
    token: bytes | None
    slot: int
    sequence: int


def ones_complement_sum(data: bytes) -> int:
    """RFC 1071 sum of 16-bit words, folded, as a number modulo 65535 (0 and 65535 are the same sum).

    2^16 is 1 modulo 65535, so any stretch of words is summed by one division of the number that they spell.
    """
    return int.from_bytes(data if len(data) % 2 == 0 else data + b"\0", "big") % _ONES


def checksum(total: int) -> int:
    """The checksum field for a message whose words add up to ``total`` > 0."""
    rest = total % _ONES
    return _ONES - rest if rest else 0


def pattern(payload_bytes: int) -> bytes:
    """What fills the payload behind our own fields: counts up, so a shifted or repeated part does not compare equal."""
    length = payload_bytes - MIN_PAYLOAD_BYTES
    return bytes(i & 0xFF for i in range(0x10, 0x10 + length))


class EchoTemplate:
    """All messages of one path; only wire sequence, sequence and checksum change from one to the next."""

    __slots__ = ("_constant_sum", "_fill", "_identifier", "_reply_sum", "_request_type", "_slot", "_token", "_v4")

    def __init__(self, *, ip_version: int, identifier: int, token: bytes, slot: int, fill: bytes) -> None:
        self._v4 = ip_version == 4
        self._request_type = ECHO_REQUEST_V4 if self._v4 else ECHO_REQUEST_V6
        self._identifier = identifier
        self._token = token
        self._slot = slot
        self._fill = fill
        rest = ones_complement_sum(token) + ones_complement_sum(slot.to_bytes(4, "big")) + ones_complement_sum(fill)
        self._reply_sum = identifier + rest
        self._constant_sum = (self._request_type << 8) + self._reply_sum

    def request(self, sequence: int, wire_sequence: int) -> bytes:
        """The request. For IPv6 the kernel overwrites the checksum: it covers addresses that only it knows."""
        value = checksum(self._constant_sum + sequence + wire_sequence)
        head = _MESSAGE.pack(
            self._request_type, 0, value, self._identifier, wire_sequence, self._token, self._slot, sequence
        )
        return head + self._fill

    def intact(self, reply: Reply, message: bytes, offset: int) -> bool:
        """Whether the reply carries our payload unchanged, and (IPv4) a checksum that fits it.

        A raw IPv4 socket is handed messages before the kernel checks the ICMP checksum (net/ipv4/ip_input.c), so a
        damaged one arrives here. Token and slot must have been checked already.
        """
        return (
            len(message) - offset == _MESSAGE.size + len(self._fill)
            and message.endswith(self._fill)
            and (
                not self._v4
                or reply.checksum % _ONES == checksum(self._reply_sum + reply.sequence + reply.wire_sequence) % _ONES
            )
        )


def parse_reply(message: bytes, offset: int, ip_version: int) -> Reply | None:
    """Reads a reply that starts at ``offset``; None when it is no echo reply or too short to be one of ours."""
    try:
        kind, code, value, identifier, wire_sequence, token, slot, sequence = _MESSAGE.unpack_from(message, offset)
    except error:
        return None
    if code or kind != (ECHO_REPLY_V4 if ip_version == 4 else ECHO_REPLY_V6):
        return None
    return Reply(identifier, wire_sequence, token, slot, sequence, value)


def parse_stub(message: bytes, ip_version: int) -> tuple[int, int] | None:
    """Identifier and wire sequence of a reply too short for our payload; None when it is no echo reply."""
    return _parse_header(message, ECHO_REPLY_V4 if ip_version == 4 else ECHO_REPLY_V6)


def parse_quote(quoted: bytes, ip_version: int) -> Quote | None:
    """Reads the ICMP part of a packet quoted by an ICMP error; None when it was no echo request."""
    header = _parse_header(quoted, ECHO_REQUEST_V4 if ip_version == 4 else ECHO_REQUEST_V6)
    if header is None:
        return None
    identifier, wire_sequence = header
    try:
        token, slot, sequence = _PAYLOAD.unpack_from(quoted, HEADER_BYTES)
    except error:
        return Quote(identifier, wire_sequence, None, 0, 0)
    return Quote(identifier, wire_sequence, token, slot, sequence)


def _parse_header(message: bytes, kind: int) -> tuple[int, int] | None:
    try:
        found, code, _, identifier, wire_sequence = _HEADER.unpack_from(message)
    except error:
        return None
    return None if code or found != kind else (identifier, wire_sequence)


def message_offset(packet: bytes) -> int:
    """Where the ICMP message starts on a raw IPv4 socket: behind the IP header (its length is in the low 4 bits)."""
    return (packet[0] & 0x0F) * 4 if packet else 0
