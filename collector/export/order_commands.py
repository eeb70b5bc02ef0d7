"""Commands that ask the running collector to do something, on its own host."""

import json
import sys
from typing import Any

import click

from bandwitness.settings import parse_duration
from collector.export.client import DEFAULT_URL, ApiError, ask

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
