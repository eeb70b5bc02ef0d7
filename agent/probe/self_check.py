"""Does the prober itself stand in the way? The agent measured against itself, and when its delays are to be doubted.

It echoes to this host's own loopback through the session that probes peers, notes how late the probes' timer ran, and
how long tasks of this host waited for a CPU. What each limit is for, and what was measured on 2 cores, over 2 s each:
"quiet"; "busy", beside 2 to 8 loops that never sleep or eight builds; "starved", the same at nice 19 or SCHED_IDLE.

======================================  ========  ===========  ===============
figure                                  quiet     busy         starved
======================================  ========  ===========  ===============
loopback echo, kernel stamps, p50       20 µs     8–15 µs      7–13 µs
the same, worst                         23 µs     57 µs        42 µs
TCP connect, our own stamps, worst                2–8 ms       100–360 ms
timer's lateness, p50                   1 ms      1–10 ms      19–205 ms
timer's lateness, worst                 4 ms      17–544 ms    156–1,630 ms
our main thread waited for a CPU        0.00      0.03         0.35–0.80
PSI "some"                              0.0–0.8   0.89–0.99    0.84–1.00
steal                                   0         0.003        0.003
======================================  ========  ===========  ===============

So a starved process does not bend what the kernel stamps: the stamps, and the kernel's answer, are made in the same
stretch of softirq. It bends what a process stamps: TCP connects here, and the time at which a STAMP reflector sends.
Lateness therefore doubts nothing until it is far beyond what a busy host shows, and then all of this host's delays are
doubted alike: a host in that state proves nothing. PSI alone says nothing, since it is near 1 on any host in full use
(all CPUs taken is what a trainer is for); it is recorded beside, and what counts is our own waiting.

What bends kernel stamps is the kernel itself kept from its work: softirq handed to a thread that waits its turn, or a
hypervisor that runs another guest. That shows on loopback, and as steal.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from agent.clock import Anchor, Clock, ClockEvent
from agent.probe.icmp import EchoSession
from agent.probe.icmp_socket import KernelEchoSocket, Opener
from agent.result import CpuTimes, PartState, RoundTripBatch, SelfCheck
from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import (
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_SEND_FAILED,
    PACKET_OUTCOME_SKIPPED,
    PACKET_OUTCOME_UNREACHABLE,
    PACKET_OUTCOME_UNRESOLVED,
    PROTOCOL_ICMP_ECHO,
    Endpoint,
    Target,
)

INTERVAL_NS = 250_000_000  # eight samples a flush
WAITING_NS = 1_000_000_000
LATE_P50_NS = 20_000_000  # two ticks; twice what a busy host showed
LATE_WORST_NS = 1_000_000_000  # a whole waiting time
# The delay rule accuses the network of 200 µs. Half of that on loopback, where there is no network, is ours.
LOOPBACK_P50_NS = 100_000
LOOPBACK_WORST_NS = 1_000_000  # one sample in eight may meet an interrupt; not for as long as this
OWN_WAIT_RATIO = 0.3  # ten times what a busy host showed; starving began above it
STEAL_RATIO = 0.02  # the delay rule looks at one sample in a hundred: more of them would meet a CPU that is away
SUSPENDED_NS = 10_000_000
MAX_LATENESSES = 4096  # between two checks; a tick each 10 ms and two sessions make 2,000 in 10 s


class WatchedClock:
    """The clock as the probes see it; notes how late their timer ran."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._late: list[int] = []
        self._waiting: dict[object, int] = {}
        self.wall_ns = clock.wall_ns
        self.monotonic_ns = clock.monotonic_ns
        self.event_time_ns = clock.event_time_ns

    def anchor(self) -> Anchor:
        return self._clock.anchor()

    def tick(self) -> tuple[ClockEvent, ...]:
        return self._clock.tick()

    async def sleep_until(self, monotonic_ns: int) -> None:
        sleeper = object()
        self._waiting[sleeper] = monotonic_ns
        try:
            await self._clock.sleep_until(monotonic_ns)
            self._note(self._clock.monotonic_ns() - monotonic_ns)
        finally:
            del self._waiting[sleeper]

    def take(self) -> list[int]:
        """Latenesses since the last call, ns in rising order; sleepers that are overdue now count as they stand."""
        now = self._clock.monotonic_ns()
        for due in self._waiting.values():
            if due < now:
                self._note(now - due)
        late, self._late = sorted(self._late), []
        return late

    def _note(self, late_ns: int) -> None:
        if len(self._late) < MAX_LATENESSES:
            self._late.append(max(late_ns, 0))


def reasons(check: SelfCheck, slept_ns: int) -> tuple[str, ...]:
    """Why the delays of this time are doubtful; empty: they are not. Pure.

    Args:
        check: its figures.
        slept_ns: how long the host was suspended in it.
    """

    def over(value: float | None, limit: float) -> bool:
        return value is not None and value > limit

    found = {
        "late": over(check.lateness_p50_ns, LATE_P50_NS) or over(check.lateness_max_ns, LATE_WORST_NS),
        "loopback_slow": over(check.loopback_delay_p50_ns, LOOPBACK_P50_NS)
        or over(check.loopback_delay_max_ns, LOOPBACK_WORST_NS),
        "loopback_lost": check.loopback_lost > 0,
        "starved": over(check.own_wait_ratio, OWN_WAIT_RATIO),
        "stolen": over(check.steal_ratio, STEAL_RATIO),
        "suspended": slept_ns > SUSPENDED_NS,
    }
    return tuple(reason for reason, holds in found.items() if holds)


