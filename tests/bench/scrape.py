"""How long Prometheus waits for a scrape of 100,000 series.

A collector's exporter behind its own HTTP server, over a snapshot of 12,000 paths with eight series each, 100 rack
pairs with their delay histograms, and 1,000 NICs. Between scrapes every counter moves, as it does in life. ``seconds``
is the median over scrapes of one HTTP request with its answer, after a first one, which is shown apart: it is the one
that makes the lines. Beside it, in the same run, prometheus_client renders as many series.
"""

import asyncio
import http.client
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import prometheus_client
from prometheus_client.exposition import generate_latest

from bandwitness.v1.record_pb2 import PROTOCOL_STAMP
from collector.analysis.snapshot import DELAY_BOUNDS_NS, DelayHistogram, NicStatus, PathTotals, Snapshot
from collector.app.http import HttpServer, listening_socket
from collector.export.http import Sources, create_app
from collector.export.prometheus import Exporter
from collector.model import EndpointRow, PathStatus

PATHS, NICS, RACK_PAIRS = 12_000, 1_000, 100
SECOND = 1_000_000_000


def snapshot() -> Snapshot:
    """A large fleet at one moment."""
    paths, totals = {}, {}
    for number in range(PATHS):
        source, destination = number % 128, number // 128
        path_id = number * 0x9E3779B97F4A7C15 % 2**64
        src, dst = f"gpu-{source:03d}", f"gpu-{destination:03d}"
        paths[path_id] = PathStatus(
            path_id=path_id,
            src=src,
            dst=dst,
            src_endpoint=EndpointRow(src, "ens1f0", "10.0.0.1", "rail0"),
            dst_endpoint=EndpointRow(dst, "ens1f0", "10.0.0.2", "rail0"),
            dst_address="10.0.0.2",
            lane="rail0",
            protocol=PROTOCOL_STAMP,
            window_start_time_ns=SECOND,
            sent=10,
            lost=0,
            loss_ratio=0.0,
            delay_p50_ns=50_000 + number,
            delay_p99_ns=90_000 + number,
            loaded=False,
            throughput=None,
            source_port=20_000,
        )
        totals[path_id] = PathTotals(path_id, src, (number, 1, 0, 0, 0, 0, 0), 0, 0, 1, 0)
    delays = [
        DelayHistogram(f"r{pair}", f"r{pair + 1}", "rail0", (7,) * (len(DELAY_BOUNDS_NS) + 1), 10**9)
        for pair in range(RACK_PAIRS)
    ]
    nics = [
        NicStatus(f"gpu-{nic:04d}", "ens1f0", SECOND, nic, nic, 1.0, 1.0, 10**11, 0, {}, {"rx_dropped": nic})
        for nic in range(NICS)
    ]
    return Snapshot(made_time_ns=time.time_ns(), paths=paths, totals=totals, delays=delays, nics=nics)


def moved(before: Snapshot) -> Snapshot:
    """The same a while later: every counter has moved."""
    totals = {
        path_id: replace(total, outcomes=(total.outcomes[0] + 10, *total.outcomes[1:]))
        for path_id, total in before.totals.items()
    }
    return replace(before, totals=totals)


class Scraped:
    """One exporter whose snapshot moves on between scrapes, behind a real server."""

    def __init__(self) -> None:
        self._snapshot = snapshot()
        self.exporter = Exporter(lambda: self._snapshot, lambda node: node)

    def move(self) -> None:
        self._snapshot = moved(self._snapshot)

    @contextmanager
    def serving(self) -> Iterator[int]:
        """Serves on loopback; gives the port."""
        app = create_app(Sources(None, self.exporter.render, dict, lambda node: node))  # type: ignore[arg-type] # only /metrics is asked
        listener = listening_socket("127.0.0.1:0")
        server = HttpServer(app)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
            listener.close()


def scrape(port: int) -> tuple[float, bytes]:
    """One request as Prometheus makes it: seconds, and the text."""
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read()
    finally:
        connection.close()
    return time.perf_counter() - begun, text


def peer_seconds(series: int, rounds: int) -> float:
    """prometheus_client over as many gauges with labels like ours."""
    registry = prometheus_client.CollectorRegistry()
    gauge = prometheus_client.Gauge(
        "peer", "As many series.", ("src", "dst", "lane", "protocol", "path"), registry=registry
    )
    for number in range(series):
        gauge.labels(f"gpu-{number % 128:03d}", f"gpu-{number // 128:03d}", "rail0", "stamp", f"{number:016x}").set(
            number
        )
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        generate_latest(registry)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def run(quick: bool) -> dict[str, object]:
    """Keys: ``series``, ``seconds`` (median), ``first_seconds``, ``bytes``, ``prometheus_client_seconds``."""
    rounds = 5 if quick else 15
    scraped = Scraped()
    taken = []
    with scraped.serving() as port:
        first, text = scrape(port)
        for _ in range(rounds):
            scraped.move()
            seconds, text = scrape(port)
            taken.append(seconds)
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    return {
        "series": series,
        "seconds": round(statistics.median(taken), 3),
        "first_seconds": round(first, 3),
        "bytes": len(text),
        "prometheus_client_seconds": round(peer_seconds(series, 3), 3),
    }
