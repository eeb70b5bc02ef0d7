"""A store and a runner over a log made by hand."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from bandwitness.v1 import record_pb2 as pb
from collector.analysis.rules import ports
from collector.analysis.runner import Runner
from collector.config import Config
from collector.model import Incident
from collector.store.outbox import Outbox
from collector.store.reader import Reader
from collector.store.writer import Store
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import SECOND, Fate, MeasuredLog, Packet, replied

ALWAYS = (0, 1 << 62)
MakeBench = Callable[[MeasuredLog, Config], "Bench"]


class Bench:
    """Analysis as it runs in the collector, but for the thread."""

    def __init__(self, path: Path, log: MeasuredLog, config: Config) -> None:
        self.notice_pauses = False  # time passes in leaps here
        self.log, self.config = log, config
        self.store = Store(path)
        self.reader = Reader(path, config)
        self.outbox = Outbox({})
        self.runner = self._new()

    def _new(self) -> Runner:
        return Runner(
            self.log,
            self.store,
            self.config,
            self._wall_ns,
            notice_pauses=self.notice_pauses,
            outbox=self.outbox,
        )

    def remote_write(self, limits: Mapping[str, int]) -> Outbox:
        """From here on, as after a restart, analysis takes note of what is to be sent."""
        self.outbox = Outbox(limits)
        self.restart()
        return self.outbox

    def _wall_ns(self) -> int:
        """A second after the newest entry that can be seen, or later if the test let time pass."""
        last = self.log.last_position
        hidden = last < len(self.log.entries)
        return (self.log.entries[last - 1].received_time_ns if hidden else self.log.now_ns) + SECOND

    def restart(self) -> None:
        """What SIGKILL leaves is the file, at the last step that was committed."""
        self.runner = self._new()

    def drain(self) -> None:
        """Reads the log to its end."""
        while self.runner.step():
            pass

    def close(self) -> None:
        self.store.close()
        self.reader.close()

    def incidents(self, rule: str = "") -> list[Incident]:
        """All incidents on record, open or closed."""
        return [incident for incident in self.reader.incidents(*ALWAYS) if rule in ("", incident.rule)]

    def verdicts(self) -> list[Incident]:
        """Incidents without what tells how often they were revised."""
        return [replace(incident, revision=0) for incident in self.incidents()]

    def rows(self) -> list[object]:
        """Everything derived that a reader can see."""
        windows = [
            window for status in self.reader.paths() for window in self.reader.round_trips(status.path_id, *ALWAYS)
        ]
        return [
            *windows,
            *self.incidents(),
            *self.reader.swings(),
            *self.reader.pairs(START_NS, START_NS + 3600 * SECOND, ports.pattern),
            *self.reader.marks(*ALWAYS),
            *self.reader.traces(*ALWAYS),
            *self.reader.path_mtus(*ALWAYS),
            *self.reader.route_changes(*ALWAYS),
            *(status.hop_count for status in self.reader.paths()),
            *self.reader.timetable(*ALWAYS),
            *self.reader.accounting(*ALWAYS),
        ]


def lossy(every: int, *, source: str = "", destination: str = "", since_s: float = 30, until_s: float = 1e9) -> Fate:
    """Every so many packets one is lost, in either direction between nodes whose names begin so."""

    def fate(src: str, dst: str, sequence: int, time_ns: int) -> Packet:
        hit = any(a.startswith(source) and b.startswith(destination) for a, b in ((src, dst), (dst, src)))
        inside = since_s <= (time_ns - START_NS) / SECOND < until_s
        if hit and inside and (sequence * 7919 + sum((src + dst).encode())) % every == 0:
            return pb.PACKET_OUTCOME_LOST, None
        return replied(src, dst, sequence, time_ns)

    return fate
