"""A real burst and a real iperf3: somebody else's checkpoint begins while a test of ours runs, and nobody says so."""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.lab.configuration import Evening, Measuring, window_s
from tests.lab.installation import Installation
from tests.lab.lab import Lab, wait_for
from tests.lab.topology import Topology
from tests.lab.writers import checkpoint, sinks

MB = 1_000_000
# The uplink is shaped to 200 Mbit/s, which no NIC of the lab knows by itself.
MEASURING = Measuring(planned=2, duration="10s", slot="12s", speed="200M")
STARTED_S = 30  # until the agents have their plan
SEEN_S = 4  # a read a second: the first whole second of it is known after two at most, and then 1 s to be gone


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_burst_that_nobody_marked_stops_a_running_test(tmp_path: Path) -> None:
    topology = Topology({"r1": 1, "r2": 1})
    length_s = window_s(topology, MEASURING)
    evening = Evening.starting_at(int(time.time()) + STARTED_S, window_s=length_s, between_s=1)
    with Lab(topology) as lab, Installation(lab, tmp_path, evening, MEASURING) as installation:
        installation.start_collector()
        installation.start_agents()
        # The first one: what goes in the direction of a test of ours, or did until just now, is no burst.
        slot = min(installation.timetable(), key=lambda one: str(one["start_time"]))
        begun = _epoch(slot["start_time"]) + 2  # in the midst of it
        wait_for("a test of ours", lambda: time.time() >= begun, within=120)
        there, here = _ends(slot)
        assert _tests(lab, here)
        assert _tests(lab, there)
        with sinks(lab, [there]):
            writing = checkpoint(lab, [(here, there)], 200 * MB)
            started = time.monotonic()
            wait_for("the end of our test", lambda: not _tests(lab, here) + _tests(lab, there), within=SEEN_S)
            print(f"\ngone {time.monotonic() - started:.2f} s after the writer was started")
            writing.join(within=60)
        wait_for("its record", lambda: _again(installation, slot)["category"] != "pending", within=20)
        after = _again(installation, slot)
        assert after["outcome"] == "aborted_burst"
        # Whoever saw it first: the checkpoint leaves one end and arrives at the other.
        ends = {here: "transmit", there: "receive"}
        runs = [after[end] for end in ("client_run", "server_run") if after[end]]
        told = {run["source"]["agent_id"]: run["outcome_detail"] for run in runs if run["gates_tripped"] == ["burst"]}
        print(told)
        assert told
        for node, detail in told.items():
            assert detail.startswith(f"burst on d0 ({ends[node]})")


def _ends(slot: dict[str, Any]) -> tuple[str, str]:
    """Who sends, who receives."""
    client, server = str(slot["client"]["node"]), str(slot["server"]["node"])
    return (server, client) if slot["reverse"] else (client, server)


def _again(installation: Installation, slot: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in installation.timetable() if one["slot_id"] == slot["slot_id"])


def _tests(lab: Lab, node: str) -> int:
    """How many iperf3 processes a node runs."""
    found = lab.run(None, ["ip", "netns", "pids", node]).split()
    names = []
    for pid in found:
        try:
            names.append(Path(f"/proc/{pid}/comm").read_text().strip())
        except OSError:
            continue  # it has just gone
    return names.count("iperf3")
