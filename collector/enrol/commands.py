"""``bandwitness-collector token …`` and ``node …``: ask the running collector over its own socket."""

import json
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

FAILED = 1
WRONG_USE = 2
PLACES = ("collector.yaml", "/etc/bandwitness/collector.yaml")
CONFIG = click.option("--config", "config_path", metavar="FILE", help=f"default: the first there is of {PLACES}")
JSON = click.option("--json", "as_json", is_flag=True, help="print the result as JSON")


def _ask(config_path: str | None, word: str, **values: Any) -> dict[str, Any]:
    from bandwitness.settings import SettingsError  # noqa: PLC0415 - --help must not wait for heavy imports
    from collector.config import load_config  # noqa: PLC0415
    from collector.enrol.admin import AdminError, ask  # noqa: PLC0415

    path = config_path or next((place for place in PLACES if Path(place).exists()), PLACES[0])
    try:
        return ask(Path(load_config(path).collector.state_dir), word, **values)
    except SettingsError as error:
        click.echo(str(error), err=True)
        sys.exit(WRONG_USE)
    except AdminError as error:
        click.echo(str(error), err=True)
        sys.exit(FAILED)


@click.group()
def token() -> None:
    """Tokens: each enrols one node once, or reads over HTTP.

    The text of a token is shown when it is made and never again; the collector keeps its hash.
    """


@token.command()
@CONFIG
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="as in collector.yaml; several are fine")
@click.option("--all", "every", is_flag=True, help="for every node that was never enrolled")
@click.option("--read", is_flag=True, help="for readers of the HTTP interface instead: counts until it is revoked")
@click.option("--ttl", metavar="DURATION", help="how long it counts; default 24h, with --read for ever")
@JSON
def create(
    config_path: str | None, *, nodes: tuple[str, ...], every: bool, read: bool, ttl: str | None, as_json: bool
) -> None:
    """Make tokens, and print the command that each node is given."""
    if read == bool(nodes or every) or (nodes and every):
        raise click.UsageError("give --node NAME, --all or --read")
    ttl_ns = _duration(ttl) if ttl else None
    made = _ask(config_path, "token_create", nodes=list(nodes), all=every, read=read, ttl_ns=ttl_ns)
    if as_json:
        click.echo(json.dumps(made, ensure_ascii=False, indent=1))
        return
    for one in made["tokens"]:
        until = f"until {_when(one['expiry_ns'])}" if one["expiry_ns"] else "until it is revoked"
        if read:
            click.echo(f"# read token {one['id']}, {until}; send it as Authorization: Bearer …", err=True)
            click.echo(one["token"])
            continue
        click.echo(f"# on {one['node']}, once, {until}")
        click.echo(
            f"bandwitness-agent enrol --collector {made['address']} --ca-fingerprint {made['ca_fingerprint']}"
            f" --token {one['token']}"
        )


@token.command("list")
@CONFIG
@JSON
def list_tokens(config_path: str | None, as_json: bool) -> None:
    """All tokens of the last month and what became of them."""
    found = _ask(config_path, "token_list")["tokens"]
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False, indent=1))
        return
    _table(
        found,
        {
            "id": lambda one: one["id"],
            "for": lambda one: one["node"] or one["kind"],
            "made": lambda one: _when(one["created_ns"]),
            "until": lambda one: _when(one["expiry_ns"]),
            "state": lambda one: one["state"],
        },
    )


@token.command("revoke")
@CONFIG
@click.argument("token_id", metavar="ID")
def revoke_token(config_path: str | None, token_id: str) -> None:
    """The token ID opens nothing any more."""
    _ask(config_path, "token_revoke", id=token_id)
    click.echo(f"revoked: token {token_id}")


@click.group()
def node() -> None:
    """Who may speak for a node."""


@node.command("list")
@CONFIG
@JSON
def list_nodes(config_path: str | None, as_json: bool) -> None:
    """Nodes, where their certificates come from and until when they count."""
    found = _ask(config_path, "node_list")["nodes"]
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False, indent=1))
        return
    _table(
        found,
        {
            "node": lambda one: one["node"],
            "identity": lambda one: one["identity"],
            "since": lambda one: _when(one["since_ns"]),
            "certificate until": lambda one: _when(one["expiry_ns"]),
            "agent": lambda one: "connected" if one["connected"] else "away",
            "reason": lambda one: one["reason"],
        },
    )


@node.command("revoke")
@CONFIG
@click.argument("name", metavar="NODE")
@click.option("--reason", default="", metavar="TEXT", help="goes on record, and is told to the agent")
def revoke_node(config_path: str | None, name: str, reason: str) -> None:
    """No certificate of NODE counts any more: its stream ends, and it is refused until it is enrolled anew."""
    _ask(config_path, "node_revoke", node=name, reason=reason)
    click.echo(f"revoked: {name}. A new token lets it in again: token create --node {name}")


@node.command()
@CONFIG
@click.argument("name", metavar="NODE")
@click.option("--certificate", required=True, type=click.File("rb"), metavar="FILE", help="in PEM, of your authority")
def admit(config_path: str | None, name: str, certificate: Any) -> None:
    """NODE is who shows this certificate, and no earlier one. For certificates that are made elsewhere."""
    _ask(config_path, "node_admit", node=name, certificate=certificate.read(65_536).decode("ascii", "replace"))
    click.echo(f"admitted: {name}, with this certificate only")


def _duration(text: str) -> int:
    from bandwitness.settings import parse_duration  # noqa: PLC0415

    try:
        return int(parse_duration(text))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--ttl") from None


def _when(ns: int | None) -> str:
    if not ns:
        return "–"
    return f"{datetime.fromtimestamp(ns // 1_000_000_000).astimezone():%Y-%m-%d %H:%M %z}"


def _table(rows: list[dict[str, Any]], columns: dict[str, Callable[[dict[str, Any]], str]]) -> None:
    cells = [list(columns), *[[show(row) or "–" for show in columns.values()] for row in rows]]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
