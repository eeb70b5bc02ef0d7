"""Rows of the store into samples of the vocabulary, each at the end of what it was measured over. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from collector.export.exposition import MAX_LABEL_LENGTH
from collector.export.views import enum_name
from collector.model import PathRow, RoundTripWindow
from collector.store.outbox_reader import Noted, Throughput
from collector.vocabulary import BY_NAME

ORIGIN = ("origin", "event_time")  # no series that is scraped has it
WINDOW_NS = 10_000_000_000  # of NICs
NS = 1e-9
# What is sent, of the families that are scraped.
FAMILIES = (
    "path_loss_ratio",
    "path_delay_seconds",
    "path_loaded",
    "path_doubtful",
    "throughput_bytes_per_second",
    "nic_receive_peak_bytes_per_second",
    "nic_transmit_peak_bytes_per_second",
    "nic_pause_ratio",
)
Labels = tuple[tuple[str, str], ...]  # name and value, sorted by name


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one series; ``time_ms`` since the epoch."""

    labels: Labels
    time_ms: int
    value: float


class Naming:
    """Label sets, made once for each series."""

    def __init__(self, collector: str, own: Mapping[str, str]) -> None:
        """``own`` are the labels that the configuration adds."""
        self._always = {**own, "collector": collector, ORIGIN[0]: ORIGIN[1]}
        self._known: dict[tuple[str, ...], Labels] = {}

    def __call__(self, family: str, *values: str) -> Labels:
        """Labels of one series of a family, ``values`` in the order of its labels. An empty one is left out."""
        key = (family, *values)
        labels = self._known.get(key)
        if labels is None:
            if len(self._known) > 400_000:  # series that left have piled up
                self._known.clear()
            metric = BY_NAME[family]
            pairs = {**self._always, **dict(zip(metric.labels, values, strict=True)), "__name__": metric.full_name}
            labels = self._known[key] = tuple(sorted((name, clean(value)) for name, value in pairs.items() if value))
        return labels


def clean(value: str) -> str:
    """A label's value as /metrics would show it: valid UTF-8, cut where it is too long."""
    return value[:MAX_LABEL_LENGTH].encode("utf-8", "replace").decode()


def samples_of(noted: Noted, path_of: Callable[[int], PathRow | None], naming: Naming) -> Iterator[Sample]:
    """All samples of one entry; a figure that is absent gives none."""
    for window in noted.windows:
        path = path_of(window.path_id)
        if path is not None:
            yield from _round_trips(window, _path(path), naming)
    for row in noted.nics:
        yield from _nic(row, naming)
    for result in noted.results:
        path = path_of(result.path_id)
        if path is not None:
            yield _throughput(result, _path(path), naming)


def _path(path: PathRow) -> tuple[str, ...]:
    destination = path.destination.node if path.destination else path.target or ""
    protocol = enum_name("protocol", path.protocol)
    return (path.source.node, destination, path.source.lane, protocol, f"{path.path_id:016x}")


def _round_trips(window: RoundTripWindow, path: tuple[str, ...], naming: Naming) -> Iterator[Sample]:
    time_ms = (window.start_time_ns + window.length_ns) // 1_000_000
    if window.sent:
        lost = window.lost + window.unreachable + window.corrupt
        yield Sample(naming("path_loss_ratio", *path), time_ms, lost / window.sent)
    for quantile, delay_ns in (("0.5", window.delay_p50_ns), ("0.99", window.delay_p99_ns)):
        if delay_ns is not None:
            yield Sample(naming("path_delay_seconds", *path, quantile), time_ms, delay_ns * NS)
    yield Sample(naming("path_loaded", *path), time_ms, float(window.loaded_by is not None))
    yield Sample(naming("path_doubtful", *path), time_ms, float(window.doubtful is not None))


def _nic(row: Mapping[str, Any], naming: Naming) -> Iterator[Sample]:
    time_ms = (row["start_time_ns"] + WINDOW_NS) // 1_000_000
    nic = (row["node"], row["nic"])
    for family, column in (
        ("nic_receive_peak_bytes_per_second", "receive_peak_bytes_per_second"),
        ("nic_transmit_peak_bytes_per_second", "transmit_peak_bytes_per_second"),
    ):
        if row[column] is not None:
            yield Sample(naming(family, *nic), time_ms, row[column])
    for direction in ("receive", "transmit"):
        if row[f"{direction}_pause_ratio"] is not None:
            yield Sample(naming("nic_pause_ratio", *nic, direction), time_ms, row[f"{direction}_pause_ratio"])


def _throughput(result: Throughput, path: tuple[str, ...], naming: Naming) -> Sample:
    return Sample(naming("throughput_bytes_per_second", *path), result.time_ns // 1_000_000, result.bps / 8)
