"""The rule of burst contention at one moment, on plain values."""

from dataclasses import replace

import numpy as np
import pytest

from collector.analysis.elements import Topology
from collector.analysis.incidents import Book
from collector.analysis.paths import PathIndex
from collector.analysis.rules.burst_contention import NEVER, ContentionView, judge
from collector.analysis.rules.burst_figures import InBurst, NicFigure
from collector.config import BurstContentionRule, LossRule
from collector.decode import Definitions
from collector.model import Element, Flag, Incident
from tests.fakes.measured_log import SECOND, echo_path, fleet_config

RULE, LOSS = BurstContentionRule(), LossRule()
NAMES = [f"r{rack}n{host}" for rack in (1, 2, 3) for host in (1, 2)]
START = 1000 * SECOND
BURST = InBurst(
    burst_id="b1",
    kind="save",
    lane="rail0",
    start_time_ns=START,
    end_time_ns=None,
    marked=True,
    nics=frozenset({"r1n1/eth0", "r1n2/eth0"}),
    job="llm",
    step=7,
    element=Element("rack", "r1"),
)


class Fleet:
    """All paths of a fleet: a quiet minute, then 12 s inside a burst of rack r1 (the first 2 s are before it)."""

    def __init__(self, burst: InBurst = BURST) -> None:
        self.burst = burst
        self.index = PathIndex(Topology(fleet_config(3, 2)))
        self.pairs = [(a, b) for a in NAMES for b in NAMES if a != b]
        for pair in self.pairs:
            self.index.define(Definitions().path(echo_path(*pair)))
        size = len(self.pairs)
        self.sent, self.lost, self.slow = np.full((size, 6), 10.0), np.zeros((size, 6)), np.zeros((size, 6))
        self.old_lost, self.old_slow = np.zeros((size, 30)), np.zeros((size, 30))
        self.nics: list[NicFigure] = []
        self.accused: dict[Element, float] = {}
        self.lanes = ["rail0"] * size
        self.time_ns = START + 10 * SECOND

    def rows(self, node: str, other: str = "") -> list[int]:
        return [
            row
            for row, (a, b) in enumerate(self.pairs)
            if any(x.startswith(node) and y.startswith(other) for x, y in ((a, b), (b, a)))
        ]

    def across(self, rack: str) -> list[int]:
        return [row for row, (a, b) in enumerate(self.pairs) if (a[:2] == rack) != (b[:2] == rack)]

    def view(self) -> ContentionView:
        old = np.full((len(self.pairs), 30), 10.0)
        return ContentionView(
            time_ns=self.time_ns,
            burst=self.burst,
            from_ns=START - 2 * SECOND,
            sent=self.sent,
            lost=self.lost,
            samples=self.sent - self.lost,
            slow=self.slow,
            before=(old, self.old_lost, old - self.old_lost, self.old_slow),
            baseline_loss=np.full(len(self.pairs), LOSS.floor),
            baseline_p99_ns=np.full(len(self.pairs), 100_000, np.int64),
            membership=self.index.membership,
            path_ids=self.index.ids,
            lanes=self.lanes,
            ends=self.pairs,
            accused_before=self.accused,
            nics=self.nics,
            p99_ns=lambda _: 12_000_000,
        )

    def judge(self, opened: tuple[Incident, ...] = ()) -> list[Flag]:
        return judge(self.view(), opened, RULE, LOSS)


def said(flags: list[Flag]) -> list[tuple[str, str, str]]:
    return [(flag.element.kind, flag.element.name, flag.severity) for flag in flags if flag.raised]


def test_a_burst_that_hurts_nobody_says_nothing() -> None:
    assert Fleet().judge() == []


