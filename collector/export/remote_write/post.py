"""One POST to a receiver. Blocking; whatever happens is an ``Answer``."""

import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

from collector.config import RemoteWrite
from collector.export.remote_write.request import HEADERS, MAX_WORDS, Answer, retry_after

TIMEOUT_S = 30.0
MAX_TOKEN_BYTES = 16_384


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Post:
    """To one receiver; without the environment's proxies: measurements go where the configuration says."""

    def __init__(self, remote: RemoteWrite, timeout_s: float = TIMEOUT_S) -> None:
        self._remote, self._timeout_s = remote, timeout_s

    def __call__(self, body: bytes) -> Answer:
        """Sends ``body``; the receiver's own words, as far as there are any, are in the answer."""
        try:
            request = urllib.request.Request(self._remote.url, body, self._headers(), method="POST")  # noqa: S310 - checked
            with self._opener().open(request, timeout=self._timeout_s) as answer:
                return Answer(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _words(error), retry_after(error.headers.get("Retry-After")))
        except (OSError, HTTPException, ValueError) as error:
            return Answer(0, str(getattr(error, "reason", error))[:MAX_WORDS] or type(error).__name__)

    def _headers(self) -> dict[str, str]:
        if self._remote.bearer_token_file is None:
            return HEADERS
        with Path(self._remote.bearer_token_file).open(encoding="ascii") as file:
            token = file.read(MAX_TOKEN_BYTES).strip()
        return {**HEADERS, "Authorization": f"Bearer {token}"}

    def _opener(self) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cafile=self._remote.ca)
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirect()
        )


def _words(error: urllib.error.HTTPError) -> str:
    try:
        text = error.read(4 * MAX_WORDS).decode("utf-8", "replace")
    except (OSError, HTTPException):
        text = ""
    one_line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return (one_line or str(error.reason))[:MAX_WORDS]
