"""The enrolment port: TLS without client certificates, one small message, and nothing else.

Python's gRPC knows ports that require a client certificate and ports that do not ask for one, but none that takes both:
so this port is not that of the streams. Whoever comes here is a stranger until the token proves otherwise: connections,
messages, time and attempts are limited.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError

from bandwitness.v1.uplink_pb2 import EnrolRequest, RenewRequest
from collector.clock import Clock
from collector.enrol.identities import Identities, RefusedError
from collector.enrol.limits import Attempts

MAX_MESSAGE_BYTES = 16 * 1024
MAX_CONNECTIONS = 128
MAX_AT_ONCE = 32
CONNECTION_AGE_MS = 20_000  # whatever it does
SAY_EVERY_NS = 10 * 1_000_000_000

logger = logging.getLogger(__name__)
Message = TypeVar("Message")
Context = grpc.aio.ServicerContext[bytes, bytes]
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", 64 * 1024),
    ("grpc.max_metadata_size", 4096),
    ("grpc.max_concurrent_streams", 1),
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 5_000),
    ("grpc.max_connection_age_ms", CONNECTION_AGE_MS),
    ("grpc.max_connection_age_grace_ms", 2_000),
    ("grpc.so_reuseport", 0),
)


class Enrolment:
    """The one method."""

    def __init__(self, identities: Identities, clock: Clock, attempts: Attempts | None = None) -> None:
        self._identities = identities
        self._clock = clock
        self._attempts = attempts or Attempts()
        self._say_from_ns = 0

    def handlers(self) -> grpc.GenericRpcHandler:
        method: Any = grpc.unary_unary_rpc_method_handler(self.enrol)
        return grpc.method_handlers_generic_handler("bandwitness.v1.Enrolment", {"Enrol": method})

    async def enrol(self, message: bytes, context: Context) -> bytes:
        """EnrolRequest to IssuedIdentity, both in bytes."""
        address, now_ns = _address(context.peer()), self._clock.monotonic_ns()
        if not self._attempts.allows(address, now_ns):
            self._identities.outcomes["too_many"] += 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many attempts: try again in a minute")
        try:
            issued = await self._identities.enrol(_parsed(EnrolRequest.FromString, message))
        except RefusedError as error:
            if error.code is not grpc.StatusCode.UNAVAILABLE:
                self._attempts.failed(address, now_ns)
            if now_ns >= self._say_from_ns:
                self._say_from_ns = now_ns + SAY_EVERY_NS
                logger.warning("enrol: refused from %s: %s", context.peer(), error.words)
            await context.abort(error.code, error.words)
            raise AssertionError("abort raises") from None
        return issued.SerializeToString()


def renewal(
    identities: Identities,
) -> Callable[[str, bytes, bytes], Awaitable[bytes]]:
    """What the stream's port answers to Renew: node and certificate of the connection, and the message.

    Raises:
        RefusedError: no new certificate.
    """

    async def renew(node: str, certificate_sha256: bytes, message: bytes) -> bytes:
        request = _parsed(RenewRequest.FromString, message)
        issued = await identities.renew(node, certificate_sha256, request.certificate_request)
        return issued.SerializeToString()

    return renew


def _parsed(read: Callable[[bytes], Message], message: bytes) -> Message:
    try:
        return read(message)
    except DecodeError:
        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "not a request of this kind") from None


def _address(peer: str) -> str:
    """``ipv4:10.0.0.1:5555`` without the port; an IPv6 network of 64 bits counts as one address."""
    kind, _, rest = peer.partition(":")
    host = rest.rpartition(":")[0]
    return ":".join(host.removeprefix("%5B").removeprefix("[").split(":")[:4]) if kind == "ipv6" else host


async def enrolment_server(
    enrolment: Enrolment, address: str, credentials: grpc.ServerCredentials
) -> tuple[grpc.aio.Server, int]:
    """Listens on ``address`` (host:port; port 0: any); gives back the server and its port.

    Raises:
        OSError: the address is taken or not this host's.
    """
    server = grpc.aio.server(options=list(SERVER_OPTIONS), maximum_concurrent_rpcs=MAX_AT_ONCE)
    server.add_generic_rpc_handlers((enrolment.handlers(),))
    try:
        port = server.add_secure_port(address.replace("%", "%25"), credentials)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from error
    if port == 0:
        raise OSError(f"cannot listen on {address}")
    await server.start()
    return server, port
