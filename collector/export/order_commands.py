"""Commands that ask the running collector to do something, on its own host."""

import json
import sys
from typing import Any

import click

from bandwitness.settings import parse_duration
from collector.export.client import DEFAULT_URL, ApiError, ask, fetch_items

FAILED = 1


def _asked(url: str, resource: str, parameters: dict[str, str | None]) -> list[dict[str, Any]]:
    try:
        return ask(url, resource, **{name: value for name, value in parameters.items() if value is not None})
    except ApiError as error:
        click.echo(str(error), err=True)
        sys.exit(FAILED)


def _scope(site: str | None, everywhere: bool) -> dict[str, str | None]:
    if (site is None) == (not everywhere):
        raise click.UsageError("say either --site S or --all")
    return {"site": site, "all": "true" if everywhere else None}


_SITE = click.option("--site", metavar="S", help="at this site")
_ALL = click.option("--all", "everywhere", is_flag=True, help="at all sites")
_REASON = click.option("--reason", default="", metavar="TEXT", help="goes on record")
_URL = click.option("--url", default=DEFAULT_URL, show_default=True, help="the collector's HTTP address")
_JSON = click.option("--json", "as_json", is_flag=True, help="print what was written as JSON")


@click.command()
@_SITE
@_ALL
@click.option("--for", "duration", metavar="DURATION", help="such as 2h or 30m; without it until `resume`")
@_REASON
@_URL
@_JSON
def pause(duration: str | None, reason: str, url: str, as_json: bool, **scope: Any) -> None:
    """The kill switch: end throughput tests now, and let none begin. On the collector's own host only.

    The word is on record before it takes effect. Agents that are connected end their tests within two seconds;
    probes go on. A test left out is recorded as skipped_paused, one ended as aborted_paused.
    """
    for_s = None
    if duration is not None:
        try:
            for_s = f"{parse_duration(duration) / 1e9:.9f}"
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--for") from None
    parameters = {**_scope(**scope), "for_s": for_s, "reason": reason or None}
    for item in _shown(_asked(url, "pauses", parameters), as_json):
        until = f"until {item['until_time']}" if item["until_time"] else "until resumed"
        click.echo(f"paused: {item['site'] or 'all sites'}, {until}; {item['plans']} plans changed")


@click.command()
@_SITE
@_ALL
@_REASON
@_URL
@_JSON
def resume(site: str | None, everywhere: bool, reason: str, url: str, as_json: bool) -> None:
    """Let throughput tests go on after `pause`. On the collector's own host only."""
    parameters = {**_scope(site, everywhere), "reason": reason or None}
    for item in _shown(_asked(url, "resumes", parameters), as_json):
        still = f"; still paused: {item['still_paused']}" if item["still_paused"] else ""
        click.echo(f"resumed: {item['site'] or 'all sites'}; {item['plans']} plans changed{still}")


def _shown(items: list[dict[str, Any]], as_json: bool) -> list[dict[str, Any]]:
    """What is left to show in words."""
    if not as_json:
        return items
    click.echo(json.dumps(items, ensure_ascii=False, indent=1))
    return []


@click.group()
def contention() -> None:
    """What a rack's uplink carries: many of its hosts send at once. Needs permissions: in collector.yaml."""


def _contention_options(command: Any) -> Any:
    for option in (
        _JSON,
        _URL,
        click.option("--lane", metavar="LANE", help="of the hosts; without it the one with most of them"),
        click.option("--repeats", default=3, show_default=True, type=click.IntRange(1, 20)),
        click.option("--rack", required=True, metavar="R", help="whose uplink"),
        click.option("--site", required=True, metavar="S"),
    ):
        command = option(command)
    return command


@contention.command("plan")
@_contention_options
def contention_plan(url: str, as_json: bool, **parameters: Any) -> None:
    """What such a test would be: runs, bytes, effect on a 95th-percentile bill. Sends nothing."""
    _contention(url, as_json, dry_run=True, **parameters)


@contention.command("start")
@_contention_options
def contention_start(url: str, as_json: bool, **parameters: Any) -> None:
    """Order it: on record with its permission, then in the plans. It begins when notice and hours allow."""
    _contention(url, as_json, dry_run=False, **parameters)


def _contention(url: str, as_json: bool, *, dry_run: bool, **parameters: Any) -> None:
    query = {name: None if value is None else str(value) for name, value in parameters.items()}
    for item in _shown(_asked(url, "contention", query | {"dry_run": str(dry_run).lower()}), as_json):
        word = "ordered" if item["ordered"] else "would be"
        click.echo(
            f"{word}: {item['runs']} runs in {len(item['groups'])} groups from {item['start_time']} to "
            f"{item['end_time']}, permitted by {item['approver']}"
        )
        click.echo(f"at most {item['bytes'] / 1e9:.2f} GB of {item['byte_cap'] / 1e9:.2f} GB permitted")
        for link in item["links"]:
            if not link["token"].startswith("nic:"):
                click.echo(
                    f"{link['token']}: {link['bill_windows']} windows of five minutes of a 95th-percentile bill, "
                    f"at most {link['added_bps'] / 1e6:.1f} Mbit/s more in one"
                )
        for note in item["notes"]:
            click.echo(f"note: {note}")


@contention.command("results")
@_URL
@_JSON
@click.option("--from", "from_", metavar="TIME", help="RFC 3339; without it 90 days back")
@click.option("--to", "to", metavar="TIME", help="RFC 3339, exclusive")
def contention_results(url: str, as_json: bool, from_: str | None, to: str | None) -> None:
    """What tests showed: solo rates, sums, knee, the uplink's rate, the delivered fraction, the control."""
    from collector.export.tables import show  # noqa: PLC0415 - rich is for those that print

    try:
        items = fetch_items(url, "contention", **{"from": from_, "to": to})
    except ApiError as error:
        click.echo(str(error), err=True)
        sys.exit(FAILED)
    if as_json:
        click.echo(json.dumps(items, ensure_ascii=False, indent=1))
    else:
        show("contention", items)
