"""Accounting: planned = ok + failed + skipped + lost, counted in the database."""

import json
from itertools import pairwise

from sqlalchemy import Connection, func, select

from bandwitness.v1.record_pb2 import RunOutcome
from collector.model import AccountingRow
from collector.store import tables

CATEGORIES = ("ok", "failed", "skipped", "lost")
ALWAYS_NS = 1 << 62


def count_slots(connection: Connection, from_ns: int = 0, to_ns: int = ALWAYS_NS) -> list[AccountingRow]:
    """Slots that start in ``[from, to)``, by pair (in the direction of the data), lane and window."""
    counted: dict[tuple[str, str, str, int], dict[str, int]] = {}
    outcomes: dict[tuple[str, str, str, int], dict[str, int]] = {}
    slots = tables.slots
    columns = (slots.c.client, slots.c.server, slots.c.reverse, slots.c.window, slots.c.category, slots.c.outcome)
    statement = (
        select(*columns, func.count().label("number"))
        .where(slots.c.start_time_ns >= from_ns, slots.c.start_time_ns < to_ns)
        .group_by(*columns)
    )
    for row in connection.execute(statement).mappings():
        ends = (_end(row["client"]), _end(row["server"]))
        source, destination = reversed(ends) if row["reverse"] else ends
        key = (source[0], destination[0], source[1], row["window"])
        number = counted.setdefault(key, {})
        number[row["category"]] = number.get(row["category"], 0) + row["number"]
        if row["category"] != "pending":
            by_outcome = outcomes.setdefault(key, {})
            name = outcome_name(row["outcome"])
            by_outcome[name] = by_outcome.get(name, 0) + row["number"]
    return [
        AccountingRow(
            source=key[0],
            destination=key[1],
            lane=key[2],
            window=key[3],
            planned=sum(number.get(category, 0) for category in CATEGORIES),
            ok=number.get("ok", 0),
            failed=number.get("failed", 0),
            skipped=number.get("skipped", 0),
            lost=number.get("lost", 0),
            pending=number.get("pending", 0),
            outcomes=outcomes.get(key, {}),
        )
        for key, number in sorted(counted.items())
    ]


def attempt_counts(
    connection: Connection,
) -> tuple[dict[tuple[str, str, str, str], int], dict[tuple[str, str, str, str, str], int]]:
    """Settled slots by source, destination, lane and the outcome they stood under first; and corrections of these: what
    a slot stood as, and what it became."""
    counts: dict[tuple[str, str, str, str], int] = {}
    corrections: dict[tuple[str, str, str, str, str], int] = {}
    slots = tables.slots
    columns = (slots.c.client, slots.c.server, slots.c.reverse, slots.c.counted)
    for row in connection.execute(select(*columns, func.count().label("number")).group_by(*columns)).mappings():
        ends = (_end(row["client"]), _end(row["server"]))
        source, destination = reversed(ends) if row["reverse"] else ends
        pair = (source[0], destination[0], source[1])
        outcomes = row["counted"].split()
        if outcomes:
            counts[*pair, outcomes[0]] = counts.get((*pair, outcomes[0]), 0) + row["number"]
        for before, after in pairwise(outcomes):
            corrections[*pair, before, after] = corrections.get((*pair, before, after), 0) + row["number"]
    return counts, corrections


def _end(text: str) -> tuple[str, str]:
    node, _, _, lane = json.loads(text)
    return node, lane


def outcome_name(outcome: int) -> str:
    """``refused`` for RUN_OUTCOME_REFUSED."""
    try:
        return RunOutcome.Name(RunOutcome.ValueType(outcome)).removeprefix("RUN_OUTCOME_").lower()
    except ValueError:
        return f"outcome_{outcome}"
