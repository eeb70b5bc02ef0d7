"""Windows of a site and of a pair of sites: midnight, clock changes, days."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from collector.config import read_config
from collector.windows import (
    OFFPEAK,
    OTHER,
    PEAK,
    Occurrence,
    Ranges,
    SiteWindows,
    kind_of_pair,
    occurrences_of_pair,
)

SECOND = 1_000_000_000
HOUR = 3600
DEFAULT_PEAK: Ranges = ((19 * HOUR, 23 * HOUR),)
DEFAULT_OFFPEAK: Ranges = ((2 * HOUR, 6 * HOUR),)


def windows(
    zone: str = "Asia/Shanghai", peak: Ranges = DEFAULT_PEAK, offpeak: Ranges = DEFAULT_OFFPEAK, site: str = "a"
) -> SiteWindows:
    return SiteWindows(site, zone, peak, offpeak)


def at(text: str, zone: str = "Asia/Shanghai", fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()) * SECOND


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def hours(occurrence: Occurrence) -> float:
    return (occurrence.end_ns - occurrence.start_ns) / SECOND / HOUR


def of_day(site: SiteWindows, day: str, kind: int) -> list[Occurrence]:
    found = site.occurrences(at(f"{day}T00:00", site.time_zone), at(f"{day}T23:59:59", site.time_zone))
    return [occurrence for occurrence in found if occurrence.day == day and occurrence.kind == kind]


def test_case_34_peak_window_that_passes_midnight() -> None:
    site = windows(peak=((22 * HOUR, 2 * HOUR),), offpeak=((3 * HOUR, 6 * HOUR),))
    monday = "2026-11-30"

    def in_the_window_of_monday(text: str) -> bool:
        occurrence = site.at(at(text))
        return occurrence is not None and occurrence.kind == PEAK and occurrence.day == monday

    assert datetime.fromisoformat(monday).strftime("%A") == "Monday"
    assert not in_the_window_of_monday("2026-11-30T01:00")
    assert in_the_window_of_monday("2026-11-30T23:00")
    assert in_the_window_of_monday("2026-12-01T01:00")
    assert not in_the_window_of_monday("2026-12-01T02:00")
    assert not in_the_window_of_monday("2026-12-01T23:00")
    # What is not Monday's is its neighbours', not nobody's.
    assert site.at(at("2026-11-30T01:00")) == of_day(site, "2026-11-29", PEAK)[0]
    assert site.kind_at(at("2026-12-01T02:00")) == OTHER


def test_an_end_is_exclusive_to_the_nanosecond() -> None:
    site = windows()
    assert site.kind_at(at("2026-12-01T19:00") - 1) == OTHER
    assert site.kind_at(at("2026-12-01T19:00")) == PEAK
    assert site.kind_at(at("2026-12-01T23:00") - 1) == PEAK
    assert site.kind_at(at("2026-12-01T23:00")) == OTHER
    assert site.kind_at(at("2026-12-01T02:00")) == OFFPEAK


def test_occurrences_are_whole_in_order_and_only_those_that_touch_the_range() -> None:
    site = windows()
    found = site.occurrences(at("2026-12-01T22:59:59"), at("2026-12-02T19:00"))
    assert [(o.kind, o.day, o.start_ns, o.end_ns) for o in found] == [
        (PEAK, "2026-12-01", at("2026-12-01T19:00"), at("2026-12-01T23:00")),
        (OFFPEAK, "2026-12-02", at("2026-12-02T02:00"), at("2026-12-02T06:00")),
    ]
    assert site.occurrences(at("2026-12-01T23:00"), at("2026-12-02T02:00")) == []


def test_windows_of_a_hundred_seconds() -> None:
    text = """
