"""Two racks behind routers with four equal ways between them: what one of them loses, and what is too large for all.

The routers choose a way by a hash of addresses and ports (``fib_multipath_hash_policy=1``), as switches do. First one
way loses half of what is UDP: exactly the source ports that the kernel sends that way must be named. Then a throughput
test runs while packets above ``CARRIED_BYTES`` vanish everywhere without a word, and small ones pass.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.lab.configuration import Evening, Measuring, window_s
from tests.lab.installation import Installation, wait_until
from tests.lab.lab import Lab, wait_for
from tests.lab.stored import windows
from tests.lab.topology import Topology, leaf

pytestmark = pytest.mark.timeout(150)

TOPOLOGY = Topology({"r1": 1, "r2": 1})
NEAR, FAR = TOPOLOGY.hosts
EDGES = ("edge-1", "edge-2")
MEMBERS = 4
BAD = "m1"
RATIO = 0.5
PORTS = 16
REFLECTOR = 8620
CARRIED_BYTES = 1400
BEFORE_TESTS_S = 30  # for the loss to be there, said, and over
MEASURING = Measuring(
    planned=1,
    min_tests=1,
    duration="5s",
    slot="7s",
    stamp={"enabled": True, "ports": PORTS, "interval": "100ms", "rate": 10.0 * PORTS},
)
Item = Mapping[str, Any]


@dataclass
class Story:
    """What was done, and what was said of it."""

    hashed: set[int] = field(default_factory=set)  # source ports of the near host that the kernel says go the bad way
    hashed_back: set[int] = field(default_factory=set)  # ports of the far host whose replies go the bad way
    seen: set[int] = field(default_factory=set)  # those that were met there
    began_s: float = field(default_factory=time.time)
    loss_ended_s: float = 0
    pairs: Sequence[Item] = ()  # over whole windows, while it was lossy
    span: dict[str, str] = field(default_factory=dict)  # of these windows
    pairs_in_the_end: Sequence[Item] = ()
    incidents: Sequence[Item] = ()
    dropped: int = 0
    too_large: int = 0
    tests: Sequence[Item] = ()
    paths: Sequence[Item] = ()
    path_mtus: Sequence[Item] = ()
    path_mtu_incidents: Sequence[Item] = ()
    at_the_start: dict[str, dict[str, int]] = field(default_factory=dict)  # by host and outcome, before any fault
    outcomes_before: dict[str, int] = field(default_factory=dict)  # before the far agent was killed
    outcomes_after: dict[str, int] = field(default_factory=dict)
    echo: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # windows of echo paths in which tests ran

    def pair(self, src: str) -> Item:
        (found,) = [pair for pair in self.pairs if pair["src"] == src]
        return found


def rfc3339(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).isoformat().replace("+00:00", "Z")


def seconds(time_text: str) -> float:
    return datetime.fromisoformat(time_text[:26].rstrip("Z") + "+00:00").timestamp()


def routers() -> Iterator[str]:
    """Shell commands: a router at each leaf, equal ways between them, and routes of the hosts over them."""
    for number, (edge, host) in enumerate(zip(EDGES, (NEAR, FAR), strict=True), start=1):
        yield f"ip netns add {edge}"
        yield f"ip -n {edge} link set lo up"
        yield f"ip link add p-{edge} type veth peer name l0 netns {edge}"
        yield f"ip link set p-{edge} master {leaf(host.rack)} up"
        yield f"ip -n {edge} address add 198.18.{number}.1/24 dev l0"
        yield f"ip -n {edge} link set l0 up"
        yield (
            f"ip netns exec {edge} sysctl -qw net.ipv4.ip_forward=1 net.ipv4.fib_multipath_hash_policy=1 "
            "net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.l0.send_redirects=0"
        )
    for member in range(MEMBERS):
        yield f"ip -n {EDGES[0]} link add m{member} type veth peer name m{member} netns {EDGES[1]}"
        for number, edge in enumerate(EDGES, start=1):
            yield f"ip -n {edge} address add 10.66.{member}.{number}/30 dev m{member}"
            yield f"ip -n {edge} link set m{member} up"
    for number, (edge, host) in enumerate(zip(EDGES, (NEAR, FAR), strict=True), start=1):
        ways = " ".join(f"nexthop via 10.66.{member}.{3 - number} dev m{member}" for member in range(MEMBERS))
        yield f"ip -n {edge} route add 198.18.{3 - number}.0/24 {ways}"
        yield f"ip -n {host.name} route add 198.18.{3 - number}.0/24 via 198.18.{number}.1"


def lose_on_the_bad_way(lab: Lab) -> None:
    """Half of the UDP packets to the far rack, by a hash of their sequence number; and which ports come that way."""
    rules = (
        f"table netdev bad {{\n set ports {{ type inet_service; flags dynamic; size 1024; }}\n chain arriving {{\n"
        f"  type filter hook ingress device {BAD} priority 0\n"
        f"  udp dport {REFLECTOR} add @ports {{ udp sport }}\n"
        f"  ip protocol udp jhash @th,64,32 mod 1000 seed 0x7 < {RATIO * 1000:.0f} counter drop\n}}\n}}\n"
    )
    lab.run(EDGES[1], ["nft", "-f", "-"], text=rules)


def met_on_the_bad_way(lab: Lab) -> tuple[set[int], int]:
    """Source ports, and how many packets were dropped."""
    text = lab.run(EDGES[1], ["nft", "-n", "list", "table", "netdev", "bad"])
    elements = re.search(r"elements = \{([^}]*)\}", text)
    count = re.search(r"counter packets (\d+)", text)
    assert elements, text
    assert count, text
    return {int(port) for port in re.findall(r"\d+", elements[1])}, int(count[1])


def hashed_to_the_bad_way(lab: Lab, flow: str, ports: Sequence[int]) -> set[int]:
    """Which of the far host's or near host's ports, by the kernel's own route lookup."""
    ask = f"route get {FAR.address} from {NEAR.address} iif l0 ipproto udp {flow}"
    found = {port: lab.run(EDGES[0], ["ip", "-j", *ask.format(port).split()]) for port in ports}
    return {port for port, answer in found.items() if json.loads(answer)[0]["dev"] == BAD}


