"""The loss rule at one moment."""

from dataclasses import replace

import numpy as np
import pytest

from collector.analysis.elements import Topology
from collector.analysis.incidents import Book
from collector.analysis.paths import PathIndex
from collector.analysis.rules.loss import LossView, judge
from collector.config import LossRule
from collector.decode import Definitions
from collector.model import Flag, Incident
from tests.fakes.measured_log import SECOND, echo_path, fleet_config, stamp_path

RULE = LossRule()
RACKS, HOSTS = 3, 2
NAMES = [f"r{rack}n{host}" for rack in range(1, RACKS + 1) for host in range(1, HOSTS + 1)]


class Fleet:
    """All paths of a fleet, and a matrix of what was sent and lost in the last 60 s."""

    def __init__(self, sent: float = 10.0) -> None:
        self.index = PathIndex(Topology(fleet_config(RACKS, HOSTS)))
        self.pairs = [(a, b) for a in NAMES for b in NAMES if a != b]
        for source, destination in self.pairs:
            self.index.define(Definitions().path(echo_path(source, destination)))
        self.sent = np.full((len(self.pairs), 30), sent)
        self.lost = np.zeros_like(self.sent)
        self.baseline = np.full(len(self.pairs), RULE.floor)

    def lose(self, number: float, *, first: int = 0, node: str = "", other: str = "") -> None:
        """So many packets a bucket from bucket ``first`` on, where both ends begin so, in either direction."""
        for row, (a, b) in enumerate(self.pairs):
            if any(x.startswith(node) and y.startswith(other) for x, y in ((a, b), (b, a))):
                self.lost[row, first:] = number

    def view(self) -> LossView:
        return LossView(
            time_ns=1000 * SECOND,
            sent=self.sent,
            lost=self.lost,
            baseline=self.baseline,
            membership=self.index.membership,
            path_ids=self.index.ids,
        )

    def judge(self, opened: tuple[Incident, ...] = ()) -> list[Flag]:
        return judge(self.view(), opened, RULE)


def said(flags: list[Flag]) -> list[tuple[str, str, str]]:
    return [(flag.element.kind, flag.element.name, flag.severity) for flag in flags if flag.raised]


def test_nothing_lost_nothing_said() -> None:
    assert Fleet().judge() == []


@pytest.mark.parametrize(
    ("node", "other", "expected"),
    [
        ("r1n1", "", ("endpoint", "r1n1/eth0")),
        ("r1", "r2", ("rack_pair", "r1|r2")),
        ("r1n1", "r2n1", ("pair", "r1n1/eth0|r2n1/eth0")),
        ("r1", "", ("rack", "r1")),
    ],
)
def test_the_part_that_explains_the_loss(node: str, other: str, expected: tuple[str, str]) -> None:
    fleet = Fleet()
    fleet.lose(1, first=25, node=node, other=other)
    assert said(fleet.judge()) == [(*expected, "critical")]


def test_an_uplink_is_told_from_its_rack_by_the_probes_that_stay_inside() -> None:
    fleet = Fleet()
    fleet.lose(1, first=25, node="r1")
    inside = [row for row, (a, b) in enumerate(fleet.pairs) if a[:2] == b[:2] == "r1"]
    fleet.lost[inside] = 0
    assert said(fleet.judge()) == [("uplink", "r1", "critical")]


def test_less_than_three_lost_packets_say_nothing() -> None:
    fleet = Fleet(sent=0.2)
    fleet.lost[0, 28:] = 1
    fleet.sent[0, 28:] = 1
    assert fleet.judge() == []


def test_one_percent_over_a_minute_is_a_warning() -> None:
    fleet = Fleet()
    fleet.lose(0.1, node="r1n1")
    (flag,) = fleet.judge()
    assert flag.severity == "warning"
    assert flag.values["over_s"] == 60
    assert flag.values["sent"] == 3000
    assert flag.values["lost"] == 30


