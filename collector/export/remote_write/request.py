"""Samples as the body of a remote write request, and what the answer to one means. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import cramjam

from bandwitness import VERSION
from collector.export.remote_write.samples import Labels, Sample
from collector.export.remote_write.write_pb2 import Label, TimeSeries, WriteRequest
from collector.export.remote_write.write_pb2 import Sample as WireSample

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
    "User-Agent": f"bandwitness/{VERSION}",
}
MAX_WORDS = 300
# What a receiver that says 500 will say for ever: Prometheus 2.42 does so of samples beyond its out-of-order window.
_FOR_EVER = ("too old sample", "out of bounds", "out of order sample", "duplicate sample for timestamp")
MAX_RETRY_AFTER_S = 300.0


class Fate(Enum):
    """What becomes of a request's samples."""

    TAKEN = auto()
    AGAIN = auto()  # the receiver is not able now (5xx, 429, no answer)
    SPLIT = auto()  # something among them is refused (400, 413)
    REFUSED = auto()  # all of them, whatever they are (other 4xx: not allowed, not there)


@dataclass(frozen=True, slots=True)
class Answer:
    """Of a receiver. ``status`` 0: none came, and ``words`` say why."""

    status: int
    words: str = ""
    retry_after_s: float | None = None


def body(samples: Sequence[Sample]) -> bytes:
    """The snappy block of a WriteRequest: a series once, its samples in order of time."""
    series: dict[Labels, list[Sample]] = {}
    for sample in samples:
        series.setdefault(sample.labels, []).append(sample)
    request = WriteRequest(
        timeseries=[
            TimeSeries(
                labels=[Label(name=name, value=value) for name, value in labels],
                samples=[
                    WireSample(value=sample.value, timestamp=sample.time_ms)
                    for sample in sorted(of_series, key=lambda sample: sample.time_ms)
                ],
            )
            for labels, of_series in series.items()
        ]
    )
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def fate(answer: Answer) -> Fate:
    """By the specification: 5xx and 429 are tried again, other 4xx are not. A redirect is not followed with a POST, so
    it is as good as an address that is wrong."""
    status = answer.status
    if 200 <= status < 300:
        return Fate.TAKEN
    if status in (400, 413) or (status == 500 and any(words in answer.words for words in _FOR_EVER)):
        return Fate.SPLIT
    if status in (0, 429) or status >= 500:
        return Fate.AGAIN
    return Fate.REFUSED


def retry_after(text: str | None) -> float | None:
    """Seconds of a ``Retry-After`` header; None where it gives a date or nothing."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 6:
        return None
    return min(float(text), MAX_RETRY_AFTER_S)
