"""Which size to try next, and what a path's MTU is by what came of those tried. Pure.

Some sizes are always tried. Between the largest that came back and the smallest that did not, the search follows what
routers and our own interface say of their MTU, then sizes at which links commonly end (RFC 1191 section 7 has such a
table), then halves. A size is taken as vanished only where small packets of the same moment came back and several
large ones did not, twice: loss must not look like a black hole (RFC 2923).
"""

from collections.abc import Iterable, Sequence

from agent.result import MtuTrial
from bandwitness.v1.record_pb2 import (
    MTU_OUTCOME_LOCAL,
    MTU_OUTCOME_REPLIED,
    MTU_OUTCOME_SEND_FAILED,
    MTU_OUTCOME_SILENT,
    MTU_OUTCOME_TOO_BIG,
)

MAX_TRIALS = 32
HEADER_BYTES = {4: 28, 6: 48}  # IP and ICMP
# IP packets: minimum of IPv4 and IPv6, tunnels (WireGuard, VXLAN, GRE, IPIP), PPPoE, Ethernet, FDDI, jumbo frames.
COMMON_BYTES = (
    *(576, 1006, 1280, 1380, 1400, 1420, 1440, 1450, 1460, 1476, 1480, 1492, 1500),
    *(2002, 4352, 8192, 8950, 9000),
)


class MtuSearch:
    """One search, in payload bytes behind the ICMP header.

    Ask ``next``, try that size, ``note`` what came of it, until ``next`` is None.
    """

    def __init__(self, sizes: Iterable[int], ip_version: int, small: int, known_bytes: int | None = None) -> None:
        """Args:
        sizes: that are always tried; the largest bounds the search.
        ip_version: 4 or 6.
        small: payload of packets that surely fit.
        known_bytes: MTU found by the check before.
        """
        self.trials: list[MtuTrial] = []
        self._header = HEADER_BYTES[ip_version]
        self._always = sorted({size for size in sizes if size > small})
        self._fits = small  # largest known to fit
        self._fails = (self._always[-1] if self._always else small) + 1  # smallest known not to, or beyond interest
        self._reason = 0  # MtuOutcome of the smallest known not to fit
        self._hints: list[int] = [] if known_bytes is None else [known_bytes - self._header]
        self._common = frozenset(size - self._header for size in COMMON_BYTES)
        self._silent: dict[int, int] = {}
        self._replied = False
        self._undecided = False

    def next(self) -> int | None:
        """The size to try now; None: the search has ended."""
        if len(self.trials) >= MAX_TRIALS and self._fails - self._fits > 1:
            self._undecided = True
        if self._undecided:
            return None
        for size in self._always:
            if size not in self._tried:
                return size
        if self._fails - self._fits <= 1:
            again = self._reason == MTU_OUTCOME_SILENT and self._silent[self._fails] < 2
            return self._fails if again else None
        inside = [hint for hint in self._hints if self._fits < hint < self._fails]
        if inside:
            return min(inside)
        if self._fits in self._hints:
            return self._fits + 1
        common = sorted(size for size in self._common if self._fits < size < self._fails)
        if common:
            return common[len(common) // 2]
        if self._fits in self._common:
            return self._fits + 1
        return (self._fits + self._fails) // 2

    def note(self, trial: MtuTrial, *, small_came_back: bool, interface_mtu_bytes: int = 0) -> None:
        """What came of the size asked for.

        Args:
            trial: the outcome.
            small_came_back: for a silent one: whether all small packets sent beside it came back.
            interface_mtu_bytes: of our own interface, as far as known; 0: not.
        """
        self.trials.append(trial)
        size = trial.payload_bytes
        if trial.outcome == MTU_OUTCOME_REPLIED:
            self._replied = True
            self._fits = max(self._fits, size)
            if size >= self._fails:  # what was taken to fail does not: the search opens again above it
                self._reopen()
        elif trial.outcome == MTU_OUTCOME_SILENT and small_came_back:
            self._silent[size] = self._silent.get(size, 0) + 1
            self._replied = True
            self._fail(size, trial.outcome)
        elif trial.outcome == MTU_OUTCOME_TOO_BIG:
            self._told(size, trial.next_hop_mtu_bytes, trial.outcome)
        elif trial.outcome == MTU_OUTCOME_LOCAL:
            self._told(size, interface_mtu_bytes, trial.outcome)
        else:  # our own failure, or loss: nothing can be said
            self._undecided = True

    @property
    def mtu_bytes(self) -> int | None:
        """IP packet size; None: not enough came back to say."""
        return self._fits + self._header if self._replied and not self._undecided else None

    @property
    def black_hole(self) -> bool:
        """Larger packets vanish and nobody says so."""
        return self.mtu_bytes is not None and self._reason == MTU_OUTCOME_SILENT

    @property
    def failed(self) -> bool:
        """Whether our own host could not send."""
        return any(trial.outcome == MTU_OUTCOME_SEND_FAILED for trial in self.trials)

    @property
    def _tried(self) -> set[int]:
        return {trial.payload_bytes for trial in self.trials}

    def _told(self, size: int, mtu_bytes: int, reason: int) -> None:
        """Somebody refused the size, and may have said what fits."""
        self._fail(size, reason)
        hint = mtu_bytes - self._header
        if self._fits <= hint < size:
            self._hints.append(hint)
            self._fail(hint + 1, reason)

    def _fail(self, size: int, reason: int) -> None:
        # A silent size above one that somebody refused says nothing more, and the other way round.
        if size < self._fails or (size == self._fails and not self._reason):
            self._fails, self._reason = size, reason

    def _reopen(self) -> None:
        above: Sequence[MtuTrial] = [
            trial for trial in self.trials if trial.payload_bytes > self._fits and trial.outcome != MTU_OUTCOME_REPLIED
        ]
        lowest = min(above, key=lambda trial: trial.payload_bytes, default=None)
        self._fails = lowest.payload_bytes if lowest else max(self._always[-1], self._fits) + 1
        self._reason = lowest.outcome if lowest else 0
