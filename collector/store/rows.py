"""Model rows into table rows and back. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from collector.model import (
    Alert,
    Element,
    EndpointRow,
    GapRow,
    Incident,
    MarkRow,
    OneWayLossRow,
    OneWayWindow,
    PathRow,
    Quarantined,
    RoundTripWindow,
    RunRow,
    SlotRow,
    Source,
    StoredWindow,
    Swing,
    TreeHeadRow,
)

Values = dict[str, Any]
_ONE_WAY_FIELDS = tuple(field.name for field in fields(OneWayWindow))
_WINDOW_FIELDS = tuple(field.name for field in fields(RoundTripWindow))


def signed(value: int) -> int:
    """A 64-bit id as SQL keeps it."""
    return value - (1 << 64) if value >= 1 << 63 else value


def unsigned(value: int) -> int:
    """The id again."""
    return value + (1 << 64) if value < 0 else value


def dump(value: Any) -> str:
    """JSON in one form only, so that equal values are equal text."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def _endpoint(endpoint: EndpointRow) -> str:
    return dump([endpoint.node, endpoint.nic, endpoint.address, endpoint.lane])


def _read_endpoint(text: str) -> EndpointRow:
    return EndpointRow(*json.loads(text))


def source_values(source: Source) -> list[Any]:
    """A source as a JSON list."""
    return [
        source.agent_id, source.chain_id.hex(), source.batch_class, source.seq, source.record_index, source.position
    ]  # fmt: skip


def read_source(values: Sequence[Any]) -> Source:
    """The source again."""
    return Source(values[0], bytes.fromhex(values[1]), *values[2:])


def path_values(row: PathRow) -> Values:
    return {
        "path_id": signed(row.path_id),
        "source": _endpoint(row.source),
        "destination": _endpoint(row.destination) if row.destination else None,
        "target": row.target,
        "target_address": row.target_address,
        "protocol": row.protocol,
        "ip_version": row.ip_version,
        "payload_bytes": row.payload_bytes,
        "dscp": row.dscp,
        "profile_id": None if row.profile_id is None else signed(row.profile_id),
        "definition": row.definition,
        "source_port": row.source_port,
        "destination_port": row.destination_port,
    }


def read_path(values: Mapping[str, Any]) -> PathRow:
    return PathRow(
        path_id=unsigned(values["path_id"]),
        source=_read_endpoint(values["source"]),
        destination=_read_endpoint(values["destination"]) if values["destination"] else None,
        target=values["target"],
        target_address=values["target_address"],
        protocol=values["protocol"],
        ip_version=values["ip_version"],
        payload_bytes=values["payload_bytes"],
        dscp=values["dscp"],
        profile_id=None if values["profile_id"] is None else unsigned(values["profile_id"]),
        definition=values["definition"],
        source_port=values["source_port"],
        destination_port=values["destination_port"],
    )


def slot_values(row: SlotRow) -> Values:
    """Only what was planned; the columns of analysis are the caller's."""
    return {
        "slot_id": row.slot_id,
        "group_id": row.group_id,
        "purpose": row.purpose,
        "window": row.window,
        "day": row.day,
        "start_time_ns": row.start_time_ns,
        "end_time_ns": row.end_time_ns,
        "margin_ns": row.margin_ns,
        "client": _endpoint(row.client),
        "server": _endpoint(row.server),
        "port": row.port,
        "reverse": row.reverse,
        "path_id": signed(row.path_id),
        "profile_id": signed(row.profile_id),
        "tokens": dump(list(row.tokens)),
        "reason": row.reason,
    }


def read_slot(values: Mapping[str, Any]) -> SlotRow:
    return SlotRow(
        slot_id=values["slot_id"],
        group_id=values["group_id"],
        purpose=values["purpose"],
        window=values["window"],
        day=values["day"],
        start_time_ns=values["start_time_ns"],
        end_time_ns=values["end_time_ns"],
        margin_ns=values["margin_ns"],
        client=_read_endpoint(values["client"]),
        server=_read_endpoint(values["server"]),
        port=values["port"],
        reverse=values["reverse"],
        path_id=unsigned(values["path_id"]),
        profile_id=unsigned(values["profile_id"]),
        tokens=tuple(json.loads(values["tokens"])),
        reason=values["reason"],
    )


