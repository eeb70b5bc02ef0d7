"""The gRPC side: who may open a stream, and with which limits the server runs."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from bandwitness import KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS, MAX_MESSAGE_BYTES, PROTOCOL_VERSION
from bandwitness.v1.uplink_pb2 import Hello, UplinkRequest
from collector.clock import Clock
from collector.control import Control
from collector.ingest.chains import ChainBook
from collector.ingest.sessions import Sessions
from collector.ingest.stream import AgentStream, StreamEndError
from collector.ingest.tls import NODE_URI, Identity, identity_of
from collector.log import Log

HELLO_TIMEOUT_S = 10.0
IDLE_TIMEOUT_MS = 60_000  # a connection without a stream
HANDSHAKE_TIMEOUT_MS = 10_000  # TLS and HTTP/2, from the connection on; by default two minutes
MAX_STREAMS = 4096
MAX_CONNECTIONS = 2 * MAX_STREAMS
MAX_CHAINS_IN_HELLO = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

logger = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[bytes, bytes]


Refusal = Callable[[str, bytes], str]  # node, SHA-256 of its certificate
Renew = Callable[[str, bytes, bytes], Awaitable[bytes]]  # likewise, and the request; raises StreamEndError


def _nobody_is_refused(_: str, __: bytes) -> str:
    return ""


class ListenError(RuntimeError):
    """The address cannot be listened on."""


class Ingest:
    """The Uplink service over the log and the control chain."""

    def __init__(
        self,
        log: Log,
        control: Control,
        clock: Clock,
        sessions: Sessions,
        *,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
        refusal: Refusal = _nobody_is_refused,
        renew: Renew | None = None,
    ) -> None:
        """``refusal``: why a certificate does not count though our authority made it, empty where it does. ``renew``:
        answers a node that asks for its next one."""
        self._refusal = refusal
        self._renew = renew
        self._log = log
        self._control = control
        self._clock = clock
        self._sessions = sessions
        self._hello_timeout_s = hello_timeout_s
        self._book = ChainBook(log)

    def handlers(self) -> grpc.GenericRpcHandler:
        """Messages pass as bytes: reading them, and what happens when they cannot be read, is ours to decide."""
        methods: dict[str, Any] = {"Stream": grpc.stream_stream_rpc_method_handler(self.stream)}
        if self._renew is not None:
            methods["Renew"] = grpc.unary_unary_rpc_method_handler(self.renew)
        return grpc.method_handlers_generic_handler("bandwitness.v1.Uplink", methods)

    async def renew(self, message: bytes, context: Context) -> bytes:
        """RenewRequest to IssuedIdentity, for whom the connection's certificate names."""
        assert self._renew is not None
        try:
            identity = self._identity(context)
            if not identity.name:
                raise StreamEndError(grpc.StatusCode.UNAUTHENTICATED, "plain text proves no node")
            return await self._renew(identity.name, identity.certificate_sha256, message)
        except StreamEndError as error:
            await context.abort(error.code, error.words)
            raise AssertionError("abort raises") from None

    def _identity(self, context: Context) -> Identity:
        """Who the connection proved to be, if that counts.

        Raises:
            StreamEndError: it does not.
        """
        identity = identity_of(context.auth_context())
        if identity is None:
            raise StreamEndError(
                grpc.StatusCode.PERMISSION_DENIED, f"the certificate names no node (URI {NODE_URI}NAME)"
            )
        if identity.name and (words := self._refusal(identity.name, identity.certificate_sha256)):
            raise StreamEndError(grpc.StatusCode.PERMISSION_DENIED, words)
        return identity

    def look(self) -> None:
        """Ends the streams whose certificate counts no more, or has ended."""
        now_ns = self._clock.wall_ns()
        for session in self._sessions.all():
            identity = session.identity
            if not identity.name:
                continue
            if words := self._refusal(identity.name, identity.certificate_sha256):
                session.end(grpc.StatusCode.PERMISSION_DENIED, words)
            elif identity.not_after_ns is not None and identity.not_after_ns <= now_ns:
                session.end(grpc.StatusCode.UNAUTHENTICATED, "the certificate of this stream has expired")

    async def stream(self, _: object, context: Context) -> None:
        """One stream from Hello to its end."""
        try:
            identity = self._identity(context)
            hello = await self._hello(context, identity)
            await self._run(context, identity, hello)
        except StreamEndError as error:
            self._sessions.statistics.refused_streams[error.code.name] += 1
            logger.info("ingest: stream from %s ended: %s", context.peer(), error.words)
            await context.abort(error.code, error.words)

    async def _run(self, context: Context, identity: Identity, hello: Hello) -> None:
        session = await self._sessions.open(hello, self._clock.wall_ns(), identity)
        self.look()  # what was asked before it was registered may have changed
        if hello.agent_id not in self._control.nodes:
            logger.warning(
                "agent %s is connected, but the configuration names no such node: it gets no plan. Add it under nodes "
                "and start the collector again",
                hello.agent_id,
            )
        try:
            await AgentStream(
                context,
                session,
                hello,
                certificate_sha256=identity.certificate_sha256,
                log=self._log,
                control=self._control,
                clock=self._clock,
                book=self._book,
                sessions=self._sessions,
            ).run()
        finally:
            await asyncio.shield(asyncio.ensure_future(self._sessions.close(session)))

    async def _hello(self, context: Context, identity: Identity) -> Hello:
        try:
            message = await asyncio.wait_for(_read(context), self._hello_timeout_s)
        except TimeoutError:
            raise StreamEndError(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"no Hello within {self._hello_timeout_s:g} s"
            ) from None
        try:
            request = UplinkRequest.FromString(message)
        except DecodeError:
            raise StreamEndError(grpc.StatusCode.INVALID_ARGUMENT, "not an UplinkRequest") from None
        hello = request.hello
        if request.WhichOneof("message") != "hello":
            raise StreamEndError(grpc.StatusCode.INVALID_ARGUMENT, "the first message has to be Hello")
        if hello.protocol_version != PROTOCOL_VERSION:
            words = f"protocol version {hello.protocol_version}, this collector speaks {PROTOCOL_VERSION}"
            raise StreamEndError(grpc.StatusCode.FAILED_PRECONDITION, words)
        if not _NAME.fullmatch(hello.agent_id) or len(hello.chain) > MAX_CHAINS_IN_HELLO:
            raise StreamEndError(grpc.StatusCode.INVALID_ARGUMENT, "not an agent's name, or too many chains")
        if identity.name and hello.agent_id != identity.name:
            words = f"the certificate is of {identity.name}, Hello of {hello.agent_id}"
            raise StreamEndError(grpc.StatusCode.PERMISSION_DENIED, words)
        return hello


