"""What paths are made of, as it is asked for: traces, MTU checks, changes, and advice for tests that stalled."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Table, select

from collector.model import EndpointRow, PathMtuView, PathRow, RouteChangeView, TraceView
from collector.store import tables
from collector.store.hops import hop_count, sides
from collector.store.rows import read_path, unsigned
from collector.store.way_rows import read_path_mtu, read_route_change, read_route_trace

MAX_ROWS = 100_000  # read for one answer; the newest of the span


def _rows(
    connection: Connection, table: Table, from_ns: int, to_ns: int
) -> Iterator[tuple[Mapping[str, Any], PathRow]]:
    paths = {row["path_id"]: row for row in connection.execute(select(tables.paths)).mappings()}
    inside = (table.c.time_ns >= from_ns, table.c.time_ns < to_ns)
    newest = select(table).where(*inside).order_by(table.c.time_ns.desc()).limit(MAX_ROWS)
    for row in reversed(connection.execute(newest).mappings().all()):
        path = paths.get(row["path_id"])
        if path is not None:
            yield dict(row), read_path(dict(path))


def target_hops(connection: Connection) -> list[tuple[PathRow, int]]:
    """Paths to targets without an agent, each with how many routers its newest replies have passed."""
    paths, known = tables.paths, tables.path_ways
    statement = select(paths, known.c.hop_limit).join(known, known.c.path_id == paths.c.path_id)
    chosen = statement.where(paths.c.target.is_not(None), known.c.hop_limit.is_not(None))
    return [(read_path(dict(row)), hop_count(row["hop_limit"])) for row in connection.execute(chosen).mappings()]


def traces(connection: Connection, from_ns: int, to_ns: int) -> list[TraceView]:
    """Traces in ``[from, to)``."""
    found = []
    for row, path in _rows(connection, tables.route_traces, from_ns, to_ns):
        trace = read_route_trace(row)
        near, edge, far = sides(trace.hops)
        found.append(
            TraceView(
                path_id=trace.path_id,
                src=path.source.node,
                dst=_destination(path),
                lane=path.source.lane,
                protocol=path.protocol,
                dst_address=_address(path),
                time_ns=trace.time_ns,
                trace_reason=trace.trace_reason,
                request=trace.request,
                reached=trace.reached,
                near_side=near,
                vendor_edge=edge,
                far_side=far,
                hops=trace.hops,
            )
        )
    return found


def path_mtus(connection: Connection, from_ns: int, to_ns: int) -> list[PathMtuView]:
    """Path MTU checks in ``[from, to)``."""
    found = []
    for row, path in _rows(connection, tables.path_mtus, from_ns, to_ns):
        check = read_path_mtu(row)
        found.append(
            PathMtuView(
                path_id=check.path_id,
                src=path.source.node,
                dst=_destination(path),
                lane=path.source.lane,
                dst_address=_address(path),
                time_ns=check.time_ns,
                mtu_bytes=check.mtu_bytes,
                interface_mtu_bytes=check.interface_mtu_bytes,
                black_hole=check.black_hole,
                trials=check.trials,
            )
        )
    return found


def route_changes(connection: Connection, from_ns: int, to_ns: int) -> list[RouteChangeView]:
    """Changes of routes in ``[from, to)``."""
    found = []
    for row, path in _rows(connection, tables.route_changes, from_ns, to_ns):
        change = read_route_change(row)
        found.append(
            RouteChangeView(
                path_id=change.path_id,
                src=path.source.node,
                dst=_destination(path),
                lane=path.source.lane,
                time_ns=change.time_ns,
                change=change.change,
                before=change.before,
                after=change.after,
            )
        )
    return found


def ways(connection: Connection) -> dict[int, Mapping[str, Any]]:
    """What is known of each path's way."""
    return {unsigned(row["path_id"]): dict(row) for row in connection.execute(select(tables.path_ways)).mappings()}


class MtuAdvice:
    """What the MTU checks say of the pairs of throughput tests."""

    def __init__(self, connection: Connection) -> None:
        known = ways(connection)
        self._by_pair: dict[tuple[str, str], Mapping[str, Any]] = {}
        for row in connection.execute(select(tables.paths)).mappings():
            path = read_path(dict(row))
            way = known.get(path.path_id)
            if path.destination is not None and way is not None and way["mtu_time_ns"] is not None:
                self._by_pair[path.source.address, path.destination.address] = way

    def of(self, client: EndpointRow, server: EndpointRow) -> str:
        """For a test that stalled as it would on a path that loses large packets."""
        said = []
        for source, destination in ((client, server), (server, client)):
            way = self._by_pair.get((source.address, destination.address))
            if way is not None:
                when = datetime.fromtimestamp(way["mtu_time_ns"] // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                hole = ", larger packets vanish" if way["black_hole"] else ""
                said.append(f"path MTU {source.node} to {destination.node}: {way['mtu_bytes']} bytes{hole} ({when})")
        if said:
            return "; ".join(said)
        return f"no path MTU check of this pair: run bandwitness-agent probe mtu {server.address} on {client.node}"


def _destination(path: PathRow) -> str:
    return path.destination.node if path.destination else path.target or ""


def _address(path: PathRow) -> str:
    return path.destination.address if path.destination else path.target_address or ""
