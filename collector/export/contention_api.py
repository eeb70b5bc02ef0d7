"""The API of contention tests: what one would be, the order, and results out of runs and NIC counters."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from bandwitness.v1.record_pb2 import Profile, SharedTest, TestGroup
from collector.analysis.accounting import doubts
from collector.analysis.uplink_capacity import Capacity, GroupFigure, capacity_of
from collector.export import views
from collector.export.burst_api import Series
from collector.export.orders import must_come_from_here
from collector.export.queries import DAY_NS, Cursor, From, Limit, To, answer, span_of
from collector.model import Attempt, ContentionView, SeriesPoint

SECOND = 1_000_000_000
SETTLED_NS = SECOND  # from the start of a run's process, and what it omits: connected, and past slow start
EDGE_NS = SECOND // 2  # a run's process ends this much after its last packets, at most
STEP_NS = SECOND // 4  # the median over time is taken of moments so far apart: a read or two at the edges do not count
POINTS = 10_000


class SharedTestsRead(Protocol):
    """What the store answers; safe from any thread."""

    def shared_tests(self, from_ns: int, to_ns: int) -> Sequence[bytes]: ...
    def timetable(self, from_ns: int, to_ns: int) -> Sequence[Attempt]: ...
    def profiles(self, profile_ids: Iterable[int]) -> Mapping[int, bytes]: ...


class ContentionRefusedError(Exception):
    """A test that is not ordered; the text says why."""


class OrderContention(Protocol):
    """Plans a test, and has it run. Raises ContentionRefusedError."""

    async def __call__(
        self, site: str, rack: str, *, repeats: int, lane: str | None = None, dry_run: bool = False
    ) -> Mapping[str, Any]: ...


async def order_nothing(
    site: str, rack: str, *, repeats: int, lane: str | None = None, dry_run: bool = False
) -> Mapping[str, Any]:
    """Where nothing is planned."""
    raise ContentionRefusedError("this collector plans nothing")


def add_contention(app: FastAPI, reader: SharedTestsRead, series: Series, order: OrderContention) -> None:
    """Adds results, and the order."""

    @app.get("/api/v1/contention")
    async def contention(
        from_: From = None, to: To = None, cursor: Cursor = None, limit: Limit = views.DEFAULT_PAGE
    ) -> dict[str, Any]:
        """Contention tests ordered in `[from, to)` and what they show: solo rates, sums, knee, delivered fraction."""
        span = span_of(from_, to, back_ns=90 * DAY_NS)
        return await answer(
            lambda: results(reader, series, *span), lambda row: f"{row.ordered_time_ns:020d} {row.test_id.hex()}",
            cursor, limit,
        )  # fmt: skip

    @app.post("/api/v1/contention", status_code=202)
    async def ask(  # noqa: PLR0917 - each a parameter of the query
        request: Request,
        site: Annotated[str, Query(max_length=63)],
        rack: Annotated[str, Query(max_length=63)],
        repeats: Annotated[int, Query(ge=1, le=20)] = 3,
        lane: Annotated[str | None, Query(max_length=20)] = None,
        dry_run: Annotated[bool, Query(description="only say what it would be")] = False,
    ) -> JSONResponse:
        """Orders a contention test of a rack's uplink. It fills what others share: refused unless the configuration
        says who agreed to it. From the collector's own host only."""
        must_come_from_here(request, "a contention test can be ordered")
        try:
            told = await order(site, rack, repeats=repeats, lane=lane, dry_run=dry_run)
        except ContentionRefusedError as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse({"items": [dict(told)], "next": None}, 202)


def results(reader: SharedTestsRead, series: Series, from_ns: int, to_ns: int) -> list[ContentionView]:
    """Every test ordered in that time, with what has come of it by now."""
    tests: dict[bytes, SharedTest] = {}
    ended: dict[bytes, str] = {}
    for definition in reader.shared_tests(from_ns, to_ns):
        test = SharedTest.FromString(definition)
        if test.group:
            tests.setdefault(test.test_id, test)
        elif test.ended_reason:
            ended.setdefault(test.test_id, test.ended_reason)
    return [_view(test, ended.get(test_id, ""), reader, series) for test_id, test in tests.items()]


