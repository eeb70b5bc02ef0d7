"""What the store answers: read-only, on connections of its own, safe from any thread."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Select, select, tuple_

from bandwitness.v1.record_pb2 import (
    PROTOCOL_TCP_THROUGHPUT,
    PROTOCOL_UDP_THROUGHPUT,
    RUN_OUTCOME_STALLED_SUSPECT_MTU,
    RUN_ROLE_CLIENT,
    RUN_ROLE_SERVER,
)
from collector.config import Config
from collector.model import (
    AccountingRow,
    Alert,
    Attempt,
    Burst,
    BurstEvent,
    ClusterBurst,
    GapRow,
    Incident,
    LaneBurst,
    MarkRow,
    NodeRow,
    PairLoss,
    PathMtuView,
    PathRow,
    PathStatus,
    PauseView,
    RoundTripWindow,
    RouteChangeView,
    RunRow,
    StoredWindow,
    Swing,
    TraceView,
    TreeHeadRow,
)
from collector.store import bursts, evidence, tables, ways
from collector.store.counting import count_slots
from collector.store.database import open_reader
from collector.store.hops import hop_count
from collector.store.lanes import lane_bursts
from collector.store.newest import newest_windows
from collector.store.nodes import node_rows
from collector.store.pairs import PatternOf, pair_losses
from collector.store.pauses import pauses_between
from collector.store.rows import (
    read_alert,
    read_gap,
    read_incident,
    read_mark,
    read_path,
    read_run,
    read_slot,
    read_swing,
    read_tree_head,
    read_window,
    signed,
    unsigned,
)
from collector.store.status import round_trip_status, swing_status, throughput_status

_THROUGHPUT = (PROTOCOL_TCP_THROUGHPUT, PROTOCOL_UDP_THROUGHPUT)


class Reader:
    """Queries. Answers come from one transaction each, so they are consistent in themselves."""

    def __init__(self, path: Path, config: Config) -> None:
        """``path`` is a file that ``Store`` made."""
        self._engine = open_reader(path)
        self._config = config

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def nodes(self) -> list[NodeRow]:
        """Configured nodes and what is known of their agents."""
        known = {row["name"]: row for row in self._rows(select(tables.agents))}
        return node_rows(self._config, known)

    def paths(self) -> list[PathStatus]:
        """Every path that was ever defined, with its newest figures."""
        with self._engine.begin() as connection:
            swings = _newest_swings(dict(row) for row in connection.execute(select(tables.swings)).mappings())
            windows = {stored.row.path_id: stored.row for stored in newest_windows(connection)}
            paths = [read_path(dict(row)) for row in connection.execute(select(tables.paths)).mappings()]
            known = ways.ways(connection)
        return [
            throughput_status(path, swing_status(*swings.get(path.path_id, (None, None, None))))
            if path.protocol in _THROUGHPUT
            else _with_way(round_trip_status(path, windows.get(path.path_id)), known.get(path.path_id))
            for path in paths
        ]

    def definitions(self, src: str, dst: str) -> list[tuple[PathStatus, bytes]]:
        """Round-trip paths from one node to a node or target, newest first, each with its serialised Path."""
        table = tables.paths
        found = [read_path(row) for row in self._rows(select(table).order_by(table.c.position.desc()))]
        return [
            (status, path.definition)
            for path in found
            if path.protocol not in _THROUGHPUT
            and path.source.node == src
            and (status := round_trip_status(path, None)).dst == dst
        ]

    def definitions_of(self, path_ids: Iterable[int]) -> dict[int, bytes]:
        """Serialised Paths by id, of those that are known."""
        table = tables.paths
        wanted = table.c.path_id.in_([signed(path_id) for path_id in path_ids])
        return {unsigned(row["path_id"]): row["definition"] for row in self._rows(select(table).where(wanted))}

    def traces(self, from_ns: int, to_ns: int) -> list[TraceView]:
        """Traces that began in ``[from, to)``, oldest first."""
        with self._engine.begin() as connection:
            return ways.traces(connection, from_ns, to_ns)

    def path_mtus(self, from_ns: int, to_ns: int) -> list[PathMtuView]:
        """Path MTU checks that began in ``[from, to)``, oldest first."""
        with self._engine.begin() as connection:
            return ways.path_mtus(connection, from_ns, to_ns)

    def route_changes(self, from_ns: int, to_ns: int) -> list[RouteChangeView]:
        """Paths that became others in ``[from, to)``, oldest first."""
        with self._engine.begin() as connection:
            return ways.route_changes(connection, from_ns, to_ns)

    def pairs(self, from_ns: int, to_ns: int, pattern_of: PatternOf) -> list[PairLoss]:
        """STAMP of all pairs in ``[from, to)``: loss by direction and by source port, one-way delays.

        ``pattern_of`` is the rule that names which ports of a pair lose.
        """
        with self._engine.begin() as connection:
            return pair_losses(connection, from_ns, to_ns, pattern_of)

    def incidents(self, from_ns: int, to_ns: int, active_only: bool = False) -> list[Incident]:
        """Incidents that were open at some time in ``[from, to)``, oldest first."""
        table = tables.incidents
        closed = table.c.closed_time_ns
        where: list[ColumnElement[bool]] = [table.c.opened_time_ns < to_ns, closed.is_(None) | (closed >= from_ns)]
        if active_only:
            where.append(closed.is_(None))
        statement = select(table).where(*where).order_by(table.c.opened_time_ns, table.c.incident_id)
        return [read_incident(row) for row in self._rows(statement)]

    def incident(self, incident_id: str) -> Incident | None:
        """One incident by its id."""
        found = self._rows(select(tables.incidents).where(tables.incidents.c.incident_id == incident_id))
        return read_incident(found[0]) if found else None

    def sources_of(self, path_ids: Iterable[int]) -> list[str]:
        """Nodes that measure these paths."""
        with self._engine.begin() as connection:
            return evidence.sources_of(connection, path_ids)

    def left_out(self, path_ids: Iterable[int], from_ns: int, to_ns: int, *, of_delay: bool) -> set[tuple[int, int]]:
        """Path id and start of windows in ``[from, to)`` that verdicts on loss, or on delay, leave out."""
        with self._engine.begin() as connection:
            return evidence.left_out(connection, path_ids, from_ns, to_ns, of_delay=of_delay)

    def target_windows(self, from_ns: int, to_ns: int) -> Iterator[tuple[PathRow, StoredWindow]]:
        """Windows that start in ``[from, to)`` of all paths to targets without an agent, path by path."""
        windows, paths = tables.round_trip_windows, tables.paths
        start = windows.c.start_time_ns
        with self._engine.begin() as connection:
            known = connection.execute(select(paths).where(paths.c.target.is_not(None))).mappings().all()
            for path in known:
                of_path = select(windows).where(windows.c.path_id == path["path_id"], start >= from_ns, start < to_ns)
                for row in connection.execute(of_path).mappings():
                    yield read_path(dict(path)), read_window(dict(row))

    def target_hops(self) -> list[tuple[PathRow, int]]:
        """Paths to targets without an agent with the number of routers that replies pass, where it is known."""
        with self._engine.begin() as connection:
            return ways.target_hops(connection)

    def gaps(self, from_ns: int, to_ns: int) -> list[GapRow]:
        """Gaps that touch ``[from, to)``, oldest first."""
        table = tables.gaps
        statement = (
            select(table)
            .where(table.c.from_time_ns < to_ns, table.c.to_time_ns >= from_ns)
            .order_by(table.c.from_time_ns, table.c.position, table.c.record_index)
        )
        return [read_gap(row) for row in self._rows(statement)]

    def pauses(self, from_ns: int, to_ns: int) -> list[PauseView]:
        """Pauses of throughput tests that were in force at some time in ``[from, to)``."""
        with self._engine.connect() as connection:
            return pauses_between(connection, from_ns, to_ns)

    def shared_tests(self, from_ns: int, to_ns: int) -> list[bytes]:
        """Serialised SharedTests ordered, or called off, in ``[from, to)``, in order."""
        table = tables.shared_tests
        inside = (table.c.ordered_time_ns >= from_ns, table.c.ordered_time_ns < to_ns)
        rows = self._rows(select(table).where(*inside).order_by(table.c.position, table.c.record_index))
        return [row["definition"] for row in rows]

    def tree_heads(self) -> list[TreeHeadRow]:
        """Daily heads over the log, oldest first."""
        table = tables.tree_heads
        return [read_tree_head(row) for row in self._rows(select(table).order_by(table.c.position))]

    def marks(
        self, from_ns: int, to_ns: int, after: tuple[int, int, int] = (0, 0, -1), limit: int | None = None
    ) -> list[MarkRow]:
        """What trainers said in ``[from, to)``, oldest first: the first ``limit`` behind ``after`` (time, position,
        record index). Anybody on a host can say much, so not all of it is read for a page."""
        table = tables.marks
        order = (table.c.time_ns, table.c.position, table.c.record_index)
        inside = (table.c.time_ns >= max(from_ns, after[0]), table.c.time_ns < to_ns, tuple_(*order) > after)
        return [read_mark(row) for row in self._rows(select(table).where(*inside).order_by(*order).limit(limit))]

    def cluster_bursts(self, from_ns: int, to_ns: int, active_only: bool = False) -> list[ClusterBurst]:
        """Cluster bursts that were on at some time in ``[from, to)``, oldest first."""
        with self._engine.begin() as connection:
            return bursts.clusters_between(connection, from_ns, to_ns, active_only=active_only)

    def bursts(self, from_ns: int, to_ns: int, active_only: bool = False) -> list[Burst]:
        """Bursts of single NICs that were on at some time in ``[from, to)``, oldest first."""
        with self._engine.begin() as connection:
            return bursts.bursts_between(connection, from_ns, to_ns, active_only=active_only)

    def burst_events(self, from_ns: int, to_ns: int, active_only: bool = False) -> list[BurstEvent]:
        """Cluster bursts and bursts of single nodes that were on at some time in ``[from, to)``."""
        with self._engine.begin() as connection:
            return bursts.events_between(connection, from_ns, to_ns, active_only=active_only)

    def lane_bursts(self, from_ns: int, to_ns: int) -> list[LaneBurst]:
        """Bursts that were on at some time in ``[from, to)`` and have ended, and which lanes they hurt."""
        with self._engine.begin() as connection:
            return lane_bursts(connection, self._config, from_ns, to_ns)

    @property
    def lanes(self) -> list[tuple[str, str]]:
        """Site and lane of all that is configured."""
        return sorted({(node.site, endpoint.lane) for node in self._config.nodes for endpoint in node.endpoints})

    def profiles(self, profile_ids: Iterable[int]) -> dict[int, bytes]:
        """Serialised Profiles by id."""
        table = tables.profiles
        wanted = [signed(profile_id) for profile_id in profile_ids]
        rows = self._rows(select(table).where(table.c.profile_id.in_(wanted)))
        return {unsigned(row["profile_id"]): row["definition"] for row in rows}

    def counter_sets(self) -> list[bytes]:
        """Definitions of all counter sets."""
        return [row["definition"] for row in self._rows(select(tables.counter_sets))]

    def alerts(self, from_ns: int, to_ns: int) -> list[Alert]:
        """What was said in ``[from, to)`` by the collector's clock, in that order."""
        table = tables.alerts
        said = table.c.said_time_ns
        statement = select(table).where(said >= from_ns, said < to_ns).order_by(table.c.id)
        return [read_alert(row) for row in self._rows(statement)]

    def timetable(self, from_ns: int, to_ns: int) -> list[Attempt]:
        """Slots that start in ``[from, to)``, with how each ended."""
        slots, runs = tables.slots, tables.runs
        inside = (slots.c.start_time_ns >= from_ns, slots.c.start_time_ns < to_ns)
        with self._engine.begin() as connection:
            planned = connection.execute(select(slots).where(*inside).order_by(slots.c.start_time_ns)).mappings().all()
            recorded = connection.execute(
                select(runs).join(slots, slots.c.slot_id == runs.c.slot_id).where(*inside)
            ).mappings()
            by_slot: dict[tuple[bytes, int, str], RunRow] = {}
            for row in recorded:
                by_slot[row["slot_id"], row["role"], row["agent_id"]] = read_run(dict(row))
            stalled = any(row["outcome"] == RUN_OUTCOME_STALLED_SUSPECT_MTU for row in planned)
            advice = ways.MtuAdvice(connection) if stalled else None
        return [
            Attempt(
                slot=slot,
                category=row["category"],
                outcome=row["outcome"],
                client_run=by_slot.get((slot.slot_id, RUN_ROLE_CLIENT, slot.client.node)),
                server_run=by_slot.get((slot.slot_id, RUN_ROLE_SERVER, slot.server.node)),
                disagreement=row["disagreement"],
                valid=row["valid"],
                advice=advice.of(slot.client, slot.server)
                if advice is not None and row["outcome"] == RUN_OUTCOME_STALLED_SUSPECT_MTU
                else "",
            )
            for row, slot in ((row, read_slot(dict(row))) for row in planned)
        ]

    def accounting(self, from_ns: int, to_ns: int) -> list[AccountingRow]:
        """Slots that start in ``[from, to)``, counted by pair (in the direction of the data), lane and window."""
        with self._engine.begin() as connection:
            return count_slots(connection, from_ns, to_ns)

    def swings(self) -> list[Swing]:
        """Swings of all throughput paths, by path and engine class."""
        table = tables.swings
        return [read_swing(row) for row in self._rows(select(table).order_by(table.c.path_id, table.c.engine_version))]

    def round_trips(self, path_id: int, from_ns: int, to_ns: int, limit: int | None = None) -> list[RoundTripWindow]:
        """Windows of one path that start in ``[from, to)``, the first ``limit`` of them."""
        table = tables.round_trip_windows
        start = table.c.start_time_ns
        statement = (
            select(table)
            .where(table.c.path_id == signed(path_id), start >= from_ns, start < to_ns)
            .order_by(start)
            .limit(limit)
        )
        return [read_window(row).row for row in self._rows(statement)]

    def _rows(self, statement: Select[Any]) -> list[dict[str, Any]]:
        with self._engine.begin() as connection:
            return [dict(row) for row in connection.execute(statement).mappings()]


def _newest_swings(rows: Iterable[Mapping[str, Any]]) -> dict[int, tuple[Swing, float | None, int | None]]:
    """By path the swing of the engine class that was tested last."""
    found: dict[int, tuple[Swing, float | None, int | None]] = {}
    for row in sorted(rows, key=lambda row: row["last_time_ns"] or 0):
        swing = read_swing(row)
        found[swing.path_id] = (swing, row["last_bps"], row["last_time_ns"])
    return found


def _with_way(status: PathStatus, way: Mapping[str, Any] | None) -> PathStatus:
    if way is None:
        return status
    count = None if way["hop_limit"] is None else hop_count(way["hop_limit"])
    return replace(status, hop_count=count, path_mtu_bytes=way["mtu_bytes"])
