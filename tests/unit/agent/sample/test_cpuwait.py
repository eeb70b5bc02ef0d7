"""How long tasks waited for a CPU, as the kernel says it."""

from pathlib import Path

from agent.result import CpuTimes
from agent.sample.cpuwait import parse, read_cpu_times

PRESSURE = "some avg10=5.31 avg60=51.08 avg300=42.52 total=2746911207\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"
STAT = "cpu  718017 69176 180778 1297980 4879 0 87595 1032 17 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n"


def test_the_three_files_as_the_kernel_writes_them() -> None:
    total = 718017 + 69176 + 180778 + 1297980 + 4879 + 0 + 87595 + 1032
    assert parse(PRESSURE, STAT, "1000 2000 3\n") == CpuTimes(2746911207000, 1032, total, 2000)


def test_what_is_not_there_or_not_as_described_is_absent() -> None:
    nothing = CpuTimes(None, None, None, None)
    assert parse("", "", "") == nothing
    assert parse("some total=x\n", "cpu 1 2 3\n", "1\n") == nothing
    assert parse("full total=5\n", "intr 1 2 3 4 5 6 7 8 9\n", "a b c\n") == nothing


def test_read_under_a_root(tmp_path: Path) -> None:
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/pressure/cpu").write_text(PRESSURE)
    assert read_cpu_times(tmp_path) == CpuTimes(2746911207000, None, None, None)
    assert read_cpu_times(Path("/")).total_ticks is not None
