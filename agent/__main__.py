"""``bandwitness-agent``: arguments, exit codes, logging; nothing else.

Exit codes: 0 fine, 1 the thing asked failed, 2 wrong usage or configuration. Imports stay inside the branch that
needs them, so that ``--help`` and ``check`` answer at once.
"""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent.app import adhoc_command, control_command, enrol_command, mark_command

if TYPE_CHECKING:
    from agent.config import AgentConfig

EXAMPLES = """\
examples:
  bandwitness-agent check --config /etc/bandwitness/agent.yaml
  bandwitness-agent check --config agent.yaml --json
  bandwitness-agent run --config /etc/bandwitness/agent.yaml
  bandwitness-agent enrol --collector 10.0.0.1:7444 --ca-fingerprint sha256:… --token bwe_…
  bandwitness-agent probe ping 10.0.1.12
  bandwitness-agent mark begin --kind checkpoint --job llm-7b --step 500

exit codes: 0 fine, 1 the thing asked failed, 2 wrong usage or configuration
"""


class OneLine(logging.Formatter):
    """One line per event: UTC time, level, name, message; line breaks inside shown as ``\\n``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")

    @staticmethod
    def converter(seconds: float | None = None) -> time.struct_time:
        return time.gmtime(seconds)

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).replace("\n", "\\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bandwitness-agent",
        description="Measures the network from this host and reports to a Bandwitness collector.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, summary in (
        ("run", "measure and report until SIGTERM or SIGINT"),
        ("check", "validate the file and this host: every fault with its line, or its cure"),
    ):
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[:1].upper() + summary[1:] + ".",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("--config", metavar="FILE", type=Path, required=True, help="agent.yaml")
        if name == "check":
            command.add_argument("--json", action="store_true", help="print one JSON object")
    adhoc_command.add_parsers(commands)
    mark_command.add_parser(commands)
    control_command.add_parsers(commands)
    enrol_command.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and gives the exit code. Errors of usage leave through SystemExit(2)."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.version:
        from bandwitness import VERSION

        print(f"bandwitness-agent {VERSION}")
        return 0
    if asked.command is None:
        parser.error("a command is needed: run, check, enrol, probe, mark, pause, resume or status")
    if asked.command == "probe":
        return adhoc_command.run(asked)
    if asked.command in control_command.COMMANDS:
        return control_command.run(asked)
    if asked.command == "enrol":
        return enrol_command.run(asked)
    if asked.command == "mark":
        return mark_command.run(asked)
    if asked.command == "check":
        return _check(asked.config, as_json=asked.json)
    return _run(asked.config)


def _check(path: Path, *, as_json: bool) -> int:
    import json

    from agent.config import file
    from bandwitness.settings import SettingsError

    try:
        read = file.read(path)
    except SettingsError as error:
        if as_json:
            faults = [
                {"line": fault.line, "column": fault.column, "key": fault.key, "message": fault.message}
                for fault in error.faults
            ]
            print(json.dumps({"ok": False, "file": str(path), "faults": faults, "checks": []}, ensure_ascii=False))
        else:
            print(error, file=sys.stderr)
        return 2
    from agent.app import check

    findings = check.check_host(read)
    ok = all(finding.level != "fault" for finding in findings)
    if as_json:
        document = {"ok": ok, "file": str(path), "faults": [], "checks": check.as_json(findings)}
        print(json.dumps(document, ensure_ascii=False))
    else:
        print(f"ok      {path}: valid")
        for finding in findings:
            print(finding)
    return 0 if ok else 1


def _run(path: Path) -> int:
    from agent.config.apart import RefusedError, read_apart

    try:
        read = read_apart(path)
    except RefusedError as error:
        print(error, file=sys.stderr)
        return 2
    _log_to_stderr(read)
    from agent.app.run import run
    from agent.app.start import StartError
    from agent.secrecy import keep_memory_private

    keep_memory_private()
    try:
        run(read)
    except StartError as error:
        logging.getLogger("bandwitness.agent").error("cannot start: %s", error)
        return 1
    return 0


def _log_to_stderr(config: "AgentConfig") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler])
    logging.captureWarnings(True)
    for talker in ("asyncio", "grpc"):  # theirs are about themselves, even at debug
        logging.getLogger(talker).setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
