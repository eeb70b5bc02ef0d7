"""Timetables of fleets of any shape: what holds of all of them."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.config import Config
from collector.planner import PlanError
from collector.planner.pairs import EVERY_PAIR_UP_TO
from collector.planner.plan import Plans, build_plans
from collector.windows import OFFPEAK, OTHER, PEAK, SiteWindows, kind_of_pair
from tests.fakes.fleet import fleet
from tests.fakes.timetable import assert_no_token_is_held_beyond_its_capacity

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
NOON = 1_796_126_400 * SECOND  # 2026-12-01 12:00 UTC

RACKS = st.lists(st.integers(1, 4), min_size=1, max_size=5)
LANES = st.sampled_from([("rail0",), ("rail0", "storage")])
HALF_HOURS = st.integers(0, 8)


def clock(half_hours: int) -> str:
    return f"{half_hours // 2 % 24:02}:{half_hours % 2 * 30:02}"


@st.composite
def fleets(draw: st.DrawFn) -> Config:
    """One or two sites, with equal or other windows, in one zone."""
    two = draw(st.booleans())
    sites = {"a": draw(RACKS), **({"b": draw(RACKS)} if two else {})}
    windows = {}
    for site in sites:
        shift = draw(HALF_HOURS)
        windows[site] = {
            "peak": f"{clock(34 + shift)}-{clock(44 + shift)}",
            "offpeak": f"{clock(shift)}-{clock(shift + 12)}",
        }
    planned = draw(st.integers(1, 6))
    nodes = [f"a{rack}-1" for rack in range(1, len(sites["a"]) + 1)]
    rest = (
        f"measure: {{seed: {draw(st.integers(0, 99))}, throughput: {{planned: {planned}, "
        f"around_the_clock: {draw(st.integers(0, 12 - 2 * planned))}, "
        f"uplink_tokens: {draw(st.integers(1, 3))}, duration: {draw(st.integers(1, 10))}s, ports: 4}}}}"
    )
    zone = draw(st.sampled_from(["UTC", "Asia/Shanghai", "America/New_York"]))
    return fleet(
        sites,
        lanes=draw(LANES),
        windows=windows,
        zones=dict.fromkeys(sites, zone),
        client_only=draw(st.lists(st.sampled_from(nodes), max_size=1)),
        rest=rest,
    )


def planned(config: Config, now_ns: int = NOON) -> Plans | None:
    try:
        return build_plans(config, now_ns, horizon_ns=2 * DAY)
    except PlanError:
        return None  # refused is an answer; that what fits is not refused has tests of its own


FAST = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@given(config=fleets())
@FAST
def test_tokens_windows_counts_and_pairs(config: Config) -> None:
    """In one, because making the plans is what takes the time."""
    plans = planned(config)
    if plans is None:
        return
    no_token_is_held_twice_and_each_slot_lies_in_its_window(plans, config)
    if not plans.notes:
        each_pair_is_tested_as_often_in_peak_as_in_offpeak(plans, config)
        if len(config.nodes) <= EVERY_PAIR_UP_TO:
            every_pair_that_can_be_tested_is(plans, config)


def no_token_is_held_twice_and_each_slot_lies_in_its_window(plans: Plans, config: Config) -> None:
    assert_no_token_is_held_beyond_its_capacity(plans.slots, config)
    windows = {site.name: SiteWindows.from_config(site) for site in config.sites}
    site_of = {node.name: node.site for node in config.nodes}
    for slot in plans.slots:
        ends = (windows[site_of[slot.client.node]], windows[site_of[slot.server.node]])
        for moment in (slot.start_time_ns - slot.margin_ns, slot.start_time_ns, slot.end_time_ns - 1):
            assert kind_of_pair(*ends, moment) == slot.window
        assert slot.client.lane == slot.server.lane


def each_pair_is_tested_as_often_in_peak_as_in_offpeak(plans: Plans, config: Config) -> None:
    counts = Counter((slot.path_id, slot.day, slot.window) for slot in plans.slots)
    # Days of which a part lies before now or beyond the horizon have less.
    days = sorted({slot.day for slot in plans.slots})[1:-1]
    for day in days:
        paths = {path for path, of_day, _ in counts if of_day == day}
        for path in paths:
            assert counts[path, day, PEAK] == counts[path, day, OFFPEAK] == config.measure.throughput.planned
            assert counts[path, day, OTHER] == config.measure.throughput.around_the_clock


def every_pair_that_can_be_tested_is(plans: Plans, config: Config) -> None:
    closed = {node.name for node in config.nodes if node.endpoints[0].client_only}
    lanes = {end.lane for end in config.nodes[0].endpoints}
    names = [node.name for node in config.nodes]
    wanted = {(a, b, lane) for a in names for b in names for lane in lanes if a != b and not {a, b} <= closed}
    found = set()
    for slot in plans.slots:
        source, destination = (slot.server, slot.client) if slot.reverse else (slot.client, slot.server)
        found.add((source.node, destination.node, source.lane))
        assert slot.server.node not in closed
    assert found == wanted


@given(config=fleets(), later=st.integers(1, 36 * 3600))
@settings(FAST, max_examples=30)  # three times the plans
def test_ids_are_unique_and_planning_again_gives_the_same_slots(config: Config, later: int) -> None:
    plans = planned(config)
    if plans is None:
        return
    ids = [slot.slot_id for slot in plans.slots]
    assert len(ids) == len(set(ids))
    now = NOON + later * SECOND
    again = build_plans(config, now)
    ahead = [
        slot for slot in plans.slots if now <= slot.start_time_ns - slot.margin_ns and slot.start_time_ns < now + DAY
    ]
    assert [slot for slot in again.slots if slot.start_time_ns < NOON + 2 * DAY] == [
        slot for slot in ahead if slot.start_time_ns < NOON + 2 * DAY
    ]
    with_previous = build_plans(config, now, plans.slots)
    assert {slot.slot_id for slot in again.slots} <= {slot.slot_id for slot in with_previous.slots}
