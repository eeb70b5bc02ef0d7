"""The newest window of every round-trip path."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Select, func, select, tuple_

from collector.model import StoredWindow
from collector.store import tables
from collector.store.rows import read_window


def newest_statement() -> Select[Any]:
    """One row a path, of those that have any.

    The subquery is one step into an index for each path. Grouping the windows by path would read all of them, which
    are kept for months.
    """
    windows, paths = tables.round_trip_windows, tables.paths
    known = windows.alias()
    newest = select(func.max(known.c.start_time_ns)).where(known.c.path_id == paths.c.path_id).scalar_subquery()
    key = tuple_(windows.c.start_time_ns, windows.c.path_id)
    return select(windows).where(key.in_(select(newest, paths.c.path_id)))


def newest_windows(connection: Connection) -> Iterator[StoredWindow]:
    """One window a path, of those that have any."""
    for row in connection.execute(newest_statement()).mappings():
        yield read_window(dict(row))
