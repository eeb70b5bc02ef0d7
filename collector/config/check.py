"""What only the whole of collector.yaml shows to be wrong: names that nothing defines, names that two things bear,
windows that overlap, figures that contradict each other. Pure but for a look into the time zone database.

Works on partial structs too (``bandwitness.settings.load``, ``check_partial``): a value that could not be read is its
default or None and raises no fault of its own here.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv6Address, ip_address
from zoneinfo import ZoneInfo, available_timezones

from bandwitness.settings import Place, dotted
from collector.config.measure_check import measure_faults, rules_faults, target_bounds
from collector.config.remote_write_check import remote_write_faults
from collector.config.schema import (
    DAY_S,
    Collector,
    Config,
    EndpointConfig,
    Node,
    Permission,
    Site,
    TargetConfig,
    Unit,
    parse_listen,
    parse_window,
)
from collector.config.target_check import address_of, target_faults
from collector.config.witness_check import witness_faults

MIN_SPEED_BPS = 1_000_000  # below, all that a NIC counts would be more than it can carry
Faults = Iterator[tuple[Place, str]]


def faults(config: Config) -> Faults:
    """(place, message) of each fault of ``config``."""
    sites = [(("sites", index), site) for index, site in enumerate(config.sites or ()) if site is not None]
    nodes = [(("nodes", index), node) for index, node in enumerate(config.nodes or ()) if node is not None]
    targets = [(("targets", index), target) for index, target in enumerate(config.targets) if target is not None]
    units = [(("units", index), unit) for index, unit in enumerate(config.units) if unit is not None]
    yield from _collector(config.collector)
    for key, items in (("sites", config.sites), ("nodes", config.nodes)):
        if items is not None and not items:
            yield (key,), f"at least one {key[:-1]} is needed"
    for named in (sites, nodes, targets, units):
        yield from _doubled([((*place, "name"), item.name) for place, item in named])
    for place, site in sites:
        yield from _site(place, site)
    site_names = _names(site.name for _, site in sites)
    for place, node in nodes:
        yield from _unknown((*place, "site"), node.site, "site", site_names)
        if node.name is not None and node.name == config.collector.name:
            yield (*place, "name"), "the collector bears this name already: each signs under its own"
        yield from _endpoints(place, node)
    yield from _doubled(list(_addresses(nodes)))
    first = {node.name: place for place, node in nodes}
    for place, target in targets:
        if target.name is not None and target.name in first:
            clash = f"{target.name!r} is a node ({dotted(first[target.name])}): give the target a name of its own"
            yield (*place, "name"), clash
        yield from _target(place, target, site_names, nodes)
    yield from _units(units, nodes)
    racks = _names(node.rack for _, node in nodes)
    for index, permission in enumerate(config.permissions):
        if permission is not None:
            yield from _permission(("permissions", index), permission, site_names, racks)
    yield from measure_faults(config.measure)
    yield from rules_faults(config.rules, config.measure)


# ---------------------------------------------------------------- names


def _names(names: Iterator[str | None]) -> frozenset[str] | None:
    """None where one of them could not be read: then nothing can be said to be unknown."""
    found = set(names)
    return None if None in found else frozenset(name for name in found if name is not None)


def _permission(
    place: Place, permission: Permission, sites: frozenset[str] | None, racks: frozenset[str] | None
) -> Faults:
    yield from _unknown((*place, "site"), permission.site, "site", sites)
    if permission.rack is not None:
        yield from _unknown((*place, "rack"), permission.rack, "rack", racks)
    for index, text in enumerate(permission.hours or ()):
        try:
            parse_window(text)
        except ValueError as error:
            yield (*place, "hours", index), str(error)


def _doubled(named: Sequence[tuple[Place, str | None]]) -> Faults:
    first: dict[str, Place] = {}
    for place, name in named:
        if name is None:
            continue
        if name in first:
            yield place, f"{name!r} stands here twice (first in {dotted(first[name])})"
        else:
            first[name] = place


def _unknown(place: Place, name: str | None, kind: str, known: frozenset[str] | None) -> Faults:
    if name is None or known is None or name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known)[:20]) or 'none'}"
    yield place, f"unknown {kind} {name!r}; {hint}"


# ---------------------------------------------------------------- collector


def _collector(collector: Collector) -> Faults:
    if collector.state_dir == "":
        yield ("collector", "state_dir"), "expected a folder, found ''"
    yield from _grpc_listen(("collector", "grpc_listen"), collector)
    yield from _enrol_listen(("collector", "tls", "enrol_listen"), collector)
    yield from _http_listen(("collector", "http_listen"), collector)
    yield from witness_faults(collector)
    yield from remote_write_faults(collector)
    names = [
        (("collector", part, index, "name"), one.name)
        for part in ("timestamp_authorities", "witnesses", "remote_write")
        for index, one in enumerate(getattr(collector, part))
    ]
    yield from _doubled(names)


def _grpc_listen(place: Place, collector: Collector) -> Faults:
    try:
        host, _ = parse_listen(collector.grpc_listen)
    except ValueError as error:
        yield place, f"{error}, found {collector.grpc_listen[:60]!r}"
        return
    if not ip_address(host).is_loopback and collector.tls is None:
        yield place, f"{host} is not loopback: this needs collector.tls (ca, certificate, key)"


def _enrol_listen(place: Place, collector: Collector) -> Faults:
    tls = collector.tls
    if tls is None or tls.enrol_listen is None:
        return
    try:
        found = parse_listen(tls.enrol_listen)
    except ValueError as error:
        yield place, f"{error}, found {tls.enrol_listen[:60]!r}"
        return
    if found[1] and tls.enrol_listen == collector.grpc_listen:
        yield place, "expected a port of its own: that of grpc_listen takes nobody without a certificate"


def _http_listen(place: Place, collector: Collector) -> Faults:
    text = collector.http_listen
    if text.startswith("fd:"):
        if not re.fullmatch(r"fd:(?:[3-9]|[1-9][0-9]{1,8})", text):
            found = repr(text[:60])
            yield place, f"expected fd:N with the number (3 or more) of an inherited listening socket, found {found}"
        return
    try:
        host, _ = parse_listen(text)
    except ValueError as error:
        yield place, f"{error}, or fd:N, found {text[:60]!r}"
        return
    if not ip_address(host).is_loopback and collector.http_tls is None:
        why = "beyond this host readers show a token, and that needs collector.http_tls (certificate, key)"
        yield place, f"{host} is not loopback: {why}"


# ---------------------------------------------------------------- sites


def _site(place: Place, site: Site) -> Faults:
    try:
        ZoneInfo(site.time_zone)
    except (LookupError, ValueError, OSError):  # ZoneInfo opens what it is given: "Europe" is a folder
        near = difflib.get_close_matches(site.time_zone, available_timezones(), n=1)
        hint = f"did you mean {near[0]}?" if near else "expected an IANA name such as Asia/Shanghai, Europe/Amsterdam"
        yield (*place, "time_zone"), f"unknown time zone {site.time_zone!r}; {hint}"
    found: list[tuple[str, str, tuple[int, int]]] = []
    for kind, texts in (("peak", site.windows.peak), ("offpeak", site.windows.offpeak)):
        where = (*place, "windows", kind)
        if not texts:
            yield where, 'expected at least one window such as "19:00-23:00"'
        for index, text in enumerate(texts):
            if text is None:  # could not be read
                continue
            try:
                window = parse_window(text)
            except ValueError as error:
                yield (*where, index), f"{error}, found {text!r}"
                continue
            for other_kind, other_text, other in found:
                if _overlap(window, other):
                    yield (
                        (*where, index),
                        f"{kind} {text} overlaps {other_kind} {other_text}: a moment is in one window",
                    )
            found.append((kind, text, window))


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether two daily windows share a moment, one of today and one of yesterday, today or tomorrow."""
    (a_start, a_end), (b_start, b_end) = ((s, e if e > s else e + DAY_S) for s, e in (a, b))
    return any(a_start < b_end + shift and b_start + shift < a_end for shift in (-DAY_S, 0, DAY_S))


