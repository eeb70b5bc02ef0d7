"""ICMP and ICMPv6 echo to many paths with the kernel's time stamps (RFC 2681, RFC 6673).

One socket per IP version and source. Sends go out in ticks, at most MAX_SENDS_PER_TICK; both stamps are the kernel's,
so batching does not touch the delay. The monotonic clock brackets it: where the wall clock stepped between sending and
reading, the reply counts and its delay is absent.
"""

from collections.abc import Mapping, Sequence
from random import Random

from agent.clock import Clock
from agent.probe.icmp_socket import KernelEchoSocket, Opener, Rights, find_rights, hold_receive_stamping, warm_up
from agent.probe.icmp_wire import EchoWire, Link, source_of
from agent.probe.path_slots import MAX_RATE
from agent.probe.paths import PathBook
from agent.probe.readers import Readers
from agent.probe.resolve import Resolver
from agent.probe.targets import PathSpec
from agent.result import PartState, RoundTripBatch
from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import PROTOCOL_ICMP_ECHO, STAMP_SOURCE_KERNEL

MAX_DETAIL = 2000


class EchoSession:
    """The prober of all ICMP echo targets of one agent. Call everything from the event loop's thread.

    On a stock asyncio loop: uvloop loses events of the error queue.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        opener: Opener = KernelEchoSocket,
        resolver: Resolver | None = None,
        random: Random | None = None,
        rights: Rights | None = None,
    ) -> None:
        """Tries which sockets may be opened, and keeps none open yet.

        Args:
            clock: the host's.
            opener: how ICMP sockets are opened.
            resolver: of the targets' names; by default the host's.
            random: of identifiers, tokens and the phase.
            rights: what may be opened, when that is known already.
        """
        random = random or Random()  # noqa: S311 - tokens tell packets apart, they keep no secret
        self.rights = find_rights(opener) if rights is None else rights
        self._clock = clock
        self._opener = opener
        self._resolver = resolver or Resolver(clock)
        self._book = PathBook(self._resolver, self._method_of, phase=random.random())
        self._wire = EchoWire(clock, self._book.table, opener, self.rights, random)
        self._readers = Readers(self._wire.links, self._wire.read)
        self._remark = ""
        self._may_have_idle_links = False

    @property
    def definitions(self) -> Mapping[int, bytes]:
        """Serialised Path by path id: of all paths that the last drain mentions."""
        return self._book.definitions

    def paths(self) -> list[PathSpec]:
        """Paths that have an address, those that end among them."""
        return [spec for spec in self._book.open_specs() if spec.address]

    def configure(self, targets: Sequence[RoundTripTarget], *, max_rate: float = MAX_RATE) -> None:
        """Probes these echo targets and no others, from the next tick on; paths that stay go on with their sequence."""
        self._book.max_rate = max_rate
        self._book.configure([target for target in targets if target.protocol == PROTOCOL_ICMP_ECHO])
        self._may_have_idle_links = True

    async def run(self) -> None:
        """Probes until cancelled."""
        with hold_receive_stamping():
            self._warm_up()
            try:
                while True:
                    self.tick()
                    self._readers.watch()
                    await self._clock.sleep_until(self._book.next_wake_ns(self._clock.monotonic_ns()))
            finally:
                self._wire.keep(set())
                self._readers.watch()

    def tick(self) -> None:
        """Sends what is due, then reads what is there: the send stamps are, mostly, at once."""
        self._resolver.tick()
        now = self._clock.anchor()
        used: set[Link] = set()
        for slot, spec in self._book.due(now):
            link = self._wire.send(slot, spec, now)
            if link is not None:
                used.add(link)
        self._readers.after_sends(used)

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        """Everything resolved by now, path after path in order of sequence.

        Reads the sockets first: a reply that waits there was in time however late we are.

        Args:
            monotonic_ns: now, by the clock's ``monotonic_ns``; never taken as later than that clock says.
        """
        self._readers.drain()
        batches = self._book.drain(min(monotonic_ns, self._clock.monotonic_ns()))
        if self._may_have_idle_links:
            # Paths that end keep their socket until their last packet is resolved.
            self._wire.keep({source_of(spec) for spec in self._book.open_specs()})
            self._may_have_idle_links = self._book.ending
        return batches

    def oldest_unresolved_ns(self) -> int | None:
        """Wall clock send time of the oldest packet that has not been drained; None when there is none."""
        return self._book.oldest_unresolved_ns(self._clock.anchor())

    def state(self) -> PartState:
        """How it goes, and what is missing."""
        if self.rights.ipv4 is None and self.rights.ipv6 is None:
            missing = self.rights.missing or self.rights.remark or "no ICMP sockets in this kernel"
            return PartState("echo", working=False, state="icmp_unavailable", detail=f"missing: {missing}")
        state, details = self._book.state()
        if self._wire.broken:
            state = "source_missing"
        broken = [f"{source.address or source.nic}: {why}" for source, (_, why) in self._wire.broken.items()]
        details = broken + details
        details += [remark for remark in (self._remark, self.rights.remark) if remark]
        working = not self._wire.broken  # part of what is planned is not measured at all
        return PartState("echo", working=working, state=state, detail="; ".join(details)[:MAX_DETAIL])

    def _warm_up(self) -> None:
        methods = ((ip_version, self.rights.method(ip_version)) for ip_version in (4, 6))
        remarks = [
            warm_up(self._opener, method, ip_version, self._wire.identifier())
            for ip_version, method in methods
            if method is not None
        ]
        self._remark = "; ".join(remark for remark in remarks if remark)

    def _method_of(self, spec: PathSpec) -> tuple[int, int] | None:
        # No IPv6 here and an IPv6 target: the kernel's refusal is recorded, under the method that there is.
        method = self.rights.method(spec.ip_version) or self.rights.ipv4 or self.rights.ipv6
        return None if method is None else (method, int(STAMP_SOURCE_KERNEL))
