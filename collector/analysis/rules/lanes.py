"""Lanes: does storage traffic really go its own way? Pure.

A burst on one lane, while paths of another lane are measured, is an experiment: if it hurts them (an incident of burst
contention says so), the two lanes share something. Bursts without effect never prove that they do not, so the answer
is "separate so far" with their number.
"""

from collections.abc import Iterable, Sequence

from collector.model import LaneBurst, LaneVerdict

SHARED, SEPARATE, UNKNOWN = "shared", "separate so far", "not known"


def judge(bursts: Iterable[LaneBurst], lanes: Iterable[tuple[str, str]]) -> list[LaneVerdict]:
    """One verdict for each ordered pair of lanes of a site.

    Args:
        bursts: that have ended, in any order.
        lanes: site and lane, of everything that is configured.
    """
    of_site: dict[str, set[str]] = {}
    for site, lane in lanes:
        of_site.setdefault(site, set()).add(lane)
    by_lane: dict[tuple[str, str], list[LaneBurst]] = {}
    for burst in bursts:
        by_lane.setdefault((burst.site, burst.lane), []).append(burst)
    return [
        _pair(site, lane, other, by_lane.get((site, lane), []))
        for site, names in sorted(of_site.items())
        for lane in sorted(names)
        for other in sorted(names)
        if lane != other
    ]


def _pair(site: str, lane: str, other: str, bursts: Sequence[LaneBurst]) -> LaneVerdict:
    hurting = [burst for burst in bursts if other in burst.hurt]
    tried = [burst for burst in bursts if other in burst.measured or other in burst.hurt]
    times = [burst.start_time_ns for burst in tried]
    incidents = sorted({burst.hurt[other] for burst in hurting})
    if hurting:
        verdict = SHARED
        answer = f"shared: {len(hurting)} of {len(tried)} bursts on {lane} hurt {other}"
    elif tried:
        verdict = SEPARATE
        answer = f"separate so far: {len(tried)} bursts on {lane} without effect on {other}"
    else:
        verdict = UNKNOWN
        why = f"no burst on {lane}" if not bursts else f"{other} was not measured in any of {len(bursts)} bursts"
        answer = f"not known: {why}"
    return LaneVerdict(
        site=site,
        lane=lane,
        other_lane=other,
        verdict=verdict,
        bursts=len(tried),
        hurting=len(hurting),
        answer=answer,
        first_time_ns=min(times, default=None),
        last_time_ns=max(times, default=None),
        incidents=incidents,
    )
