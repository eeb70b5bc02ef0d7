"""Header chain and signature: how batches are sealed and how each is checked. Pure.

What is signed is the exact bytes of the header. The header commits to the payload by an RFC 9162 tree head, and to
all headers before it by the hash of the last one, so a payload can be dropped and a record disclosed alone while the
chain still verifies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf.message import DecodeError

from bandwitness import merkle
from bandwitness.v1.record_pb2 import (
    BATCH_CLASS_UNSPECIFIED,
    HASH_ALGORITHM_SHA256,
    SIGNATURE_ALGORITHM_ED25519,
    Header,
    Payload,
    SignedBatch,
)


class ChainFault(StrEnum):
    """Why a batch does not stand in its chain. The value is the word stored, shown and counted."""

    UNREADABLE_HEADER = "unreadable_header"
    UNSUPPORTED_ALGORITHM = "unsupported_algorithm"
    BAD_SIGNATURE = "bad_signature"
    WRONG_KEY = "wrong_key"
    GAP = "gap"
    FORK = "fork"
    BROKEN_LINK = "broken_link"
    UNREADABLE_PAYLOAD = "unreadable_payload"
    PAYLOAD_MISMATCH = "payload_mismatch"
    WRONG_CLASS = "wrong_class"  # an agent wrote a class that is not an agent's


class ChainError(ValueError):
    """A batch that is not what it claims; ``fault`` names how."""

    def __init__(self, fault: ChainFault, detail: str) -> None:
        super().__init__(f"{fault}: {detail}")
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Tip:
    """The newest header of a chain; ``seq`` 0 and an empty hash before the first."""

    seq: int
    header_hash: bytes


ORIGIN = Tip(seq=0, header_hash=b"")


def header_hash(header: bytes) -> bytes:
    """32 bytes that the next header links to."""
    return sha256(header).digest()


def seal(header: Header, records: Sequence[bytes], tip: Tip, sign: Callable[[bytes], bytes]) -> SignedBatch:
    """Completes ``header`` behind ``tip`` for these records and signs it.

    The caller has filled in who, when and under which plan; seq, link, payload fields and algorithms are set here.
    """
    payload = Payload(record=records).SerializeToString()
    header.seq = tip.seq + 1
    header.previous_header_hash = tip.header_hash
    header.hash_algorithm = HASH_ALGORITHM_SHA256
    header.signature_algorithm = SIGNATURE_ALGORITHM_ED25519
    header.record_count = len(records)
    header.payload_bytes = len(payload)
    header.payload_root = merkle.root(records)
    signed = header.SerializeToString(deterministic=True)
    return SignedBatch(header=signed, payload=payload, signature=sign(signed))


def read_header(header: bytes) -> Header:
    """Parses header bytes.

    Raises:
        ChainError: not a header, or one that leaves out what every header has.
    """
    try:
        parsed = Header.FromString(header)
    except DecodeError as error:
        raise ChainError(ChainFault.UNREADABLE_HEADER, str(error)) from None
    if not parsed.agent_id or len(parsed.chain_id) != 16 or parsed.seq < 1 or len(parsed.public_key) != 32:
        raise ChainError(ChainFault.UNREADABLE_HEADER, "agent id, chain id, seq or public key is missing")
    if parsed.batch_class == BATCH_CLASS_UNSPECIFIED:
        raise ChainError(ChainFault.UNREADABLE_HEADER, "the batch has no class")
    return parsed


def check_signature(header: bytes, parsed: Header, signature: bytes) -> None:
    """Checks the signature with the key in the header itself; whose key that is, ``ChainOpened`` says.

    Raises:
        ChainError: unknown algorithm or wrong signature.
    """
    if parsed.hash_algorithm != HASH_ALGORITHM_SHA256 or parsed.signature_algorithm != SIGNATURE_ALGORITHM_ED25519:
        raise ChainError(ChainFault.UNSUPPORTED_ALGORITHM, "only SHA-256 with Ed25519 is known")
    try:
        Ed25519PublicKey.from_public_bytes(parsed.public_key).verify(signature, header)
    except (InvalidSignature, ValueError):
        raise ChainError(ChainFault.BAD_SIGNATURE, f"seq {parsed.seq} of {parsed.agent_id}") from None


def check_link(parsed: Header, tip: Tip) -> None:
    """Checks that the header stands right behind ``tip``. Numbers at or before the tip are the caller's to sort out.

    Raises:
        ChainError: numbers are missing between the two, or the link is not the hash of the tip.
    """
    if parsed.seq > tip.seq + 1:
        raise ChainError(ChainFault.GAP, f"seq {parsed.seq} follows {tip.seq}")
    if parsed.previous_header_hash != tip.header_hash:
        raise ChainError(ChainFault.BROKEN_LINK, f"seq {parsed.seq} is not linked to the header before it")


def read_payload(parsed: Header, payload: bytes) -> list[bytes]:
    """The records of a payload that is the one signed for.

    Raises:
        ChainError: unreadable, or not what the header commits to. An empty payload under a header that counts
            records was dropped or withheld: the caller asks ``payload`` for that before calling.
    """
    try:
        records = list(Payload.FromString(payload).record)
    except DecodeError as error:
        raise ChainError(ChainFault.UNREADABLE_PAYLOAD, str(error)) from None
    if len(payload) != parsed.payload_bytes:  # parsers skip fields they do not know, so records prove too little
        raise ChainError(ChainFault.PAYLOAD_MISMATCH, f"{len(payload)} bytes of payload, {parsed.payload_bytes} signed")
    if len(records) != parsed.record_count or merkle.root(records) != parsed.payload_root:
        raise ChainError(ChainFault.PAYLOAD_MISMATCH, f"seq {parsed.seq} of {parsed.agent_id}")
    return records
