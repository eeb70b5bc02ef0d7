"""The API of what paths are made of: traces, path MTU, changes; and the one request that the API takes."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from collector.export import views
from collector.export.orders import must_come_from_here
from collector.export.queries import Cursor, From, Limit, To, answer, span_of
from collector.model import PathMtuView, RouteChangeView, TraceView


class Ways(Protocol):
    """What the store answers; safe from any thread."""

    def traces(self, from_ns: int, to_ns: int) -> Sequence[TraceView]: ...
    def path_mtus(self, from_ns: int, to_ns: int) -> Sequence[PathMtuView]: ...
    def route_changes(self, from_ns: int, to_ns: int) -> Sequence[RouteChangeView]: ...


class TraceRefusedError(Exception):
    """A trace that is not asked for; the text says why."""


AskTrace = Callable[[str, str], Awaitable[Sequence[Mapping[str, str]]]]
"""Source node, destination node or target -> what was asked for: request, path id, protocol. Raises
TraceRefusedError."""


async def ask_nobody(_: str, __: str) -> Sequence[Mapping[str, str]]:
    """Where nothing is planned."""
    raise TraceRefusedError("this collector plans nothing")


def add_ways(app: FastAPI, reader: Ways, ask_trace: AskTrace) -> None:
    """Adds what is asked of paths, and the request for a trace."""

    @app.get("/api/v1/traces")
    async def traces(
        from_: From = None, to: To = None, cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE
    ) -> dict[str, Any]:
        """Traces that began in `[from, to)`: who answered on the way, hop after hop."""
        span = span_of(from_, to)
        return await answer(lambda: reader.traces(*span), _key, cursor, limit)

    @app.get("/api/v1/path-mtus")
    async def path_mtus(
        from_: From = None, to: To = None, cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE
    ) -> dict[str, Any]:
        """Path MTU checks that began in `[from, to)`, with each size tried."""
        span = span_of(from_, to)
        return await answer(lambda: reader.path_mtus(*span), _key, cursor, limit)

    @app.get("/api/v1/route-changes")
    async def route_changes(
        from_: From = None, to: To = None, cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE
    ) -> dict[str, Any]:
        """Paths that became others in `[from, to)`: number of routers on the way back, or who answers a trace."""
        span = span_of(from_, to)
        return await answer(lambda: reader.route_changes(*span), _key, cursor, limit)

    @app.post("/api/v1/traces", status_code=202)
    async def ask(
        request: Request,
        src: Annotated[str, Query(description="node", max_length=63)],
        dst: Annotated[str, Query(description="node or target", max_length=63)],
    ) -> JSONResponse:
        """Has the paths from a node to another traced, through a new plan: those by echo and STAMP, TCP connects cannot
        be. From the collector's own host only, and not by a page in somebody's browser."""
        must_come_from_here(request, "a trace can be asked for")
        try:
            asked = await ask_trace(src, dst)
        except TraceRefusedError as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse({"items": list(asked), "next": None}, 202)


def _key(row: TraceView | PathMtuView | RouteChangeView) -> str:
    return f"{row.time_ns:020d} {row.path_id:016x} {getattr(row, 'change', '')}"
