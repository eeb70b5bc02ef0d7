"""Endpoints with their place, and the tokens that a test between two of them holds. Pure.

A token stands for something that two tests must not share, and covers both directions:

- ``nic:<node>/<nic>``: one test at a time.
- ``uplink:<site>/<rack>``: of both racks, where these differ; ``measure.throughput.uplink_tokens`` tests at a time.
- ``site_link:<site>|<site>``: where the sites differ, in order of name; one test at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from bandwitness.v1.record_pb2 import Endpoint
from collector.config import Config
from collector.model import EndpointRow


@dataclass(frozen=True, slots=True, order=True)
class PlacedEndpoint:
    """An endpoint and where it stands. Ordered by place, so that plans do not depend on the order of the file."""

    site: str
    rack: str
    node: str
    nic: str
    lane: str
    ip_version: int  # 4 or 6
    address: str
    client_only: bool = False  # nobody can connect to it

    @property
    def reach(self) -> tuple[str, int, str]:
        """Endpoints that can reach each other have the same: lane, IP version, and the rack where the address is
        link-local, because no link is larger than that for all that the labels say."""
        link_local = self.ip_version == 6 and ip_address(self.address).is_link_local
        return self.lane, self.ip_version, f"{self.site}/{self.rack}" if link_local else ""

    @property
    def row(self) -> EndpointRow:
        return EndpointRow(self.node, self.nic, self.address, self.lane)

    @property
    def message(self) -> Endpoint:
        return Endpoint(node=self.node, nic=self.nic, address=self.address, lane=self.lane)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two endpoints in the direction of the data, and what a test between them holds."""

    source: PlacedEndpoint
    destination: PlacedEndpoint
    tokens: tuple[str, ...]

    @property
    def reverse(self) -> bool:
        """Whether the server sends: an endpoint that nobody can connect to is always the client."""
        return self.destination.client_only

    @property
    def client(self) -> PlacedEndpoint:
        return self.destination if self.reverse else self.source

    @property
    def server(self) -> PlacedEndpoint:
        return self.source if self.reverse else self.destination


def placed_endpoints(config: Config) -> tuple[PlacedEndpoint, ...]:
    """All endpoints of the fleet, in order of place."""
    return tuple(
        sorted(
            PlacedEndpoint(
                site=node.site,
                rack=node.rack,
                node=node.name,
                nic=endpoint.nic,
                lane=endpoint.lane,
                ip_version=ip_address(endpoint.address).version,
                address=endpoint.address,
                client_only=endpoint.client_only,
            )
            for node in config.nodes
            for endpoint in node.endpoints
        )
    )


def lanes(endpoints: Sequence[PlacedEndpoint]) -> dict[tuple[str, int, str], list[PlacedEndpoint]]:
    """Endpoints that can reach each other (``PlacedEndpoint.reach``), in the order given."""
    found: dict[tuple[str, int, str], list[PlacedEndpoint]] = {}
    for endpoint in endpoints:
        found.setdefault(endpoint.reach, []).append(endpoint)
    return found


def racks(endpoints: Sequence[PlacedEndpoint]) -> dict[tuple[str, str], list[PlacedEndpoint]]:
    """Endpoints by site and rack, in the order given."""
    found: dict[tuple[str, str], list[PlacedEndpoint]] = {}
    for endpoint in endpoints:
        found.setdefault((endpoint.site, endpoint.rack), []).append(endpoint)
    return found


def pair(source: PlacedEndpoint, destination: PlacedEndpoint) -> Pair | None:
    """The pair, or None where no test is possible: nobody can connect to either, or it is one host."""
    if source.node == destination.node or (source.client_only and destination.client_only):
        return None
    return Pair(source, destination, tokens(source, destination))


def tokens(a: PlacedEndpoint, b: PlacedEndpoint) -> tuple[str, ...]:
    """What a test between ``a`` and ``b`` holds; the same in both directions, in order of name within a kind."""
    held = sorted({f"nic:{end.node}/{end.nic}" for end in (a, b)})
    if (a.site, a.rack) != (b.site, b.rack):
        held += sorted({f"uplink:{end.site}/{end.rack}" for end in (a, b)})
    if a.site != b.site:
        held.append("site_link:" + "|".join(sorted((a.site, b.site))))  # no name holds a bar
    return tuple(held)


def capacity(token: str, uplink_tokens: int) -> int:
    """How many tests may hold ``token`` at a time."""
    return uplink_tokens if token.startswith("uplink:") else 1
