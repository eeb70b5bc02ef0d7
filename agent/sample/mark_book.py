"""Which marks are open, and how many a user may send. Pure; times are monotonic ns."""

from collections import OrderedDict
from dataclasses import dataclass

from agent.sample.mark_datagram import BEGIN, Said

SECOND = 1_000_000_000
DEFAULT_EXPIRY_NS = 1800 * SECOND
MAX_OPEN = 1024
# Eight ranks that begin and end a save at once are 16 marks; what a user sends beyond these rates is noise. Each mark
# that is taken is kept for ever, so the rates are also what anybody on the host can fill of the collector's disk.
USER_BURST, USER_RATE_PER_S = 256, 2
ALL_BURST, ALL_RATE_PER_S = 1024, 16
MAX_USERS = 64


@dataclass(frozen=True, slots=True)
class OpenMark:
    """Something that began and has not ended."""

    user_id: int
    kind: str
    job: str
    rank: int | None
    step: int | None
    since_ns: int

    def __str__(self) -> str:
        job = f" of job {self.job}" if self.job else ""
        step = "" if self.step is None else f", step {self.step}"
        return f"{self.kind}{job}{step} (user {self.user_id})"


class OpenMarks:
    """What has begun and not ended. One that never ends is forgotten after ``expiry_ns``: a trainer that was killed
    must not keep tests away for ever."""

    def __init__(self, expiry_ns: int = DEFAULT_EXPIRY_NS) -> None:
        self._expiry_ns = expiry_ns
        self._open: OrderedDict[tuple[int, str, str, int | None, int | None], OpenMark] = OrderedDict()  # oldest first
        self.expired = 0  # never closed
        self.pushed_out = 0  # to stay inside MAX_OPEN
        self.unopened = 0  # ends of what was not open

    def note(self, user_id: int, said: Said, now_ns: int) -> None:
        """Takes in one mark. Saying again that something begins makes it begin now.

        An end closes what began with the same user, kind, job and rank, and the same step; where either of the two
        named no step, whatever is open with the rest the same.
        """
        key = (user_id, said.kind, said.job, said.rank, said.step)
        if said.phase == BEGIN:
            self._open.pop(key, None)
            self._open[key] = OpenMark(user_id, said.kind, said.job, said.rank, said.step, now_ns)
            if len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
                self.pushed_out += 1
            return
        if self._open.pop(key, None) is not None:
            return
        alike = [other for other in self._open if other[:4] == key[:4] and (said.step is None or other[4] is None)]
        for other in alike:
            del self._open[other]
        self.unopened += not alike

    def current(self, now_ns: int) -> tuple[OpenMark, ...]:
        """What is open, oldest first."""
        while self._open:
            oldest = next(iter(self._open.values()))
            if now_ns - oldest.since_ns < self._expiry_ns:
                break
            self._open.popitem(last=False)
            self.expired += 1
        return tuple(self._open.values())


class _Bucket:
    """A token bucket."""

    def __init__(self, burst: int, rate_per_s: int, now_ns: int) -> None:
        self._burst_ns = burst * SECOND // rate_per_s
        self._cost_ns = SECOND // rate_per_s
        self._full_at_ns = now_ns  # when it is full again

    def take(self, now_ns: int) -> bool:
        begins_ns = max(self._full_at_ns, now_ns)
        if begins_ns + self._cost_ns - now_ns > self._burst_ns:
            return False
        self._full_at_ns = begins_ns + self._cost_ns
        return True


class Rates:
    """How many marks each user, and all together, may send: a burst, and a rate behind it."""

    def __init__(self, now_ns: int) -> None:
        self._all = _Bucket(ALL_BURST, ALL_RATE_PER_S, now_ns)
        self._users: OrderedDict[int, _Bucket] = OrderedDict()  # least recently heard first

    def admit(self, user_id: int, now_ns: int) -> bool:
        """Whether one more is taken in."""
        bucket = self._users.get(user_id)
        if bucket is None:
            bucket = self._users[user_id] = _Bucket(USER_BURST, USER_RATE_PER_S, now_ns)
            if len(self._users) > MAX_USERS:
                self._users.popitem(last=False)
        self._users.move_to_end(user_id)
        return bucket.take(now_ns) and self._all.take(now_ns)
