"""Bursts into table rows and back, and the queries over them."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, select

from collector.model import Burst, BurstEvent, ClusterBurst
from collector.store import tables
from collector.store.rows import Values, dump

_MOST = (1 << 63) - 1
_BURST = tuple(field.name for field in fields(Burst))
_TEXT = ("nodes", "members", "labels")
_CLUSTER = tuple(field.name for field in fields(ClusterBurst) if field.name not in _TEXT)


def burst_values(row: Burst) -> Values:
    return {name: _held(getattr(row, name)) for name in _BURST}


def _held(value: Any) -> Any:
    """No more than the database can hold: what agents count adds up for as long as they like."""
    return min(value, _MOST) if isinstance(value, int) else value


def read_burst(values: Mapping[str, Any]) -> Burst:
    return Burst(**{name: values[name] for name in _BURST})


def cluster_values(row: ClusterBurst) -> Values:
    return {name: _held(getattr(row, name)) for name in _CLUSTER} | {
        "nodes": dump(list(row.nodes)),
        "members": dump(list(row.members)),
        "labels": dump(dict(row.labels)),
    }


def read_cluster(values: Mapping[str, Any]) -> ClusterBurst:
    return ClusterBurst(
        **{name: values[name] for name in _CLUSTER},
        nodes=tuple(json.loads(values["nodes"])),
        members=tuple(json.loads(values["members"])),
        labels=json.loads(values["labels"]),
    )


def clusters_between(
    connection: Connection, from_ns: int, to_ns: int, *, active_only: bool = False
) -> list[ClusterBurst]:
    """Cluster bursts that were on at some time in ``[from, to)``, oldest first."""
    return [read_cluster(row) for row in _rows(connection, tables.cluster_bursts, (from_ns, to_ns), active_only)]


def bursts_between(connection: Connection, from_ns: int, to_ns: int, *, active_only: bool = False) -> list[Burst]:
    """Bursts of single NICs that were on at some time in ``[from, to)``, oldest first."""
    return [read_burst(row) for row in _rows(connection, tables.bursts, (from_ns, to_ns), active_only)]


def events_between(connection: Connection, from_ns: int, to_ns: int, *, active_only: bool = False) -> list[BurstEvent]:
    """Cluster bursts with their members, and bursts of single nodes; those on at some time in ``[from, to)``."""
    clusters = clusters_between(connection, from_ns, to_ns, active_only=active_only)
    members = bursts_of(connection, clusters)
    found = [BurstEvent(cluster, [members[key] for key in cluster.members if key in members]) for cluster in clusters]
    single = bursts_between(connection, from_ns, to_ns, active_only=active_only)
    return [*found, *(_alone(burst) for burst in single if not burst.cluster_id)]


def _alone(burst: Burst) -> BurstEvent:
    ended = burst.end_time_ns is not None
    shown = ClusterBurst(
        burst_id=burst.burst_id,
        scope="node",
        name=burst.node,
        site="",
        lane=burst.lane,
        kind=burst.kind,
        start_time_ns=burst.start_time_ns,
        end_time_ns=burst.end_time_ns,
        opened_time_ns=burst.opened_time_ns,
        last_time_ns=burst.last_time_ns,
        error_ns=burst.error_ns,
        start_spread_ns=0,
        end_spread_ns=0 if ended else None,
        bytes=burst.bytes,
        achieved_bps=burst.mean_bps,
        nodes=(burst.node,),
        members=(burst.burst_id,),
        slowest_node=burst.node,
        slowest_bps=burst.mean_bps,
        marked=False,
    )
    return BurstEvent(shown, [burst])


def bursts_of(connection: Connection, clusters: list[ClusterBurst]) -> dict[str, Burst]:
    """Members of cluster bursts, by id."""
    found: dict[str, Burst] = {}
    ids = sorted({member for cluster in clusters for member in cluster.members})
    table = tables.bursts
    for first in range(0, len(ids), 500):
        statement = select(table).where(table.c.burst_id.in_(ids[first : first + 500]))
        for row in connection.execute(statement).mappings():
            found[row["burst_id"]] = read_burst(dict(row))
    return found


def _rows(connection: Connection, table: Table, span: tuple[int, int], active_only: bool) -> list[dict[str, Any]]:
    ended = table.c.end_time_ns
    where: list[ColumnElement[bool]] = [table.c.start_time_ns < span[1], ended.is_(None) | (ended >= span[0])]
    if active_only:
        where.append(ended.is_(None))
    statement = select(table).where(*where).order_by(table.c.start_time_ns, table.c.burst_id)
    return [dict(row) for row in connection.execute(statement).mappings()]