def test_queues_of_an_uplink_are_one_incident_with_figures_and_whom_it_hurts() -> None:
    fleet = Fleet()
    fleet.slow[fleet.across("r1"), 2:] = 5
    fleet.lost[fleet.across("r1"), 3:] = 0.5
    flags = fleet.judge()
    assert said(flags) == [("uplink", "r1", "warning")]
    values = flags[0].values
    assert (values["burst_id"], values["during"], values["job"], values["step"]) == ("b1", "checkpoint", "llm", 7)
    assert values["broke"] == "loss delay"
    assert (values["slow"], values["samples"], values["delay_p99_ns"], values["baseline_p99_ns"]) == (
        320, 936, 12_000_000, 100_000
    )  # fmt: skip
    assert (values["lost"], values["sent"]) == (24, 960)
    assert values["nodes"] == "r1n1 r1n2 r2n1 r2n2 r3n1 r3n2"
    assert flags[0].since_ns == START + 2 * SECOND
    (change,) = Book().apply(flags)
    assert change.incident.opened_time_ns == START + 2 * SECOND
    assert change.incident.summary == (
        "Checkpoint b1 of llm, step 7 (marked, save on rail0) hurts uplink r1: 2.50% of round trips lost (24 of 960, "
        "usually 0.01%); p99 12.00 ms, usually 0.10 ms (320 of 936 slow)"
    )


def test_heavy_loss_is_critical_and_a_burst_that_nobody_marked_is_inferred() -> None:
    fleet = Fleet(replace(BURST, marked=False))
    fleet.lost[fleet.across("r1"), 2:] = 1
    (flag,) = fleet.judge()
    assert (flag.severity, flag.values["during"], flag.values["burst_by"]) == ("critical", "burst", "inferred")


@pytest.mark.parametrize("lost", [1, 2])
def test_less_than_three_lost_packets_are_no_harm(lost: int) -> None:
    fleet = Fleet()
    fleet.lost[fleet.rows("r1n1", "r2n1")[0], 3] = lost
    assert fleet.judge() == []


def test_one_stall_is_no_queue_whatever_it_holds_up() -> None:
    fleet = Fleet()
    fleet.slow[fleet.rows("r1n1"), 3] = 10
    assert fleet.judge() == []


def test_as_many_slow_packets_as_lie_above_a_p99_by_definition_are_no_harm() -> None:
    fleet = Fleet()
    fleet.slow[:, ::2] = 0.2
    assert fleet.judge() == []


# ---------------------------------------------------------------- what was there before


@pytest.mark.parametrize("since", [0, 20, 28])
def test_loss_that_began_before_the_burst_is_not_blamed_on_it(since: int) -> None:
    fleet = Fleet()
    rows = fleet.rows("r1n1")
    fleet.old_lost[rows, since:] = 1
    fleet.lost[rows] = 1
    assert fleet.judge() == []


def test_one_packet_lost_before_the_burst_excuses_nothing() -> None:
    fleet = Fleet()
    fleet.old_lost[fleet.across("r1")[0], 29] = 1
    fleet.lost[fleet.across("r1"), 3:] = 0.5
    assert said(fleet.judge()) == [("uplink", "r1", "warning")]


def test_loss_that_becomes_ten_times_worse_in_the_burst_is() -> None:
    fleet = Fleet()
    rows = fleet.rows("r1n1")
    fleet.old_lost[rows, ::3] = 0.1
    fleet.lost[rows, 2:] = 4
    assert said(fleet.judge()) == [("endpoint", "r1n1/eth0", "critical")]


def test_what_is_under_an_older_incident_is_not_blamed() -> None:
    fleet = Fleet()
    rows = fleet.rows("r1n1")
    fleet.lost[rows] = 1
    fleet.accused[Element("endpoint", "r1n1/eth0")] = 0.1
    assert fleet.judge() == []


def test_delay_that_began_before_is_not_blamed_but_loss_beside_it_is() -> None:
    fleet = Fleet()
    rows = fleet.across("r1")
    fleet.old_slow[rows] = 3
    fleet.slow[rows] = 5
    assert fleet.judge() == []
    fleet.accused[Element("uplink", "r1")] = NEVER
    assert fleet.judge() == []
    fleet.accused.clear()
    fleet.lost[rows, 2:] = 1
    (flag,) = fleet.judge()
    assert flag.values["broke"] == "loss"
    assert "slow_ratio" not in flag.values


