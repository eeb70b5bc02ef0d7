"""Who probes whom, and how often. Pure.

A node probes, from each of its endpoints and on the same lane: all peers in its rack; in every other rack one peer,
another one each day, chosen so that the hosts of a rack spread over the peers (in a fleet of up to ``ALL_PEERS_UP_TO``
nodes: all of them); and, from one endpoint, every configured target of its site. What nobody can connect to is not
probed: silence there would say nothing.

Where it has peers in its rack, at least ``IN_RACK_SHARE`` of its probes go to them: that share alone tells a leaf from
its uplinks. Without ``measure.echo.interval`` intervals follow from ``measure.echo.rate``, the node's probes per second
in all; with it, that is the interval of every target and the rate only a cap. What targets with an interval of their
own need is taken off the rate first.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address

from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import Protocol, Target
from collector.config import Config, Echo, Node, TargetConfig
from collector.planner import PlanError
from collector.planner.endpoints import PlacedEndpoint, lanes, racks
from collector.windows import SECOND

ALL_PEERS_UP_TO = 16  # nodes
IN_RACK_SHARE = 0.2
SHORTEST_INTERVAL_NS = 100_000_000
MS = SECOND // 1000

LaneRacks = dict[tuple[str, str], list[PlacedEndpoint]]


@dataclass(frozen=True, slots=True)
class Pinglists:
    targets: dict[str, list[RoundTripTarget]]  # by node
    notes: tuple[str, ...]  # what is not probed as asked, for people


def pinglists(config: Config, endpoints: Sequence[PlacedEndpoint], day: int) -> Pinglists:
    """What each node probes on ``day`` (any count of days; it turns the peers in other racks).

    Raises:
        PlanError: with ``measure.echo.interval`` a node would exceed ``measure.echo.rate``.
    """
    by_lane = {lane: racks(found) for lane, found in lanes(endpoints).items()}
    of_node: dict[str, list[PlacedEndpoint]] = {}
    for endpoint in endpoints:
        of_node.setdefault(endpoint.node, []).append(endpoint)
    all_peers = len(config.nodes) <= ALL_PEERS_UP_TO
    echo = config.measure.echo
    found: dict[str, list[RoundTripTarget]] = {}
    reached: set[str] = set()
    problems: list[str] = []
    for node in config.nodes:
        near: list[RoundTripTarget] = []
        far: list[RoundTripTarget] = []
        for endpoint in of_node[node.name]:
            in_reach = by_lane[endpoint.reach]
            for peer in peers(endpoint, in_reach, None if all_peers else day):
                same_rack = (peer.site, peer.rack) == (endpoint.site, endpoint.rack)
                (near if same_rack else far).append(_peer_probe(endpoint, peer, echo))
        fixed: list[RoundTripTarget] = []
        for target in config.targets:
            probes = _target_probes(node, of_node[node.name], target, echo)
            reached |= {target.name} if source_of(node, of_node[node.name], target) else set()
            (far if target.interval is None else fixed).extend(probes)
        problems += _set_intervals(node.name, near, far, fixed, echo)
        found[node.name] = near + far + fixed
    if problems:
        raise PlanError(problems)
    lost = [target.name for target in config.targets if target.name not in reached]
    notes = [f"no node has an endpoint that can probe the target {name} (site, lane, IP version)" for name in lost]
    return Pinglists(found, tuple(notes))


def peers(source: PlacedEndpoint, by_rack: LaneRacks, day: int | None) -> Iterator[PlacedEndpoint]:
    """What ``source`` probes in its lane: all of its rack, and of other racks one; all where ``day`` is None."""
    own = (source.site, source.rack)
    place = by_rack[own].index(source)
    for rack, members in by_rack.items():
        peers = [peer for peer in members if peer.node != source.node and not peer.client_only]
        if rack != own and peers and day is not None:
            peers = [peers[(day + place) % len(peers)]]
        yield from peers


def _peer_probe(source: PlacedEndpoint, peer: PlacedEndpoint, echo: Echo) -> RoundTripTarget:
    return RoundTripTarget(
        source=source.message,
        endpoint=peer.message,
        protocol=Protocol.PROTOCOL_ICMP_ECHO,
        payload_bytes=echo.payload,
        dscp=echo.dscp,
        waiting_time_ns=echo.waiting_time if peer.site == source.site else echo.waiting_time_across_sites,
    )


def _target_probes(
    node: Node, endpoints: Sequence[PlacedEndpoint], target: TargetConfig, echo: Echo
) -> list[RoundTripTarget]:
    source = source_of(node, endpoints, target)
    if source is None:
        return []
    probes = []
    for name in target.probes:
        if name == "stamp":
            continue  # of a list of its own
        probe = RoundTripTarget(
            source=source.message,
            target=Target(name=target.name, address=target.address),
            protocol=Protocol.PROTOCOL_ICMP_ECHO,
            payload_bytes=echo.payload if target.payload is None else target.payload,
            dscp=echo.dscp if target.dscp is None else target.dscp,
            interval_ns=target.interval or 0,
            waiting_time_ns=target.waiting_time or echo.waiting_time_across_sites,
        )
        if name == "tcp_connect":
            probe.protocol = Protocol.PROTOCOL_TCP_CONNECT
            probe.payload_bytes = 0
            probe.destination_port = target.port
        probes.append(probe)
    return probes


def source_of(node: Node, endpoints: Sequence[PlacedEndpoint], target: TargetConfig) -> PlacedEndpoint | None:
    """The endpoint of ``node`` a target is probed from: of the IP version of its address, unless it is a name, and on
    its link where it is link-local; in the target's lane, or else wan, management, the first. None: another site's."""
    if target.site is not None and target.site != node.site:
        return None
    version, zone = None, None
    with suppress(ValueError):  # a name: the agent resolves it
        address = ip_address(target.address)
        version, zone = address.version, getattr(address, "scope_id", None)
    fitting = [
        end
        for end in endpoints
        if version in {None, end.ip_version} and zone in {None, end.nic} and target.lane in {None, end.lane}
    ]
    preference = {"wan": 0, "management": 1}
    return min(fitting, key=lambda end: preference.get(end.lane, 2), default=None)


def _set_intervals(
    node: str,
    near: Sequence[RoundTripTarget],
    far: Sequence[RoundTripTarget],
    fixed: Sequence[RoundTripTarget],
    echo: Echo,
) -> list[str]:
    """Sets the interval of each target but those ``fixed``, which have theirs; gives back what cannot be, if
    anything."""
    count = len(near) + len(far)
    taken = sum(SECOND / probe.interval_ns for probe in fixed)
    left = echo.rate - taken
    if left < 0 or (count and left == 0):
        return [too_fast(node, "", len(fixed), taken, echo.rate)]
    if count == 0:
        return []
    if echo.interval is not None:
        rate = count * SECOND / echo.interval
        for probe in (*near, *far):
            probe.interval_ns = echo.interval
        if rate <= left:
            return []
        others = f" and {taken:g} to targets with an interval of their own" if fixed else ""
        problem = (
            f"{node} would send {rate:g} probes/s ({count} targets, one probe each {echo.interval / MS:g} ms){others}, "
            f"but measure.echo.rate allows {echo.rate:g}; make measure.echo.interval at least "
            f"{_interval_ns(count, left) / MS:g} ms or the rate larger"
        )
        return [problem]
    near_ns, far_ns = intervals(len(near), len(far), left)
    for probes, interval_ns in ((near, near_ns), (far, far_ns)):
        for probe in probes:
            probe.interval_ns = interval_ns
    return []


def too_fast(node: str, kind: str, count: int, taken: float, rate: float) -> str:
    """What is wrong where targets with an interval of their own use up the rate (``kind``: "", "STAMP ")."""
    key = f"measure.{kind.lower().strip() or 'echo'}.rate"
    return (
        f"{node} would send {taken:g} {kind}probes/s to {count} targets with an interval of their own, but {key} "
        f"allows {rate:g} for all; make their intervals longer or the rate larger"
    )


def intervals(near: int, far: int, rate: float) -> tuple[int, int]:
    """Intervals of so many paths in the rack and beyond it that stay within ``rate`` and keep the rack's share."""
    if not near or near >= IN_RACK_SHARE * (near + far):
        interval_ns = max(SHORTEST_INTERVAL_NS, _interval_ns(near + far, rate))
        return interval_ns, interval_ns
    near_ns = max(SHORTEST_INTERVAL_NS, _interval_ns(near, IN_RACK_SHARE * rate))
    # What the shortest interval and rounding took from the rack is taken from the rest too.
    far_rate = near * SECOND / near_ns * (1 - IN_RACK_SHARE) / IN_RACK_SHARE
    return near_ns, max(SHORTEST_INTERVAL_NS, _interval_ns(far, far_rate))


def _interval_ns(targets: int, rate: float) -> int:
    """The interval, in whole milliseconds, at which ``targets`` stay within ``rate`` probes per second."""
    return int(-(-targets * 1000 // rate)) * MS
