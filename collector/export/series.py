"""What a NIC carried, read by read, for any stretch of time that the log still has."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from bandwitness.v1.record_pb2 import BATCH_CLASS_TELEMETRY
from collector.analysis.octets import Meter, Octets
from collector.decode import Definitions, decode
from collector.model import LogEntry, SeriesPoint

SECOND = 1_000_000_000
BACK_NS = 20 * SECOND  # a meter that begins so much earlier has settled on its sources
HELD_NS = 3600 * SECOND  # the newest event of a batch is later than its reads by at most this
ENTRIES = 64  # read at a time
MOST_ENTRIES = 20_000  # of one answer: half a day of an agent that flushes every two seconds


class Log(Protocol):
    """What is needed of the log."""

    def of_events(
        self, agent_id: str, batch_class: int, span: tuple[int, int], after: tuple[int, int], limit: int, /
    ) -> tuple[list[LogEntry], tuple[int, int] | None]: ...


class NicSeries:
    """Series out of the log."""

    def __init__(self, log: Log, counter_sets: Callable[[], Sequence[bytes]]) -> None:
        """``counter_sets`` gives the definitions known so far: agents repeat theirs only once a day."""
        self._log, self._counter_sets = log, counter_sets

    def __call__(self, node: str, nic: str, from_ns: int, to_ns: int, limit: int) -> tuple[list[SeriesPoint], bool]:
        """The first ``limit`` points whose read lies in ``[from, to)``, and whether there are more."""
        points: list[SeriesPoint] = []
        for step in self._steps(node, nic, from_ns - BACK_NS, to_ns):
            if from_ns <= step.end_time_ns < to_ns:
                if len(points) == limit:
                    return points, True
                points.append(_point(step))
        return points, False

    def _steps(self, node: str, nic: str, from_ns: int, to_ns: int) -> Iterator[Octets]:
        meter, definitions = Meter(), Definitions(self._counter_sets())
        for entry in self._entries(node, from_ns, to_ns):
            yield from meter.add(one for one in decode(entry, definitions).nics if one.nic == nic)

    def _entries(self, node: str, from_ns: int, to_ns: int) -> Iterator[LogEntry]:
        """Of event times from a time on; until a batch begins behind the end."""
        after: tuple[int, int] | None = (0, 0)
        read = 0
        while after is not None and read < MOST_ENTRIES:
            found, after = self._log.of_events(node, BATCH_CLASS_TELEMETRY, (from_ns, to_ns + HELD_NS), after, ENTRIES)
            yield from found
            read += len(found)
            if after is not None and after[0] > to_ns + BACK_NS:
                return


def _point(step: Octets) -> SeriesPoint:
    rates = [
        None if count is None else count * 8 * SECOND / step.span_ns
        for count in (step.receive_bytes, step.transmit_bytes)
    ]
    return SeriesPoint(step.end_time_ns, step.span_ns, step.receive_bytes, step.transmit_bytes, *rates)
