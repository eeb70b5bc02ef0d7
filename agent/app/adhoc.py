"""What the ad hoc probes share: what was asked, names to addresses, a run that ends, and words.

They need neither a collector nor a plan, and use the same probers as the agent.
"""

import asyncio
import json
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from agent.clock import Clock
from agent.probe.resolve import Resolver
from agent.result import RoundTripBatch
from agent.sample.clockstate import read_clock

LOOK_NS = 50_000_000  # between two looks at what has come
SETTLE_NS = 100_000_000  # beyond the last turn and the waiting time, before what is still open is given up


class Session(Protocol):
    """A prober."""

    async def run(self) -> None:
        """Probes until cancelled."""

    def drain(self, monotonic_ns: int, /) -> list[RoundTripBatch]:
        """Everything resolved by now."""


class UsageError(Exception):
    """What was asked cannot be done by anybody; exit 2."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What both probes take. ``count`` None: until interrupted."""

    count: int | None
    interval_ns: int
    waiting_ns: int
    payload_bytes: int
    dscp: int
    ip_version: int  # 0: either
    source_address: str
    as_json: bool


def clock_error_ns() -> int | None:
    """Bound of the wall clock's error; None while it is not synchronised."""
    reading = read_clock()
    return reading.error_bound_ns if reading.synchronised else None


async def resolve(
    names: Sequence[str], ip_version: int, clock: Clock, resolver: Resolver
) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """(name, address) of all addresses of the IP version asked for (0: any), and name -> why there is none."""
    resolver.watch(names)
    pending = dict.fromkeys(names)
    found: list[tuple[str, str]] = []
    faults: dict[str, str] = {}
    while pending:
        resolver.tick()
        for name in list(pending):
            answer = resolver.answer(name)
            if not answer.addresses and not answer.fault:
                continue
            del pending[name]
            addresses = [a for a in answer.addresses if ip_version in (0, 6 if ":" in a else 4)]
            found += [(name, address) for address in addresses]
            if not addresses:
                faults[name] = re.sub(r"^\[Errno -?\d+\] ", "", answer.fault) or f"no IPv{ip_version} address"
        await clock.sleep_until(clock.monotonic_ns() + LOOK_NS // 5)
    return found, faults


class Run:
    """Sends for as long as the count takes, then waits for what is still out; SIGINT ends the sending."""

    def __init__(self, asked: Asked, clock: Clock) -> None:
        self._clock = clock
        self._asked = asked
        self._stop = asyncio.Event()

    async def go(
        self,
        session: Session,
        quiet: Callable[[], None],
        look: Callable[[list[RoundTripBatch]], None],
    ) -> None:
        """``quiet`` ends the sending; ``look`` is given every drain."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._stop.set)
        task = loop.create_task(session.run())
        try:
            end_ns = None
            if self._asked.count is not None:
                end_ns = self._clock.monotonic_ns() + self._asked.count * self._asked.interval_ns + SETTLE_NS
            await self._look(session, look, end_ns, task)
            quiet()
            self._stop.clear()
            await self._look(session, look, self._clock.monotonic_ns() + self._asked.waiting_ns + SETTLE_NS, task)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _look(
        self,
        session: Session,
        look: Callable[[list[RoundTripBatch]], None],
        end_ns: int | None,
        task: "asyncio.Task[None]",
    ) -> None:
        while not self._stop.is_set() and (end_ns is None or self._clock.monotonic_ns() < end_ns):
            if task.done():
                task.result()
            await self._clock.sleep_until(self._clock.monotonic_ns() + LOOK_NS)
            look(session.drain(self._clock.monotonic_ns()))


def label(name: str, address: str) -> str:
    """A host as it was asked for, and the address that is meant."""
    return address if name in ("", address) else f"{name} ({address})"


def say(asked: Asked, out: TextIO, line: str) -> None:
    """One line for who watches; none where JSON is asked for."""
    if not asked.as_json:
        print(line, file=out, flush=True)


def denied(why: str, asked: Asked, out: TextIO) -> int:
    """It cannot be done, and why. The exit code."""
    if asked.as_json:
        print_json({"error": why}, out)
    else:
        print(why, file=sys.stderr)
    return 1


def remarks(detail: str) -> list[str]:
    """What a part says of itself, one by one."""
    return detail.split("; ") if detail else []


def print_remarks(detail: str, out: TextIO) -> None:
    """The same as lines."""
    for remark in remarks(detail):
        print(f"note: {remark}", file=out)


def print_json(document: dict[str, Any], out: TextIO) -> None:
    """One object, on one line."""
    print(json.dumps(document, ensure_ascii=False), file=out)
