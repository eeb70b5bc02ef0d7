"""Bursts as experiments on lanes: which other lanes were measured while they ran, and which they hurt."""

import json
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, select

from collector.config import Config
from collector.model import Burst, ClusterBurst, LaneBurst
from collector.store import tables
from collector.store.bursts import bursts_between, clusters_between

MAX_BURSTS = 1000  # the newest; each asks for the windows of its own time
EXCHANGE = "exchange"


def lane_bursts(connection: Connection, config: Config, from_ns: int, to_ns: int) -> list[LaneBurst]:
    """Saves and restores that have ended, each cluster burst once, oldest first."""
    site_of = {node.name: node.site for node in config.nodes}
    found: list[ClusterBurst | Burst] = [*clusters_between(connection, from_ns, to_ns)]
    found += [one for one in bursts_between(connection, from_ns, to_ns) if not one.cluster_id and one.confirmed]
    ended = [one for one in found if one.kind != EXCHANGE and one.end_time_ns is not None]
    ended = sorted(ended, key=lambda one: (one.start_time_ns, one.burst_id))[-MAX_BURSTS:]
    lanes = _lanes_of_paths(connection, site_of)
    hurt = _hurt(connection, from_ns, to_ns)
    made = []
    for one in ended:
        site = one.site if isinstance(one, ClusterBurst) else site_of.get(one.node, "")
        members = one.members if isinstance(one, ClusterBurst) else ()
        harm = {lane: of for burst_id in (*members, one.burst_id) for lane, of in hurt.get(burst_id, {}).items()}
        measured = _measured(connection, one.start_time_ns, one.end_time_ns or one.start_time_ns, lanes.get(site, {}))
        made.append(LaneBurst(one.burst_id, site, one.lane, one.start_time_ns, measured, harm))
    return made


def _lanes_of_paths(connection: Connection, site_of: Mapping[str, str]) -> dict[str, dict[int, str]]:
    """Site -> path id as stored -> lane, by the path's source."""
    found: dict[str, dict[int, str]] = {}
    for row in connection.execute(select(tables.paths.c.path_id, tables.paths.c.source)).mappings():
        node, _, _, lane = json.loads(row["source"])
        if node in site_of:
            found.setdefault(site_of[node], {})[row["path_id"]] = lane
    return found


def _measured(connection: Connection, from_ns: int, to_ns: int, lane_of: Mapping[int, str]) -> frozenset[str]:
    table = tables.round_trip_windows
    first = from_ns - from_ns % 10_000_000_000
    where = (table.c.start_time_ns >= first, table.c.start_time_ns <= to_ns, table.c.sent > 0)
    ids: Iterable[int] = connection.execute(select(table.c.path_id).where(*where).distinct()).scalars()
    return frozenset(lane_of[path_id] for path_id in ids if path_id in lane_of)


def _hurt(connection: Connection, from_ns: int, to_ns: int) -> dict[str, dict[str, str]]:
    """Burst id -> lane it hurt -> incident."""
    table = tables.incidents
    closed = table.c.closed_time_ns
    where = (
        table.c.rule == "burst_contention", table.c.opened_time_ns < to_ns, closed.is_(None) | (closed >= from_ns)
    )  # fmt: skip
    found: dict[str, dict[str, str]] = {}
    for row in connection.execute(select(table.c.incident_id, table.c.figures).where(*where)).mappings():
        values = json.loads(row["figures"])
        if values.get("packets_hurt"):
            for lane in str(values.get("lanes", "")).split():
                found.setdefault(values["burst_id"], {})[lane] = row["incident_id"]
    return found
