"""The API of the kill switch: throughput tests that pause, and the word that makes them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from collector.export import views
from collector.export.orders import must_come_from_here
from collector.export.queries import DAY_NS, Cursor, From, Limit, To, answer, span_of
from collector.model import PauseView

SECOND = 1_000_000_000


class Pauses(Protocol):
    """What the store answers; safe from any thread."""

    def pauses(self, from_ns: int, to_ns: int) -> Sequence[PauseView]: ...


class PauseRefusedError(Exception):
    """A word that is not taken; the text says why."""


class SayPause(Protocol):
    """Takes the operator's word. Raises PauseRefusedError."""

    async def __call__(
        self, site: str | None, *, paused: bool, for_ns: int | None = None, reason: str = ""
    ) -> Sequence[Mapping[str, Any]]: ...


async def nobody_pauses(
    site: str | None, *, paused: bool, for_ns: int | None = None, reason: str = ""
) -> Sequence[Mapping[str, Any]]:
    """Where nothing is planned."""
    raise PauseRefusedError("this collector plans nothing")


Site = Annotated[str | None, Query(description="of this site; else say `all=true`", max_length=63)]
All = Annotated[bool, Query(alias="all", description="everywhere")]


def add_pauses(app: FastAPI, reader: Pauses, say: SayPause) -> None:
    """Adds the pauses, and the two requests that make and end them."""

    @app.get("/api/v1/pauses")
    async def pauses(
        from_: From = None, to: To = None, cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE
    ) -> dict[str, Any]:
        """Pauses of throughput tests that were in force at some time in `[from, to)`."""
        span = span_of(from_, to, back_ns=7 * DAY_NS)
        return await answer(
            lambda: reader.pauses(*span), lambda row: f"{row.start_time_ns:020d} {row.site}", cursor, limit
        )

    @app.post("/api/v1/pauses", status_code=202)
    async def pause(
        request: Request,
        site: Site = None,
        everywhere: All = False,
        for_s: Annotated[float | None, Query(gt=0, le=1e9, description="seconds; without it until resumed")] = None,
        reason: Annotated[str, Query(max_length=200)] = "",
    ) -> JSONResponse:
        """Ends throughput tests and lets none begin, at a site or everywhere. From the collector's own host only."""
        must_come_from_here(request, "tests can be paused")
        for_ns = None if for_s is None else round(for_s * SECOND)
        return await _said(say, _scope(site, everywhere), paused=True, for_ns=for_ns, reason=reason)

    @app.post("/api/v1/resumes", status_code=202)
    async def resume(
        request: Request,
        site: Site = None,
        everywhere: All = False,
        reason: Annotated[str, Query(max_length=200)] = "",
    ) -> JSONResponse:
        """Lets throughput tests go on. From the collector's own host only."""
        must_come_from_here(request, "tests can be resumed")
        return await _said(say, _scope(site, everywhere), paused=False, for_ns=None, reason=reason)


def _scope(site: str | None, everywhere: bool) -> str | None:
    if (site is None) == (not everywhere):
        raise HTTPException(400, "say either site or all=true")
    return site


async def _said(say: SayPause, site: str | None, *, paused: bool, for_ns: int | None, reason: str) -> JSONResponse:
    try:
        said = await say(site, paused=paused, for_ns=for_ns, reason=reason)
    except PauseRefusedError as error:
        raise HTTPException(409, str(error)) from None
    return JSONResponse({"items": list(said), "next": None}, 202)
