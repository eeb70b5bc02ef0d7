"""From an incident to the signed records its figures stand on: read out of the log when somebody asks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from bandwitness.v1.record_pb2 import BATCH_CLASS_EVIDENCE, BATCH_CLASS_TELEMETRY
from collector.analysis import evidence
from collector.analysis.rules import delay
from collector.analysis.window import SECOND
from collector.decode import Definitions, decode
from collector.export import views
from collector.model import EvidenceRecord, Incident, LogEntry

SHOWN = 50  # newest records in one answer
STEP_NS = 60 * SECOND  # of event time, from the newest back
HELD_NS = 120 * SECOND  # the newest event of a batch is later than its packets by at most this
ENTRIES = 64  # read at a time
MOST_ENTRIES = 2_000  # of one answer


class Log(Protocol):
    """What is needed of the log."""

    def of_events(
        self, agent_id: str, batch_class: int, span: tuple[int, int], after: tuple[int, int], limit: int, /
    ) -> tuple[list[LogEntry], tuple[int, int] | None]: ...


class Incidents(Protocol):
    """What is needed of the store; safe from any thread."""

    def incident(self, incident_id: str) -> Incident | None: ...
    def sources_of(self, path_ids: Sequence[int]) -> Sequence[str]: ...
    def left_out(
        self, path_ids: Sequence[int], from_ns: int, to_ns: int, *, of_delay: bool
    ) -> set[tuple[int, int]]: ...
    def counter_sets(self) -> Sequence[bytes]: ...


@dataclass(frozen=True, slots=True)
class Found:
    """Records an incident stands on, newest first."""

    incident_id: str
    rule: str
    from_time_ns: int
    to_time_ns: int
    records: int  # all that were found
    complete: bool  # False: the time from ``from`` on is longer than one answer reads; what was read is its end
    items: Sequence[EvidenceRecord]  # the newest of them


FindEvidence = Callable[[str], Found | None]


def no_evidence(_: str) -> None:
    """Where there is no log to read."""
    return


class Evidence:
    """Evidence out of the log."""

    def __init__(self, log: Log, store: Incidents) -> None:
        self._log, self._store = log, store

    def __call__(self, incident_id: str) -> Found | None:
        """None: there is no such incident."""
        incident = self._store.incident(incident_id)
        if incident is None:
            return None
        span = evidence.span_of(incident)
        if incident.rule in evidence.OF_PATHS:
            entries = _Entries(self._log, span, BATCH_CLASS_EVIDENCE)
            found = [*self._of_paths(incident, span, entries)]
        elif incident.rule in evidence.OF_NICS:
            entries = _Entries(self._log, span, BATCH_CLASS_TELEMETRY)
            found = [*self._of_nics(incident, span, entries)]
        else:  # the rule names its records itself
            stored = [EvidenceRecord(source) for source in incident.evidence]
            return _found(incident, span, stored, complete=True)
        return _found(incident, span, found, complete=entries.complete)

    def _of_paths(self, incident: Incident, span: tuple[int, int], entries: "_Entries") -> Iterator[EvidenceRecord]:
        path_ids = [int(child, 16) for child in incident.children]
        out = self._store.left_out(path_ids, *span, of_delay=incident.rule == delay.RULE)
        definitions = Definitions()
        for entry in entries.of(self._store.sources_of(path_ids)):
            yield from evidence.of_round_trips(incident, decode(entry, definitions).round_trips, out, span)

    def _of_nics(self, incident: Incident, span: tuple[int, int], entries: "_Entries") -> Iterator[EvidenceRecord]:
        definitions = Definitions(self._store.counter_sets())
        for entry in entries.of([incident.element.name.split("/")[0]]):
            yield from evidence.of_counters(incident, decode(entry, definitions).nics, span)


class _Entries:
    """Entries of some agents by event time, the newest minute first, as many as one answer reads."""

    def __init__(self, log: Log, span: tuple[int, int], batch_class: int) -> None:
        self._log, self._span, self._class = log, span, batch_class
        self.complete = True

    def of(self, agents: Iterable[str]) -> Iterator[LogEntry]:
        names = sorted(set(agents))
        read, end_ns = 0, self._span[1] + HELD_NS
        while end_ns > self._span[0]:
            begin_ns = max(end_ns - STEP_NS, self._span[0])
            for name in names:
                after: tuple[int, int] | None = (0, 0)
                while after is not None:
                    if read >= MOST_ENTRIES:
                        self.complete = False
                        return
                    entries, after = self._log.of_events(name, self._class, (begin_ns, end_ns), after, ENTRIES)
                    read += len(entries)
                    yield from entries
            end_ns = begin_ns


def _found(incident: Incident, span: tuple[int, int], records: Sequence[EvidenceRecord], *, complete: bool) -> Found:
    newest = sorted(
        records, key=lambda record: (record.to_time_ns or 0, record.source.position, record.source.record_index)
    )[::-1]
    return Found(incident.incident_id, incident.rule, *span, len(records), complete, newest[:SHOWN])


def add_evidence(app: FastAPI, find: FindEvidence) -> None:
    """What an incident stands on."""

    @app.get("/api/v1/incidents/{incident_id}/evidence")
    async def of_incident(incident_id: str) -> dict[str, Any]:
        """Signed records that the figures of an incident stand on (agent, chain, number of the batch, place in it), the
        newest 50 and the count of all, with what each holds of the paths or the NIC."""
        found = await run_in_threadpool(find, incident_id)
        if found is None:
            raise HTTPException(404, "no such incident; /api/v1/incidents lists them, with whole ids")
        return views.item(found)
