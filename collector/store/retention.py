"""How long rows are kept. Deletes in small steps, so that no step of analysis waits for it."""

from dataclasses import dataclass

from sqlalchemy import delete, select

from collector.store import tables
from collector.store.writer import Transaction

DAY_NS = 86_400 * 1_000_000_000
STEP_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class Period:
    """Rows of one table whose time lies this far back go."""

    table: str
    column: str
    days: int


PERIODS = (
    Period("round_trip_windows", "start_time_ns", 90),
    Period("doubts", "start_time_ns", 90),
    Period("one_way_losses", "send_time_ns", 90),
    Period("one_way_delays", "start_time_ns", 90),
    Period("route_traces", "time_ns", 90),
    Period("path_mtus", "time_ns", 90),
    Period("route_changes", "time_ns", 400),
    Period("marks", "time_ns", 400),
    Period("nic_windows", "start_time_ns", 90),
    Period("bursts", "end_time_ns", 400),
    Period("cluster_bursts", "end_time_ns", 400),
    Period("runs", "end_time_ns", 400),
    Period("slots", "end_time_ns", 400),
    Period("gaps", "to_time_ns", 400),
    Period("incidents", "closed_time_ns", 800),
    Period("alerts", "said_time_ns", 800),
)


def sweep(tx: Transaction, now_ns: int) -> int:
    """Deletes at most ``STEP_ROWS`` rows of each table that are past their period; gives back how many went.

    An incident that is open has no closing time, and so no age.
    """
    removed = 0
    for period in PERIODS:
        table = tables.METADATA.tables[period.table]
        keys = list(table.primary_key.columns)
        old = select(*keys).where(table.c[period.column] < now_ns - period.days * DAY_NS).limit(STEP_ROWS)
        rows = tx.connection.execute(old).all()
        for row in rows:
            tx.connection.execute(delete(table).where(*(key == value for key, value in zip(keys, row, strict=True))))
        removed += len(rows)
    return removed
