"""What is reported is what was done to the packets: one fault on each path of a lab, counted where it was done.

Real packets through the echo prober, agent, log and windows. Every fault is there before the first packet and counts
what it meets, and it stops at once; then each path's figures must be those counts exactly, and the shares that were
asked for within binomial bounds.
"""

import math
import re
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from collector.analysis.statistics import binomial_tail
from tests.lab.configuration import Evening, Measuring, window_s
from tests.lab.faults import Injected, injected, share
from tests.lab.installation import ROOT, Installation
from tests.lab.lab import Lab, wait_for
from tests.lab.topology import Host, Topology

pytestmark = pytest.mark.timeout(120)

A, B, C, D = "gpu-r1-01", "gpu-r1-02", "gpu-r2-01", "gpu-r2-02"
MEASURED_S = 21  # holds a whole window of 10 s, wherever it begins
RATE = 10  # probes/s on each path
HOLD_S, TOO_LATE_S = 0.03, 1.3  # the second is beyond the waiting time of 1 s
CHANCE = 1e-7  # that a share that is right lies outside its bounds
EDGE = 1  # when a marked packet was sent follows from its number: at the edge of a window it may count to the next
Way = tuple[str, str]

LOST: dict[Way, tuple[float, float]] = {  # share of requests, share of replies
    (A, B): (0.1, 0),
    (B, A): (0, 0.1),
    (A, C): (0.1, 0.1),
    (C, A): (1, 0),
    (A, D): (0, 1),
    (D, A): (1, 1),
    (D, B): (0.01, 0),
    (B, D): (0, 0),
}
UNREACHABLE, DOUBLED, HELD, LATE = (B, C), (C, B), (D, C), (C, D)


@dataclass
class Story:
    """What was done, and what was said of it."""

    done: dict[Way, list[Injected]] = field(default_factory=dict)
    counts: dict[Way, int] = field(default_factory=dict)  # packets met by the faults of a path
    sent: dict[Way, int] = field(default_factory=dict)  # of /metrics, over the whole run
    lost: dict[Way, int] = field(default_factory=dict)
    outcomes: dict[tuple[str, str], int] = field(default_factory=dict)  # by source and outcome
    windows: dict[Way, list[dict[str, Any]]] = field(default_factory=dict)  # whole ones, as stored


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    topology = Topology({"r1": 2, "r2": 2})
    measuring = Measuring(echo_rate=RATE * 3.0)
    length_s = window_s(topology, measuring)
    evening = Evening.starting_at(int(time.time()) + 3 * 3600, window_s=length_s, between_s=60)
    story = Story()
    with (
        Lab(topology) as lab,
        Installation(lab, tmp_path_factory.mktemp("truth"), evening, measuring) as installation,
        ExitStack() as stack,
    ):
        do_it(lab, stack, story)
        installation.start_collector()
        installation.start_agents()
        wait_for("all paths to be measured", lambda: len(of_paths(installation, "sent")) == 12, within=20)
        from_s = time.time()
        time.sleep(MEASURED_S)  # the stretch that is measured: real packets take real time
        for way, faults in story.done.items():
            story.counts[way] = sum(fault.stop() for fault in faults)
        to_s = time.time()
        # Samples come in the order of sending: with those of 3 s later, all that were sent before are there.
        before = of_paths(installation, "sent")
        wait_for(
            "what was sent before",
            lambda: all(sent > before[way] + 6 * RATE for way, sent in of_paths(installation, "sent").items()),
            within=20,
        )
        story.sent, story.lost = of_paths(installation, "sent"), of_paths(installation, "lost")
        text = installation.metrics()
        found = re.findall(r'^bandwitness_probe_outcomes_total\{src="([^"]*)",outcome="(\w+)"\} (\d+)', text, re.M)
        story.outcomes = {(src, outcome): int(count) for src, outcome, count in found}
        read_windows(installation, story, from_s, to_s)
        yield story


