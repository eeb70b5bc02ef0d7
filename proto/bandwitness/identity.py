"""Short ids for paths, profiles and counter sets: what makes two measurements comparable. Pure.

An id is the first 8 bytes, big endian, of the SHA-256 of the serialised message. The bytes travel in a ``Definition``
record, so a reader hashes what it was given and needs no encoder of its own. Two definitions with one id cannot be
told apart on the wire: the collector refuses the second.
"""

from hashlib import sha256

from google.protobuf.message import Message


def canonical(message: Message) -> bytes:
    """The bytes that are hashed and sent: fields in order of number, without those that this version does not know.

    A field added later must not give every path of an older agent another id just because a plan carried it along.
    """
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return known.SerializeToString(deterministic=True)


def short_id(definition: bytes) -> int:
    """64-bit id of a serialised Path, Profile or CounterSet."""
    return int.from_bytes(sha256(definition).digest()[:8], "big")
