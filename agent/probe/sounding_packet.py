"""Echo messages that feel out a path: numbered, and alike for every router that spreads by header. Pure.

All packets of one size to one path have the same type, code and checksum, and with raw sockets the same identifier,
also from one sounding to the next: what sequence number and token add is taken out of two bytes of the payload. Routers
that spread ICMP over equal paths by the first four octets of the message then keep them together (Augustin et al.,
"Avoiding traceroute anomalies with Paris traceroute", IMC 2006).

Payload: 8 bytes of token, 2 bytes that balance it and the sequence number, and the pattern of ``echo_packet``.
"""

from struct import Struct, error
from typing import NamedTuple

from agent.probe.echo_packet import (
    ECHO_REPLY_V4,
    ECHO_REPLY_V6,
    ECHO_REQUEST_V4,
    ECHO_REQUEST_V6,
    HEADER_BYTES,
    TOKEN_BYTES,
    checksum,
    ones_complement_sum,
)

MIN_PAYLOAD_BYTES = TOKEN_BYTES + 2
NUMBERS = 0x10000

_HEAD = Struct("!BBHHH8sH")
_HEADER = Struct("!BBHHH")
_ONES = 0xFFFF


class Reply(NamedTuple):
    """A reply to one of ours."""

    number: int
    payload_bytes: int


class SoundingPackets:
    """The packets of one sounding. ``token``: 8 bytes that nobody else has."""

    def __init__(self, *, ip_version: int, identifier: int, token: bytes) -> None:
        v4 = ip_version == 4
        self._request, self._reply = (ECHO_REQUEST_V4, ECHO_REPLY_V4) if v4 else (ECHO_REQUEST_V6, ECHO_REPLY_V6)
        self._identifier = identifier
        self._token = token
        self._token_sum = ones_complement_sum(token)

    def request(self, number: int, payload_bytes: int) -> bytes:
        """The request with this number (16 bits). For IPv6 the kernel overwrites the checksum, with one that is as
        constant: it covers the addresses too."""
        fill = bytes(i & 0xFF for i in range(payload_bytes - MIN_PAYLOAD_BYTES))
        # Number, token and balance add up to 65535, which is 0 in ones' complement.
        total = (self._request << 8) + self._identifier + _ONES + ones_complement_sum(fill)
        head = _HEAD.pack(
            self._request, 0, checksum(total), self._identifier, number, self._token, self._balance(number)
        )
        return head + fill

    def _balance(self, number: int) -> int:
        return (-number - self._token_sum) % _ONES

    def read_reply(self, message: bytes, offset: int = 0) -> Reply | None:
        """Which packet this ICMP message answers; None: none of ours, or damaged."""
        try:
            kind, code, _, identifier, number, token, balance = _HEAD.unpack_from(message, offset)
        except error:
            return None
        payload_bytes = len(message) - offset - HEADER_BYTES
        if (kind, code, identifier, token, balance) != (
            self._reply,
            0,
            self._identifier,
            self._token,
            self._balance(number),
        ):
            return None
        fill = message[offset + _HEAD.size :]
        if fill != bytes(i & 0xFF for i in range(len(fill))):
            return None
        return Reply(number, payload_bytes)

    def read_quote(self, quoted: bytes) -> int | None:
        """Which packet an ICMP error quotes; None: none of ours. Routers need not quote more than 8 bytes (RFC 792)."""
        try:
            kind, code, _, identifier, number = _HEADER.unpack_from(quoted)
        except error:
            return None
        if (kind, code, identifier) != (self._request, 0, self._identifier):
            return None
        token = quoted[HEADER_BYTES : HEADER_BYTES + TOKEN_BYTES]
        return number if token == self._token[: len(token)] else None
