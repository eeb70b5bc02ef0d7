"""``bandwitness-agent pause``, ``resume`` and ``status``: ask the agent that runs on this host."""

import argparse
import json
import socket
import sys
from pathlib import Path
from typing import Any

WITHIN_S = 10.0
MAX_ANSWER_BYTES = 1 << 20
SOCKET_FILE = "control.sock"
EXAMPLES = """\
examples:
  bandwitness-agent pause --config /etc/bandwitness/agent.yaml --reason "acceptance test of rack r1"
  bandwitness-agent resume --config /etc/bandwitness/agent.yaml
  bandwitness-agent status --config /etc/bandwitness/agent.yaml --json

A pause lasts until it is taken back, also through a restart of the agent. Probes and counters go on.

exit codes: 0 done, 1 the agent does not run or could not do it, 2 wrong usage or configuration
"""
COMMANDS = {
    "pause": "stop throughput tests on this host within a second, until resume",
    "resume": "let throughput tests run again",
    "status": "what the agent on this host is doing",
}


def add_parsers(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the three."""
    for name, summary in COMMANDS.items():
        parser = commands.add_parser(
            name,
            help=summary,
            description=summary[:1].upper() + summary[1:] + ".",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--config", metavar="FILE", type=Path, required=True, help="agent.yaml")
        if name == "pause":
            parser.add_argument("--reason", default="", help="is recorded with each test that is left out")
        parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(asked: argparse.Namespace) -> int:
    """Asks, prints, and gives the exit code."""
    from agent.config import file  # noqa: PLC0415
    from bandwitness.settings import SettingsError  # noqa: PLC0415

    try:
        config = file.read(asked.config)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    request = {"do": asked.command} | ({"reason": asked.reason} if asked.command == "pause" else {})
    path = config.state_dir / SOCKET_FILE
    try:
        answer = ask(path, request)
    except (FileNotFoundError, ConnectionRefusedError):
        answer = {"error": f"no agent runs on {config.state_dir}"}
    except (OSError, ValueError) as error:
        answer = {"error": f"{path}: {getattr(error, 'strerror', None) or error}"}
    if asked.json:
        print(json.dumps(answer, ensure_ascii=False))
    elif "error" in answer:
        print(f"bandwitness-agent {asked.command}: {answer['error']}", file=sys.stderr)
    else:
        for line in show(answer):
            print(line)
    return 1 if "error" in answer else 0


def ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """One question.

    Raises:
        OSError: nobody is there, or may be asked by this user.
        ValueError: what came is no answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(WITHIN_S)
        asking.connect(str(path))
        asking.sendall(json.dumps(request).encode() + b"\n")
        with asking.makefile("rb") as reader:
            answer = json.loads(reader.readline(MAX_ANSWER_BYTES))
    if not isinstance(answer, dict):
        raise ValueError("no JSON object")
    return answer


def show(answer: dict[str, Any]) -> list[str]:
    """The answer for people."""
    lines = []
    for name, value in answer.items():
        if name == "parts":
            lines += [
                f"{part['part']:16} {part['state']}{' (' + part['detail'] + ')' if part['detail'] else ''}"
                for part in value
            ]
        elif isinstance(value, list):
            lines += [f"{name:16} {entry}" for entry in value] or [f"{name:16} none"]
        elif isinstance(value, dict):
            lines.append(
                f"{name:16} " + ", ".join(f"{key} {entry}" for key, entry in value.items() if entry is not None)
            )
        else:
            lines.append(f"{name:16} {'–' if value is None or value == '' else value}")
    return lines
