"""Where a batch stands in its chain: new, known already, or not where it should be. Pure.

The key is agent, chain and seq; the header hash tells the same batch sent again from another one with its number. A
header is kept a second time only where it brings the payload that the first copy lacked.
"""

from collections.abc import Collection
from dataclasses import dataclass

from bandwitness.chain import ChainError, ChainFault, Tip, check_link
from bandwitness.v1.record_pb2 import Header
from collector.log import Kept
from collector.log.entry import PAYLOAD_FAULTS

Stored = Collection[Kept]  # entries with one seq

# Nothing vouches for headers kept under these: they say nothing about what else has their number.
UNTRUSTED = frozenset(
    {
        ChainFault.UNREADABLE_HEADER,
        ChainFault.UNSUPPORTED_ALGORITHM,
        ChainFault.BAD_SIGNATURE,
        ChainFault.WRONG_KEY,
        ChainFault.WRONG_CLASS,
    }
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done with a batch: ``duplicate`` is acknowledged and not stored; everything else is stored, with
    ``fault`` as its quarantine reason where there is one."""

    duplicate: bool = False
    fault: str = ""


NEW = Verdict()
DUPLICATE = Verdict(duplicate=True)


def is_known(header_hash: bytes, stored: Stored) -> bool:
    """Whether this very header is among the trusted ones with its number."""
    return any(_trusted(header_hash, kept) for kept in stored)


def completes(header_hash: bytes, stored: Stored) -> Verdict | None:
    """The verdict on a known header that comes with the payload it was signed for, where none of those kept has it:
    the payload was damaged on its way, or dropped by somebody between. None: there is one that has.

    What was at fault with the place in the chain still is.
    """
    known = [kept for kept in stored if _trusted(header_hash, kept)]
    if any(kept.complete for kept in known):
        return None
    faults = {kept.quarantine for kept in known} - PAYLOAD_FAULTS
    return Verdict(fault=min(faults, default=""))


def _trusted(header_hash: bytes, kept: Kept) -> bool:
    return kept.header_hash == header_hash and kept.quarantine not in UNTRUSTED


def place(header: Header, tip: Tip, stored: Stored, stored_before: Stored) -> Verdict:
    """Judges the link of a signed header that is not known yet.

    Args:
        header: with a good signature of the chain's key.
        tip: where the chain ends.
        stored: what is there with the same seq; needed only at or below the tip.
        stored_before: what is there with the seq before; needed only below the tip.
    """
    if header.seq > tip.seq:
        try:
            check_link(header, tip)
        except ChainError as error:
            return Verdict(fault=error.fault)
        return NEW
    if any(kept.quarantine not in UNTRUSTED for kept in stored):
        return Verdict(fault=ChainFault.FORK)
    # A number that was missing. It stands in the chain if it is linked to the one before it.
    if is_known(header.previous_header_hash, stored_before) or (header.seq == 1 and not header.previous_header_hash):
        return NEW
    return Verdict(fault=ChainFault.BROKEN_LINK)
