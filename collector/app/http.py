"""The HTTP listener: uvicorn in the collector's own event loop, on a socket opened here or inherited.

Whoever can reach the socket can open connections and say nothing. They are limited in number and in time, because
each holds a descriptor, and agents need those.
"""

import asyncio
import contextlib
import functools
import logging
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from collector.app.https import Handshakes, HttpsFiles
from collector.config import HttpTls, parse_listen
from collector.export.guard import App

_BACKLOG = 64
_CLOSE_WITHIN_S = 2
MAX_CONNECTIONS = 128
HEADER_WITHIN_S = 10.0  # from the connection, or the answer before, to the end of a request's header
ANSWER_WITHIN_S = 60.0  # from there until the answer is taken

# Uvicorn's own words: starts and stops, and a line for every request that is not HTTP.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


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


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """``http://127.0.0.1:7480``."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this host can connect."""
    return ip_address(str(listener.getsockname()[0]).partition("%")[0]).is_loopback


class _Connection(H11Protocol):
    """A connection that is closed when its client takes too long, or to make room for another."""

    def __init__(self, *args: Any, header_within_s: float, max_connections: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_within_s = header_within_s
        self._max_connections = max_connections
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """No request of it is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def deadline_s(self) -> float:
        """On the loop's clock."""
        return self._deadline.when() if self._deadline is not None else 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait(self._header_within_s)
        if len(self.connections) > self._max_connections:
            waiting = [one for one in self.connections if isinstance(one, _Connection) and one.waits]
            min(waiting, key=lambda one: one.deadline_s).drop()  # at worst this one itself

    def on_response_complete(self) -> None:
        self._wait(self._header_within_s)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        super().connection_lost(exc)

    def drop(self) -> None:
        """Closes at once, whatever is under way."""
        self.connections.discard(self)  # now, not once the loop gets to it: others count
        self.transport.abort()

    def _wait(self, duration_s: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(duration_s, self._passed)

    def _passed(self) -> None:
        if self.waits:
            self.drop()
        else:
            self._deadline = self.loop.call_later(ANSWER_WITHIN_S, self.drop)


class HttpServer(uvicorn.Server):
    """Uvicorn without hands on the process's signals and logs, and with limits."""

    def __init__(
        self,
        app: App,
        *,
        tls: HttpTls | None = None,
        header_within_s: float = HEADER_WITHIN_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        """``tls``: whoever connects has to speak it.

        Raises:
            HttpListenError: its files cannot be used.
        """
        try:
            self._tls = HttpsFiles(tls) if tls is not None else None
        except OSError as error:  # ssl.SSLError is one
            raise HttpListenError(f"collector.http_tls: {error}") from error
        connection: Any = functools.partial(
            _Connection, header_within_s=header_within_s, max_connections=max_connections
        )
        super().__init__(
            uvicorn.Config(
                app,
                http=connection,
                ws="none",
                backlog=_BACKLOG,
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=_CLOSE_WITHIN_S,
                server_header=False,
                proxy_headers=False,  # who asks is who has connected, whatever a header says
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, but for a TLS with limits."""
        if self._tls is None or sockets is None:
            await super().startup(sockets)
            return
        await self.lifespan.startup()
        protocol: Any = self.config.http_protocol_class
        within = functools.partial(
            protocol, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        handshakes = Handshakes(self._tls, within)
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(handshakes.protocol, sock=one, backlog=self.config.backlog) for one in sockets
        ]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
