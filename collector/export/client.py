"""Asks a running collector's HTTP API, for the commands that print tables."""

import http.client
import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DEFAULT_URL = "http://127.0.0.1:7480"
TIMEOUT_S = 15.0
TOKEN_FILE = "BANDWITNESS_TOKEN_FILE"  # noqa: S105 - the name of a variable
CA_FILE = "BANDWITNESS_CA_FILE"
MAX_PAGES = 1000


class ApiError(RuntimeError):
    """The collector could not be asked, or refused; the message says what to do."""


def _get(url: str, method: str = "GET") -> Any:
    if not url.startswith(("http://", "https://")):
        raise ApiError(f"{url} is not an http address")
    headers, context = _credentials(url, os.environ)
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - scheme checked above
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as response:  # noqa: S310 - likewise
            return json.load(response)
    except urllib.error.HTTPError as error:
        try:
            message = json.load(error)["error"]["message"]
        except (ValueError, KeyError, TypeError):  # not in the one shape of the API's errors
            message = error.reason
        raise ApiError(f"the collector refused ({error.code}): {message}") from None
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ApiError(f"no collector answers at {url}: {reason}. Is it running? Name another with --url.") from None
    except (ValueError, http.client.HTTPException):  # no JSON, or no HTTP: the gRPC port, for example
        raise _stranger(url) from None


def _credentials(url: str, environment: Mapping[str, str]) -> tuple[dict[str, str], ssl.SSLContext | None]:
    """What a collector beyond this host asks for. The token goes over TLS only.

    Raises:
        ApiError: a file that the environment names cannot be read.
    """
    if not url.startswith("https://"):
        return {}, None
    token, ca = environment.get(TOKEN_FILE), environment.get(CA_FILE)
    try:
        context = ssl.create_default_context(cafile=ca or None)
        text = Path(token).read_text(encoding="ascii").strip() if token else ""
    except (OSError, ValueError) as error:
        raise ApiError(f"{TOKEN_FILE} or {CA_FILE} names a file that cannot be used: {error}") from None
    return {"Authorization": f"Bearer {text}"} if text else {}, context


def _stranger(url: str) -> ApiError:
    return ApiError(f"what answers at {url} is not a Bandwitness collector")


def fetch(url: str, resource: str, **parameters: str | None) -> dict[str, Any]:
    """``/api/v1/<resource>``, an answer that is one object.

    Raises:
        ApiError: nobody answers, or the collector refuses.
    """
    base = url if "://" in url else f"http://{url}"
    query = urllib.parse.urlencode({name: value for name, value in parameters.items() if value is not None})
    found = _get(f"{base.rstrip('/')}/api/v1/{resource}" + (f"?{query}" if query else ""))
    if not isinstance(found, dict):
        raise _stranger(url)
    return found


def ask(url: str, resource: str, **parameters: str) -> list[dict[str, Any]]:
    """Asks for something to be done; what will be.

    Raises:
        ApiError: nobody answers, or the collector refuses.
    """
    base = url if "://" in url else f"http://{url}"
    answer = _get(f"{base.rstrip('/')}/api/v1/{resource}?{urllib.parse.urlencode(parameters)}", "POST")
    try:
        return list(answer["items"])
    except (KeyError, TypeError):
        raise _stranger(url) from None


def fetch_items(url: str, resource: str, **parameters: str | None) -> list[dict[str, Any]]:
    """All items of ``/api/v1/<resource>``, page after page.

    Raises:
        ApiError: nobody answers, or the collector refuses.
    """
    base = url if "://" in url else f"http://{url}"
    items: list[dict[str, Any]] = []
    query = {name: value for name, value in parameters.items() if value is not None}
    for _ in range(MAX_PAGES):
        page = _get(f"{base.rstrip('/')}/api/v1/{resource}" + (f"?{urllib.parse.urlencode(query)}" if query else ""))
        try:
            items += page["items"]
            following = page["next"]
        except (KeyError, TypeError):
            raise _stranger(url) from None
        if following is None:
            return items
        query["cursor"] = following
    raise ApiError(f"more than {MAX_PAGES} pages of {resource}: narrow the time with --from and --to")
