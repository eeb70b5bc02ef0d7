"""Pauses of throughput tests, as operators said them."""

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Connection, select

from collector.model import PauseRow, PauseView
from collector.store import tables
from collector.store.rows import Values


def pause_values(row: PauseRow) -> Values:
    """A row of ``pauses``."""
    return {
        "position": row.source.position,
        "record_index": row.source.record_index,
        "time_ns": row.time_ns,
        "site": row.site,
        "paused": row.paused,
        "until_time_ns": row.until_time_ns,
        "reason": row.reason,
    }


def pauses_between(connection: Connection, from_ns: int, to_ns: int) -> list[PauseView]:
    """Pauses that were in force at some time in ``[from, to)``."""
    table = tables.pauses
    rows = connection.execute(
        select(table).where(table.c.time_ns < to_ns).order_by(table.c.position, table.c.record_index)
    ).mappings()
    found = spans((row["site"], row["time_ns"], row["paused"], row["until_time_ns"], row["reason"]) for row in rows)
    return [
        view for view in found if all(end is None or end > from_ns for end in (view.end_time_ns, view.until_time_ns))
    ]


def spans(words: Iterable[tuple[str, int, bool, int | None, str]]) -> list[PauseView]:
    """From word to word of the same scope: site, time, paused, until, reason, in the order in which they were said.
    Pure."""
    found: list[PauseView] = []
    on: dict[str, int] = {}  # site -> index of what is in force
    for site, time_ns, paused, until_ns, reason in words:
        if site in on:
            index = on.pop(site)
            before_until_ns = found[index].until_time_ns
            end_ns = time_ns if before_until_ns is None else min(time_ns, before_until_ns)
            found[index] = replace(found[index], end_time_ns=end_ns)
        if paused:
            on[site] = len(found)
            found.append(PauseView(site, time_ns, until_ns, None, reason))
    return found
