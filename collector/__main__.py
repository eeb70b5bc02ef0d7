"""bandwitness-collector: arguments, and nothing else."""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bandwitness import VERSION
from collector.enrol.commands import node, token
from collector.export.order_commands import contention, pause, resume

FAILED = 1
WRONG_USE = 2  # also click's own exit code for wrong arguments


def _load(path: str, now: datetime | None = None) -> Any:
    """The configuration, or every fault on stderr and exit 2."""
    from bandwitness.settings import SettingsError
    from collector.config import load_config

    try:
        return load_config(Path(path), now=now)
    except SettingsError as error:
        click.echo(str(error), err=True)
        sys.exit(WRONG_USE)


def _path_id(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if len(value) != 16 or set(value) - set("0123456789abcdef"):
        raise click.BadParameter(f"{value[:40]!r} is no path: 16 hex digits, the last column of 'paths'")
    return value


CONFIG = click.option("--config", "config_path", required=True, metavar="FILE", help="collector.yaml")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="bandwitness-collector")
def main() -> None:
    """Keeps what agents signed, plans what they measure, and says what the log shows.

    \b
    bandwitness-collector check --config collector.yaml     validate the file
    bandwitness-collector serve --config collector.yaml     run
    bandwitness-collector incidents                         ask the running collector

    Exit status: 0 fine, 1 the thing asked failed, 2 wrong usage or configuration.
    """


@main.command()
@CONFIG
def serve(config_path: str) -> None:
    """Run the collector until SIGTERM or Ctrl-C."""
    config = _load(config_path)
    from collector.app import run

    sys.exit(run(config, Path(config_path)))


