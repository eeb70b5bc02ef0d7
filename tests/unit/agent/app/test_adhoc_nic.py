"""``probe nic``: what a look at NICs says."""

import io
import json
from pathlib import Path

import pytest

from agent.app.adhoc import UsageError
from agent.app.adhoc_nic import lines, names_of, nic, shown_rate
from tests.fakes.clock import SECOND, FakeClock
from tests.fakes.nic_tree import FakeDriver, build, raise_counters

TREES = Path(__file__).parents[3] / "golden/nic"
RDMA = "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"


class Busy(FakeClock):
    """Traffic for one second comes with each sleep."""

    def __init__(self, root: Path, driver: FakeDriver) -> None:
        super().__init__()
        self._root, self._driver, self.looks = root, driver, 0

    async def sleep_until(self, monotonic_ns: int) -> None:
        if self.looks:
            self.move(SECOND)
            more = 10 if self.looks == 1 else 1
            by = {
                "sys/class/net/ens1f0np0/statistics/tx_bytes": 25_000_000 * more,
                RDMA: 118_750_000 * more,
                "ethtool ens1f0np0 tx_bytes_phy": 500_000_000 * more,
                "ethtool ens1f0np0 rx_discards_phy": 3,
                "ethtool ens1f0np0 rx_prio3_pause_duration": 250_000,
            }
            raise_counters(self._root, self._driver, by)
        self.looks += 1


async def look(root: Path, *, as_json: bool) -> tuple[int, str]:
    driver = build(TREES / "mlx5_roce.tree", root)
    out = io.StringIO()
    clock = Busy(root, driver)
    code = await nic(
        [], out, count=2, interval_ns=SECOND, as_json=as_json, root=root, clock=clock, identify=None, ask=driver
    )
    return code, out.getvalue()


async def test_rates_peaks_errors_pauses_and_the_share_of_rdma(tmp_path: Path) -> None:
    code, text = await look(tmp_path, as_json=True)
    assert code == 0
    (first,), (second,) = (json.loads(line)["nics"] for line in text.splitlines())
    assert first["transmit_bps"] == 40e9
    assert (second["transmit_bps"], second["transmit_peak_bps"], second["use_ratio"]) == (4e9, 40e9, 0.01)
    assert second["rdma_ratio"] == 0.95
    assert second["errors"] == {"receive_discards": 3}
    assert second["pause_ratio"] == 0.25
    assert second["sources"] == ["netdev", "rdma", "ethtool"]


async def test_a_nic_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no network device nosuch"):
        await nic(["nosuch"], io.StringIO(), count=None, interval_ns=1, as_json=False, root=tmp_path)


async def test_the_table_reads_well(tmp_path: Path) -> None:
    code, text = await look(tmp_path, as_json=False)
    assert code == 0
    titles, row = text.splitlines()[:2]
    assert " ".join(titles.split()) == "NIC RECEIVE SEND PEAK RX PEAK TX USE RDMA ERRORS PAUSED REMARKS"
    assert " ".join(row.split()) == (
        "ens1f0np0 0 bit/s 40 Gbit/s 0 bit/s 40 Gbit/s 10.0 % 95.0 % 3 25.0 % receive_discards +3"
    )
    assert lines([])[0].startswith("NIC")


def test_rates_for_people() -> None:
    assert [shown_rate(bps) for bps in (None, 5.0, 1234.0, 999_900_000.0, 4e11)] == [
        "-", "5 bit/s", "1.23 kbit/s", "1000 Mbit/s", "400 Gbit/s"
    ]  # fmt: skip


def test_ports_come_first_and_nothing_at_all_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no network device"):
        names_of(tmp_path)
    build(TREES / "bond_vlan_bridge.tree", tmp_path)
    assert names_of(tmp_path)[:3] == ["ens3f0", "ens3f1", "bond0"]
