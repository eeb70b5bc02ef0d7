"""Which parts of the network a path crosses, at the granularity that the configuration's labels support. Pure.

Nobody here sees a switch. What can be named is: the path itself, a pair of endpoints (NICs), an endpoint, a node with
several of them, a target, a carrier (all targets that are reached through it, from one site), the pair of two racks, a
rack's uplink, a rack as a whole (its leaf), the link between two sites, and the fabric (all that lies between racks).
Without the last, a fault in the spine accuses innocent racks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bandwitness.v1.record_pb2 import PROTOCOL_STAMP
from collector.config import Config
from collector.model import Element, EndpointRow, PathRow, SlotRow

# Smaller parts first: where two explain the same paths, the smaller one is named.
KINDS = ("path", "pair", "endpoint", "node", "target", "carrier", "rack_pair", "uplink", "rack", "site_link", "fabric")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands; ``rack`` is its label, unique over all sites."""

    site: str
    rack: str
    uplink: str  # the token of the rack's uplink, as the planner names it


class Topology:
    """Nodes by rack and site, as configured."""

    def __init__(self, config: Config) -> None:
        sites_of_rack: dict[str, set[str]] = {}
        for node in config.nodes:
            sites_of_rack.setdefault(node.rack, set()).add(node.site)
        self._places: Mapping[str, Place] = {
            node.name: Place(
                site=node.site,
                rack=node.rack if len(sites_of_rack[node.rack]) == 1 else f"{node.site}/{node.rack}",
                uplink=f"uplink:{node.site}/{node.rack}",
            )
            for node in config.nodes
        }
        self._endpoints = {node.name: len(node.endpoints) for node in config.nodes}
        self._carriers = {target.name: target.carrier for target in config.targets}
        self._lanes = {endpoint.lane for node in config.nodes for endpoint in node.endpoints}

    def place(self, node: str) -> Place | None:
        """None for a node that is not configured."""
        return self._places.get(node)

    def carrier(self, target: str | None) -> str:
        """Through whom a target is reached; empty where the configuration does not say."""
        return self._carriers.get(target, "") if target is not None else ""

    def tokens(self, ends: Sequence[EndpointRow | None]) -> frozenset[str]:
        """What a test or probe between these ends shares with others, named as the planner does: NICs, uplinks, the
        link between sites.

        ``None`` stands for an end without an agent: whatever it is, the way there leaves the rack.
        """
        known = [end for end in ends if end is not None]
        tokens = {f"nic:{end.node}/{end.nic}" for end in known}
        places = [place for end in known if (place := self._places.get(end.node)) is not None]
        uplinks = {place.uplink for place in places}
        if len(uplinks) > 1 or len(known) < len(ends):
            tokens |= uplinks
        sites = sorted({place.site for place in places})
        if len(sites) > 1:
            tokens.add("site_link:" + "-".join(sites))
        return frozenset(tokens)

    def path_tokens(self, path: PathRow) -> frozenset[str]:
        """Tokens of a path."""
        return self.tokens((path.source, path.destination))

    def slot_tokens(self, slot: SlotRow) -> frozenset[str]:
        """Tokens of a test of ours: those of its path, and what the plan says it holds."""
        return self.tokens((slot.client, slot.server)) | frozenset(slot.tokens)

    def elements(self, path: PathRow) -> list[Element]:
        """What a round trip over ``path`` crosses; both directions, so without direction."""
        found = [Element("path", path_name(path)), *self._ends(path)]
        source = self._places.get(path.source.node)
        if path.destination is None or source is None:
            if source is not None:
                carrier = self.carrier(path.target)
                if carrier:
                    found.append(Element("carrier", f"{source.site}/{carrier}"))
                found += self._by_lane("uplink", source.rack, path)
                found += self._by_lane("rack", source.rack, path)
            return found
        destination = self._places.get(path.destination.node)
        if destination is None:
            return found
        ends = sorted(f"{end.node}/{end.nic}" for end in (path.source, path.destination))
        found.append(Element("pair", "|".join(ends)))
        racks = sorted({source.rack, destination.rack})
        for rack in racks:
            found += self._by_lane("rack", rack, path)
        if len(racks) == 2:
            found += self._by_lane("rack_pair", "|".join(racks), path)
            found += self._by_lane("fabric", "all", path)
            for rack in racks:
                found += self._by_lane("uplink", rack, path)
        if source.site != destination.site:
            found += self._by_lane("site_link", "|".join(sorted({source.site, destination.site})), path)
        return found

    def _ends(self, path: PathRow) -> Iterable[Element]:
        for end in (path.source, path.destination):
            if end is None:
                continue
            yield Element("endpoint", f"{end.node}/{end.nic}")
            if self._endpoints.get(end.node, 0) > 1:
                yield Element("node", end.node)
        if path.target is not None:
            yield Element("target", f"{path.target}/{path.target_address}")

    def _by_lane(self, kind: str, name: str, path: PathRow) -> list[Element]:
        """The element over all lanes and, where lanes differ, over this one: rails have leaves of their own."""
        lane = path.source.lane
        if len(self._lanes) < 2:
            return [Element(kind, name)]
        return [Element(kind, f"{name}#{lane}"), Element(kind, name)]


def path_name(path: PathRow) -> str:
    """``gpu-1/eth0>gpu-2/eth0`` and, as several paths can share both ends, the id's digits. The STAMP paths of a pair
    are one: a member of an ECMP group that is bad is one cause, however many source ports meet it."""
    end = f"{path.destination.node}/{path.destination.nic}" if path.destination else f"{path.target}"
    which = "stamp" if path.protocol == PROTOCOL_STAMP else f"{path.path_id:016x}"
    return f"{path.source.node}/{path.source.nic}>{end}#{which}"[:200]


def destination_name(path: PathRow) -> str:
    """Node or target at the far end."""
    return path.destination.node if path.destination else path.target or ""
