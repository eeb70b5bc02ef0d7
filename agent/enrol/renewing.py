"""The part ``identity``: has the certificate looked at, and renewed in time, by a child process."""

import asyncio
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agent.clock import Clock
from agent.config import Address, IdentityFiles
from agent.result import PartState

CHILD_WITHIN_S = 300.0
MAX_ANSWER_BYTES = 64 * 1024
SECOND_NS = 1_000_000_000
RETRY_NS = 60 * SECOND_NS

Look = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class Renewing:
    """See the module.

    Args:
        files: the identity in use; None: plain text.
        renewable: the files came from an enrolment and are ours to replace.
        collectors: asked in turn.
        clock: waits go by it.
        look: the child.
    """

    def __init__(
        self,
        files: IdentityFiles | None,
        *,
        renewable: bool,
        collectors: Sequence[Address],
        clock: Clock,
        look: Look | None = None,
    ) -> None:
        self._files = files
        self._renewable = renewable
        self._collectors = collectors
        self._clock = clock
        self._look = look or _in_a_child
        self._state = PartState("identity", True, "starting" if files else "ok", "" if files else "plain text")

    def state(self) -> PartState:
        return self._state

    async def run(self) -> None:
        """Looks for ever, when it is time."""
        files = self._files
        if files is None:
            await asyncio.Event().wait()
            return
        asked = {
            "ca": str(files.ca),
            "certificate": str(files.certificate),
            "key": str(files.key),
            "server_name": files.server_name,
            "collectors": [(address.host, address.port) for address in self._collectors],
            "renewable": self._renewable,
            "spread": random.random(),  # noqa: S311 - no secret
        }
        while True:
            try:
                found = await self._look(asked)
                self._state = PartState("identity", bool(found["working"]), str(found["state"]), str(found["detail"]))
                wait_ns = round(float(found["again_s"]) * SECOND_NS)
            except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
                self._state = PartState("identity", False, "failed", f"the certificate cannot be looked at: {error}")
                wait_ns = RETRY_NS
            await self._clock.sleep_until(self._clock.monotonic_ns() + max(SECOND_NS, wait_ns))


async def _in_a_child(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """``agent.enrol.look`` in a process of its own.

    Raises:
        OSError, TimeoutError, ValueError: it could not be started, does not end, or says nothing of use.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "agent.enrol.look",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        async with asyncio.timeout(CHILD_WITHIN_S):
            answer, errors = await child.communicate(json.dumps(asked).encode())
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    if child.returncode:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise ValueError(f"exit status {child.returncode}: {last[:200]}")
    found = json.loads(answer[:MAX_ANSWER_BYTES])
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found
