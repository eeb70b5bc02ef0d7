"""Counters of the node's NICs: raw, once an interval, each with the monotonic time at which it was read.

From ``/sys/class/net/NIC/statistics`` with descriptors kept open and read at offset 0 (an open for each read costs
eight times as much). Values are the kernel's own: wrap and reset are judged at the collector, which has the whole
series. sysfs belongs to the namespace it was mounted in, not to the process's: where the device it shows is not the
one the kernel knows by that name, or is not shown at all, ``/proc/net/dev`` (always the process's own) is read
instead, with fewer counters.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from agent.clock import Clock
from agent.result import NicBatch, PartState
from agent.sample import netdev
from agent.sample.device import COUNTERS, Device, Identify, kernel_identity

MAX_NICS = 32  # each holds len(COUNTERS) descriptors
MAX_TICKS = 1_000  # kept for a drain that does not come
REOPEN_TICKS = 60  # a renamed device keeps its open files: look by name again this often
SECOND_NS = 1_000_000_000


class NicSampler:
    """Reads the counters of some NICs and of the devices below them (members of a bond, the port under a VLAN).

    Args:
        root: where ``sys`` and ``proc`` are found.
        clock: tells when a counter was read and when the next tick is.
        identify: the kernel's word on a device, to see whether sysfs shows the same; None trusts sysfs.
    """

    def __init__(self, root: Path, clock: Clock, *, identify: Identify | None = kernel_identity) -> None:
        self._root = root
        self._classes = root / "sys/class/net"
        self._clock = clock
        self._identify = identify
        self._wanted: tuple[str, ...] = ()
        self._interval_ns = SECOND_NS
        self._nics: dict[str, Device] = {}
        self._tick_count = 0
        self._left_out = 0
        self.ticks_missed = 0  # the process did not run in time; the tick is absent
        self.ticks_dropped = 0  # not drained in time

    def configure(self, nics: Iterable[str], interval_ns: int = SECOND_NS) -> None:
        """What to read from now on; NICs already read go on without a break."""
        assert interval_ns > 0
        self._wanted = tuple(dict.fromkeys(nics))
        self._interval_ns = interval_ns
        self._list()

    def _list(self) -> None:
        names = dict.fromkeys(self._wanted)
        for nic in self._wanted:
            names |= dict.fromkeys(self._below(nic))
        kept = list(names)[:MAX_NICS]
        self._left_out = len(names) - len(kept)
        for gone in set(self._nics) - set(kept):
            self._nics.pop(gone).close()
        for name in kept:
            if name not in self._nics:
                self._nics[name] = Device(name, self._classes / name, self._identify)

    def _below(self, nic: str) -> list[str]:
        """Devices that carry this one, through two steps (a VLAN on a bond). Not the ports of a bridge: they are
        other people's."""
        found: list[str] = []
        level = [nic]
        for _ in range(2):
            lower: list[str] = []
            for name in level:
                directory = self._classes / name
                if not (directory / "bridge").exists():
                    lower += sorted(link.name.removeprefix("lower_") for link in directory.glob("lower_*"))
            found += lower
            level = lower
        return found

    async def run(self) -> None:
        """Ticks for ever. A tick that comes more than an interval late is missed, not made up for."""
        next_ns = self._clock.monotonic_ns()
        while True:
            await self._clock.sleep_until(next_ns)
            self.tick()
            next_ns += self._interval_ns
            behind_ns = self._clock.monotonic_ns() - next_ns
            if behind_ns > 0:
                missed = -(-behind_ns // self._interval_ns)
                self.ticks_missed += missed
                next_ns += missed * self._interval_ns

    def tick(self) -> None:
        """Reads every NIC once. One that cannot be read costs only itself."""
        self._tick_count += 1
        if self._tick_count % REOPEN_TICKS == 0:
            self._list()
            for nic in self._nics.values():
                nic.close()
        own = cache(self._own_counters)  # read once a tick, and only when a NIC needs it
        for nic in self._nics.values():
            read_ns = self._clock.monotonic_ns()
            try:
                values = nic.read(own)
                nic.fault = ""
            except OSError as error:
                values = (None,) * len(COUNTERS)
                nic.fault = str(error)
            if len(nic.ticks) == MAX_TICKS:
                nic.ticks.popleft()
                self.ticks_dropped += 1
            nic.ticks.append((read_ns, values))

    def _own_counters(self) -> Mapping[str, Mapping[str, int]]:
        return netdev.parse((self._root / "proc/net/dev").read_text(errors="replace"))

    def drain(self) -> list[NicBatch]:
        """What was read since the last drain, one batch a NIC. Base times use the clock's present offset: call
        after its ``tick``."""
        batches = (nic.drain(self._clock, self._interval_ns) for nic in self._nics.values())
        return [batch for batch in batches if batch is not None]

    def state(self) -> PartState:
        """``nic_unreadable`` when a NIC gives nothing, ``wrong_sysfs`` when /proc had to do, ``ok`` else."""
        faults = [nic.fault for nic in self._nics.values() if nic.fault]
        if self._left_out:
            faults.append(f"{self._left_out} devices over the limit of {MAX_NICS} are not read")
        if faults:
            working = len(faults) < len(self._nics)
            return PartState("nic", working, "nic_unreadable", "; ".join(faults))
        foreign = [nic.name for nic in self._nics.values() if nic.foreign]
        if foreign:
            detail = f"/sys belongs to another network namespace: {', '.join(foreign)} read from /proc/net/dev"
            return PartState("nic", True, "wrong_sysfs", f"{detail}, without speed, CRC and carrier counters")
        absent = {"missed": self.ticks_missed, "dropped": self.ticks_dropped}
        detail = ", ".join(f"{count} ticks {how}" for how, count in absent.items() if count)
        return PartState("nic", True, "ok", detail)

    def close(self) -> None:
        """Gives the descriptors back. Ticks not yet drained stay."""
        for nic in self._nics.values():
            nic.close()
