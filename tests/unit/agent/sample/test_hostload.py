"""Memory and CPU time of a process from /proc."""

import resource
from pathlib import Path

import pytest

from agent.sample.hostload import ProcessLoad, parse, read_process

STATM = "30311 12800 4100 2 0 21000 0\n"
STAT = "4242 (a (b) c) S 1 4242 4242 0 -1 4194304 900 0 0 0 321 79 5 6 20 0 9 0 100 1234 12800\n"


def test_figures_come_in_bytes_and_nanoseconds() -> None:
    load = parse(STATM, STAT, page_bytes=4096, ticks_per_second=100)
    assert load == ProcessLoad(resident_memory_bytes=12_800 * 4096, cpu_time_ns=4_000_000_000)


@pytest.mark.parametrize(("statm", "stat"), [("", STAT), ("1 x", STAT), (STATM, ""), (STATM, "1 (a) S 1 2")])
def test_other_text_is_refused(statm: str, stat: str) -> None:
    with pytest.raises(ValueError, match=r"proc\(5\)|invalid literal"):
        parse(statm, stat, page_bytes=4096, ticks_per_second=100)


def test_our_own_process_from_the_kernel() -> None:
    load = read_process(Path("/"))
    again = read_process(Path("/"))
    assert load is not None
    assert again is not None
    # The kernel sums both figures from per-CPU counters, a little apart.
    assert 1_000_000 < load.resident_memory_bytes < 2 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert again.cpu_time_ns >= load.cpu_time_ns > 0


def test_without_proc_there_is_no_load(tmp_path: Path) -> None:
    assert read_process(tmp_path) is None