_RUN_PLAIN = (
    "slot_id", "role", "outcome", "outcome_detail", "start_time_ns", "end_time_ns", "engine_version", "throughput_bps",
    "sender_bytes", "receiver_bytes", "receiver_duration_ns", "receiver_derived", "retransmits",
)  # fmt: skip


def run_values(row: RunRow) -> Values:
    return {name: getattr(row, name) for name in _RUN_PLAIN} | {
        "agent_id": row.source.agent_id,
        "source": dump(source_values(row.source)),
        "path_id": signed(row.path_id),
        "profile_id": signed(row.profile_id),
        "gates_tripped": dump(list(row.gates_tripped)),
        "flags": dump(list(row.flags)),
    }


def read_run(values: Mapping[str, Any]) -> RunRow:
    return RunRow(
        **{name: values[name] for name in _RUN_PLAIN},
        source=read_source(json.loads(values["source"])),
        path_id=unsigned(values["path_id"]),
        profile_id=unsigned(values["profile_id"]),
        gates_tripped=tuple(json.loads(values["gates_tripped"])),
        flags=tuple(json.loads(values["flags"])),
    )


def window_values(stored: StoredWindow) -> Values:
    values = {name: getattr(stored.row, name) for name in _WINDOW_FIELDS}
    values["path_id"] = signed(stored.row.path_id)
    return values | {"buckets": stored.buckets, "histogram": stored.histogram}


def read_window(values: Mapping[str, Any]) -> StoredWindow:
    columns = {name: values[name] for name in _WINDOW_FIELDS}
    columns["path_id"] = unsigned(columns["path_id"])
    return StoredWindow(RoundTripWindow(**columns), values["buckets"], values["histogram"])


def one_way_loss_values(row: OneWayLossRow) -> Values:
    return {
        "position": row.source.position,
        "record_index": row.source.record_index,
        "entry": row.entry,
        "path_id": signed(row.path_id),
        "direction": row.direction,
        "first_sequence": row.first_sequence,
        "last_sequence": row.last_sequence,
        "lost": row.lost,
        "send_time_ns": row.send_time_ns,
    }


def one_way_window_values(row: OneWayWindow) -> Values:
    return {name: getattr(row, name) for name in _ONE_WAY_FIELDS} | {"path_id": signed(row.path_id)}


def read_one_way_window(values: Mapping[str, Any]) -> OneWayWindow:
    columns = {name: values[name] for name in _ONE_WAY_FIELDS}
    return OneWayWindow(**columns | {"path_id": unsigned(columns["path_id"])})


def swing_values(row: Swing) -> Values:
    return {
        "path_id": signed(row.path_id),
        "engine_version": row.engine_version,
        "peak_bps": row.peak_bps,
        "offpeak_bps": row.offpeak_bps,
        "tests_peak": row.tests_peak,
        "tests_offpeak": row.tests_offpeak,
        "swing_ratio": row.swing_ratio,
        "flagged": row.flagged,
        "through_time_ns": row.through_time_ns,
        "evidence": dump([source_values(source) for source in row.evidence]),
    }


def read_swing(values: Mapping[str, Any]) -> Swing:
    return Swing(
        path_id=unsigned(values["path_id"]),
        engine_version=values["engine_version"],
        peak_bps=values["peak_bps"],
        offpeak_bps=values["offpeak_bps"],
        tests_peak=values["tests_peak"],
        tests_offpeak=values["tests_offpeak"],
        swing_ratio=values["swing_ratio"],
        flagged=values["flagged"],
        through_time_ns=values["through_time_ns"],
        evidence=tuple(read_source(source) for source in json.loads(values["evidence"])),
    )


