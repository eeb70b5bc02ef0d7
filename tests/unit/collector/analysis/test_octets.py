"""The octets that pass a NIC, from whatever counts them."""

import json
from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwitness.v1.record_pb2 import COUNTER_SOURCE_ETHTOOL, COUNTER_SOURCE_NETDEV, COUNTER_SOURCE_RDMA
from collector.analysis.octets import MOST_BPS, Meter, Octets, Seconds, wire_octets
from tests.fakes.nic_records import SECOND, T0, record

GIGABIT = 10**9


def running(deltas: Sequence[int], start: int = 10**12) -> list[int]:
    return list(accumulate(deltas, initial=start))


def rates(steps: Sequence[Octets]) -> list[float | None]:
    return [None if step.transmit_bytes is None else step.transmit_bytes * 8 * SECOND / step.span_ns for step in steps]


def test_case_29_rdma_is_counted_into_the_use_of_the_link() -> None:
    netdev, words = 375_000, 11_875_000_000  # 3 Mbit/s; 380 Gbit/s
    table = record({"rx_bytes": running([netdev] * 3), "tx_bytes": running([netdev] * 3)}, speed_bps=400 * GIGABIT)
    rdma = record(
        {"counters/port_rcv_data": running([0] * 3), "counters/port_xmit_data": running([words] * 3)},
        source=COUNTER_SOURCE_RDMA,
        speed_bps=400 * GIGABIT,
        link_layer="Ethernet",
    )
    steps = wire_octets([table, rdma])
    assert rates(steps) == [pytest.approx(380.003 * GIGABIT)] * 3
    assert [step.receive_bytes for step in steps] == [netdev] * 3


def test_case_29_no_octet_is_counted_by_two_sources() -> None:
    """The port's own count holds both already."""
    wire = 47_500_400_000
    table = record(
        {"rx_bytes": running([0] * 3), "tx_bytes": running([375_000] * 3)}, driver="mlx5_core", speed_bps=None
    )
    rdma = record(
        {"counters/port_rcv_data": running([0] * 3), "counters/port_xmit_data": running([11_875_000_000] * 3)},
        source=COUNTER_SOURCE_RDMA,
        driver="mlx5_core",
        speed_bps=None,
    )
    phy = record(
        {"rx_bytes_phy": running([0] * 3), "tx_bytes_phy": running([wire] * 3)},
        source=COUNTER_SOURCE_ETHTOOL,
        driver="mlx5_core",
        start_s=0.01,
        speed_bps=None,
    )
    assert [step.transmit_bytes for step in wire_octets([table, rdma, phy])] == [wire] * 3
    # The driver's statistics stay out: from then on the other two, and nothing twice in between.
    meter = Meter()
    meter.add([table, rdma, phy])
    sources = (
        (COUNTER_SOURCE_NETDEV, {"rx_bytes": 0, "tx_bytes": 375_000}),
        (COUNTER_SOURCE_RDMA, {"counters/port_rcv_data": 0, "counters/port_xmit_data": 11_875_000_000}),
    )
    later = [
        record(
            {name: running([step] * 100, 10**12 + 3 * step) for name, step in steps_of.items()},
            start_s=3,
            driver="mlx5_core",
            source=source,
            speed_bps=None,
        )
        for source, steps_of in sources
    ]
    steps = meter.add(later)
    assert steps[0].start_time_ns == T0 + 3 * SECOND + SECOND // 100
    assert all(before.end_time_ns == step.start_time_ns for before, step in pairwise(steps))


def test_infiniband_counts_ip_over_infiniband_too() -> None:
    table = record({"rx_bytes": running([9] * 2), "tx_bytes": running([9] * 2)}, speed_bps=None)
    rdma = record(
        {"counters/port_rcv_data": running([25] * 2), "counters/port_xmit_data": running([100] * 2)},
        source=COUNTER_SOURCE_RDMA,
        link_layer="InfiniBand",
        speed_bps=None,
    )
    assert [(step.receive_bytes, step.transmit_bytes) for step in wire_octets([table, rdma])] == [(100, 400)] * 2


def test_case_25_words_are_four_bytes_whatever_the_lanes() -> None:
    rdma = record(
        {"counters/port_rcv_data": running([0]), "counters/port_xmit_data": running([781_250_000])},
        source=COUNTER_SOURCE_RDMA,
        link_layer="InfiniBand",
        speed_bps=25 * GIGABIT,
    )
    assert rates(wire_octets([rdma])) == [25 * GIGABIT]
    pinned = record(
        {"counters/port_rcv_data": [2**32 - 1] * 2, "counters/port_xmit_data": [2**32 - 1] * 2},
        source=COUNTER_SOURCE_RDMA,
        link_layer="InfiniBand",
    )
    assert wire_octets([pinned]) == []  # not idle: not known


