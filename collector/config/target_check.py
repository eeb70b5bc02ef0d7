"""Where targets point to, and whether anything could probe them from here. Pure.

Works on partial structs, as ``check`` does: what could not be read may be what is missed, and raises no fault.
"""

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from bandwitness.settings import Place
from collector.config.schema import EndpointConfig, Node, TargetConfig

Faults = Iterator[tuple[Place, str]]
Address = IPv4Address | IPv6Address


def address_of(text: str) -> Address | None:
    """The address that ``text`` spells; None when it spells none."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def target_faults(place: Place, target: TargetConfig, nodes: Sequence[Node]) -> Faults:
    """(place, message) of what is wrong with where ``target`` is, and where it is probed from."""
    known = [end for node in nodes for end in node.endpoints or () if end is not None]
    in_lane = target.lane is None or target.lane in {end.lane for end in known}
    if not in_lane:
        yield (*place, "lane"), f"no node has an endpoint in lane {target.lane}"
    if target.address is None:
        return
    where = (*place, "address")
    address = address_of(target.address)
    if address is None:
        if not _is_host_name(target.address):
            yield where, f"expected an address or a host name, found {target.address!r}"
        return
    if wrong := _wrong(address):
        yield where, wrong.format(target.address)
        return
    there = [node for node in nodes if target.site in (None, node.site)]
    if not in_lane or not there or any(_may_probe(end, address, target) for node in there for end in _ends(node)):
        return
    site = f" of site {target.site}" if target.site else ""
    lane = f" in lane {target.lane}" if target.lane else ""
    link = f" on {zone}" if (zone := zone_of(address)) else ""
    yield where, f"no node{site} has an IPv{address.version} endpoint{lane}{link} to probe it from"


def zone_of(address: Address) -> str | None:
    """The zone of a link-local address."""
    return address.scope_id if isinstance(address, IPv6Address) else None


def _wrong(address: Address) -> str:
    """Why nobody could probe it, {!r} for what was written; empty: it may be right."""
    if address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
        return "expected the address of one host, found {!r}"
    if isinstance(address, IPv4Address):
        return ""
    if address.ipv4_mapped is not None:
        return f"write the IPv4 address itself: {address.ipv4_mapped}"
    host, _, zone = str(address).partition("%")
    if address.is_link_local and not zone:
        return f"a link-local address needs the NIC that probes it as its zone: {host}%NIC"
    if zone and not address.is_link_local:
        return f"only a link-local address (fe80::/10) has a zone: {host}"
    return ""


def _ends(node: Node) -> Sequence[EndpointConfig | None]:
    return node.endpoints or (None,)


def _may_probe(end: EndpointConfig | None, address: Address, target: TargetConfig) -> bool:
    if end is None or end.address is None or end.nic is None:
        return True
    own = address_of(end.address)
    of_version = own is None or own.version == address.version
    return of_version and zone_of(address) in (None, end.nic) and target.lane in (None, end.lane)


def _is_host_name(text: str) -> bool:
    labels = text.removesuffix(".").split(".")
    if len(text) > 253 or labels[-1].isdigit():  # 10.0.0.256 is a wrong address, not a name
        return False
    return all(re.fullmatch(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", label) for label in labels)
