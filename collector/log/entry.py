"""What goes into the log, and when a batch moves the end of its chain. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

from bandwitness.chain import ChainError, ChainFault, Tip, header_hash, read_header, read_payload
from bandwitness.v1.record_pb2 import Header, SignedBatch

MAX_SEQ = (1 << 63) - 1

# The header is signed by the chain's own key, so the next header will link to it, whatever else is wrong: the fault
# is named once, where it is, and the chain goes on behind it.
_TIP_FAULTS = frozenset(
    {"", ChainFault.GAP, ChainFault.BROKEN_LINK, ChainFault.PAYLOAD_MISMATCH, ChainFault.UNREADABLE_PAYLOAD}
)


PAYLOAD_FAULTS = frozenset({ChainFault.PAYLOAD_MISMATCH, ChainFault.UNREADABLE_PAYLOAD})


class LogError(RuntimeError):
    """Something could not be made durable; nothing of it was kept. ``state`` is one word: disk_full, write_failed."""

    def __init__(self, state: str, detail: str) -> None:
        super().__init__(f"{state}: {detail}")
        self.state = state


class LogUnavailableError(RuntimeError):
    """The log cannot be opened at all; the text names the directory and the cure."""


class ChainKey(NamedTuple):
    agent_id: str
    chain_id: bytes
    batch_class: int


class Kept(NamedTuple):
    """What the log holds under a number, without its bytes. ``complete``: with the payload that was signed for."""

    header_hash: bytes
    quarantine: str
    complete: bool = True


@dataclass(frozen=True, slots=True)
class ChainState:
    """Where a chain ends in the log, and the key its first header brought."""

    tip: Tip
    public_key: bytes


@dataclass(frozen=True, slots=True)
class Arrival:
    """One batch on its way into the log, already judged."""

    received_time_ns: int
    source: str  # who the connection proved to be; the header's agent id in all that is not quarantined
    quarantine: str  # a ChainFault, or empty
    batch: SignedBatch
    header: Header | None  # None: it cannot be read
    header_hash: bytes

    @property
    def key(self) -> ChainKey:
        if self.header is None:
            return ChainKey(self.source, b"", 0)
        return ChainKey(self.source, self.header.chain_id, self.header.batch_class)

    @property
    def seq(self) -> int:
        return self.header.seq if self.header is not None else 0

    @property
    def kept(self) -> Kept:
        """What the log will say of it. Follows from what the frame holds, so an index built anew says the same."""
        return Kept(self.header_hash, self.quarantine, self._complete())

    def _complete(self) -> bool:
        if self.header is None or self.quarantine in PAYLOAD_FAULTS:
            return False
        if not self.batch.payload:
            return not self.header.record_count
        # Where the place in the chain is at fault, the payload behind it was not looked at.
        return not self.quarantine or payload_stands(self.header, self.batch.payload)


def arrival(received_time_ns: int, source: str, quarantine: str, batch: SignedBatch) -> Arrival:
    """An arrival with what its header says, for those who have not read it yet."""
    return Arrival(
        received_time_ns, source, quarantine, batch, readable_header(batch.header), header_hash(batch.header)
    )


def payload_stands(header: Header, payload: bytes) -> bool:
    """Whether this is the payload that the header commits to."""
    try:
        read_payload(header, payload)
    except ChainError:
        return False
    return True


def readable_header(header: bytes) -> Header | None:
    """The header, or None where it cannot be read or counts beyond 63 bits."""
    try:
        parsed = read_header(header)
    except ChainError:
        return None
    return parsed if parsed.seq <= MAX_SEQ else None


def moves_tip(quarantine: str, seq: int, tip_seq: int) -> bool:
    """Whether a chain ends at this batch once it is stored."""
    return quarantine in _TIP_FAULTS and seq > tip_seq
