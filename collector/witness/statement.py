"""What is said of a tree head to others: one line of ASCII, for people to read and for a time stamp to cover. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """A signed tree head, as the control chain has it."""

    day: str  # the UTC day that ended, YYYY-MM-DD
    tree_size: int
    root: bytes
    signed_time_ns: int  # collector's clock


def statement(head: Head, collector: str, public_key: bytes) -> bytes:
    """The line with its end. ``openssl ts -verify -data`` takes the file that holds it."""
    words = f"bandwitness tree head: day {head.day}, headers {head.tree_size}, root sha256:{head.root.hex()}, "
    return f"{words}collector {collector}, key ed25519:{public_key.hex()}\n".encode("ascii", "backslashreplace")
