"""All round-trip probes of one agent: ICMP echo, TCP connects, and these in place of echo where ICMP is denied."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from agent.clock import Clock
from agent.probe.icmp import EchoSession
from agent.probe.icmp_socket import DATAGRAM, RAW, KernelEchoSocket, Opener, Rights, find_rights
from agent.probe.path_slots import MAX_RATE
from agent.probe.rates import rate_of
from agent.probe.resolve import Lookup, Resolver, system_lookup
from agent.probe.targets import PathSpec
from agent.probe.tcp_connect import Attempt, SocketAttempt, TcpConnectSession
from agent.result import PartState, RoundTripBatch
from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import PROTOCOL_TCP_CONNECT


class RoundTripProbes:
    """One surface over both sessions. Which right the process has is tried once, when this is made."""

    def __init__(
        self,
        clock: Clock,
        *,
        icmp: Opener = KernelEchoSocket,
        tcp: Callable[[PathSpec], Attempt] = SocketAttempt,
        lookup: Lookup = system_lookup,
        random: Random | None = None,
        proc: Path = Path("/proc"),
    ) -> None:
        """All arguments but the clock are for tests."""
        rights = find_rights(icmp, proc)
        self._icmp_denied = rights.ipv4 is None and rights.ipv6 is None
        self._echo = EchoSession(clock, opener=icmp, resolver=Resolver(clock, lookup), random=random, rights=rights)
        self._tcp = TcpConnectSession(
            clock, opener=tcp, resolver=Resolver(clock, lookup), random=random, echo_fallback=self._icmp_denied
        )

    @property
    def definitions(self) -> Mapping[int, bytes]:
        """Serialised Path by path id, of all that the last drain mentions."""
        return {**self._echo.definitions, **self._tcp.definitions}

    @property
    def rights(self) -> Rights:
        """Which ICMP sockets this process may open."""
        return self._echo.rights

    def echo_paths(self) -> list[PathSpec]:
        """Paths that are probed by ICMP echo and have an address."""
        return self._echo.paths()

    def configure(self, targets: Sequence[RoundTripTarget], max_rate: float = MAX_RATE) -> None:
        """Probes these targets and no others, from the next tick on; paths that stay go on with their sequence.
        ``max_rate``: packets a second in all; paths over it are left out, and said."""
        tcp = [target for target in targets if self._icmp_denied or target.protocol == PROTOCOL_TCP_CONNECT]
        echo = [target for target in targets if not self._icmp_denied and target.protocol != PROTOCOL_TCP_CONNECT]
        self._echo.configure(echo, max_rate=max(0.0, max_rate - rate_of(tcp)))
        self._tcp.configure(tcp, max_rate=max(0.0, max_rate - rate_of(echo)))

    async def run(self) -> None:
        """Probes until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._echo.run())
            group.create_task(self._tcp.run())

    def drain(self, monotonic_ns: int) -> list[RoundTripBatch]:
        """Everything resolved by now (EchoSession.drain)."""
        return self._echo.drain(monotonic_ns) + self._tcp.drain(monotonic_ns)

    def oldest_unresolved_ns(self) -> int | None:
        """Wall clock send time of the oldest packet not yet drained; None when there is none."""
        ages = (self._echo.oldest_unresolved_ns(), self._tcp.oldest_unresolved_ns())
        return min((age for age in ages if age is not None), default=None)

    def state(self) -> PartState:
        """Of the echo part; without any right to ICMP it says so, whatever TCP makes up for."""
        echo = self._echo.state()
        tcp = self._tcp.state()
        if self._icmp_denied:
            detail = f"{echo.detail}; TCP connects are made instead" + (f"; {tcp.detail}" if tcp.detail else "")
            return PartState("echo", working=False, state=echo.state, detail=detail)
        right = chosen(self._echo.rights)
        if echo.state == "ok" and tcp.state != "ok":
            detail = f"{right}; TCP connect: {tcp.detail}"
            return PartState("echo", working=tcp.working, state=tcp.state, detail=detail)
        return replace(echo, detail=f"{right}; {echo.detail}" if echo.detail else right)


def chosen(rights: Rights) -> str:
    """Which sockets the self-test chose, in words."""
    words = {RAW: "raw", DATAGRAM: "datagram", None: "no"}
    return f"{words[rights.ipv4]} IPv4 and {words[rights.ipv6]} IPv6 sockets"
