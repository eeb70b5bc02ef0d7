"""What is reported is what was done to the packets: one fault on each path of a lab, counted where it was done.

Real packets through the echo and TCP probers, agent, log and windows. Every fault is there before the first packet and
counts what it meets, and it stops at once; then each path's figures must be those counts exactly, and the shares that
were asked for within binomial bounds.

Two agents have no capability at all. In the namespace of one, ``ping_group_range`` lets it open datagram sockets; the
other has no right to ICMP, and TCP connects alone.
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

from agent.probe.targets import FALLBACK_PORT
from bandwitness.v1.record_pb2 import (
    ROUND_TRIP_METHOD_ICMP_DATAGRAM,
    ROUND_TRIP_METHOD_ICMP_RAW,
    ROUND_TRIP_METHOD_TCP_CONNECT,
)
from collector.analysis.statistics import binomial_tail
from tests.lab.configuration import Evening, Measuring, window_s
from tests.lab.evidence import logged
from tests.lab.faults import ECHO_PACKET, TCP_FLOW, Injected, injected, share
from tests.lab.installation import ROOT, Installation
from tests.lab.lab import Lab, wait_for
from tests.lab.topology import DATA_NIC, Host, Topology

pytestmark = pytest.mark.timeout(120)

A, B, C, D = "gpu-r1-01", "gpu-r1-02", "gpu-r2-01", "gpu-r2-02"
DATAGRAM, NO_ICMP = "gpu-r2-03", "gpu-r1-03"
DOOR, DOOR_ADDRESS = "door", "198.18.0.9"  # in the fabric
PORT = FALLBACK_PORT  # nobody listens there: a SYN is answered with RST, which is an answer
UNPRIVILEGED = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
MEASURED_S = 21  # holds a whole window of 10 s, wherever it begins
RATE = 10  # probes/s on each path
HOLD_S, TOO_LATE_S = 0.03, 1.3  # the second is beyond the waiting time of 1 s
OVERTAKEN_S = 0.15  # longer than it takes until the next one is sent
LIMIT = 5  # echoes/s that a target answers, half of what it is asked
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
    (A, NO_ICMP): (0, 0),
    (DATAGRAM, B): (0.1, 0),
    (DATAGRAM, D): (0, 0.1),
    (DATAGRAM, NO_ICMP): (0, 0),
    (D, NO_ICMP): (0.5, 0),
    (NO_ICMP, DOOR): (0.1, 0),
    (NO_ICMP, A): (0, 0),
    (NO_ICMP, B): (0.1, 0.1),
    (NO_ICMP, C): (1, 0),
    (DATAGRAM, DOOR): (0, 0.1),
    (D, DOOR): (1, 0),
    (C, DOOR): (0, 0),
}
UNREACHABLE, DOUBLED, HELD, LATE = (B, C), (C, B), (D, C), (C, D)
OVERTAKEN = (A, DATAGRAM)
RATE_LIMITED, BELOW_THE_LIMIT = (B, DATAGRAM), (C, DATAGRAM)
DAMAGED = {(B, NO_ICMP): "damage", (C, NO_ICMP): "forge", (DATAGRAM, A): "forge"}
DAMAGED_UNSEEN = (DATAGRAM, C)  # the kernel keeps what has a wrong checksum from datagram sockets
NODES = (A, B, C, D, DATAGRAM, NO_ICMP)
WAYS = {(a, b) for a in NODES for b in (*NODES, DOOR) if a != b}


def is_tcp(way: Way) -> bool:
    """Without a right to ICMP, TCP connects stand in for echo."""
    return DOOR in way or way[0] == NO_ICMP


@dataclass
class Story:
    """What was done, and what was said of it."""

    done: dict[Way, list[Injected]] = field(default_factory=dict)
    counts: dict[Way, int] = field(default_factory=dict)  # packets met by the faults of a path
    sent: dict[Way, int] = field(default_factory=dict)  # of /metrics, over the whole run
    lost: dict[Way, int] = field(default_factory=dict)
    outcomes: dict[tuple[str, str], int] = field(default_factory=dict)  # by source and outcome
    traced: dict[Way, int] = field(default_factory=dict)  # packets of traces: the faults meet them too
    windows: dict[Way, list[dict[str, Any]]] = field(default_factory=dict)  # whole ones, as stored
    protocols: dict[Way, str] = field(default_factory=dict)
    methods: dict[str, set[int]] = field(default_factory=dict)  # by node, of its signed records


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    topology = Topology({"r1": 3, "r2": 3})
    door = {"name": DOOR, "address": DOOR_ADDRESS, "probes": ["tcp_connect"], "port": PORT}
    # No MTU check, and no incident that asks for traces: the faults meet probes, and few packets else.
    measuring = Measuring(echo_rate=RATE * 6.0, targets=[door], min_lost=1000, path_mtu=False, reference_traces=False)
    length_s = window_s(topology, measuring)
    evening = Evening.starting_at(int(time.time()) + 3 * 3600, window_s=length_s, between_s=60)
    story = Story()
    with (
        Lab(topology) as lab,
        Installation(lab, tmp_path_factory.mktemp("truth"), evening, measuring) as installation,
        ExitStack() as stack,
    ):
        lab.run(None, ["ip", "address", "add", f"{DOOR_ADDRESS}/16", "dev", "core"])
        lab.run(DATAGRAM, ["sysctl", "-qw", "net.ipv4.ping_group_range=0 0"])
        do_it(lab, stack, story)
        installation.start_collector()
        installation.start_agents(through=dict.fromkeys((DATAGRAM, NO_ICMP), UNPRIVILEGED))
        wait_for("all paths to be measured", lambda: set(of_paths(installation, "sent")) >= WAYS, within=20)
        from_s = time.time()
        time.sleep(MEASURED_S)  # the stretch that is measured: real packets take real time
        to_s = (
            time.time()
        )  # taking the faults away takes its time, and a window in it would be neither one nor the other
        for way, faults in story.done.items():
            story.counts[way] = sum(fault.stop() for fault in faults)
        # Samples come in the order of sending: with those of 10 s later, all that were sent before are there.
        before = of_paths(installation, "sent")
        wait_for(
            "what was sent before",
            lambda: all(sent > before[way] + 10 * RATE for way, sent in of_paths(installation, "sent").items()),
            within=40,
        )
        story.sent, story.lost = of_paths(installation, "sent"), of_paths(installation, "lost")
        text = installation.metrics()
        found = re.findall(r'^bandwitness_probe_outcomes_total\{src="([^"]*)",outcome="(\w+)"\} (\d+)', text, re.M)
        story.outcomes = {(src, outcome): int(count) for src, outcome, count in found}
        read_windows(installation, story, from_s, to_s)
        ways = {int(path["path_id"], 16): (path["src"], path["dst"]) for path in installation.items("paths")}
        installation.stop_agents()
        installation.stop_collector()
        for batch in logged(installation.collector_state):
            for record in batch.records():
                if record.HasField("round_trip"):
                    story.methods.setdefault(batch.chain.agent, set()).add(record.round_trip.method)
                if record.HasField("route_trace"):
                    way = ways[record.route_trace.path_id]
                    story.traced[way] = story.traced.get(way, 0) + len(record.route_trace.hop)
        yield story


def check_lost(story: Story, way: Way) -> None:
    """Exactly what the faults have met, but for packets of a trace of the same path, and for a SYN that the kernel sent
    again (after 1 s) because this machine had no time to give the connect up before."""
    others = story.counts[way] // 20 if is_tcp(way) else story.traced.get(way, 0)
    assert 0 <= story.counts[way] - story.lost[way] <= others, story.traced


def do_it(lab: Lab, stack: ExitStack, story: Story) -> None:
    hosts = {host.name: host for host in lab.topology.hosts}
    addresses = {name: host.address for name, host in hosts.items()} | {DOOR: DOOR_ADDRESS}

    def fault(way: Way, kind: str, verdict: str, ratio: float = 1, also: str = "") -> None:
        """On the way's requests or replies, where they leave the host that sends them, or come from the door."""
        sender, receiver = way if kind == "request" else way[::-1]
        condition = f"ip saddr {addresses[sender]} ip daddr {addresses[receiver]} "
        if is_tcp(way):
            condition += f"tcp {'d' if kind == 'request' else 's'}port {PORT}"
        else:
            condition += f"icmp type echo-{kind} {also}"
        if ratio < 1:
            condition += f" {share(ratio, seed=len(story.done), of=TCP_FLOW if is_tcp(way) else ECHO_PACKET)}"
        inside, nic = (receiver, DATA_NIC) if sender == DOOR else (None, hosts[sender].port)
        name = f"{kind}-{way[0]}-{way[1]}"
        rule = stack.enter_context(injected(lab, inside, nic, condition, verdict, name=name))
        story.done.setdefault(way, []).append(rule)

    def relay(way: Way, seconds: float, *, which: str = "all", do: str = "nothing") -> None:
        near, far = hosts[way[0]], hosts[way[1]]
        fault(way, "reply", "drop", also="icmp sequence & 1 == 1" if which == "odd" else "")  # the originals
        start_relay(lab, far, near, str(seconds), which, do)

    for way, ratios in LOST.items():
        story.done[way] = []
        for kind, ratio in zip(("request", "reply"), ratios, strict=True):
            if ratio:
                fault(way, kind, "drop", ratio)
    fault(UNREACHABLE, "request", "reject with icmp type host-unreachable")
    fault(DOUBLED, "reply", f"dup to {hosts[DOUBLED[0]].port}")
    fault(RATE_LIMITED, "request", "drop", also=f"limit rate over {LIMIT}/second burst 1 packets")
    fault(BELOW_THE_LIMIT, "request", "drop", also=f"limit rate over {3 * RATE}/second burst {RATE} packets")
    relay(HELD, HOLD_S)
    relay(LATE, TOO_LATE_S)
    relay(OVERTAKEN, OVERTAKEN_S, which="odd")
    relay(DAMAGED_UNSEEN, 0, do="damage")
    for way, how in DAMAGED.items():
        relay(way, 0, do=how)


