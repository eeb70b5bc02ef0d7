"""The loss rule speaks only where chance is ruled out: for the alarm, for its severity, and for each cause."""

import numpy as np

from collector.analysis import statistics
from collector.analysis.elements import Topology
from collector.analysis.paths import PathIndex
from collector.analysis.rules.loss import LossView, judge
from collector.config import LossRule
from collector.decode import Definitions
from collector.model import Flag
from tests.fakes.measured_log import SECOND, echo_path, fleet_config

RULE = LossRule()
NAMES = [f"r{rack}n{host}" for rack in (1, 2, 3) for host in (1, 2)]
PAIRS = [(a, b) for a in NAMES for b in NAMES if a != b]
LAST_10_S = slice(25, 30)  # of 30 buckets


class Fleet:
    """What was sent and lost in the last minute, by path and 2 s bucket."""

    def __init__(self, *, sent: float = 0.0, baseline: float = RULE.floor) -> None:
        self.index = PathIndex(Topology(fleet_config(3, 2)))
        for pair in PAIRS:
            self.index.define(Definitions().path(echo_path(*pair)))
        self.sent = np.full((len(PAIRS), 30), sent)
        self.lost = np.zeros_like(self.sent)
        self.baseline = np.full(len(PAIRS), baseline)

    def judge(self) -> list[Flag]:
        view = LossView(
            time_ns=1000 * SECOND,
            sent=self.sent,
            lost=self.lost,
            baseline=self.baseline,
            membership=self.index.membership,
            path_ids=self.index.ids,
        )
        return judge(view, (), RULE)


def row(source: str, destination: str) -> int:
    return PAIRS.index((source, destination))


def test_a_path_that_always_loses_four_percent_may_lose_three_of_sixty() -> None:
    fleet = Fleet()
    path = row("r1n1", "r2n1")
    fleet.baseline[path] = 0.04
    fleet.sent[path, LAST_10_S] = 12
    fleet.lost[path, 26:29] = 1
    assert fleet.judge() == []
    fleet.lost[path, LAST_10_S] = 6
    assert [flag.severity for flag in fleet.judge()] == ["critical"]


def test_usual_loss_of_one_path_is_no_alarm_for_another_cause() -> None:
    """A host loses 0.2 %: certain, but under every level. One of its paths loses 5 % in 10 s, as it always does."""
    fleet = Fleet(sent=40)
    hit = [number for number, pair in enumerate(PAIRS) if "r1n1" in pair]
    fleet.lost[hit, 3] = fleet.lost[hit, 17] = 1
    lossy = row("r1n1", "r2n1")
    fleet.baseline[lossy] = 0.04
    fleet.sent[lossy] = 12
    fleet.lost[lossy] = 0
    fleet.lost[lossy, 26:29] = 1
    lost, sent = int(fleet.lost[hit].sum()), int(fleet.sent[hit].sum())
    assert lost / sent < RULE.warning.ratio / 2
    assert statistics.binomial_tail(lost - 3, sent - 360, RULE.floor) < RULE.p_value
    assert fleet.judge() == []


def test_what_chance_explains_in_the_last_ten_seconds_is_not_critical() -> None:
    """14 % over the minute, where 4 % are usual; 3 of the last 60, which is as usual."""
    fleet = Fleet()
    path = row("r1n1", "r2n1")
    fleet.baseline[path] = 0.04
    fleet.sent[path, :25], fleet.lost[path, :25] = 40, 6
    fleet.sent[path, LAST_10_S] = 12
    fleet.lost[path, 26:29] = 1
    assert [(flag.severity, flag.values["over_s"]) for flag in fleet.judge()] == [("warning", 60)]


def test_beside_a_real_cause_chance_is_not_a_second_one() -> None:
    """One pair loses half, which alarms all that crosses its hosts; another path there lost 3 of its 20."""
    fleet = Fleet(baseline=0.001)
    fleet.sent[:] = 10
    for source, destination in (("r1n1", "r2n1"), ("r2n1", "r1n1")):
        fleet.lost[row(source, destination)] = 5
    beside, back = row("r1n1", "r3n2"), row("r3n2", "r1n1")
    fleet.sent[[beside, back]] = 0
    fleet.sent[beside, 10:30] = 1
    fleet.lost[beside, 20:23] = 1
    assert statistics.binomial_tail(3, 20, 0.001) > RULE.p_value
    assert [flag.element.name for flag in fleet.judge()] == ["r1n1/eth0|r2n1/eth0"]
    fleet.sent[beside, 10:13] = 0
    assert statistics.binomial_tail(3, 17, 0.001) < RULE.p_value
    assert len(fleet.judge()) == 2
