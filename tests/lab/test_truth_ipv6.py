"""The same over IPv6: what is reported of echo and STAMP is what was done to the packets, counted where it was done.

One rack is measured by global addresses, the other by link-local ones with a zone. Nothing but probes meets the faults:
no traces, no incidents; so every figure must be theirs exactly, and the shares that were asked for within binomial
bounds.
"""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.lab.configuration import Evening, Measuring, window_s
from tests.lab.faults import Injected, injected, share
from tests.lab.installation import Installation
from tests.lab.lab import Lab, wait_for
from tests.lab.test_truth import bounds
from tests.lab.topology import DATA_NIC, Topology

pytestmark = pytest.mark.timeout(120)

TOPOLOGY = Topology({"r1": 2, "r2": 2})
A, B, C, D = (host.name for host in TOPOLOGY.hosts)
ADDRESSES = {A: "fd00:b::1", B: "fd00:b::2", C: "fe80::b:1", D: "fe80::b:2"}
ENDPOINTS = ADDRESSES | {name: f"{ADDRESSES[name]}%{DATA_NIC}" for name in (C, D)}
PORTS = 4
REFLECTOR = 8620
RATE = 10  # probes/s on each path
MEASURED_S = 15
STAMP_PACKET = "udp sport . udp dport . @th,64,32"  # ports and the sender of the packet's own number (RFC 8762)
ECHO_PACKET = "ip6 saddr . ip6 daddr . icmpv6 id . icmpv6 sequence"
Way = tuple[str, str]
SHARES: dict[tuple[Way, str], tuple[float, float]] = {  # of requests, of replies
    ((A, B), "icmp_echo"): (0.1, 0),
    ((B, A), "icmp_echo"): (0, 0.1),
    ((C, D), "icmp_echo"): (0.1, 0.1),
    ((A, B), "stamp"): (0.2, 0),
    ((B, A), "stamp"): (0, 0.2),
    ((C, D), "stamp"): (0.3, 0.1),
    ((D, C), "stamp"): (0, 0),
}
UNREACHABLE, UNREACHED = (D, C), "reject with icmpv6 type addr-unreachable"  # by echo
MEASURING = Measuring(
    echo_rate=float(RATE),
    stamp={"enabled": True, "ports": PORTS, "interval": "100ms", "rate": float(RATE * PORTS)},
    min_lost=1000,
    path_mtu=False,
    reference_traces=False,
    addresses=ENDPOINTS,
)
Counts = dict[tuple[Way, str], int]  # by protocol, all source ports together


@dataclass
class Story:
    """What was done, and what was said of it."""

    done: dict[tuple[Way, str], list[Injected]] = field(default_factory=dict)
    met: dict[tuple[Way, str], list[int]] = field(default_factory=dict)  # packets: of requests, of replies
    sent: Counts = field(default_factory=dict)
    lost: Counts = field(default_factory=dict)
    forward: Counts = field(default_factory=dict)
    reverse: Counts = field(default_factory=dict)
    outcomes: dict[tuple[str, str], int] = field(default_factory=dict)
    paths: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    evening = Evening.starting_at(int(time.time()) + 3 * 3600, window_s=window_s(TOPOLOGY, MEASURING), between_s=60)
    story = Story()
    with (
        Lab(TOPOLOGY) as lab,
        Installation(lab, tmp_path_factory.mktemp("ipv6"), evening, MEASURING) as installation,
        ExitStack() as stack,
    ):
        for name, address in ADDRESSES.items():
            lab.run(name, ["ip", "address", "add", f"{address}/64", "dev", DATA_NIC, "nodad"])
        installation.start_collector()
        installation.start_agents()
        wait_for("all paths to be measured", lambda: set(count(installation, "probe_packets_sent")) >= KEYS, within=20)
        # Only now: while a reflector is coming up, its absence and not the network is what a lost packet is laid to.
        for key, shares in SHARES.items():
            lose(lab, stack, story, key, shares)
        condition = ends(*UNREACHABLE) + "icmpv6 type echo-request"
        story.done[UNREACHABLE, "icmp_echo"] = [
            stack.enter_context(
                injected(lab, None, TOPOLOGY.host(UNREACHABLE[0]).port, condition, UNREACHED, name="unreachable")
            )
        ]
        time.sleep(MEASURED_S)  # the stretch that is measured: real packets take real time
        for key, faults in story.done.items():
            story.met[key] = [fault.stop() for fault in faults]
        before = count(installation, "probe_packets_sent")
        wait_for(
            "what was sent before, and replies behind every gap",
            lambda: all(
                sent > before[key] + 5 * RATE * (PORTS if key[1] == "stamp" else 1)
                for key, sent in count(installation, "probe_packets_sent").items()
            ),
            within=40,
        )
        story.sent, story.lost = (count(installation, f"probe_packets_{what}") for what in ("sent", "lost"))
        story.forward, story.reverse = (
            count(installation, "one_way_packets_lost", f'direction="{way}"') for way in ("forward", "reverse")
        )
        found = re.findall(
            r'^bandwitness_probe_outcomes_total\{src="([^"]*)",outcome="(\w+)"\} (\d+)', installation.metrics(), re.M
        )
        story.outcomes = {(src, outcome): int(number) for src, outcome, number in found}
        story.paths = installation.items("paths")
        yield story


