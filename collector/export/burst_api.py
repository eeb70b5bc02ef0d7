"""Bursts and what NICs carried, over HTTP."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, Query
from starlette.concurrency import run_in_threadpool

from collector.analysis.bursts.score import score
from collector.export import views
from collector.export.queries import Cursor, From, Limit, To, answer, span_of
from collector.export.views import BadQueryError
from collector.model import Burst, BurstEvent, BurstScore, ClusterBurst, MarkRow, SeriesPoint

Series = Callable[[str, str, int, int, int], tuple[list[SeriesPoint], "int | None"]]
"""Node, NIC, ``[from, to)``, how many at most -> points, and the time behind which to go on, None at the end."""
HOUR_NS = 3_600 * 1_000_000_000
MOST_MARKS = 50_000  # of one score


class Bursts(Protocol):
    """What the store answers; safe from any thread."""

    def burst_events(self, from_ns: int, to_ns: int, active_only: bool) -> Sequence[BurstEvent]: ...
    def cluster_bursts(self, from_ns: int, to_ns: int) -> Sequence[ClusterBurst]: ...
    def bursts(self, from_ns: int, to_ns: int) -> Sequence[Burst]: ...
    def marks(
        self, from_ns: int, to_ns: int, after: tuple[int, int, int] = ..., limit: int | None = None
    ) -> Sequence[MarkRow]: ...


def no_series(_: str, __: str, ___: int, ____: int, _____: int) -> tuple[list[SeriesPoint], int | None]:
    """Where there is no log."""
    return [], None


def _score(reader: Bursts, from_ns: int, to_ns: int) -> BurstScore:
    """Of bursts that started in the stretch."""
    clusters = [one for one in reader.cluster_bursts(from_ns, to_ns) if one.start_time_ns >= from_ns]
    single = [one for one in reader.bursts(from_ns, to_ns) if one.start_time_ns >= from_ns]
    marks = reader.marks(from_ns, to_ns, limit=MOST_MARKS + 1)
    if len(marks) > MOST_MARKS:
        raise BadQueryError(f"from: trainers said more than {MOST_MARKS} things in that stretch, ask for a shorter one")
    return score(clusters, single, marks)


def add_bursts(app: FastAPI, reader: Bursts, series: Series) -> None:
    """Adds the routes."""

    @app.get("/api/v1/bursts")
    async def bursts(
        from_: From = None,
        to: To = None,
        active: Annotated[bool, Query(description="only those that are on")] = False,
        cursor: Cursor = None,
        limit: Limit = views.DEFAULT_PAGE,
    ) -> dict[str, Any]:
        """Bursts that were on at some time in `[from, to)`: cluster bursts with their members, and those of single
        nodes (scope `node`). `save` and `restore` go one way, an `exchange` both; `marked`: a trainer said so."""
        span = span_of(from_, to)
        return await answer(
            lambda: reader.burst_events(*span, active),
            lambda row: f"{row.burst.start_time_ns:020d} {row.burst.burst_id}",
            cursor,
            limit,
        )

    @app.get("/api/v1/bursts/score")
    async def burst_score(from_: From = None, to: To = None) -> dict[str, Any]:
        """Bursts that started in `[from, to)` against what trainers said: precision, recall, error of the start."""
        span = span_of(from_, to)
        return await run_in_threadpool(lambda: views.item(_score(reader, *span)))

    @app.get("/api/v1/series")
    async def nic_series(  # noqa: PLR0917 - parameters of a query, which have names
        node: Annotated[str, Query(max_length=100, description="as configured")],
        nic: Annotated[str, Query(max_length=100, description="network interface, such as ens1f0")],
        from_: From = None,
        to: To = None,
        cursor: Cursor = None,
        limit: Limit = views.DEFAULT_PAGE,
    ) -> dict[str, Any]:
        """What a NIC carried between any two reads in `[from, to)`, as fine as the log has it. By default the last
        hour. Where much of the log must be read for few points an answer ends early: go on with its `next`."""
        from_ns, to_ns = span_of(from_, to, back_ns=HOUR_NS)
        if cursor is not None:
            from_ns = max(from_ns, views.read_time_cursor(cursor) + 1)
        points, behind_ns = await run_in_threadpool(series, node, nic, from_ns, to_ns, limit)
        following = None if behind_ns is None else views.make_time_cursor(behind_ns)
        return {"items": [views.item(point) for point in points], "next": following}
