"""What must be known of paths to find the records that an incident stands on."""

from collections.abc import Iterable

from sqlalchemy import Connection, select

from collector.store import tables
from collector.store.rows import read_path, signed, unsigned

LONGEST_NS = 10 * 1_000_000_000  # of a window


def sources_of(connection: Connection, path_ids: Iterable[int]) -> list[str]:
    """Nodes that measure these paths."""
    table = tables.paths
    chosen = table.c.path_id.in_([signed(path_id) for path_id in path_ids])
    found = connection.execute(select(table).where(chosen)).mappings()
    return sorted({read_path(dict(row)).source.node for row in found})


def left_out(
    connection: Connection, path_ids: Iterable[int], from_ns: int, to_ns: int, *, of_delay: bool
) -> set[tuple[int, int]]:
    """Path id and start of windows in ``[from, to)`` that verdicts on loss, or on delay, leave out."""
    table = tables.round_trip_windows
    start = table.c.start_time_ns
    loaded, doubtful = table.c.loaded_by.is_not(None), table.c.doubtful.is_not(None)
    out = loaded | doubtful if of_delay else loaded
    chosen = table.c.path_id.in_([signed(path_id) for path_id in path_ids])
    statement = select(table.c.path_id, start).where(chosen, start > from_ns - LONGEST_NS, start < to_ns, out)
    return {(unsigned(path_id), start_ns) for path_id, start_ns in connection.execute(statement)}
