"""What a NIC carried, read by read, for any stretch of time that the log still has."""

from collections.abc import Callable, Iterable, Iterator, Sequence
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

    def __call__(
        self, node: str, nic: str, from_ns: int, to_ns: int, limit: int
    ) -> tuple[list[SeriesPoint], int | None]:
        """The first ``limit`` points whose read lies in ``[from, to)``, and the time behind which there may be more;
        None where there are not. There may be more, too, where ``MOST_ENTRIES`` did not reach the end."""
        points: list[SeriesPoint] = []
        meter, definitions = Meter(), Definitions(self._counter_sets())
        after: tuple[int, int] | None = (0, 0)
        read, reached_ns = 0, from_ns
        span = (from_ns - BACK_NS, to_ns + HELD_NS)
        while after is not None and after[0] <= to_ns + BACK_NS:
            if read >= MOST_ENTRIES:
                return points, reached_ns
            found, after = self._log.of_events(node, BATCH_CLASS_TELEMETRY, span, after, ENTRIES)
            for step in _steps(meter, definitions, found, nic):
                if from_ns <= step.end_time_ns < to_ns:
                    if len(points) == limit:
                        return points, points[-1].time_ns
                    points.append(_point(step))
            read += len(found)
            if after is not None:
                reached_ns = points[-1].time_ns if points else max(reached_ns, after[0])
        return points, None


def _steps(meter: Meter, definitions: Definitions, entries: Iterable[LogEntry], nic: str) -> Iterator[Octets]:
    for entry in entries:
        yield from meter.add(one for one in decode(entry, definitions).nics if one.nic == nic)


def _point(step: Octets) -> SeriesPoint:
    rates = [
        None if count is None else count * 8 * SECOND / step.span_ns
        for count in (step.receive_bytes, step.transmit_bytes)
    ]
    return SeriesPoint(step.end_time_ns, step.span_ns, step.receive_bytes, step.transmit_bytes, *rates)
