"""Whether lanes are separate: what bursts show, and what they cannot."""

from collector.analysis.rules.lanes import judge
from collector.model import LaneBurst

LANES = [("s", "rail0"), ("s", "storage"), ("t", "rail0")]


def burst(number: int, *, lane: str = "storage", measured: str = "rail0", **hurt: str) -> LaneBurst:
    return LaneBurst(f"b{number}", "s", lane, number, frozenset(measured.split()), hurt)


def said(bursts: list[LaneBurst]) -> dict[tuple[str, str], tuple[str, str]]:
    return {(row.lane, row.other_lane): (row.verdict, row.answer) for row in judge(bursts, LANES)}


def test_bursts_without_effect_never_prove_it_only_so_far() -> None:
    found = said([burst(number) for number in range(1, 4)])
    assert found["storage", "rail0"] == (
        "separate so far", "separate so far: 3 bursts on storage without effect on rail0"
    )  # fmt: skip
    assert found["rail0", "storage"] == ("not known", "not known: no burst on rail0")
    assert set(found) == {("storage", "rail0"), ("rail0", "storage")}  # one lane alone has nothing to share


def test_a_storage_burst_that_hurts_the_rail_shares_a_way_with_it() -> None:
    bursts = [burst(1), burst(2, rail0="i2"), burst(3, rail0="i3", measured="")]
    row = next(row for row in judge(bursts, LANES) if row.lane == "storage")
    assert (row.verdict, row.bursts, row.hurting, list(row.incidents)) == ("shared", 3, 2, ["i2", "i3"])
    assert (row.first_time_ns, row.last_time_ns) == (1, 3)
    assert row.answer == "shared: 2 of 3 bursts on storage hurt rail0"


def test_a_lane_nobody_measured_is_not_called_separate() -> None:
    assert said([burst(1, measured="storage"), burst(2, measured="")])["storage", "rail0"] == (
        "not known", "not known: rail0 was not measured in any of 2 bursts"
    )  # fmt: skip
