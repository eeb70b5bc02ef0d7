"""Swings of several paths, as results come and go."""

from bandwitness.v1.plan_pb2 import WINDOW_KIND_OFFPEAK, WINDOW_KIND_PEAK
from collector.analysis.elements import Topology
from collector.analysis.swing import Result
from collector.analysis.swings import Swings
from collector.decode import Definitions
from collector.model import Source
from tests.fakes.measured_log import fleet_config, throughput_path

MINUTE = 60_000_000_000
DAY = 1440 * MINUTE
SOURCE = Source("n", bytes(16), 1, 1, 0, 1)
CONFIG = fleet_config()
ONE, OTHER = (Definitions().path(throughput_path("r1n1", peer)) for peer in ("r2n1", "r2n2"))


def swings() -> Swings:
    made = Swings(CONFIG, Topology(CONFIG))
    for path in (ONE, OTHER):
        made.define(path)
    return made


def put(to: Swings, path_id: int, *, day: int = 1, offpeak: float = 900.0, peak: float = 900.0) -> list[bytes]:
    """Four tests at night and four in the evening."""
    slot_ids = []
    for number in range(8):
        window, bps = ((WINDOW_KIND_OFFPEAK, offpeak), (WINDOW_KIND_PEAK, peak))[number >= 4]
        slot_ids.append(f"{path_id}/{day}/{number}".encode())
        result = Result(day * DAY + number * MINUTE, bps, window, "3.16+", slot_ids[-1], (SOURCE,))
        to.put(path_id, slot_ids[-1], result)
    return slot_ids


def test_a_verdict_does_not_outlive_its_tests_while_others_go_on() -> None:
    made = swings()
    put(made, ONE.path_id, peak=300.0)
    assert [flag.raised for flag in made.judge(())] == [True]
    put(made, OTHER.path_id, day=9)
    assert [flag.raised for flag in made.judge(())] == [True]  # late results may still come for the period
    put(made, OTHER.path_id, day=10)
    assert made.judge(()) == []
    assert {(swing.path_id, swing.flagged, swing.tests_peak) for swing in made.all()} == {
        (ONE.path_id, False, 0),
        (OTHER.path_id, False, 8),
    }


def test_the_median_of_each_local_hour_between_two_racks() -> None:
    made = swings()
    put(made, ONE.path_id, offpeak=900.0, peak=300.0)
    put(made, OTHER.path_id, offpeak=700.0, peak=100.0)  # the same rack pair, another host
    made.judge(())
    [(key, bps)] = made.hours().items()
    # Shanghai's clock is eight hours ahead; four results of each figure.
    assert key == ("r1", "r2", "rail0", "08")
    assert bps == 500.0
    late = 2 * DAY + 600 * MINUTE
    made.put(ONE.path_id, b"x", Result(late, 50.0, WINDOW_KIND_PEAK, "3.16+", b"x", (SOURCE,)))
    made.judge(())
    assert made.hours() == {key: 500.0, ("r1", "r2", "rail0", "18"): 50.0}
    made.put(ONE.path_id, b"x", None)
    made.judge(())
    assert made.hours() == {key: 500.0}


def test_hours_never_mix_engine_classes() -> None:
    made = swings()
    put(made, ONE.path_id)
    made.put(ONE.path_id, b"x", Result(3 * DAY, 50.0, WINDOW_KIND_PEAK, "before 3.16", b"x", (SOURCE,)))
    made.judge(())
    assert set(made.hours().values()) == {50.0}


def test_a_swing_without_any_result_left_is_still_the_same_row() -> None:
    made = swings()
    slot_ids = put(made, ONE.path_id, peak=300.0)
    made.judge(())
    made.take_changed()
    for slot_id in slot_ids:  # each turns out to have met another test of ours
        made.put(ONE.path_id, slot_id, None)
    assert made.judge(()) == []
    ((swing, newest),) = made.take_changed()
    assert (swing.path_id, swing.engine_version, swing.flagged) == (ONE.path_id, "3.16+", False)
    assert (swing.swing_ratio, newest) == (None, None)
