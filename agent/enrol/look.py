"""Looks at the certificate, and renews it when two thirds of its time are over.

A program (``python -P -m agent.enrol.look``), the child of ``renewing``: what reads certificates stays out of the
memory of an agent that runs for months. A JSON object on standard input says what is there, one on standard output
what came of it.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.config import Address, IdentityFiles
from agent.enrol.files import IdentityFilesError, Request, keep, make_request, validity
from agent.enrol.issue import IssueError, renew
from agent.secrecy import keep_memory_private
from bandwitness.v1.uplink_pb2 import IssuedIdentity

LOOK_EVERY_S = 6 * 3600.0
RETRY_AT_MOST_S = 3600.0
SOON_S = 14 * 86_400.0

Renew = Callable[[Address, IdentityFiles, Request], IssuedIdentity]


@dataclass(frozen=True, slots=True)
class Looked:
    """What is so, and in how many seconds to look again."""

    working: bool
    state: str
    detail: str
    again_s: float


def look(
    files: IdentityFiles,
    collectors: Sequence[Address],
    *,
    renewable: bool,
    now_s: float,
    spread: float = 0.0,
    ask: Renew = renew,
) -> Looked:
    """Looks once.

    Args:
        files: the identity in use.
        collectors: asked in turn.
        renewable: the files are ours to replace.
        now_s: wall clock.
        spread: 0 to 1, at random: so that nodes enrolled together do not renew together.
        ask: for the next certificate.
    """
    try:
        start, end = (moment.timestamp() for moment in validity(files.certificate.read_bytes()))
    except (OSError, ValueError) as error:
        return Looked(False, "identity_unreadable", f"{files.certificate}: {error}", 60)
    left_s, until = end - now_s, time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(end))
    if left_s <= 0:
        cure = "enrol again with a new token" if renewable else "make it anew"
        return Looked(False, "certificate_expired", f"{files.certificate} has expired on {until}: {cure}", 60)
    if not renewable:
        soon = left_s < SOON_S
        return Looked(not soon, "expires_soon" if soon else "ok", f"certificate until {until}", LOOK_EVERY_S)
    due_s = start + (2 + 0.2 * spread) / 3 * (end - start) - now_s
    if due_s > 0:
        return Looked(True, "ok", f"certificate until {until}", min(due_s, LOOK_EVERY_S))
    troubles = []
    for address in collectors:
        try:
            request = make_request("")
            issued = ask(address, files, request)
            keep(files, request, issued.certificate, issued.ca)
        except (IssueError, IdentityFilesError, OSError) as error:
            troubles.append(str(error))
            continue
        start, end = (moment.timestamp() for moment in validity(issued.certificate))
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(end))
        again_s = max(1.0, min(LOOK_EVERY_S, start + (2 + 0.2 * spread) / 3 * (end - start) - now_s))
        return Looked(True, "ok", f"certificate renewed, until {until}", again_s)
    detail = f"the certificate ends on {until} and cannot be renewed: {'; '.join(troubles)}"
    return Looked(False, "renewal_failing", detail, min(RETRY_AT_MOST_S, max(1.0, left_s / 20)))


def main() -> None:
    """Once; the spread comes from the parent, which keeps it."""
    keep_memory_private()
    asked = json.load(sys.stdin)
    found = look(
        IdentityFiles(Path(asked["ca"]), Path(asked["certificate"]), Path(asked["key"]), asked["server_name"]),
        [Address(host, port) for host, port in asked["collectors"]],
        renewable=asked["renewable"],
        now_s=time.time(),
        spread=asked.get("spread", random.random()),  # noqa: S311
    )
    json.dump(asdict(found), sys.stdout)


if __name__ == "__main__":
    main()
