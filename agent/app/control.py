"""The agent's own socket, ``control.sock`` in the state directory (mode 0600): pause, resume, status.

One request a connection, one line each way: ``{"do": "pause", "reason": "…"}``, ``{"do": "resume"}`` or
``{"do": "status"}``; the answer is a JSON object, with ``error`` where it could not be done.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent.clock import Clock
from agent.result import PartState

MAX_REQUEST_BYTES = 4096
MAX_CONNECTIONS = 8
WITHIN_S = 5.0

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Control:
    """The part ``control``.

    Args:
        path: of the socket.
        clock: for the wait after a failure.
        actions: by the word in ``do``; given the request.
    """

    def __init__(self, path: Path, clock: Clock, actions: Mapping[str, Answer]) -> None:
        self._path = path
        self._clock = clock
        self._actions = actions
        self._connections = 0
        self._listening = False

    def state(self) -> PartState:
        return PartState("control", True, "ok" if self._listening else "starting")

    async def run(self) -> None:
        """Answers until cancelled. The spool is locked by this process, so whatever socket is there is nobody's.

        Raises:
            OSError: the socket cannot be opened.
        """
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            os.fchmod(listener.fileno(), 0o600)  # bind keeps it: there is no moment at which others may connect
            listener.bind(str(self._path))
            server = await asyncio.start_unix_server(self._serve, sock=listener, limit=MAX_REQUEST_BYTES)
        except BaseException:
            listener.close()
            raise
        self._listening = True
        try:
            await asyncio.Event().wait()
        finally:
            self._listening = False
            server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(WITHIN_S):
                    if self._connections > MAX_CONNECTIONS:
                        answer: Mapping[str, Any] = {"error": "too many ask at once"}
                    else:
                        answer = self._answer(await reader.readuntil(b"\n"))
                    writer.write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
                    await writer.drain()
        finally:
            self._connections -= 1
            writer.close()

    def _answer(self, line: bytes) -> Mapping[str, Any]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return {"error": "a JSON object in one line is expected"}
        word = request.get("do") if isinstance(request, dict) else None
        action = self._actions.get(word) if isinstance(word, str) else None
        if action is None:
            return {"error": f"do: one of {', '.join(self._actions)} is expected"}
        try:
            return action(request)
        except Exception as error:  # noqa: BLE001 - whoever asked hears of it, the agent goes on
            return {"error": f"{type(error).__name__}: {error}"}