sites: [{name: lab, time_zone: UTC, windows: {peak: ["12:31:45-12:33:25"], offpeak: ["12:30:05-12:31:45"]}}]
nodes: [{name: a1, site: lab, rack: r1, endpoints: [{nic: eth0, address: 10.0.1.11}]}]
"""
    site = SiteWindows.from_config(read_config(text, "x").sites[0])
    night, evening = site.occurrences(utc("2026-12-01T12:00"), utc("2026-12-01T13:00"))
    assert (night.kind, night.start_ns, night.end_ns) == (
        OFFPEAK,
        utc("2026-12-01T12:30:05"),
        utc("2026-12-01T12:31:45"),
    )
    assert (evening.kind, evening.start_ns) == (PEAK, night.end_ns)
    assert evening.end_ns - evening.start_ns == 100 * SECOND


def test_a_window_of_the_whole_day_leaves_no_moment_out() -> None:
    site = windows(peak=((0, 86_400),), offpeak=())
    for text in ("2026-12-01T00:00", "2026-12-01T23:59:59", "2026-12-02T00:00"):
        assert site.at(at(text)) == of_day(site, text[:10], PEAK)[0]


# ---------------------------------------------------------------- clock changes

NEW_YORK, AMSTERDAM = "America/New_York", "Europe/Amsterdam"


@pytest.mark.parametrize(
    ("zone", "day", "expected_hours", "start_utc"),
    [
        # New York: 02:00 is skipped on 8 March; 01:00-02:00 comes twice on 1 November, 02:00 only once.
        (NEW_YORK, "2026-03-08", 3, "2026-03-08T07:00"),
        (NEW_YORK, "2026-11-01", 4, "2026-11-01T07:00"),
        # Amsterdam: 02:00 is skipped on 29 March; 02:00-03:00 comes twice on 25 October.
        (AMSTERDAM, "2026-03-29", 3, "2026-03-29T01:00"),
        (AMSTERDAM, "2026-10-25", 5, "2026-10-25T00:00"),
        (AMSTERDAM, "2026-10-24", 4, "2026-10-24T00:00"),
    ],
)
def test_offpeak_on_days_of_clock_change(zone: str, day: str, expected_hours: int, start_utc: str) -> None:
    (night,) = of_day(windows(zone), day, OFFPEAK)
    assert hours(night) == expected_hours
    assert night.start_ns == utc(start_utc)
    assert night.end_ns == at(f"{day}T06:00", zone)
    (evening,) = of_day(windows(zone), day, PEAK)
    assert hours(evening) == 4


def test_a_boundary_in_skipped_time_is_the_moment_of_the_jump() -> None:
    jump = utc("2026-03-29T01:00")
    early = windows(AMSTERDAM, offpeak=((HOUR, 2 * HOUR + 1800),))
    late = windows(AMSTERDAM, offpeak=((2 * HOUR + 1800, 6 * HOUR),))
    assert of_day(early, "2026-03-29", OFFPEAK)[0].end_ns == jump
    assert of_day(late, "2026-03-29", OFFPEAK)[0].start_ns == jump
    assert hours(of_day(late, "2026-03-29", OFFPEAK)[0]) == 3


def test_a_window_inside_skipped_time_does_not_occur_that_day() -> None:
    site = windows(AMSTERDAM, offpeak=((2 * HOUR, 3 * HOUR),))
    assert of_day(site, "2026-03-29", OFFPEAK) == []
    assert len(of_day(site, "2026-03-30", OFFPEAK)) == 1


def test_a_boundary_in_repeated_time_is_its_first_coming() -> None:
    first, second = at("2026-10-25T02:30", AMSTERDAM), at("2026-10-25T02:30", AMSTERDAM, fold=1)
    assert second - first == HOUR * SECOND
    early = windows(AMSTERDAM, peak=((0, 2 * HOUR + 1800),), offpeak=((2 * HOUR + 1800, 6 * HOUR),))
    assert early.kind_at(first - 1) == PEAK
    assert early.kind_at(first) == early.kind_at(second) == OFFPEAK
    assert early.kind_at(at("2026-10-25T02:10", AMSTERDAM, fold=1)) == OFFPEAK  # windows are of one piece


def test_a_window_that_passes_a_skipped_midnight() -> None:
    zone = "Africa/Cairo"  # 24 April 2026, 00:00 is skipped
    site = windows(zone, peak=((22 * HOUR, 2 * HOUR),))
    (peak,) = of_day(site, "2026-04-23", PEAK)
    assert hours(peak) == 3
    assert site.day_at(utc("2026-04-23T22:00")) == "2026-04-24"
    assert windows(zone, peak=((0, 2 * HOUR),)).at(utc("2026-04-23T22:00")) == Occurrence(
        utc("2026-04-23T22:00"), utc("2026-04-23T23:00"), PEAK, "2026-04-24"
    )


def test_days_are_those_of_the_zone() -> None:
    moment = utc("2026-12-01T20:00")
    assert windows("Asia/Shanghai").day_at(moment) == "2026-12-02"
    assert windows("America/New_York").day_at(moment) == "2026-12-01"


# ---------------------------------------------------------------- pairs


def test_a_pair_is_in_peak_if_either_end_is_and_in_offpeak_only_if_both_are() -> None:
    a = windows(site="a", peak=((19 * HOUR, 23 * HOUR),), offpeak=((2 * HOUR, 6 * HOUR),))
    b = windows(site="b", peak=((21 * HOUR, HOUR),), offpeak=((4 * HOUR, 8 * HOUR),))
    day = "2026-12-01"
    expected = {
        "19:00": PEAK,
        "22:00": PEAK,
        "23:30": PEAK,
        "18:59": OTHER,
        "03:00": OTHER,
        "04:00": OFFPEAK,
        "05:59": OFFPEAK,
        "06:00": OTHER,
    }
    for text, kind in expected.items():
        moment = at(f"{day}T{text}")
        assert kind_of_pair(a, b, moment) == kind_of_pair(b, a, moment) == kind, text
    assert occurrences_of_pair(b, a, at(f"{day}T04:00"), at(f"{day}T20:00")) == [
        Occurrence(at(f"{day}T04:00"), at(f"{day}T06:00"), OFFPEAK, day),
        Occurrence(at(f"{day}T19:00"), at("2026-12-02T01:00"), PEAK, day),
    ]


def test_sites_far_apart_have_two_peaks_and_no_offpeak_in_common() -> None:
    shanghai, amsterdam = windows(site="a"), windows(AMSTERDAM, site="b")
    found = occurrences_of_pair(shanghai, amsterdam, utc("2026-12-01T00:00"), utc("2026-12-02T00:00"))
    assert [(o.kind, o.day, o.start_ns) for o in found] == [
        (PEAK, "2026-12-01", utc("2026-12-01T11:00")),
        (PEAK, "2026-12-02", utc("2026-12-01T18:00")),
    ]


def test_peak_of_one_site_in_the_offpeak_of_another_is_peak() -> None:
    a = windows(site="a", peak=((2 * HOUR, 6 * HOUR),), offpeak=((19 * HOUR, 23 * HOUR),))
    b = windows(site="b")
    assert kind_of_pair(a, b, at("2026-12-01T03:00")) == PEAK
    assert {o.kind for o in occurrences_of_pair(a, b, at("2026-12-01T00:00"), at("2026-12-02T00:00"))} == {PEAK}


def test_sites_with_the_same_windows_have_them_as_a_pair() -> None:
    a, b = windows(site="a"), windows(site="b")
    span = (at("2026-12-01T00:00"), at("2026-12-03T00:00"))
    assert occurrences_of_pair(a, b, *span) == a.occurrences(*span)