def do_it(lab: Lab, stack: ExitStack, story: Story) -> None:
    hosts = {host.name: host for host in lab.topology.hosts}

    def fault(way: Way, kind: str, verdict: str, ratio: float = 1) -> None:
        """On the way's requests or replies, where they leave the host that sends them."""
        sender, receiver = (hosts[name] for name in (way if kind == "request" else way[::-1]))
        condition = f"ip saddr {sender.address} ip daddr {receiver.address} icmp type echo-{kind}"
        if ratio < 1:
            condition += f" {share(ratio, seed=len(story.done))}"
        name = f"{kind}-{way[0]}-{way[1]}"
        rule = stack.enter_context(injected(lab, None, sender.port, condition, verdict, name=name))
        story.done.setdefault(way, []).append(rule)

    def relay(way: Way, seconds: float) -> None:
        near, far = hosts[way[0]], hosts[way[1]]
        fault(way, "reply", "drop")  # the originals
        start_relay(lab, far, near, seconds)

    for way, ratios in LOST.items():
        story.done[way] = []
        for kind, ratio in zip(("request", "reply"), ratios, strict=True):
            if ratio:
                fault(way, kind, "drop", ratio)
    fault(UNREACHABLE, "request", "reject with icmp type host-unreachable")
    fault(DOUBLED, "reply", f"dup to {hosts[DOUBLED[0]].port}")
    relay(HELD, HOLD_S)
    relay(LATE, TOO_LATE_S)


def start_relay(lab: Lab, source: Host, destination: Host, seconds: float) -> None:
    words = [source.port, destination.port, source.address, destination.address, str(seconds)]
    script = str(ROOT / "tests" / "lab" / "relay.py")
    lab.start(None, [sys.executable, script, *words])
    taps = f"^\\S+ +\\S+ +\\S+ +0003 +{port_index(lab, source.port)} "
    wait_for("the relay", lambda: bool(re.search(taps, packet_sockets(lab), re.M)), within=10)


def packet_sockets(lab: Lab) -> str:
    return lab.run(None, ["cat", "/proc/self/net/packet"])


def port_index(lab: Lab, port: str) -> int:
    return int(lab.run(None, ["sh", "-c", f"ip -o link show {port}"]).partition(":")[0])


def of_paths(installation: Installation, what: str) -> dict[Way, int]:
    """``probe_packets_*_total`` by source and destination."""
    pattern = rf'^bandwitness_probe_packets_{what}_total\{{src="([^"]*)",dst="([^"]*)".*?\}} (\d+)'
    return {(src, dst): int(count) for src, dst, count in re.findall(pattern, installation.metrics(), re.M)}


def read_windows(installation: Installation, story: Story, from_s: float, to_s: float) -> None:
    """Every path's windows that lie between two moments, once they have closed."""
    last_s = int(to_s - 10) // 10 * 10
    last = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(last_s))

    def paths() -> list[dict[str, Any]]:
        return [path for path in installation.items("paths") if path["sent"] is not None]

    def closed() -> bool:
        found = paths()
        return len(found) == 12 and all(path["window_start_time"] >= last for path in found)

    wait_for("the windows to close", closed, within=20)
    file = installation.collector_state / "store.sqlite"
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        for path in paths():
            path_id = int(path["path_id"], 16)
            rows = connection.execute(
                "SELECT * FROM round_trip_windows WHERE path_id = ? AND start_time_ns BETWEEN ? AND ?",
                (path_id - (1 << 64 if path_id >> 63 else 0), int(from_s * 1e9), last_s * 10**9),
            ).fetchall()
            story.windows[path["src"], path["dst"]] = [dict(row) for row in rows]
    finally:
        connection.close()


def bounds(total: int, ratio: float) -> tuple[int, int]:
    """Fewest and most of ``total`` packets that a fault of this ratio meets, but for ``CHANCE`` on either side."""
    most = next(count for count in range(total + 2) if binomial_tail(count, total, ratio) < CHANCE) - 1
    fewest = next(count for count in range(total + 1) if 1 - binomial_tail(count + 1, total, ratio) > CHANCE)
    return fewest, most