KEYS = {(way, protocol) for way in ((A, B), (B, A), (C, D), (D, C)) for protocol in ("icmp_echo", "stamp")}


def lose(lab: Lab, stack: ExitStack, story: Story, key: tuple[Way, str], shares: tuple[float, float]) -> None:
    """Drops shares of a way's requests and replies where they leave the host that sends them."""
    (near, far), protocol = key
    story.done[key] = []
    for kind, ratio in zip(("request", "reply"), shares, strict=True):
        sender, receiver = (near, far) if kind == "request" else (far, near)
        if protocol == "icmp_echo":
            what, of = f"icmpv6 type echo-{kind}", ECHO_PACKET
        else:
            what, of = f"udp {'d' if kind == 'request' else 's'}port {REFLECTOR}", STAMP_PACKET
        condition = ends(sender, receiver) + what
        name = f"{protocol}-{kind}-{near}"
        if ratio:
            condition += f" {share(ratio, seed=len(name) + len(story.done), of=of)}"
            fault = injected(lab, None, TOPOLOGY.host(sender).port, condition, "drop", name=name)
            story.done[key].append(stack.enter_context(fault))


def ends(sender: str, receiver: str) -> str:
    return f"ip6 saddr {ADDRESSES[sender]} ip6 daddr {ADDRESSES[receiver]} "


def count(installation: Installation, name: str, also: str = "") -> Counts:
    """A counter of paths, by way and protocol."""
    pattern = rf'^bandwitness_{name}_total\{{src="([^"]*)",dst="([^"]*)",lane="[^"]*",protocol="(\w+)"(.*?)\}} (\d+)'
    found: Counts = {}
    for src, dst, protocol, rest, number in re.findall(pattern, installation.metrics(), re.M):
        if also in rest:
            found[(src, dst), protocol] = found.get(((src, dst), protocol), 0) + int(number)
    return found


def test_every_address_is_ipv6_and_those_of_one_link_have_their_zone(story: Story) -> None:
    assert {(path["src"], path["dst"]) for path in story.paths} == {way for way, _ in KEYS}
    for path in story.paths:
        assert path["src_endpoint"]["address"] == ENDPOINTS[path["src"]]
        assert path["dst_endpoint"]["address"] == ENDPOINTS[path["dst"]]


@pytest.mark.parametrize("key", SHARES, ids=[f"{a}-{b}-{protocol}" for (a, b), protocol in SHARES])
def test_lost_is_exactly_what_was_dropped(story: Story, key: tuple[Way, str]) -> None:
    assert story.lost[key] == sum(story.met[key])
    there, back = SHARES[key]
    if there or back:  # the faults had ended before the last packets were sent: too many for the lower bound
        fewest, _ = bounds(RATE * MEASURED_S * (PORTS if key[1] == "stamp" else 1), there + back - there * back)
        _, most = bounds(story.sent[key], there + back - there * back)
        assert fewest <= story.lost[key] <= most


@pytest.mark.parametrize("key", [key for key in SHARES if key[1] == "stamp"], ids=lambda key: "-".join(key[0]))
def test_each_lost_stamp_packet_is_in_the_direction_it_was_lost_in(story: Story, key: tuple[Way, str]) -> None:
    met = list(story.met[key])
    there, back = (met.pop(0) if ratio else 0 for ratio in SHARES[key])
    assert (story.forward[key], story.reverse[key]) == (there, back)


def test_an_icmpv6_error_is_unreachable_and_inside_the_ratio(story: Story) -> None:
    (met,) = story.met[UNREACHABLE, "icmp_echo"]
    assert met > RATE * MEASURED_S / 2
    assert story.lost[UNREACHABLE, "icmp_echo"] == story.outcomes[UNREACHABLE[0], "unreachable"] == met
