"""Exposition text, read back by the reference parser."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from collector.export.exposition import (
    MAX_LABEL_LENGTH,
    Renderer,
    Sample,
    format_value,
    head,
    text_of,
    wants_openmetrics,
)
from collector.vocabulary import METRICS, Metric

FAMILY = Metric("probe_packets_sent_total", "counter", "Packets.", ("src", "dst"))


def rendered(*families: tuple[Metric, list[Sample]], renderer: Renderer | None = None) -> str:
    lines = renderer or Renderer()
    return text_of((metric, [lines.line(metric, sample) for sample in samples]) for metric, samples in families)


def parsed(text: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_whole_text() -> None:
    plain = Metric("up", "gauge", "Up.")
    text = rendered((FAMILY, [(("a", "b"), 12), (("a", "c"), 0.5)]), (plain, [((), 1.0)]))
    assert text == (
        "# HELP bandwitness_probe_packets_sent_total Packets.\n"
        "# TYPE bandwitness_probe_packets_sent_total counter\n"
        'bandwitness_probe_packets_sent_total{src="a",dst="b"} 12\n'
        'bandwitness_probe_packets_sent_total{src="a",dst="c"} 0.5\n'
        "# HELP bandwitness_up Up.\n"
        "# TYPE bandwitness_up gauge\n"
        "bandwitness_up 1\n"
    )


@given(st.text(max_size=60), st.floats(allow_nan=False) | st.integers(-(2**63), 2**64))
def test_any_label_and_value_come_back(label: str, value: float) -> None:
    # The parser splits lines at more characters than Prometheus does; those are not what is tested.
    if len(f"x{label}x".splitlines()) > 1 and "\n" not in label:
        return
    if any(ord(character) in range(0x0B, 0x1F) or ord(character) in (0x85, 0x2028, 0x2029) for character in label):
        return
    text = rendered((FAMILY, [((label, "b"), value)]))
    expected = label.encode("utf-8", "replace").decode()
    assert parsed(text) == {(expected, "b"): pytest.approx(float(value))}


def test_hostile_label_values_stay_one_line() -> None:
    text = rendered((FAMILY, [(('a"} 1\nevil{x="', "\ud800" + "z" * 5000), 1)]))
    assert len(text.splitlines()) == 3
    assert parsed(text) == {('a"} 1\nevil{x="', "?" + "z" * (MAX_LABEL_LENGTH - 1)): 1.0}


def test_a_prefix_is_rendered_once_and_reused() -> None:
    renderer = Renderer()
    first = rendered((FAMILY, [(("a", "b"), 1)]), renderer=renderer)
    second = rendered((FAMILY, [(("a", "b"), 2)]), renderer=renderer)
    assert first.replace(" 1\n", " 2\n") == second


def test_special_values() -> None:
    assert [format_value(value) for value in (math.inf, -math.inf, 1e21, 3.0, 0.1)] == [
        "+Inf",
        "-Inf",
        "1e+21",
        "3",
        "0.1",
    ]


def test_names_follow_the_conventions() -> None:
    names = [metric.full_name for metric in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert not metric.name.endswith(("_ns", "_bps", "_ms", "_percent")), metric.name
        assert metric.help.endswith("."), metric.name


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text; version=1.0.0; q=0.3, text/plain; q=0.5", False),
        ("application/openmetrics-text;q=nonsense", False),
        # Prometheus 3.
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.4", True),
        (";;;,=;q=,", False),
    ],
)
def test_who_wants_openmetrics(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted


def test_openmetrics_names_the_family_without_total_and_its_unit() -> None:
    seconds = Metric("collector_log_commit_seconds_total", "counter", "Time.")
    assert head(seconds, openmetrics=True) == [
        "# HELP bandwitness_collector_log_commit_seconds Time.",
        "# TYPE bandwitness_collector_log_commit_seconds counter",
        "# UNIT bandwitness_collector_log_commit_seconds seconds",
    ]
    assert head(seconds, openmetrics=False)[1] == "# TYPE bandwitness_collector_log_commit_seconds_total counter"
