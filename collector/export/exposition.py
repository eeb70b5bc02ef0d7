"""Text exposition: Prometheus 0.0.4 and OpenMetrics 1.0. Pure: families in, text out.

The two differ in the head of a family (OpenMetrics names a counter without its ``_total`` and gives the unit) and in
the last line. Sample lines are the same, so a server may change from one to the other and keep its series. OpenMetrics'
``_created`` is left out: without a feature flag Prometheus stores it as one more series for every counter.

Rendering 100,000 series must take a fraction of a second, so the part of a line that does not change from scrape to
scrape (name and labels, escaped) is kept per label set and only the value is formatted anew.
"""

import math
import re
from collections.abc import Iterable, Sequence

from collector.vocabulary import Metric

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
UNITS = ("bytes_per_second", "seconds", "bytes", "ratio")

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


def wants_openmetrics(accept: str) -> bool:
    """Whether a request's ``Accept`` ranks OpenMetrics above plain text (RFC 9110 section 12.5.1)."""
    ranks = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for offer in accept.split(","):
        kind, *parameters = (word.strip() for word in offer.split(";"))
        if kind not in ranks:
            continue
        rank = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name == "version" and kind != "text/plain" and not value.startswith("1."):
                rank = 0.0
                break
            if name == "q":
                rank = float(value) if re.fullmatch(r"[01](\.\d{0,3})?", value) else 0.0
        ranks[kind] = max(ranks[kind], rank)
    return ranks["application/openmetrics-text"] > ranks["text/plain"]


def head(metric: Metric, *, openmetrics: bool) -> list[str]:
    """The lines above a family's samples."""
    if not openmetrics:
        return [f"# HELP {metric.full_name} {metric.help}", f"# TYPE {metric.full_name} {metric.kind}"]
    name = metric.full_name.removesuffix("_total") if metric.kind == "counter" else metric.full_name
    unit = next((unit for unit in UNITS if name.endswith(f"_{unit}")), None)
    lines = [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
    return lines if unit is None else [*lines, f"# UNIT {name} {unit}"]


class Renderer:
    """Renders sample lines, keeping what does not change of them between scrapes. Safe from several threads."""

    def __init__(self) -> None:
        self._prefixes: dict[str, dict[Sequence[str], str]] = {}  # by family and labels

    def forget(self) -> None:
        """Starts anew where series that left have piled up; to be called now and then."""
        if sum(map(len, list(self._prefixes.values()))) > _MAX_CACHED_PREFIXES:
            self._prefixes = {}

    def line(self, metric: Metric, sample: Sample) -> str:
        """One sample's line."""
        labels, value = sample
        known = self._prefixes.get(metric.name)
        if known is None:
            known = self._prefixes.setdefault(metric.name, {})
        prefix = known.get(labels)
        if prefix is None:
            pairs = label_pairs(metric, labels)
            prefix = known[labels] = f"{metric.full_name}{{{pairs}}} " if pairs else f"{metric.full_name} "
        return prefix + (repr(value) if type(value) is int else format_value(value))


def text_of(families: Iterable[tuple[Metric, Iterable[str]]], *, openmetrics: bool = False) -> str:
    """The whole text: families with their lines, in the order given. Without lines they keep their head."""
    lines: list[str] = []
    for metric, samples in families:
        lines += head(metric, openmetrics=openmetrics)
        lines += samples
    if openmetrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"
