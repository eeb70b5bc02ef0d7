"""What is in flight: sent and not yet acknowledged. Pure."""

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Flight:
    chain_id: bytes
    sent: deque[tuple[int, int, int]] = field(default_factory=deque)  # seq, bytes, monotonic time of sending


class Window:
    """Bounded by batches and by bytes over all classes; one batch always fits, whatever its size."""

    def __init__(self, max_batches: int, max_bytes: int) -> None:
        self._max_batches = max_batches
        self._max_bytes = max_bytes
        self._flights: dict[int, _Flight] = {}
        self._batches = 0
        self._bytes = 0

    def has_room(self, size_bytes: int) -> bool:
        """Whether a batch of that size may be sent now."""
        if not self._batches:
            return True
        return self._batches < self._max_batches and self._bytes + size_bytes <= self._max_bytes

    def sent(self, batch_class: int, chain_id: bytes, seq: int, size_bytes: int, now_ns: int) -> None:
        """A batch went out. The first of a new chain forgets those of the old one: they will not be acknowledged."""
        flight = self._flights.get(batch_class)
        if flight is None or flight.chain_id != chain_id:
            if flight is not None:
                self._forget(flight, 1 << 64)
            flight = self._flights[batch_class] = _Flight(chain_id)
        flight.sent.append((seq, size_bytes, now_ns))
        self._batches += 1
        self._bytes += size_bytes

    def acknowledged(self, batch_class: int, chain_id: bytes, through_seq: int) -> bool:
        """Whether that was news: something in flight was covered by it."""
        flight = self._flights.get(batch_class)
        if flight is None or flight.chain_id != chain_id:
            return False
        return self._forget(flight, through_seq)

    def _forget(self, flight: _Flight, through_seq: int) -> bool:
        before = self._batches
        while flight.sent and flight.sent[0][0] <= through_seq:
            _, size_bytes, _ = flight.sent.popleft()
            self._batches -= 1
            self._bytes -= size_bytes
        return self._batches < before

    def oldest_sent_ns(self) -> int | None:
        """Monotonic time of sending of the oldest batch in flight."""
        return min((flight.sent[0][2] for flight in self._flights.values() if flight.sent), default=None)
