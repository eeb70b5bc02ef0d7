"""The course of judging: on with the frontier, and back over a stretch for which late data have come.

Late data do not hold up what is judged live. They are collected, and once no more have come for ten seconds (or a
minute has passed) the stretch is judged again from the minute before it, from stored rows, at most 24 h back. Incidents
that come out differently get a new revision, those that do not come out any more are withdrawn. Judging again stops
where it meets the state that is on record, or at the live edge.

When all this happens is decided by the receipt times in the log, so the log alone says how it ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlalchemy import delete

from collector.analysis.incidents import Change
from collector.analysis.judge import RULES, Judge, Network
from collector.analysis.rounds import Span, union
from collector.analysis.state import State
from collector.analysis.usual import MINUTE_NS
from collector.analysis.views import SPAN_NS
from collector.analysis.window import BUCKET_NS, SECOND
from collector.config import Rules
from collector.model import Incident
from collector.store import tables
from collector.store.rows import incident_values, read_incident
from collector.store.writer import Transaction

QUIET_NS = 10 * SECOND
PATIENCE_NS = 60 * SECOND
BACK_NS = 24 * 3600 * SECOND
KEPT_NS = BACK_NS + 3 * 3600 * SECOND  # checkpoints: the stretch itself and a baseline before it


@dataclass(slots=True)
class Late:
    """Event time for which data came late, and when the first and the last of them were received."""

    span: Span
    first_received_ns: int
    last_received_ns: int

    def due(self, received_ns: int) -> bool:
        return received_ns - self.last_received_ns >= QUIET_NS or received_ns - self.first_received_ns >= PATIENCE_NS


class Verdicts:
    """Loss and delay verdicts, and their rows."""

    def __init__(self, network: Network, rules: Rules) -> None:
        self._network, self._rules = network, rules
        self.judge: Judge | None = None
        self.late: Late | None = None
        self.errors: dict[str, int] = {}

    @property
    def through_ns(self) -> int | None:
        """Last moment judged."""
        return self.judge.through_ns if self.judge else None

    def take_up(self, tx: Transaction, through_ns: int, state: str) -> None:
        """Goes on from where a process before this one stopped."""
        checkpoints = _checkpoints(tx, through_ns, self._rules)
        self.judge = Judge(self._network, self._rules, through_ns, State.decode(state), checkpoints)

    def note_late(self, span: Span, received_ns: int) -> None:
        """Remembers that rows of this stretch changed, if any of it has been judged."""
        if self.judge is None or span[0] >= self.judge.through_ns:
            return
        if self.late is None:
            self.late = Late(span, received_ns, received_ns)
            return
        self.late.span = union(self.late.span, span) or span
        self.late.last_received_ns = received_ns

    def advance(self, tx: Transaction, frontier_ns: int, received_ns: int) -> list[Change]:
        """Judges up to the frontier, and again what is due; writes what came of it."""
        changes: list[Change] = []
        if self.judge is None:
            first = self._network.rounds.next_start(0)
            start = frontier_ns if first is None else min(first, frontier_ns)
            self.judge = Judge(self._network, self._rules, start // BUCKET_NS * BUCKET_NS, State(), {})
        if frontier_ns >= self.judge.through_ns + BUCKET_NS:
            live, minutes = self.judge.advance(frontier_ns)
            _write_checkpoints(tx, minutes)
            write_incidents(tx, live)
            changes += live
        if self.late is not None and self.late.due(received_ns):
            span, self.late = self.late.span, None
            changes += self._again(tx, span)
        return changes

    def take_errors(self) -> dict[str, int]:
        """Rule failures so far."""
        if self.judge is not None:
            for rule, count in self.judge.errors.items():
                self.errors[rule] = self.errors.get(rule, 0) + count
            self.judge.errors.clear()
        return dict(self.errors)

    # ------------------------------------------------------------ again

    def _again(self, tx: Transaction, span: Span) -> list[Change]:
        assert self.judge is not None
        edge, live_state = self.judge.through_ns, self.judge.state()
        start = max(span[0], edge - BACK_NS) // MINUTE_NS * MINUTE_NS
        recorded = _checkpoints(tx, start, self._rules)
        before = State.decode(recorded.get(start, ""))
        self.take_errors()
        judge = Judge(self._network, self._rules, start, before, recorded)
        outcome = {incident.incident_id: Change(incident, start) for incident in before.incidents}
        met: int | None = None
        while judge.through_ns < edge and met is None:
            target = min(judge.through_ns // MINUTE_NS * MINUTE_NS + MINUTE_NS, edge)
            changes, minutes = judge.advance(target)
            for change in changes:
                outcome[change.incident.incident_id] = change
            on_record = _checkpoint(tx, target)
            _write_checkpoints(tx, {target: minutes.get(target, "")} if target % MINUTE_NS == 0 else {})
            if target % MINUTE_NS == 0 and target >= span[1] + SPAN_NS and minutes.get(target, "") == on_record:
                met = target
            self._network.rounds.forget(target - 10 * MINUTE_NS)
        if met is not None and met < edge:
            # What is open there is as on record, and the record may know how it went on.
            for incident in judge.open():
                outcome.pop(incident.incident_id, None)
            kept = {incident.incident_id for incident in judge.open()}
            self.take_errors()
            self.judge = Judge(self._network, self._rules, edge, live_state, _checkpoints(tx, edge, self._rules))
        else:
            kept = set()
            self.judge = judge
        return _revise(tx, outcome, kept, (start, met if met is not None else edge))


def _revise(tx: Transaction, outcome: Mapping[str, Change], kept: set[str], judged: Span) -> list[Change]:
    """Writes what came out differently from what is on record for the stretch, and withdraws what did not come out."""
    recorded = {
        row["incident_id"]: read_incident(row)
        for row in tx.all(
            tables.incidents,
            tables.incidents.c.rule.in_(RULES),
            tables.incidents.c.decided_time_ns > judged[0],
            tables.incidents.c.decided_time_ns <= judged[1],
        )
    }
    changes: list[Change] = []
    for incident_id, change in outcome.items():
        old = recorded.pop(incident_id, None)
        if old is None and change.decided_time_ns <= judged[0]:
            continue  # as it was before, and nothing else was ever said of it
        if change.withdrawn:
            if old is not None:
                changes.append(Change(old, change.decided_time_ns, withdrawn=True))
        elif old is None or _differs(old, change.incident):
            revision = change.incident.revision if old is None else old.revision + 1
            changes.append(replace(change, incident=replace(change.incident, revision=revision)))
    changes += [Change(old, judged[1], withdrawn=True) for key, old in recorded.items() if key not in kept]
    write_incidents(tx, changes)
    return changes


def _differs(old: Incident, new: Incident) -> bool:
    return replace(old, revision=0) != replace(new, revision=0)


def write_incidents(tx: Transaction, changes: list[Change]) -> None:
    """Writes incidents as they are after these changes."""
    last = {change.incident.incident_id: change for change in changes}
    tx.put(
        tables.incidents,
        [
            incident_values(change.incident) | {"decided_time_ns": change.decided_time_ns}
            for change in last.values()
            if not change.withdrawn
        ],
    )
    tx.remove(tables.incidents, "incident_id", [key for key, change in last.items() if change.withdrawn])


def _write_checkpoints(tx: Transaction, minutes: Mapping[int, str]) -> None:
    """A minute without anything to remember has no row."""
    tx.put(tables.checkpoints, [{"time_ns": minute, "state": text} for minute, text in minutes.items() if text])
    empty = [minute for minute, text in minutes.items() if not text]
    if empty:
        tx.connection.execute(delete(tables.checkpoints).where(tables.checkpoints.c.time_ns.in_(empty)))


def _checkpoint(tx: Transaction, minute_ns: int) -> str:
    rows = tx.all(tables.checkpoints, tables.checkpoints.c.time_ns == minute_ns)
    return str(rows[0]["state"]) if rows else ""


def _checkpoints(tx: Transaction, through_ns: int, rules: Rules) -> dict[int, str]:
    """States on record over the baseline period before a moment."""
    time = tables.checkpoints.c.time_ns
    first = through_ns - 2 * rules.delay.baseline - 10 * MINUTE_NS
    rows = tx.all(tables.checkpoints, time >= first, time <= through_ns)
    return {row["time_ns"]: row["state"] for row in rows}