def test_the_64_bit_counter_is_taken_before_the_old_one_and_never_with_it() -> None:
    rdma = record(
        {
            "counters/port_rcv_data": [2**32 - 1] * 2, "counters/port_rcv_data_64": [0, 1],
            "counters/port_xmit_data": [2**32 - 1] * 2, "counters/port_xmit_data_64": [0, 10],
        },
        source=COUNTER_SOURCE_RDMA,
        link_layer="InfiniBand",
    )  # fmt: skip
    assert [(step.receive_bytes, step.transmit_bytes) for step in wire_octets([rdma])] == [(4, 40)]


@pytest.mark.parametrize("unknown", [None])
def test_case_27_without_a_speed_nothing_is_bounded(unknown: int | None) -> None:
    table = record({"rx_bytes": [0, 10**12], "tx_bytes": [0, 0]}, speed_bps=unknown)
    assert [step.receive_bytes for step in wire_octets([table])] == [10**12]


@pytest.mark.parametrize("base_s", [0, -1, 7200])
def test_case_32_the_rate_is_the_same_whatever_the_wall_clock_did(base_s: int) -> None:
    """Ticks of a record stand at monotonic distance from its base; a clock set back makes a record old news."""
    table = record({"rx_bytes": [0, 125_000_000, 250_000_000], "tx_bytes": [0] * 3}, start_s=base_s)
    steps = wire_octets([table])
    assert [step.receive_bytes for step in steps] == [125_000_000] * 2
    assert [step.span_ns for step in steps] == [SECOND] * 2


@pytest.mark.parametrize("speed_bps", [12_000_000, 100_000_000, None])
def test_case_48_a_counter_refreshed_every_third_read(speed_bps: int | None) -> None:
    """12 Mbit/s, shown as 0 0 36 0 0 36: once that is seen, the rate is over the time from refresh to refresh."""
    deltas = [0, 0, 4_500_000] * 10
    steps = wire_octets([record({"rx_bytes": [0] * 31, "tx_bytes": running(deltas)}, speed_bps=speed_bps)])
    settled = rates(steps[6:])
    assert settled
    assert set(settled) == {12_000_000.0}
    if speed_bps == 12_000_000:
        assert max(rates(steps), key=lambda rate: rate or 0) == 12_000_000.0  # never above the link, not even at first
    counted = sum(step.transmit_bytes or 0 for step in steps)
    assert sum(deltas) - counted <= 2 * 1_500_000  # what is still to come of the newest refresh


def test_a_burst_after_seldom_traffic_is_not_spread_over_the_silence_before() -> None:
    """Something at every second read looks like a slow refresh; what is far larger came when it was seen."""
    deltas = [0, 2_000] * 6 + [0, 10**8, 10**8]
    steps = wire_octets([record({"rx_bytes": [0] * 16, "tx_bytes": running(deltas)})])
    assert [(step.span_ns, step.transmit_bytes) for step in steps[-3:]] == [
        (2 * SECOND, 2_000), (SECOND, 10**8), (SECOND, 10**8)
    ]  # fmt: skip


def test_case_48_hardware_that_is_known_to_refresh_once_a_second_read_at_ten_hertz() -> None:
    deltas = [0] * 9 + [125_000_000]
    table = record(
        {"rx_bytes": [0] * 51, "tx_bytes": running(deltas * 5)},
        driver="bnxt_en",
        interval_ns=SECOND // 10,
        speed_bps=10 * GIGABIT,
    )
    assert rates(wire_octets([table])) == [GIGABIT] * 5


def test_a_refresh_that_comes_late_loses_nothing() -> None:
    """Two refreshes fell between two reads of a full link: the surplus shows in the read behind."""
    second = 10 * GIGABIT // 8
    table = record(
        {"rx_bytes": [0] * 5, "tx_bytes": running([second, 2 * second, 0, second])},
        driver="bnxt_en",
        speed_bps=10 * GIGABIT,
    )
    assert [step.transmit_bytes for step in wire_octets([table])] == [second] * 4


def test_a_reset_gives_no_step_and_a_new_beginning() -> None:
    table = record({"rx_bytes": [0] * 5, "tx_bytes": [10**9, 10**9 + 5, 3, 10, None]})
    steps = wire_octets([table])
    assert [step.transmit_bytes for step in steps] == [5, 7]
    assert steps[1].start_time_ns == T0 + 2 * SECOND


