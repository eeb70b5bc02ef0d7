from pathlib import Path

import pytest

from agent.probe import cores

SECOND = 1_000_000_000


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8,10-11\n", {0, 1, 2, 3, 8, 10, 11}), ("5", {5}), ("", set()), ("x,2-y,7", {7}), ("0-999999999", set())],
)
def test_lists_of_cpus(text: str, cpus: set[int]) -> None:
    assert cores.parse_cpus(text) == cpus


def test_the_cpus_of_the_nics_numa_node(tmp_path: Path) -> None:
    write(tmp_path / "sys/class/net/eth0/device/numa_node", "1\n")
    write(tmp_path / "sys/class/net/veth0/device/numa_node", "-1\n")
    write(tmp_path / "sys/devices/system/node/node1/cpulist", "4-7\n")
    assert cores.numa_cpus(tmp_path, "eth0") == {4, 5, 6, 7}
    assert cores.numa_cpus(tmp_path, "veth0") == cores.numa_cpus(tmp_path, "nothing") == frozenset()


def test_a_bond_has_the_node_of_its_members_where_it_is_one(tmp_path: Path) -> None:
    write(tmp_path / "sys/devices/system/node/node1/cpulist", "4-7\n")
    for member, node in (("eth0", 1), ("eth1", 1)):
        write(tmp_path / f"sys/class/net/{member}/device/numa_node", f"{node}\n")
        (tmp_path / f"sys/class/net/bond0/lower_{member}").mkdir(parents=True)
    assert cores.numa_cpus(tmp_path, "bond0") == {4, 5, 6, 7}
    write(tmp_path / "sys/class/net/eth1/device/numa_node", "0\n")
    assert cores.numa_cpus(tmp_path, "bond0") == frozenset()


def test_the_cpus_that_serve_a_nic(tmp_path: Path) -> None:
    function = tmp_path / "sys/devices/pci/0000:01"
    for place, number, cpus in ((function / "msi_irqs", "40", "2"), (function / "msi_irqs", "41", "5\n")):
        write(place / number, "msix\n")
        write(tmp_path / f"proc/irq/{number}/effective_affinity_list", cpus)
    nic = tmp_path / "sys/class/net/eth0"
    nic.mkdir(parents=True)
    (nic / "device").symlink_to(function)
    assert cores.serving_cpus(tmp_path, "eth0") == {2, 5}
    (function / "virtio0").mkdir()
    (nic / "device").unlink()
    (nic / "device").symlink_to(function / "virtio0")
    assert cores.serving_cpus(tmp_path, "eth0") == {2, 5}
    assert cores.serving_cpus(tmp_path, "veth0") == frozenset()


def test_interrupt_time_of_those_cpus_alone(tmp_path: Path) -> None:
    write(tmp_path / "proc/stat", "cpu 1 2 3 4 5 6 7 8\ncpu0 1 2 3 4 5 10 20 8\ncpu2 9 9 9 9 9 1 30 9\nintr 5\n")
    assert cores.read_softirq_ticks(tmp_path, frozenset({2, 3})) == {2: 31}
    assert cores.read_softirq_ticks(tmp_path, frozenset()) == {}


def test_the_busiest_stretch_is_found() -> None:
    """Quiet, then busy for a second, then quiet: over the whole it was a third."""
    readings = [(n * SECOND // 4, {2: max(0, min(100, (n - 4) * 25)), 5: n}) for n in range(13)]
    assert cores.busiest(readings, SECOND) == (1.0, 2)
    whole = cores.busiest(readings, 10 * SECOND)
    assert whole is not None
    assert whole[0] == pytest.approx(1 / 3)
    assert cores.busiest(readings[:1], SECOND) is None
    assert cores.busiest([], SECOND) is None