def start_relay(lab: Lab, source: Host, destination: Host, *how: str) -> None:
    def tapping() -> int:
        taps = f"^\\S+ +\\S+ +\\S+ +0003 +{port_index(lab, source.port)} "
        return len(re.findall(taps, packet_sockets(lab), re.M))

    before = tapping()
    words = [source.port, destination.port, source.address, destination.address, *how]
    lab.start(None, [sys.executable, str(ROOT / "tests" / "lab" / "relay.py"), *words])
    wait_for("the relay", lambda: tapping() > before, within=10)


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
        return {(path["src"], path["dst"]) for path in found} >= WAYS and all(
            path["window_start_time"] is not None and path["window_start_time"] >= last for path in found
        )

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
            way = path["src"], path["dst"]
            story.windows[way] = [dict(row) for row in rows]
            story.protocols[way] = path["protocol"]
    finally:
        connection.close()


def bounds(total: int, ratio: float) -> tuple[int, int]:
    """Fewest and most of ``total`` packets that a fault of this ratio meets, but for ``CHANCE`` on either side."""
    most = next(count for count in range(total + 2) if binomial_tail(count, total, ratio) < CHANCE) - 1
    fewest = next(count for count in range(total + 1) if 1 - binomial_tail(count + 1, total, ratio) > CHANCE)
    return fewest, most