def test_one_percent_that_began_half_a_minute_ago_is_a_warning_already() -> None:
    """Over the whole minute it is under the level, and by too little to be certain."""
    fleet = Fleet(sent=1)
    row = fleet.pairs.index(("r1n1", "r2n1"))
    fleet.lost[row, (16, 20, 24, 28)] = 1
    fleet.sent[row] = 27  # 4 of 810: 0.49 %
    (flag,) = fleet.judge()
    assert (flag.severity, flag.values["over_s"], flag.values["lost"]) == ("warning", 30, 4)
    fleet.lost[row] = 0
    fleet.lost[row, (2, 8, 20, 28)] = 1  # as many, but over the minute
    assert fleet.judge() == []


def test_what_a_path_always_loses_is_no_news() -> None:
    fleet = Fleet()
    fleet.lose(0.1, node="r1n1")
    fleet.baseline[:] = 0.01
    assert fleet.judge() == []


def test_two_causes_at_once_are_two_flags() -> None:
    fleet = Fleet()
    fleet.lose(1, first=25, node="r1n1")
    fleet.lose(1, first=25, node="r3n2")
    assert {name for _, name, _ in said(fleet.judge())} == {"r1n1/eth0", "r3n2/eth0"}


def test_little_loss_beside_a_real_one_is_not_spoken_out() -> None:
    """0.3 % of one pair is beyond chance where so much is sent, and under every level."""
    fleet = Fleet(sent=1000)
    fleet.lose(3, node="r2n1", other="r3n2")
    assert fleet.judge() == []
    fleet.lose(100, first=25, node="r1n1", other="r1n2")
    assert {name for _, name, _ in said(fleet.judge())} == {"r1n1/eth0|r1n2/eth0"}


def test_nor_where_its_hosts_share_a_path_with_the_real_one() -> None:
    """Every host has one bad path, to the host that loses: that is no alarm about its others."""
    fleet = Fleet(sent=1000)
    fleet.lose(3, node="r2n1", other="r3n2")
    fleet.lose(100, first=25, node="r1n1")
    assert said(fleet.judge()) == [("endpoint", "r1n1/eth0", "critical")]


def test_what_a_burst_left_behind_in_the_minute_is_not_raised_beside_a_new_fault() -> None:
    """Its packets were lost before the stretch that a flag speaks of: "0 of 3,496 lost" says nothing."""
    fleet = Fleet()
    fleet.lose(0.15, node="r1", other="r2")
    fleet.lost[:, 9:] = 0
    assert fleet.judge() == []  # under every level
    fleet.lose(1, first=25, node="r1n1")
    assert {name for _, name, _ in said(fleet.judge())} == {"r1n1/eth0"}


def opened(fleet: Fleet) -> Incident:
    book = Book()
    book.apply(fleet.judge())
    (incident,) = book.open()
    return incident


def test_an_open_incident_is_clean_after_thirty_seconds_without_loss() -> None:
    fleet = Fleet()
    fleet.lose(1, first=25, node="r1n1")
    incident = opened(fleet)
    fleet.lost[:] = 0
    fleet.lose(1, first=10, node="r1n1")
    fleet.lost[:, 16:] = 0
    assert not any(not flag.raised for flag in fleet.judge((incident,)))  # 28 s
    fleet.lost[:, 15:] = 0
    (flag,) = fleet.judge((incident,))  # 30 s: and the loss before does not open it again
    assert not flag.raised
    assert flag.values["clean_since_ns"] == 970 * SECOND


@pytest.mark.parametrize(("lost", "clean"), [(6, True), (12, False)])  # of 3000: 0.2 %, 0.4 %
def test_an_incident_is_clean_below_half_of_the_ratio_that_warns(lost: int, clean: bool) -> None:
    fleet = Fleet(sent=100)
    fleet.lose(10, first=25, node="r1n1", other="r2n1")
    incident = opened(fleet)
    fleet.lost[:] = 0
    fleet.lost[fleet.pairs.index(("r1n1", "r2n1")), 20] = lost
    assert any(not flag.raised for flag in fleet.judge((incident,))) == clean


