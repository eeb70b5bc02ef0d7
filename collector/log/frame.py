r"""The bytes of a day file. Pure.

::

    file   = magic frame*
    magic  = "BWLOG1\r\n"                              8 bytes; \r\n shows a transfer that changed line ends
    frame  = length:u32 crc:u32 body                   little endian; crc is CRC-32 (zlib) of the body
    body   = position:u64 received_time_ns:i64 source_length:u8 quarantine_length:u8 source quarantine batch

``source`` is who the connection proved to be (UTF-8), ``quarantine`` the fault (ASCII, empty for none), ``batch`` the
serialised SignedBatch with header, payload and signature as received. ``position`` rises over all files of a log.
"""

import mmap
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from bandwitness import MAX_MESSAGE_BYTES

MAGIC = b"BWLOG1\r\n"
_FRAME = struct.Struct("<II")
_BODY = struct.Struct("<QqBB")
OVERHEAD = _FRAME.size
MAX_BODY_BYTES = MAX_MESSAGE_BYTES + _BODY.size + 512


Buffer = bytes | memoryview | mmap.mmap


@dataclass(frozen=True, slots=True)
class Frame:
    """One entry as it stands in its file; ``length`` covers the whole frame."""

    offset: int
    length: int
    position: int
    received_time_ns: int
    source: str
    quarantine: str
    batch: bytes


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no frame."""

    offset: int
    length: int
    reason: str


def encode(position: int, received_time_ns: int, source: str, quarantine: str, batch: bytes) -> bytes:
    """One frame."""
    name, reason = source.encode(), quarantine.encode("ascii")
    assert max(len(name), len(reason)) < 256
    body = b"".join((_BODY.pack(position, received_time_ns, len(name), len(reason)), name, reason, batch))
    assert len(body) <= MAX_BODY_BYTES
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def decode(buffer: Buffer, offset: int) -> Frame | Damage:
    """What stands at ``offset``. A damage reaches to the end of ``buffer`` unless its length can be believed."""
    left = len(buffer) - offset
    if left < OVERHEAD:
        return Damage(offset, left, "cut short inside a frame's length")
    length, crc = _FRAME.unpack_from(buffer, offset)
    if not _BODY.size <= length <= MAX_BODY_BYTES:
        return Damage(offset, left, f"a frame of {length} bytes")
    if length > left - OVERHEAD:
        return Damage(offset, left, f"cut short: {left - OVERHEAD} of {length} bytes")
    body = bytes(buffer[offset + OVERHEAD : offset + OVERHEAD + length])
    if zlib.crc32(body) != crc:
        return Damage(offset, OVERHEAD + length, "the checksum does not match")
    position, received_time_ns, name_length, reason_length = _BODY.unpack_from(body)
    name_end = _BODY.size + name_length
    reason_end = name_end + reason_length
    return Frame(
        offset=offset,
        length=OVERHEAD + length,
        position=position,
        received_time_ns=received_time_ns,
        source=body[_BODY.size : name_end].decode("utf-8", "replace"),
        quarantine=body[name_end:reason_end].decode("ascii", "replace"),
        batch=body[reason_end:],
    )


def scan(buffer: Buffer, offset: int) -> Iterator[Frame | Damage]:
    """Everything from ``offset`` on. Goes on behind a frame with a bad checksum where an intact one follows it, so
    that one flipped bit does not cost what was written after it."""
    while offset < len(buffer):
        found = decode(buffer, offset)
        end = found.offset + found.length
        if isinstance(found, Damage) and end < len(buffer) and isinstance(decode(buffer, end), Damage):
            found = Damage(offset, len(buffer) - offset, found.reason)
            end = len(buffer)
        yield found
        offset = end
