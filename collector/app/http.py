"""The HTTP listener: uvicorn in the collector's own event loop, on a socket opened here or inherited."""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from collector.config import parse_listen

_BACKLOG = 128
_CLOSE_WITHIN_S = 2


class HttpListenError(RuntimeError):
    """The address or the inherited socket cannot be used; the text says why."""


def listening_socket(http_listen: str) -> socket.socket:
    """A listening socket for ``host:port``, or the inherited one of ``fd:N``.

    Raises:
        HttpListenError: the address is taken or not this host's; the descriptor is no listening TCP socket.
    """
    if http_listen.startswith("fd:"):
        return _inherited(http_listen)
    host, port = parse_listen(http_listen)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise HttpListenError(f"collector.http_listen: cannot listen on {http_listen}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def _inherited(http_listen: str) -> socket.socket:
    number = int(http_listen.removeprefix("fd:"))
    try:
        listener = socket.socket(fileno=number)
    except OSError as error:
        words = f"collector.http_listen: {http_listen}: no inherited socket has this number: {error.strerror}"
        raise HttpListenError(words) from error
    listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if not listens or listener.family not in (socket.AF_INET, socket.AF_INET6):
        listener.detach()
        raise HttpListenError(f"collector.http_listen: {http_listen}: not a listening TCP socket")
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """``http://127.0.0.1:7480``."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class HttpServer(uvicorn.Server):
    """Uvicorn without hands on the process's signals and logs."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=_CLOSE_WITHIN_S,
                server_header=False,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
