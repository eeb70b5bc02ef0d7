"""What a trainer said, into a row. Pure.

The agent has checked it (``agent.sample.mark_datagram``); here it is checked again, because whoever holds an agent's
key can sign anything, and these words end up in tables and labels.
"""

from bandwitness.v1.record_pb2 import MARK_PHASE_BEGIN, MARK_PHASE_END, TrainerMark
from collector.model import MarkRow, Source

MAX_COUNT = (1 << 63) - 1
MAX_TIME_NS = 1 << 62  # the year 2116
MAX_KIND_CHARACTERS = 32
MAX_TEXT_CHARACTERS = 256  # job, name or value of a label
MAX_LABELS = 32


class MarkError(ValueError):
    """A mark that cannot be one; the text says why."""


def mark_row(source: Source, mark: TrainerMark) -> MarkRow:
    """One mark.

    Raises:
        MarkError: no phase, a time or figure beyond all sense, or text that is too long or cannot be printed.
    """
    if mark.phase not in (MARK_PHASE_BEGIN, MARK_PHASE_END):
        raise MarkError(f"a mark of phase {mark.phase}")
    if not 0 <= mark.time_ns < MAX_TIME_NS:
        raise MarkError(f"a time of {mark.time_ns} ns")
    if len(mark.label_name) != len(mark.label_value) or len(mark.label_name) > MAX_LABELS:
        raise MarkError(f"{len(mark.label_name)} names and {len(mark.label_value)} values of labels")
    if not mark.kind:
        raise MarkError("a mark of no kind")
    said_ns = mark.said_time_ns if mark.HasField("said_time_ns") and 0 <= mark.said_time_ns < MAX_TIME_NS else None
    return MarkRow(
        source=source,
        node=source.agent_id,
        time_ns=mark.time_ns,
        said_time_ns=said_ns,
        phase=mark.phase,
        kind=_text("kind", mark.kind, MAX_KIND_CHARACTERS),
        job=_text("job", mark.job),
        step=_count(mark, "step"),
        bytes=_count(mark, "bytes"),
        rank=_count(mark, "rank"),
        labels={
            _text("label", name): _text("label", value)
            for name, value in zip(mark.label_name, mark.label_value, strict=True)
        },
        user_id=mark.user_id,
        process_id=mark.process_id,
    )


def _text(name: str, text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    if len(text) > limit or not text.isprintable():
        raise MarkError(f"{name}: {len(text)} characters, or some that cannot be printed")
    return text


def _count(mark: TrainerMark, name: str) -> int | None:
    if not mark.HasField(name):  # type: ignore[arg-type]
        return None
    value: int = getattr(mark, name)
    if value > MAX_COUNT:
        raise MarkError(f"{name}: {value}")
    return value
