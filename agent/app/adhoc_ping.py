"""``bandwitness-agent probe ping``: ICMP echo now, one line a packet."""

from collections.abc import Sequence
from typing import TextIO

from agent.app import adhoc_view as view
from agent.app.adhoc import Asked, Run, denied, label, print_json, print_remarks, remarks, resolve, say
from agent.clock import SystemClock
from agent.probe.icmp import EchoSession
from agent.probe.resolve import Resolver
from agent.probe.targets import TargetRefusedError, path_of
from agent.result import RoundTripBatch
from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import PROTOCOL_ICMP_ECHO, Path

ICMP_CURE = "give the program CAP_NET_RAW, or: sysctl net.ipv4.ping_group_range='0 2147483647'"


async def ping(hosts: Sequence[str], asked: Asked, out: TextIO) -> int:
    """ICMP echo to all addresses of all hosts."""
    clock = SystemClock()
    session = EchoSession(clock)
    if session.rights.ipv4 is None and session.rights.ipv6 is None:
        return denied(f"{session.state().detail} (cure: {ICMP_CURE})", asked, out)
    found, faults = await resolve(hosts, asked.ip_version, clock, Resolver(clock))
    refused = _refused(found, asked)
    found = [place for place in found if place[0] not in refused]
    faults |= refused
    for name, why in faults.items():
        say(asked, out, f"{name}: {why}")
    tallies = view.Tallies(asked.count)
    labels: dict[int, tuple[str, str]] = {}

    def look(batches: list[RoundTripBatch]) -> None:
        for path_id, definition in session.definitions.items():
            if path_id not in labels:
                path = Path.FromString(definition)
                labels[path_id] = (path.target.name, path.target.address)
        for path_id, sequence, outcome, delay_ns in tallies.add(batches):
            say(asked, out, view.ping_line(label(*labels[path_id]), sequence, outcome, delay_ns))

    if found:
        session.configure([_echo_target(name, address, asked) for name, address in found])
        await Run(asked, clock).go(session, lambda: session.configure([]), look)
    if asked.as_json:
        paths = [
            {"host": labels[path_id][0], "address": labels[path_id][1], **view.as_json(tally)}
            for path_id, tally in tallies.by_path.items()
        ]
        print_json({"paths": paths, "unresolved": faults, "remarks": remarks(session.state().detail)}, out)
    else:
        print(file=out)
        for path_id, tally in tallies.by_path.items():
            print(view.summary_line(label(*labels[path_id]), tally), file=out)
        print_remarks(session.state().detail, out)
    answered = len(tallies.by_path) == len(found) and all(tally.replied for tally in tallies.by_path.values())
    return 0 if found and not faults and answered else 1


def _refused(found: Sequence[tuple[str, str]], asked: Asked) -> dict[str, str]:
    """Name -> why it must not be probed, or cannot be from the source asked for."""
    refused = {}
    for name, address in found:
        try:
            path_of(_echo_target(name, address, asked), address)
        except TargetRefusedError as error:
            refused[name] = str(error)
    return refused


def _echo_target(name: str, address: str, asked: Asked) -> RoundTripTarget:
    target = RoundTripTarget(
        protocol=PROTOCOL_ICMP_ECHO,
        payload_bytes=asked.payload_bytes,
        interval_ns=asked.interval_ns,
        waiting_time_ns=asked.waiting_ns,
        dscp=asked.dscp,
    )
    target.source.address = asked.source_address
    target.target.name, target.target.address = name, address
    return target
