"""The HTTP interface: ``/metrics``, ``/healthz`` and the JSON API. Reads only, but for
what `orders` lets through: a trace (``way_api``), a pause of tests (``pause_api``)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from bandwitness import VERSION
from collector.analysis.elements import Topology
from collector.analysis.rules import lanes, ports
from collector.export import views
from collector.export.burst_api import Bursts, Series, add_bursts, no_series
from collector.export.contention_api import OrderContention, SharedTestsRead, add_contention, order_nothing
from collector.export.evidence_api import FindEvidence, add_evidence, no_evidence
from collector.export.exposition import OPENMETRICS_TYPE, TEXT_TYPE, wants_openmetrics
from collector.export.measured_api import Measured, add_measured
from collector.export.pause_api import Pauses, SayPause, add_pauses, nobody_pauses
from collector.export.queries import DAY_NS, HOUR_NS, Cursor, From, Limit, PairsFrom, To, answer, span_of
from collector.export.views import BadQueryError
from collector.export.way_api import AskTrace, Ways, add_ways, ask_nobody
from collector.model import (
    AccountingRow,
    Attempt,
    Incident,
    LaneBurst,
    MarkRow,
    NodeRow,
    PairLoss,
    PathStatus,
)
from collector.store.pairs import PatternOf


class Reader(Bursts, Measured, Pauses, SharedTestsRead, Ways, Protocol):
    """What the store answers; safe from any thread."""

    def nodes(self) -> Sequence[NodeRow]: ...
    def paths(self) -> Sequence[PathStatus]: ...
    def pairs(self, from_ns: int, to_ns: int, pattern_of: PatternOf) -> Sequence[PairLoss]: ...
    def incidents(self, from_ns: int, to_ns: int, active_only: bool) -> Sequence[Incident]: ...
    def lane_bursts(self, from_ns: int, to_ns: int) -> Sequence[LaneBurst]: ...
    @property
    def lanes(self) -> Sequence[tuple[str, str]]: ...
    def marks(
        self, from_ns: int, to_ns: int, after: tuple[int, int, int] = ..., limit: int | None = None
    ) -> Sequence[MarkRow]: ...
    def timetable(self, from_ns: int, to_ns: int) -> Sequence[Attempt]: ...
    def accounting(self, from_ns: int, to_ns: int) -> Sequence[AccountingRow]: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """Where answers come from."""

    reader: Reader
    metrics: Callable[..., str]  # takes ``openmetrics: bool`` by name
    health: Callable[[], Mapping[str, str]]  # part -> "ok" or what is wrong
    complete_node: Callable[[NodeRow], NodeRow]  # adds what only live sessions know
    warnings: Callable[[], Mapping[str, str]] = dict  # part -> what somebody should look at though all works
    series: Series = no_series  # what NICs carried, out of the log
    ask_trace: AskTrace = ask_nobody  # has the paths from a node to another traced
    evidence: FindEvidence = no_evidence  # signed records an incident stands on, out of the log
    order_contention: OrderContention = order_nothing  # a test of what a rack's uplink carries
    say_pause: SayPause = nobody_pauses  # stops throughput tests, or lets them go on
    topology: Topology | None = None  # which carrier a target is reached through; None: no carriers


def _error(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "message": message}}, status)


def _add_conventions(app: FastAPI) -> None:
    """One shape for every error, ``{"error": {"code", "message"}}``, and headers that hold for every answer."""

    @app.exception_handler(BadQueryError)
    async def _bad_query(_: Request, error: BadQueryError) -> JSONResponse:
        return _error(400, "bad_query", str(error))

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return _error(400, "bad_query", f"{'.'.join(str(part) for part in first['loc'][1:])}: {first['msg']}")

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> JSONResponse:
        codes = {404: "not_found", 405: "method_not_allowed"}
        return _error(error.status_code, codes.get(error.status_code, "refused"), str(error.detail))

    @app.exception_handler(Exception)
    async def _fault(_: Request, error: Exception) -> JSONResponse:
        return _error(500, "internal", f"the collector failed to answer: {type(error).__name__}")

    @app.middleware("http")
    async def _no_store(request: Request, call_next: Callable[[Request], Awaitable[Any]]) -> Any:
        response = await call_next(request)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def create_app(sources: Sources) -> FastAPI:
    """The ASGI application over ``sources``."""
    app = FastAPI(
        title="Bandwitness collector",
        version=VERSION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # the pages load scripts from elsewhere
        redoc_url=None,
    )
    reader = sources.reader
    _add_conventions(app)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics(request: Request) -> PlainTextResponse:
        """Prometheus text format, or OpenMetrics for who asks for it."""
        openmetrics = wants_openmetrics(request.headers.get("accept", ""))
        text = await run_in_threadpool(sources.metrics, openmetrics=openmetrics)
        return PlainTextResponse(text, media_type=OPENMETRICS_TYPE if openmetrics else TEXT_TYPE)

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        """200 while every part works, 503 and the parts that do not. Damage of the past is a warning: all works."""
        parts, warnings = dict(sources.health()), dict(sources.warnings())
        healthy = all(state == "ok" for state in parts.values())
        content = {"status": "ok" if healthy else "failing", "parts": parts, "warnings": warnings}
        return JSONResponse(content, 200 if healthy else 503)

    _add_present(app, sources)
    _add_past(app, reader)
    add_bursts(app, reader, lambda *asked: sources.series(*asked))  # noqa: PLW0108 - looked up with each question
    add_measured(app, reader, sources.topology)
    add_ways(app, reader, sources.ask_trace)
    add_evidence(app, sources.evidence)
    add_contention(app, reader, lambda *asked: sources.series(*asked), sources.order_contention)  # noqa: PLW0108
    add_pauses(app, reader, sources.say_pause)
    return app


def _add_present(app: FastAPI, sources: Sources) -> None:
    """How things are now."""
    reader = sources.reader

    @app.get("/api/v1/nodes")
    async def nodes(cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE) -> dict[str, Any]:
        """Configured nodes and the state of their agents."""
        return await answer(
            lambda: [sources.complete_node(row) for row in reader.nodes()], lambda row: row.name, cursor, limit
        )

    @app.get("/api/v1/paths")
    async def paths(cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE) -> dict[str, Any]:
        """Every path with its newest window of round trips, or its throughput and swing."""
        return await answer(reader.paths, lambda row: f"{row.path_id:016x}", cursor, limit)

    @app.get("/api/v1/pairs")
    async def pairs(
        from_: PairsFrom = None, to: To = None, cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE
    ) -> dict[str, Any]:
        """STAMP between two endpoints in `[from, to)`, a day at most: loss by direction and by source port, which
        ports lose (`none`, a stable subset: `some`, `all`, or `unclear`), and one-way delays beside the clock error
        bounds of both ends: where `known` is false the bound is larger than the figure, which means nothing then."""
        span = span_of(from_, to, back_ns=HOUR_NS)
        if span[1] - span[0] > DAY_NS:
            raise BadQueryError("from: must lie within a day of to")
        return await answer(
            lambda: reader.pairs(*span, ports.pattern),
            lambda row: f"{row.src} {row.dst} {row.lane} {row.src_address} {row.dst_address}",
            cursor,
            limit,
        )


def _mark_behind(cursor: str) -> tuple[int, int, int]:
    time_ns, position, index = views.read_numbers_cursor(cursor, 3)
    return time_ns, position, index


def _add_past(app: FastAPI, reader: Reader) -> None:
    """What happened, or is planned, over a stretch of time."""

    @app.get("/api/v1/incidents")
    async def incidents(
        from_: From = None,
        to: To = None,
        active: Annotated[bool, Query(description="only those that are open")] = False,
        cursor: Cursor = None,
        limit: Limit = views.DEFAULT_PAGE,
    ) -> dict[str, Any]:
        """Incidents that were open at some time in `[from, to)`."""
        span = span_of(from_, to)
        return await answer(
            lambda: reader.incidents(*span, active),
            lambda row: f"{row.opened_time_ns:020d} {row.incident_id}",
            cursor,
            limit,
        )

    @app.get("/api/v1/lanes")
    async def lanes_(
        from_: From = None, to: To = None, cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE
    ) -> dict[str, Any]:
        """Per site and two of its lanes: whether bursts of one hurt the other, over `[from, to)` (a week)."""
        span = span_of(from_, to, back_ns=7 * DAY_NS)
        return await answer(
            lambda: lanes.judge(reader.lane_bursts(*span), reader.lanes),
            lambda row: f"{row.site} {row.lane} {row.other_lane}",
            cursor,
            limit,
        )

    @app.get("/api/v1/marks")
    async def marks(
        from_: From = None, to: To = None, cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE
    ) -> dict[str, Any]:
        """What trainers told their agents in `[from, to)`: checkpoints and the like that began or ended."""
        span = span_of(from_, to)
        after = (0, 0, -1) if cursor is None else _mark_behind(cursor)

        def work() -> dict[str, Any]:
            rows = reader.marks(*span, after, limit + 1)
            last = rows[limit - 1] if len(rows) > limit else None
            following = None if last is None else f"{last.time_ns} {last.source.position} {last.source.record_index}"
            return {
                "items": [views.item(row) for row in rows[:limit]],
                "next": None if following is None else views.make_cursor(following),
            }

        return await run_in_threadpool(work)

    @app.get("/api/v1/timetable")
    async def timetable(
        from_: From = None, to: To = None, cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE
    ) -> dict[str, Any]:
        """Planned throughput tests that start in `[from, to)`, with how each ended."""
        span = span_of(from_, to, ahead_ns=DAY_NS)
        return await answer(
            lambda: reader.timetable(*span),
            lambda row: f"{row.slot.start_time_ns:020d} {row.slot.slot_id.hex()}",
            cursor,
            limit,
        )

    @app.get("/api/v1/accounting")
    async def accounting(
        from_: From = None, to: To = None, cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE
    ) -> dict[str, Any]:
        """Per pair and window: planned = ok + failed + skipped + lost; pending slots are not due yet."""
        span = span_of(from_, to, ahead_ns=DAY_NS)
        return await answer(
            lambda: reader.accounting(*span),
            lambda row: f"{row.source} {row.destination} {row.lane} {row.window}",
            cursor,
            limit,
        )
