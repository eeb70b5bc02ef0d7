"""One cause, one incident: flagged paths are laid to the smallest part that explains them."""

import itertools

import pytest

from collector.analysis.elements import Topology
from collector.analysis.incidents import Book
from collector.analysis.rules.oversubscription import RULE, Judged, groups, judge
from collector.config import OversubscriptionRule
from collector.decode import Definitions
from collector.model import Source
from tests.fakes.measured_log import fleet_config, throughput_path

SOURCE = Source("n", bytes(16), 1, 1, 0, 1)


def judged(flagged: dict[tuple[str, str], int], racks: int = 3, hosts: int = 2) -> list[Judged]:
    """All pairs of a fleet; those given are flagged since that time."""
    names = [f"r{rack}n{host}" for rack in range(1, racks + 1) for host in range(1, hosts + 1)]
    return [
        Judged(
            path=Definitions().path(throughput_path(source, destination)),
            flagged_since_ns=flagged.get((source, destination)),
            peak_bps=300.0 if (source, destination) in flagged else 900.0,
            offpeak_bps=950.0,
            tests_peak=5,
            tests_offpeak=5,
            swing_ratio=0.68 if (source, destination) in flagged else 0.05,
            sources=(SOURCE,),
            peak_name="peak 19:00-23:00",
            offpeak_name="off-peak 02:00-06:00",
        )
        for source, destination in itertools.permutations(names, 2)
    ]


def crossing(source: str, destination: str, racks: int = 3) -> dict[tuple[str, str], int]:
    """Pairs between racks that begin so ("" for any), each flagged at its own time."""
    names = [f"r{rack}n{host}" for rack in range(1, racks + 1) for host in (1, 2)]
    pairs = [
        (a, b)
        for a, b in itertools.permutations(names, 2)
        if a.startswith(source) and b.startswith(destination) and a[:2] != b[:2]
    ]
    return {pair: 1000 + number for number, pair in enumerate(pairs)}


@pytest.mark.parametrize(
    ("flagged", "racks", "expected"),
    [
        (crossing("r1", ""), 3, [("uplink", "r1", "out", 8)]),
        (crossing("", "r1"), 3, [("uplink", "r1", "in", 8)]),
        (crossing("r1", "") | crossing("", "r1"), 3, [("uplink", "r1", "both", 16)]),
        (crossing("r1", "r2") | crossing("r2", "r1"), 3, [("rack_pair", "r1|r2", "both", 8)]),
        (crossing("", "", 2), 2, [("rack_pair", "r1|r2", "both", 8)]),
        (crossing("", ""), 3, [("fabric", "all", "both", 24)]),
        ({("r1n1", "r1n2"): 5}, 3, [("path", None, "both", 1)]),
        (
            {("r1n1", other): 5 for other in ("r1n2", "r2n1", "r2n2", "r3n1", "r3n2")},
            3,
            [("endpoint", "r1n1/eth0", "out", 5)],
        ),
        ({}, 3, []),
    ],
)  # fmt: skip
def test_the_smallest_part_that_explains(
    flagged: dict[tuple[str, str], int], racks: int, expected: list[tuple[str, str | None, str, int]]
) -> None:
    found = groups(judged(flagged, racks), Topology(fleet_config(racks)))
    said = [
        (group.element.kind, group.element.name if want[1] else None, group.direction, len(group.flagged))
        for group, want in zip(found, expected, strict=True)
    ]
    assert said == expected


def test_one_incident_with_its_figures_and_evidence() -> None:
    flagged = crossing("r1", "") | crossing("", "r1")
    book = Book()
    changes = book.apply(
        judge(judged(flagged), [], Topology(fleet_config(3)), OversubscriptionRule(), rule=RULE, time_ns=9999)
    )
    (incident,) = [change.incident for change in changes]
    assert incident.opened_time_ns == min(flagged.values())
    assert incident.values["peak_bps"] == 300.0
    assert incident.values["offpeak_bps"] == 950.0
    assert incident.values["swing_ratio"] == 0.68
    assert (incident.values["min_tests_peak"], incident.values["min_tests_offpeak"]) == (5, 5)
    assert incident.values["threshold_ratio"] == 0.3
    assert incident.values["trailing_s"] == 7 * 86_400
    assert (incident.values["paths_flagged"], incident.values["controls"]) == (16, 14)
    assert len(incident.children) == 16
    assert incident.evidence == (SOURCE,) * 16


def test_the_incident_moves_as_more_paths_show_it_and_closes_with_the_last() -> None:
    topology, rule, book = Topology(fleet_config(3)), OversubscriptionRule(), Book()
    whole = crossing("r1", "")
    first = dict(list(whole.items())[:1])
    for flagged, kind in ((first, "path"), (whole, "uplink")):
        book.apply(judge(judged(flagged), book.open(), topology, rule, rule=RULE, time_ns=2000))
        (incident,) = book.open()
        assert incident.element.kind == kind
        assert incident.opened_time_ns == 1000
    changes = book.apply(judge(judged({}), book.open(), topology, rule, rule=RULE, time_ns=3000))
    assert book.open() == []
    assert changes[-1].incident.closed_time_ns == 3000