# ---------------------------------------------------------------- loss


def test_every_path_was_measured_all_the_time(story: Story) -> None:
    assert set(story.windows) == set(story.sent) == WAYS
    for way, windows in story.windows.items():
        assert windows, way
        for window in windows:
            # Sending falls on a tick: one more or fewer at the ends. What the machine had no time for is "skipped".
            assert abs(window["sent"] + window["skipped"] - 10 * RATE) <= 1, (way, window)
            assert window["unresolved"] == window["send_failed"] == 0, (way, window)
            assert way in DAMAGED or window["corrupt"] == 0, (way, window)


@pytest.mark.parametrize(("way", "ratios"), LOST.items(), ids=[f"{a}-{b}: {r}" for (a, b), r in LOST.items()])
def test_lost_is_exactly_what_was_dropped_and_the_share_that_was_asked_for(
    story: Story, way: Way, ratios: tuple[float, float]
) -> None:
    check_lost(story, way)
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
    check_lost(story, UNREACHABLE)
    assert story.lost[UNREACHABLE] == story.outcomes[UNREACHABLE[0], "unreachable"]
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
    check_lost(story, LATE)
    for window in story.windows[LATE]:
        assert window["lost"] == window["sent"] > 0
        assert abs(window["late"] - window["sent"]) <= EDGE, window
        assert window["replied"] == window["duplicates"] == 0
        assert window["delay_samples"] == 0