# ---------------------------------------------------------------- lanes, NICs, the burst itself


def test_a_storage_burst_that_slows_a_rail_shares_a_way_with_it() -> None:
    fleet = Fleet(replace(BURST, lane="storage"))
    fleet.slow[fleet.across("r1"), 2:] = 5
    (flag,) = fleet.judge()
    assert flag.values["shared_lanes"] == "storage→rail0"


def test_figures_of_nics_join_the_element_their_node_is_at() -> None:
    fleet = Fleet()
    fleet.slow[fleet.across("r1"), 2:] = 5
    fleet.nics = [
        NicFigure("r1n1", "", "retransmit_ratio", 0.02, 0.0001, 0.0, 50_000),
        NicFigure("r1n2", "", "retransmit_ratio", 0.01, 0.0001, 0.0, 50_000),
        NicFigure("r1n2", "eth0", "tx_discards", 12, 0.0, 0.0, 10),
    ]
    (flag,) = fleet.judge()
    assert flag.values["broke"] == "delay discards retransmits"
    assert (flag.values["retransmit_ratio"], flag.values["retransmits_node"]) == (0.02, "r1n1")
    assert (flag.values["baseline_retransmit_ratio"], flag.values["retransmit_ratio_n"]) == (0.0001, 50_000)


def test_figures_of_many_nodes_are_one_incident_and_move_to_where_packets_are_hurt() -> None:
    fleet = Fleet()
    fleet.nics = [NicFigure("r1n1", "", "retransmit_ratio", 0.02, 0.0001, 0.0, 50_000)]
    book = Book()
    book.apply(fleet.judge())
    assert [one.element for one in book.open()] == [Element("node", "r1n1")]
    fleet.nics.append(NicFigure("r1n2", "", "retransmit_ratio", 0.03, 0.0001, 0.0, 50_000))
    book.apply(fleet.judge(tuple(book.open())))
    assert [(one.element, one.values["nodes"]) for one in book.open()] == [(Element("rack", "r1"), "r1n1 r1n2")]
    fleet.slow[fleet.across("r1"), 2:] = 5
    book.apply(fleet.judge(tuple(book.open())))
    (incident,) = book.open()
    assert (incident.element, incident.values["broke"]) == (Element("uplink", "r1"), "delay retransmits")
    assert incident.opened_time_ns == START
    fleet.slow[:] = 0
    assert fleet.judge((incident,)) == []  # it was told of; nothing new


def test_a_part_that_was_blamed_first_gives_way_to_the_whole() -> None:
    """Seen while all agents but one doubted their delays; nothing closes it before the burst is over."""
    fleet = Fleet()
    at_one = fleet.rows("r1n1", "r2") + fleet.rows("r1n1", "r3")
    fleet.slow[at_one, 2:] = 5
    book = Book()
    book.apply(fleet.judge())
    first = [one.element for one in book.open()]
    assert first == [Element("endpoint", "r1n1/eth0")]
    fleet.slow[fleet.across("r1"), 2:] = 5
    whole = Fleet()
    whole.slow = fleet.slow
    book.apply([replace(flag, replaces=()) for flag in whole.judge()])  # beside each other
    assert len(book.open()) == 2
    book.apply(fleet.judge(tuple(book.open())))
    assert [one.element for one in book.open()] == [Element("uplink", "r1")]


def test_a_part_of_what_is_blamed_already_stays_with_it() -> None:
    """As the burst ends, the agents in doubt have no good samples yet, and theirs look far worse."""
    fleet = Fleet()
    fleet.slow[fleet.across("r1"), 2:] = 5
    book = Book()
    book.apply(fleet.judge())
    assert [one.element for one in book.open()] == [Element("uplink", "r1")]
    fleet.slow[fleet.across("r1"), 2:] = 2
    fleet.slow[fleet.rows("r2n1", "r1n1"), 2:] = 10
    assert [flag.element for flag in fleet.judge()] == [Element("pair", "r1n1/eth0|r2n1/eth0"), Element("uplink", "r1")]
    (flag,) = fleet.judge(tuple(book.open()))
    assert (flag.element, flag.replaces) == (Element("uplink", "r1"), ())
    assert (flag.values["slow"], flag.values["samples"], flag.values["paths"]) == (14 * 8 + 2 * 40, 16 * 60, 16)
    assert flag.values["nodes_hurt"] == 6


