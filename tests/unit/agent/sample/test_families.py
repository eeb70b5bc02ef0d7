"""Whole hosts, one for each family of drivers: all that is recorded of them, word for word."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent.record.columns import fill_nic
from agent.result import NicBatch
from agent.sample.nic import NicSampler
from bandwitness.identity import canonical, short_id
from bandwitness.v1 import record_pb2 as pb
from collector.analysis.octets import Octets, meaning_of, wire_octets
from collector.decode.columns import nic as decode_nic
from collector.model import CounterSetRow, NicSamples, Source
from tests.fakes.clock import SECOND, FakeClock
from tests.fakes.nic_tree import FakeDriver, build, raise_counters

TREES = Path(__file__).parents[3] / "golden/nic"
REFRESH = "BANDWITNESS_REFRESH_GOLDEN"  # set it to write the expected records anew; review them as code
ASKED = {
    "mlx5_roce": ["ens1f0np0"],
    "bnxt": ["enp65s0f0"],
    "ice": ["ens2f0"],
    "intel_older": ["eno1", "eno2"],
    "ena_vm": ["ens5"],
    "virtio_vm": ["eth0"],
    "bond_vlan_bridge": ["bond0.100", "br0", "mv0", "veth7"],
    "sriov_vf": ["ens8v1"],
    "infiniband": ["ibp1s0"],
}


class Host:
    """One host of the trees, and its sampler."""

    def __init__(self, family: str, root: Path) -> None:
        self.root = root
        self.driver: FakeDriver = build(TREES / f"{family}.tree", root)
        self.clock = FakeClock()
        self.sampler = NicSampler(root, self.clock, identify=None, ethtool=self.driver)
        self.sampler.configure(ASKED[family])

    def look(self) -> list[NicBatch]:
        """One tick, and the drivers."""
        self.sampler.tick()
        self.sampler.ask_drivers()
        return self.sampler.drain()

    def second(self) -> list[NicBatch]:
        """A second later."""
        self.clock.move(SECOND)
        return self.look()


@pytest.fixture
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(request.param, tmp_path)


def decoded(batch: NicBatch, position: int) -> NicSamples:
    """As the collector reads the record."""
    definition = canonical(pb.CounterSet(name=batch.counters))
    columns = pb.NicColumns()
    fill_nic(columns, batch, short_id(definition))
    source = Source("n1", bytes(16), pb.BATCH_CLASS_TELEMETRY, position, 0, position)
    read = pb.NicColumns.FromString(columns.SerializeToString())
    return decode_nic(source, "n1", read, CounterSetRow(1, tuple(batch.counters), definition))


def _shown(batch: NicBatch) -> dict[str, Any]:
    counters = {}
    for name, row in zip(batch.counters, batch.values, strict=True):
        meaning = meaning_of(batch.source, batch.driver, name)
        words = "not of the vocabulary" if meaning is None else meaning.name
        if meaning is not None and meaning.priority is not None:
            words += f" of priority {meaning.priority}"
        counters[name] = f"{', '.join(map(str, row))} = {words}"
    attributes = {
        name: getattr(batch, name)
        for name in (
            "nic", "driver", "device", "kind", "lower", "link_layer", "coverage", "numa_node", "speed_bps", "mtu_bytes",
            "carrier", "carrier_changes", "full_duplex", "interval_ns", "fault",
        )
        if getattr(batch, name) not in (None, "", ())
    }  # fmt: skip
    return {"source": pb.CounterSource.Name(batch.source), **attributes, "counters": counters}  # type: ignore[arg-type]


def octets(host: Host, first: list[NicBatch], by: dict[str, int], nic: str) -> list[Octets]:
    raise_counters(host.root, host.driver, by)
    both = [(1, first), (2, host.second())]
    return wire_octets([decoded(batch, at) for at, batches in both for batch in batches if batch.nic == nic])


@pytest.mark.parametrize(("host", "family"), [(name, name) for name in ASKED], indirect=["host"])
def test_all_that_is_recorded_of_a_host(host: Host, family: str) -> None:
    found = {"records": [_shown(batch) for batch in host.look()], "state": host.sampler.state().detail}
    text = json.dumps(found, indent=1) + "\n"
    expected = TREES / f"{family}.json"
    if os.environ.get(REFRESH):
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")
    host.sampler.close()


@pytest.mark.parametrize("host", ["mlx5_roce"], indirect=True)
def test_case_29_a_checkpoint_over_rdma_is_seen(host: Host) -> None:
    """3 Mbit/s by the kernel, 380 Gbit/s by the RDMA port; the port's own count holds both."""
    rdma = "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"
    by = {
        "sys/class/net/ens1f0np0/statistics/tx_bytes": 375_000,
        rdma: 11_875_000_000,
        "ethtool ens1f0np0 tx_bytes_phy": 47_500_375_000,
    }
    (step,) = octets(host, host.look(), by, "ens1f0np0")
    assert step.transmit_bytes == 47_500_375_000
    host.driver.fault["ens1f0np0"] = 5  # the driver fails: the other two are as good
    (step,) = octets(host, host.second(), by, "ens1f0np0")
    assert step.transmit_bytes == 47_500_375_000
    assert host.sampler.units["ens1f0np0"].coverage == ()
    host.sampler.close()


