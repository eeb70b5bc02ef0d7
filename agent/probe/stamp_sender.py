"""The STAMP Session-Sender: one session a path, which is a pair, a source port and a Type-P (RFC 8762, RFC 8972).

A socket a source port serves all peers. Both stamps of the round trip are the kernel's, and the time that the reflector
kept the packet (its T3 − T2) is taken off, so bursts that queue in the reflector do not show as delay. Outcomes are
those of ``matching``, as for echo. What STAMP adds: which way a packet was lost (``stamp_direction``), and one-way
delays where both ends say how good their clocks are.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random

from agent.clock import Clock
from agent.probe.icmp_socket import hold_receive_stamping
from agent.probe.matching import EXPIRY_SLACK_NS
from agent.probe.path_slots import MAX_RATE
from agent.probe.readers import Readers
from agent.probe.stamp_paths import StampBook, StampPath
from agent.probe.stamp_session import Link, Session
from agent.probe.stamp_socket import KernelSenderSocket, SenderOpener, warm_up
from agent.probe.stamp_wire import StampWire
from agent.result import OneWayDelay, OneWayLoss, PartState, RoundTripBatch
from bandwitness.v1.record_pb2 import ROUND_TRIP_METHOD_STAMP, STAMP_SOURCE_KERNEL

ERROR_REFRESH_NS = 1_000_000_000
MAX_DETAIL = 2000


class StampSession:
    """The Session-Sender of one agent, for all its paths. Call everything from the event loop's thread.

    On a stock asyncio loop: uvloop loses events of the error queue.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        opener: SenderOpener = KernelSenderSocket,
        clock_error: Callable[[], int | None] = lambda: None,
        random: Random | None = None,
    ) -> None:
        """Opens nothing yet.

        Args:
            clock: the host's.
            opener: how a source port is opened.
            clock_error: bound of the wall clock's error in ns, None while it is not synchronised; asked once a second.
            random: of SSIDs and the phase.
        """
        random = random or Random()  # noqa: S311 - SSIDs tell sessions apart, they keep no secret
        self._clock = clock
        self._clock_error = clock_error
        self._error_due_ns = 0
        self._book = StampBook((int(ROUND_TRIP_METHOD_STAMP), int(STAMP_SOURCE_KERNEL)), phase=random.random())
        self._wire = StampWire(clock, self._book.table, opener, random)
        self._readers = Readers(self._wire.links, self._wire.read)
        self._remark = ""

    def configure(self, paths: Sequence[StampPath], *, max_rate: float = MAX_RATE) -> None:
        """Probes these paths and no others, from the next tick on; those that stay go on with their sequence.
        ``max_rate``: packets a second in all; paths over it are left out."""
        self._book.max_rate = max_rate
        self._book.configure(paths)

    async def run(self) -> None:
        """Probes until cancelled."""
        with hold_receive_stamping():
            self._remark = warm_up()
            try:
                while True:
                    self.tick()
                    self._readers.watch()
                    await self._clock.sleep_until(self._book.next_wake_ns(self._clock.monotonic_ns()))
            finally:
                for source in list(self._wire.links):
                    self._wire.close(source)
                self._readers.watch()

    def tick(self) -> None:
        """Sends what is due, then reads what is there."""
        now = self._clock.anchor()
        if now.monotonic_ns >= self._error_due_ns:
            self._error_due_ns = now.monotonic_ns + ERROR_REFRESH_NS
            self._wire.error_ns = self._clock_error()
        used: set[Link] = set()
        for slot, path in self._book.due(now):
            link = self._wire.send(slot, path, now)
            if link is not None:
                used.add(link)
        self._readers.after_sends(used)

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        """Everything resolved by now, as ``EchoSession.drain``. Delays are without the reflector's own time."""
        self._readers.drain()
        now = min(monotonic_ns, self._clock.monotonic_ns())
        self._wire.settle(now, EXPIRY_SLACK_NS)
        batches = self._book.drain(now)
        self._wire.keep(self._book.slots(), self._book.sources())
        return batches

    def drain_losses(self) -> list[OneWayLoss]:
        """Which way packets were lost, as far as the last ``drain`` could tell."""
        losses, self._wire.losses = self._wire.losses, []
        return losses

    def drain_delays(self) -> list[OneWayDelay]:
        """One-way delays since the last call; none while one of the two clocks is not known to be synchronised."""
        delays, self._wire.delays = self._wire.delays, []
        return delays

    def path_ids(self) -> set[int]:
        """Of all paths that go on or of which the next drain may speak."""
        return self._book.path_ids()

    def oldest_unresolved_ns(self) -> int | None:
        """Wall clock send time of the oldest packet that has not been drained; None when there is none."""
        return self._book.oldest_unresolved_ns(self._clock.anchor())

    def session_of(self, path_id: int) -> Session | None:
        """The session of a path, with its socket; None while it has none."""
        return next((found for found in self._wire.sessions.values() if found.path.path_id == path_id), None)

    def read(self, link: Link) -> None:
        """Takes what has come on one socket."""
        if self._wire.links.get(link.source) is link:
            self._wire.read(link)

    def arrival_ttls(self) -> Mapping[int, int]:
        """TTL with which the reflector last received our packets, by path id, where it says."""
        return {s.path.path_id: s.ttl for s in self._wire.sessions.values() if s.ttl is not None}

    def state(self) -> PartState:
        """How it goes, and what is missing."""
        state, details = self._book.state()
        wire = self._wire
        broken = [f"{s.address or s.nic or 'any'} port {s.port}: {why}" for s, (_, why) in wire.broken.items()]
        if broken:
            state = "source_missing"
        details = sorted(broken) + details
        if wire.strangers:
            details.append(f"{wire.strangers} packets that are no reply to one of ours")
        if wire.not_kept:
            details.append(f"{wire.not_kept} one-way results not kept: nothing was drained in time")
        if self._remark:
            details.append(self._remark)
        return PartState("stamp", working=not broken, state=state, detail="; ".join(details)[:MAX_DETAIL])
