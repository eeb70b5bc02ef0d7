"""A contention test in the lab: it finds the uplink's rate by NIC counters, and the control in the rack is clean."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lab.configuration import SITE, Evening, Measuring
from tests.lab.installation import ROOT, Installation
from tests.lab.lab import Lab, wait_for
from tests.lab.topology import DATA_NIC, Topology

UPLINK_BPS = 100_000_000
REPEATS = 2
PERMISSION = {
    "kind": "contention",
    "site": SITE,
    "rack": "r1",
    "notice": "0s",
    "byte_cap": "1TiB",
    "approver": "V. Endor",
}


def command(installation: Installation, *words: str) -> Any:
    argv = [sys.executable, "-m", "collector", *words, "--url", installation.url, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def result_of(installation: Installation) -> dict[str, Any]:
    (found,) = command(installation, "contention", "results")
    return dict(found)


def wait_for_all(installation: Installation, runs: int, within: float) -> Sequence[dict[str, Any]]:
    def dealt_with() -> bool:
        installation.check_alive()
        done = [slot for slot in slots() if slot["category"] != "pending" and slot["server_run"] is not None]
        return len(done) == runs

    def slots() -> list[dict[str, Any]]:
        return [slot for slot in installation.items("timetable") if slot["purpose"] == "contention"]

    wait_for("all runs are dealt with", dealt_with, within=within, every=1)
    return slots()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_it_finds_the_uplink_s_rate_within_3_percent_and_the_rack_itself_is_clean(tmp_path: Path) -> None:
    """Also: refused without a permission, nothing else is tested meanwhile, and no incident is raised by it."""
    topology = Topology({"r1": 3, "r2": 3}, host_rate_bps=150_000_000, uplink_rate_bps=UPLINK_BPS)
    far = Evening.starting_at(int(time.time()) + 6 * 3600, window_s=3600, between_s=60)
    measuring = Measuring(duration="6s", slot="9s", margin="1s", permissions=[PERMISSION], delay_min_samples=50)
    with Lab(topology) as lab, Installation(lab, tmp_path, far, measuring) as installation:
        for host in topology.hosts:
            # The lab's NICs would count packets of many segments as one, with one header; real ones count the wire.
            lab.run(host.name, ["ip", "link", "set", DATA_NIC, "gso_max_segs", "1"])
        installation.start_collector()
        installation.start_agents()
        assert "no permission" in command(installation, "contention", "start", "--site", SITE, "--rack", "r2")
        words = ("--site", SITE, "--rack", "r1", "--repeats", str(REPEATS))
        (would,) = command(installation, "contention", "plan", *words)
        assert not would["ordered"]
        assert any(link["token"] == f"uplink:{SITE}/r1" and link["added_bps"] > 0 for link in would["links"])
        (ordered,) = command(installation, "contention", "start", *words)
        assert "one at a time" in command(installation, "contention", "start", *words)
        slots = wait_for_all(installation, ordered["runs"], within=90 + 10 * len(ordered["groups"]))
        time_of_last = max(slot["start_time"] for slot in slots)
        found = result_of(installation)
        print(json.dumps(found, indent=1))
        assert time_of_last
        assert (found["approver"], found["called_off"]) == ("V. Endor", "")
        result = found["result"]
        assert result["uplink_link_bps"] == pytest.approx(UPLINK_BPS, rel=0.03)
        assert (result["control"], result["at_least"]) == ("clean", False)
        assert result["delivered_ratio"] == pytest.approx(1 / 3, rel=0.1)
        assert installation.incidents() == []
        assert command(installation, "bursts") == []
