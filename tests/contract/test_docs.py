"""The documentation says what the programs do: each metric and each command, and nothing that is not there."""

import os
import re
from pathlib import Path

import pytest

from collector.__main__ import main
from collector.export.remote_write.samples import FAMILIES
from collector.vocabulary import BY_NAME, METRICS

ROOT = Path(__file__).parents[2]
REFRESH = "BANDWITNESS_REFRESH_GOLDEN"  # set it to write docs/metrics.md anew; review it as code
METRICS_PAGE = ROOT / "docs/metrics.md"
SENT = ",\n".join(f"`{BY_NAME[name].full_name}`" for name in FAMILIES)
PREAMBLE = f"""\
# Metrics

Made from `collector/vocabulary.py`: run `{REFRESH}=1 tests/run.sh tests/contract/test_docs.py` after a change there.

The collector serves them under `/metrics` (by default `http://127.0.0.1:7480/metrics`) in Prometheus text format. A
scrape reads the newest snapshot of the figures and starts nothing. Seconds, bytes, ratios from 0 to 1. What is not
known is absent, never 0. Counters of packets, delays and NICs begin with the collector's process and leave out samples
that arrive more than two minutes after they were measured: a drained backlog does not make `rate()` explode.

`src` and `dst` are nodes or targets, in the direction of the data; `path` is the path's id in the API and in the
records; `lane` is rail0 to rail99, storage, management or wan.

## By remote write

With `collector.remote_write` the collector also sends, under the same names, what belongs to a moment of measuring:
{SENT}.
Each sample has the time of the end of its window or test, also where it comes hours later. These series bear
`origin="event_time"`, `collector` (its name) and the labels of the configuration; no scraped series has `origin`, and
none of these has `job` or `instance`, so the two never meet. For one of them write `{{origin="event_time"}}`
or `{{origin=""}}`; dashboards and rules here read the scraped ones. Counters, histograms and incidents are not sent:
what a counter says depends on when it is read, and an incident may be revised (ask the API).

A window is sent once, half a minute after it is whole. What a record that comes still later, or a test of which the
end was not known then, changes in it stays in the API. A window that an agent never finished is not sent.

## Scraped

| Metric | Type | Labels | Meaning |
|---|---|---|---|
"""


def test_the_page_of_metrics_is_made_from_the_vocabulary() -> None:
    rows = [
        (f"`{metric.full_name}`", metric.kind, " ".join(f"`{label}`" for label in metric.labels), metric.help)
        for metric in METRICS
    ]
    text = PREAMBLE + "".join(f"| {' | '.join(row)} |\n" for row in rows)
    if os.environ.get(REFRESH):
        METRICS_PAGE.parent.mkdir(exist_ok=True)
        METRICS_PAGE.write_text(text)
    assert METRICS_PAGE.read_text() == text, f"set {REFRESH}=1 and run this again"


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_each_command_of_the_collector_is_in_the_readme_and_no_other(name: str) -> None:
    shown = re.findall(r"bandwitness-collector ([a-z]+)", (ROOT / name).read_text())
    assert set(shown) == set(main.commands)


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_only_metrics_that_exist_are_named(page: Path) -> None:
    names = {metric.full_name for metric in METRICS}
    named = set(re.findall(r"\bbandwitness_[a-z_]+[a-z]", page.read_text())) - {"bandwitness_mark"}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in named} <= names
