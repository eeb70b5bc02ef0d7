"""Fields of an iperf3 report, each of the kind that is wanted or absent. Pure."""

import math
from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def inner(holder: Json, key: str) -> Json:
    """The object under a key; empty where there is none."""
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def words(holder: Json, key: str) -> str:
    """The string under a key; empty where there is none."""
    value = holder.get(key)
    return value if isinstance(value, str) else ""


def real(holder: Json, key: str) -> float | None:
    """A finite number; None for anything else."""
    value = holder.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def count(holder: Json, key: str) -> int | None:
    """A whole number from 0 to 2^63; iperf3 prints large ones as floats, and -1 for "not supported"."""
    value = holder.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        return None
    return int(value)


def nanoseconds(holder: Json, key: str) -> int | None:
    """Seconds, from 0 to 11 days, as ns."""
    seconds = real(holder, key)
    return round(seconds * 1e9) if seconds is not None and 0 <= seconds < 1e6 else None


def ratio(holder: Json, key: str) -> float | None:
    """Percent as a ratio."""
    percent = real(holder, key)
    return percent / 100 if percent is not None and 0 <= percent < 1e6 else None