@pytest.mark.parametrize(
    ("figure", "raised"),
    [
        (NicFigure("r1n1", "", "retransmit_ratio", 0.0009, 0.0, 0.0, 9), False),
        (NicFigure("r1n1", "", "retransmit_ratio", 0.0011, 0.0, 0.0, 9), True),
        (NicFigure("r1n1", "", "retransmit_ratio", 0.01, 0.005, 0.0, 9), False),  # usual there
        (NicFigure("r1n1", "", "retransmit_ratio", 0.01, None, 0.005, 9), False),  # so before the burst
        (NicFigure("r1n1", "eth0", "pause_ratio", 0.009, 0.0, 0.0, 9), False),
        (NicFigure("r1n1", "eth0", "pause_ratio", 0.02, 0.0, 0.0, 9), True),
        (NicFigure("r1n1", "eth0", "rx_discards", 0, 0.0, 0.0, 9), False),
        (NicFigure("r1n1", "eth0", "rx_discards", 1, None, None, 9), True),
    ],
)
def test_a_nic_alone_is_named_from_its_limit_on(figure: NicFigure, raised: bool) -> None:
    fleet = Fleet()
    fleet.nics = [figure]
    kind, name = ("endpoint", "r1n1/eth0") if figure.nic else ("node", "r1n1")
    assert said(fleet.judge()) == ([(kind, name, "warning")] if raised else [])


def test_a_node_that_writes_at_less_than_half_of_the_jobs_median() -> None:
    rates = {"r1n1": 4e8, "r1n2": 1.9e8, "r1n3": 4e8}
    over = replace(BURST, end_time_ns=START + 9 * SECOND, rates_bps=rates)
    fleet = Fleet(over)
    (flag,) = fleet.judge()
    assert (flag.element, flag.values["write_bps"], flag.values["baseline_write_bps"]) == (
        Element("node", "r1n2"), 1.9e8, 4e8
    )  # fmt: skip
    assert "r1n2 writes 190 Mbit/s, the middle of 3 nodes 400 Mbit/s" in Book().apply([flag])[0].incident.summary
    assert Fleet(replace(over, rates_bps=rates | {"r1n2": 2.1e8})).judge() == []


def test_while_a_burst_is_on_nobody_writes_too_slowly() -> None:
    """One that began a moment ago has a low mean."""
    rates = {"r1n1": 4e8, "r1n2": 1e8, "r1n3": 4e8}
    assert Fleet(replace(BURST, rates_bps=rates)).judge() == []


def test_a_burst_that_takes_far_longer_than_usual() -> None:
    (flag,) = Fleet(replace(BURST, usual_length_ns=6 * SECOND, earlier=3)).judge()
    assert (flag.element, flag.values["length_s"], flag.values["baseline_length_s"]) == (Element("rack", "r1"), 10, 6)
    assert Fleet(replace(BURST, usual_length_ns=7 * SECOND, earlier=3)).judge() == []
    assert Fleet(replace(BURST, usual_length_ns=6 * SECOND, earlier=2)).judge() == []


# ---------------------------------------------------------------- its life


def test_it_ends_five_seconds_after_the_burst() -> None:
    fleet = Fleet()
    fleet.slow[fleet.across("r1"), 2:] = 5
    book = Book()
    book.apply(fleet.judge())
    fleet.burst = replace(BURST, end_time_ns=START + 8 * SECOND)
    fleet.time_ns = START + 12 * SECOND
    assert all(flag.raised for flag in fleet.judge(tuple(book.open())))
    fleet.time_ns = START + 14 * SECOND
    (change,) = book.apply(fleet.judge(tuple(book.open())))
    assert change.incident.closed_time_ns == START + 13 * SECOND
    assert book.open() == []
