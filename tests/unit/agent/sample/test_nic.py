"""The NIC sampler on captured trees: what is read, when, and what a failing NIC costs."""

import asyncio
import shutil
from pathlib import Path

import pytest

from agent.clock import ClockStep
from agent.netdev import parse_speed
from agent.result import NicBatch, PartState
from agent.sample.device import COUNTERS, Identify, kernel_identity
from agent.sample.nic import MAX_NICS, REOPEN_NS, NicSampler
from agent.sample.series import MAX_TICKS
from bandwitness.v1.record_pb2 import COUNTER_SOURCE_NETDEV
from tests.fakes.clock import SECOND, FakeClock

GOLDEN = Path(__file__).parents[3] / "golden/host"
NET = "sys/class/net"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "host", symlinks=True))


def sampler(root: Path, clock: FakeClock, *nics: str, identify: Identify | None = None) -> NicSampler:
    made = NicSampler(root, clock, identify=identify, ethtool=None)
    made.configure(nics)
    return made


def write(root: Path, nic: str, counter: str, value: int | str) -> None:
    (root / NET / nic / "statistics" / counter).write_text(f"{value}\n")


def column(batch: NicBatch, counter: str) -> list[int | None]:
    return list(batch.values[batch.counters.index(counter)])


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_one_flush_holds_all_ticks_of_all_counters(root: Path) -> None:
    clock = FakeClock()
    start = clock.monotonic_ns()
    nics = sampler(root, clock, "ens1f0")
    nics.tick()
    clock.move(SECOND)
    write(root, "ens1f0", "rx_bytes", 123_456_999)
    nics.tick()
    assert nics.drain() == [
        NicBatch(
            nic="ens1f0",
            counters=COUNTERS,
            base_time_ns=clock.wall_ns() - SECOND,
            base_monotonic_ns=start,
            interval_ns=SECOND,
            tick_times_ns=(start, start + SECOND),
            values=(
                (123_456_789, 123_456_999),
                (246_913_578, 246_913_578),
                (370_370_367, 370_370_367),
                (493_827_156, 493_827_156),
                (5, 5),
                (6, 6),
                (0, 0),
                (1, 1),
                (2, 2),
                (3, 3),
                (4, 4),
                (5, 5),
            ),
            speed_bps=100_000_000_000,
            mtu_bytes=9000,
            carrier=True,
            carrier_changes=2,
            source=COUNTER_SOURCE_NETDEV,
            kind="virtual",  # the tree has no device behind it
        )
    ]
    assert nics.drain() == []
    assert nics.state() == PartState("nic", True, "ok")
    nics.close()


@pytest.mark.parametrize("step_ns", [-2 * SECOND, 7_200 * SECOND])
def test_case_32_rate_over_a_stepped_clock(root: Path, step_ns: int) -> None:
    clock = FakeClock()
    nics = sampler(root, clock, "ens1f0")
    write(root, "ens1f0", "tx_bytes", 1_000)
    nics.tick()
    clock.move(SECOND)
    clock.step(step_ns)
    write(root, "ens1f0", "tx_bytes", 125_001_000)
    nics.tick()
    assert clock.tick() == (ClockStep(wall_time_ns=clock.wall_ns(), size_ns=step_ns),)
    (batch,) = nics.drain()
    first, second = column(batch, "tx_bytes")
    assert first is not None
    assert second is not None
    elapsed_ns = batch.tick_times_ns[1] - batch.tick_times_ns[0]
    assert (second - first) * 8 * SECOND // elapsed_ns == 1_000_000_000
    # All times of the flush share the offset after the step: the last tick was just now.
    assert batch.base_time_ns + elapsed_ns == clock.wall_ns()
    nics.close()


@pytest.mark.parametrize("text", ["-1", "0", "65535", "4294967295", "", "unknown"])
def test_case_27_port_speed_unknown(root: Path, text: str) -> None:
    (root / NET / "ens1f0/speed").write_text(text + "\n")
    nics = sampler(root, FakeClock(), "ens1f0")
    nics.tick()
    assert nics.drain()[0].speed_bps is None
    nics.close()


def test_case_27_a_speed_is_in_bits_per_second() -> None:
    assert parse_speed("40000\n") == 40_000_000_000  # 5,000,000,000 bytes/s


