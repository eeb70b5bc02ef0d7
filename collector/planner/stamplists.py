"""Who probes whom with STAMP, over which source ports and how often, and whom each reflector answers. Pure.

The pairs are those of the echo probes. Each pair gets ``measure.stamp.ports`` source ports, four fifths of which stay
while the others change every hour. Targets that reflect (``probes: [stamp]``) get as many source ports as they ask for,
which all stay. The rate (``measure.stamp.rate``) is one of its own, beside that of echo: a node sends at most the sum
of both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bandwitness.v1.plan_pb2 import StampTarget
from bandwitness.v1.record_pb2 import Target
from collector.config import Config, Node, Stamp, TargetConfig
from collector.planner import PlanError
from collector.planner.endpoints import PlacedEndpoint, lanes, racks
from collector.planner.pinglists import ALL_PEERS_UP_TO, MS, intervals, peers, source_of, too_fast
from collector.windows import SECOND

PAYLOAD_BYTES = 44  # the base packet of RFC 8762
# Above what Linux gives out (net.ipv4.ip_local_port_range), below the ports that rotate (agent/probe/stamp_ports.py).
FIRST_SOURCE_PORT = 61_000


@dataclass(frozen=True, slots=True)
class Stamplists:
    targets: dict[str, list[StampTarget]] = field(default_factory=dict)  # by node
    senders: dict[str, list[str]] = field(default_factory=dict)  # by node: addresses that its reflector answers


def stamplists(config: Config, endpoints: Sequence[PlacedEndpoint], day: int) -> Stamplists:
    """What each node probes on ``day``, and whom it answers; where STAMP is off only targets, and nobody.

    Peers turn by day and plans arrive at each node at its own time, so a reflector answers the senders of the day
    before and after too.

    Raises:
        PlanError: with ``measure.stamp.interval`` a node would exceed ``measure.stamp.rate``.
    """
    stamp = config.measure.stamp
    by_lane = {lane: racks(found) for lane, found in lanes(endpoints).items()}
    days = [None] if len(config.nodes) <= ALL_PEERS_UP_TO else [day, day - 1, day + 1]
    near: dict[str, list[StampTarget]] = {node.name: [] for node in config.nodes}
    far: dict[str, list[StampTarget]] = {node.name: [] for node in config.nodes}
    senders: dict[str, set[str]] = {node.name: set() for node in config.nodes}
    for source in endpoints if stamp.enabled else ():
        in_reach = by_lane[source.reach]
        for turn, chosen in enumerate(days):
            for peer in peers(source, in_reach, chosen):
                senders[peer.node].add(source.address)
                if turn == 0:
                    same_rack = (peer.site, peer.rack) == (source.site, source.rack)
                    (near if same_rack else far)[source.node].append(_target(source, peer, config))
    problems: list[str] = []
    found: dict[str, list[StampTarget]] = {}
    for node in config.nodes:
        fixed: list[StampTarget] = []
        own = [endpoint for endpoint in endpoints if endpoint.node == node.name]
        for target in config.targets:
            probes = _target_probes(node, own, target, config)
            (far[node.name] if target.interval is None else fixed).extend(probes)
        problems += _set_intervals(node.name, near[node.name], far[node.name], fixed, stamp)
        found[node.name] = near[node.name] + far[node.name] + fixed
    if problems:
        raise PlanError(problems)
    return Stamplists(
        found,
        {node: sorted(found) for node, found in senders.items()},
    )


def _target(source: PlacedEndpoint, peer: PlacedEndpoint, config: Config) -> StampTarget:
    stamp, echo = config.measure.stamp, config.measure.echo
    rotating = stamp.ports // 5
    return StampTarget(
        source=source.message,
        endpoint=peer.message,
        destination_port=stamp.port,
        source_port=range(FIRST_SOURCE_PORT, FIRST_SOURCE_PORT + stamp.ports - rotating),
        rotating_ports=rotating,
        payload_bytes=PAYLOAD_BYTES,
        dscp=stamp.dscp,
        waiting_time_ns=echo.waiting_time if peer.site == source.site else echo.waiting_time_across_sites,
    )


def _target_probes(
    node: Node, endpoints: Sequence[PlacedEndpoint], target: TargetConfig, config: Config
) -> list[StampTarget]:
    source = source_of(node, endpoints, target) if "stamp" in target.probes else None
    if source is None:
        return []
    stamp, echo = config.measure.stamp, config.measure.echo
    probe = StampTarget(
        source=source.message,
        target=Target(name=target.name, address=target.address),
        destination_port=target.stamp_port,
        source_port=range(FIRST_SOURCE_PORT, FIRST_SOURCE_PORT + target.source_ports),
        payload_bytes=max(PAYLOAD_BYTES, target.payload or 0),
        dscp=stamp.dscp if target.dscp is None else target.dscp,
        interval_ns=target.interval or 0,
        waiting_time_ns=target.waiting_time or echo.waiting_time_across_sites,
    )
    return [probe]


def paths_in(targets: Sequence[StampTarget]) -> int:
    """How many paths these are: one a source port."""
    return sum(len(target.source_port) + target.rotating_ports for target in targets)


def _set_intervals(
    node: str,
    near: Sequence[StampTarget],
    far: Sequence[StampTarget],
    fixed: Sequence[StampTarget],
    stamp: Stamp,
) -> list[str]:
    """Sets the interval of each target's paths but those ``fixed``, which have theirs; gives back what cannot be, if
    anything."""
    count = paths_in(near) + paths_in(far)
    taken = sum(paths_in([target]) * SECOND / target.interval_ns for target in fixed)
    left = stamp.rate - taken
    if left < 0 or (count and left == 0):
        return [too_fast(node, "STAMP ", len(fixed), taken, stamp.rate)]
    if not count:
        return []
    if stamp.interval is None:
        near_ns, far_ns = intervals(paths_in(near), paths_in(far), left)
    else:
        near_ns = far_ns = stamp.interval
    for targets, interval_ns in ((near, near_ns), (far, far_ns)):
        for target in targets:
            target.interval_ns = interval_ns
    if stamp.interval is None or count * SECOND / stamp.interval <= left:
        return []
    others = f" and {taken:g} to targets with an interval of their own" if fixed else ""
    problem = (
        f"{node} would send {count * SECOND / stamp.interval:g} STAMP probes/s ({len(near) + len(far)} peers and "
        f"targets, {count} ports, one probe each {stamp.interval / MS:g} ms){others}, but measure.stamp.rate allows "
        f"{stamp.rate:g}; make measure.stamp.interval longer or the rate larger"
    )
    return [problem]
