from pathlib import Path

import pytest

from agent.probe.volume import ASSUMED_BPS, DAY_NS, MAX_DAY_RATIO, Volume
from bandwitness.v1 import record_pb2 as pb

SECOND = 1_000_000_000
G = 10**9
NOW = 20_000 * DAY_NS
TEST = pb.Profile(duration_ns=10 * SECOND, omit_ns=2 * SECOND)
TEST_BYTES = 12 * G // 8
LIMIT = int(MAX_DAY_RATIO * G / 8 * 86_400)


def test_a_nic_carries_tests_up_to_its_share_of_a_day() -> None:
    volume = Volume()
    volume.add("eth0", LIMIT - TEST_BYTES, NOW)
    assert volume.refusal("eth0", G, TEST, NOW) == ""
    volume.add("eth0", 1, NOW)
    refusal = volume.refusal("eth0", G, TEST, NOW)
    assert f"tests have carried {LIMIT - TEST_BYTES + 1} bytes over eth0 today" in refusal
    assert volume.refusal("eth1", G, TEST, NOW) == ""
    assert volume.refusal("eth0", G, TEST, NOW + DAY_NS) == ""
    assert volume.refusal("eth0", G, TEST, NOW) == "", "the next day has begun; the clock was set back"


def test_a_default_day_of_eight_endpoints_is_far_below_the_limit() -> None:
    """7 peers × 2 directions × 12 tests × 12 s."""
    volume = Volume()
    volume.add("eth0", 7 * 2 * 12 * TEST_BYTES, NOW)
    assert volume.refusal("eth0", G, TEST, NOW) == ""


def test_both_ways_count_twice_and_an_unknown_speed_is_assumed() -> None:
    volume = Volume()
    volume.add("eth0", LIMIT - TEST_BYTES, NOW)
    both = pb.Profile(duration_ns=10 * SECOND, omit_ns=2 * SECOND, bidirectional=True)
    assert volume.refusal("eth0", G, both, NOW)
    assert str(ASSUMED_BPS) in volume.refusal("eth0", None, pb.Profile(duration_ns=DAY_NS), NOW)


@pytest.mark.parametrize(("rate", "refused"), [(G // 2, False), (G // 2 + 1, True)])
def test_udp_takes_half_of_a_nic_at_most(rate: int, refused: bool) -> None:
    profile = pb.Profile(duration_ns=SECOND, udp_rate_bps=rate)
    assert bool(Volume().refusal("eth0", G, profile, NOW)) is refused
    assert not Volume().refusal("eth0", None, profile, NOW)


def test_the_count_outlives_the_process(tmp_path: Path) -> None:
    Volume(tmp_path / "volume.json").add("eth0", LIMIT, NOW)
    assert Volume(tmp_path / "volume.json").refusal("eth0", G, TEST, NOW)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"day": "x", "bytes": {}}', '{"day": 1, "bytes": 7}', "[" * 50_000])
def test_a_damaged_file_is_counted_and_stops_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "volume.json").write_text(text)
    volume = Volume(tmp_path / "volume.json")
    assert volume.faults == 1
    assert volume.refusal("eth0", G, TEST, NOW) == ""


def test_a_disk_that_cannot_be_written_is_counted_and_the_limit_holds(tmp_path: Path) -> None:
    volume = Volume(tmp_path / "nowhere" / "volume.json")
    volume.add("eth0", LIMIT, NOW)
    assert volume.faults == 1
    assert volume.refusal("eth0", G, TEST, NOW)
