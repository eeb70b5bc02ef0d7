"""What is on disk after a run: the collector's log and the agents' spools, read without their owners."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bandwitness.v1.record_pb2 import Header, Payload, Record, SignedBatch
from collector.log import frame


@dataclass(frozen=True, slots=True)
class Chain:
    """Names one chain."""

    agent: str
    chain_id: bytes
    batch_class: int


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    chain: Chain
    header: Header
    header_bytes: bytes  # as signed
    quarantine: str
    payload: bytes

    def records(self) -> Iterator[Record]:
        for record in Payload.FromString(self.payload).record:
            yield Record.FromString(record)


def logged(state_dir: Path) -> list[LoggedBatch]:
    """Every batch in the log, in order of receipt. Damaged bytes are an assertion failure."""
    found: list[tuple[int, LoggedBatch]] = []
    for file in sorted((state_dir / "log").glob("*/*.log")):
        for entry in frame.scan(file.read_bytes(), len(frame.MAGIC)):
            assert isinstance(entry, frame.Frame), f"{file}: {entry}"
            batch = SignedBatch.FromString(entry.batch)
            header = Header.FromString(batch.header)
            chain = Chain(header.agent_id, header.chain_id, header.batch_class)
            found.append((entry.position, LoggedBatch(chain, header, batch.header, entry.quarantine, batch.payload)))
    return [batch for _, batch in sorted(found, key=lambda pair: pair[0])]


def by_chain(batches: Sequence[LoggedBatch]) -> Mapping[Chain, list[LoggedBatch]]:
    chains: dict[Chain, list[LoggedBatch]] = defaultdict(list)
    for batch in batches:
        chains[batch.chain].append(batch)
    return chains


@dataclass(frozen=True, slots=True)
class SpoolTip:
    """Where a chain stands at its agent."""

    chain_id: bytes
    seq: int
    acknowledged: int
    waiting: tuple[int, ...]  # numbers of the batches that the collector had not acknowledged


def spool_tips(state_dir: Path) -> dict[int, SpoolTip]:
    """By batch class, from the spool of an agent that has ended."""
    (file,) = state_dir.glob("*.sqlite")
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    try:
        rows = connection.execute("SELECT class, chain_id, seq, acknowledged FROM chain").fetchall()
        waiting = connection.execute("SELECT class, seq FROM batch ORDER BY seq").fetchall()
    finally:
        connection.close()
    return {
        batch_class: SpoolTip(
            chain_id, seq, acknowledged, tuple(n for of, n in waiting if of == batch_class and n > acknowledged)
        )
        for batch_class, chain_id, seq, acknowledged in rows
    }
