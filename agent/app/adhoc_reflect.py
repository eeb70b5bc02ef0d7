"""``bandwitness-agent probe reflect``: a STAMP reflector for a try, until it is interrupted."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import TextIO

from agent.app.adhoc import UsageError, clock_error_ns, print_json
from agent.clock import Clock, SystemClock
from agent.probe.stamp_admission import PORT, WELL_KNOWN_PORT
from agent.probe.stamp_reflector import StampReflector
from agent.probe.stamp_reflector_socket import KernelReflectorSocket

REPORT_NS = 10_000_000_000


async def reflect(allowed: Sequence[str], listen: Sequence[str], port: int, out: TextIO, *, as_json: bool) -> int:
    """Answers these senders until SIGINT or SIGTERM."""
    clock = SystemClock()
    reflector = StampReflector(clock, [], clock_error=clock_error_ns, ports={port, PORT, WELL_KNOWN_PORT})
    try:
        reflector.allow(allowed)
    except ValueError as error:
        raise UsageError(f"--allow: {error}") from None
    refused = _listen(reflector, listen, port)
    for reason in refused:
        print(reason, file=sys.stderr)
    if not reflector.sockets or (refused and listen):
        reflector.close()
        return 1
    if not as_json:
        print(f"answering {', '.join(allowed)} on port {port}", file=out, flush=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    task = loop.create_task(reflector.run())
    reporter = loop.create_task(_report(reflector, clock, out, as_json=as_json))
    await stop.wait()
    for part in (task, reporter):
        part.cancel()
    await asyncio.gather(task, reporter, return_exceptions=True)
    refusals = {reason.name.lower(): count for reason, count in reflector.sessions.refusals.items()}
    if as_json:
        document = {"answered": reflector.answered, "not_sent": reflector.not_sent, "refused": refusals}
        print_json(document, out)
    else:
        print(_reflected(reflector), file=out)
    return 0


def _listen(reflector: StampReflector, listen: Sequence[str], port: int) -> list[str]:
    """Opens a socket an address. Returns what could not be had, and why."""
    refused: list[str] = []
    for address in listen or ("0.0.0.0", "::"):  # noqa: S104 - it answers the allowed senders only
        bound = "" if address in ("0.0.0.0", "::") else address  # noqa: S104
        try:
            opened = KernelReflectorSocket(bound, port, ip_version=6 if ":" in address else 4)
        except OSError as error:
            refused.append(f"{address} port {port}: {error.strerror or error}")
        else:
            reflector.sockets.append(opened)
    return refused


async def _report(reflector: StampReflector, clock: Clock, out: TextIO, *, as_json: bool) -> None:
    """A line now and then, while there is something new to say."""
    last = _reflected(reflector)
    while not as_json:
        await clock.sleep_until(clock.monotonic_ns() + REPORT_NS)
        now = _reflected(reflector)
        if now != last:
            print(now, file=out, flush=True)
            last = now


def _reflected(reflector: StampReflector) -> str:
    text = f"{reflector.answered} answered, {reflector.sessions.sessions} sessions"
    detail = reflector.state().detail
    return f"{text}; {detail}" if detail else text
