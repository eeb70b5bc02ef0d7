"""Parameters that many questions have, and the shape of an answer."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Query
from starlette.concurrency import run_in_threadpool

from collector.export import views
from collector.export.views import BadQueryError

HOUR_NS = 3_600 * 1_000_000_000
DAY_NS = 24 * HOUR_NS

Cursor = Annotated[str | None, Query(description="`next` of the answer before", max_length=1000)]
Limit = Annotated[int, Query(ge=1, le=views.MAX_PAGE, description="items in one answer")]
From = Annotated[str | None, Query(alias="from", description="RFC 3339; default: a day before `to`")]
PairsFrom = Annotated[str | None, Query(alias="from", description="RFC 3339; default: an hour before `to`")]
To = Annotated[str | None, Query(alias="to", description="RFC 3339, exclusive; default: now (timetable: in a day)")]


def span_of(from_: str | None, to: str | None, *, ahead_ns: int = 0, back_ns: int = DAY_NS) -> tuple[int, int]:
    """``[from, to)`` in nanoseconds; by default the last ``back_ns`` (and ``ahead_ns`` of what is to come)."""
    to_ns = views.parse_time("to", to) if to else time.time_ns() + ahead_ns
    from_ns = views.parse_time("from", from_) if from_ else to_ns - ahead_ns - back_ns
    if from_ns >= to_ns:
        raise BadQueryError("from: must lie before to")
    return from_ns, to_ns


async def answer(
    read: Callable[[], Sequence[Any]], key: Callable[[Any], str], cursor: str | None, limit: int
) -> dict[str, Any]:
    """One page of what ``read`` gives, read in a thread."""

    def work() -> dict[str, Any]:
        chosen, following = views.page(read(), key, cursor, limit)
        return {"items": [views.item(row) for row in chosen], "next": following}

    return await run_in_threadpool(work)
