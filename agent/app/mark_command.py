"""``bandwitness-agent mark``: tells the agent of this host that something begins or ends. Never waits for anybody.

For scripts; a trainer in Python takes ``proto/mark/bandwitness_mark.py``. What it needs is imported when it runs.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence

SOCKET_VARIABLE = "BANDWITNESS_MARK_SOCKET"
DEFAULT_SOCKET = "/run/bandwitness/mark.sock"  # as agent.sample.mark has it, which is too heavy to ask
# Environment -> label, as in proto/mark/bandwitness_mark.py.
LABELS = {
    "SLURM_JOB_ID": "slurm_job_id",
    "SLURM_JOB_NAME": "slurm_job_name",
    "SLURM_JOB_PARTITION": "slurm_partition",
    "SLURM_NODEID": "slurm_node_id",
    "SLURM_PROCID": "slurm_proc_id",
}
EXAMPLES = """\
examples:
  bandwitness-agent mark begin --kind checkpoint --job llm-7b --step 500
  bandwitness-agent mark end   --kind checkpoint --job llm-7b --step 500 --bytes 141000000000
  bandwitness-agent mark begin --kind restore --quiet           (in a prolog: exit 0 whether an agent listens or not)

Under Slurm the job (SLURM_JOB_ID) and its labels are found by themselves. The socket is --socket, or what
BANDWITNESS_MARK_SOCKET says, or /run/bandwitness/mark.sock.

exit codes: 0 handed to the agent, 1 nobody listens or its queue is full, 2 wrong usage
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds ``mark``."""
    summary = "tell the agent of this host that a checkpoint begins or ends; returns at once"
    parser = commands.add_parser(
        "mark",
        help=summary,
        description=summary[:1].upper() + summary[1:] + ".",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("phase", choices=("begin", "end"))
    parser.add_argument("--kind", required=True, help="checkpoint, restore, evaluation …")
    parser.add_argument("--job", metavar="J", help="name or id of the job (default: SLURM_JOB_ID)")
    parser.add_argument("--step", type=_whole, metavar="N", help="training step")
    parser.add_argument("--bytes", type=_whole, metavar="B", help="that this rank writes or reads")
    parser.add_argument("--rank", type=_whole, metavar="R")
    parser.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="may be given several times")
    parser.add_argument("--socket", metavar="PATH", help=f"of the agent (default: {DEFAULT_SOCKET})")
    parser.add_argument("--quiet", action="store_true", help="exit 0 and say nothing where no agent listens")


def run(asked: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> int:
    """Sends the mark and gives the exit code."""
    from agent.sample.mark_datagram import DatagramError, parse  # noqa: PLC0415

    try:
        data = _datagram(asked, environment)
        parse(data)
    except (DatagramError, UnicodeEncodeError) as error:
        print(f"bandwitness-agent mark: {error}", file=sys.stderr)
        return 2
    path = asked.socket or environment.get(SOCKET_VARIABLE) or DEFAULT_SOCKET
    fault = send(data, path)
    if not fault or asked.quiet:
        return 0
    print(f"bandwitness-agent mark: {fault}", file=sys.stderr)
    return 1


def _datagram(asked: argparse.Namespace, environment: Mapping[str, str]) -> bytes:
    import json  # noqa: PLC0415

    found = {name: environment[variable] for variable, name in LABELS.items() if environment.get(variable)}
    message = {
        "v": 1,
        "phase": asked.phase,
        "kind": asked.kind,
        "job": asked.job if asked.job is not None else environment.get("SLURM_JOB_ID"),
        "step": asked.step,
        "bytes": asked.bytes,
        "rank": asked.rank,
        "time_ns": time.time_ns(),
        "labels": found | dict(_pairs(asked.label)),
    }
    present = {name: value for name, value in message.items() if value is not None}
    return json.dumps(present, ensure_ascii=False).encode()


def _pairs(labels: Sequence[str]) -> Sequence[tuple[str, str]]:
    return [(name, value) for name, _, value in (label.partition("=") for label in labels)]


def send(data: bytes, path: str) -> str:
    """Hands a datagram over without waiting. Why it could not be; empty when it could."""
    import socket  # noqa: PLC0415

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.sendto(data, path)
    except BlockingIOError:
        return f"the queue of the agent on {path} is full: not said"
    except (FileNotFoundError, ConnectionRefusedError):
        return (
            f"no agent listens on {path}: is it running? One that listens elsewhere says where, as 'marks' of "
            f"'bandwitness-agent status --config …': give that by --socket or {SOCKET_VARIABLE}"
        )
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return ""


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}: a whole number is expected")
    return int(text)
