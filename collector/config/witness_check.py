"""Where tree heads are to be given: what is wrong with ``collector.timestamp_authorities`` and ``witnesses``. Pure."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from bandwitness.settings import Place
from collector.config.schema import Collector

Faults = Iterator[tuple[Place, str]]


def witness_faults(collector: Collector) -> Faults:
    """(place, message) of each fault."""
    for index, authority in enumerate(collector.timestamp_authorities):
        yield from url_faults(("collector", "timestamp_authorities", index, "url"), authority.url)
    for index, witness in enumerate(collector.witnesses):
        place = ("collector", "witnesses", index)
        if (witness.url is None) == (witness.mail is None):
            yield place, "expected either url or mail"
        if witness.url is not None:
            yield from url_faults((*place, "url"), witness.url)
        if witness.mail is not None:
            for key in ("to", "sender"):
                address = getattr(witness.mail, key)
                if address is not None and ("@" not in address or not address.isprintable() or " " in address):
                    yield (*place, "mail", key), f"expected a mail address, found {address[:60]!r}"
            try:
                _ = witness.mail.server is None or witness.mail.server_address
            except ValueError as error:
                yield (*place, "mail", "server"), f"{error}, found {witness.mail.server[:60]!r}"


def url_faults(place: Place, url: str | None, example: str = "https://tsa.example.org/tsr") -> Faults:
    """What is wrong with an address of HTTP."""
    if url is None:  # could not be read, and is at fault there
        return
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        yield place, f"expected an address such as {example}, found {url[:80]!r}"
