"""What becomes of an incident whose paths nobody measures any more."""

from collections.abc import Sequence

import numpy as np
import pytest

from bandwitness.v1 import record_pb2 as pb
from collector.analysis.doubts import Doubts
from collector.analysis.elements import Topology
from collector.analysis.incidents import Book, Change
from collector.analysis.judge import UNSEEN_NS, Judge, Network
from collector.analysis.loading import Loading
from collector.analysis.paths import PathIndex
from collector.analysis.rounds import Rounds
from collector.analysis.state import State
from collector.analysis.window import WINDOW_NS
from collector.config import Rules
from collector.decode import Definitions
from collector.model import Element, Flag, Incident, StoredWindow
from tests.fakes.measured_log import SECOND, echo_path, fleet_config

T0 = 1_767_225_600 * SECOND
ELEMENT = Element("pair", "r1n1/eth0|r2n1/eth0")


class Nothing:
    """A store with no rows yet."""

    def rows(self, _: int) -> Sequence[StoredWindow]:
        return ()

    def next_start(self, _: int) -> int | None:
        return None

    def newest_start(self) -> int | None:
        return None


def network() -> Network:
    paths = PathIndex(Topology(fleet_config()))
    paths.define(Definitions().path(echo_path("r1n1", "r2n1")))
    assert len(paths.membership.paths_of(ELEMENT)) == 1
    return Network(paths, Rounds(paths, Nothing()), Loading(paths), Doubts(paths))


def incident(rule: str) -> Incident:
    values: dict[str, float | int | str] = {
        "lost": 50, "sent": 100, "loss_ratio": 0.5, "slow": 50, "samples": 100, "over_s": 60,
        "delay_p99_ns": 900_000, "baseline_p99_ns": 100_000, "opening_ratio": 0.5,
    }  # fmt: skip
    book = Book()
    book.apply([Flag(rule, 1, ELEMENT, T0, "warning", True, values)])
    return book.open()[0]


def lose_half(network: Network, minutes: int) -> None:
    """Half the packets of the path are lost."""
    for start in range(T0, T0 + minutes * 60 * SECOND, WINDOW_NS):
        times = start + np.arange(50, dtype=np.int64) * (WINDOW_NS // 50)
        outcomes = np.array([pb.PACKET_OUTCOME_LOST, pb.PACKET_OUTCOME_REPLIED] * 25, np.uint8)
        delays = np.where(outcomes == pb.PACKET_OUTCOME_REPLIED, 100_000, -1).astype(np.int64)
        network.rounds.window(start).add("r1n1", np.zeros(50, np.intp), times, outcomes, delays)


def closed(changes: list[Change]) -> list[tuple[int | None, int, object]]:
    return [
        (change.incident.closed_time_ns, change.decided_time_ns, change.incident.values["closed_because"])
        for change in changes
        if change.incident.closed_time_ns is not None
    ]


@pytest.mark.parametrize("rule", ["loss", "delay"])
def test_an_incident_without_any_measurement_closes_after_an_hour(rule: str) -> None:
    judge = Judge(network(), Rules(), T0, State([incident(rule)]), {})
    changes, _ = judge.advance(T0 + UNSEEN_NS - 2 * SECOND)
    assert changes == []
    assert [entry.rule for entry in judge.open()] == [rule]
    changes, _ = judge.advance(T0 + UNSEEN_NS)
    assert closed(changes) == [(T0, T0 + UNSEEN_NS, "no measurements")]
    assert judge.open() == []


def test_the_hour_begins_with_the_last_measurement_and_goes_on_through_a_restart() -> None:
    one = network()
    lose_half(one, minutes=30)
    judge = Judge(one, Rules(), T0, State([incident("loss")]), {})
    last = T0 + 1800 * SECOND
    changes, minutes = judge.advance(T0 + 3600 * SECOND)
    assert closed(changes) == []
    again = Judge(one, Rules(), T0 + 3600 * SECOND, State.decode(minutes[T0 + 3600 * SECOND]), minutes)
    changes, _ = again.advance(last + UNSEEN_NS - 2 * SECOND)
    assert closed(changes) == []
    assert len(again.open()) == 1
    changes, _ = again.advance(last + UNSEEN_NS)
    assert closed(changes) == [(last, last + UNSEEN_NS, "no measurements")]


def test_an_incident_that_is_measured_stays_open_for_longer_than_that() -> None:
    one = network()
    lose_half(one, minutes=65)
    judge = Judge(one, Rules(), T0, State([incident("loss")]), {})
    changes, _ = judge.advance(T0 + UNSEEN_NS + 240 * SECOND)
    assert closed(changes) == []
    assert len(judge.open()) == 1