def test_replies_that_were_overtaken_are_replies_with_the_delay_they_had(story: Story) -> None:
    """Every second one arrives after the next one's: none is lost, late or double, and none has another's delay."""
    assert story.lost[OVERTAKEN] == 0
    for window in story.windows[OVERTAKEN]:
        assert window["replied"] == window["sent"] > 0
        assert window["duplicates"] == window["late"] == 0
        assert window["delay_min_ns"] < OVERTAKEN_S * 1e9 / 5
        assert OVERTAKEN_S * 1e9 <= window["delay_p99_ns"] < 2 * OVERTAKEN_S * 1e9


@pytest.mark.parametrize("way", DAMAGED, ids=[f"{a}-{b}: {do}" for (a, b), do in DAMAGED.items()])
def test_a_damaged_reply_is_corrupt_and_counts_as_lost(story: Story, way: Way) -> None:
    """Whether its checksum still fits or not: with one that does, the kernel passes it on to any socket."""
    check_lost(story, way)
    assert story.lost[way] == story.outcomes.get((way[0], "corrupt"))
    for window in story.windows[way]:
        assert window["corrupt"] == window["sent"] > 0
        assert window["lost"] == window["replied"] == window["duplicates"] == window["late"] == 0
        assert window["delay_samples"] == 0


def test_a_wrong_checksum_never_reaches_a_datagram_socket_so_it_is_a_loss(story: Story) -> None:
    check_lost(story, DAMAGED_UNSEEN)
    for window in story.windows[DAMAGED_UNSEEN]:
        assert window["lost"] == window["sent"] > 0
        assert window["corrupt"] == window["replied"] == 0


def test_what_a_target_does_not_answer_for_its_limit_is_lost_and_at_our_pace_nothing_is(story: Story) -> None:
    check_lost(story, RATE_LIMITED)
    for window in story.windows[RATE_LIMITED]:
        answered = window["replied"] / (window["sent"] / RATE)
        # A packet that comes a moment before its turn is refused, and the next one is answered: a half at worst.
        assert LIMIT / 2 <= answered <= LIMIT * 1.1, window
    assert story.lost[BELOW_THE_LIMIT] == story.counts[BELOW_THE_LIMIT] == 0


# ---------------------------------------------------------------- fewer rights


def test_without_capabilities_echo_goes_over_datagram_sockets_and_says_so(story: Story) -> None:
    assert story.methods[DATAGRAM] == {ROUND_TRIP_METHOD_ICMP_DATAGRAM, ROUND_TRIP_METHOD_TCP_CONNECT}
    assert story.methods[A] == {ROUND_TRIP_METHOD_ICMP_RAW, ROUND_TRIP_METHOD_TCP_CONNECT}
    for window in story.windows[DATAGRAM, NO_ICMP]:
        assert window["replied"] == window["sent"] == window["delay_samples"] > 0


def test_without_a_right_to_icmp_there_is_no_loss_but_tcp_which_is_a_path_of_its_own(story: Story) -> None:
    assert story.methods[NO_ICMP] == {ROUND_TRIP_METHOD_TCP_CONNECT}
    tcp = {way for way, protocol in story.protocols.items() if protocol == "tcp_connect"}
    assert tcp == {way for way in WAYS if is_tcp(way)}
    assert {story.protocols[way] for way in WAYS - tcp} == {"icmp_echo"}


def test_the_bounds_are_those_of_the_binomial_distribution() -> None:
    fewest, most = bounds(100, 0.1)
    inside = sum(math.comb(100, count) * 0.1**count * 0.9 ** (100 - count) for count in range(fewest, most + 1))
    assert 1 - 2.1 * CHANCE < inside < 1
    assert (fewest, most) == (0, 28)