_INCIDENT_PLAIN = (
    "incident_id", "rule", "rule_version", "severity", "opened_time_ns", "closed_time_ns", "updated_time_ns", "summary",
    "revision",
)  # fmt: skip


def incident_values(row: Incident) -> Values:
    return {name: getattr(row, name) for name in _INCIDENT_PLAIN} | {
        "element_kind": row.element.kind,
        "element_name": row.element.name,
        "figures": dump(dict(row.values)),
        "children": dump(list(row.children)),
        "evidence": dump([source_values(source) for source in row.evidence]),
    }


def read_incident(values: Mapping[str, Any]) -> Incident:
    return Incident(
        **{name: values[name] for name in _INCIDENT_PLAIN},
        element=Element(values["element_kind"], values["element_name"]),
        values=json.loads(values["figures"]),
        children=tuple(json.loads(values["children"])),
        evidence=tuple(read_source(source) for source in json.loads(values["evidence"])),
    )


def alert_values(row: Alert) -> Values:
    return {
        "said_time_ns": row.said_time_ns,
        "incident_id": row.incident_id,
        "status": row.status,
        "rule": row.rule,
        "element_kind": row.element.kind,
        "element_name": row.element.name,
        "severity": row.severity,
        "opened_time_ns": row.opened_time_ns,
        "summary": row.summary,
    }


def read_alert(values: Mapping[str, Any]) -> Alert:
    return Alert(
        said_time_ns=values["said_time_ns"],
        incident_id=values["incident_id"],
        status=values["status"],
        rule=values["rule"],
        element=Element(values["element_kind"], values["element_name"]),
        severity=values["severity"],
        opened_time_ns=values["opened_time_ns"],
        summary=values["summary"],
    )


def gap_values(row: GapRow) -> Values:
    return {
        "position": row.source.position,
        "record_index": row.source.record_index,
        "source": dump(source_values(row.source)),
        "reason": row.reason,
        "batch_class": row.batch_class,
        "from_time_ns": row.from_time_ns,
        "to_time_ns": row.to_time_ns,
        "records": row.records,
        "detail": row.detail,
    }


_MARK_PLAIN = (
    "node", "time_ns", "said_time_ns", "phase", "kind", "job", "step", "bytes", "rank", "user_id", "process_id"
)  # fmt: skip


def mark_values(row: MarkRow) -> Values:
    return {name: getattr(row, name) for name in _MARK_PLAIN} | {
        "position": row.source.position,
        "record_index": row.source.record_index,
        "source": dump(source_values(row.source)),
        "labels": dump(dict(row.labels)),
    }


def read_mark(values: Mapping[str, Any]) -> MarkRow:
    return MarkRow(
        **{name: values[name] for name in _MARK_PLAIN},
        source=read_source(json.loads(values["source"])),
        labels=json.loads(values["labels"]),
    )


def read_gap(values: Mapping[str, Any]) -> GapRow:
    source = read_source(json.loads(values["source"]))
    plain = ("reason", "batch_class", "from_time_ns", "to_time_ns", "records", "detail")
    return GapRow(source, **{name: values[name] for name in plain}, node=source.agent_id)


def tree_head_values(row: TreeHeadRow) -> Values:
    """A row of ``tree_heads``."""
    return {
        "position": row.source.position,
        "source": dump(source_values(row.source)),
        "day": row.day,
        "tree_size": row.tree_size,
        "root": row.root,
        "last_position": row.last_position,
        "signed_time_ns": row.signed_time_ns,
    }


def read_tree_head(row: Mapping[str, Any]) -> TreeHeadRow:
    """What ``tree_head_values`` made."""
    return TreeHeadRow(
        read_source(json.loads(row["source"])),
        row["day"],
        row["tree_size"],
        row["root"],
        row["last_position"],
        row["signed_time_ns"],
    )


def quarantine_values(row: Quarantined) -> Values:
    return {
        "position": row.source.position,
        "record_index": row.source.record_index,
        "source": dump(source_values(row.source)),
        "reason": row.reason,
        "detail": row.detail,
    }