def test_case_27_einval_from_the_kernel_is_no_speed() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        Path("/sys/class/net/lo/speed").read_text()
    nics = NicSampler(Path("/"), FakeClock(), of_host=())
    nics.configure(["lo"])
    nics.tick()
    (batch,) = nics.drain()
    assert batch.speed_bps is None
    assert batch.fault == ""
    assert all(isinstance(value, int) for (value,) in batch.values)  # the other figures are there
    nics.close()


def test_devices_below_a_named_one_are_read_too(root: Path) -> None:
    nics = sampler(root, FakeClock(), "bond0.100", "br0")
    nics.tick()
    # Not veth7: the ports of a bridge are somebody else's.
    assert [batch.nic for batch in nics.drain()] == ["bond0.100", "br0", "bond0", "ens2f0", "ens2f1"]
    nics.close()


def test_a_counter_that_the_kernel_does_not_have_is_absent(root: Path) -> None:
    nics = sampler(root, FakeClock(), "veth7")
    nics.tick()
    (batch,) = nics.drain()
    assert column(batch, "rx_crc_errors") == [None]
    assert column(batch, "rx_fifo_errors") == [3]
    assert batch.fault == ""
    nics.close()


def test_a_counter_that_cannot_be_read_costs_only_itself(root: Path) -> None:
    write(root, "ens1f0", "rx_crc_errors", "n/a")
    nics = sampler(root, FakeClock(), "ens1f0")
    nics.tick()
    (batch,) = nics.drain()
    assert column(batch, "rx_crc_errors") == [None]
    assert column(batch, "rx_bytes") == [123_456_789]
    nics.close()


def test_a_missing_nic_costs_only_itself(root: Path) -> None:
    nics = sampler(root, FakeClock(), "ens9", "ens1f0")
    nics.tick()
    missing, present = nics.drain()
    assert missing.nic == "ens9"
    assert missing.values == ((None,),) * len(COUNTERS)
    assert missing.fault == "no network device ens9 in this network namespace"
    assert (missing.speed_bps, missing.mtu_bytes, missing.carrier) == (None, None, None)
    assert present.fault == ""
    assert column(present, "rx_bytes") == [123_456_789]
    assert nics.state() == PartState("nic", True, "nic_unreadable", missing.fault)
    nics.close()


def test_a_device_that_leaves_and_comes_back_is_opened_again(root: Path) -> None:
    clock = FakeClock()
    nics = sampler(root, clock, "ens1f0")
    nics.tick()
    write(root, "ens1f0", "rx_bytes", "")  # the open file of a device that is gone gives nothing
    away = root / "away"
    (root / NET / "ens1f0").rename(away)
    for _ in range(2):
        clock.move(SECOND)
        nics.tick()
    away.rename(root / NET / "ens1f0")
    write(root, "ens1f0", "rx_bytes", 7)
    clock.move(SECOND)
    nics.tick()
    (batch,) = nics.drain()
    # In between /proc/net/dev, which still names it in this tree, is as good.
    assert column(batch, "rx_bytes") == [123_456_789, None, 123_456_789, 7]
    assert column(batch, "rx_crc_errors") == [3, None, None, 3]
    assert batch.fault == ""
    assert len(batch.tick_times_ns) == 4
    nics.close()


