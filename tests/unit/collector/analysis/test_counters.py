"""NIC counters: differences that can be believed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bandwitness.v1.record_pb2 import COUNTER_SOURCE_ETHTOOL, COUNTER_SOURCE_RDMA, COUNTER_SOURCE_TCP
from collector.analysis.counters import Nics
from collector.model import NicSamples, Source
from tests.fakes.nic_records import record

SECOND = 1_000_000_000
T0 = 1_767_225_600 * SECOND
SOURCE = Source("n1", bytes(16), 2, 1, 0, 1)


def samples(
    rx: list[int], *, start_s: int = 0, tx: list[int] | None = None, speed_bps: int | None = 10**10
) -> NicSamples:
    values = np.array([rx, tx or rx], np.uint64)
    return NicSamples(
        source=SOURCE,
        node="n1",
        nic="eth0",
        counters=("rx_bytes", "tx_bytes"),
        tick_times_ns=np.array([T0 + (start_s + tick) * SECOND for tick in range(len(rx))], np.int64),
        values=values,
        present=np.ones(values.shape, np.bool_),
        speed_bps=speed_bps,
        mtu_bytes=1500,
        carrier=True,
        fault="",
    )


def test_case_48_the_peak_stands_beside_the_mean() -> None:
    """Five seconds at 100 Gbit/s in a minute."""
    per_second = [12_500_000_000 if 20 <= second < 25 else 0 for second in range(60)]
    nics = Nics()
    nics.add([samples([0, *np.cumsum(per_second).tolist()], speed_bps=10**11)], T0 + 61 * SECOND)
    windows = nics.take_windows()
    loudest = max(windows, key=lambda row: row["receive_peak_bytes_per_second"] or 0)
    assert loudest["receive_peak_bytes_per_second"] == 12.5e9
    assert sum(row["receive_bytes"] for row in windows if row["receive_bytes"]) == 5 * 12_500_000_000


@pytest.mark.parametrize("cut", [1, 5, 9])
def test_records_join_without_losing_the_step_between(cut: int) -> None:
    counter = [second * 1000 for second in range(11)]
    whole, parts = Nics(), Nics()
    whole.add([samples(counter)], T0)
    parts.add([samples(counter[:cut])], T0)
    again = Nics(parts.take_states(1, T0 + 60 * SECOND))  # and a restart in between
    again.add([samples(counter[cut:], start_s=cut)], T0)
    assert again.statuses()[0].counters == whole.statuses()[0].counters
    both = {row["start_time_ns"]: row for row in whole.take_windows()}
    for row in again.take_windows():
        assert row == both[row["start_time_ns"]]


def test_a_state_is_written_once_a_minute_and_what_came_since_is_read_again() -> None:
    counter = [second * 1000 for second in range(31)]
    batches = [
        replace(samples(counter[start : start + 10], start_s=start), source=replace(SOURCE, position=1 + start // 10))
        for start in (0, 10, 20)
    ]
    whole = Nics()
    for batch in batches:
        whole.add([batch], T0)
    parts = Nics()
    parts.add(batches[:1], T0)
    assert parts.take_states(1, T0 + 59 * SECOND) == []
    assert parts.safe_position(1) == 0
    states = parts.take_states(1, T0 + 60 * SECOND)
    assert parts.safe_position(1) == 1
    parts.add(batches[1:2], T0 + 61 * SECOND)
    assert parts.safe_position(2) == 1  # read again from here
    again = Nics(states)
    for batch in batches[:2]:
        again.add_again([batch], T0 + 61 * SECOND)
    assert again.take_windows() == []  # what followed is in the store, incidents too
    assert again.take_links() == []
    assert again.safe_position(2) == 1
    assert again.statuses()[0].receive_bytes_total == 0  # totals begin anew with the process
    again.add(batches[2:], T0 + 62 * SECOND)
    newest = {row["start_time_ns"]: row for row in whole.take_windows()}
    assert again.take_windows() == [newest[max(newest)]]


def test_a_repeated_record_changes_nothing() -> None:
    nics = Nics()
    nics.add([samples([0, 1000])], T0)
    before = nics.statuses()
    nics.add([samples([0, 1000])], T0)
    assert nics.statuses() == before


def test_totals_leave_out_a_backlog_and_resets() -> None:
    nics = Nics()
    nics.add([samples([5000, 6000, 100, 300])], T0 + 4 * SECOND)
    assert nics.statuses()[0].receive_bytes_total == 1200
    nics.add([samples([1_000_300], start_s=10)], T0 + 3600 * SECOND)
    assert nics.statuses()[0].receive_bytes_total == 1200
    nics.add([samples([1_000_400], start_s=3600)], T0 + 3600 * SECOND)
    assert nics.statuses()[0].receive_bytes_total == 1300
    assert nics.statuses()[0].resets == 1


def test_errors_and_drops_are_counted_from_young_records_without_resets() -> None:
    nics = Nics()
    for second, (errors, age_s) in enumerate([(100, 1), (103, 1), (110, 600), (4, 1), (5, 1)]):
        told = replace(samples([errors], start_s=second), counters=("rx_crc_errors", "rx_surprises"))
        nics.add([told], T0 + (second + age_s) * SECOND)
    (status,) = nics.statuses()
    assert status.errors == {"rx_crc_errors": 3 + 1}
    assert "rx_surprises" not in status.counters  # not of the vocabulary


def test_counts_of_a_window_are_named_once_for_all_drivers_and_nothing_is_counted_twice() -> None:
    """Two seconds of a port of RDMA and of its driver, who counts the same octets once more."""
    port = record(
        {"counters/port_xmit_data": [0, 10, 20], "hw_counters/out_of_sequence": [2**32 - 1, 1, 3]},
        source=COUNTER_SOURCE_RDMA,
    )
    driver = record(
        {
            "tx_vport_rdma_unicast_bytes": [0, 40, 80],
            "rx_prio3_pause_duration": [0, 250_000, 500_000],
            "rx_prio4_pause_duration": [0, 0, 100],
            "rx_discards_phy": [7, 7, 9],
            "rx_corrected_bits_phy": [0, 0, 0],
        },
        source=COUNTER_SOURCE_ETHTOOL,
        driver="mlx5_core",
    )
    nics = Nics()
    nics.add([port, driver], T0 + 3 * SECOND)
    (window,) = nics.take_windows()
    states = nics.take_states(1, T0 + 63 * SECOND)
    assert json.loads(window["counts"]) == {
        "rdma_transmit_bytes": 80, "out_of_sequence": 4, "receive_pause_us": 500_100, "receive_discards": 2
    }  # fmt: skip
    assert window["receive_pause_ratio"] == 0.25
    assert window["transmit_pause_ratio"] is None
    again = Nics(states)
    again.add([record({"rx_discards_phy": [10]}, start_s=3, source=COUNTER_SOURCE_ETHTOOL, driver="mlx5_core")], T0)
    (window,) = again.take_windows()
    assert json.loads(window["counts"])["receive_discards"] == 3


def test_the_host_has_counts_and_is_no_nic() -> None:
    nics = Nics()
    told = record({"Tcp.OutSegs": [5, 105], "Tcp.RetransSegs": [1, 3]}, nic="", source=COUNTER_SOURCE_TCP)
    nics.add([told], T0 + 2 * SECOND)
    (window,) = nics.take_windows()
    assert (window["nic"], json.loads(window["counts"])) == (
        "", {"tcp_segments_sent": 100, "tcp_segments_retransmitted": 2}
    )  # fmt: skip
    assert nics.statuses() == []
