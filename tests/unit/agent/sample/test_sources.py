"""Sources one by one: what they give, and what each costs when it fails."""

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import netdev
from agent.netdev import parse_speed
from agent.sample import host, rdma
from agent.sample.driver import Worker
from agent.sample.ethtool import MAX_STATISTICS, EthtoolError, driver_of, names_of, values_of
from agent.sample.nature import coverage, look
from agent.sample.nic import MAX_NICS, NicSampler
from agent.sample.rdma import places
from agent.sample.rhythm import MAX_STRETCH, RECOVERED, SLOW_NS, Patience, Watch
from bandwitness import counters
from bandwitness.v1 import record_pb2 as pb
from tests.fakes.clock import SECOND, FakeClock
from tests.fakes.nic_tree import FakeDriver, build

TREES = Path(__file__).parents[3] / "golden/nic"
MS = 1_000_000
NET, IB = "sys/class/net", "sys/class/infiniband"


def sampler(root: Path, driver: FakeDriver | None, *nics: str, clock: FakeClock | None = None) -> NicSampler:
    made = NicSampler(root, clock or FakeClock(), identify=None, ethtool=driver)
    made.configure(nics, SECOND, SECOND // 10)
    return made


# ---------------------------------------------------------------- driver statistics


def test_statistics_are_found_by_name_and_read_by_place() -> None:
    fake = FakeDriver({"eth0": "ena"}, {"eth0": {"a": 1, "bw_in_allowance_exceeded": 2**64 - 1, "c": 3}})
    assert driver_of("eth0", fake) == "ena"
    names = names_of("eth0", fake)
    assert names == ("a", "bw_in_allowance_exceeded", "c")
    assert counters.allowed("ena", names) == [1]
    assert values_of("eth0", 3, [1, 2], fake) == (2**64 - 1, 3)


def test_more_statistics_than_a_moment_ago_are_no_values_and_no_overflow() -> None:
    fake = FakeDriver({"eth0": "ena"}, {"eth0": dict.fromkeys(map(str, range(900)), 7)})
    assert values_of("eth0", 3, [1], fake) is None


def test_absurdly_many_statistics_are_refused() -> None:
    class Absurd(FakeDriver):
        def __call__(self, nic: str, buffer: bytearray) -> None:
            buffer[16:20] = (MAX_STATISTICS + 1).to_bytes(4, "little")

    with pytest.raises(EthtoolError, match="16385 statistics"):
        names_of("eth0", Absurd())


def test_no_driver_and_no_statistics_are_no_faults(tmp_path: Path) -> None:
    fake = build(TREES / "ice.tree", tmp_path)
    fake.statistics.clear()
    nics = sampler(tmp_path, fake, "ens2f0")
    nics.tick()
    nics.ask_drivers()
    statistics = nics.units["ens2f0"].statistics
    assert statistics is not None
    assert (statistics.supported, statistics.fault) == (False, "")
    assert not nics.state().detail
    nics.close()


def test_a_driver_that_fails_costs_only_its_own_statistics(tmp_path: Path) -> None:
    fake = build(TREES / "intel_older.tree", tmp_path)
    fake.fault["eno1"] = errno.EIO
    nics = sampler(tmp_path, fake, "eno1", "eno2")
    nics.tick()
    nics.ask_drivers()
    read = [(batch.nic, pb.CounterSource.Name(batch.source)[15:]) for batch in nics.drain() if batch.nic]  # type: ignore[arg-type]
    assert read == [("eno1", "NETDEV"), ("eno2", "NETDEV"), ("eno2", "ETHTOOL")]
    assert "driver statistics of eno1: as asked for" in nics.state().detail
    nics.close()


def test_counters_that_a_driver_gains_make_a_record_of_their_own(tmp_path: Path) -> None:
    fake = build(TREES / "virtio_vm.tree", tmp_path)
    clock = FakeClock()
    nics = sampler(tmp_path, fake, "eth0", clock=clock)
    nics.ask_drivers()
    fake.statistics["eth0"]["rx_queue_2_drops"] = 1
    clock.move(SECOND)
    nics.ask_drivers()
    sets = [batch.counters for batch in nics.drain() if batch.source == pb.COUNTER_SOURCE_ETHTOOL]
    assert [len(names) for names in sets] == [3, 4]
    nics.close()


def test_a_slow_driver_is_asked_half_as_often_and_recovers() -> None:
    patience, now = Patience(), 0
    patience.took(SLOW_NS + 1, now, SECOND)
    assert not patience.due(now + SECOND)
    assert patience.due(now + 2 * SECOND)
    for _ in range(10):
        patience.took(SLOW_NS + 1, now, SECOND)
    assert patience.stretch == MAX_STRETCH
    for _ in range(RECOVERED - 1):
        patience.took(MS, now, SECOND)
    assert patience.stretch == MAX_STRETCH
    for _ in range(RECOVERED * 3 + 1):
        patience.took(MS, now, SECOND)
    assert patience.stretch == 1
    assert patience.due(now + SECOND)


def test_a_slow_drivers_records_say_how_seldom_it_is_read(tmp_path: Path) -> None:
    fake = build(TREES / "ice.tree", tmp_path)
    nics = sampler(tmp_path, fake, "ens2f0")
    nics.tick()
    nics.ask_drivers()
    statistics = nics.units["ens2f0"].statistics
    assert statistics is not None
    statistics.patience.stretch = 4
    intervals = {batch.source: batch.interval_ns for batch in nics.drain() if batch.nic}
    assert intervals == {pb.COUNTER_SOURCE_NETDEV: SECOND, pb.COUNTER_SOURCE_ETHTOOL: 4 * SECOND}
    nics.close()


async def test_a_driver_that_never_answers_holds_nobody_up() -> None:
    held, worker = threading.Event(), Worker()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await worker.run(held.wait)
    held.set()
    assert await worker.run(lambda: 7) == 7
    with pytest.raises(OSError, match="gone"):
        await worker.run(_gone)


def _gone() -> None:
    raise OSError("gone")


# ---------------------------------------------------------------- RDMA


def test_between_full_reads_only_octets_are_asked_for(tmp_path: Path) -> None:
    build(TREES / "mlx5_roce.tree", tmp_path)
    (place,) = rdma.places(tmp_path)
    assert (place.name, place.nics, place.link_layer) == ("mlx5_0/1", ("ens1f0np0",), "Ethernet")
    port = rdma.Port(place)
    assert None not in port.read(full=True)
    octets = dict(zip(port.counters, port.read(full=False), strict=True))
    present = {name for name, value in octets.items() if value is not None}
    assert present == {"counters/port_xmit_data", "counters/port_rcv_data"}
    port.close()


@pytest.mark.parametrize("text", ["", "-1", "n/a", str(2**64)])
def test_an_absurd_count_is_absent_and_the_others_are_there(tmp_path: Path, text: str) -> None:
    build(TREES / "mlx5_roce.tree", tmp_path)
    (tmp_path / IB / "mlx5_0/ports/1/hw_counters/out_of_sequence").write_text(text)
    (place,) = rdma.places(tmp_path)
    port = rdma.Port(place)
    port.open()
    values = dict(zip(port.counters, port.read(full=True), strict=True))
    assert [name for name, value in values.items() if value is None] == ["hw_counters/out_of_sequence"]
    port.close()


def test_a_port_that_goes_costs_only_itself_and_comes_back(tmp_path: Path) -> None:
    build(TREES / "mlx5_roce.tree", tmp_path)
    clock = FakeClock()
    nics = sampler(tmp_path, None, "ens1f0np0", clock=clock)
    nics.tick()
    port = tmp_path / IB / "mlx5_0/ports/1"
    unit = nics.units["ens1f0np0"]
    unit.close()
    port.rename(port.with_name("off"))
    clock.move(SECOND)
    nics.tick()
    assert "mlx5_0/1 cannot be read" in nics.state().detail
    assert list(unit.coverage) == ["rdma_unseen"]
    port.with_name("off").rename(port)
    clock.move(SECOND)
    nics.tick()
    batches = [batch for batch in nics.drain() if batch.source == pb.COUNTER_SOURCE_RDMA]
    assert [batch.fault for batch in batches] == [""] * len(batches)
    assert not unit.coverage
    nics.close()


# ---------------------------------------------------------------- the host


def test_columns_are_found_by_their_titles() -> None:
    text = "Tcp: RetransSegs OutSegs\nTcp: 5 100\nTcpExt: TCPTimeouts Unheard\nTcpExt: 3 4\nUdp: InErrors\n"
    assert host.parse_protocols(text) == {"Tcp.RetransSegs": 5, "Tcp.OutSegs": 100, "TcpExt.TCPTimeouts": 3}


def test_softnet_is_hexadecimal_and_its_sum_comes_round_with_its_rows() -> None:
    row = "fffffffe 00000001 00000002 " + "00000000 " * 10
    assert host.parse_softnet(f"{row}\n{row}\nbroken\n") == {
        "softnet.processed": (2 * 0xFFFFFFFE) % 2**32,
        "softnet.dropped": 2,
        "softnet.time_squeeze": 4,
        "softnet.flow_limit": 0,
    }


@given(st.text(max_size=300))
def test_no_text_of_the_kernel_can_break_a_parser(text: str) -> None:
    for parse in (host.parse_protocols, host.parse_softnet, host.parse_cpus, netdev.parse):
        assert all(isinstance(name, str) for name in parse(text))


def test_case_31_a_colon_inside_a_name() -> None:
    numbers = " ".join(["1"] * 16)
    text = f"titles\ntitles\n  ibr10:30: {numbers}\n ibr10: {numbers}\neth0:{numbers}\nbroken: 1 2\n"
    assert sorted(netdev.parse(text)) == ["eth0", "ibr10", "ibr10:30"]


def test_a_file_that_cannot_be_read_is_a_fault_and_one_that_is_not_there_is_not(tmp_path: Path) -> None:
    nics = sampler(tmp_path, None, "eth0")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").mkdir()  # reading it fails
    nics.tick()
    details = nics._remarks()
    assert [detail.partition(":")[0] for detail in details] == ["cpu counters"]
    nics.close()


# ---------------------------------------------------------------- what a device is


def test_ports_of_a_bridge_are_not_below_it(tmp_path: Path) -> None:
    build(TREES / "bond_vlan_bridge.tree", tmp_path)
    assert look(tmp_path / NET, "br0").lower == ()
    assert look(tmp_path / NET, "bond0").lower == ("ens3f0", "ens3f1")
    assert look(tmp_path / NET, "bond0").driver == "bonding"
    assert look(tmp_path / NET, "no such").kind == ""


def test_a_port_with_functions_given_away_says_so_unless_it_counts_the_wire(tmp_path: Path) -> None:
    build(TREES / "mlx5_roce.tree", tmp_path)
    (tmp_path / "sys/devices/0000:18:00.0/sriov_numvfs").write_text("4\n")
    nature = look(tmp_path / NET, "ens1f0np0")
    assert nature.virtual_functions == 4
    assert coverage(nature, counts_wire=False, rdma=True, hypervisor=False) == ("vfs_unseen",)
    assert coverage(nature, counts_wire=True, rdma=True, hypervisor=False) == ()


# ---------------------------------------------------------------- hostile trees


def test_ten_thousand_devices_and_one_that_matters(tmp_path: Path) -> None:
    build(TREES / "bond_vlan_bridge.tree", tmp_path)
    for number in range(10_000):
        (tmp_path / NET / f"veth{number:05}").mkdir()
    for number in range(200):
        (tmp_path / NET / "bond0" / f"lower_veth{number:05}").symlink_to("../veth00000")
    nics = sampler(tmp_path, None, "bond0")
    nics.tick()
    assert len(nics.units) == MAX_NICS
    assert "devices over the limit of 32 are not read" in nics.state().detail
    nics.close()


def test_absurd_attributes_are_absent(tmp_path: Path) -> None:
    build(TREES / "ice.tree", tmp_path)
    device = tmp_path / NET / "ens2f0"
    absurd = {"mtu": str(2**70), "carrier": "7", "carrier_changes": str(2**64), "duplex": "both", "speed": "9" * 30}
    for name, text in absurd.items():
        (device / name).write_text(text)
    (device / "statistics/rx_packets").write_text("-5")
    (device / "statistics/tx_packets").write_bytes(b"\xff\xfe")
    nics = sampler(tmp_path, None, "ens2f0")
    nics.tick()
    batch = nics.drain()[0]
    assert (batch.mtu_bytes, batch.carrier, batch.carrier_changes, batch.full_duplex) == (None, None, None, None)
    assert batch.speed_bps is None
    found = dict(zip(batch.counters, batch.values, strict=True))
    assert (found["rx_packets"], found["tx_packets"]) == ((None,), (None,))
    assert found["rx_bytes"] != (None,)
    nics.close()


def test_case_27_a_speed_beyond_all_sense_is_unknown() -> None:
    assert parse_speed("1000000000") is None
    assert parse_speed("800000") == 800_000_000_000


# ---------------------------------------------------------------- rhythm


def test_a_burst_is_read_ten_times_as_often_and_only_its_octets(tmp_path: Path) -> None:
    build(TREES / "ice.tree", tmp_path)
    clock = FakeClock()
    nics = sampler(tmp_path, None, "ens2f0", clock=clock)
    octets = tmp_path / NET / "ens2f0/statistics/tx_bytes"
    octets.write_text("0")
    sent = 0
    intervals = []
    for second in range(12):
        interval = nics.tick()
        intervals.append(interval)
        for _ in range(SECOND // interval - 1):  # the ticks between
            clock.move(interval)
            sent += 10**9 if 3 <= second < 6 else 0
            octets.write_text(str(sent))
            nics.tick()
        clock.move(interval)
        sent += 10**9 if 3 <= second < 6 else 0
        octets.write_text(str(sent))
    # 100 Gbit/s: a fifth is 2.5 GB/s; one read of 1 GB in a second is none, ten of them are.
    assert SECOND // 10 not in intervals
    nics.close()


def test_what_is_far_above_a_fifth_of_the_line_hastens_until_it_is_over(tmp_path: Path) -> None:
    build(TREES / "ice.tree", tmp_path)
    clock = FakeClock()
    nics = sampler(tmp_path, None, "ens2f0", clock=clock)
    octets = tmp_path / NET / "ens2f0/statistics/tx_bytes"
    sent, hurried = 0, []
    for tick in range(400):
        octets.write_text(str(sent))
        now = clock.monotonic_ns()
        interval = nics.tick()
        hurried.append(interval == SECOND // 10)
        clock.move(interval)
        if 20 <= (clock.monotonic_ns() - 10**12) // SECOND < 25:
            sent += 10**10 * interval // SECOND
        assert now < clock.monotonic_ns()
        if tick > 60 and not hurried[-1]:
            break
    assert hurried.count(True) >= 50
    assert not hurried[0]
    assert not hurried[-1]
    batch = nics.drain()[0]
    packets = batch.values[batch.counters.index("rx_packets")]
    assert sum(value is not None for value in packets) < len(packets) // 2  # in full once a second
    assert batch.interval_ns == SECOND // 10
    nics.close()


def test_a_mark_hastens_and_no_longer_than_it_says(tmp_path: Path) -> None:
    build(TREES / "ice.tree", tmp_path)
    clock = FakeClock()
    nics = sampler(tmp_path, None, "ens2f0", clock=clock)
    assert nics.tick() == SECOND
    nics.hasten(clock.monotonic_ns() + 2 * SECOND)
    clock.move(SECOND)
    assert nics.tick() == SECOND // 10
    clock.move(SECOND)
    assert nics.tick() == SECOND
    nics.close()


@pytest.mark.parametrize(("siblings", "nics"), [({"eth0": "1"}, ("eth0",)), ({"eth0": "1", "eth1": "0"}, ("eth1",))])
def test_a_port_belongs_to_its_functions_only_device_whatever_its_number(
    tmp_path: Path, siblings: dict[str, str], nics: tuple[str, ...]
) -> None:
    (tmp_path / IB / "mlx5_0/ports/1").mkdir(parents=True)
    for name, number in siblings.items():
        (tmp_path / IB / "mlx5_0/device/net" / name).mkdir(parents=True)
        (tmp_path / NET / name).mkdir(parents=True)
        (tmp_path / NET / name / "dev_port").write_text(number)
    assert [place.nics for place in places(tmp_path)] == [nics]


class Line:
    """A NIC whose octets rise by what is asked each second."""

    def __init__(self, root: Path, tree: str, nic: str, driver: FakeDriver | None, **speeds: int) -> None:
        build(TREES / tree, root)
        self.clock = FakeClock()
        self.nics = NicSampler(root, self.clock, identify=None, ethtool=driver)
        self.nics.configure([nic], SECOND, SECOND // 10, speeds)
        self._file = root / NET / nic / "statistics/tx_bytes"

    def second(self, rate: int) -> bool:
        """Whether counters are read oftener now."""
        self._file.write_text(str(int(self._file.read_text()) + rate))
        interval_ns = self.nics.tick()
        self.clock.move(SECOND)
        return interval_ns < SECOND


def test_a_burst_is_measured_by_the_planned_speed(tmp_path: Path) -> None:
    """The kernel says 100 Gbit/s; the port is sold as 1 Gbit/s."""
    line = Line(tmp_path, "ice.tree", "ens2f0", None, ens2f0=1_000_000_000)
    assert not line.second(0)
    assert not line.second(24_000_000)
    assert line.second(26_000_000)
    assert line.nics.open_bursts() == {("ens2f0", "transmit")}
    line.nics.configure(["ens2f0"], SECOND, SECOND // 10)
    for _ in range(5):
        line.second(0)
    assert not line.second(26_000_000)
    assert line.nics.open_bursts() == set()
    line.nics.close()


def test_the_speed_of_a_device_that_has_none_is_not_believed(tmp_path: Path) -> None:
    """A veth claims 10 Gbit/s whatever it is shaped to: its habit counts, and no test of ours is held back by that."""
    line = Line(tmp_path, "ice.tree", "ens2f0", None)
    driver = tmp_path / NET / "ens2f0/device/driver"
    driver.unlink()
    driver.symlink_to("../../../../bus/pci/drivers/veth")
    line.nics.configure(["ens2f0"], SECOND, SECOND // 10)
    for _ in range(40):
        assert not line.second(1000)
    assert line.second(7_000_000)
    assert line.nics.open_bursts() == set()
    line.nics.close()


def test_what_is_usual_is_no_burst() -> None:
    watch = Watch()
    for second in range(60):
        assert not watch.add(1e9 + second % 7, None, second * SECOND)
    assert not watch.add(1.000000010e9, None, 60 * SECOND)
    assert watch.add(2e9, None, 61 * SECOND)
    assert not Watch().add(2e9, None, 0)  # neither speed nor habit: nothing is known


def test_where_the_speed_is_not_known_little_traffic_is_no_burst() -> None:
    watch = Watch()
    for second in range(60):
        watch.add(1_000.0, None, second * SECOND)
    assert not watch.add(50e6 / 8, None, 60 * SECOND)
    assert watch.add(50e6 / 8 + 1, None, 61 * SECOND)


def test_a_burst_goes_on_above_half_of_what_opened_it_and_an_hour_at_most() -> None:
    watch = Watch()
    for second in range(60):
        watch.add(1e9, None, second * SECOND)
    assert watch.add(5e9, None, 60 * SECOND)
    for second in range(61, 3_660):
        assert watch.add(0.6e9, None, second * SECOND)
    assert not watch.add(0.6e9, None, 3_660 * SECOND)
    assert not watch.add(5e9, None, 3_661 * SECOND)  # what is usual is learnt anew
    watch = Watch()
    for second in range(60):
        watch.add(1e9, None, second * SECOND)
    assert watch.add(5e9, None, 60 * SECOND)
    assert watch.add(0.4e9, None, 62 * SECOND)
    assert not watch.add(0.4e9, None, 63 * SECOND)