class SelfChecking:
    """One agent's check of itself. ``clock`` is what its probers are to be given.

    Args:
        clock: the host's.
        cpu: reads how long tasks waited.
        opener: how ICMP sockets are opened.
        random: of the session's identifiers and tokens.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        cpu: Callable[[], CpuTimes],
        opener: Opener = KernelEchoSocket,
        random: Random | None = None,
    ) -> None:
        self.clock = WatchedClock(clock)
        self._host_clock = clock
        self._cpu = cpu
        self.session = EchoSession(self.clock, opener=opener, random=random)
        ip_version = 4 if self.session.rights.ipv4 is not None else 6
        self.session.configure([_loopback(ip_version)])
        self._last = clock.anchor()
        self._last_cpu = cpu()
        self._newest: SelfCheck | None = None
        self._refused = False

    async def run(self) -> None:
        """Echoes to loopback until cancelled."""
        await self.session.run()

    def drain(self) -> SelfCheck | None:
        """What was found since the last call; None where no time has passed by the wall clock."""
        now, cpu = self._host_clock.anchor(), self._cpu()
        last, self._last = self._last, now
        last_cpu, self._last_cpu = self._last_cpu, cpu
        late = self.clock.take()
        batches = self.session.drain(now.monotonic_ns)
        outcomes = [outcome for batch in batches for outcome in batch.outcomes]
        # Without loopback nothing is known, and nothing is doubted for it: the state says so.
        self._refused = bool(outcomes) and all(outcome in _OURS for outcome in outcomes)
        if now.wall_ns <= last.wall_ns:  # set back
            return None
        check = _figures(last, now, batches, late)
        elapsed_ns = now.monotonic_ns - last.monotonic_ns
        if elapsed_ns > 0:
            check = _with_cpu(check, last_cpu, cpu, elapsed_ns)
        slept_ns = (now.boottime_ns - now.monotonic_ns) - (last.boottime_ns - last.monotonic_ns)
        slept_ns -= now.uncertainty_ns + last.uncertainty_ns
        self._newest = replace(check, reasons=reasons(check, slept_ns))
        return self._newest

    def state(self) -> PartState:
        """Whether this host's delays can be believed, and what keeps us from knowing."""
        rights = self.session.rights
        if rights.ipv4 is None and rights.ipv6 is None:
            return PartState("self_check", True, "no_loopback_echo", "without ICMP only time and CPU are watched")
        if self._refused:
            return PartState("self_check", False, "loopback_down", "no echo to our own loopback: ip link set lo up")
        if self._newest is not None and self._newest.reasons:
            words = ", ".join(self._newest.reasons)
            return PartState("self_check", True, "doubtful", f"delays of the last flush are doubtful: {words}")
        return PartState("self_check", True, "ok")


_NOT_SENT = frozenset({int(PACKET_OUTCOME_SEND_FAILED), int(PACKET_OUTCOME_UNRESOLVED), int(PACKET_OUTCOME_SKIPPED)})
_OURS = frozenset({int(PACKET_OUTCOME_SEND_FAILED), int(PACKET_OUTCOME_UNRESOLVED), int(PACKET_OUTCOME_UNREACHABLE)})


def _loopback(ip_version: int) -> RoundTripTarget:
    """Bound to the device: without an address on it, packets to 127.0.0.1 would go out by the default route."""
    address = "127.0.0.1" if ip_version == 4 else "::1"
    return RoundTripTarget(
        source=Endpoint(nic="lo", address=address),
        target=Target(name="loopback", address=address),
        protocol=PROTOCOL_ICMP_ECHO,
        payload_bytes=56,
        interval_ns=INTERVAL_NS,
        waiting_time_ns=WAITING_NS,
    )


def _figures(last: Anchor, now: Anchor, batches: list[RoundTripBatch], late: list[int]) -> SelfCheck:
    delays = sorted(delay for batch in batches for delay in batch.round_trip_delays_ns)
    outcomes = [outcome for batch in batches for outcome in batch.outcomes if outcome not in _NOT_SENT]
    return SelfCheck(
        from_time_ns=last.wall_ns,
        to_time_ns=now.wall_ns,
        loopback_sent=len(outcomes),
        loopback_lost=outcomes.count(int(PACKET_OUTCOME_LOST)),
        loopback_delay_p50_ns=_median(delays),
        loopback_delay_max_ns=delays[-1] if delays else None,
        lateness_p50_ns=_median(late),
        lateness_max_ns=late[-1] if late else None,
    )


def _with_cpu(check: SelfCheck, last: CpuTimes, now: CpuTimes, elapsed_ns: int) -> SelfCheck:
    stolen, ticks = _grown(last.steal_ticks, now.steal_ticks), _grown(last.total_ticks, now.total_ticks)
    return replace(
        check,
        cpu_pressure_ratio=_ratio(_grown(last.pressure_ns, now.pressure_ns), elapsed_ns),
        own_wait_ratio=_ratio(_grown(last.own_wait_ns, now.own_wait_ns), elapsed_ns),
        steal_ratio=_ratio(stolen, ticks) if ticks else None,
    )


def _grown(last: int | None, now: int | None) -> int | None:
    """Difference of two totals; None where either is missing or the total fell (steal does, on some hypervisors)."""
    return None if last is None or now is None or now < last else now - last


def _ratio(part: int | None, whole: int) -> float | None:
    return None if part is None else min(part / whole, 1.0)


def _median(ordered: Sequence[int]) -> int | None:
    """Nearest rank: a value that was measured."""
    return ordered[(len(ordered) - 1) // 2] if ordered else None
