"""A small network of racks as data, and the shell script that builds it. Pure.

The fabric (leaf bridges, core bridge, management bridge) lives in the lab's own network namespace; every host, the
collector and the competing tenant have one each. Data plane::

    host d0 -- leaf-r1 == uplink (shaped in both directions) == core == uplink == leaf-r2 -- d0 host
                  |                                              |
               tenant                                       tenant-peer

The tenant joins before the shaped link, so its packets and ours wait in the same queue. Rates are small so that two
cores are never the limit.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

COLLECTOR = "collector"  # namespace names
TENANT = "tenant"
TENANT_PEER = "tenant-peer"
COLLECTOR_ADDRESS = "198.19.0.1"
TENANT_ADDRESS = "198.18.240.1"
TENANT_PEER_ADDRESS = "198.18.240.2"
DATA_NIC = "d0"
MANAGEMENT_NIC = "m0"
BURST_BYTES = (
    128 * 1024
)  # above one GSO packet with its headers: else the token bucket takes each apart, at the cost of a core


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody else behind a rack's uplink: ``streams`` TCP flows in each direction while it is on."""

    rack: str
    streams: int = 6  # leaves ours about a third; with more, ours time out now and then
    outwards: bool = True  # rack -> core
    inwards: bool = True  # core -> rack


@dataclass(frozen=True, slots=True)
class Host:
    """One machine with an agent; its name is also that of its namespace."""

    name: str
    rack: str
    address: str  # on DATA_NIC
    management_address: str  # on MANAGEMENT_NIC

    @property
    def port(self) -> str:
        """The leaf bridge's end of the data link."""
        return f"p-{self.name}"

    @property
    def management_port(self) -> str:
        return f"q-{self.name}"


@dataclass(frozen=True, slots=True)
class Topology:
    """What to build. ``racks`` is how many hosts each rack has, by name."""

    racks: dict[str, int]
    tenant: Tenant | None = None
    host_rate_bps: int = 500_000_000
    uplink_rate_bps: int = 200_000_000
    uplink_queue_bytes: int = 256 * 1024  # 10 ms at 200 Mbit/s
    hosts: Sequence[Host] = field(init=False)

    def __post_init__(self) -> None:
        if self.tenant is not None and self.tenant.rack not in self.racks:
            raise ValueError(f"the tenant's rack {self.tenant.rack} is none of {', '.join(self.racks)}")
        object.__setattr__(self, "hosts", tuple(self._hosts()))
        names = [host.management_port for host in self.hosts] + [uplink_ports(rack)[0] for rack in self.racks]
        if too_long := [name for name in names if len(name) > 15]:
            raise ValueError(f"Linux allows 15 characters for an interface: {', '.join(too_long)}")

    def _hosts(self) -> Iterator[Host]:
        management = 10
        for number, (rack, count) in enumerate(self.racks.items(), start=1):
            for index in range(1, count + 1):
                management += 1
                yield Host(
                    name=f"gpu-{rack}-{index:02}",
                    rack=rack,
                    address=f"198.18.{number}.{10 + index}",
                    management_address=f"198.19.0.{management}",
                )

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def namespaces(self) -> list[str]:
        tenants = [TENANT, TENANT_PEER] if self.tenant else []
        return [COLLECTOR, *tenants, *(host.name for host in self.hosts)]


def oversold_by_seed(seed: int, racks: Sequence[str]) -> str:
    """Which rack's uplink the seed oversells. The same seed and racks give the same answer everywhere."""
    return random.Random(seed).choice(sorted(racks))


def leaf(rack: str) -> str:
    return f"leaf-{rack}"


def uplink_ports(rack: str) -> tuple[str, str]:
    """The two ends of a rack's uplink: at its leaf (sends to the core) and at the core (sends to the rack)."""
    return f"up-{rack}", f"down-{rack}"


def build_script(topology: Topology) -> str:
    """Shell commands that build the network, to be run in the lab's own namespace."""
    return "\n".join(["set -eu", *_lines(topology), ""])


def _lines(topology: Topology) -> Iterator[str]:
    yield "ip link set lo up"
    for bridge in ("core", "mgmt", *(leaf(rack) for rack in topology.racks)):
        # No snooping querier and no spanning tree here: a bridge forwards from the first moment.
        yield f"ip link add {bridge} type bridge forward_delay 0 mcast_snooping 0"
        yield f"ip link set {bridge} up"
    for rack in topology.racks:
        up, down = uplink_ports(rack)
        yield f"ip link add {up} type veth peer name {down}"
        yield f"ip link set {up} master {leaf(rack)} up"
        yield f"ip link set {down} master core up"
        yield _shape(f"tc qdisc add dev {up}", topology.uplink_rate_bps, topology.uplink_queue_bytes)
        yield _shape(f"tc qdisc add dev {down}", topology.uplink_rate_bps, topology.uplink_queue_bytes)
    for name in topology.namespaces():
        yield f"ip netns add {name}"
        yield f"ip -n {name} link set lo up"
    yield from _attach(COLLECTOR, MANAGEMENT_NIC, f"{COLLECTOR_ADDRESS}/24", "q-collector", "mgmt")
    host_queue = topology.host_rate_bps // 8 // 100  # 10 ms
    for host in topology.hosts:
        yield from _attach(host.name, DATA_NIC, f"{host.address}/16", host.port, leaf(host.rack))
        yield from _attach(host.name, MANAGEMENT_NIC, f"{host.management_address}/24", host.management_port, "mgmt")
        yield _shape(f"tc -n {host.name} qdisc add dev {DATA_NIC}", topology.host_rate_bps, host_queue)
        yield _shape(f"tc qdisc add dev {host.port}", topology.host_rate_bps, host_queue)
    if topology.tenant:
        yield from _attach(TENANT, DATA_NIC, f"{TENANT_ADDRESS}/16", "p-tenant", leaf(topology.tenant.rack))
        yield from _attach(TENANT_PEER, DATA_NIC, f"{TENANT_PEER_ADDRESS}/16", "p-tenant-peer", "core")


def _attach(namespace: str, nic: str, address: str, port: str, bridge: str) -> Iterator[str]:
    yield f"ip link add {port} type veth peer name {nic} netns {namespace}"
    yield f"ip link set {port} master {bridge} up"
    yield f"ip -n {namespace} address add {address} dev {nic}"
    yield f"ip -n {namespace} link set {nic} up"


def _shape(command: str, rate_bps: int, queue_bytes: int) -> str:
    return f"{command} root tbf rate {rate_bps}bit burst {BURST_BYTES} limit {queue_bytes}"