# ---------------------------------------------------------------- loss


def test_every_path_was_measured_all_the_time(story: Story) -> None:
    assert len(story.windows) == 12
    for way, windows in story.windows.items():
        assert windows, way
        for window in windows:
            # Sending falls on a tick: one more or fewer at the ends. What the machine had no time for is "skipped".
            assert abs(window["sent"] + window["skipped"] - 10 * RATE) <= 1, (way, window)
            assert window["unresolved"] == window["send_failed"] == window["corrupt"] == 0, (way, window)


@pytest.mark.parametrize(("way", "ratios"), LOST.items(), ids=[f"{a}-{b}: {r}" for (a, b), r in LOST.items()])
def test_lost_is_exactly_what_was_dropped_and_the_share_that_was_asked_for(
    story: Story, way: Way, ratios: tuple[float, float]
) -> None:
    assert story.lost[way] == story.counts[way]
    ratio = 1 - (1 - ratios[0]) * (1 - ratios[1])
    for window in story.windows[way]:
        assert window["lost"] + window["replied"] == window["sent"]
        assert window["duplicates"] == window["late"] == 0
        if ratio in (0, 1):
            assert window["lost"] == window["sent"] * ratio, window
        else:
            fewest, most = bounds(window["sent"], ratio)
            assert fewest <= window["lost"] <= most, window


def test_no_reply_means_no_delay_and_never_0(story: Story) -> None:
    for way, windows in story.windows.items():
        for window in windows:
            assert window["delay_samples"] <= window["replied"]
            assert (window["delay_p50_ns"] is None) == (window["delay_samples"] == 0), (way, window)
            assert window["delay_min_ns"] is None or window["delay_min_ns"] > 0


# ---------------------------------------------------------------- all else


def test_unreachable_is_told_from_lost_and_inside_the_ratio(story: Story) -> None:
    assert story.lost[UNREACHABLE] == story.counts[UNREACHABLE] == story.outcomes[UNREACHABLE[0], "unreachable"]
    for window in story.windows[UNREACHABLE]:
        assert window["unreachable"] == window["sent"] > 0
        assert window["lost"] == 0


def test_duplicates_are_marks_and_neither_replies_nor_losses(story: Story) -> None:
    assert story.lost[DOUBLED] == 0
    for window in story.windows[DOUBLED]:
        assert window["replied"] == window["sent"] > 0
        assert abs(window["duplicates"] - window["sent"]) <= EDGE, window


def test_delay_is_what_the_packets_were_held_for(story: Story) -> None:
    assert story.lost[HELD] == 0
    for window in story.windows[HELD]:
        assert window["delay_samples"] > 0.9 * window["sent"] > 0  # a step of the clock voids a delay, never a reply
        assert window["delay_min_ns"] >= HOLD_S * 1e9
        assert window["delay_p50_ns"] < 2 * HOLD_S * 1e9  # the relay is a process: now and then it sleeps longer
    for window in story.windows[B, D]:  # beside it, on the same machine
        assert window["delay_p50_ns"] < HOLD_S * 1e9 / 10


def test_a_reply_after_the_waiting_time_is_a_loss_with_a_mark(story: Story) -> None:
    assert story.lost[LATE] == story.counts[LATE]
    for window in story.windows[LATE]:
        assert window["lost"] == window["sent"] > 0
        assert abs(window["late"] - window["sent"]) <= EDGE, window
        assert window["replied"] == window["duplicates"] == 0
        assert window["delay_samples"] == 0


def test_the_bounds_are_those_of_the_binomial_distribution() -> None:
    fewest, most = bounds(100, 0.1)
    inside = sum(math.comb(100, count) * 0.1**count * 0.9 ** (100 - count) for count in range(fewest, most + 1))
    assert 1 - 2.1 * CHANCE < inside < 1
    assert (fewest, most) == (0, 28)