@pytest.mark.parametrize("host", ["bnxt"], indirect=True)
def test_case_29_bytes_are_bytes_where_the_driver_counts_them(host: Host) -> None:
    del host.driver.statistics["enp65s0f0"]
    by = {
        "sys/class/net/enp65s0f0/statistics/rx_bytes": 1_000,
        "sys/class/infiniband/bnxt_re0/ports/1/hw_counters/rx_bytes": 2_000,
    }
    (step,) = octets(host, host.look(), by, "enp65s0f0")
    assert step.receive_bytes == 3_000
    host.sampler.close()


@pytest.mark.parametrize("host", ["infiniband"], indirect=True)
def test_case_25_infiniband_by_its_64_bit_words(host: Host) -> None:
    words = "sys/class/infiniband/mlx5_2/ports/1/counters_ext/port_xmit_data_64"
    (step,) = octets(host, host.look(), {words: 781_250_000}, "ibp1s0")
    assert step.transmit_bytes == 3_125_000_000  # 25 Gbit/s
    host.sampler.close()


@pytest.mark.parametrize("host", ["bond_vlan_bridge"], indirect=True)
def test_only_ports_make_a_sum(host: Host) -> None:
    batches = [batch for batch in host.look() if batch.source == pb.COUNTER_SOURCE_NETDEV]
    kinds = {batch.nic: (batch.kind, tuple(batch.lower)) for batch in batches}
    assert kinds == {
        "bond0.100": ("vlan", ("bond0",)),
        "br0": ("bridge", ()),
        "mv0": ("macvlan", ("ens3f0",)),
        "veth7": ("veth", ()),
        "bond0": ("bond", ("ens3f0", "ens3f1")),
        "ens3f0": ("physical", ()),
        "ens3f1": ("physical", ()),
    }
    host.sampler.close()


@pytest.mark.parametrize(
    ("host", "nic", "coverage"),
    [
        ("sriov_vf", "ens8v1", ("sriov_vf", "phy_hidden_in_vm", "rdma_unseen")),
        ("virtio_vm", "eth0", ("phy_hidden_in_vm",)),
        ("ena_vm", "ens5", ("phy_hidden_in_vm",)),
        ("mlx5_roce", "ens1f0np0", ()),
    ],
    indirect=["host"],
)
def test_case_29_what_cannot_be_seen_is_said(host: Host, nic: str, coverage: tuple[str, ...]) -> None:
    host.look()
    assert host.sampler.units[nic].coverage == coverage
    said = f"{nic}: coverage partial" in host.sampler.state().detail
    assert said == bool(coverage)
    host.sampler.close()
