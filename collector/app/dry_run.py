"""``bandwitness-collector plan --dry-run``: what the coming day's throughput tests would cost, before any is sent."""

import dataclasses
from typing import Any

from rich.console import Console
from rich.table import Table

from collector.config import Config
from collector.export.tables import percent, rate
from collector.planner.cost import BILL_WINDOW_NS, DROPPED_WINDOWS, MONTH_WINDOWS, SECOND, Cost, cost_of
from collector.planner.plan import Plans, build_plans

NICS_SHOWN = 5
MINUTE_NS = 60 * SECOND


def dry_run(config: Config, now_ns: int, assumed_bps: int) -> tuple[Plans, Cost]:
    """The plans that would be made at ``now_ns``, and their cost.

    Raises:
        PlanError: the fleet cannot be measured as configured.
    """
    plans = build_plans(config, now_ns)
    return plans, cost_of(config, plans.slots, assumed_bps=assumed_bps)


def as_json(plans: Plans, cost: Cost, assumed_bps: int) -> dict[str, Any]:
    """Everything, NICs included."""
    return {
        "tests": cost.tests,
        "bytes": cost.bytes,
        "test_minutes": cost.test_ns / MINUTE_NS,
        "assumed_bps": assumed_bps if cost.assumed else None,
        "bill": {
            "month_windows": MONTH_WINDOWS,
            "dropped_windows": DROPPED_WINDOWS,
            "window_s": BILL_WINDOW_NS // SECOND,
        },
        "links": [
            {
                **dataclasses.asdict(link),
                "month_windows": link.month_windows,
                "bill_ratio": link.bill_ratio,
            }
            for link in cost.links
        ],
        "notes": list(plans.notes),
    }


def show(plans: Plans, cost: Cost, assumed_bps: int, console: Console) -> None:
    """A table of links, in words for the bill."""
    assumption = f", at {rate(assumed_bps)} where endpoints[].speed is not given" if cost.assumed else ""
    console.print(
        f"Throughput tests of the coming 24 h: {cost.tests} tests, {_decimal(cost.bytes)}, "
        f"{cost.test_ns / MINUTE_NS:.1f} min of sending{assumption}.",
        soft_wrap=True,
    )
    table = Table(box=None, header_style="bold")
    table.add_column("Link", overflow="fold")  # gives way on a narrow screen; figures never do
    for title in ("Tests", "Held", "One way", "Adds to 5 min", "Windows a month"):
        table.add_column(title, justify="right", no_wrap=True)
    links = [link for link in cost.links if not link.token.startswith("nic:")]
    nics = sorted((link for link in cost.links if link.token.startswith("nic:")), key=lambda link: -link.bytes)
    for link in [*links, *nics[:NICS_SHOWN]]:
        table.add_row(
            link.token,
            str(link.tests),
            f"{link.held_ns / MINUTE_NS:.1f} min",
            _decimal(link.bytes),
            rate(link.added_bps),
            f"{link.month_windows} ({percent(link.bill_ratio)})",
        )
    console.print(table)
    if len(nics) > NICS_SHOWN:
        console.print(f"and {len(nics) - NICS_SHOWN} more NICs with less (--json has all)")
    for note in plans.notes:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(
        f"A bill by the 95th percentile drops {DROPPED_WINDOWS} of {MONTH_WINDOWS} windows of five minutes a month. "
        "Where tests lie in more than that, it may rise by what they add; where in fewer, only if other traffic fills "
        "the rest.",
        soft_wrap=True,
    )
    console.print("Nothing was sent.")


def _decimal(count: int) -> str:
    """As bills count: by 1000."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"
