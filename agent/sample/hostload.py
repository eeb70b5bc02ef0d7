"""Memory and CPU time of our own process, from ``/proc`` under a given root.

``statm`` and ``stat`` instead of psutil: two small reads, and exact against a captured tree.
"""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """Resident memory in bytes; user and system time since the process's start, all threads, to a clock tick."""

    resident_memory_bytes: int
    cpu_time_ns: int


def parse(statm: str, stat: str, *, page_bytes: int, ticks_per_second: int) -> ProcessLoad:
    """Reads the text of both files (proc(5)). Pure.

    Raises:
        ValueError: not those files.
    """
    try:
        resident_pages = int(statm.split()[1])
        # The second field is the program's name in parentheses and may hold spaces and parentheses of its own.
        fields = stat.rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])  # utime, stime: fields 14 and 15 of the line
    except IndexError:
        raise ValueError("statm or stat is shorter than proc(5) says") from None
    return ProcessLoad(resident_pages * page_bytes, ticks * 1_000_000_000 // ticks_per_second)


def read_process(root: Path) -> ProcessLoad | None:
    """What this process costs; None where ``/proc`` does not say."""
    directory = root / "proc/self"
    try:
        return parse(
            (directory / "statm").read_text(),
            (directory / "stat").read_text(),
            page_bytes=os.sysconf("SC_PAGE_SIZE"),
            ticks_per_second=os.sysconf("SC_CLK_TCK"),
        )
    except (OSError, ValueError):
        return None
