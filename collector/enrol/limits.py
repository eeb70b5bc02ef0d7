"""How often strangers may try. Pure: the clock is given with each question."""

from dataclasses import dataclass, field

MAX_ADDRESSES = 1024


@dataclass(slots=True)
class Bucket:
    """So many at once, and so many a second behind them."""

    rate: float
    burst: float
    _level: float = 0.0
    _at_ns: int = 0

    def has_room(self, now_ns: int) -> bool:
        """Whether there is room for one more."""
        self._level = max(0.0, self._level - (now_ns - self._at_ns) / 1e9 * self.rate)
        self._at_ns = now_ns
        return self._level + 1 <= self.burst

    def takes(self, now_ns: int) -> bool:
        """Whether there is room for one more, which is then taken."""
        if not self.has_room(now_ns):
            return False
        self._level += 1
        return True

    @property
    def at_ns(self) -> int:
        """When it was last asked."""
        return self._at_ns


@dataclass(slots=True)
class Attempts:
    """All attempts together, and those that failed by the address they came from: fifty nodes behind one address that
    all hold good tokens are not in each other's way."""

    everybody: Bucket = field(default_factory=lambda: Bucket(rate=20, burst=200))
    _failed: dict[str, Bucket] = field(default_factory=dict)

    def allows(self, address: str, now_ns: int) -> bool:
        failed = self._failed.get(address)
        return (failed is None or failed.has_room(now_ns)) and self.everybody.takes(now_ns)

    def failed(self, address: str, now_ns: int) -> None:
        """Counts against the address. The one that has been quiet for longest is forgotten for a new one."""
        if address not in self._failed and len(self._failed) >= MAX_ADDRESSES:
            del self._failed[min(self._failed, key=lambda one: self._failed[one].at_ns)]
        self._failed.setdefault(address, Bucket(rate=0.2, burst=10)).takes(now_ns)
