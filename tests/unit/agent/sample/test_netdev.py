"""/proc/net/dev: names with colons, missing spaces, lines that fail."""

from pathlib import Path

import pytest

from agent.sample import netdev

GOLDEN = Path(__file__).parents[3] / "golden/host/proc/net/dev"
TITLES = "Inter-|   Receive\n face |bytes\n"


def test_case_31_colon_inside_an_interface_name() -> None:
    read = netdev.parse(GOLDEN.read_text())
    assert list(read.counters) == ["lo", "ibr10:30", "ibr10", "eth0", "ens1f0"]
    assert read.counters["ibr10"]["rx_bytes"] == 161_766_629_091
    assert read.counters["ibr10:30"]["rx_bytes"] == 0
    assert read.counters["eth0"] == {
        "rx_bytes": 874_354_587,
        "rx_packets": 1_036_395,
        "rx_errors": 1,
        "tx_bytes": 83_264_127,
        "tx_packets": 401_220,
        "tx_errors": 2,
        "tx_dropped": 3,
    }
    assert read.faults == ("  bad0: 12 34 fifty",)


@pytest.mark.parametrize(
    "line",
    [
        "eth0",
        "eth0:",
        "eth0: " + "1 " * 15,  # one column short
        "eth0: " + "1 " * 17,
        "eth0: -1 " + "1 " * 15,
        ": " + "1 " * 16,
        "eth 0: " + "1 " * 16,
    ],
)
def test_a_line_that_fails_costs_only_itself(line: str) -> None:
    good = "  lo: " + " ".join(str(number) for number in range(16))
    read = netdev.parse(TITLES + line + "\n" + good + "\n")
    assert list(read.counters) == ["lo"]
    assert read.faults == (line,)


def test_nothing_but_titles_is_no_device_and_no_fault() -> None:
    assert netdev.parse(TITLES) == netdev.NetDev({}, ())
    assert netdev.parse("") == netdev.NetDev({}, ())


def test_the_running_kernels_file_has_no_faults() -> None:
    read = netdev.parse(Path("/proc/net/dev").read_text())
    assert read.faults == ()
    assert "lo" in read.counters
