"""Requests that change something: from the collector's own host only, and not by a page in somebody's browser."""

from ipaddress import ip_address

from fastapi import Request
from starlette.exceptions import HTTPException

_PAGE = frozenset({"origin", "sec-fetch-site"})  # headers that browsers alone send


def must_come_from_here(request: Request, what: str) -> None:
    """Refuses a request that came over the network, or out of a web page; ``what`` may be asked for here.

    Raises:
        HTTPException: 403.
    """
    host = request.client.host if request.client is not None else ""
    if not _is_loopback(host) or not _PAGE.isdisjoint(request.headers) or not _names_this_host(request):
        raise HTTPException(403, f"{what} on the collector's own host only, and by no web page")


def _names_this_host(request: Request) -> bool:
    """A name that somebody else gave to a loopback address (DNS rebinding) makes their page a page of ours."""
    name = request.url.hostname or ""
    return name == "localhost" or _is_loopback(name)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
