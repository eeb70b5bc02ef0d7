from pathlib import Path

import pytest

from agent.clock import Anchor
from agent.probe import gates
from agent.probe.gates import NicReading
from agent.result import Interval
from bandwitness.v1 import record_pb2 as pb

SECOND = 1_000_000_000
BEFORE, DURING = pb.GATE_PHASE_BEFORE, pb.GATE_PHASE_DURING
NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:  999 1 0 0 0 0 0 0  999 1 0 0 0 0 0 0
eth0:874354587 1036395 0 0 0 0 0 0 1234567 99 0 0 0 0 0 0
ibr10:30:       5       0 0 0 0 0 0 0 6 0 0 0 0 0 0 0
broken: x
"""


def tree(root: Path, nic: str = "eth0", **files: object) -> Path:
    (root / "proc/net").mkdir(parents=True, exist_ok=True)
    (root / "proc/net/dev").write_text(NET_DEV)
    device = root / "sys/class/net" / nic
    (device / "statistics").mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        place = device / "statistics" if name.startswith(("rx_", "tx_")) else device
        (place / name).write_text(f"{value}\n")
    return root


def traffic(received: int, transmitted: int = 0, speed_bps: int | None = 1_000_000_000) -> NicReading:
    return NicReading(received_bytes=received, transmitted_bytes=transmitted, speed_bps=speed_bps)


def test_a_nic_is_read(tmp_path: Path) -> None:
    root = tree(tmp_path, speed=40_000, carrier_changes=3, rx_crc_errors=7)
    assert gates.read_nic(root, "eth0") == NicReading(
        received_bytes=874_354_587,
        transmitted_bytes=1_234_567,
        speed_bps=40_000_000_000,
        carrier_changes=3,
        errors={"rx_crc_errors": 7},
    )


def test_a_colon_in_the_name(tmp_path: Path) -> None:
    assert gates.read_nic(tree(tmp_path), "ibr10:30").received_bytes == 5


@pytest.mark.parametrize("speed", [-1, 0, 65_535, 4_294_967_295, ""])
def test_an_unknown_speed_is_none(tmp_path: Path, speed: object) -> None:
    assert gates.read_nic(tree(tmp_path, speed=speed), "eth0").speed_bps is None


def test_a_nic_that_is_not_there_reads_as_nothing(tmp_path: Path) -> None:
    assert gates.read_nic(tmp_path, "eth9") == NicReading()
    assert gates.read_nic(tree(tmp_path), "broken").received_bytes is None


def test_own_traffic_is_the_busier_direction_over_the_speed() -> None:
    gate = gates.own_traffic_gate(traffic(0, 0), traffic(10_000_000, 25_000_000), SECOND, 0.15, phase=BEFORE)
    assert gate.value == pytest.approx(0.2)
    assert gate.limit == 0.15
    assert gate.tripped


def test_own_traffic_below_the_limit() -> None:
    assert not gates.own_traffic_gate(traffic(0), traffic(1_000_000), SECOND, 0.15, phase=BEFORE).tripped


def test_own_traffic_on_a_nic_of_unknown_speed_is_recorded_only() -> None:
    gate = gates.own_traffic_gate(traffic(0), traffic(10**12, speed_bps=None), SECOND, 0.15, phase=BEFORE)
    assert not gate.tripped
    assert gate.value == 8e12
    assert gate.limit is None


def test_the_test_itself_is_no_own_traffic() -> None:
    first, last = traffic(0), traffic(105_000_000)
    gate = gates.own_traffic_gate(first, last, SECOND, 0.15, phase=DURING, test_bytes=100_000_000)
    assert (gate.tripped, gate.value) == (False, 0.0)


def test_counters_that_fell_or_are_missing_are_no_traffic() -> None:
    assert gates.own_traffic_gate(traffic(9), NicReading(received_bytes=3), SECOND, 0.1, phase=BEFORE).value is None
    assert gates.own_traffic_gate(NicReading(), NicReading(), SECOND, 0.1, phase=BEFORE).value is None


@pytest.mark.parametrize(("ratio", "tripped"), [(None, False), (0.95, False), (0.96, True)])
def test_cpu(ratio: float | None, tripped: bool) -> None:
    assert gates.cpu_gate(ratio).tripped is tripped


def test_link_unchanged_and_changed() -> None:
    first = NicReading(speed_bps=100_000_000_000, carrier_changes=2, errors={"rx_crc_errors": 1})
    assert not gates.link_gate(first, first).tripped
    last = NicReading(speed_bps=25_000_000_000, carrier_changes=4, errors={"rx_crc_errors": 1})
    gate = gates.link_gate(first, last)
    assert (gate.tripped, gate.value) == (True, 2.0)
    assert gate.detail == "speed_bps 100000000000 -> 25000000000, carrier_changes 2 -> 4"


def test_a_link_that_cannot_be_read_trips_nothing() -> None:
    assert not gates.link_gate(NicReading(), NicReading()).tripped


def test_a_clock_step_during_the_test() -> None:
    first = Anchor(wall_ns=10 * SECOND, monotonic_ns=SECOND, boottime_ns=SECOND)
    steady = Anchor(wall_ns=11 * SECOND + 400_000, monotonic_ns=2 * SECOND, boottime_ns=2 * SECOND)
    stepped = Anchor(wall_ns=11 * SECOND - 1_759_986_000, monotonic_ns=2 * SECOND, boottime_ns=2 * SECOND)
    assert not gates.clock_gate(first, steady).tripped
    gate = gates.clock_gate(first, stepped)
    assert (gate.tripped, gate.value) == (True, -1_759_986_000.0)


def test_threads_are_read(tmp_path: Path) -> None:
    for thread, name, user, system in ((7, "iperf3", 10, 5), (8, "a ) b", 80, 15)):
        place = tmp_path / f"proc/7/task/{thread}"
        place.mkdir(parents=True)
        (place / "stat").write_text(f"{thread} ({name}) R 1 7 7 0 -1 0 1 0 0 0 {user} {system} 0 0 20 0 2 0")
    assert gates.read_thread_ticks(tmp_path, 7) == {7: 15, 8: 95}
    assert gates.read_thread_ticks(tmp_path, 99) == {}


def test_the_core_that_serves_the_nic_counts_as_the_tests_own() -> None:
    gate = gates.cpu_gate(0.5, (0.97, 3))
    assert (gate.tripped, gate.value, gate.detail) == (True, 0.97, "interrupts on cpu3, which serves the NIC")
    assert gates.cpu_gate(0.6, (0.5, 3)).value == 0.6
    assert gates.cpu_gate(None, None).value is None


def interval(
    *, own: int | None, offered: int | None, mbit: int = 800, delay_ms: int = 10, omitted: bool = False
) -> Interval:
    return Interval(
        start_ns=0,
        duration_ns=SECOND,
        bytes=mbit * 125_000,
        omitted=omitted,
        round_trip_delay_ns=delay_ms * 1_000_000,
        congestion_window_bytes=own,
        receive_window_bytes=offered,
        senders=1,
    )


MB = 1_000_000  # 800 Mbit/s × 10 ms are 1 MB under way


@pytest.mark.parametrize(
    ("intervals", "tripped", "value"),
    [
        ([interval(own=2 * MB, offered=MB)] * 3, True, 1.0),
        ([interval(own=MB, offered=3 * MB)] * 3, False, 0.0),  # the network's word
        ([interval(own=2 * MB, offered=MB)] + [interval(own=MB, offered=3 * MB)] * 2, False, 1 / 3),
        ([interval(own=5 * MB, offered=4 * MB)] * 3, False, 0.0),  # nobody wanted to send more
        ([interval(own=2 * MB, offered=MB, omitted=True)] * 3, False, None),
        ([], False, None),
    ],
)
def test_the_receivers_window(intervals: list[Interval], tripped: bool, value: float | None) -> None:
    gate = gates.window_gate(intervals, 800e6, 10_000_000_000, None)
    assert (gate.tripped, gate.value) == (tripped, value if value is None else pytest.approx(value))


def test_the_send_buffer_is_named() -> None:
    gate = gates.window_gate([interval(own=MB, offered=None)], 800e6, None, MB)
    assert (gate.tripped, gate.detail) == (True, "send buffer")
    assert not gates.window_gate([interval(own=MB, offered=None)], 800e6, None, 4 * MB).tripped
    assert gates.window_gate([interval(own=MB, offered=None)], 800e6, None, None).value is None


def test_a_full_port_is_no_fault_of_a_window() -> None:
    gate = gates.window_gate([interval(own=2 * MB, offered=MB)], 800e6, 850_000_000, None)
    assert (gate.tripped, gate.value, gate.detail) == (False, 1.0, "receiver's window; the port was full")


def test_the_largest_send_buffer_is_read(tmp_path: Path) -> None:
    assert gates.send_buffer_limit(tmp_path) is None
    (tmp_path / "proc/sys/net/ipv4").mkdir(parents=True)
    (tmp_path / "proc/sys/net/ipv4/tcp_wmem").write_text("4096\t16384\t4194304\n")
    assert gates.send_buffer_limit(tmp_path) == 4_194_304
