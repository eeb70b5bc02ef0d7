"""Model rows as the JSON values of the API. Pure.

Times become RFC 3339 in UTC and lose ``_ns`` from their names; ids and hashes become hex; enumerations their names in
lower case. All other units stay in the names.
"""

import base64
import binascii
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Any

from bandwitness.v1.plan_pb2 import SlotPurpose, WindowKind
from bandwitness.v1.record_pb2 import (
    BatchClass,
    GapReason,
    HopOutcome,
    MarkPhase,
    MtuOutcome,
    Protocol,
    RunOutcome,
    RunRole,
    TraceReason,
)
from collector.analysis.accounting import doubts
from collector.model import Attempt, BurstEvent, Incident

MAX_PAGE = 10_000
DEFAULT_PAGE = 1_000

# Field name -> (enumeration, prefix of its value names).
_ENUMS: Mapping[str, tuple[Any, str]] = {
    "window": (WindowKind, "WINDOW_KIND_"),
    "outcome": (RunOutcome, "RUN_OUTCOME_"),
    "protocol": (Protocol, "PROTOCOL_"),
    "purpose": (SlotPurpose, "SLOT_PURPOSE_"),
    "trace_reason": (TraceReason, "TRACE_REASON_"),
    "answer": (HopOutcome, "HOP_OUTCOME_"),
    "fate": (MtuOutcome, "MTU_OUTCOME_"),
    "phase": (MarkPhase, "MARK_PHASE_"),
    "role": (RunRole, "RUN_ROLE_"),
    "batch_class": (BatchClass, "BATCH_CLASS_"),
    "reason": (GapReason, "GAP_REASON_"),  # a slot's reason is text
}
_IDS = {"path_id", "profile_id"}
# In the year 2262, and a month less than what the store and the log's index can hold: questions reach a little beyond
# what they were asked.
_LAST_NS = (1 << 63) - 1 - 30 * 86_400 * 1_000_000_000


_NO_CURSOR = "cursor: not one that an answer of this API held in next"


class BadQueryError(ValueError):
    """A query parameter that cannot be used; the message names it and says what is allowed."""


def rfc3339(time_ns: int) -> str:
    """``2026-12-01T14:46:47.123456789Z``; whole seconds without a fraction."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}Z" if rest else f"{text}Z"


def parse_time(name: str, text: str) -> int:
    """Nanoseconds of an RFC 3339 time; 1970 for earlier ones, 2262 for later ones.

    Raises:
        BadQueryError: not one, or without an offset.
    """
    try:
        # A "+" in a query arrives as a space where the client did not escape it.
        moment = datetime.fromisoformat(text.replace(" ", "+"))
        if moment.tzinfo is None:
            raise ValueError("no offset")
        whole = int(moment.timestamp() // 1)
    except (ValueError, OverflowError):
        raise BadQueryError(
            f"{name}: {text[:60]!r} is not an RFC 3339 time such as 2026-12-01T19:00:00+08:00"
        ) from None
    return min(max(0, whole * 1_000_000_000 + moment.microsecond * 1000), _LAST_NS)


@lru_cache(1024)
def enum_name(field: str, value: int) -> str:
    """``peak`` for ("window", WINDOW_KIND_PEAK); a number this version does not know stays a number."""
    enumeration, prefix = _ENUMS[field]
    try:
        return str(enumeration.Name(value)).removeprefix(prefix).lower()
    except ValueError:
        return str(value)


def _is_time(name: str) -> bool:
    return name == "time_ns" or name.endswith("_time_ns")


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _IDS:
        return f"{value:016x}"
    if name in _ENUMS and isinstance(value, int):
        return enum_name(name, value)
    if _is_time(name):
        return rfc3339(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return item(value)
    if isinstance(value, Mapping):
        return {str(key): _value("", entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_value("", entry) for entry in value]
    return value


def left_out(attempt: Attempt) -> str:
    """Why a result that is there enters no verdict; empty where it does, or where there is none."""
    if attempt.category != "ok" or attempt.valid:
        return ""
    reasons = doubts(attempt.client_run, attempt.server_run)
    if not reasons and attempt.server_run is None:
        reasons = ["the server's record is waited for"]
    return ", ".join(reasons) or "other tests ran at the same time"


def item(row: Any) -> dict[str, Any]:
    """One row."""
    if isinstance(row, Attempt):
        rest = {field.name: getattr(row, field.name) for field in dataclasses.fields(row) if field.name != "slot"}
        shown = {name: _value(name, value) for name, value in rest.items()}
        return item(row.slot) | shown | {"left_out": left_out(row)}
    if isinstance(row, BurstEvent):
        return _fields(row.burst) | {"members": [item(member) for member in row.members]}
    if isinstance(row, Incident):
        told = {"during": str(row.values.get("during", "")), "burst_id": row.values.get("burst_id")}
        return _fields(row) | told
    return _fields(row)


def _fields(row: Any) -> dict[str, Any]:
    return {
        field.name.removesuffix("_ns") if _is_time(field.name) else field.name: _value(
            field.name, getattr(row, field.name)
        )
        for field in dataclasses.fields(row)
    }


def page(
    rows: Sequence[Any], key: Callable[[Any], str], cursor: str | None, limit: int
) -> tuple[list[Any], str | None]:
    """The next ``limit`` rows behind ``cursor`` in order of ``key``, and the cursor behind them.

    Raises:
        BadQueryError: a cursor that this function did not make.
    """
    ordered = sorted(rows, key=key)
    if cursor is not None:
        after = read_cursor(cursor)
        ordered = [row for row in ordered if key(row) > after]
    chosen = ordered[:limit]
    more = len(ordered) > len(chosen)
    return chosen, make_cursor(key(chosen[-1])) if more else None


def make_cursor(text: str) -> str:
    """A place in the order, in a form that says nothing to people."""
    return base64.urlsafe_b64encode(text.encode()).decode()


def read_cursor(cursor: str) -> str:
    """The place again.

    Raises:
        BadQueryError: not one that ``make_cursor`` made.
    """
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise BadQueryError(_NO_CURSOR) from None


def make_time_cursor(time_ns: int) -> str:
    """A place in an order by time alone: behind this one."""
    return make_cursor(str(time_ns))


def read_time_cursor(cursor: str) -> int:
    """The time again.

    Raises:
        BadQueryError: not one that ``make_time_cursor`` made.
    """
    return read_numbers_cursor(cursor, 1)[0]


def read_numbers_cursor(cursor: str, count: int) -> list[int]:
    """A place that is so many numbers from 0, with spaces between.

    Raises:
        BadQueryError: none such, or numbers that the store cannot hold.
    """
    texts = read_cursor(cursor).split(" ")
    if len(texts) != count or not all(text.isascii() and text.isdigit() and len(text) <= 20 for text in texts):
        raise BadQueryError(_NO_CURSOR)
    numbers = [int(text) for text in texts]
    if max(numbers) > _LAST_NS:
        raise BadQueryError(_NO_CURSOR)
    return numbers
