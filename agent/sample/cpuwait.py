"""How long tasks waited for a CPU, from ``/proc`` under a given root.

- ``/proc/pressure/cpu``, "some total": µs in which some task of the host waited (Documentation/accounting/psi.rst).
- ``/proc/stat``, first line, eighth figure: ticks in which the hypervisor ran another guest (proc(5)). Guest time is in
  user time already and is not counted twice.
- ``/proc/self/schedstat``, second figure: ns in which our main thread could run and waited
  (Documentation/scheduler/sched-stats.rst).
"""

from pathlib import Path

from agent.result import CpuTimes

_STAT_FIELDS = 8  # user nice system idle iowait irq softirq steal


def parse(pressure: str, stat: str, schedstat: str) -> CpuTimes:
    """Reads the three texts; each is empty where the file could not be read. What is not as described is absent."""
    steal, total = _steal(stat)
    return CpuTimes(_pressure_ns(pressure), steal, total, _own_wait_ns(schedstat))


def _pressure_ns(text: str) -> int | None:
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if kind == "some" and total.isdecimal():
            return int(total) * 1000
    return None


def _steal(text: str) -> tuple[int | None, int | None]:
    name, *fields = text.partition("\n")[0].split()[: _STAT_FIELDS + 1] or [""]
    if name != "cpu" or len(fields) < _STAT_FIELDS or not all(field.isdecimal() for field in fields):
        return None, None
    ticks = [int(field) for field in fields]
    return ticks[-1], sum(ticks)


def _own_wait_ns(text: str) -> int | None:
    fields = text.split()
    return int(fields[1]) if len(fields) == 3 and fields[1].isdecimal() else None


def read_cpu_times(root: Path) -> CpuTimes:
    """What the kernel says now; what it does not say is None (no PSI, a container that hides it)."""
    return parse(*(_read(root / "proc" / name) for name in ("pressure/cpu", "stat", "self/schedstat")))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
