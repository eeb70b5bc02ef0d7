"""TLS of the HTTP listener, in front of uvicorn's protocol: with a limit on handshakes under way.

asyncio's own ``ssl=`` lets anybody wait in a handshake for a minute, and their number is limited by descriptors alone.
"""

import asyncio
import logging
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collector.config import HttpTls, http_file_faults

HANDSHAKE_WITHIN_S = 10
MAX_HANDSHAKES = 64

logger = logging.getLogger(__name__)


class HttpsFiles:
    """The context, with the files read again when they have changed.

    Raises:
        OSError, ssl.SSLError: they cannot be used.
    """

    def __init__(self, tls: HttpTls) -> None:
        self._tls = tls
        self._seen = self._look()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._context.load_cert_chain(tls.certificate, tls.key, password="")

    def context(self) -> ssl.SSLContext:
        """For the next handshake."""
        try:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                faults = [f"collector.http_tls.{key}: {words}" for key, words in http_file_faults(self._tls)]
                if not faults:
                    self._context.load_cert_chain(self._tls.certificate, self._tls.key, password="")
                for fault in faults:
                    logger.warning("the certificate in use stays: %s", fault)
        except OSError as error:  # SSLError is one
            logger.warning("the certificate in use stays: collector.http_tls: %s", error)
        return self._context

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        facts = [Path(path).stat() for path in (self._tls.certificate, self._tls.key)]
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in facts)


class Handshakes:
    """Those under way. The one that has waited longest goes for more."""

    def __init__(
        self, files: HttpsFiles, within: Callable[[], asyncio.Protocol], at_most: int = MAX_HANDSHAKES
    ) -> None:
        self._files = files
        self._within = within
        self._at_most = at_most
        self._waiting: dict[SSLProtocol, asyncio.BaseTransport] = {}

    def protocol(self) -> asyncio.BaseProtocol:
        """For one connection."""
        return _Tls(self, self._within(), self._files.context())

    def begins(self, one: SSLProtocol, transport: asyncio.BaseTransport) -> None:
        self._waiting[one] = transport
        if len(self._waiting) > self._at_most:
            oldest = next(iter(self._waiting))
            dropped = self._waiting.pop(oldest)
            assert isinstance(dropped, asyncio.WriteTransport)
            dropped.abort()

    def over(self, one: SSLProtocol) -> None:
        self._waiting.pop(one, None)


class _Inner(asyncio.Protocol):
    """Passes everything on, and notes the end of the handshake."""

    def __init__(self, over: Callable[[], None], protocol: asyncio.Protocol) -> None:
        self._over = over
        self._protocol = protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._over()
        set_protocol = getattr(transport, "set_protocol", None)
        if set_protocol is not None:
            set_protocol(self._protocol)
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over()


class _Tls(SSLProtocol):
    def __init__(self, handshakes: Handshakes, protocol: asyncio.Protocol, context: ssl.SSLContext) -> None:
        self._handshakes = handshakes
        nobody_waits: Any = None
        super().__init__(
            asyncio.get_running_loop(),
            _Inner(lambda: handshakes.over(self), protocol),
            context,
            nobody_waits,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_WITHIN_S,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshakes.begins(self, transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._handshakes.over(self)
        super().connection_lost(exc)