def _view(test: SharedTest, ended: str, reader: SharedTestsRead, series: Series) -> ContentionView:
    first = min(group.start_time_ns for group in test.group)
    last = max(group.start_time_ns for group in test.group)
    by_group: dict[bytes, list[Attempt]] = {}
    for attempt in reader.timetable(first, last + 1):
        by_group.setdefault(attempt.slot.group_id, []).append(attempt)
    profiles = reader.profiles({attempt.slot.profile_id for group in by_group.values() for attempt in group})
    attempts = [attempt for group in test.group for attempt in by_group.get(group.group_id, ())]
    figures = [figure_of(group, by_group.get(group.group_id, ()), profiles, series) for group in test.group]
    result: Capacity = capacity_of(figures)
    found = sorted({word for attempt in attempts for word in doubts(attempt.client_run, attempt.server_run)})
    return ContentionView(
        test_id=test.test_id,
        site=test.site,
        rack=test.rack,
        approver=test.permission.approver,
        ordered_time_ns=test.ordered_time_ns,
        start_time_ns=first,
        called_off=ended,
        predicted_bytes=test.predicted_bytes,
        predicted_bill_windows=test.predicted_bill_windows,
        predicted_added_bps=test.predicted_added_bps,
        runs=sum(group.slots for group in test.group),
        ok=sum(attempt.category == "ok" for attempt in attempts),
        doubts=found,
        result=result,
    )


def figure_of(
    group: TestGroup, attempts: Sequence[Attempt], profiles: Mapping[int, bytes], series: Series
) -> GroupFigure:
    """One group's figure: goodput from the receivers' reports, octets from the receivers' NICs over the seconds in
    which all sent: what the uplink dropped was sent and did not pass it."""
    goodput: dict[str, float | None] = {}
    for attempt in attempts:
        run = attempt.client_run if attempt.category == "ok" else None
        goodput[_sender(attempt).node] = run.throughput_bps if run is not None else None
    return GroupFigure(group.part, group.senders, group.repeat, goodput, _octets(attempts, profiles, series))


def _sender(attempt: Attempt) -> Any:
    return attempt.slot.server if attempt.slot.reverse else attempt.slot.client


def _octets(attempts: Sequence[Attempt], profiles: Mapping[int, bytes], series: Series) -> float | None:
    runs = [attempt.client_run for attempt in attempts if attempt.category == "ok" and attempt.client_run is not None]
    if not runs or len(runs) < len(attempts):
        return None
    profiled = [Profile.FromString(profiles[one.profile_id]) for one in runs if one.profile_id in profiles]
    omit_ns = max((profile.omit_ns for profile in profiled), default=0)
    begin_ns = max(run.start_time_ns for run in runs) + omit_ns + SETTLED_NS
    end_ns = min(run.end_time_ns for run in runs) - EDGE_NS
    read: list[list[SeriesPoint]] = []
    for attempt in attempts:
        end = attempt.slot.client if attempt.slot.reverse else attempt.slot.server
        points, _ = series(end.node, end.nic, begin_ns, end_ns + 2 * SECOND, POINTS)
        read.append(points)
    sums = [_total_at(read, moment) for moment in range(begin_ns, end_ns, STEP_NS)]
    known = [total for total in sums if total is not None]
    return median(known) if known else None


def _total_at(read: Sequence[Sequence[SeriesPoint]], moment_ns: int) -> float | None:
    """What all NICs received at a moment; None where one of them has no read over it. Each reads at its own times."""
    total = 0.0
    for points in read:
        rate = next((one.receive_bps for one in points if one.time_ns - one.span_ns <= moment_ns < one.time_ns), None)
        if rate is None:
            return None
        total += rate
    return total
