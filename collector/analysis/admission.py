"""Which measurements enter analysis. Pure.

Round trips count when their sender is the source of the path, has defined it before (at the latest in the same batch),
and the time of sending can be true. What does not is kept out of everything derived, and said with its reason:

``undefined_path``    nobody has said what the path id means; a batch with the definition may have been lost.
``foreign_path``      the path begins at another node: only that one speaks for it.
``from_the_future``   further ahead of the collector's clock than any clock is believed to be: a clock that is wrong.
``too_old``           older than windows are kept.
``too_many_windows``  one batch spread over more time than an agent ever holds back.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from collector.analysis.paths import PathIndex
from collector.analysis.rounds import AHEAD_NS
from collector.analysis.window import SECOND, WINDOW_NS
from collector.model import (
    MarkRow,
    NicSamples,
    OneWayDelays,
    OneWayLossRow,
    PathMtuRow,
    Quarantined,
    RoundTripSamples,
    RouteTraceRow,
    RunRow,
    SelfCheckRow,
    Source,
)

PAST_NS = 90 * 86_400 * SECOND  # as long as windows are kept
WINDOWS_OF_BATCH = 256  # an agent without disk holds back half an hour

_DELAY_COLUMNS = (
    *("path_ids", "sequences", "send_times_ns", "forward_delays_ns", "reverse_delays_ns"),
    *("sender_clock_errors_ns", "reflector_clock_errors_ns"),
)
W = TypeVar("W", RouteTraceRow, PathMtuRow)
Bools = NDArray[np.bool_]


@dataclass(slots=True)
class Admitted:
    """What is left of one batch, and why the rest is not."""

    round_trips: list[RoundTripSamples] = field(default_factory=list)
    nics: list[NicSamples] = field(default_factory=list)
    runs: list[RunRow] = field(default_factory=list)
    marks: list[MarkRow] = field(default_factory=list)
    one_way_losses: list[OneWayLossRow] = field(default_factory=list)
    one_way_delays: list[OneWayDelays] = field(default_factory=list)
    self_checks: list[SelfCheckRow] = field(default_factory=list)
    refused: list[Quarantined] = field(default_factory=list)  # at most one a record


def round_trips(paths: PathIndex, records: Sequence[RoundTripSamples], received_ns: int) -> Admitted:
    """Samples of one batch."""
    result = Admitted()
    windows: set[int] = set()
    for samples in records:
        reasons: Counter[str] = Counter()
        kept = _round_trip(paths, samples, received_ns, windows, reasons)
        if kept is not None:
            result.round_trips.append(kept)
        if reasons:
            words = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
            result.refused.append(Quarantined(samples.source, reasons.most_common(1)[0][0], f"samples: {words}"))
    return result


def one_way_losses(paths: PathIndex, rows: Sequence[OneWayLossRow], received_ns: int) -> Admitted:
    """One-way losses of one batch, by the rules of round trips."""
    result = Admitted()
    refused: dict[Source, str] = {}
    for row in rows:
        reason = _of_path(paths, row.path_id, row.source) or _untimely(np.array([row.send_time_ns]), received_ns)
        if reason:
            refused.setdefault(row.source, reason)
        else:
            result.one_way_losses.append(row)
    result.refused = [Quarantined(source, reason, "one-way losses") for source, reason in refused.items()]
    return result


def one_way_delays(paths: PathIndex, records: Sequence[OneWayDelays], received_ns: int) -> Admitted:
    """One-way delays of one batch, entry by entry, by the rules of round trips."""
    result = Admitted()
    windows: set[int] = set()
    for columns in records:
        delays = columns
        reasons: Counter[str] = Counter()
        ids, times = np.asarray(delays.path_ids), np.asarray(delays.send_times_ns)
        keep = np.ones(len(ids), np.bool_)
        for path_id in np.unique(ids).tolist():
            reason = _of_path(paths, path_id, delays.source)
            if reason:
                _refuse(keep, ids == path_id, reason, reasons)
        _refuse_times(keep, times, received_ns, windows, reasons)
        if reasons:
            words = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
            result.refused.append(Quarantined(delays.source, reasons.most_common(1)[0][0], f"one-way delays: {words}"))
            delays = _only_delays(delays, keep)
        if keep.any():
            result.one_way_delays.append(delays)
    return result


def counters(records: Sequence[NicSamples], received_ns: int) -> Admitted:
    """Counters of one batch; a record with one tick that cannot be is refused whole."""
    result = Admitted()
    windows: set[int] = set()
    for samples in records:
        times = np.asarray(samples.tick_times_ns)
        reason = _untimely(times, received_ns)
        if not reason and len(times):
            windows.update((times // WINDOW_NS).tolist())
            reason = "too_many_windows" if len(windows) > WINDOWS_OF_BATCH else ""
        if reason:
            result.refused.append(Quarantined(samples.source, reason, f"{samples.nic}: {len(times)} ticks"))
        else:
            result.nics.append(samples)
    return result


def runs(records: Sequence[RunRow], received_ns: int) -> Admitted:
    """Throughput runs of one batch."""
    result = Admitted()
    for run in records:
        if run.end_time_ns > received_ns + AHEAD_NS:
            result.refused.append(Quarantined(run.source, "from_the_future", run.slot_id.hex()))
        else:
            result.runs.append(run)
    return result


def marks(records: Sequence[MarkRow], received_ns: int) -> Admitted:
    """What trainers said, at a time that can be true."""
    result = Admitted()
    for mark in records:
        reason = _untimely(np.array([mark.time_ns]), received_ns)
        if reason:
            result.refused.append(Quarantined(mark.source, reason, f"mark {mark.kind} of job {mark.job}"))
        else:
            result.marks.append(mark)
    return result


def self_checks(records: Sequence[SelfCheckRow], received_ns: int) -> Admitted:
    """An agent's checks of itself, of a time that can be true."""
    result = Admitted()
    for check in records:
        reason = _untimely(np.array([check.from_time_ns, check.to_time_ns]), received_ns)
        if reason:
            result.refused.append(Quarantined(check.source, reason, "self-check"))
        else:
            result.self_checks.append(check)
    return result


