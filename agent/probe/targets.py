"""Round-trip targets of the plan, to the paths that a prober keeps. Pure.

A path is (source, destination and the address used, Type-P), so each address of a name is a path of its own, and a name
without an address is one too: the one whose packets are ``UNRESOLVED``.
"""

import ipaddress
from dataclasses import dataclass
from sys import intern
from typing import ClassVar

from agent.probe.echo_packet import MAX_PAYLOAD_BYTES, MIN_PAYLOAD_BYTES
from agent.probe.pacing import MIN_INTERVAL_NS
from agent.probe.zones import ZoneError, from_here
from bandwitness.identity import canonical, short_id
from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import PROTOCOL_ICMP_ECHO, PROTOCOL_TCP_CONNECT, Path

MIN_WAITING_NS = 10_000_000
MAX_WAITING_NS = 10_000_000_000
MAX_INTERVAL_NS = 3_600_000_000_000
# The kernel sends a SYN again after 1 s (RFC 6298), which would turn a loss into a long delay.
MAX_TCP_WAITING_NS = 950_000_000
_SECOND_NS = 1_000_000_000
FALLBACK_PORT = 7  # echo, RFC 862: nobody listens there, and a refusal is an answer


class TargetRefusedError(ValueError):
    """A target that must not be probed; the text says why."""


@dataclass(frozen=True, slots=True)
class PathSpec:
    """One path as a prober needs it. ``definition`` is the serialised Path, ``path_id`` its short id."""

    path_id: int
    definition: bytes
    name: str  # what to resolve; empty for a literal address
    address: str  # RFC 5952, with %zone where link-local, as this host has to spell it; empty: unresolved
    ip_version: int  # 4, 6, or 0 where not known
    source_address: str  # empty: the kernel's choice
    nic: str  # empty: the kernel's choice
    protocol: int
    payload_bytes: int
    dscp: int
    port: int
    interval_ns: int
    waiting_ns: int
    turns: ClassVar[int] = 0  # planned paths never end by themselves


def guarded(interval_ns: int, waiting_ns: int, dscp: int) -> str:
    """Why nobody may be probed so; empty: it is within the guards, which are code and not configuration."""
    for name, value, low, high in (
        ("interval", interval_ns, MIN_INTERVAL_NS, MAX_INTERVAL_NS),
        ("waiting time", waiting_ns, MIN_WAITING_NS, MAX_WAITING_NS),
    ):
        if not low <= value <= high:
            return f"{name} {value / _SECOND_NS:g} s is not within {low / _SECOND_NS:g} to {high / _SECOND_NS:g} s"
    return "" if 0 <= dscp <= 63 else f"DSCP {dscp} is not within 0 to 63"


def destination(target: RoundTripTarget) -> str:
    """Address or name of where the probes go."""
    return target.endpoint.address if target.HasField("endpoint") else target.target.address


def read_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that ``text`` spells; None when it is a name."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def name_to_resolve(target: RoundTripTarget) -> str | None:
    """The target's name; None when it is given as an address."""
    text = destination(target)
    return None if read_address(text) is not None else text


def source_version(address: str) -> int:
    """IP version, 4 or 6, that a source address fixes; 0: none."""
    source = read_address(address)
    return source.version if source is not None else 0


def path_of(target: RoundTripTarget, address: str, *, tcp_fallback: bool = False) -> PathSpec:
    """The path from this target's source to one address of it (empty: not resolved).

    Args:
        target: as planned.
        address: the one to use.
        tcp_fallback: an echo target where no ICMP can be sent: TCP connects, a Type-P of its own.

    Raises:
        TargetRefusedError: more than one host would answer, or nothing could; or a guard stands against it.
    """
    if reason := guarded(target.interval_ns, target.waiting_time_ns, target.dscp):
        raise TargetRefusedError(reason)
    parsed = read_address(address) if address else None
    if address and parsed is None:
        raise TargetRefusedError(f"{address!r} is not an address")
    if parsed is not None and (parsed.is_multicast or parsed.is_unspecified or int(parsed) == 0xFFFFFFFF):
        raise TargetRefusedError(f"{address} is not the address of one host")
    ip_version = parsed.version if parsed is not None else source_version(target.source.address)
    if parsed is not None and source_version(target.source.address) not in (0, ip_version):
        raise TargetRefusedError(f"{address} cannot be reached from {target.source.address}: other IP version")
    try:
        reached = from_here(address, target.source.nic, peer=target.HasField("endpoint"))
    except ZoneError as error:
        raise TargetRefusedError(str(error)) from None
    tcp = tcp_fallback or target.protocol == PROTOCOL_TCP_CONNECT
    if not tcp and target.protocol != PROTOCOL_ICMP_ECHO:
        raise TargetRefusedError(f"protocol {target.protocol} is no round-trip probe")
    protocol = PROTOCOL_TCP_CONNECT if tcp else PROTOCOL_ICMP_ECHO
    payload = 0 if tcp else target.payload_bytes
    if not tcp and not MIN_PAYLOAD_BYTES <= payload <= MAX_PAYLOAD_BYTES:
        raise TargetRefusedError(f"payload {payload} is not within {MIN_PAYLOAD_BYTES} to {MAX_PAYLOAD_BYTES}")
    port = (target.destination_port or FALLBACK_PORT) if tcp else 0
    text = str(parsed) if parsed is not None else ""
    path = Path(source=target.source)
    if target.HasField("endpoint"):
        path.endpoint.CopyFrom(target.endpoint)
        path.endpoint.address = text
    else:
        path.target.name = target.target.name or destination(target)
        path.target.address = reached
    path.type_p.protocol = protocol
    path.type_p.ip_version = ip_version
    path.type_p.payload_bytes = payload
    path.type_p.dscp = target.dscp
    path.type_p.destination_port = port
    definition = canonical(path)
    return PathSpec(
        path_id=short_id(definition),
        definition=definition,
        name=name_to_resolve(target) or "",
        address=reached,
        ip_version=ip_version,
        source_address=intern(target.source.address),  # protobuf gives a new text for each target
        nic=intern(target.source.nic),
        protocol=protocol,
        payload_bytes=payload,
        dscp=target.dscp,
        port=port,
        interval_ns=target.interval_ns,
        waiting_ns=min(target.waiting_time_ns, MAX_TCP_WAITING_NS if tcp else MAX_WAITING_NS),
    )
