"""What a network device is, what carries it, and what its counters cannot see: out of sysfs, under a given root.

Only physical ports and virtual functions make a sum; a bond, a VLAN, a bridge, a macvlan and a veth show octets that
others show too, so they name the devices below them, which have records of their own.
"""

from dataclasses import dataclass
from pathlib import Path

MAX_LOWER = 32  # members of one bond; what is beyond is not read
_STACKED = frozenset({"bond", "bridge", "vlan", "macvlan", "macvtap", "vxlan", "team", "ipvlan", "dsa", "wwan"})
# Drivers of machines that are rented: what passes the port belongs to the host below.
_PARAVIRTUAL = frozenset({"virtio_net", "ena", "gve", "vmxnet3", "hv_netvsc", "mana", "xen_netfront"})
_RDMA_CAPABLE = frozenset({"mlx4_en", "mlx5_core", "bnxt_en", "irdma", "hns3", "ionic"})


@dataclass(frozen=True, slots=True)
class Nature:
    """One device. ``kind`` is ``physical``, ``vf`` (a virtual function), or what it is made of; empty: not known."""

    kind: str = ""
    driver: str = ""
    lower: tuple[str, ...] = ()  # devices that carry it
    numa_node: int | None = None
    virtual_functions: int = 0  # carved out of it and in use


def look(classes: Path, nic: str) -> Nature:
    """Reads the device below ``sys/class/net``. What cannot be read is left open; never raises."""
    directory = classes / nic
    device = directory / "device"
    lower = _lower(directory)
    kind = _kind(directory, device)
    return Nature(
        kind=kind or ("virtual" if directory.exists() else ""),
        driver=_link(device / "driver") or ("bonding" if kind == "bond" else kind if kind in _STACKED else ""),
        lower=() if kind == "bridge" else lower,
        numa_node=_number(device / "numa_node"),
        virtual_functions=_number(device / "sriov_numvfs") or 0,
    )


def coverage(nature: Nature, *, counts_wire: bool, rdma: bool, hypervisor: bool) -> tuple[str, ...]:
    """Why the counters of a device are not all that passes it. Pure.

    Args:
        nature: of the device.
        counts_wire: the driver has counters of the port itself.
        rdma: an RDMA port belongs to it and can be read.
        hypervisor: this host is a virtual machine.
    """
    found = []
    if nature.kind == "vf":
        found.append("sriov_vf")  # others share the port
    if nature.virtual_functions and not counts_wire:
        found.append("vfs_unseen")  # what guests send through it passes without a trace here
    if not counts_wire and nature.kind in {"physical", "vf"} and (hypervisor or nature.driver in _PARAVIRTUAL):
        found.append("phy_hidden_in_vm")
    if not counts_wire and not rdma and nature.driver in _RDMA_CAPABLE:
        found.append("rdma_unseen")  # in a container, or the device was given away
    return tuple(found)


def is_virtual_machine(root: Path) -> bool:
    """Whether the CPU says that a hypervisor is below it."""
    try:
        with (root / "proc/cpuinfo").open(errors="replace") as text:
            return any(line.startswith("flags") and " hypervisor" in line for line in text.readlines(8_192))
    except OSError:
        return False


def _kind(directory: Path, device: Path) -> str:
    if (directory / "bonding").is_dir():
        return "bond"
    if (directory / "bridge").is_dir():
        return "bridge"
    for line in _text(directory / "uevent").splitlines():
        name, _, value = line.partition("=")
        if name == "DEVTYPE" and value in _STACKED:
            return value
    if (directory / "tun_flags").exists():
        return "tun"
    if (device / "physfn").exists():
        return "vf"
    if device.exists():
        return "physical"
    own, below = _number(directory / "ifindex"), _number(directory / "iflink")
    if own is not None and below is not None and own != below:
        return "macvlan" if any(directory.glob("lower_*")) else "veth"
    return ""


def _lower(directory: Path) -> tuple[str, ...]:
    try:
        names = [entry.name for entry in directory.iterdir() if entry.name.startswith("lower_")]
    except OSError:
        names = []
    found = sorted(name.removeprefix("lower_") for name in names)
    if not found:  # a kernel or a copy of the tree without the links
        found = sorted(_text(directory / "bonding/slaves").split())
    return tuple(found[:MAX_LOWER])


def _link(path: Path) -> str:
    try:
        return path.readlink().name
    except OSError:
        return ""


def _text(path: Path) -> str:
    try:
        with path.open(errors="replace") as file:
            return file.read(4_096)
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
