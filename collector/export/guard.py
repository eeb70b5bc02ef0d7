"""Who may ask over HTTP. Beyond loopback: whoever shows a read token (RFC 6750), and nobody may have anything done."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
READING = ("GET", "HEAD")


class Guard:
    """An ASGI application in front of another.

    Args:
        app: the other.
        may_read: whether a token's text lets read; None: no token is needed, because only loopback is listened on.
    """

    def __init__(self, app: App, may_read: Callable[[str], bool] | None) -> None:
        self._app = app
        self._may_read = may_read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if self._may_read is not None and not self._may_read(_bearer(scope)):
                words = "a read token is needed: Authorization: Bearer … (`bandwitness-collector token create --read`)"
                await _refuse(send, 401, "unauthorized", words)
                return
            if scope["method"] not in READING and not _from_here(scope):
                await _refuse(send, 403, "forbidden", "only the collector's own host may ask for something to be done")
                return
        await self._app(scope, receive, send)


def _bearer(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return ""


def _from_here(scope: Scope) -> bool:
    client = scope.get("client")
    try:
        return client is None or ip_address(client[0]).is_loopback
    except ValueError:
        return False


async def _refuse(send: Send, status: int, code: str, words: str) -> None:
    body = json.dumps({"error": {"code": code, "message": words}}, ensure_ascii=False).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="bandwitness"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
