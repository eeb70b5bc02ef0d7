"""Signed batches as an agent makes them, without an agent."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bandwitness.chain import ORIGIN, Tip, header_hash, seal
from bandwitness.v1.record_pb2 import BATCH_CLASS_EVIDENCE, GAP_REASON_RESTART, Gap, Header, Record, SignedBatch
from collector.model import LogEntry

START_NS = 1_767_225_600 * 1_000_000_000  # 2026-01-01T00:00:00Z


def gap_record(index: int = 0) -> bytes:
    """Some small record; each index another one."""
    return Record(
        salt=index.to_bytes(16, "big"), gap=Gap(reason=GAP_REASON_RESTART, from_time_ns=index)
    ).SerializeToString()


@dataclass
class FakeChain:
    """One chain of one agent; ``next`` seals a batch behind the one before. Keys are the same in every run."""

    agent_id: str = "n1"
    batch_class: int = BATCH_CLASS_EVIDENCE
    chain_id: bytes = bytes(range(16))
    key_seed: int = 1
    start_ns: int = START_NS  # first event
    step_ns: int = 2_000_000_000  # event time of one batch
    tip: Tip = field(default=ORIGIN)

    def __post_init__(self) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(self.key_seed.to_bytes(32, "big"))

    @property
    def public_key(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """With the chain's key."""
        return self._key.sign(message)

    def header(self) -> Header:
        header = Header(
            agent_id=self.agent_id,
            chain_id=self.chain_id,
            batch_class=self.batch_class,  # type: ignore[arg-type]
            public_key=self.public_key,
            boot_id=bytes(16),
            run_id=bytes(16),
            first_event_time_ns=self.start_ns + self.tip.seq * self.step_ns,
            last_event_time_ns=self.start_ns + (self.tip.seq + 1) * self.step_ns,
            software_version="0.1.0",
        )
        header.anchor.wall_time_ns = header.last_event_time_ns
        return header

    def next(self, records: Sequence[bytes] | None = None) -> SignedBatch:
        """Seals the next batch; without ``records`` one with a single small record."""
        batch = self.peek(records)
        self.tip = Tip(self.tip.seq + 1, header_hash(batch.header))
        return batch

    def peek(self, records: Sequence[bytes] | None = None) -> SignedBatch:
        """The batch ``next`` would make; the chain stays where it is."""
        return seal(self.header(), [gap_record(self.tip.seq)] if records is None else records, self.tip, self._key.sign)


def log_entry(batch: SignedBatch, *, position: int = 1, quarantine: str = "") -> LogEntry:
    """``batch`` as the log gives it back."""
    header = Header.FromString(batch.header)
    return LogEntry(
        position=position,
        received_time_ns=START_NS,
        agent_id=header.agent_id,
        chain_id=header.chain_id,
        batch_class=header.batch_class,
        seq=header.seq,
        quarantine=quarantine,
        header=batch.header,
        payload=batch.payload,
        signature=batch.signature,
    )