# ---------------------------------------------------------------- nodes


def _endpoints(place: Place, node: Node) -> Faults:
    if node.endpoints is None:
        return
    if not node.endpoints:
        yield (*place, "endpoints"), "at least one endpoint is needed: {nic: …, address: …}"
    nic_of_lane: dict[str, str] = {}
    seen: dict[tuple[str, str, int], Place] = {}
    for index, endpoint in enumerate(node.endpoints):
        if endpoint is None:
            continue
        where = (*place, "endpoints", index)
        yield from _endpoint(where, endpoint)
        nic = endpoint.nic
        if nic is None or nic_of_lane.setdefault(endpoint.lane, nic) != nic:
            if nic is not None:
                other = nic_of_lane[endpoint.lane]
                yield (
                    (*where, "lane"),
                    f"{other} of this node is in lane {endpoint.lane} already: one NIC (or bond) a node and lane",
                )
            continue
        address = address_of(endpoint.address) if endpoint.address is not None else None
        if address is None:
            continue
        key = (nic, endpoint.lane, address.version)
        if key in seen:
            yield (
                where,
                f"{nic} has an IPv{address.version} endpoint in lane {endpoint.lane} already ({dotted(seen[key])})",
            )
        seen.setdefault(key, where)


def _endpoint(place: Place, endpoint: EndpointConfig) -> Faults:
    if endpoint.speed is not None and endpoint.speed < MIN_SPEED_BPS:
        yield (*place, "speed"), f"expected at least 1M (leave it out where it is not known), found {endpoint.speed}"
    if endpoint.address is None:
        return
    address = address_of(endpoint.address)
    if address is None:
        examples = "10.0.1.11, 2001:db8::11 or fe80::11%ens1f0"
        yield (*place, "address"), f"expected an IPv4 or IPv6 address such as {examples}, found {endpoint.address!r}"
    elif address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
        yield (*place, "address"), f"expected the address of one host, found {endpoint.address!r}"
    elif isinstance(address, IPv6Address):
        yield from _ipv6((*place, "address"), address, endpoint.nic or "NIC")


