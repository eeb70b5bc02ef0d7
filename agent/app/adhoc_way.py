"""``bandwitness-agent probe trace`` and ``probe mtu``: what a path is made of, now, printed as it is found."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import SystemRandom
from typing import Any, TextIO

from agent.app.adhoc import print_json, resolve
from agent.app.adhoc_ping import ICMP_CURE
from agent.app.adhoc_view import milliseconds
from agent.clock import Clock, SystemClock
from agent.probe.icmp_socket import KernelEchoSocket, Source, find_rights, hold_receive_stamping
from agent.probe.path_mtu import SMALLEST_BYTES, MtuCheck, interface_mtu
from agent.probe.path_mtu_search import HEADER_BYTES
from agent.probe.resolve import Resolver
from agent.probe.route_sweep import Sweep
from agent.probe.route_trace import trace as run_trace
from agent.probe.sounding import Sounding, To
from agent.result import Hop, MtuTrial
from bandwitness.v1.record_pb2 import (
    HOP_OUTCOME_REPLIED,
    HOP_OUTCOME_TIME_EXCEEDED,
    MTU_OUTCOME_LOCAL,
    MTU_OUTCOME_REPLIED,
    MTU_OUTCOME_SEND_FAILED,
    MTU_OUTCOME_TOO_BIG,
    HopOutcome,
    MtuOutcome,
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What both probes take."""

    host: str
    waiting_ns: int
    dscp: int
    ip_version: int  # 0: either
    source_address: str
    as_json: bool


class _CannotError(Exception):
    """Nothing can be sent; the text says why."""


async def _open(wish: Wish, clock: Clock, *, payload_bytes: int, dont_fragment: bool) -> tuple[str, int, Sounding]:
    """Address, IP version, and the socket to it."""
    rights = find_rights(KernelEchoSocket)
    found, faults = await resolve([wish.host], wish.ip_version, clock, Resolver(clock))
    if not found:
        raise _CannotError(f"{wish.host}: {faults.get(wish.host, 'no address')}")
    address = found[0][1]
    version = 6 if ":" in address else 4
    method = rights.method(version)
    if method is None:
        raise _CannotError(f"missing: {rights.missing or rights.remark} (cure: {ICMP_CURE})")
    to = To(address, Source(version, wish.source_address, "", wish.dscp))
    try:
        sounding = Sounding(
            clock, to, method, random=SystemRandom(), payload_bytes=payload_bytes, dont_fragment=dont_fragment
        )
    except OSError as error:
        raise _CannotError(f"{address}: {error}") from None
    return address, version, sounding


def _refused(wish: Wish, why: str, out: TextIO) -> int:
    if wish.as_json:
        print_json({"error": why}, out)
    else:
        print(why, file=out)
    return 1


async def trace(wish: Wish, out: TextIO, *, max_hops: int, payload_bytes: int) -> int:
    """One sweep; exit code 0 if the destination answered."""
    clock = SystemClock()
    with hold_receive_stamping():
        try:
            address, _, way = await _open(wish, clock, payload_bytes=payload_bytes, dont_fragment=False)
        except _CannotError as error:
            return _refused(wish, str(error), out)
        if not wish.as_json:
            print(f"trace to {_label(wish.host, address)}, at most {max_hops} hops", file=out, flush=True)
        sweep = Sweep(wish.waiting_ns, max_hops=max_hops)
        shown: set[tuple[int, str]] = set()

        def look(hop: Hop) -> None:
            if not wish.as_json and (hop.hop_limit, hop.address) not in shown:
                shown.add((hop.hop_limit, hop.address))
                print(hop_line(hop), file=out, flush=True)

        try:
            await run_trace(clock, way, sweep, look)
        finally:
            way.close()
    if wish.as_json:
        hops = [_hop(hop) for hop in sweep.hops()]
        print_json({"host": wish.host, "address": address, "reached": sweep.reached, "hops": hops}, out)
    else:
        print(file=out)
        for line in summary(sweep.hops()):
            print(line, file=out)
        print("reached" if sweep.reached else "not reached", file=out)
    return 0 if sweep.reached else 1


