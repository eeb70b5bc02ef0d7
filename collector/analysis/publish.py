"""The parts as one immutable picture."""

from collections.abc import Mapping
from dataclasses import replace

from collector.analysis import carriers
from collector.analysis.fold import Parts
from collector.analysis.snapshot import Snapshot
from collector.model import Incident, PathStatus, Swing
from collector.store.nodes import node_rows
from collector.store.status import swing_status, throughput_status


def snapshot(parts: Parts, *, made_time_ns: int, lag_ns: int, lag_entries: int, step_errors: int) -> Snapshot:
    """Everything hot, as it is between two steps."""
    counts, verdicts = parts.counts, parts.verdicts
    errors = dict(counts.errors)
    for rule, number in verdicts.take_errors().items():
        errors[rule] = errors.get(rule, 0) + number
    return Snapshot(
        made_time_ns=made_time_ns,
        through_time_ns=verdicts.through_ns,
        position=parts.position.position,
        lag_ns=lag_ns,
        lag_entries=lag_entries,
        nodes=node_rows(parts.config, {agent.name: agent.values() for agent in parts.agents.all()}),
        paths=_paths(parts),
        totals=parts.totals.by_path(),
        delays=parts.totals.delays(),
        carriers=carriers.newest(parts.network, verdicts.through_ns) if verdicts.through_ns is not None else (),
        swings=parts.swings.all(),
        hours=parts.swings.hours(),
        attempts=dict(parts.attempts.counts),
        corrections=dict(parts.attempts.corrections),
        incidents=_incidents(parts),
        nics=parts.nics.statuses(),
        open_bursts=parts.bursts.calendar.open_bursts(),
        open_clusters=parts.bursts.calendar.open_clusters(),
        forecasts=parts.bursts.forecasts(parts.position.received_ns),
        burst_counts=dict(parts.bursts.totals.bursts),
        burst_bytes=dict(parts.bursts.totals.octets),
        cluster_burst_counts=dict(parts.bursts.totals.clusters),
        burst_score=parts.bursts.score(parts.position.received_ns),
        burst_steps_waited_out=parts.bursts.waited_out,
        batches=dict(counts.batches),
        quarantined=dict(counts.quarantined),
        unreadable_records=counts.unreadable,
        rule_errors=errors,
        step_errors=step_errors,
    )


def _incidents(parts: Parts) -> list[Incident]:
    judged = parts.verdicts.judge.open() if parts.verdicts.judge is not None else []
    return sorted([*judged, *parts.book.open()], key=lambda incident: (incident.opened_time_ns, incident.incident_id))


def _paths(parts: Parts) -> Mapping[int, PathStatus]:
    found = parts.totals.statuses()
    newest: dict[int, tuple[int, Swing]] = {}
    for swing in parts.swings.all():
        if swing.through_time_ns >= newest.get(swing.path_id, (0, swing))[0]:
            newest[swing.path_id] = (swing.through_time_ns, swing)
    for path in parts.swings.paths():
        known = newest.get(path.path_id)
        last = parts.swings.newest((path.path_id, known[1].engine_version)) if known else None
        figures = swing_status(known[1] if known else None, last.bps if last else None, last.time_ns if last else None)
        found[path.path_id] = throughput_status(path, figures)
    for path_id, status in found.items():
        way = parts.ways.get(path_id)
        if way is not None:
            found[path_id] = replace(status, hop_count=way.hop_count, path_mtu_bytes=way.mtu_bytes)
    return found
