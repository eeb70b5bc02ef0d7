"""What NICs and TCP counted: inside, just before, and in the quiet hour."""

from collections.abc import Sequence
from typing import Any

from collector.analysis.elements import Topology
from collector.analysis.loading import Loading
from collector.analysis.nic_figures import NicFigures
from collector.analysis.paths import PathIndex
from collector.analysis.rules.burst_figures import InBurst, NicFigure
from collector.analysis.window import WINDOW_NS
from collector.config import BurstContentionRule
from tests.fakes.measured_log import SECOND, fleet_config

T0 = 1_767_225_600 * SECOND
START = T0 + 4000 * SECOND
QUIET = {"tcp_segments_sent": 10_000, "tcp_segments_retransmitted": 1}


def burst(start: int, end: int | None) -> InBurst:
    return InBurst(f"b{start}", "save", "rail0", start, end, False, frozenset({"r1n1/eth0"}))


class Site:
    """Rows of one node, and its bursts."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, str], dict[str, Any]] = {}
        self.bursts: list[InBurst] = []
        self.loading = Loading(PathIndex(Topology(fleet_config())))
        self.asked: list[Sequence[int]] = []
        self.figures = NicFigures(self.rows_of, self.loading, self, BurstContentionRule())

    def overlapping(self, from_ns: int, to_ns: int) -> Sequence[InBurst]:
        return [one for one in self.bursts if one.start_time_ns < to_ns and (one.end_time_ns or to_ns) >= from_ns]

    def rows_of(self, nodes: Sequence[str], starts: Sequence[int]) -> Sequence[dict[str, Any]]:
        assert nodes == ["r1n1"]
        self.asked.append(starts)
        return [row for (start, _), row in sorted(self.rows.items()) if start in starts]

    def fill(self, from_ns: int, to_ns: int, nic: str, pause: float | None = None, **counts: int) -> None:
        for start in range(from_ns, to_ns, WINDOW_NS):
            self.rows[start, nic] = {
                "start_time_ns": start, "node": "r1n1", "nic": nic, "receive_pause_ratio": pause, "counts": counts,
            }  # fmt: skip

    def of(self) -> list[NicFigure]:
        return self.figures.of(burst(START, None), START + 20 * SECOND)


def quiet() -> Site:
    site = Site()
    site.fill(T0, START, "", **QUIET)
    site.fill(T0, START, "eth0", 0.001)
    site.fill(T0, START, "eth9", 0.9, transmit_discards=100)  # no member of the burst
    return site


def test_figures_stand_beside_the_quiet_hour_and_the_minute_before() -> None:
    site = quiet()
    site.fill(START - 60 * SECOND, START, "eth0", 0.003, transmit_discards=1)
    site.fill(START, START + 20 * SECOND, "", tcp_segments_sent=10_000, tcp_segments_retransmitted=200)
    site.fill(START, START + 20 * SECOND, "eth0", 0.2, transmit_discards=6, priority_discards=1)
    assert site.of() == [
        NicFigure("r1n1", "", "retransmit_ratio", 0.02, 0.0001, 0.0001, 20_000),
        NicFigure("r1n1", "eth0", "pause_ratio", 0.2, 0.001, 0.003, 2),
        NicFigure("r1n1", "eth0", "rx_discards", 2, 0.0, 0.0, 2),
        NicFigure("r1n1", "eth0", "tx_discards", 12, 0.0, 2.0, 2),
    ]


def test_what_was_measured_in_another_burst_or_under_a_test_of_ours_is_not_the_quiet_hour() -> None:
    site = quiet()
    site.fill(T0 + 1000 * SECOND, T0 + 1100 * SECOND, "", tcp_segments_sent=10_000, tcp_segments_retransmitted=900)
    site.bursts.append(burst(T0 + 1000 * SECOND, T0 + 1100 * SECOND))
    site.fill(T0 + 2000 * SECOND, T0 + 2020 * SECOND, "", tcp_segments_sent=10_000, tcp_segments_retransmitted=900)
    site.loading.put(b"slot", frozenset({"nic:r1n1/eth0"}), (T0 + 2000 * SECOND, T0 + 2020 * SECOND))
    site.fill(START, START + 20 * SECOND, "", tcp_segments_sent=10_000, tcp_segments_retransmitted=200)
    (figure,) = [one for one in site.of() if not one.nic]
    assert figure.baseline == 0.0001
    site.loading.put(b"now", frozenset({"nic:r1n1/eth0"}), (START, START + 20 * SECOND))
    assert site.of() == []


def test_what_is_not_counted_is_absent() -> None:
    site = Site()
    assert site.of() == []
    site.fill(START, START + 20 * SECOND, "", tcp_segments_sent=400, tcp_segments_retransmitted=200)
    site.fill(START, START + 20 * SECOND, "eth0", None, transmit_discards=3)
    assert site.of() == [NicFigure("r1n1", "eth0", "tx_discards", 6, None, None, 2)]  # 800 segments are too few


def test_the_quiet_hour_is_read_once_a_burst() -> None:
    site = quiet()
    site.fill(START, START + 20 * SECOND, "eth0", 0.2)
    site.of()
    site.of()
    assert [len(starts) for starts in site.asked] == [8, 360, 8]
