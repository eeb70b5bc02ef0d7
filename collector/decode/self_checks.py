"""What an agent found when it measured itself, into a row. Pure."""

import math

from bandwitness.v1.record_pb2 import SelfCheck
from collector.model import SelfCheckRow, Source

MAX_COUNT = (1 << 63) - 1
MAX_TIME_NS = 1 << 62  # the year 2116
MAX_REASONS = 8
MAX_REASON_CHARACTERS = 32


class SelfCheckError(ValueError):
    """A check that contradicts itself; the text says how."""


def self_check_row(source: Source, check: SelfCheck) -> SelfCheckRow:
    """One check. A doubt without a word for it is one all the same: its reason is ``unsaid``.

    Raises:
        SelfCheckError: times, counts or shares that cannot be, or words that are none.
    """
    if not 0 <= check.from_time_ns < check.to_time_ns < MAX_TIME_NS:
        raise SelfCheckError(f"a check from {check.from_time_ns} to {check.to_time_ns}")
    if check.loopback_lost > check.loopback_sent:
        raise SelfCheckError(f"{check.loopback_lost} of {check.loopback_sent} lost on loopback")
    words = tuple(dict.fromkeys(check.reason))
    if len(words) > MAX_REASONS or not all(
        word.isidentifier() and word.isascii() and len(word) <= MAX_REASON_CHARACTERS for word in words
    ):
        raise SelfCheckError(f"{len(words)} reasons, or some that are no words")
    return SelfCheckRow(
        source=source,
        node=source.agent_id,
        from_time_ns=check.from_time_ns,
        to_time_ns=check.to_time_ns,
        loopback_sent=check.loopback_sent,
        loopback_lost=check.loopback_lost,
        loopback_delay_p50_ns=_count(check, "loopback_delay_p50_ns"),
        loopback_delay_max_ns=_count(check, "loopback_delay_max_ns"),
        lateness_p50_ns=_count(check, "lateness_p50_ns"),
        lateness_max_ns=_count(check, "lateness_max_ns"),
        cpu_pressure_ratio=_ratio(check, "cpu_pressure_ratio"),
        own_wait_ratio=_ratio(check, "own_wait_ratio"),
        steal_ratio=_ratio(check, "steal_ratio"),
        reasons=(words or ("unsaid",)) if check.doubtful else (),
    )


def _count(check: SelfCheck, name: str) -> int | None:
    if not check.HasField(name):  # type: ignore[arg-type]
        return None
    value: int = getattr(check, name)
    if value > MAX_COUNT:
        raise SelfCheckError(f"{name}: {value}")
    return value


def _ratio(check: SelfCheck, name: str) -> float | None:
    if not check.HasField(name):  # type: ignore[arg-type]
        return None
    value: float = getattr(check, name)
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise SelfCheckError(f"{name}: {value}")
    return value
