"""What was measured, window by window and carrier by carrier, and what was not: the routes that answer with it."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, Query
from starlette.concurrency import run_in_threadpool

from collector.analysis import carriers as by_carrier
from collector.analysis.elements import Topology
from collector.export import views
from collector.export.queries import DAY_NS, HOUR_NS, Cursor, From, Limit, PairsFrom, To, answer, span_of
from collector.export.views import BadQueryError
from collector.model import CarrierStatus, GapRow, PathRow, RoundTripWindow, StoredWindow


class Measured(Protocol):
    """What the store answers; safe from any thread."""

    def gaps(self, from_ns: int, to_ns: int) -> Sequence[GapRow]: ...
    def target_windows(self, from_ns: int, to_ns: int) -> Iterable[tuple[PathRow, StoredWindow]]: ...
    def target_hops(self) -> Iterable[tuple[PathRow, int]]: ...
    def round_trips(
        self, path_id: int, from_ns: int, to_ns: int, limit: int | None = None
    ) -> Sequence[RoundTripWindow]: ...


def add_measured(app: FastAPI, reader: Measured, topology: Topology | None) -> None:
    """What was measured, window by window, and what was not."""

    @app.get("/api/v1/samples")
    async def samples(
        path: Annotated[str, Query(pattern="^[0-9a-f]{16}$", description="`path_id` of a round-trip path")],
        from_: PairsFrom = None,
        to: To = None,
        cursor: Cursor = None,
        limit: Limit = views.DEFAULT_PAGE,
    ) -> dict[str, Any]:
        """Round trips of one path in windows of 10 s that start in `[from, to)`: counts by outcome, duplicates, late
        replies, quantiles of the delay; which test of ours loaded it, and whether its hosts doubted their delays."""
        from_ns, to_ns = span_of(from_, to, back_ns=HOUR_NS)

        def work() -> dict[str, Any]:
            begin_ns = from_ns if cursor is None else max(from_ns, views.read_time_cursor(cursor) + 1)
            rows = reader.round_trips(int(path, 16), begin_ns, to_ns, limit + 1)
            following = views.make_time_cursor(rows[limit - 1].start_time_ns) if len(rows) > limit else None
            return {"items": [views.item(row) for row in rows[:limit]], "next": following}

        return await run_in_threadpool(work)

    @app.get("/api/v1/gaps")
    async def gaps(
        from_: From = None, to: To = None, cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE
    ) -> dict[str, Any]:
        """Stretches that touch `[from, to)` in which an agent recorded nothing, by its own doing, and why."""
        span = span_of(from_, to)
        return await answer(
            lambda: reader.gaps(*span),
            lambda row: f"{row.from_time_ns:020d} {row.source.position:020d} {row.source.record_index:06d}",
            cursor,
            limit,
        )

    @app.get("/api/v1/carriers")
    async def carriers(
        from_: Annotated[str | None, Query(alias="from", description="RFC 3339; default: 10 min before `to`")] = None,
        to: To = None,
        cursor: Cursor = None,
        limit: Limit = views.DEFAULT_PAGE,
    ) -> dict[str, Any]:
        """Reachability, loss and delay of each carrier from each site in `[from, to)`, a day at most; and how many
        routers replies of each target pass by now."""
        span = span_of(from_, to, back_ns=HOUR_NS // 6)
        if span[1] - span[0] > DAY_NS:
            raise BadQueryError("from: must lie within a day of to")

        def read() -> Sequence[CarrierStatus]:
            if topology is None:
                return ()
            statuses = by_carrier.of_windows(topology, reader.target_windows(*span), span)
            return by_carrier.with_hops(topology, statuses, reader.target_hops())

        return await answer(read, lambda row: f"{row.site} {row.carrier} {row.protocol}", cursor, limit)
