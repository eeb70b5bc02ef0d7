"""Where samples are to be sent: what is wrong with ``collector.remote_write``. Pure."""

import re
from collections.abc import Iterator

from bandwitness.settings import Place
from collector.config.schema import Collector
from collector.config.witness_check import url_faults

# Ours, and those of the figures: another value under such a name would make two series one.
RESERVED = frozenset(
    {"origin", "collector", "src", "dst", "lane", "protocol", "path", "quantile", "node", "nic", "direction"}
)
MAX_REMOTES = 8
MAX_AGE_NS = 30 * 86_400 * 1_000_000_000  # rows are kept longer

Faults = Iterator[tuple[Place, str]]


def remote_write_faults(collector: Collector) -> Faults:
    """(place, message) of each fault."""
    if len(collector.remote_write) > MAX_REMOTES:
        yield ("collector", "remote_write"), f"expected {MAX_REMOTES} at most, found {len(collector.remote_write)}"
    for index, remote in enumerate(collector.remote_write):
        if remote is None:  # could not be read
            continue
        place = ("collector", "remote_write", index)
        yield from url_faults((*place, "url"), remote.url, "http://127.0.0.1:9090/api/v1/write")
        if remote.max_age is not None and not 0 < remote.max_age <= MAX_AGE_NS:
            yield (*place, "max_age"), "expected more than 0 and at most 30d"
        for name in remote.labels:
            if not re.fullmatch(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,62}", name):
                words = (
                    "a Prometheus label name: up to 63 letters, digits, underscores, not beginning with a digit or __"
                )
                yield (*place, "labels", name), f"expected {words}"
            if name in RESERVED:
                yield (*place, "labels", name), f"{name} is a label of the samples themselves; choose another name"