async def _read(context: Context) -> bytes:
    message = await context.read()
    if not isinstance(message, bytes):  # grpc.aio.EOF
        raise StreamEndError(grpc.StatusCode.INVALID_ARGUMENT, "closed before Hello")
    return message


def server_options(
    keepalive_time_ms: int = KEEPALIVE_TIME_MS,
    keepalive_timeout_ms: int = KEEPALIVE_TIMEOUT_MS,
    *,
    max_connections: int = MAX_CONNECTIONS,
) -> list[tuple[str, int]]:
    """Channel arguments. Clients ping every ``keepalive_time_ms`` and must not be cut off for it, also when timers
    run early: half of that is allowed, with and without an open stream. The server pings too, so that a stream whose
    host has vanished ends."""
    return [
        ("grpc.keepalive_time_ms", keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", keepalive_timeout_ms),
        # A ping of gRPC's own (it estimates bandwidth with some) keeps keepalive's from being sent while it is
        # unanswered, for a minute by default.
        ("grpc.http2.ping_timeout_ms", keepalive_timeout_ms),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
        ("grpc.max_connection_idle_ms", IDLE_TIMEOUT_MS),
        ("grpc.max_allowed_incoming_connections", max_connections),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", keepalive_time_ms // 2),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_metadata_size", 8192),
        ("grpc.max_concurrent_streams", 8),  # of one connection
        ("grpc.server_handshake_timeout_ms", int(HELLO_TIMEOUT_S * 1000)),
        ("grpc.max_connection_idle_ms", 60_000),  # connected without a stream
        ("grpc.so_reuseport", 0),  # a second collector on the port is an error, not a lottery
    ]


async def start_server(
    ingest: Ingest,
    address: str,
    credentials: grpc.ServerCredentials | None,
    *,
    options: Sequence[tuple[str, int]] | None = None,
) -> tuple[grpc.aio.Server, int]:
    """Listens on ``address`` (host:port; port 0: any); gives back the server and its port.

    Args:
        ingest: the service.
        address: where to listen.
        credentials: None: plain text, which the configuration allows on loopback only.
        options: channel arguments; ``server_options()`` if None.

    Raises:
        ListenError: the address is taken or not this host's.
    """
    server = grpc.aio.server(
        options=list(options if options is not None else server_options()), maximum_concurrent_rpcs=MAX_STREAMS
    )
    server.add_generic_rpc_handlers((ingest.handlers(),))
    uri = address.replace("%", "%25")  # gRPC reads it as one: a zone's percent sign is written %25 (RFC 6874)
    try:
        port = server.add_insecure_port(uri) if credentials is None else server.add_secure_port(uri, credentials)
    except RuntimeError as error:
        raise ListenError(f"cannot listen on {address}: {error}") from error
    if port == 0:
        raise ListenError(f"cannot listen on {address}")
    await server.start()
    return server, port
