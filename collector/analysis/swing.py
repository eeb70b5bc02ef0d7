"""Peak against off-peak throughput of one path. Pure.

Only valid results get here: a test that failed, was skipped or may have measured ourselves has no throughput at all,
so it can never count as 0 bit/s.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from bandwitness.v1.plan_pb2 import WINDOW_KIND_OFFPEAK, WINDOW_KIND_PEAK
from collector.analysis import statistics
from collector.config import OversubscriptionRule
from collector.model import Source, Swing

BLOCK_HOURS = 4
Key = tuple[int, str]  # path id and engine class: results that may share a median


@dataclass(frozen=True, slots=True)
class Result:
    """One valid test."""

    time_ns: int  # end of the client's run
    bps: float
    window: int  # WindowKind
    engine_class: str
    slot_id: bytes
    sources: Sequence[Source]  # the client's record, and the server's if there is one


@dataclass(frozen=True, slots=True)
class PathVerdict:
    """What a path's results show, and since when it is flagged (None: it is not)."""

    swing: Swing
    flagged_since_ns: int | None


def engine_class(version: str, flags: Sequence[str] = ()) -> str:
    """Versions whose results may share a median: iperf3 has a thread a stream from 3.16 on. Below it a test by several
    processes has as much room as one from 3.16 on, but other clocks, so it is a class of its own."""
    parts = version.split(".")
    if len(parts) < 2 or not parts[0].isdigit() or not parts[1].isdigit():
        return "unknown"
    if (int(parts[0]), int(parts[1])) >= (3, 16):
        return "3.16+"
    return "before 3.16, several processes" if "several_processes" in flags else "before 3.16"


def judge(key: Key, results: Iterable[Result], rule: OversubscriptionRule) -> PathVerdict:
    """Judges the results of one path and engine class, one after another in the order in which they were measured.

    Flagged above ``threshold``, and from then on until the swing is below ``clear``. Where a window has too few tests
    there is no swing, and a flag stays as it is.
    """
    ordered = sorted(results, key=lambda result: (result.time_ns, result.slot_id))
    flagged_since: int | None = None
    peak: list[Result] = []
    offpeak: list[Result] = []
    ratio: float | None = None
    for result in ordered:
        if result.window == WINDOW_KIND_PEAK:
            peak.append(result)
        elif result.window == WINDOW_KIND_OFFPEAK:
            offpeak.append(result)
        oldest = result.time_ns - rule.trailing
        peak = [known for known in peak if known.time_ns > oldest]
        offpeak = [known for known in offpeak if known.time_ns > oldest]
        ratio = swing_ratio(peak, offpeak, rule.min_tests)
        if ratio is None:
            continue
        if ratio > rule.threshold:
            flagged_since = result.time_ns if flagged_since is None else flagged_since
        elif ratio < rule.clear:
            flagged_since = None
    swing = Swing(
        path_id=key[0],
        engine_version=key[1],
        peak_bps=statistics.median([result.bps for result in peak]),
        offpeak_bps=statistics.median([result.bps for result in offpeak]),
        tests_peak=len(peak),
        tests_offpeak=len(offpeak),
        swing_ratio=ratio,
        flagged=flagged_since is not None,
        through_time_ns=ordered[-1].time_ns if ordered else 0,
        evidence=tuple(source for result in (*offpeak, *peak) for source in result.sources),
    )
    return PathVerdict(swing, flagged_since)


def swing_ratio(peak: Sequence[Result], offpeak: Sequence[Result], min_tests: int) -> float | None:
    """1 − median(peak) / median(off-peak), signed; None with fewer tests than that in either window."""
    if len(peak) < min_tests or len(offpeak) < min_tests:
        return None
    usual = statistics.median([result.bps for result in offpeak])
    busy = statistics.median([result.bps for result in peak])
    if not usual or busy is None:
        return None
    return 1.0 - busy / usual


def by_local_hour(results: Iterable[Result], zone: ZoneInfo, trailing_ns: int) -> dict[int, list[Result]]:
    """Results of the trailing period by the hour of the local day, in the order in which they were measured."""
    ordered = sorted(results, key=lambda result: (result.time_ns, result.slot_id))
    by_hour: dict[int, list[Result]] = {}
    for result in ordered:
        if result.time_ns > ordered[-1].time_ns - trailing_ns:
            local = datetime.fromtimestamp(result.time_ns // 1_000_000_000, UTC).astimezone(zone)
            by_hour.setdefault(local.hour, []).append(result)
    return by_hour


@dataclass(frozen=True, slots=True)
class Blocks:
    """The best contiguous 4 h of the day, and the worst of those that share no hour with it."""

    best_hour: int
    best_bps: float
    best_tests: int
    worst_hour: int
    worst_bps: float
    worst_tests: int
    sources: Sequence[Source]

    @property
    def swing_ratio(self) -> float:
        return 1.0 - self.worst_bps / self.best_bps


def blocks(results: Iterable[Result], zone: ZoneInfo, rule: OversubscriptionRule) -> Blocks | None:
    """Compares blocks of the local day over the trailing period, whatever the windows say. None unless at least two
    blocks that share no hour have ``min_tests`` each: it takes tests round the clock."""
    by_hour = by_local_hour(results, zone, rule.trailing)
    judged: list[tuple[float, int, list[Result]]] = []
    for hour in range(24):
        inside = [result for step in range(BLOCK_HOURS) for result in by_hour.get((hour + step) % 24, [])]
        middle = statistics.median([result.bps for result in inside])
        if len(inside) >= rule.min_tests and middle:
            judged.append((middle, hour, inside))
    if not judged:
        return None
    best = max(judged, key=lambda block: (block[0], -block[1]))
    apart = [block for block in judged if BLOCK_HOURS <= (block[1] - best[1]) % 24 <= 24 - BLOCK_HOURS]
    if not apart:
        return None
    # Of blocks with the same median the one that is worse as a whole.
    worst = min(apart, key=lambda block: (block[0], sum(result.bps for result in block[2]) / len(block[2]), block[1]))
    sources = tuple(source for result in (*best[2], *worst[2]) for source in result.sources)
    return Blocks(best[1], best[0], len(best[2]), worst[1], worst[0], len(worst[2]), sources)
