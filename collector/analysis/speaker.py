"""Alerts: what was said, and when. A history of its own, append-only; verdicts may be revised, alerts are not."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import func, select

from collector.analysis.incidents import Change
from collector.analysis.window import SECOND
from collector.model import Alert, Incident
from collector.store import tables
from collector.store.rows import alert_values, read_alert, read_incident
from collector.store.writer import Transaction

CAUGHT_UP_NS = 60 * SECOND  # while the log is being read again, nothing new is being said


@dataclass(frozen=True, slots=True)
class _Said:
    status: str
    severity: str


class Speaker:
    """Says what is new about incidents once, also if the log is read again."""

    def __init__(self) -> None:
        self._unsaid: dict[str, Change] = {}

    def take_up(self, tx: Transaction) -> None:
        """Finds what a process before this one may not have come to say."""
        table, incidents = tables.alerts, tables.incidents
        newest = select(func.max(table.c.id)).group_by(table.c.incident_id)
        pending = tx.all(table, table.c.id.in_(newest), table.c.status.in_(("raised", "changed")))
        for row in pending:
            known = tx.all(incidents, incidents.c.incident_id == row["incident_id"])
            incident = read_incident(known[0]) if known else _as_said(read_alert(row))
            self._unsaid[incident.incident_id] = Change(incident, incident.updated_time_ns, withdrawn=not known)
        for row in tx.all(incidents, incidents.c.closed_time_ns.is_(None)):
            incident = read_incident(row)
            self._unsaid[incident.incident_id] = Change(incident, incident.updated_time_ns)

    def note(self, changes: Iterable[Change]) -> None:
        """Remembers what there will be to say."""
        for change in changes:
            self._unsaid[change.incident.incident_id] = change

    def say(self, tx: Transaction, received_ns: int, now_ns: int) -> list[Alert]:
        """Writes down what is new, unless analysis is still far behind ``now_ns``. The caller does not ask either while
        there are many entries to come: what was said before may yet come out again."""
        if now_ns - received_ns > CAUGHT_UP_NS or not self._unsaid:
            return []
        alerts = []
        for change in self._unsaid.values():
            status = _status(change, _last_said(tx, change.incident.incident_id))
            if status:
                alerts.append(_alert(change.incident, status, now_ns))
        self._unsaid.clear()
        tx.add(tables.alerts, [alert_values(alert) for alert in alerts])
        return alerts


def _last_said(tx: Transaction, incident_id: str) -> _Said | None:
    table = tables.alerts
    newest = select(table).where(table.c.incident_id == incident_id).order_by(table.c.id.desc()).limit(1)
    row = tx.connection.execute(newest).mappings().first()
    return _Said(row["status"], row["severity"]) if row is not None else None


def _status(change: Change, said: _Said | None) -> str:
    """What there is to say; empty if that has been said."""
    if change.withdrawn:
        return "withdrawn" if said is not None and said.status != "withdrawn" else ""
    if change.incident.closed_time_ns is not None:
        return "cleared" if said is None or said.status != "cleared" else ""
    if said is None or said.status in ("cleared", "withdrawn"):
        return "raised"
    return "changed" if said.severity != change.incident.severity else ""


def _alert(incident: Incident, status: str, now_ns: int) -> Alert:
    return Alert(
        said_time_ns=now_ns,
        incident_id=incident.incident_id,
        status=status,
        rule=incident.rule,
        element=incident.element,
        severity=incident.severity,
        opened_time_ns=incident.opened_time_ns,
        summary=incident.summary,
    )


def _as_said(alert: Alert) -> Incident:
    """What is left of an incident that is not on record any more."""
    return Incident(
        incident_id=alert.incident_id,
        rule=alert.rule,
        rule_version=0,
        element=alert.element,
        severity=alert.severity,
        opened_time_ns=alert.opened_time_ns,
        closed_time_ns=None,
        updated_time_ns=alert.opened_time_ns,
        summary=alert.summary,
        values={},
    )
