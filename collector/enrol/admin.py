"""What the operator asks of the running collector: ``admin.sock`` in the state directory, mode 0600.

Not over HTTP: whoever may connect to loopback is not yet the operator, whoever may open the state directory is. One
line of JSON each way: ``{"do": "token_create", …}``; the answer is an object, with ``error`` where it could not be
done.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

SOCKET_FILE = "admin.sock"
MAX_REQUEST_BYTES = 64 * 1024
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_CONNECTIONS = 8
WITHIN_S = 60.0

Action = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class AdminError(RuntimeError):
    """The running collector could not be asked, or refused; the text says why."""


@contextlib.contextmanager
def _named(path: Path) -> Iterator[str]:
    """A name for the socket that fits into the 107 bytes of unix(7), however deep the directory lies."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


class Admin:
    """The socket. ``actions`` by the word in ``do``; each raises what the operator should read."""

    def __init__(self, path: Path, actions: Mapping[str, Action]) -> None:
        self._path = path
        self._actions = actions
        self._connections = 0

    async def run(self) -> None:
        """Answers until cancelled. The log is locked by this process, so whatever socket is there is nobody's.

        Raises:
            OSError: the socket cannot be opened.
        """
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            os.fchmod(listener.fileno(), 0o600)  # bind keeps it: there is no moment at which others may connect
            with _named(self._path) as name:
                listener.bind(name)
            server = await asyncio.start_unix_server(self._serve, sock=listener, limit=MAX_REQUEST_BYTES)
        except BaseException:
            listener.close()
            raise
        try:
            await asyncio.Event().wait()
        finally:
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
                        answer = await self._answer(await reader.readuntil(b"\n"))
                    writer.write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
                    await writer.drain()
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, line: bytes) -> Mapping[str, Any]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return {"error": "a JSON object in one line is expected"}
        word = request.get("do") if isinstance(request, dict) else None
        action = self._actions.get(word) if isinstance(word, str) else None
        if action is None:
            return {"error": f"do: one of {', '.join(self._actions)} is expected"}
        try:
            return await action(request)
        except Exception as error:  # noqa: BLE001 - whoever asked hears of it, the collector goes on
            return {"error": str(error) or type(error).__name__}


def ask(state_dir: Path, word: str, **values: Any) -> dict[str, Any]:
    """One question to the collector that runs on ``state_dir``.

    Raises:
        AdminError: none runs there, this user may not ask it, or it refused.
    """
    path = state_dir / SOCKET_FILE
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(WITHIN_S)
            with _named(path) as name:
                asking.connect(name)
            asking.sendall(json.dumps({"do": word, **values}).encode() + b"\n")
            with asking.makefile("rb") as reader:
                answer = json.loads(reader.readline(MAX_ANSWER_BYTES))
    except (FileNotFoundError, ConnectionRefusedError):
        raise AdminError(f"no collector runs on {state_dir}: start it, or name its file with --config") from None
    except (OSError, ValueError) as error:
        words = f"{path}: {getattr(error, 'strerror', None) or error}: ask as the collector's user, or as root"
        raise AdminError(words) from None
    if not isinstance(answer, dict) or "error" in answer:
        raise AdminError(str(answer["error"]) if isinstance(answer, dict) else "no answer")
    return answer
