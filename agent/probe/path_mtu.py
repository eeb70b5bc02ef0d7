"""The largest packet that each echo path carries whole, found by don't-fragment echo; slowly, one path at a time.

What comes back proves the way there: the far end may fragment its reply. Sizes above our own interface's MTU are ours
and not the network's. A healthy path costs two packets; a search through a black hole some tens, well spread.
"""

import errno
import fcntl
import socket
from collections.abc import Callable, Sequence
from random import Random
from struct import pack, unpack_from

from agent.clock import Clock
from agent.probe.icmp_socket import Rights, Source, hold_receive_stamping
from agent.probe.path_mtu_search import MtuSearch
from agent.probe.sounding import KernelSoundingSocket, Said, Sounding, SoundingOpener, To
from agent.probe.targets import PathSpec
from agent.result import MtuTrial, PartState, PathMtu
from bandwitness.v1.plan_pb2 import PathMtuCheck
from bandwitness.v1.record_pb2 import (
    MTU_OUTCOME_LOCAL,
    MTU_OUTCOME_REPLIED,
    MTU_OUTCOME_SEND_FAILED,
    MTU_OUTCOME_SILENT,
    MTU_OUTCOME_TOO_BIG,
)

SECOND_NS = 1_000_000_000
DEFAULT_SIZES = (1472, 8972)  # IPv4 packets of 1500 and 9000 bytes
MAX_SIZES = 8
SMALLEST_BYTES, LARGEST_BYTES = 64, 16_000
MIN_INTERVAL_NS = 60 * SECOND_NS
NEW_GAP_NS = 5 * SECOND_NS  # between two checks of paths not checked before
MIN_GAP_NS = SECOND_NS
TRIES = 5  # large packets of one size
SMALLS = 4  # small ones beside the last of them
TURN_NS = 250_000_000  # for an answer, before the next packet of the size
LOOK_NS = 10_000_000
MAX_RESULTS = 64
MAX_REMEMBERED = 10_000
IPV6_LONGER_BYTES = 20  # than an IPv4 header: the same packet has so much less payload

_SIOCGIFMTU = 0x8921


def interface_mtu(nic: str) -> int:
    """MTU of a network interface of this host; 0: no such, or none is named."""
    if not nic:
        return 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        try:
            answer = fcntl.ioctl(opened.fileno(), _SIOCGIFMTU, pack("16si12x", nic.encode(), 0))
        except OSError:
            return 0
    return int(unpack_from("@i", answer, 16)[0])


class MtuCheck:
    """One check of one path.

    Args:
        clock: the host's.
        sounding: don't-fragment echo to the far end.
        ip_version: 4 or 6.
        sizes: always tried, as payload of IPv4.
        small: payload that surely fits.
        waiting_ns: after this a packet is lost.
        interface_mtu_bytes: of our own interface; 0: not known.
        known_bytes: MTU that the check before found.
        look: is shown each size as it is settled.
    """

    def __init__(
        self,
        clock: Clock,
        sounding: Sounding,
        *,
        ip_version: int,
        sizes: Sequence[int],
        small: int,
        waiting_ns: int,
        interface_mtu_bytes: int = 0,
        known_bytes: int | None = None,
        look: Callable[[MtuTrial], None] = lambda _: None,
    ) -> None:
        less = IPV6_LONGER_BYTES if ip_version == 6 else 0
        self.search = MtuSearch([size - less for size in sizes], ip_version, small, known_bytes)
        self._clock = clock
        self._sounding = sounding
        self._small = small
        self._waiting_ns = waiting_ns
        self._interface_mtu_bytes = interface_mtu_bytes
        self._look = look
        self.time_ns = 0

    @property
    def interface_mtu_bytes(self) -> int:
        """Of our own interface, as far as known; 0: not."""
        return self._interface_mtu_bytes or self._sounding.interface_mtu_bytes

    async def run(self) -> None:
        """To the end; ``search`` has the result."""
        self.time_ns = self._clock.wall_ns()
        while (size := self.search.next()) is not None:
            trial, small_came_back = await self._try(size)
            self.search.note(trial, small_came_back=small_came_back, interface_mtu_bytes=self.interface_mtu_bytes)
            self._look(trial)

    def result(self, path: bytes) -> PathMtu:
        """What goes on record."""
        search = self.search
        return PathMtu(path, self.time_ns, search.trials, search.mtu_bytes, self.interface_mtu_bytes, search.black_hole)

    async def _try(self, size: int) -> tuple[MtuTrial, bool]:
        large: set[int] = set()
        small: set[int] = set()
        came_back = 0
        for turn in range(TRIES):
            try:
                large.add(self._sounding.send(payload_bytes=size))
                if turn >= TRIES - SMALLS:
                    small.add(self._sounding.send(payload_bytes=self._small))
            except OSError as error:
                local = error.errno == errno.EMSGSIZE
                outcome = MTU_OUTCOME_LOCAL if local else MTU_OUTCOME_SEND_FAILED
                return MtuTrial(size, int(outcome), len(large), 0), False
            last = turn == TRIES - 1
            wait_ns = self._waiting_ns if last else min(TURN_NS, self._waiting_ns)
            end_ns = self._clock.monotonic_ns() + wait_ns
            while (now_ns := self._clock.monotonic_ns()) <= end_ns:
                for answer in self._sounding.read():
                    if answer.number in small:
                        came_back += answer.said is Said.REPLIED
                    elif answer.number in large and answer.said is Said.REPLIED:
                        return MtuTrial(size, int(MTU_OUTCOME_REPLIED), len(large), 1), True
                    elif answer.number in large and answer.said is Said.TOO_BIG:
                        outcome = MTU_OUTCOME_TOO_BIG
                        return MtuTrial(size, int(outcome), len(large), 0, answer.address, answer.mtu_bytes), True
                await self._clock.sleep_until(now_ns + LOOK_NS)
        return MtuTrial(size, int(MTU_OUTCOME_SILENT), len(large), 0), came_back == SMALLS


