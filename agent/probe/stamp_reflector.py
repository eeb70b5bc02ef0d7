"""The stateful STAMP Session-Reflector (RFC 8762 section 4.3): answers allowed senders, one reply a packet.

T2 is the kernel's receive stamp, T3 is read right before the reply is handed to the kernel, so what a sender subtracts
is the time that the packet waited here. What is answered at all is decided in ``stamp_admission``.
"""

import asyncio
from collections.abc import Callable, Iterable

from agent.clock import Clock
from agent.probe.icmp_socket import hold_receive_stamping
from agent.probe.stamp_admission import Admitted, Limits, ReflectorSessions, Refusal
from agent.probe.stamp_packet import BASE_BYTES, build_reply, encode_error, reply_tail, to_ntp
from agent.probe.stamp_reflector_socket import Arrival, ReflectorSocket
from agent.result import PartState

READ_LIMIT = 256  # packets a wake-up, so that a flood never holds the loop
ERROR_REFRESH_NS = 1_000_000_000
LIMITED_SHOWN_NS = 60_000_000_000  # after the last refusal for a limit


class StampReflector:
    """Answers on the sockets it is given. Call everything from the event loop's thread."""

    def __init__(
        self,
        clock: Clock,
        sockets: Iterable[ReflectorSocket],
        *,
        clock_error: Callable[[], int | None] = lambda: None,
        limits: Limits | None = None,
        ports: Iterable[int] | None = None,
    ) -> None:
        """Answers nobody until ``allow``.

        Args:
            clock: the host's.
            sockets: bound; closed when ``run`` ends.
            clock_error: bound of the wall clock's error in ns, None while it is not synchronised; asked once a second.
            limits: of rates and sessions.
            ports: on which reflectors answer; by default those of ``stamp_admission``.
        """
        self.sessions = (
            ReflectorSessions(limits=limits) if ports is None else ReflectorSessions(limits=limits, ports=ports)
        )
        self.answered = 0
        self.not_sent = 0
        self.without_stamp = 0
        self._clock = clock
        self.sockets = list(sockets)
        self._clock_error = clock_error
        self._error_estimate = encode_error(None)
        self._error_due_ns = 0
        self._limited = 0
        self._limited_until_ns = 0
        self._running = False

    def allow(self, addresses: Iterable[str]) -> None:
        """Answers these addresses and no others (``ReflectorSessions.allow``)."""
        self.sessions.allow(addresses)

    async def run(self) -> None:
        """Answers until cancelled."""
        loop = asyncio.get_running_loop()
        with hold_receive_stamping():
            try:
                self._running = True
                for opened in self.sockets:
                    loop.add_reader(opened.fileno(), self.read, opened)
                await loop.create_future()
            finally:
                self._running = False
                for opened in self.sockets:
                    loop.remove_reader(opened.fileno())
                self.close()

    def listen(self, opened: ReflectorSocket) -> None:
        """Answers on one more socket, from now on or from the next ``run`` on."""
        self.sockets.append(opened)
        if self._running:
            asyncio.get_running_loop().add_reader(opened.fileno(), self.read, opened)

    def close(self) -> None:
        """Gives up all sockets."""
        while self.sockets:
            self.sockets.pop().close()

    def read(self, opened: ReflectorSocket) -> None:
        """Answers what waits on one socket, at most READ_LIMIT packets."""
        self._refresh_error()
        for _ in range(READ_LIMIT):
            arrival = opened.receive()
            if arrival is None:
                return
            self._answer(opened, arrival)

    def _answer(self, opened: ReflectorSocket, arrival: Arrival) -> None:
        if not arrival.whole:
            self.sessions.refusals[Refusal.LONG] += 1
            return
        wall_ns = self._clock.wall_ns()
        admitted = self.sessions.consider(
            arrival.data, arrival.address, arrival.port, monotonic_ns=self._clock.monotonic_ns(), wall_ns=wall_ns
        )
        if not isinstance(admitted, Admitted):
            return
        if arrival.stamp_ns is None:
            self.without_stamp += 1
        received = to_ntp(arrival.stamp_ns or wall_ns)
        size = len(arrival.data)
        tail = reply_tail(arrival.data, admitted.request.ssid) if size > BASE_BYTES else b""
        packet = build_reply(
            admitted.request,
            tail,
            sequence=admitted.sequence,
            received=received,
            error_estimate=self._error_estimate,
            ttl=arrival.ttl,
            sent=to_ntp(self._clock.wall_ns()),
        )
        try:
            opened.reply(packet[:size], arrival)
        except OSError:
            self.not_sent += 1
        else:
            self.answered += 1

    def _refresh_error(self) -> None:
        now = self._clock.monotonic_ns()
        if now >= self._error_due_ns:
            self._error_due_ns = now + ERROR_REFRESH_NS
            self._error_estimate = encode_error(self._clock_error())

    def state(self) -> PartState:
        """What it has answered, and what not and why."""
        refusals = self.sessions.refusals
        details = [f"{count} refused: {reason}" for reason, count in refusals.most_common()]
        if self.not_sent:
            details.append(f"{self.not_sent} replies not sent: the kernel refused them")
        if self.without_stamp:
            details.append(f"{self.without_stamp} packets without a kernel stamp")
        limited = refusals[Refusal.SENDER_RATE] + refusals[Refusal.TOTAL_RATE] + refusals[Refusal.SESSIONS]
        now_ns = self._clock.monotonic_ns()
        if limited > self._limited:
            self._limited, self._limited_until_ns = limited, now_ns + LIMITED_SHOWN_NS
        state = "limited" if now_ns < self._limited_until_ns else "ok"
        return PartState("stamp_reflector", working=True, state=state, detail="; ".join(details))
