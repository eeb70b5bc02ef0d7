"""TCP connects as round-trip probes: SYN to SYN-ACK or RST. For hosts and ways where ICMP cannot be had.

A refusal is a reply: the host answered. Stamps are the process's own (monotonic clock), so a delay has tens to hundreds
of µs of ours in it, which its stamp source says. Connections are reset at once (SO_LINGER 0): nothing stays in
TIME_WAIT. The waiting time stays below the kernel's first retransmission of the SYN (targets.MAX_TCP_WAITING_NS).
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from random import Random
from struct import pack
from typing import Protocol

from agent.clock import Anchor, Clock
from agent.probe.binding import bind_and_mark, socket_address
from agent.probe.path_slots import MAX_RATE
from agent.probe.paths import PathBook
from agent.probe.resolve import Resolver
from agent.probe.targets import PathSpec
from agent.result import PartState, RoundTripBatch
from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import (
    PACKET_OUTCOME_SEND_FAILED,
    PACKET_OUTCOME_SKIPPED,
    PROTOCOL_ICMP_ECHO,
    PROTOCOL_TCP_CONNECT,
    ROUND_TRIP_METHOD_TCP_CONNECT,
    STAMP_SOURCE_USER,
)

MAX_OPEN = 512  # connects under way at a time; a turn beyond is skipped
MAX_DETAIL = 2000

_IP_BIND_ADDRESS_NO_PORT = 24  # the port is chosen at connect: thousands may share an address
_ANSWERED = (0, errno.ECONNREFUSED, errno.ECONNRESET)
_METHOD = (int(ROUND_TRIP_METHOD_TCP_CONNECT), int(STAMP_SOURCE_USER))


class Attempt(Protocol):
    """One connect under way."""

    def start(self) -> int:
        """Sends the SYN. Returns an errno; EINPROGRESS: wait until writable."""

    def fileno(self) -> int:
        """To wait on; negative: ask ``result`` at every tick."""

    def result(self) -> int:
        """An errno, 0 when connected, EINPROGRESS when nothing has come yet."""

    def close(self) -> None:
        """Resets and gives back."""


class SocketAttempt:
    """The real one."""

    def __init__(self, spec: PathSpec) -> None:
        """Raises OSError: no such source here, or no descriptor left."""
        self._socket = socket.socket(
            socket.AF_INET if spec.ip_version == 4 else socket.AF_INET6,
            socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
        )
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("@ii", 1, 0))
            bind_and_mark(self._socket, ip_version=spec.ip_version, nic=spec.nic, dscp=spec.dscp)
            if spec.source_address:
                self._socket.setsockopt(socket.SOL_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
                self._socket.bind(socket_address(spec.source_address, 0, spec.ip_version))
            self._peer = socket_address(spec.address, spec.port, spec.ip_version)
        except BaseException:
            self._socket.close()
            raise

    def start(self) -> int:
        return self._socket.connect_ex(self._peer)

    def fileno(self) -> int:
        return self._socket.fileno()

    def result(self) -> int:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            return code
        try:
            self._socket.getpeername()
        except OSError:
            return errno.EINPROGRESS  # ENOTCONN: no answer yet
        return 0

    def close(self) -> None:
        self._socket.close()


class TcpConnectSession:
    """The prober of all TCP connect targets of one agent, with the same surface as EchoSession."""

    def __init__(
        self,
        clock: Clock,
        *,
        opener: Callable[[PathSpec], Attempt] = SocketAttempt,
        resolver: Resolver | None = None,
        random: Random | None = None,
        echo_fallback: bool = False,
    ) -> None:
        """``echo_fallback``: ICMP echo targets are probed too, by TCP connects, as paths of their own Type-P."""
        random = random or Random()  # noqa: S311 - only the phase
        self._clock = clock
        self._opener = opener
        self._resolver = resolver or Resolver(clock)
        self._protocols = {PROTOCOL_TCP_CONNECT, PROTOCOL_ICMP_ECHO} if echo_fallback else {PROTOCOL_TCP_CONNECT}
        self._book = PathBook(
            self._resolver,
            lambda _: _METHOD,
            phase=random.random(),
            user_stamps=True,
            tcp_fallback=echo_fallback,
        )
        self._open: dict[int, tuple[Attempt, int, int]] = {}  # number -> attempt, slot, sequence
        self._deadlines: list[tuple[int, int]] = []
        self._number = 0
        self._broken: dict[str, str] = {}  # sources that cannot be had, and why
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def definitions(self) -> Mapping[int, bytes]:
        """Serialised Path by path id."""
        return self._book.definitions

    def configure(self, targets: Sequence[RoundTripTarget], *, max_rate: float = MAX_RATE) -> None:
        """Probes these targets and no others, from the next tick on."""
        self._broken.clear()
        self._book.max_rate = max_rate
        self._book.configure([target for target in targets if target.protocol in self._protocols])

    async def run(self) -> None:
        """Probes until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                self.tick()
                now = self._clock.monotonic_ns()
                wake = self._book.next_wake_ns(now)
                if self._deadlines:
                    wake = min(wake, max(self._deadlines[0][0], now))
                await self._clock.sleep_until(wake)
        finally:
            for number in list(self._open):
                self._end(number)
            self._loop = None

    def tick(self) -> None:
        """Starts what is due, gives up what has waited long enough."""
        self._resolver.tick()
        now = self._clock.anchor()
        for number in [n for n, (attempt, _, _) in self._open.items() if attempt.fileno() < 0 or self._loop is None]:
            self._ready(number)
        while self._deadlines and self._deadlines[0][0] <= now.monotonic_ns:
            number = heappop(self._deadlines)[1]
            self._ready(number)
            if number in self._open:
                self._end(number)
        for slot, spec in self._book.due(now):
            self._connect(slot, spec, now)

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        """As EchoSession.drain."""
        for number in list(self._open):
            self._ready(number)
        return self._book.drain(min(monotonic_ns, self._clock.monotonic_ns()))

    def oldest_unresolved_ns(self) -> int | None:
        """As EchoSession.oldest_unresolved_ns."""
        return self._book.oldest_unresolved_ns(self._clock.anchor())

    def state(self) -> PartState:
        """How it goes, and what is missing."""
        state, faults = self._book.state()
        if self._broken:
            state = "source_missing"
        details = [f"{source}: {why}" for source, why in self._broken.items()] + faults
        return PartState("tcp_connect", working=not self._broken, state=state, detail="; ".join(details)[:MAX_DETAIL])

    def _connect(self, slot: int, spec: PathSpec, tick: Anchor) -> None:
        table = self._book.table
        sequence = table.next_sequence(slot)
        if len(self._open) >= MAX_OPEN:
            table.add(slot, tick.monotonic_ns, tick.wall_ns, PACKET_OUTCOME_SKIPPED)
            return
        source = spec.source_address or spec.nic or "any source"
        try:
            attempt = self._opener(spec)
        except OSError as error:
            self._broken[source] = str(error)
            table.add(slot, tick.monotonic_ns, tick.wall_ns, PACKET_OUTCOME_SEND_FAILED)
            return
        self._broken.pop(source, None)
        sent = self._clock.monotonic_ns()
        entry = table.add(slot, sent, tick.wall_ns + sent - tick.monotonic_ns)
        code = attempt.start()
        if code in _ANSWERED:
            self._replied(slot, sequence)
            attempt.close()
        elif code == errno.EINPROGRESS:
            self._number += 1
            self._open[self._number] = (attempt, slot, sequence)
            heappush(self._deadlines, (sent + spec.waiting_ns, self._number))
            if self._loop is not None and attempt.fileno() >= 0:
                self._loop.add_writer(attempt.fileno(), self._ready, self._number)
        else:
            table.settle(entry, PACKET_OUTCOME_SEND_FAILED)
            attempt.close()

    def _ready(self, number: int) -> None:
        if number not in self._open:
            return
        attempt, slot, sequence = self._open[number]
        code = attempt.result()
        if code == errno.EINPROGRESS:
            return
        if code in _ANSWERED:
            self._replied(slot, sequence)
        elif code != errno.ETIMEDOUT:
            self._book.table.unreachable(slot, sequence)
        self._end(number)

    def _replied(self, slot: int, sequence: int) -> None:
        now = self._clock.anchor()
        self._book.table.reply(slot, sequence, None, now.monotonic_ns, now.wall_ns)

    def _end(self, number: int) -> None:
        attempt, _, _ = self._open.pop(number)
        if self._loop is not None and attempt.fileno() >= 0:
            self._loop.remove_writer(attempt.fileno())
        attempt.close()
