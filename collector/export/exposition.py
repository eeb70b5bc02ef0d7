"""Prometheus text exposition, version 0.0.4. Pure: families in, text out.

Rendering 100,000 series must take a fraction of a second, so the part of a line that does not change from scrape to
scrape (name and labels, escaped) is kept per label set and only the value is formatted anew.
"""

import math
from collections.abc import Iterable, Sequence

from collector.vocabulary import Metric

Sample = tuple[Sequence[str], float | int]  # label values in the order of Metric.labels, value
MAX_LABEL_LENGTH = 256
_MAX_CACHED_PREFIXES = 400_000


def escape_label(value: str) -> str:
    """A label value as it stands between quotes; over-long values are cut, lone surrogates replaced."""
    value = value[:MAX_LABEL_LENGTH].encode("utf-8", "replace").decode()
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def format_value(value: float | int) -> str:
    """A number as Prometheus reads it."""
    if isinstance(value, float):
        if math.isinf(value):
            return "+Inf" if value > 0 else "-Inf"
        if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
    return repr(value)


def label_pairs(metric: Metric, values: Sequence[str]) -> str:
    """``src="a",dst="b"``."""
    assert len(values) == len(metric.labels), f"{metric.name} takes the labels {metric.labels}"
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in zip(metric.labels, values, strict=True))


class Renderer:
    """Renders families, keeping line prefixes between scrapes."""

    def __init__(self) -> None:
        self._prefixes: dict[tuple[str, Sequence[str]], str] = {}

    def render(self, families: Iterable[tuple[Metric, Iterable[Sample]]]) -> str:
        """Text of all families in the order given; families without samples keep their HELP and TYPE."""
        if len(self._prefixes) > _MAX_CACHED_PREFIXES:
            self._prefixes.clear()  # series that left pile up: start anew
        lines: list[str] = []
        for metric, samples in families:
            lines.append(f"# HELP {metric.full_name} {metric.help}")
            lines.append(f"# TYPE {metric.full_name} {metric.kind}")
            lines.extend(self._prefix(metric, labels) + format_value(value) for labels, value in samples)
        return "\n".join(lines) + "\n"

    def _prefix(self, metric: Metric, labels: Sequence[str]) -> str:
        key = (metric.name, labels)
        prefix = self._prefixes.get(key)
        if prefix is None:
            pairs = label_pairs(metric, labels)
            prefix = f"{metric.full_name}{{{pairs}}} " if pairs else f"{metric.full_name} "
            self._prefixes[key] = prefix
        return prefix
