"""Names to addresses, again and again in the background; one dead name never delays another.

``getaddrinfo`` is the host's own way to resolve (hosts file, search domains, nsswitch) and cannot be cancelled, so each
lookup has a daemon thread: a pool would be filled by the dead names, and would hold up the end of the process. A
lookup that takes too long counts as failed and gives up its place; its thread goes on until the resolver gives up.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agent.clock import Clock

REFRESH_NS = 60_000_000_000
RETRY_NS = 10_000_000_000  # after a failure
TIMEOUT_NS = 3_000_000_000
KEEP_NS = 900_000_000_000  # addresses are used this long after the last answer
MAX_ADDRESSES = 8  # of one name
MAX_NAMES = 1_000
MAX_THREADS = 64
MAX_FAILING_THREADS = 32  # of these for names that failed the last time

Lookup = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of a name. Both a fault and addresses: the last lookup failed, an earlier one is still used."""

    addresses: tuple[str, ...] = ()
    fault: str = ""  # why the last lookup failed; empty when it did not, or when none has ended yet


@dataclass(slots=True)
class _Name:
    answer: Answer
    due_ns: int
    answered_ns: int = 0
    running: bool = False
    started_ns: int = 0
    overdue: bool = False  # the running lookup has been given up


def system_lookup(name: str) -> Sequence[str]:
    """Addresses by getaddrinfo, sorted, IPv4 first; those of families that this host has no address in are left out.

    Raises:
        OSError: (socket.gaierror) no answer, or an answer without addresses.
    """
    found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM, flags=socket.AI_ADDRCONFIG)
    return sorted({_spelled(*entry[4]) for entry in found}, key=lambda address: (":" in address, address))


def _spelled(host: str | int, _port: object, _flow: int | bytes = 0, scope: int = 0) -> str:
    """With the zone that the name was looked up in, or that its answer has (link-local addresses)."""
    return f"{host}%{socket.if_indextoname(scope)}" if scope else str(host)


class Resolver:
    """Keeps the addresses of a set of names fresh."""

    def __init__(self, clock: Clock, lookup: Lookup = system_lookup) -> None:
        self._clock = clock
        self._lookup = lookup
        self._names: dict[str, _Name] = {}
        self._threads = 0
        self._changed: set[str] = set()

    def watch(self, names: Iterable[str]) -> list[str]:
        """These names and no others, from now on. Returns those beyond MAX_NAMES: they are not resolved."""
        wanted = list(dict.fromkeys(names))
        kept = wanted[:MAX_NAMES]
        self._names = {name: self._names.get(name) or _Name(Answer(), self._clock.monotonic_ns()) for name in kept}
        self._changed &= set(kept)
        return wanted[MAX_NAMES:]

    def answer(self, name: str) -> Answer:
        """What is known now."""
        entry = self._names.get(name)
        return entry.answer if entry is not None else Answer(fault="not resolved: too many names")

    def take_changed(self) -> set[str]:
        """Names whose answer changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def faults(self) -> dict[str, str]:
        """Names whose last lookup failed, and why."""
        return {name: entry.answer.fault for name, entry in self._names.items() if entry.answer.fault}

    def tick(self) -> None:
        """Starts what is due and gives up what takes too long. Needs a running event loop."""
        now = self._clock.monotonic_ns()
        failing = sum(entry.running and bool(entry.answer.fault) for entry in self._names.values())
        for name, entry in self._names.items():
            if entry.running:
                if not entry.overdue and now - entry.started_ns > TIMEOUT_NS:
                    entry.overdue = True
                    self._failed(name, entry, "timed out")
            elif entry.due_ns <= now and self._threads < MAX_THREADS:
                if entry.answer.fault:
                    if failing >= MAX_FAILING_THREADS:
                        continue
                    failing += 1
                self._start(name, entry, now)
            if entry.answer.fault and entry.answer.addresses and now - entry.answered_ns > KEEP_NS:
                self._set(name, entry, Answer(fault=entry.answer.fault))

    def _start(self, name: str, entry: _Name, now: int) -> None:
        loop = asyncio.get_running_loop()
        entry.running, entry.started_ns, entry.overdue = True, now, False
        self._threads += 1

        def work() -> None:
            addresses: Sequence[str] = ()
            try:
                addresses = self._lookup(name)
                fault = "" if addresses else "no address"
            except (OSError, UnicodeError) as error:  # UnicodeError: not a name at all (an empty or overlong label)
                fault = str(error)
            try:
                loop.call_soon_threadsafe(self._done, name, entry, addresses, fault)
            except RuntimeError:
                return  # the loop has been closed: nobody wants to know any more

        threading.Thread(target=work, name=f"resolve {name}", daemon=True).start()

    def _done(self, name: str, entry: _Name, addresses: Sequence[str], fault: str) -> None:
        self._threads -= 1
        entry.running = False
        if self._names.get(name) is not entry:
            return
        if fault:
            self._failed(name, entry, fault)
            return
        now = self._clock.monotonic_ns()
        entry.answered_ns = now
        entry.due_ns = now + REFRESH_NS
        self._set(name, entry, Answer(tuple(addresses[:MAX_ADDRESSES])))

    def _failed(self, name: str, entry: _Name, fault: str) -> None:
        entry.due_ns = self._clock.monotonic_ns() + RETRY_NS
        self._set(name, entry, Answer(entry.answer.addresses, fault))

    def _set(self, name: str, entry: _Name, answer: Answer) -> None:
        if answer != entry.answer:
            entry.answer = answer
            self._changed.add(name)