def test_gone_and_back_is_one_step_over_the_time_between() -> None:
    table = record({"rx_bytes": [0, None, None, 30, 40], "tx_bytes": [0, None, None, 3, 4]})
    assert [(step.receive_bytes, step.span_ns) for step in wire_octets([table])] == [(30, 3 * SECOND), (10, SECOND)]


def test_ten_hertz_of_the_kernel_wins_over_one_hertz_of_the_driver_without_a_seam() -> None:
    """A burst opens at second 2: the same traffic is given out once, by finer steps."""
    meter = Meter()
    steps: list[Octets] = []
    for second in range(4):
        fine = second >= 2
        count, interval = (10, SECOND // 10) if fine else (1, SECOND)
        times = [T0 + second * SECOND + tick * interval for tick in range(count)]
        octets = [(time - T0) // 1000 for time in times]
        table = record({"rx_bytes": octets, "tx_bytes": octets}, at=times, interval_ns=interval, driver="mlx5_core")
        phy_at = T0 + second * SECOND
        phy = record(
            {"rx_bytes_phy": [(phy_at - T0) // 1000], "tx_bytes_phy": [(phy_at - T0) // 1000]},
            at=[phy_at],
            source=COUNTER_SOURCE_ETHTOOL,
            driver="mlx5_core",
        )
        steps += meter.add([table, phy])
    assert [step.span_ns for step in steps] == [SECOND] * 2 + [SECOND // 10] * 19
    assert sum(step.transmit_bytes or 0 for step in steps) == (steps[-1].end_time_ns - T0) // 1000


@given(
    st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 10**10), min_size=2, max_size=40),
    st.sampled_from([10**7, 10**9, 10**11]),
    st.sampled_from(["", "bnxt_en"]),
    st.integers(1, 39),
)
def test_never_negative_never_above_the_link_and_the_same_in_any_portions(
    values: list[int], speed_bps: int, driver: str, cut: int
) -> None:
    whole = record({"rx_bytes": values, "tx_bytes": values[::-1]}, speed_bps=speed_bps, driver=driver)
    steps = wire_octets([whole])
    for step in steps:
        most = speed_bps * step.span_ns // (8 * SECOND)
        assert 0 <= (step.receive_bytes or 0) <= most
        assert 0 <= (step.transmit_bytes or 0) <= most
    assert all(before.end_time_ns <= step.start_time_ns for before, step in pairwise(steps))
    meter = Meter()
    parts = (values[:cut], values[cut:]), (values[::-1][:cut], values[::-1][cut:])
    given_out: list[Octets] = []
    for number, (received, sent) in enumerate(zip(*parts, strict=True)):
        if received:
            meter = Meter.decode(json.loads(json.dumps(meter.encode())))
            one = record(
                {"rx_bytes": received, "tx_bytes": sent}, start_s=number * cut, speed_bps=speed_bps, driver=driver
            )
            given_out += meter.add([one])
    assert given_out == steps


def test_case_48_the_highest_second_of_ten_reads_a_second() -> None:
    seconds = Seconds()
    peak = 0.0
    for tick in range(40):
        step = Octets(T0 + tick * SECOND // 10, SECOND // 10, 0, 10 if 15 <= tick < 20 else 0)
        seconds = Seconds(json.loads(json.dumps(seconds.encode())))
        peak = max(peak, seconds.add(step)[1] or 0.0)
    assert peak == 50.0
    alone = Seconds()
    assert alone.add(Octets(T0, SECOND // 10, 1, 1)) == (None, None)
    assert alone.add(Octets(T0 + 5 * SECOND, SECOND, 7, None)) == (7.0, None)


@pytest.mark.parametrize("speed_bps", [None, (1 << 63) - 1])
@pytest.mark.parametrize("source", [COUNTER_SOURCE_NETDEV, COUNTER_SOURCE_ETHTOOL])
def test_more_than_any_host_moves_is_no_figure_whatever_the_speed_is_said_to_be(
    speed_bps: int | None, source: int
) -> None:
    names = ("rx_bytes", "tx_bytes") if source == COUNTER_SOURCE_NETDEV else ("rx_bytes_phy", "tx_bytes_phy")
    most = MOST_BPS // 8
    deltas = [most, 1 << 61, most // 2, 9 * 10**16, most]
    driver = "veth" if source == COUNTER_SOURCE_NETDEV else "mlx5_core"
    one = record(
        {names[0]: running([1000] * 5), names[1]: running(deltas)}, speed_bps=speed_bps, source=source, driver=driver
    )
    steps = wire_octets([one])
    assert [step.transmit_bytes for step in steps] == [most, most // 2, most]
