"""When each throughput test runs. Pure, and the same for the same configuration whenever it is asked.

Both windows of a day have the same rounds: the same pairs, as often, with the same tests beside them. Sites whose
windows differ make classes of pairs with windows of their own (peak if either end is in its peak, off-peak only if both
are). Classes share NICs and links, so each finds room beside those whose window began before.

Outside of both windows a few tests a day show what the rest of the day looks like: the rule that compares blocks of
four hours needs them. They are left out, and that is noted, where they do not fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from collector.config import Config, Throughput
from collector.planner import PlanError
from collector.planner.calendar import Calendar
from collector.planner.endpoints import Pair, PlacedEndpoint, placed_endpoints
from collector.planner.pairs import pairs_of_day
from collector.planner.placement import KIND_NAMES, DayWindow, Placement, PlannedTest, WindowClass
from collector.planner.rounds import rounds
from collector.windows import (
    DAY_S,
    OFFPEAK,
    OTHER,
    PEAK,
    SECOND,
    Occurrence,
    SiteWindows,
    occurrences_of_pair,
    rest_of_pair,
)

Key = tuple[object, ...]  # of a WindowClass


@dataclass(frozen=True, slots=True)
class Timetable:
    tests: tuple[PlannedTest, ...]  # in order of start
    notes: tuple[str, ...]  # what is not tested as asked, for people


def plan_tests(config: Config, from_ns: int, to_ns: int) -> Timetable:
    """All tests that begin in ``[from_ns, to_ns)``.

    Raises:
        PlanError: the tests do not fit into the windows.
    """
    if not config.measure.throughput.enabled:
        return Timetable((), ())
    return _Builder(config).build(from_ns, to_ns)


def needed_ns(config: Config) -> int:
    """How long each window must be at least, where all sites have the same windows; in one span."""
    throughput = config.measure.throughput
    endpoints = placed_endpoints(config)
    days = (pairs_of_day(endpoints, day, throughput.uplink_tokens) for day in range(7))  # hosts change with the day
    most = max(len(rounds(pairs, throughput.uplink_tokens)) for pairs in days)
    return most * throughput.planned * throughput.slot_ns


class _Builder:
    """One run of ``plan_tests``; keeps the rounds of a day, which all windows of that day share."""

    def __init__(self, config: Config) -> None:
        self._throughput: Throughput = config.measure.throughput
        self._seed = config.measure.seed
        self._endpoints = placed_endpoints(config)
        self._sites = {site.name: SiteWindows.from_config(site) for site in config.sites}
        self._rounds: dict[str, dict[Key, list[list[Pair]]]] = {}
        self._notes: list[str] = []

    def build(self, from_ns: int, to_ns: int) -> Timetable:
        classes = self._classes(from_ns)
        windows = self._windows(classes, from_ns, to_ns)
        counts = self._counts(windows)
        alone = len(classes) == 1
        calendar = None if alone else Calendar(self._throughput.hold_ns, self._throughput.uplink_tokens)
        placement = Placement(self._throughput, self._seed, calendar)
        rest = self._rest(classes, from_ns, to_ns)
        spans = [span for window in rest for span in window.spans]
        reach = min([from_ns, *(span.start_ns for span in spans)]), max([to_ns, *(span.end_ns for span in spans)])
        tests: list[PlannedTest] = []
        for window in _reaching(windows, *reach):
            count = counts[window.of.key, window.day]
            if count < self._throughput.planned:
                short = f"{count} instead of {self._throughput.planned} tests a pair and window: clocks change that day"
                self._notes.append(f"{window.day}: {short}")
            tests += placement.place(window, count, self._rounds_of(window.day).get(window.of.key, []))
        for window in rest:
            tests += self._place_rest(placement, window)
        due = [test for test in tests if from_ns <= test.start_ns < to_ns]
        return Timetable(tuple(sorted(due, key=_order)), tuple(dict.fromkeys(self._notes)))

    def _classes(self, from_ns: int) -> Sequence[WindowClass]:
        """Those that have pairs."""
        classes: dict[Key, WindowClass] = {}
        today = date.fromisoformat(next(iter(self._sites.values())).day_at(from_ns)).toordinal()
        for a, b in sorted({_sites_of(pair) for pair in self._pairs(today)}):
            of = WindowClass(self._sites[a], self._sites[b])
            classes.setdefault(of.key, of)
        return tuple(classes.values())

    def _rest(self, classes: Sequence[WindowClass], from_ns: int, to_ns: int) -> list[DayWindow]:
        """The rest of each day that shares a moment with ``[from_ns, to_ns)``, class by class."""
        if not self._throughput.around_the_clock:
            return []
        found: list[DayWindow] = []
        for turn, of in enumerate(classes):
            first = min(of.first, of.second, key=lambda windows: windows.site)
            days: dict[str, list[Occurrence]] = {}
            # Whole days, whatever part of them is asked for.
            for span in rest_of_pair(
                of.first, of.second, from_ns - 2 * DAY_S * SECOND, first.midnight_after(to_ns + DAY_S * SECOND)
            ):
                days.setdefault(span.day, []).append(span)
            wanted = {first.day_at(from_ns), first.day_at(to_ns - 1)}
            found += [
                DayWindow(of, OTHER, day, tuple(spans), turn, len(classes))
                for day, spans in days.items()
                if min(wanted) <= day <= max(wanted)
            ]
        return found

    def _place_rest(self, placement: Placement, window: DayWindow) -> list[PlannedTest]:
        together = self._rounds_of(window.day).get(window.of.key, [])
        wanted = self._throughput.around_the_clock
        room = len(window.slots(self._throughput.slot_ns))
        count = min(wanted, room // len(together)) if together else 0
        placed = placement.place(window, count, together) if count else []
        missing = wanted * sum(map(len, together)) - len(placed)
        if missing:
            self._notes.append(
                f"{window.day}: {missing} of the tests outside of the windows find no room, between {window.of.sites}: "
                f"{len(together)} rounds × {wanted} (around_the_clock), {room} slots"
            )
        return placed

    def _windows(self, classes: Sequence[WindowClass], from_ns: int, to_ns: int) -> list[DayWindow]:
        """The windows of all classes, in order of start; from days before to days after, so that what is asked for
        changes none of them."""
        reach = (from_ns - 3 * DAY_S * SECOND, to_ns + 3 * DAY_S * SECOND)
        windows: list[DayWindow] = []
        for of in classes:
            spans: dict[tuple[int, str], list[Occurrence]] = {}
            for occurrence in occurrences_of_pair(of.first, of.second, *reach):
                spans.setdefault((occurrence.kind, occurrence.day), []).append(occurrence)
            windows += [DayWindow(of, kind, day, tuple(found)) for (kind, day), found in spans.items()]
            for kind in (PEAK, OFFPEAK):
                if not any(of_kind == kind for of_kind, _ in spans):
                    self._notes.append(f"{of.sites} have no {KIND_NAMES[kind]} window in common: no swing can be seen")
        return sorted(windows, key=lambda window: (window.spans[0].start_ns, window.kind, repr(window.of.key)))

    def _pairs(self, day: int) -> list[Pair]:
        return pairs_of_day(self._endpoints, day, self._throughput.uplink_tokens)

    def _rounds_of(self, day: str) -> Mapping[Key, list[list[Pair]]]:
        if day not in self._rounds:
            by_class: dict[Key, list[Pair]] = {}
            for pair in self._pairs(date.fromisoformat(day).toordinal()):
                a, b = _sites_of(pair)
                by_class.setdefault(WindowClass(self._sites[a], self._sites[b]).key, []).append(pair)
            tokens = self._throughput.uplink_tokens
            self._rounds[day] = {key: rounds(pairs, tokens) for key, pairs in by_class.items()}
        return self._rounds[day]

    def _counts(self, windows: Sequence[DayWindow]) -> Mapping[tuple[Key, str], int]:
        """Tests of each pair in each window of a class and day: as planned; fewer in all windows of a day of which one
        is cut short by a change of clocks.

        Raises:
            PlanError: a class does not fit on any day.
        """
        planned = self._throughput.planned
        counts: dict[tuple[Key, str], int] = {}
        best: dict[tuple[Key, int], tuple[int, DayWindow]] = {}
        for window in windows:
            needed = len(self._rounds_of(window.day).get(window.of.key, ()))
            count = min(planned, len(window.slots(self._throughput.slot_ns)) // needed) if needed else planned
            of_day, of_kind = (window.of.key, window.day), (window.of.key, window.kind)
            counts[of_day] = min(count, counts.get(of_day, count))
            if of_kind not in best or count > best[of_kind][0]:
                best[of_kind] = (count, window)
        problems = [self._too_short(window) for count, window in best.values() if count < planned]
        if problems:
            raise PlanError(problems)
        return counts

    def _too_short(self, window: DayWindow) -> str:
        throughput = self._throughput
        found = self._rounds_of(window.day)[window.of.key]
        slot_s, slots = throughput.slot_ns / SECOND, len(window.slots(throughput.slot_ns))
        return (
            f"the throughput tests of {window.of.sites} do not fit into the {KIND_NAMES[window.kind]} window: "
            f"{sum(map(len, found))} directed pairs in {len(found)} rounds (one test a NIC, {throughput.uplink_tokens} "
            f"across an uplink at a time) × {throughput.planned} planned × {slot_s:g} s a slot = "
            f"{len(found) * throughput.planned * slot_s:g} s, but the window has {window.length_ns / SECOND:g} s "
            f"({slots} slots); make the window longer, or planned, duration, omit or margin smaller, or uplink_tokens "
            "larger (measure.throughput)"
        )


def _order(test: PlannedTest) -> tuple[int, PlacedEndpoint, PlacedEndpoint]:
    return test.start_ns, test.pair.source, test.pair.destination


def _sites_of(pair: Pair) -> tuple[str, str]:
    a, b = sorted((pair.source.site, pair.destination.site))
    return a, b


def _reaching(windows: Sequence[DayWindow], from_ns: int, to_ns: int) -> list[DayWindow]:
    """Those that reach into ``[from_ns, to_ns)``, and those before them that these must find room beside; in order of
    start, so that a window is placed the same whatever comes after it."""
    kept: list[DayWindow] = []
    begin = from_ns
    for window in reversed(windows):
        if window.spans[0].start_ns < to_ns and window.spans[-1].end_ns > begin:
            kept.append(window)
            begin = min(begin, window.spans[0].start_ns)
    return kept[::-1]
