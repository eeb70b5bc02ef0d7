"""The authority whose fingerprint the operator was told. Nothing that a stranger may not know is sent to find it.

The collector's enrolment port shows its certificate with the authority's behind it. That is read without trusting
anything; only the certificate whose SHA-256 is the one given is then the authority for the connection that matters.
"""

import re
import socket
import ssl
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import Any

from agent.config import Address

CONNECT_WITHIN_S = 10.0


class PinError(Exception):
    """There is no such authority at the other end; the text says what is there."""


def parse_fingerprint(text: str) -> bytes:
    """32 bytes of ``sha256:`` and hex, with or without colons as openssl prints it.

    Raises:
        ValueError: it is none.
    """
    digits = re.sub(r"^sha256[:=]|^sha256 fingerprint=|[:\s]", "", text.strip().lower())
    digits = digits.removeprefix("sha256").replace(":", "")
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise ValueError("expected sha256: and 64 hexadecimal digits, as `token create` prints it")
    return bytes.fromhex(digits)


def shown_chain(address: Address, within_s: float = CONNECT_WITHIN_S) -> list[bytes]:
    """The certificates that the other end shows, in DER, its own first. Nothing is believed of them yet.

    Raises:
        OSError: it cannot be reached, or speaks no TLS.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((address.host, address.port), within_s) as plain,
        context.wrap_socket(plain) as connection,
    ):
        public: Any = connection
        if hasattr(public, "get_unverified_chain"):  # from Python 3.13 on
            return [bytes(one) for one in public.get_unverified_chain()]
        inner: Any = public._sslobj
        return [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in inner.get_unverified_chain()]


def pinned(chain: Sequence[bytes], fingerprint: bytes, address: Address) -> str:
    """The certificate in ``chain`` with this SHA-256, in PEM.

    Raises:
        PinError: there is none.
    """
    for certificate in chain:
        if compare_digest(sha256(certificate).digest(), fingerprint):
            return ssl.DER_cert_to_PEM_cert(certificate)
    seen = ", ".join(f"sha256:{sha256(one).hexdigest()}" for one in chain) or "nothing"
    raise PinError(
        f"{address} does not show the authority sha256:{fingerprint.hex()}, but {seen}. Is it the enrolment port, and "
        "the fingerprint whole? If so, somebody stands in between. The token was not sent"
    )