async def mtu(wish: Wish, out: TextIO, *, sizes: Sequence[int]) -> int:
    """One check; exit code 0 if an MTU was found and no black hole."""
    clock = SystemClock()
    with hold_receive_stamping():
        try:
            address, version, sounding = await _open(wish, clock, payload_bytes=56, dont_fragment=True)
        except _CannotError as error:
            return _refused(wish, str(error), out)
        header = HEADER_BYTES[version]

        def look(trial: MtuTrial) -> None:
            if not wish.as_json:
                print(trial_line(trial, header), file=out, flush=True)

        if not wish.as_json:
            print(f"path MTU to {_label(wish.host, address)}", file=out, flush=True)
        zone = address.partition("%")[2]
        check = MtuCheck(
            clock,
            sounding,
            ip_version=version,
            sizes=sizes,
            small=min(56, SMALLEST_BYTES),
            waiting_ns=wish.waiting_ns,
            interface_mtu_bytes=interface_mtu(zone),
            look=look,
        )
        try:
            await check.run()
        finally:
            sounding.close()
    search = check.search
    if wish.as_json:
        document = {
            "host": wish.host,
            "address": address,
            "mtu_bytes": search.mtu_bytes,
            "interface_mtu_bytes": check.interface_mtu_bytes or None,
            "black_hole": search.black_hole,
            "trials": [_trial(trial) for trial in search.trials],
        }
        print_json(document, out)
    else:
        print(f"\n{verdict(search.mtu_bytes, max(sizes) + HEADER_BYTES[4], black_hole=search.black_hole)}", file=out)
    return 0 if search.mtu_bytes is not None and not search.black_hole else 1


def _label(host: str, address: str) -> str:
    return host if host == address else f"{host} ({address})"


def hop_line(hop: Hop) -> str:
    """One answer as it comes."""
    delay = "" if hop.round_trip_delay_ns is None else f"  {milliseconds(hop.round_trip_delay_ns)} ms"
    words = "" if hop.outcome == HOP_OUTCOME_TIME_EXCEEDED else f"  {_hop_word(hop.outcome)}"
    return f"{hop.hop_limit:>2}  {hop.address or '*'}{delay}{words}"


def summary(hops: Sequence[Hop]) -> list[str]:
    """A line a hop: who answered, how many of the packets, least and greatest delay."""
    lines = []
    for limit in sorted({hop.hop_limit for hop in hops}):
        here = [hop for hop in hops if hop.hop_limit == limit]
        addresses = list(dict.fromkeys(hop.address for hop in here if hop.address))
        delays = sorted(hop.round_trip_delay_ns for hop in here if hop.round_trip_delay_ns is not None)
        spread = f"  {milliseconds(delays[0])}/{milliseconds(delays[-1])} ms" if delays else ""
        end = "  destination" if any(hop.outcome == HOP_OUTCOME_REPLIED for hop in here) else ""
        lines.append(f"{limit:>2}  {', '.join(addresses) or '*'}  {len(delays)} of {len(here)}{spread}{end}")
    return lines


def trial_line(trial: MtuTrial, header: int) -> str:
    """One size and what came of it."""
    size = f"{trial.payload_bytes:>5} bytes (IP packet of {trial.payload_bytes + header}): "
    if trial.outcome == MTU_OUTCOME_REPLIED:
        return size + "went there and came back"
    if trial.outcome == MTU_OUTCOME_LOCAL:
        return size + "larger than our own interface's MTU"
    if trial.outcome == MTU_OUTCOME_TOO_BIG:
        said = f", next hop takes {trial.next_hop_mtu_bytes}" if trial.next_hop_mtu_bytes else ""
        return size + f"too big, says {trial.reporter or 'a router'}{said}"
    if trial.outcome == MTU_OUTCOME_SEND_FAILED:
        return size + "not sent: our own host refused it"
    return size + f"no answer to {trial.sent} packets"


def verdict(mtu_bytes: int | None, largest: int, *, black_hole: bool) -> str:
    """The last line."""
    if mtu_bytes is None:
        return "path MTU unknown: not enough came back to tell a size from loss"
    if black_hole:
        return f"black hole: packets above {mtu_bytes} bytes vanish, and no router says so"
    return f"path MTU {mtu_bytes} bytes" + (" or more" if mtu_bytes >= largest else "")


def _hop_word(outcome: int) -> str:
    return str(HopOutcome.Name(outcome)).removeprefix("HOP_OUTCOME_").lower()  # type: ignore[arg-type]


def _hop(hop: Hop) -> dict[str, Any]:
    return {
        "hop_limit": hop.hop_limit,
        "outcome": _hop_word(hop.outcome),
        "address": hop.address or None,
        "round_trip_delay_ns": hop.round_trip_delay_ns,
    }


def _trial(trial: MtuTrial) -> dict[str, Any]:
    return {
        "payload_bytes": trial.payload_bytes,
        "outcome": str(MtuOutcome.Name(trial.outcome)).removeprefix("MTU_OUTCOME_").lower(),  # type: ignore[arg-type]
        "sent": trial.sent,
        "replied": trial.replied,
        "reporter": trial.reporter or None,
        "next_hop_mtu_bytes": trial.next_hop_mtu_bytes or None,
    }