def test_a_renamed_device_is_not_read_under_its_old_name_for_ever(root: Path) -> None:
    clock = FakeClock()
    nics = sampler(root, clock, "ens1f0")
    nics.tick()
    (root / NET / "ens1f0").rename(root / NET / "ens9")  # the open files go with it
    shutil.copytree(root / NET / "ens2f0", root / NET / "ens1f0")
    for _ in range(REOPEN_NS // SECOND):
        clock.move(SECOND)
        nics.tick()
    (batch,) = nics.drain()
    assert column(batch, "rx_bytes")[0] == 123_456_789
    assert column(batch, "rx_bytes")[-1] == 1_000
    nics.close()


@pytest.mark.parametrize("known", [(99, "02:00:00:00:00:02"), (2, "02:00:00:00:00:99")])
def test_sysfs_of_another_namespace_is_not_believed(root: Path, known: tuple[int, str]) -> None:
    write(root, "ens1f0", "rx_bytes", 114_255_252_708)  # the host's; /proc/net/dev has ours
    nics = sampler(root, FakeClock(), "ens1f0", identify=lambda _: known)
    nics.tick()
    (batch,) = nics.drain()
    assert column(batch, "rx_bytes") == [123_456_789]
    assert column(batch, "rx_crc_errors") == [None]
    assert batch.speed_bps is None
    assert nics.state().state == "wrong_sysfs"
    assert nics.state().working
    nics.close()


def test_a_device_that_only_sysfs_shows_is_missing(root: Path) -> None:
    nics = sampler(root, FakeClock(), "ens2f0", identify=lambda _: None)
    nics.tick()
    (batch,) = nics.drain()
    assert batch.fault == "no network device ens2f0 in this network namespace"
    assert not nics.state().working
    nics.close()


def test_the_kernels_identity_of_a_device() -> None:
    assert kernel_identity("lo") == (
        int(Path("/sys/class/net/lo/ifindex").read_text()),
        Path("/sys/class/net/lo/address").read_text().strip(),
    )
    assert kernel_identity("no-such-device") is None


async def test_ticks_come_once_an_interval_and_a_late_one_is_missed(root: Path) -> None:
    clock = FakeClock()
    start = clock.monotonic_ns()
    nics = sampler(root, clock, "ens1f0")
    running = asyncio.create_task(nics.run())
    await clock.advance(2 * SECOND)
    clock.move(2 * SECOND + SECOND // 2)  # the process did not run: one tick late by 1.5 s, one never came
    await clock.advance(SECOND // 2)
    running.cancel()
    (batch,) = nics.drain()
    assert [(time - start) / SECOND for time in batch.tick_times_ns] == [0, 1, 2, 4.5, 5]
    assert nics.state() == PartState("nic", True, "ok", "1 ticks missed")
    nics.close()


def test_a_new_plan_does_not_break_what_goes_on(root: Path) -> None:
    clock = FakeClock()
    nics = sampler(root, clock, "ens1f0", "ens2f0")
    nics.tick()
    nics.configure(["ens1f0"])
    clock.move(SECOND)
    nics.tick()
    (batch,) = nics.drain()
    assert (batch.nic, len(batch.tick_times_ns)) == ("ens1f0", 2)
    nics.close()


def test_ticks_that_nobody_drains_are_bounded_and_counted(root: Path) -> None:
    nics = sampler(root, FakeClock(), "ens1f0")
    for _ in range(MAX_TICKS + 5):
        nics.tick()
    (batch,) = nics.drain()
    assert len(batch.tick_times_ns) == MAX_TICKS
    assert nics.state() == PartState("nic", True, "ok", "5 ticks dropped")
    nics.close()


def test_nics_over_the_limit_are_named_not_read(root: Path) -> None:
    before = descriptors()
    nics = sampler(root, FakeClock(), *(f"nic{number}" for number in range(MAX_NICS + 2)))
    nics.tick()
    assert len(nics.drain()) == MAX_NICS
    assert f"2 devices over the limit of {MAX_NICS}" in nics.state().detail
    nics.close()
    assert descriptors() == before


def test_descriptors_are_kept_and_given_back(root: Path) -> None:
    before = descriptors()
    clock = FakeClock()
    nics = sampler(root, clock, "ens1f0", "bond0")
    for _ in range(3 * REOPEN_NS // SECOND):
        clock.move(SECOND)
        nics.tick()
    assert descriptors() == before + 4 * len(COUNTERS)
    nics.configure(["ens1f0"])
    assert descriptors() <= before + len(COUNTERS)
    nics.close()
    assert descriptors() == before


@pytest.mark.parametrize("speed", ["25000", "-1"])
def test_a_burst_is_told_by_nic_and_direction_and_only_where_the_lines_speed_is_known(root: Path, speed: str) -> None:
    clock = FakeClock()
    (root / NET / "ens1f0" / "speed").write_text(f"{speed}\n")
    reader = sampler(root, clock, "ens1f0")
    speed_bytes = 25_000_000_000 // 8
    carried = 0
    seen = []
    for share in (0.01, 0.01, 0.5, 0.5, 0.01, 0.01, 0.01, 0.01):
        carried += int(share * speed_bytes)
        write(root, "ens1f0", "tx_bytes", carried)
        reader.tick()
        reader.drain()  # the speed is read with it
        seen.append(reader.open_bursts())
        clock.move(SECOND)
    burst = {("ens1f0", "transmit")} if speed == "25000" else set()
    assert seen[:4] == [set(), set(), burst, burst]
    assert seen[-1] == set()
    reader.close()
