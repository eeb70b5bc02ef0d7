"""What is known of each agent: how far its evidence reaches, when it was heard, how it is."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bandwitness.v1.record_pb2 import BATCH_CLASS_EVIDENCE, BatchClass
from collector.analysis.accounting import End
from collector.analysis.rounds import AHEAD_NS
from collector.analysis.window import SECOND
from collector.config import Config
from collector.model import BatchRow, GapRow, LogEntry, SelfCheckRow, StatusRow
from collector.store.rows import Values, dump

HEARD_WITHIN_NS = 10 * SECOND  # an agent that is silent for longer is not waited for
BEHIND_NS = 60 * SECOND  # nor one that is still sending what it measured longer ago than this
YOUNG_NS = 120 * SECOND  # counters move only on what came within this
MAX_DOUBTS = 16  # words that one agent's doubts are counted under
_CHECK_FIGURES = (
    "to_time_ns", "loopback_sent", "loopback_lost", "loopback_delay_p50_ns", "lateness_p50_ns", "lateness_max_ns",
    "cpu_pressure_ratio", "own_wait_ratio", "steal_ratio",
)  # fmt: skip
SETTLE_NS = 3 * SECOND  # from the end of the waiting time to the batch that tells


@dataclass(slots=True)
class Agent:
    """One agent. Watermarks only rise."""

    name: str
    first_received_time_ns: int
    last_received_time_ns: int
    watermark_ns: int | None = None  # of the evidence chain, as the header says
    round_trip_watermark_ns: int | None = None
    closed_through_ns: int = 0
    software_version: str | None = None
    iperf3_version: str | None = None
    clock_synchronised: bool | None = None
    clock_error_bound_ns: int | None = None
    spool_bytes: int | None = None
    records_dropped: int | None = None
    parts: list[dict[str, str]] = field(default_factory=list)
    chains: dict[str, int] = field(default_factory=dict)
    quarantined: int = 0
    self_check: dict[str, Any] = field(default_factory=dict)  # of SelfCheckStatus; empty before the first
    gaps: int = 0
    last_gap_time_ns: int | None = None

    def values(self) -> Values:
        """Table row."""
        return {
            "name": self.name,
            "first_received_time_ns": self.first_received_time_ns,
            "last_received_time_ns": self.last_received_time_ns,
            "watermark_ns": self.watermark_ns,
            "round_trip_watermark_ns": self.round_trip_watermark_ns,
            "closed_through_ns": self.closed_through_ns,
            "software_version": self.software_version,
            "iperf3_version": self.iperf3_version,
            "clock_synchronised": self.clock_synchronised,
            "clock_error_bound_ns": self.clock_error_bound_ns,
            "spool_bytes": self.spool_bytes,
            "records_dropped": self.records_dropped,
            "parts": dump(self.parts),
            "chains": dump(self.chains),
            "quarantined": self.quarantined,
            "self_check": dump(self.self_check),
            "gaps": self.gaps,
            "last_gap_time_ns": self.last_gap_time_ns,
        }

    @staticmethod
    def restore(values: Mapping[str, Any]) -> "Agent":
        """The agent again."""
        texts = ("parts", "chains", "self_check")
        plain = {name: value for name, value in values.items() if name not in texts}
        return Agent(**plain, **{name: json.loads(values[name]) for name in texts})


class Agents:
    """All agents that were ever heard."""

    def __init__(self, config: Config, known: Iterable[Agent] = ()) -> None:
        waiting_ns = config.measure.echo.waiting_time
        if len(config.sites) > 1:
            waiting_ns = max(waiting_ns, config.measure.echo.waiting_time_across_sites)
        self._hold_ns = waiting_ns + config.measure.flush + SETTLE_NS
        self._agents = {agent.name: agent for agent in known}
        self._changed: set[str] = set()

    def get(self, name: str) -> Agent | None:
        """An agent that was heard."""
        return self._agents.get(name)

    def all(self) -> list[Agent]:
        """Agents by name."""
        return [self._agents[name] for name in sorted(self._agents)]

    def hear(self, entry: LogEntry) -> Agent:
        """Notes that something came from an agent, whatever it was."""
        agent = self._agents.get(entry.agent_id)
        if agent is None:
            agent = Agent(entry.agent_id, entry.received_time_ns, entry.received_time_ns)
            self._agents[entry.agent_id] = agent
        agent.last_received_time_ns = max(agent.last_received_time_ns, entry.received_time_ns)
        self._changed.add(agent.name)
        if entry.quarantine:
            agent.quarantined += 1
        else:
            agent.chains[class_name(entry.batch_class)] = entry.seq
        return agent

    def batch(self, batch: BatchRow) -> None:
        """Takes in a header that stands in its chain.

        The evidence watermark stands still while a throughput test runs, since the test's record is not written yet.
        Round trips are complete much further: whatever was sent a waiting time and a flush before the batch was sealed
        is resolved and in it. If that should fail once, the samples are late ones and are judged again.
        """
        agent = self._agents[batch.agent_id]
        agent.software_version = batch.software_version or agent.software_version
        agent.clock_synchronised = batch.clock_synchronised
        agent.clock_error_bound_ns = batch.clock_error_bound_ns
        if batch.batch_class != BATCH_CLASS_EVIDENCE:
            return
        limit = batch.received_time_ns + AHEAD_NS
        watermark = min(batch.last_event_time_ns, limit)
        agent.watermark_ns = max(watermark, agent.watermark_ns or 0)
        round_trips = min(max(batch.last_event_time_ns, batch.sealed_time_ns - self._hold_ns), limit)
        agent.round_trip_watermark_ns = max(round_trips, agent.round_trip_watermark_ns or 0)

    def status(self, row: StatusRow) -> None:
        """Takes in what an agent says of itself."""
        agent = self._agents[row.source.agent_id]
        agent.iperf3_version = row.iperf3_version or None
        agent.spool_bytes, agent.records_dropped = row.spool_bytes, row.records_dropped
        agent.parts = [
            {"part": part, "state": state, "detail": detail}
            for part, working, state, detail in row.parts
            if not working
        ]

    def self_check(self, row: SelfCheckRow, received_time_ns: int) -> None:
        """Takes in an agent's check of itself; counts move on young ones only, as all counters do."""
        agent = self._agents[row.node]
        known = agent.self_check
        if row.to_time_ns < known.get("to_time_ns", 0):
            return
        counts = dict(known.get("doubtful_checks", {}))
        checks = known.get("checks", 0)
        if row.to_time_ns >= received_time_ns - YOUNG_NS:
            checks += 1
            for reason in row.reasons:
                if reason in counts or len(counts) < MAX_DOUBTS:
                    counts[reason] = counts.get(reason, 0) + 1
        newest = {name: getattr(row, name) for name in _CHECK_FIGURES}
        agent.self_check = newest | {"reasons": list(row.reasons), "checks": checks, "doubtful_checks": counts}

    def gaps(self, rows: Iterable[GapRow]) -> None:
        """Counts what an agent says it did not record."""
        for row in rows:
            agent = self._agents.get(row.node)
            if agent is not None:
                agent.gaps += 1
                agent.last_gap_time_ns = max(agent.last_gap_time_ns or 0, row.to_time_ns)
                self._changed.add(agent.name)

    def frontier(self, received_time_ns: int) -> int | None:
        """Up to where round trips of all agents are known that are worth waiting for; None while there are none.

        An agent counts that was heard within 10 s and whose watermark is less than a minute behind: one that is away,
        or sends a backlog, would hold up everybody. What it brings later is judged again.
        """
        marks = [
            agent.round_trip_watermark_ns
            for agent in self._agents.values()
            if agent.round_trip_watermark_ns is not None
            and received_time_ns - agent.last_received_time_ns <= HEARD_WITHIN_NS
            and received_time_ns - agent.round_trip_watermark_ns <= BEHIND_NS
        ]
        return min(marks, default=None)

    def gone(self, received_time_ns: int) -> list[Agent]:
        """Agents that are not waited for because nothing came from them."""
        return [agent for agent in self.all() if received_time_ns - agent.last_received_time_ns > HEARD_WITHIN_NS]

    def ends(self) -> dict[str, End]:
        """For accounting."""
        return {agent.name: End(agent.watermark_ns, agent.last_received_time_ns) for agent in self._agents.values()}

    def take_changed(self) -> list[Values]:
        """Rows that changed since last asked."""
        rows = [self._agents[name].values() for name in sorted(self._changed)]
        self._changed.clear()
        return rows

    def changed(self, agent: Agent) -> None:
        """Notes that an agent's row is to be written."""
        self._changed.add(agent.name)


def class_name(batch_class: int) -> str:
    """``evidence`` for BATCH_CLASS_EVIDENCE."""
    try:
        return BatchClass.Name(BatchClass.ValueType(batch_class)).removeprefix("BATCH_CLASS_").lower()
    except ValueError:
        return f"class_{batch_class}"