@pytest.mark.parametrize(("sent", "clean"), [(2, False), (6, True)])  # of a pair 60 and 180 in 30 s
def test_an_incident_is_clean_only_where_enough_was_sent_to_see_its_loss(sent: int, clean: bool) -> None:
    fleet = Fleet(sent=sent)
    fleet.lose(1, first=20, node="r1n1", other="r2n1")
    incident = opened(fleet)
    incident = replace(incident, values={**incident.values, "opening_ratio": 0.01})  # 150 packets show it
    fleet.lost[:] = 0
    assert any(not flag.raised for flag in fleet.judge((incident,))) == clean


def test_without_packets_an_incident_is_neither_clean_nor_raised() -> None:
    fleet = Fleet()
    fleet.lose(1, first=25, node="r1n1")
    incident = opened(fleet)
    fleet.lost[:] = fleet.sent[:] = 0
    assert fleet.judge((incident,)) == []


def test_a_host_that_dies_behind_a_lossy_uplink_is_a_cause_of_its_own() -> None:
    fleet = Fleet()
    fleet.lose(0.5, node="r1")
    inside = [row for row, (a, b) in enumerate(fleet.pairs) if a[:2] == b[:2] == "r1"]
    fleet.lost[inside] = 0
    incident = opened(fleet)
    assert incident.element.kind == "uplink"
    fleet.lose(10, first=25, node="r1n1")
    flags = fleet.judge((incident,))
    assert {name for _, name, _ in said(flags)} == {"r1", "r1n1/eth0"}
    assert not any(flag.replaces for flag in flags)


def test_blame_moves_when_the_first_suspect_was_too_small() -> None:
    fleet = Fleet()
    fleet.lose(5, first=29, node="r1n1", other="r2n1")
    incident = opened(fleet)
    assert incident.element.kind == "pair"
    fleet.lose(5, first=25, node="r1", other="r2")
    (flag,) = fleet.judge((incident,))
    assert flag.element.kind == "rack_pair"
    assert list(flag.replaces) == [incident.element]


# ---------------------------------------------------------------- STAMP: many paths a pair


class StampFleet(Fleet):
    """Each ordered pair over 8 source ports."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PathIndex(Topology(fleet_config(RACKS, HOSTS)))
        self.rows = [(a, b, port) for a, b in self.pairs for port in range(61_000, 61_008)]
        for place in self.rows:
            self.index.define(Definitions().path(stamp_path(*place)), 0)
        self.sent = np.full((len(self.rows), 30), 2.0)
        self.lost = np.zeros_like(self.sent)
        self.baseline = np.full(len(self.rows), RULE.floor)


def test_two_bad_ports_of_one_pair_are_one_incident_that_names_them() -> None:
    fleet = StampFleet()
    for row, (a, b, port) in enumerate(fleet.rows):
        if {a, b} == {"r1n1", "r2n1"} and port in (61_002, 61_005):
            fleet.lost[row, 10:] = 2.0
    flags = fleet.judge()
    assert [kind for kind, _, _ in said(flags)] == ["pair"]
    assert flags[0].values["ports_pattern"] == "some"
    assert flags[0].values["lossy_ports"] == "61002 61005"
    (change,) = Book().apply(flags)
    assert change.incident.summary.endswith("; the same 2 of 8 source ports)")


def test_all_ports_of_one_direction_are_one_path() -> None:
    fleet = StampFleet()
    for row, (a, b, _) in enumerate(fleet.rows):
        if (a, b) == ("r1n1", "r2n1"):
            fleet.lost[row, 10:] = 1.0
    flags = fleet.judge()
    assert said(flags) == [("path", "r1n1/eth0>r2n1/eth0#stamp", "critical")]
    assert flags[0].values["ports_pattern"] == "all"
