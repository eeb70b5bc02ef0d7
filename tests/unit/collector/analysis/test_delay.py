"""The delay rule at one moment, and what counts as slow."""

import numpy as np

from collector.analysis import statistics
from collector.analysis.elements import Topology
from collector.analysis.incidents import Book
from collector.analysis.paths import Indexes, PathIndex
from collector.analysis.rules.delay import P_VALUE, SLOW_RATIO, DelayView, judge, thresholds
from collector.analysis.rules.ports import describe_slow
from collector.config import DelayRule
from collector.decode import Definitions
from collector.model import Flag, Incident
from tests.fakes.measured_log import SECOND, echo_path, fleet_config

RACKS, HOSTS, WINDOWS = 3, 2, 6
NAMES = [f"r{rack}n{host}" for rack in range(1, RACKS + 1) for host in range(1, HOSTS + 1)]
USUAL_NS, NOW_NS = 100_000, 900_000


class Fleet:
    """All paths of a fleet, and a matrix of what was measured and what was slow in the last 60 s."""

    def __init__(self, samples: float = 50.0) -> None:
        self.index = PathIndex(Topology(fleet_config(RACKS, HOSTS)))
        self.pairs = [(a, b) for a in NAMES for b in NAMES if a != b]
        for source, destination in self.pairs:
            self.index.define(Definitions().path(echo_path(source, destination)))
        self.samples = np.full((len(self.pairs), WINDOWS), samples)
        self.slow = np.zeros_like(self.samples)
        self.baseline = np.full(len(self.pairs), USUAL_NS, np.int64)

    def slow_down(self, number: float, *, node: str = "", other: str = "") -> None:
        """So many slow round trips a window where both ends begin so, in either direction."""
        for row, (a, b) in enumerate(self.pairs):
            if any(x.startswith(node) and y.startswith(other) for x, y in ((a, b), (b, a))):
                self.slow[row] = number

    def p99_ns(self, _: Indexes) -> int:
        return NOW_NS

    def judge(self, opened: tuple[Incident, ...] = ()) -> list[Flag]:
        view = DelayView(
            time_ns=1000 * SECOND,
            samples=self.samples,
            slow=self.slow,
            baseline_p99_ns=self.baseline,
            membership=self.index.membership,
            path_ids=self.index.ids,
            p99_ns=self.p99_ns,
        )
        return judge(view, opened)


def test_ports_that_are_slow_by_themselves_are_named_and_chance_names_none() -> None:
    ports = np.array([50_000, 50_001, 50_002, 50_003], np.int64)
    samples = np.full(4, 60.0)
    one = describe_slow(ports, samples, np.array([1.0, 30, 2, 0]), SLOW_RATIO)
    assert one == {"ports_pattern": "some", "ports_slow": 1, "ports_probed": 4, "slow_ports": "50001"}
    assert describe_slow(ports, samples, np.full(4, 30.0), SLOW_RATIO)["ports_pattern"] == "all"
    assert describe_slow(ports, samples, np.full(4, 2.0), SLOW_RATIO) == {}
    assert describe_slow(np.zeros(4, np.int64), samples, np.full(4, 30.0), SLOW_RATIO) == {}
    assert describe_slow(ports[:1], samples[:1], np.full(1, 30.0), SLOW_RATIO) == {}


def opened(fleet: Fleet) -> Incident:
    book = Book()
    book.apply(fleet.judge())
    (incident,) = book.open()
    return incident


def test_as_many_slow_round_trips_as_usual_say_nothing() -> None:
    fleet = Fleet(samples=100)
    fleet.slow_down(1)  # that is what a p99 means
    assert fleet.judge() == []


def test_slow_round_trips_between_two_racks_are_one_flag() -> None:
    fleet = Fleet()
    fleet.slow_down(10, node="r1", other="r2")
    (flag,) = fleet.judge()
    assert (flag.element.kind, flag.element.name, flag.raised) == ("rack_pair", "r1|r2", True)
    assert (flag.values["slow"], flag.values["samples"], flag.values["over_s"]) == (480, 2400, 60)
    assert (flag.values["delay_p99_ns"], flag.values["baseline_p99_ns"]) == (NOW_NS, USUAL_NS)
    assert len(flag.children) == 8


def test_slow_in_all_ten_seconds_of_the_minute_but_one_says_nothing_yet() -> None:
    fleet = Fleet()
    fleet.slow_down(20, node="r1n1")
    fleet.slow[:, 0] = 0
    assert fleet.judge() == []


def test_one_stretch_of_ten_seconds_may_lack_samples_but_not_two() -> None:
    """Stretches in which a test of ours was running have none."""
    fleet = Fleet()
    fleet.slow_down(20, node="r1n1")
    fleet.samples[:, 3] = fleet.slow[:, 3] = 0
    assert [flag.element.name for flag in fleet.judge()] == ["r1n1/eth0"]
    fleet.samples[:, 4] = fleet.slow[:, 4] = 0
    assert fleet.judge() == []


def test_too_few_samples_to_rule_out_chance_say_nothing() -> None:
    """Five of 19, one in each stretch: unlikely, but not as unlikely as it takes."""
    fleet = Fleet(samples=0)
    fleet.samples[0] = (3, 4, 4, 4, 4, 0)
    fleet.slow[0] = (1, 1, 1, 1, 1, 0)
    assert statistics.binomial_tail(5, 19, SLOW_RATIO) > P_VALUE
    assert fleet.judge() == []
    fleet.samples[0] = (3, 3, 4, 4, 4, 0)
    assert statistics.binomial_tail(5, 18, SLOW_RATIO) < P_VALUE
    assert [flag.raised for flag in fleet.judge()] == [True]


def test_an_incident_is_clean_once_the_minute_is_as_usual() -> None:
    fleet = Fleet()
    fleet.slow_down(10, node="r1", other="r2")
    incident = opened(fleet)
    fleet.slow[:] = 0
    fleet.slow[fleet.index.membership.paths_of(incident.element), 5] = 3  # 1 % of the minute
    (flag,) = fleet.judge((incident,))
    assert not flag.raised
    assert flag.values["clean_since_ns"] == 940 * SECOND
    fleet.slow[fleet.index.membership.paths_of(incident.element)[0], 4] = 1
    assert not any(not flag.raised for flag in fleet.judge((incident,)))


def test_an_incident_that_goes_on_keeps_the_ratio_it_was_opened_with() -> None:
    fleet = Fleet()
    fleet.slow_down(10, node="r1", other="r2")
    incident = opened(fleet)
    fleet.slow_down(5, node="r1", other="r2")
    (flag,) = fleet.judge((incident,))
    assert (flag.raised, flag.values["slow_ratio"], flag.values["opening_ratio"]) == (True, 0.1, 0.2)


def test_without_enough_samples_an_incident_is_neither_clean_nor_raised() -> None:
    fleet = Fleet()
    fleet.slow_down(5, node="r1", other="r2")
    incident = opened(fleet)
    fleet.slow[:] = fleet.samples[:] = 0
    assert fleet.judge((incident,)) == []
    fleet.samples[fleet.index.membership.paths_of(incident.element)[0], :] = 2  # it takes 15 to see 10 %
    assert fleet.judge((incident,)) == []


def test_slow_is_beyond_three_times_the_usual_and_beyond_200_us_more() -> None:
    usual = np.array([10_000, 99_000, 100_000, 1_000_000, -1], np.int64)
    assert thresholds(usual, DelayRule()).tolist() == [210_000, 299_000, 300_000, 3_000_000, -1]
