"""What a trainer says, out of one datagram. Pure; anything may arrive here, and gives a mark or ``DatagramError``.

One JSON object of at most 4096 bytes in UTF-8, with these members and no others:

``v``        1, the version of this format
``phase``    ``begin`` or ``end``
``kind``     what begins or ends: 1 to 32 of ``a-z 0-9 _ -``; ``checkpoint``, ``restore``, ``evaluation`` …
``job``      name or id of the job, at most 128 characters; may be absent
``step``, ``bytes``, ``rank``   integers from 0; may be absent
``time_ns``  the sender's wall clock, nanoseconds since the epoch; may be absent
``labels``   at most 16 names (1 to 64 of ``A-Z a-z 0-9 _ . - /``) with values of at most 128 characters; may be absent

Text holds no control characters, nor anything else that cannot be printed. ``null`` is the same as absent. Imports
nothing heavy: the command that sends a mark checks it here first.
"""

import json
import re
from typing import Any, NamedTuple, NoReturn

MAX_DATAGRAM_BYTES = 4096
VERSION = 1
MAX_JOB_CHARACTERS = 128
MAX_LABELS = 16
MAX_LABEL_CHARACTERS = 128
MAX_RANK = (1 << 32) - 1
MAX_COUNT = (1 << 63) - 1
MAX_TIME_NS = (1 << 62) - 1  # the year 2116
_MEMBERS = frozenset({"v", "phase", "kind", "job", "step", "bytes", "rank", "time_ns", "labels"})
BEGIN, END = "begin", "end"
_KIND = re.compile(r"[a-z0-9_-]{1,32}")
_LABEL = re.compile(r"[A-Za-z0-9_./-]{1,64}")


class DatagramError(ValueError):
    """No mark. ``reason`` is one word of a small set, the text says more."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Said(NamedTuple):
    """One mark as it was said."""

    phase: str  # BEGIN or END
    kind: str
    job: str
    step: int | None
    bytes: int | None
    rank: int | None
    time_ns: int | None
    labels: tuple[tuple[str, str], ...]  # by name


def parse(data: bytes) -> Said:
    """The mark in one datagram.

    Raises:
        DatagramError: ``oversized``, ``garbage`` (no JSON object), ``version``, ``member`` (one too many, twice, of the
            wrong type or outside its limits).
    """
    if len(data) > MAX_DATAGRAM_BYTES:
        raise DatagramError("oversized", f"{len(data)} bytes")
    found = _object(data)
    if type(found.get("v")) is not int or found["v"] != VERSION:  # True is 1, too
        raise DatagramError("version", f"v is {_short(found.get('v'))}, not {VERSION}")
    unknown = found.keys() - _MEMBERS
    if unknown:
        raise DatagramError("member", f"{_short(min(unknown))} is no member")
    phase, kind = found.get("phase"), found.get("kind")
    if phase not in (BEGIN, END):
        raise DatagramError("member", f"phase is {_short(phase)}, not begin or end")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise DatagramError("member", f"kind is {_short(kind)}")
    return Said(
        phase=phase,
        kind=kind,
        job=_text("job", found.get("job"), MAX_JOB_CHARACTERS),
        step=_count("step", found.get("step"), MAX_COUNT),
        bytes=_count("bytes", found.get("bytes"), MAX_COUNT),
        rank=_count("rank", found.get("rank"), MAX_RANK),
        time_ns=_count("time_ns", found.get("time_ns"), MAX_TIME_NS),
        labels=_labels(found.get("labels")),
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_no_float)
    except DatagramError:
        raise
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a number of thousands of digits, a wall of "["
        raise DatagramError("garbage", type(error).__name__) from None
    if not isinstance(found, dict):
        raise DatagramError("garbage", f"{_short(found)} is no object")
    return found


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise DatagramError("member", "a member stands there twice")
    return found


def _no_constant(text: str) -> NoReturn:
    raise DatagramError("garbage", text)


def _no_float(text: str) -> NoReturn:
    raise DatagramError("member", f"{_short(text)}: whole numbers only")


def _text(name: str, value: Any, limit: int) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > limit or not value.isprintable():
        raise DatagramError("member", f"{name}: text of at most {limit} characters that can be printed is expected")
    return value


def _count(name: str, value: Any, limit: int) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= limit:
        raise DatagramError("member", f"{name}: a whole number from 0 to {limit} is expected")
    return value


def _labels(value: Any) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict) or len(value) > MAX_LABELS:
        raise DatagramError("member", f"labels: at most {MAX_LABELS} names with values are expected")
    for name in value:
        if not _LABEL.fullmatch(name):
            raise DatagramError("member", f"label {_short(name)}: no such name is allowed")
    return tuple((name, _text(f"label {name}", value[name], MAX_LABEL_CHARACTERS)) for name in sorted(value))


def _short(value: Any) -> str:
    return ascii(value)[:60]
