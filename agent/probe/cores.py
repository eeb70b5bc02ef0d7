"""The CPUs beside a NIC: those of its NUMA node, and those that serve its interrupts and how busy softirqs keep them.

All below an injected root; what cannot be read is absent.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.probe.gates import CLOCK_TICKS_PER_SECOND

MAX_CPUS = 8_192
_IRQ, _SOFTIRQ = 6, 7  # columns of a cpu line of /proc/stat, the name included


def parse_cpus(text: str) -> frozenset[int]:
    """A list as the kernel writes it: ``0-3,8,10-11``. What does not parse is left out."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit() and int(last or first) < MAX_CPUS:
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def carriers(root: Path, nic: str) -> list[Path]:
    """Directories in ``sys/class/net`` of a NIC and of those below it (a bond's members)."""
    device = root / "sys/class/net" / nic
    below = sorted(device.glob("lower_*"))
    return [device, *(root / "sys/class/net" / link.name.removeprefix("lower_") for link in below)]


def numa_cpus(root: Path, nic: str) -> frozenset[int]:
    """CPUs of the NUMA node that the NIC is attached to; empty: the kernel does not say, or there is one node only."""
    nodes = {_text(device / "device/numa_node").strip() for device in carriers(root, nic)} - {"", "-1"}
    if len(nodes) != 1 or not all(node.isdigit() for node in nodes):
        return frozenset()
    return parse_cpus(_text(root / f"sys/devices/system/node/node{nodes.pop()}/cpulist"))


def serving_cpus(root: Path, nic: str) -> frozenset[int]:
    """CPUs that the interrupts of a NIC go to; empty for devices without (veth, bridges)."""
    numbers = {
        entry.name
        for device in carriers(root, nic)
        for place in ("device/msi_irqs", "device/../msi_irqs")  # of the PCI function; a virtio device has it above
        for entry in _entries(device / place)
        if entry.name.isdigit()
    }
    found: frozenset[int] = frozenset()
    for number in numbers:
        irq = root / "proc/irq" / number
        found |= parse_cpus(_text(irq / "effective_affinity_list") or _text(irq / "smp_affinity_list"))
    return found


def read_softirq_ticks(root: Path, cpus: frozenset[int]) -> dict[int, int]:
    """Ticks that hard and soft interrupts have taken of each of these CPUs (``/proc/stat``)."""
    ticks: dict[int, int] = {}
    if not cpus:
        return ticks
    for line in _text(root / "proc/stat").splitlines():
        fields = line.split()
        name = fields[0] if fields else ""
        if not name.startswith("cpu") or not name[3:].isdigit() or len(fields) <= _SOFTIRQ:
            continue
        if int(name[3:]) in cpus and fields[_IRQ].isdigit() and fields[_SOFTIRQ].isdigit():
            ticks[int(name[3:])] = int(fields[_IRQ]) + int(fields[_SOFTIRQ])
    return ticks


def busiest(readings: Sequence[tuple[int, Mapping[int, int]]], window_ns: int) -> tuple[float, int] | None:
    """Share of a core that the busiest (thread or CPU) took over any stretch of ``window_ns``, and its number.

    Args:
        readings: (monotonic ns, ticks by number), in order. One that appears later had none before.
        window_ns: a stretch is as long, or a little longer; the whole where that is shorter.

    Returns:
        None: there is nothing to compare.
    """
    best: tuple[float, int] | None = None
    start = 0
    for end in range(1, len(readings)):
        now_ns, last = readings[end]
        while start + 1 < end and now_ns - readings[start + 1][0] >= window_ns:
            start += 1
        before_ns, first = readings[start]
        if now_ns - before_ns < window_ns and end + 1 < len(readings):
            continue
        if now_ns <= before_ns:
            continue
        for number, ticks in last.items():
            ratio = (ticks - first.get(number, 0)) / CLOCK_TICKS_PER_SECOND / ((now_ns - before_ns) / 1e9)
            if best is None or ratio > best[0]:
                best = (ratio, number)
    return best


def _entries(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