def swallow_large_packets(lab: Lab) -> None:
    for edge in EDGES:
        lines = ["table netdev hole {"]
        for member in range(MEMBERS):
            lines.append(f" chain m{member} {{ type filter hook ingress device m{member} priority 1")
            lines.append(f"  ip length > {CARRIED_BYTES} counter drop\n }}")
        lab.run(edge, ["nft", "-f", "-"], text="\n".join([*lines, "}", ""]))


def swallowed(lab: Lab) -> int:
    text = "".join(lab.run(edge, ["nft", "list", "table", "netdev", "hole"]) for edge in EDGES)
    return sum(int(count) for count in re.findall(r"counter packets (\d+)", text))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    night_s = int(time.time()) + BEFORE_TESTS_S
    evening = Evening.starting_at(night_s, window_s=window_s(TOPOLOGY, MEASURING), between_s=3600)
    story = Story()
    with Lab(TOPOLOGY) as lab:
        lab.run(None, ["sh"], text="\n".join(["set -eu", *routers(), ""]))
        with Installation(lab, tmp_path_factory.mktemp("ecmp"), evening, MEASURING) as installation:
            swallow_large_packets(lab)
            installation.start_collector()
            installation.start_agents()
            look_at_the_start(installation, story)
            lose_on_the_bad_way(lab)
            look_at_the_loss(installation, story)
            look_at_the_tests(installation, story)
            look_at_the_path_mtus(installation, story)
            stop_the_far_agent(installation, story)
        yield story


def look_at_the_start(installation: Installation, story: Story) -> None:
    """One agent is there before the other one's reflector is."""

    def replied() -> bool:
        story.at_the_start = {host.name: outcomes(installation, host.name) for host in TOPOLOGY.hosts}
        return all(found.get("replied", 0) > 10 * PORTS for found in story.at_the_start.values())

    wait_for("replies", replied, within=20)
    story.began_s = time.time()


def look_at_the_loss(installation: Installation, story: Story) -> None:
    def told() -> bool:
        story.incidents = installation.incidents("loss")
        return any(
            incident["values"].get("ports_pattern") == "some" and incident["element"]["name"].startswith(NEAR.name)
            for incident in story.incidents
        )

    wait_for("an incident of some ports", told, within=BEFORE_TESTS_S)

    def every_bad_port_has_lost() -> bool:
        story.pairs = pairs(installation, story, whole_windows=True)
        lossy = (
            {port["source_port"] for port in story.pair(NEAR.name)["ports"] if port["lost"]} if story.pairs else set()
        )
        return lossy >= story.seen

    story.seen, _ = met_on_the_bad_way(installation.lab)
    wait_for("windows that hold it", every_bad_port_has_lost, within=20)
    story.incidents = installation.incidents("loss")
    installation.lab.run(EDGES[1], ["nft", "insert", "rule", "netdev", "bad", "arriving", "accept"])
    story.loss_ended_s = time.time()
    story.seen, story.dropped = met_on_the_bad_way(installation.lab)
    ports = [port["source_port"] for port in story.pair(NEAR.name)["ports"]]
    story.hashed = hashed_to_the_bad_way(installation.lab, f"sport {{}} dport {REFLECTOR}", ports)
    story.hashed_back = hashed_to_the_bad_way(installation.lab, f"sport {REFLECTOR} dport {{}}", ports)


