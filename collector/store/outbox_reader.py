"""What waits in the outbox, with the figures it names: read-only, on a connection of its own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from bandwitness.v1.record_pb2 import RUN_ROLE_CLIENT
from collector.model import PathRow, RoundTripWindow
from collector.store import tables
from collector.store.database import open_reader
from collector.store.outbox import NICS, REBUILT, ROUND_TRIPS
from collector.store.rows import read_path, read_window, signed, unsigned

HOLD_NS = (
    30_000_000_000  # a row has its last word: a NIC's window is over, and whether a test of ours loaded it is known
)
_FAR_NS = 600_000_000_000  # a time of receipt so far ahead is from before the clock was set back


@dataclass(frozen=True, slots=True)
class Throughput:
    """A valid result."""

    path_id: int
    time_ns: int
    bps: float


@dataclass(frozen=True, slots=True)
class Noted:
    """One entry with its rows, as far as they are still there."""

    entry_id: int
    time_ns: int
    windows: Sequence[RoundTripWindow] = ()
    nics: Sequence[Mapping[str, Any]] = ()  # rows of nic_windows
    results: Sequence[Throughput] = ()


class OutboxReader:
    """Entries in their order. For one thread."""

    def __init__(self, path: Path) -> None:
        """``path`` is a file that ``Store`` made."""
        self._engine = open_reader(path)
        self._paths: dict[int, PathRow] = {}

    def close(self) -> None:
        """Closes the connection."""
        self._engine.dispose()

    def next(self, after_id: int, now_ns: int, limit: int) -> list[Noted]:
        """The oldest entries behind ``after_id`` that have waited for their last word; all of one moment of the store.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the store cannot be read.
        """
        table = tables.remote_outbox
        with self._engine.begin() as connection:
            if not _is_whole(connection):
                return []
            rows = connection.execute(select(table).where(table.c.id > after_id).order_by(table.c.id).limit(limit))
            noted = []
            for row in rows.mappings().all():
                if 0 < row["noted_time_ns"] + HOLD_NS - now_ns < _FAR_NS:
                    break
                noted.append(_with_rows(connection, dict(row)))
        return noted

    def path(self, path_id: int) -> PathRow | None:
        """What a path id means."""
        if path_id not in self._paths:
            with self._engine.begin() as connection:
                where = tables.paths.c.path_id == signed(path_id)
                found = connection.execute(select(tables.paths).where(where)).mappings().first()
            if found is None:
                return None
            self._paths[path_id] = read_path(dict(found))
        return self._paths[path_id]


def _is_whole(connection: Connection) -> bool:
    """Whether the rows are there that entries name: not while they are made anew from the log."""
    rebuilt = connection.execute(
        select(tables.remote_state.c.value).where(tables.remote_state.c.key == REBUILT)
    ).scalar()
    position = connection.execute(select(tables.meta.c.value).where(tables.meta.c.key == "position")).scalar()
    return rebuilt is None or int(position or 0) >= rebuilt


def _with_rows(connection: Connection, entry: Mapping[str, Any]) -> Noted:
    keys, entry_id, time_ns = json.loads(entry["keys"]), entry["id"], entry["time_ns"]
    if entry["kind"] == ROUND_TRIPS:
        table = tables.round_trip_windows
        where = (table.c.start_time_ns == time_ns, table.c.path_id.in_(keys))
        rows = connection.execute(select(table).where(*where)).mappings()
        return Noted(entry_id, time_ns, windows=[read_window(dict(row)).row for row in rows])
    if entry["kind"] == NICS:
        nics = tables.nic_windows
        of_node = (nics.c.start_time_ns == time_ns, nics.c.node == entry["node"], nics.c.nic.in_(keys))
        return Noted(
            entry_id, time_ns, nics=[dict(row) for row in connection.execute(select(nics).where(*of_node)).mappings()]
        )
    return Noted(entry_id, time_ns, results=_results(connection, bytes.fromhex(keys[0])))


def _results(connection: Connection, slot_id: bytes) -> list[Throughput]:
    slots, runs = tables.slots, tables.runs
    statement = (
        select(slots.c.path_id, runs.c.end_time_ns, runs.c.throughput_bps)
        .join(runs, runs.c.slot_id == slots.c.slot_id)
        .where(slots.c.slot_id == slot_id, slots.c.valid, runs.c.role == RUN_ROLE_CLIENT)
        .where(runs.c.throughput_bps.is_not(None))
    )
    rows = connection.execute(statement).all()[:1]
    return [Throughput(unsigned(path_id), time_ns, bps) for path_id, time_ns, bps in rows]
