"""The agent on itself: what each part says, what the process costs. No I/O of its own."""

from collections.abc import Callable, Iterable
from typing import Protocol

from agent.result import PartState, Status

MAX_DETAIL_CHARACTERS = 500


class Load(Protocol):
    """Memory and CPU time of the process, as ``sample.hostload`` reads it."""

    @property
    def resident_memory_bytes(self) -> int: ...

    @property
    def cpu_time_ns(self) -> int: ...


def collect(
    *,
    time_ns: int,
    parts: Iterable[Callable[[], PartState]],
    load: Load | None,
    spool_bytes: int,
    spool_oldest_time_ns: int | None,
    records_dropped: int,
    iperf3_version: str,
) -> Status:
    """One status. A part that cannot say how it is costs only its own line.

    Args:
        time_ns: wall clock.
        parts: asked in this order.
        load: None where it could not be read.
        spool_bytes, spool_oldest_time_ns, records_dropped: what the spool says of itself.
        iperf3_version: empty when not installed.
    """
    return Status(
        time_ns=time_ns,
        spool_bytes=spool_bytes,
        spool_oldest_time_ns=spool_oldest_time_ns,
        records_dropped=records_dropped,
        parts=tuple(_ask(part) for part in parts),
        resident_memory_bytes=None if load is None else load.resident_memory_bytes,
        cpu_time_ns=None if load is None else load.cpu_time_ns,
        iperf3_version=iperf3_version,
    )


def _ask(part: Callable[[], PartState]) -> PartState:
    try:
        state = part()
    except Exception as error:  # noqa: BLE001 - a fault in one part's account of itself must not hide the others'
        return PartState(getattr(part, "__qualname__", "unknown"), False, "state_failed", describe(error))
    if len(state.detail) <= MAX_DETAIL_CHARACTERS:
        return state
    return PartState(state.part, state.working, state.state, state.detail[: MAX_DETAIL_CHARACTERS - 1] + "…")


def describe(error: BaseException) -> str:
    """An exception in one line: its kind and words, without a traceback."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
