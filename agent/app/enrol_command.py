"""``bandwitness-agent enrol``: gets this node its certificate, and where there is no agent.yaml, that too."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

DEFAULT_STATE = "/var/lib/bandwitness"
MAX_TOKEN_BYTES = 256
STANDARD_INPUT = "-"
EXAMPLE = """\
example, as `bandwitness-collector token create --node gpu-r1-01` prints it:
  bandwitness-agent enrol --collector 10.0.0.1:7444 --ca-fingerprint sha256:4f0c… --token bwe_…

The key is made on this host and stays here. The collector's certificate is checked against the fingerprint before
the token is sent. Run as the agent's user, or as root: then the files are given to the owner of the state directory.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds ``enrol``."""
    parser = commands.add_parser(
        "enrol",
        help="get this node's certificate from the collector, with a token",
        description="Gets this node's certificate from the collector, with a token.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--collector", metavar="HOST:PORT", required=True, help="its enrolment port (default 7444)")
    token = parser.add_mutually_exclusive_group(required=True)
    token.add_argument("--token", metavar="T", help="other users of this host can see it in the list of processes")
    token.add_argument("--token-file", metavar="FILE", help="holds the token; - for standard input")
    parser.add_argument("--ca-fingerprint", metavar="F", required=True, help="sha256:… of the collector's authority")
    parser.add_argument("--config", metavar="FILE", type=Path, default=Path("agent.yaml"), help="default: %(default)s")
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        default=DEFAULT_STATE,
        help="where there is no agent.yaml yet: default %(default)s",
    )
    parser.add_argument(
        "--server-name", metavar="NAME", default="", help="the collector's name in its certificate, if not its address"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(asked: argparse.Namespace) -> int:
    """Exit code: 0 enrolled, 1 not, 2 wrong usage or configuration."""
    from agent.config import enrolled_files, file  # noqa: PLC0415
    from agent.enrol.files import IdentityFilesError, keep, make_request  # noqa: PLC0415
    from agent.enrol.issue import IssueError, enrol  # noqa: PLC0415
    from agent.enrol.pin import PinError, parse_fingerprint, pinned, shown_chain  # noqa: PLC0415
    from agent.secrecy import keep_memory_private  # noqa: PLC0415
    from bandwitness.settings import SettingsError  # noqa: PLC0415

    keep_memory_private()
    try:
        address, fingerprint = file.parse_address(asked.collector), parse_fingerprint(asked.ca_fingerprint)
        token = _token(asked)
        config = file.read(asked.config, enrolling=True) if asked.config.exists() else None
    except (ValueError, OSError, SettingsError) as error:
        print(f"bandwitness-agent enrol: {error}", file=sys.stderr)
        return 2
    base = asked.config.resolve().parent
    state_dir = config.state_dir if config is not None else base / asked.state_dir
    files = enrolled_files(state_dir, asked.server_name)
    try:
        _try_to_write(state_dir)
        ca = pinned(shown_chain(address), fingerprint, address)
        node = config.name if config is not None else ""
        request = make_request(node)
        issued = enrol(address, ca, token=token, node=node, request=request, server_name=asked.server_name)
        keep(files, request, issued.certificate, issued.ca)
        if config is None:
            _write_config(asked, issued.node, f"{_bracketed(address.host)}:{issued.stream_port}")
    except (OSError, PinError, IssueError, IdentityFilesError) as error:
        print(f"bandwitness-agent enrol: {error}", file=sys.stderr)
        return 1
    said = {"ok": True, "node": issued.node, "certificate": str(files.certificate), "config": str(asked.config)}
    print(json.dumps(said) if asked.json else _said(said, config is None))
    return 0


def _said(said: dict[str, Any], wrote: bool) -> str:
    made = f"; wrote {said['config']}" if wrote else ""
    return (
        f"enrolled: this node is {said['node']}, certificate and key in {said['certificate']}{made}\n"
        f"next: bandwitness-agent check --config {said['config']}"
    )


def _token(asked: argparse.Namespace) -> str:
    if asked.token is not None:
        return str(asked.token).strip()
    with sys.stdin.buffer if asked.token_file == STANDARD_INPUT else Path(asked.token_file).open("rb") as source:
        text = source.read(MAX_TOKEN_BYTES + 1)
    if len(text) > MAX_TOKEN_BYTES:
        raise ValueError("--token-file: that is no token")
    return text.decode("ascii", "replace").strip()


def _try_to_write(state_dir: Path) -> None:
    """Before the token is used up."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(state_dir, os.W_OK):
        raise PermissionError(f"{state_dir} cannot be written by this user: run this as its owner, or as root")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _write_config(asked: argparse.Namespace, node: str, collector: str) -> None:
    """Never over a file that is there. Names and addresses were checked, so they need no escaping in YAML."""
    named = f"  identity: {{server_name: {json.dumps(asked.server_name)}}}\n" if asked.server_name else ""
    text = (
        "# Written by `bandwitness-agent enrol`. deploy/examples/agent.yaml shows every key.\n"
        f"agent:\n  name: {json.dumps(node)}\n  state_dir: {json.dumps(asked.state_dir)}\n"
        f"  collectors: [{json.dumps(collector)}]\n{named}"
    )
    with asked.config.open("x", encoding="utf-8") as file:
        file.write(text)