def pairs(installation: Installation, story: Story, *, whole_windows: bool) -> Sequence[Item]:
    """STAMP of both pairs since the start: whole windows of all paths, or all that have closed."""
    span = {"from": rfc3339(story.began_s // 10 * 10)}
    if whole_windows:
        paths = [path for path in installation.items("paths") if path["protocol"] == "stamp"]
        starts = [path["window_start_time"] for path in paths]
        if len(paths) < 2 * PORTS or None in starts:
            return ()
        to_s = min(seconds(start) for start in starts) + 10
        from_s = -(-story.began_s // 10) * 10
        if to_s <= from_s:
            return ()
        span = story.span = {"from": rfc3339(from_s), "to": rfc3339(to_s)}
    found = installation.items("pairs", **span)
    return found if len(found) == 2 else ()


def look_at_the_tests(installation: Installation, story: Story) -> None:
    evening = installation.evening
    wait_until(evening.night_end_s, installation)

    def decided() -> bool:
        story.tests = [slot for slot in installation.timetable() if slot["window"] == "offpeak"]
        return bool(story.tests) and all(slot["category"] != "pending" for slot in story.tests)

    wait_for("the tests' records", decided, within=20)
    story.too_large = swallowed(installation.lab)
    story.pairs = installation.items("pairs", **story.span)  # again: which way, some records say only later
    wait_for(
        "the windows to close in which the loss ended",
        lambda: all(
            path["window_start_time"] is not None and seconds(path["window_start_time"]) >= story.loss_ended_s - 10
            for path in installation.items("paths")
            if path["protocol"] == "stamp"
        ),
        within=20,
    )
    story.pairs_in_the_end = pairs(installation, story, whole_windows=False)
    story.paths = installation.items("paths")
    echo = [path["path_id"] for path in story.paths if path["protocol"] == "icmp_echo"]

    def stored() -> bool:
        story.echo = windows(installation.collector_state, echo, evening.night_start_s - 10, evening.night_end_s)
        return all(any(row["loaded_by"] is not None for row in rows) for rows in story.echo.values())

    wait_for("windows of the time of the tests", stored, within=20)


def look_at_the_path_mtus(installation: Installation, story: Story) -> None:
    """What the agents found by themselves, with no word from anybody on the way."""

    def found() -> bool:
        story.path_mtus = installation.items("path-mtus", **{"from": rfc3339(story.began_s - 60)})
        story.path_mtu_incidents = installation.incidents("path_mtu")
        return len({check["src"] for check in story.path_mtus}) == len({one["src"] for one in story.paths}) == 2

    wait_for("a check of the path MTU from both ends", found, within=30)

    def is_one() -> bool:
        found()
        return [len(one["children"]) for one in story.path_mtu_incidents if one["closed_time"] is None] == [2]

    wait_for("one incident of both ways", is_one, within=10)


def stop_the_far_agent(installation: Installation, story: Story) -> None:
    story.outcomes_before = outcomes(installation)
    installation.kill_agent(FAR.name)

    def measured() -> bool:
        story.outcomes_after = outcomes(installation)
        return story.outcomes_after["send_failed"] - story.outcomes_before["send_failed"] > 20 * PORTS

    wait_for("two seconds of packets without a reflector", measured, within=20)


def outcomes(installation: Installation, name: str = NEAR.name) -> dict[str, int]:
    """Packets of a host, echo and STAMP, by outcome."""
    pattern = rf'^bandwitness_probe_outcomes_total\{{src="{name}",outcome="(\w+)"\}} (\d+)'
    return {outcome: int(count) for outcome, count in re.findall(pattern, installation.metrics(), re.M)}


# ---------------------------------------------------------------- one bad member


def test_the_ports_that_lose_are_exactly_those_that_the_kernel_sends_the_bad_way(story: Story) -> None:
    pair = story.pair(NEAR.name)
    assert len(pair["ports"]) >= PORTS
    assert 0 < len(story.hashed) < PORTS
    assert story.seen == story.hashed
    assert {port["source_port"] for port in pair["ports"] if port["lost"]} == story.hashed


def test_each_of_them_loses_its_share_and_all_of_it_on_the_way_there(story: Story) -> None:
    pair = story.pair(NEAR.name)
    assert pair["reverse_lost"] == 0
    for port in pair["ports"]:
        if port["source_port"] in story.hashed:
            assert 0.2 < port["lost"] / port["sent"] < 0.8, port
            assert port["lost"] - 3 <= port["forward_lost"] <= port["lost"], port  # a gap counts to its beginning


def test_every_packet_that_was_dropped_is_in_the_direction_it_was_dropped_in(story: Story) -> None:
    """Requests of the near host and replies to the far one."""
    told = {pair["src"]: pair for pair in story.pairs_in_the_end}
    counted = told[NEAR.name]["forward_lost"] + told[FAR.name]["reverse_lost"]
    # Beside them the traces are dropped that the incidents ask for: same ports, no probes.
    assert 0.95 * story.dropped < counted <= story.dropped
    assert told[NEAR.name]["reverse_lost"] == told[FAR.name]["forward_lost"] == 0


def test_the_incident_says_a_stable_subset_of_ports_and_which(story: Story) -> None:
    told = [one for one in story.incidents if one["element"]["name"].startswith(f"{NEAR.name}/")]
    assert told
    for incident in told:
        values = incident["values"]
        both_ways = incident["element"]["kind"] == "pair"  # a port is the same whoever sends from it
        bad = story.hashed | story.hashed_back if both_ways else story.hashed
        assert values["ports_pattern"] == "some"
        assert {int(port) for port in values["lossy_ports"].split()} == bad
        assert values["ports_lossy"] == len(bad) < values["ports_probed"]


def test_nothing_but_the_pair_is_blamed(story: Story) -> None:
    """One way or both: the far host's replies go the bad way too, each by the hash of its own ports."""
    near, far = (f"{host.name}/d0" for host in (NEAR, FAR))
    names = {incident["element"]["name"] for incident in story.incidents}
    assert names <= {f"{near}>{far}#stamp", f"{far}>{near}#stamp", f"{near}|{far}"}


# ---------------------------------------------------------------- case 11


def test_case_11_a_throughput_test_into_an_mtu_black_hole_is_told_from_a_slow_one(story: Story) -> None:
    assert story.too_large > 0
    assert len(story.tests) == 2
    for slot in story.tests:
        assert (slot["category"], slot["outcome"]) == ("failed", "stalled_suspect_mtu"), slot
        assert slot["client_run"]["throughput_bps"] is None


def test_case_11_it_is_kept_out_of_the_medians(story: Story) -> None:
    figures = [path["throughput"] for path in story.paths if path["throughput"] is not None]
    assert all(each["tests_offpeak"] == 0 and each["offpeak_bps"] is None for each in figures)


def test_case_11_small_packets_pass_meanwhile(story: Story) -> None:
    assert len(story.echo) == 2
    for rows in story.echo.values():
        assert sum(row["sent"] for row in rows) > 0
        assert sum(row["lost"] + row["unreachable"] + row["corrupt"] for row in rows) == 0


def test_case_11_the_size_that_still_passes_is_found_and_that_nobody_says_so(story: Story) -> None:
    for check in story.path_mtus:
        assert (check["mtu_bytes"], check["black_hole"]) == (CARRIED_BYTES, True), check
        assert check["interface_mtu_bytes"] == 1500
        fates = {trial["payload_bytes"] + 28: trial["fate"] for trial in check["trials"]}
        assert fates[CARRIED_BYTES] == "replied"
        assert fates[CARRIED_BYTES + 1] == fates[1500] == "silent"
    for incident in story.path_mtu_incidents:
        assert incident["severity"] == "critical"


# ---------------------------------------------------------------- an agent that is not there


def test_agents_that_start_one_after_the_other_lose_nothing(story: Story) -> None:
    for found in story.at_the_start.values():
        assert found["lost"] == found["unreachable"] == found["corrupt"] == 0


def test_a_reflector_that_is_gone_is_our_failure_and_no_loss(story: Story) -> None:
    """Its host answers one in a hundred of the packets with ICMP "port unreachable", which speaks for the others."""
    for outcome in ("lost", "unreachable", "corrupt"):
        assert story.outcomes_after[outcome] == story.outcomes_before[outcome]
    assert story.outcomes_after["replied"] > story.outcomes_before["replied"]  # echo: the host itself is there
