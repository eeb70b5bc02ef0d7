"""Rows of what paths are made of, into table rows and back. Pure."""

import json
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from collector.model import HopRow, MtuTrialRow, PathMtuRow, RouteChange, RouteTraceRow
from collector.store.rows import Values, dump, read_source, signed, source_values, unsigned


def route_trace_values(row: RouteTraceRow) -> Values:
    return {
        "position": row.source.position,
        "record_index": row.source.record_index,
        "source": dump(source_values(row.source)),
        "path_id": signed(row.path_id),
        "time_ns": row.time_ns,
        "trace_reason": row.trace_reason,
        "request": row.request,
        "reached": row.reached,
        "hops": dump([astuple(hop) for hop in row.hops]),
    }


def read_route_trace(values: Mapping[str, Any]) -> RouteTraceRow:
    return RouteTraceRow(
        source=read_source(json.loads(values["source"])),
        path_id=unsigned(values["path_id"]),
        time_ns=values["time_ns"],
        trace_reason=values["trace_reason"],
        request=values["request"],
        reached=values["reached"],
        hops=tuple(HopRow(*hop) for hop in json.loads(values["hops"])),
    )


def path_mtu_values(row: PathMtuRow) -> Values:
    return {
        "position": row.source.position,
        "record_index": row.source.record_index,
        "source": dump(source_values(row.source)),
        "path_id": signed(row.path_id),
        "time_ns": row.time_ns,
        "mtu_bytes": row.mtu_bytes,
        "interface_mtu_bytes": row.interface_mtu_bytes,
        "black_hole": row.black_hole,
        "trials": dump([astuple(trial) for trial in row.trials]),
    }


def read_path_mtu(values: Mapping[str, Any]) -> PathMtuRow:
    return PathMtuRow(
        source=read_source(json.loads(values["source"])),
        path_id=unsigned(values["path_id"]),
        time_ns=values["time_ns"],
        mtu_bytes=values["mtu_bytes"],
        interface_mtu_bytes=values["interface_mtu_bytes"],
        black_hole=values["black_hole"],
        trials=tuple(MtuTrialRow(*trial) for trial in json.loads(values["trials"])),
    )


def route_change_values(row: RouteChange) -> Values:
    return {
        "path_id": signed(row.path_id),
        "time_ns": row.time_ns,
        "change": row.change,
        "before": row.before,
        "after": row.after,
    }


def read_route_change(values: Mapping[str, Any]) -> RouteChange:
    return RouteChange(
        unsigned(values["path_id"]), values["time_ns"], values["change"], values["before"], values["after"]
    )
