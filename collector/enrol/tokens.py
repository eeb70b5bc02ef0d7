"""Tokens: what they look like, and what is kept of them. Pure but for the random numbers given.

``bwe_<id>_<secret>`` enrols one node once, ``bwr_<id>_<secret>`` reads over HTTP. The secret has 256 random bits, so
its SHA-256 is kept: nothing slower is needed against guessing. The id is no secret; it names the token in lists and on
record.
"""

import hmac
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

Kind = Literal["enrol", "read"]
PREFIX: dict[Kind, str] = {"enrol": "bwe", "read": "bwr"}
MAX_TEXT = 128


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token. Times are the collector's, in ns; None: never."""

    token_id: str
    kind: Kind
    node: str  # of an enrolment
    digest: bytes  # SHA-256 of the whole text
    created_ns: int
    expiry_ns: int | None
    used_ns: int | None = None
    used_key: bytes = b""  # SHA-256 of the public key that it was used with
    revoked_ns: int | None = None

    def state(self, now_ns: int) -> str:
        """In one word."""
        if self.revoked_ns is not None:
            return "revoked"
        if self.used_ns is not None:
            return "used"
        return "expired" if self.expiry_ns is not None and self.expiry_ns <= now_ns else "open"

    def matches(self, text: str) -> bool:
        """Whether ``text`` is this token; takes the same time whatever is wrong with it."""
        return hmac.compare_digest(self.digest, sha256(text.encode()).digest())


def make(kind: Kind, node: str, now_ns: int, ttl_ns: int | None) -> tuple[Token, str]:
    """A new token, and its text, which is told once and never again."""
    token_id = secrets.token_hex(5)
    text = f"{PREFIX[kind]}_{token_id}_{secrets.token_urlsafe(32)}"
    expiry_ns = None if ttl_ns is None else now_ns + ttl_ns
    return Token(token_id, kind, node, sha256(text.encode()).digest(), now_ns, expiry_ns), text


def id_of(kind: Kind, text: str) -> str | None:
    """The id in a token's text; None: it is no token of this kind."""
    if len(text) > MAX_TEXT or not text.isascii():
        return None
    prefix, _, rest = text.partition("_")
    token_id, _, secret = rest.partition("_")
    return token_id if prefix == PREFIX[kind] and token_id and secret else None
