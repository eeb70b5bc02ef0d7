"""Peak and off-peak windows of a site, in its own time zone. Pure but for a look into the time zone database.

A window belongs to the day on which it starts, also where it passes midnight; its end is exclusive.

Clock changes: a boundary written as a local time is one instant, the first at which the local clock reads that time or
a later one of that day. So a time that does not exist (skipped in spring) is the moment of the jump, and a time that
comes twice (autumn) is its first coming. Windows that touch go on touching, windows that do not overlap never do, and
the length is real time: 02:00-06:00 in Amsterdam lasts three hours on the day clocks go forward and five on the day
they go back. A window that lies wholly in skipped time does not occur that day.

A pair of sites is in peak while either is in its peak, and in off-peak only while both are in theirs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo

from bandwitness.v1.plan_pb2 import WindowKind

SECOND = 1_000_000_000
DAY_S = 86_400
PEAK, OFFPEAK, OTHER = (
    int(WindowKind.WINDOW_KIND_PEAK),
    int(WindowKind.WINDOW_KIND_OFFPEAK),
    int(WindowKind.WINDOW_KIND_OTHER),
)
Ranges = tuple[tuple[int, int], ...]  # (start, end) in seconds after local midnight; an end ≤ its start: the next day


class ConfiguredWindows(Protocol):
    """What ``collector.config.Windows`` offers."""

    @property
    def peak_ranges(self) -> Ranges: ...
    @property
    def offpeak_ranges(self) -> Ranges: ...


class ConfiguredSite(Protocol):
    """What ``collector.config.Site`` offers."""

    @property
    def name(self) -> str: ...
    @property
    def time_zone(self) -> str: ...
    @property
    def windows(self) -> ConfiguredWindows: ...


@dataclass(frozen=True, slots=True, order=True)
class Occurrence:
    """One window on one day: ``[start_ns, end_ns)`` since the epoch; ``day`` is the local date of its start."""

    start_ns: int
    end_ns: int
    kind: int  # WindowKind
    day: str  # YYYY-MM-DD


@dataclass(frozen=True, slots=True)
class SiteWindows:
    """The windows of one site, as configured or as read back from the control chain."""

    site: str
    time_zone: str  # IANA name
    peak: Ranges
    offpeak: Ranges

    @classmethod
    def from_config(cls, site: ConfiguredSite) -> "SiteWindows":
        return cls(site.name, site.time_zone, site.windows.peak_ranges, site.windows.offpeak_ranges)

    def day_at(self, time_ns: int) -> str:
        """The local date at a moment, YYYY-MM-DD."""
        return _local_date(self.time_zone, time_ns).isoformat()

    def midnight_after(self, time_ns: int) -> int:
        """When the next local day begins."""
        day = _local_date(self.time_zone, time_ns) + timedelta(days=1)
        return _instant_ns(self.time_zone, day, 0)

    def kind_at(self, time_ns: int) -> int:
        """The WindowKind a moment lies in: PEAK, OFFPEAK or OTHER."""
        occurrence = self.at(time_ns)
        return occurrence.kind if occurrence else OTHER

    def at(self, time_ns: int) -> Occurrence | None:
        """The window a moment lies in, and the day that window is counted under."""
        today = _local_date(self.time_zone, time_ns).toordinal()
        for ordinal in (today, today - 1):  # yesterday's window may not have ended yet
            for occurrence in _of_day(self, ordinal):
                if occurrence.start_ns <= time_ns < occurrence.end_ns:
                    return occurrence
        return None

    def occurrences(self, from_ns: int, to_ns: int) -> list[Occurrence]:
        """The windows that share a moment with ``[from_ns, to_ns)``, whole, in order of start."""
        first = _local_date(self.time_zone, from_ns).toordinal() - 1
        last = _local_date(self.time_zone, to_ns).toordinal()
        return [
            occurrence
            for ordinal in range(first, last + 1)
            for occurrence in _of_day(self, ordinal)
            if occurrence.start_ns < to_ns and occurrence.end_ns > from_ns
        ]


def kind_of_pair(a: SiteWindows, b: SiteWindows, time_ns: int) -> int:
    """The WindowKind that holds between two sites at a moment."""
    kinds = {a.kind_at(time_ns), b.kind_at(time_ns)}
    return PEAK if PEAK in kinds else OFFPEAK if kinds == {OFFPEAK} else OTHER


def occurrences_of_pair(a: SiteWindows, b: SiteWindows, from_ns: int, to_ns: int) -> list[Occurrence]:
    """The windows between two sites that share a moment with ``[from_ns, to_ns)``, whole, in order of start.

    A peak is the union of both sites' where these overlap, an off-peak the part they share. The day is the local date
    of the start at the site that comes first by name, so that both directions of a pair count alike.
    """
    a, b = sorted((a, b), key=lambda windows: windows.site)
    if (a.time_zone, a.peak, a.offpeak) == (b.time_zone, b.peak, b.offpeak):
        return a.occurrences(from_ns, to_ns)
    # Windows that begin before from_ns may be joined by ones that reach into the range: look a day further each way.
    reach = (from_ns - 2 * DAY_S * SECOND, to_ns + 2 * DAY_S * SECOND)
    of_a, of_b = a.occurrences(*reach), b.occurrences(*reach)
    peaks = _union([o for o in (*of_a, *of_b) if o.kind == PEAK])
    shared = [
        (max(x.start_ns, y.start_ns), min(x.end_ns, y.end_ns))
        for x in of_a
        for y in of_b
        if x.kind == y.kind == OFFPEAK and x.start_ns < y.end_ns and y.start_ns < x.end_ns
    ]
    found = [Occurrence(start, end, PEAK, a.day_at(start)) for start, end in peaks]
    found += [Occurrence(start, end, OFFPEAK, a.day_at(start)) for start, end in shared]
    return sorted(o for o in found if o.start_ns < to_ns and o.end_ns > from_ns)


def rest_of_pair(a: SiteWindows, b: SiteWindows, from_ns: int, to_ns: int) -> list[Occurrence]:
    """What of ``[from_ns, to_ns)`` lies in no window between two sites, as spans of kind OTHER in order of start. Days
    are those of the site that comes first by name; a span ends at their midnight."""
    first = min(a, b, key=lambda windows: windows.site)
    spans: list[Occurrence] = []
    begin = from_ns
    ends = [(occurrence.start_ns, occurrence.end_ns) for occurrence in occurrences_of_pair(a, b, from_ns, to_ns)]
    for start_ns, end_ns in [*ends, (to_ns, to_ns)]:
        while begin < start_ns:
            end = min(start_ns, first.midnight_after(begin))
            spans.append(Occurrence(begin, end, OTHER, first.day_at(begin)))
            begin = end
        begin = max(begin, end_ns)
    return spans


def _union(occurrences: Iterable[Occurrence]) -> list[tuple[int, int]]:
    """Spans that overlap joined to one; spans that only touch stay two, as they do within a site."""
    spans: list[tuple[int, int]] = []
    for occurrence in sorted(occurrences):
        if spans and occurrence.start_ns < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], occurrence.end_ns))
        else:
            spans.append((occurrence.start_ns, occurrence.end_ns))
    return spans


# ---------------------------------------------------------------- local time


def _local_date(time_zone: str, time_ns: int) -> date:
    # Whole seconds first: a float would round the last nanoseconds of a day into the next.
    return datetime.fromtimestamp(time_ns // SECOND, _zone(time_zone)).date()


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@lru_cache(maxsize=4096)
def _of_day(windows: SiteWindows, ordinal: int) -> Sequence[Occurrence]:
    """The windows that start on one local day, in order of start."""
    day = date.fromordinal(ordinal)
    found = []
    for kind, ranges in ((PEAK, windows.peak), (OFFPEAK, windows.offpeak)):
        for start_s, end_s in ranges:
            start_ns = _instant_ns(windows.time_zone, day, start_s)
            end_ns = _instant_ns(windows.time_zone, day, end_s if end_s > start_s else end_s + DAY_S)
            if end_ns > start_ns:
                found.append(Occurrence(start_ns, end_ns, kind, day.isoformat()))
    return tuple(sorted(found))


def _instant_ns(time_zone: str, day: date, second_of_day: int) -> int:
    """The first instant at which the local clock reads this time of this day, or a later one."""
    days, second = divmod(second_of_day, DAY_S)
    local = datetime(day.year, day.month, day.day) + timedelta(days=days, seconds=second)  # noqa: DTZ001 the zone comes next
    zone = _zone(time_zone)
    aware = local.replace(tzinfo=zone)  # fold=0: the first of two
    instant = round(aware.timestamp())
    if datetime.fromtimestamp(instant, zone).replace(tzinfo=None) != local:
        instant = _jump(zone, local)
    return instant * SECOND


def _jump(zone: ZoneInfo, skipped: datetime) -> int:
    """The second at which the local clock jumps over ``skipped``."""
    before = skipped.replace(tzinfo=zone, fold=0).utcoffset()
    after = skipped.replace(tzinfo=zone, fold=1).utcoffset()
    assert before is not None
    assert after is not None
    assert after > before, (zone, skipped)
    utc = round(skipped.replace(tzinfo=UTC).timestamp())
    # With the offset of after the jump the reading lies before it, with that of before the jump at or after it.
    low, high = utc - round(after.total_seconds()), utc - round(before.total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high