def _ipv6(place: Place, address: IPv6Address, nic: str) -> Faults:
    """One spelling for one address, or one path would have two ids: paths are hashes of the text."""
    if address.ipv4_mapped is not None:
        yield place, f"write the IPv4 address itself: {address.ipv4_mapped}"
    elif address.is_link_local and address.scope_id != nic:
        yield place, f"a link-local address needs the NIC as its zone: {str(address).partition('%')[0]}%{nic}"
    elif not address.is_link_local and address.scope_id is not None:
        yield place, f"only a link-local address (fe80::/10) has a zone: {str(address).partition('%')[0]}"


def _addresses(nodes: Sequence[tuple[Place, Node]]) -> Iterator[tuple[Place, str]]:
    for place, node in nodes:
        for index, endpoint in enumerate(node.endpoints or ()):
            address = address_of(endpoint.address) if endpoint is not None and endpoint.address is not None else None
            if address is not None and not address.is_link_local:  # those mean something on their own link only
                yield (*place, "endpoints", index, "address"), str(address)


# ---------------------------------------------------------------- targets and units


def _target(
    place: Place, target: TargetConfig, sites: frozenset[str] | None, nodes: Sequence[tuple[Place, Node]]
) -> Faults:
    yield from _unknown((*place, "site"), target.site, "site", sites)
    if not target.probes:
        yield (*place, "probes"), "at least one probe is needed: echo, tcp_connect, stamp"
    yield from _doubled([((*place, "probes", index), probe) for index, probe in enumerate(target.probes)])
    yield from target_faults(place, target, [node for _, node in nodes])
    yield from target_bounds(place, target)


def _units(units: Sequence[tuple[Place, Unit]], nodes: Sequence[tuple[Place, Node]]) -> Faults:
    sites_of_rack: dict[str, set[str]] = {}
    for _, node in nodes:
        if node.rack is not None and node.site is not None:
            sites_of_rack.setdefault(node.rack, set()).add(node.site)
    racks = _names(node.rack for _, node in nodes)
    first: dict[tuple[str, str], Place] = {}
    for place, unit in units:
        if unit.rack is None or unit.kind is None:
            continue
        where = (*place, "rack")
        yield from _unknown(where, unit.rack, "rack", racks)
        sites = sorted(sites_of_rack.get(unit.rack, ()))
        if len(sites) > 1:
            yield where, f"rack {unit.rack!r} stands in several sites ({', '.join(sites)}): give racks their own names"
        if (unit.kind, unit.rack) in first:
            yield where, f"the {unit.kind} of {unit.rack} is a unit already ({dotted(first[unit.kind, unit.rack])})"
        first.setdefault((unit.kind, unit.rack), place)
