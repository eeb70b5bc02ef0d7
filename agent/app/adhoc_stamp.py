"""``bandwitness-agent probe stamp``: STAMP now, over several source ports, as a table that stays in its place."""

import errno
import os
from typing import Any, TextIO

from agent.app import adhoc_view as view
from agent.app.adhoc import (
    Asked,
    Run,
    UsageError,
    clock_error_ns,
    denied,
    label,
    print_json,
    print_remarks,
    remarks,
    resolve,
    say,
)
from agent.clock import Clock, SystemClock
from agent.probe.resolve import Resolver
from agent.probe.stamp_admission import PORT
from agent.probe.stamp_packet import BASE_BYTES
from agent.probe.stamp_paths import StampPath, refusal
from agent.probe.stamp_ports import DEFAULT_PORTS, source_ports
from agent.probe.stamp_sender import StampSession
from agent.result import OneWayDelay, RoundTripBatch

REDRAW_NS = 500_000_000
MAX_DELAYS = 100_000


async def stamp(
    host: str, asked: Asked, out: TextIO, *, port: int = PORT, ports: int = DEFAULT_PORTS, first_port: int | None = None
) -> int:
    """STAMP to the first address of a host, over several source ports."""
    clock = SystemClock()
    found, faults = await resolve([host], asked.ip_version, clock, Resolver(clock))
    if not found:
        return denied(f"{host}: {faults[host]}", asked, out)
    name, address = found[0]
    chosen = source_ports(ports, clock.wall_ns()) if first_port is None else range(first_port, first_port + ports)
    paths = [
        StampPath(
            path_id=source_port,
            address=address,
            ip_version=6 if ":" in address else 4,
            source_port=source_port,
            source_address=asked.source_address,
            destination_port=port,
            dscp=asked.dscp,
            payload_bytes=max(BASE_BYTES, asked.payload_bytes),
            interval_ns=asked.interval_ns,
            waiting_ns=asked.waiting_ns,
            turns=asked.count or 0,
        )
        for source_port in chosen
    ]
    for path in paths:
        if reason := refusal(path):
            raise UsageError(reason)
    session = StampSession(clock, clock_error=clock_error_ns)
    screen = _StampScreen(session, asked, out, clock)
    say(asked, out, f"STAMP to {label(name, address)} port {port}, {len(paths)} source ports")
    session.configure(paths)
    await Run(asked, clock).go(session, lambda: session.configure([]), screen.look)
    screen.finish(name, address)
    total = screen.tallies.total()
    return 0 if total.replied else 1


class _StampScreen:
    """The table: redrawn in place on a terminal, else printed once."""

    def __init__(self, session: StampSession, asked: Asked, out: TextIO, clock: Clock) -> None:
        self.tallies = view.Tallies(asked.count)
        self._session = session
        self._asked = asked
        self._out = out
        self._clock = clock
        self._delays: list[OneWayDelay] = []
        self._ttls: set[int] = set()
        self._detail = ""  # the newest: once no path is left the session has nothing to say
        self._drawn = 0
        self._due_ns = 0

    def look(self, batches: list[RoundTripBatch]) -> None:
        self._ttls |= set(self._session.arrival_ttls().values())
        self.tallies.add(batches)
        self.tallies.add_losses(self._session.drain_losses())
        self._detail = self._session.state().detail or self._detail
        self._delays = (self._delays + self._session.drain_delays())[-MAX_DELAYS:]
        now = self._clock.monotonic_ns()
        if self._out.isatty() and not self._asked.as_json and now >= self._due_ns:
            self._due_ns = now + REDRAW_NS
            self._draw()

    def _draw(self) -> None:
        lines = view.stamp_table(self.tallies.by_path, self.tallies.total())
        back = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        print(back + "\n".join(lines), file=self._out, flush=True)
        self._drawn = len(lines)

    def finish(self, name: str, address: str) -> None:
        """The last table, and what it says; or all of it as JSON."""
        one_way = view.one_way(self._delays)
        detail = self._session.state().detail or self._detail
        if os.strerror(errno.EADDRINUSE) in detail:
            detail += "; another program sends from these ports, often the agent: --source-port takes others"
        if self._asked.as_json:
            document = {
                "host": name,
                "address": address,
                "ports": [
                    {"source_port": port, **_with_directions(tally)}
                    for port, tally in sorted(self.tallies.by_path.items())
                ],
                "all": _with_directions(self.tallies.total()),
                "one_way_delay": one_way,
                "arrival_ttls": sorted(self._ttls),
                "remarks": remarks(detail),
            }
            print_json(document, self._out)
            return
        self._draw()
        print(file=self._out)
        others = view.other_outcomes(self.tallies.total())
        if others:
            print(others, file=self._out)
        lossy = view.lossy_ports(self.tallies.by_path)
        if lossy:
            print(lossy, file=self._out)
        if one_way is None:
            print("one-way delay: not said, one of the two clocks is not known to be synchronised", file=self._out)
        else:
            there, back, error = (view.milliseconds(one_way[key]) for key in one_way)
            print(f"one-way delay, median: there {there} ms, back {back} ms, clocks within {error} ms", file=self._out)
        print_remarks(detail, self._out)


def _with_directions(tally: view.Tally) -> dict[str, Any]:
    return {
        **view.as_json(tally),
        "forward_lost": tally.forward_lost,
        "reverse_lost": tally.reverse_lost,
        "undirected_lost": tally.undirected_lost,
    }