def ways(paths: PathIndex, rows: Sequence[W], received_ns: int) -> tuple[list[W], list[Quarantined]]:
    """Traces or path MTU checks of one batch, by the rules of round trips: those admitted, and the others' reasons."""
    admitted: list[W] = []
    refused: list[Quarantined] = []
    for row in rows:
        reason = _of_path(paths, row.path_id, row.source) or _untimely(np.array([row.time_ns]), received_ns)
        if reason:
            refused.append(Quarantined(row.source, reason, f"path {row.path_id:016x}"))
        else:
            admitted.append(row)
    return admitted, refused


def _untimely(times: NDArray[np.int64], received_ns: int) -> str:
    if len(times) and int(times.max()) > received_ns + AHEAD_NS:
        return "from_the_future"
    return "too_old" if len(times) and int(times.min()) < received_ns - PAST_NS else ""


def _round_trip(
    paths: PathIndex, samples: RoundTripSamples, received_ns: int, windows: set[int], reasons: Counter[str]
) -> RoundTripSamples | None:
    """``samples`` without what is refused; None if nothing is left."""
    source = samples.source
    of_path = [_of_path(paths, path_id, source) for path_id in np.asarray(samples.path_ids).tolist()]
    counts, times = np.asarray(samples.sample_counts), np.asarray(samples.send_times_ns)
    keep = np.ones(len(times), np.bool_)
    if any(of_path):
        for reason in sorted(set(of_path) - {""}):
            hit = np.array([found == reason for found in of_path], np.bool_)
            _refuse(keep, np.repeat(hit, counts), reason, reasons)
            reasons[reason] += int(np.count_nonzero(hit & (counts == 0)))  # named for nothing
    _refuse_times(keep, times, received_ns, windows, reasons)
    marks = tuple(mark for mark in samples.marks if not _of_path(paths, mark[0], source))
    if len(marks) < len(samples.marks):
        reasons["undefined_path"] += len(samples.marks) - len(marks)
    if not reasons:
        return samples
    if not keep.any() and not marks:
        return None
    return _only(replace(samples, marks=marks), keep)


def _refuse_times(
    keep: Bools, times: NDArray[np.int64], received_ns: int, windows: set[int], reasons: Counter[str]
) -> None:
    """Takes out of ``keep`` what cannot have been sent then; ``windows`` are those of the batch so far."""
    if _untimely(times, received_ns):
        _refuse(keep, times > received_ns + AHEAD_NS, "from_the_future", reasons)
        _refuse(keep, times < received_ns - PAST_NS, "too_old", reasons)
    if keep.any():
        starts = times // WINDOW_NS
        new = set(np.unique(starts[keep]).tolist()) - windows
        if len(windows) + len(new) > WINDOWS_OF_BATCH:
            _refuse(keep, np.isin(starts, sorted(new)), "too_many_windows", reasons)
        else:
            windows |= new


def _of_path(paths: PathIndex, path_id: int, source: Source) -> str:
    index = paths.find(path_id)
    if index is None or paths.defined_at[index] > source.position:
        return "undefined_path"
    return "" if paths.agents[index] == source.agent_id else "foreign_path"


def _refuse(keep: Bools, hit: Bools, reason: str, reasons: Counter[str]) -> None:
    hit = hit & keep
    count = int(np.count_nonzero(hit))
    if count:
        keep[hit] = False
        reasons[reason] += count


def _only_delays(delays: OneWayDelays, keep: Bools) -> OneWayDelays:
    return OneWayDelays(delays.source, *(np.asarray(getattr(delays, name))[keep] for name in _DELAY_COLUMNS))


def _only(samples: RoundTripSamples, keep: Bools) -> RoundTripSamples:
    """The samples chosen. Paths left without any go; a path's first sequence stays that of its first sample."""
    counts = np.asarray(samples.sample_counts)
    path_of = np.repeat(np.arange(len(counts)), counts)[keep]
    left, firsts, new_counts = np.unique(path_of, return_index=True, return_counts=True)
    before = (np.cumsum(counts) - counts)[left]  # of the path's first sample, among all
    skipped = np.flatnonzero(keep)[firsts] - before
    hop_limits = samples.hop_limits
    return replace(
        samples,
        path_ids=np.asarray(samples.path_ids)[left],
        hop_limits=None if hop_limits is None else np.asarray(hop_limits)[left],
        first_sequences=np.asarray(samples.first_sequences)[left] + skipped.astype(np.uint64),
        sample_counts=new_counts.astype(np.int64),
        send_times_ns=np.asarray(samples.send_times_ns)[keep],
        outcomes=np.asarray(samples.outcomes)[keep],
        round_trip_delays_ns=np.asarray(samples.round_trip_delays_ns)[keep],
    )