class PathMtus:
    """The path MTU part of one agent. Call everything from the event loop's thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        paths: Callable[[], Sequence[PathSpec]],
        rights: Rights,
        opener: SoundingOpener = KernelSoundingSocket,
        random: Random | None = None,
        mtu_of: Callable[[str], int] = interface_mtu,
    ) -> None:
        """``paths``: those probed by echo that have an address. ``mtu_of``: of our own interface, by name."""
        self._clock = clock
        self._paths = paths
        self._rights = rights
        self._opener = opener
        self._random = random or Random()  # noqa: S311 - tokens tell packets apart, they keep no secret
        self._mtu_of = mtu_of
        self._interval_ns = 0  # 0: nothing is checked
        self._sizes: Sequence[int] = DEFAULT_SIZES
        self._checked_ns: dict[int, int] = {}  # path id -> monotonic time of its last check
        self._known: dict[int, int] = {}  # path id -> MTU found
        self._results: list[PathMtu] = []
        self._running_since_ns: int | None = None
        self.not_kept = 0
        self._fault = ""

    def configure(self, check: PathMtuCheck | None) -> None:
        """As planned; None: no checks."""
        if check is None:
            self._interval_ns = 0
            return
        self._interval_ns = max(check.interval_ns, MIN_INTERVAL_NS)
        sizes = [size for size in check.payload_bytes if SMALLEST_BYTES <= size <= LARGEST_BYTES]
        self._sizes = sizes[:MAX_SIZES] or DEFAULT_SIZES

    async def run(self) -> None:
        """Checks until cancelled."""
        with hold_receive_stamping():
            while True:
                spec, gap_ns = self._take(self._clock.monotonic_ns())
                if spec is not None:
                    await self._check(spec)
                await self._clock.sleep_until(self._clock.monotonic_ns() + gap_ns)

    def drain(self) -> list[PathMtu]:
        """Checks that ended since the last call."""
        found, self._results = self._results, []
        return found

    def oldest_unresolved_ns(self) -> int | None:
        """Wall clock time of the first packet of a check not drained yet; None: there is none."""
        times = [result.time_ns for result in self._results]
        return min(times + ([] if self._running_since_ns is None else [self._running_since_ns]), default=None)

    def state(self) -> PartState:
        """How it goes."""
        details = [self._fault] if self._fault else []
        if self.not_kept:
            details.append(f"{self.not_kept} checks not kept: nothing was drained in time")
        if not self._interval_ns:
            details.append("not planned")
        return PartState("path_mtu", True, "degraded" if self._fault or self.not_kept else "ok", "; ".join(details))

    def _take(self, now_ns: int) -> tuple[PathSpec | None, int]:
        """The path whose turn it is, and how long to wait behind it."""
        paths = {spec.path_id: spec for spec in self._paths()} if self._interval_ns else {}
        if not paths or (self._rights.ipv4 is None and self._rights.ipv6 is None):
            return None, NEW_GAP_NS
        for gone in [path_id for path_id in self._checked_ns if path_id not in paths]:
            self._checked_ns.pop(gone)
            self._known.pop(gone, None)
        gap_ns = max(MIN_GAP_NS, min(NEW_GAP_NS, self._interval_ns // len(paths)))
        new = next((spec for path_id, spec in paths.items() if path_id not in self._checked_ns), None)
        if new is not None:
            return new, gap_ns
        oldest = min(paths, key=self._checked_ns.__getitem__)
        due = now_ns - self._checked_ns[oldest] >= self._interval_ns
        return (paths[oldest] if due else None), gap_ns

    async def _check(self, spec: PathSpec) -> None:
        self._checked_ns[spec.path_id] = self._clock.monotonic_ns()
        method = self._rights.method(spec.ip_version)
        if method is None:
            return
        source = Source(spec.ip_version, spec.source_address, spec.nic, spec.dscp)
        self._running_since_ns = self._clock.wall_ns()
        try:
            sounding = Sounding(
                self._clock,
                To(spec.address, source),
                method,
                opener=self._opener,
                random=self._random,
                payload_bytes=spec.payload_bytes,
                dont_fragment=True,
            )
            try:
                check = MtuCheck(
                    self._clock,
                    sounding,
                    ip_version=spec.ip_version,
                    sizes=self._sizes,
                    small=min(spec.payload_bytes, SMALLEST_BYTES),
                    waiting_ns=spec.waiting_ns,
                    interface_mtu_bytes=self._mtu_of(spec.nic),
                    known_bytes=self._known.get(spec.path_id),
                )
                await check.run()
            finally:
                sounding.close()
        except OSError as error:
            self._fault = f"{spec.address}: {error}"
            return
        finally:
            self._running_since_ns = None
        self._fault = ""
        if check.search.mtu_bytes is not None:
            self._known[spec.path_id] = check.search.mtu_bytes
        if len(self._results) >= MAX_RESULTS:
            self.not_kept += 1
        else:
            self._results.append(check.result(spec.definition))
