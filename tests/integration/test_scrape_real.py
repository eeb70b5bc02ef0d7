"""Scrapes in awkward moments of a real collector, and of very many series by a real Prometheus."""

import asyncio
import contextlib
import socket
import threading
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector.export.prometheus import Exporter
from tests.bench.scrape import snapshot
from tests.fakes.dashboards import prometheus
from tests.integration.test_collector_real import serving, stopped, written
from tests.integration.test_dashboards_real import serving as exporting

BUILD = "bandwitness_collector_build_info"


def names(text: str) -> set[str]:
    return {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}


async def test_scrapers_at_once_from_before_the_start_until_after_the_stop_get_whole_answers_or_none(
    tmp_path: Path,
) -> None:
    """The socket is there before the process and after it, as under systemd, so there is always somebody to ask."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        texts: list[str] = []
        cut_off: list[str] = []
        answered, ended = threading.Event(), threading.Event()

        def scrape() -> None:
            while not ended.is_set():
                try:
                    with urllib.request.urlopen(url, timeout=30) as answer:
                        texts.append(answer.read().decode())  # raises if it is shorter than it says
                except urllib.error.HTTPError as error:
                    cut_off.append(f"{error.code}")
                    return
                except (OSError, HTTPException):
                    return  # the collector has stopped
                if len(texts) >= 30:
                    answered.set()

        scrapers = [threading.Thread(target=scrape) for _ in range(3)]
        for one in scrapers:
            one.start()
        config = written(tmp_path, http=f"fd:{listener.fileno()}")
        async with serving(config, descriptors=[listener.fileno()]) as collector:
            assert await asyncio.to_thread(answered.wait, 40)
            assert await stopped(collector) == 0
        ended.set()
    with contextlib.suppress(OSError):
        listener.close()  # whoever waits in its queue is told
    for one in scrapers:
        await asyncio.to_thread(one.join, 40)
    assert cut_off == []
    assert all(text.endswith("\n") and BUILD in names(text) for text in texts)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_hundred_thousand_series_arrive_in_prometheus(tmp_path: Path) -> None:
    fleet = snapshot()
    exporter = Exporter(lambda: fleet, lambda node: node)
    lines = [line for line in exporter.render().splitlines() if not line.startswith("#")]
    assert len(lines) > 100_000
    with exporting(exporter) as port, prometheus(tmp_path, port, interval="10s") as server:
        (scraped,) = server.instant("scrape_samples_scraped")
        (held,) = server.instant('count({__name__=~"bandwitness_.*"})')
        (took,) = server.instant("scrape_duration_seconds")
        memory = server.http.get("/metrics").text.partition("\nprocess_resident_memory_bytes ")[2].split()[0]
    print(f"{scraped['value'][1]} series in {took['value'][1]} s, Prometheus at {float(memory) / 2**20:.0f} MiB")
    assert int(scraped["value"][1]) == int(held["value"][1]) == len(lines)
