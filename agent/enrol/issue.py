"""Asks the collector for a certificate: with a token the first time, with the certificate in use ever after.

Blocking: it is the whole work of a process of its own.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import grpc

from agent.config import Address, IdentityFiles
from agent.enrol.files import Request
from bandwitness import VERSION
from bandwitness.v1.uplink_pb2 import EnrolRequest, IssuedIdentity, RenewRequest
from bandwitness.v1.uplink_pb2_grpc import EnrolmentStub, UplinkStub

ANSWER_WITHIN_S = 30.0
ATTEMPTS = 6
FIRST_WAIT_S = 1.0
_AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED)
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 256 * 1024),
)


class IssueError(Exception):
    """No certificate; the text is the collector's word, or the network's. Never holds a token."""


def enrol(
    address: Address,
    ca: str,
    *,
    token: str,
    node: str,
    request: Request,
    server_name: str = "",
    sleep: Callable[[float], None] = time.sleep,
) -> IssuedIdentity:
    """With a token, from a collector whose certificate has to be of ``ca`` (PEM) and name ``address``.

    Where the answer is lost it is asked for again, with the same key: so the token is still good for it.

    Raises:
        IssueError: refused, or not reached.
    """
    message = EnrolRequest(
        token=token, certificate_request=request.certificate_request, node=node, software_version=VERSION
    )
    credentials = grpc.ssl_channel_credentials(ca.encode())
    wait_s = FIRST_WAIT_S
    for left in reversed(range(ATTEMPTS)):
        try:
            with _channel(address, credentials, server_name) as channel:
                stub: Any = EnrolmentStub(channel)  # type: ignore[no-untyped-call]
                return _issued(stub.Enrol(message, timeout=ANSWER_WITHIN_S))
        except grpc.RpcError as error:
            if error.code() not in _AGAIN or not left:
                raise IssueError(_words(error, address)) from None
        sleep(random.uniform(0, wait_s))  # noqa: S311 - spreads those who were turned away together
        wait_s *= 2
    raise AssertionError("the last attempt returns or raises")


def renew(address: Address, files: IdentityFiles, request: Request) -> IssuedIdentity:
    """With the certificate in use.

    Raises:
        IssueError: refused, or not reached.
        OSError: our files cannot be read.
    """
    own = files.certificate.read_bytes()
    key = own if files.key == files.certificate else files.key.read_bytes()
    credentials = grpc.ssl_channel_credentials(files.ca.read_bytes(), key, own)
    try:
        with _channel(address, credentials, files.server_name) as channel:
            stub: Any = UplinkStub(channel)  # type: ignore[no-untyped-call]
            message = RenewRequest(certificate_request=request.certificate_request)
            return _issued(stub.Renew(message, timeout=ANSWER_WITHIN_S))
    except grpc.RpcError as error:
        raise IssueError(_words(error, address)) from None


def _channel(address: Address, credentials: grpc.ChannelCredentials, server_name: str) -> grpc.Channel:
    options: list[tuple[str, int | str]] = list(_OPTIONS)
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    return grpc.secure_channel(address.channel_target, credentials, options)


def _issued(answer: Any) -> IssuedIdentity:
    assert isinstance(answer, IssuedIdentity)
    return answer


def _words(error: grpc.RpcError, address: Address) -> str:
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE:
        return f"{address} cannot be reached, or its certificate is not for this address: {details}"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"{address} enrols nobody: it is the streams' port, or an older collector"
    return f"{address} refuses: {details}"
