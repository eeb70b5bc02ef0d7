"""/proc/net/dev: names with colons, missing spaces, lines that fail."""

from pathlib import Path

import pytest

from agent import netdev

GOLDEN = Path(__file__).parents[2] / "golden/host/proc/net/dev"
TITLES = "Inter-|   Receive\n face |bytes\n"


def test_case_31_colon_inside_an_interface_name() -> None:
    counters = netdev.parse(GOLDEN.read_text())
    assert list(counters) == ["lo", "ibr10:30", "ibr10", "eth0", "ens1f0"]  # and not bad0, with a word for a number
    assert counters["ibr10"]["rx_bytes"] == 161_766_629_091
    assert counters["ibr10:30"]["rx_bytes"] == 0
    assert counters["eth0"] == {
        "rx_bytes": 874_354_587,
        "rx_packets": 1_036_395,
        "rx_errors": 1,
        "tx_bytes": 83_264_127,
        "tx_packets": 401_220,
        "tx_errors": 2,
        "tx_dropped": 3,
    }


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
    assert list(netdev.parse(TITLES + line + "\n" + good + "\n")) == ["lo"]


def test_nothing_but_titles_is_no_device() -> None:
    assert netdev.parse(TITLES) == {}
    assert netdev.parse("") == {}


def test_the_running_kernels_file_is_read_whole() -> None:
    text = Path("/proc/net/dev").read_text()
    assert len(netdev.parse(text)) == len(text.splitlines()) - 2
    assert "lo" in netdev.parse(text)
