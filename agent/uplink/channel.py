"""How a connection is made: credentials, keepalive, limits."""

import random
from dataclasses import dataclass

import grpc

from agent.config import Address, IdentityFiles
from bandwitness import KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS, MAX_MESSAGE_BYTES

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class UplinkSettings:
    """Times and limits of the stream; the defaults are what the collector expects."""

    keepalive_time_ms: int = KEEPALIVE_TIME_MS
    keepalive_timeout_ms: int = KEEPALIVE_TIMEOUT_MS
    keepalive_time_max_ms: int = 640_000
    backoff_first_ns: int = SECOND // 2
    backoff_max_ns: int = 60 * SECOND
    welcome_timeout_s: float = 15.0
    look_timeout_s: float = 3.0  # for finding out why there was no Welcome
    acknowledgement_timeout_ns: int = 60 * SECOND  # with batches in flight and not one acknowledged: next collector
    window_batches: int = 64
    window_bytes: int = 2 << 20


class PlainTextRefusedError(Exception):
    """No identity, and the collector is not on this host."""


def open_channel(
    address: Address, identity: IdentityFiles | None, settings: UplinkSettings, keepalive_time_ms: int
) -> grpc.aio.Channel:
    """A channel of its own for one attempt: credentials are read anew, so renewed files are used without a restart.

    Raises:
        PlainTextRefusedError: plain text is for loopback only.
        OSError: a file of the identity cannot be read.
    """
    options: list[tuple[str, int | str]] = [
        ("grpc.keepalive_time_ms", keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", settings.keepalive_timeout_ms),
        # A ping of gRPC's own (it estimates bandwidth with some) keeps keepalive's from being sent while it is
        # unanswered, for a minute by default: on a half-open stream it would be that long before anybody knows.
        ("grpc.http2.ping_timeout_ms", settings.keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),  # an idle stream may be kept alive for ever
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.use_local_subchannel_pool", 1),  # else the next channel inherits gRPC's own backoff
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
    ]
    if identity is None:
        if not address.loopback:
            raise PlainTextRefusedError(str(address))
        return grpc.aio.insecure_channel(address.channel_target, options)
    if identity.server_name:
        options.append(("grpc.ssl_target_name_override", identity.server_name))
    ca, key = identity.ca.read_bytes(), identity.key.read_bytes()
    # Where both are one file it is read once: between two reads it may be replaced.
    certificate = key if identity.certificate == identity.key else identity.certificate.read_bytes()
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    return grpc.aio.secure_channel(address.channel_target, credentials, options)


class Backoff:
    """Full jitter: a random time up to a bound that doubles with every failure, so that a thousand agents do not come
    back at once (the bound alone would keep them in step)."""

    def __init__(self, source: random.Random, first_ns: int, max_ns: int) -> None:
        self._source = source
        self._first_ns = first_ns
        self._max_ns = max_ns
        self._failures = 0

    def next_ns(self) -> int:
        """How long to wait now."""
        bound_ns = min(self._max_ns, self._first_ns << min(self._failures, 32))
        self._failures += 1
        return round(self._source.uniform(0, bound_ns))

    def reset(self) -> None:
        """After something was acknowledged."""
        self._failures = 0
