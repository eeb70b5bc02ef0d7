"""How much is kept, and what goes first. Decides inside the caller's transaction, over its open file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.result import Gap
from agent.spool.database import Database
from bandwitness.v1.record_pb2 import BATCH_CLASS_EVIDENCE, BATCH_CLASS_TELEMETRY, GAP_REASON_SPOOL_LIMIT

DROP_ORDER = (BATCH_CLASS_TELEMETRY, BATCH_CLASS_EVIDENCE)  # telemetry goes first
HEADER_DELETE_COUNT = 64
AGED_COUNT = 64  # payloads dropped for age in one transaction

Notes = dict[tuple[int, int, str], Gap]  # class, reason, detail -> gap so far


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept. ``reserve_bytes`` of the file system stay free, so that acknowledged batches can still be
    deleted (a deletion writes to the WAL first) when it was the spool itself that filled the disk."""

    max_bytes: int = 1 << 30
    max_age_ns: int = 14 * 86_400 * 1_000_000_000
    memory_bytes: int = 8 << 20
    reserve_bytes: int = 4 << 20


def keep_limits(
    database: Database,
    limits: Limits,
    size_bytes: int,
    *,
    acknowledged: Mapping[int, int],
    now_ns: int,
    notes: Notes,
) -> tuple[int, int]:
    """Drops payloads that are too old or too many, telemetry first, then headers, oldest first.

    Args:
        database: in a transaction.
        limits: what to keep.
        size_bytes: of all that is in the file.
        acknowledged: newest acknowledged seq by class; what lies behind it is no loss.
        now_ns: wall clock.
        notes: what is lost is added here.

    Returns:
        Size afterwards, and records lost.
    """
    lost = 0
    too_old_ns = now_ns - limits.max_age_ns
    for batch_class in DROP_ORDER:
        aged = 0
        while held := database.oldest_held(batch_class, acknowledged[batch_class]):
            over = size_bytes > limits.max_bytes
            if not over and (held.newest_ns >= too_old_ns or aged == AGED_COUNT):
                break
            database.drop_payload(held.row)
            aged += 1
            size_bytes -= held.payload_bytes
            lost += held.records
            why = "the spool reached its size" if over else "the spool reached its age"
            merge(notes, Gap(GAP_REASON_SPOOL_LIMIT, batch_class, held.first_ns, held.newest_ns, held.records, why))
    for batch_class in DROP_ORDER:
        while size_bytes > limits.max_bytes:
            freed = database.delete_oldest(batch_class, HEADER_DELETE_COUNT)
            if not freed:
                break
            size_bytes -= freed
            why = "the spool is full of headers; the oldest were deleted"
            merge(notes, Gap(GAP_REASON_SPOOL_LIMIT, batch_class, now_ns, now_ns, 0, why))
    return size_bytes, lost


def merge(notes: Notes, gap: Gap) -> None:
    """Adds a gap to those of the same class and cause: one span, one count."""
    key = (gap.batch_class, gap.reason, gap.detail)
    known = notes.get(key)
    if known is not None:
        records = None if known.records is None or gap.records is None else known.records + gap.records
        gap = replace(
            gap,
            from_time_ns=min(known.from_time_ns, gap.from_time_ns),
            to_time_ns=max(known.to_time_ns, gap.to_time_ns),
            records=records,
        )
    notes[key] = gap