@main.command()
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="print the result as JSON")
def check(config_path: str, as_json: bool) -> None:
    """Validate collector.yaml and the TLS files it names: every fault with line, column and key; and whether the
    fleet fits its windows."""
    config = _load(config_path, datetime.now(UTC))
    from collector.planner import PlanError
    from collector.planner.plan import build_plans

    try:
        plans = build_plans(config, time.time_ns())
    except PlanError as error:
        for problem in error.problems:
            click.echo(f"{config_path}: {problem}", err=True)
        sys.exit(WRONG_USE)
    counts = {
        "sites": len(config.sites),
        "racks": len({(node.site, node.rack) for node in config.nodes}),
        "nodes": len(config.nodes),
        "targets": len(config.targets),
        "throughput tests in the coming day": len(plans.slots),
    }
    if as_json:
        click.echo(json.dumps({"ok": True, "counts": counts, "notes": plans.notes}))
    else:
        click.echo(f"{config_path}: ok: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
        for note in plans.notes:
            click.echo(f"note: {note}")


@main.command()
@CONFIG
@click.option("--dry-run", is_flag=True, required=True, help="only say what it would cost; plans are sent by `serve`")
@click.option("--rate", default="10G", show_default=True, metavar="RATE", help="of NICs without endpoints[].speed")
@click.option("--json", "as_json", is_flag=True, help="print the result as JSON")
def plan(config_path: str, dry_run: bool, rate: str, as_json: bool) -> None:
    """What the coming day's throughput tests cost: bytes, minutes, and the effect on a bill by the 95th percentile."""
    from bandwitness.settings import parse_rate

    assert dry_run
    try:
        assumed_bps = int(parse_rate(rate))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--rate") from None
    config = _load(config_path)
    from rich.console import Console

    from collector.app import dry_run as costs
    from collector.planner import PlanError

    try:
        plans, cost = costs.dry_run(config, time.time_ns(), assumed_bps)
    except PlanError as error:
        for problem in error.problems:
            click.echo(f"{config_path}: {problem}", err=True)
        sys.exit(WRONG_USE)
    if as_json:
        click.echo(json.dumps(costs.as_json(plans, cost, assumed_bps), ensure_ascii=False, indent=1))
    else:
        console = Console()
        costs.show(plans, cost, assumed_bps, console if console.is_terminal else Console(width=240))


def _show_score(url: str, query: dict[str, str | None]) -> None:
    """How well bursts agree with marks, below their table."""
    from collector.export.client import ApiError, fetch
    from collector.export.tables import burst_score

    try:
        click.echo(burst_score(fetch(url, "bursts/score", **query)))
    except ApiError as error:
        click.echo(str(error), err=True)
        sys.exit(FAILED)


def _table_command(
    resource: str, help_text: str, *, span: bool, extra: tuple[Callable[[Any], Any], ...] = (), command_name: str = ""
) -> None:
    """Registers a command that prints ``resource`` of the running collector's API, by default under the same name."""

    def command(url: str, as_json: bool, **parameters: Any) -> None:
        from collector.export.client import ApiError, fetch_items

        query = {name.rstrip("_"): value for name, value in parameters.items()}
        active = query.pop("active", False)
        try:
            items = fetch_items(url, resource, **query, active="true" if active else None)
        except ApiError as error:
            click.echo(str(error), err=True)
            sys.exit(FAILED)
        if as_json:
            click.echo(json.dumps(items, ensure_ascii=False, indent=1))
            return
        from collector.export.tables import show

        show(resource, items)
        if resource == "bursts" and not active:
            _show_score(url, query)

    from collector.export.client import DEFAULT_URL

    command.__doc__ = help_text
    options = [
        click.option("--url", default=DEFAULT_URL, show_default=True, help="the collector's HTTP address"),
        click.option("--json", "as_json", is_flag=True, help="print the items as JSON"),
    ]
    if span:
        options += [
            click.option("--from", "from_", metavar="TIME", help="RFC 3339, for example 2026-12-01T19:00:00+08:00"),
            click.option("--to", "to", metavar="TIME", help="RFC 3339, exclusive"),
        ]
    for option in (*extra, *options):
        command = option(command)
    main.command(command_name or resource)(command)


_table_command("nodes", "Nodes and the state of their agents.", span=False)
_table_command("paths", "Paths: loss and delay of the newest window; throughput by window, swing, verdict.", span=False)
_table_command("pairs", "STAMP between nodes: loss there and back, and over how many source ports.", span=True)
_table_command(
    "incidents",
    "What was found, where, since when.",
    span=True,
    extra=(click.option("--active", is_flag=True, help="only those that are open"),),
)
_table_command("carriers", "Carriers (BGP 多线) from each site: targets reached, loss, delay.", span=True)
_table_command("gaps", "What agents did not record, by their own doing: from when to when, and why.", span=True)
_table_command(
    "samples",
    "Round trips of one path, in windows of 10 s.",
    span=True,
    extra=(
        click.option(
            "--path", required=True, metavar="ID", callback=_path_id, help="16 hex digits: the last column of `paths`"
        ),
    ),
)
_table_command(
    "bursts",
    "Checkpoint bursts: who, when, how much, what trainers said of them, when the next is to be expected.",
    span=True,
    extra=(click.option("--active", is_flag=True, help="only those that are on"),),
)
_table_command("lanes", "Whether a lane is really separate: did bursts on it hurt another one?", span=True)
_table_command("traces", "Who answers on the way of each path, hop after hop.", span=True)
_table_command(
    "path-mtus", "The largest packet that each path carries whole, and black holes.", span=True, command_name="mtus"
)
_table_command(
    "route-changes", "Paths that became others: number of routers, or who answers.", span=True, command_name="routes"
)
_table_command("pauses", "Pauses of throughput tests (`pause`, `resume`): where, from when to when, why.", span=True)
_table_command("marks", "What trainers said: checkpoints and the like that began or ended.", span=True)
_table_command("heads", "Daily signed tree heads over the whole log: keep them elsewhere.", span=False)
_table_command("timetable", "Throughput tests planned, and how each ended.", span=True)
_table_command("accounting", "Per pair and window: planned = ok + failed + skipped + lost.", span=True)


@main.command()
@click.argument("src", metavar="SRC")
@click.argument("dst", metavar="DST")
@click.option("--url", default="http://127.0.0.1:7480", show_default=True, help="the collector's HTTP address")
@click.option("--json", "as_json", is_flag=True, help="print what was asked for as JSON")
def trace(src: str, dst: str, url: str, as_json: bool) -> None:
    """Have the paths from the node SRC to the node or target DST traced now. On the collector's own host only.

    The request goes into the node's next plan, which is signed and on record; `traces` shows what comes of it. Paths by
    echo and STAMP can be traced, TCP connects cannot.
    """
    from collector.export.client import ApiError, ask

    try:
        asked = ask(url, "traces", src=src, dst=dst)
    except ApiError as error:
        click.echo(str(error), err=True)
        sys.exit(FAILED)
    if as_json:
        click.echo(json.dumps(asked, ensure_ascii=False, indent=1))
        return
    for item in asked:
        click.echo(f"asked for: {item['request']} ({item['protocol']} path {item['path_id']})")


main.add_command(contention)
main.add_command(pause)
main.add_command(resume)
main.add_command(token)
main.add_command(node)


if __name__ == "__main__":
    main()
