"""Windows of any site on any day: what holds of all of them."""

from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.windows import OFFPEAK, OTHER, PEAK, SiteWindows, kind_of_pair, occurrences_of_pair

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
ZONES = st.sampled_from(
    [
        "UTC",
        "Asia/Shanghai",
        "America/New_York",
        "Europe/Amsterdam",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "Pacific/Apia",
    ]
)
FIRST = int(datetime(2011, 12, 1, tzinfo=UTC).timestamp()) * SECOND  # Apia skips a whole day this month
LAST = int(datetime(2027, 12, 31, tzinfo=UTC).timestamp()) * SECOND
MOMENTS = st.integers(FIRST, LAST)


@st.composite
def sites(draw: st.DrawFn, name: str = "a") -> SiteWindows:
    """A site whose windows do not overlap, as the configuration's check has it."""
    cuts = sorted(draw(st.sets(st.integers(0, 86_399), min_size=4, max_size=4)))
    turn = draw(st.integers(0, 3))
    a, b, c, d = cuts[turn:] + cuts[:turn]
    return SiteWindows(name, draw(ZONES), ((a, b),), ((c, d),))


@given(site=sites(), moment=MOMENTS)
@settings(deadline=None)
def test_windows_are_in_order_disjoint_and_labelled_with_their_day(site: SiteWindows, moment: int) -> None:
    found = site.occurrences(moment, moment + 3 * DAY)
    assert found == sorted(found)
    for earlier, later in pairwise(found):
        assert earlier.end_ns <= later.start_ns
    for occurrence in found:
        assert occurrence.start_ns < occurrence.end_ns
        assert occurrence.day == site.day_at(occurrence.start_ns)
        assert site.at(occurrence.start_ns) == site.at(occurrence.end_ns - 1) == occurrence
        after = site.at(occurrence.end_ns)
        assert after is None or after.start_ns == occurrence.end_ns


@given(site=sites(), moment=MOMENTS)
@settings(deadline=None)
def test_a_moment_and_the_list_agree(site: SiteWindows, moment: int) -> None:
    listed = [o for o in site.occurrences(moment - DAY, moment + DAY) if o.start_ns <= moment < o.end_ns]
    occurrence = site.at(moment)
    assert listed == ([occurrence] if occurrence else [])
    assert site.occurrences(moment, moment + 1) == listed


@given(a=sites("a"), b=sites("b"), moment=MOMENTS)
@settings(deadline=None)
def test_a_pair_and_its_list_agree_in_both_directions(a: SiteWindows, b: SiteWindows, moment: int) -> None:
    kind = kind_of_pair(a, b, moment)
    assert kind == kind_of_pair(b, a, moment)
    found = occurrences_of_pair(a, b, moment - DAY, moment + DAY)
    assert found == occurrences_of_pair(b, a, moment - DAY, moment + DAY)
    assert {o.kind for o in found if o.start_ns <= moment < o.end_ns} == ({kind} - {OTHER})
    assert {o.kind for o in found} <= {PEAK, OFFPEAK}
