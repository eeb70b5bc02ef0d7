"""RFC 3161: what is asked of a time-stamp authority, and whether its answer is a stamp of that. No network."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cryptography import x509
from rfc3161_client import (
    HashAlgorithm,
    TimestampRequestBuilder,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)


class StampError(Exception):
    """No stamp, or not one of what was asked; the message says why."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request on its way."""

    encoded: bytes  # DER TimeStampReq
    nonce: int


def request(data: bytes) -> Request:
    """Asks for a stamp over the SHA-256 of ``data``, with a nonce and with the authority's certificates."""
    built = (
        TimestampRequestBuilder()
        .data(data)
        .hash_algorithm(HashAlgorithm.SHA256)
        .cert_request(cert_request=True)
        .build()
    )
    assert built.nonce is not None
    return Request(built.as_bytes(), built.nonce)


def check(answer: bytes, data: bytes, nonce: int | None, roots: Sequence[x509.Certificate]) -> datetime:
    """When the authority says that ``data`` was there.

    Args:
        answer: DER TimeStampResp.
        nonce: of the request; None where a stored answer is looked at again.
        roots: whom to believe.

    Raises:
        StampError: refused, of something else, or not signed by whom it should be.
    """
    try:
        response = decode_timestamp_response(answer)
        builder: Any = VerifierBuilder(roots=list(roots))
        if nonce is not None:
            builder = builder.nonce(nonce)
        builder.build().verify_message(response, data)
        time: datetime = response.tst_info.gen_time
    except VerificationError as error:
        raise StampError(f"the authority's answer does not hold: {error}") from None
    except (ValueError, TypeError) as error:  # what the decoder says of anything that is no response
        raise StampError(f"the authority's answer is no time stamp: {error}") from None
    return time
