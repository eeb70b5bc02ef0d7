"""From the newest snapshot to Prometheus families: the only place where nanoseconds become seconds.

Each part of the scrape is built on its own: one that fails is left out and counted, the others are served.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bandwitness import VERSION
from collector.analysis.snapshot import DELAY_BOUNDS_NS, PACKET_OUTCOMES, Snapshot
from collector.export.exposition import Renderer, Sample, format_value, label_pairs
from collector.export.views import enum_name
from collector.model import NodeRow, PathStatus
from collector.vocabulary import BY_NAME, METRICS, Metric

NS = 1e-9
log = logging.getLogger(__name__)

Part = Callable[["Scrape"], Iterator[tuple[str, Sample]]]


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one scrape reads."""

    snapshot: Snapshot
    nodes: Sequence[NodeRow]  # completed with live sessions
    now_ns: int


def _path_labels(path: PathStatus) -> tuple[str, ...]:
    return (path.src, path.dst, path.lane, enum_name("protocol", path.protocol), f"{path.path_id:016x}")


def round_trips(scrape: Scrape) -> Iterator[tuple[str, Sample]]:
    outcomes: dict[tuple[str, str], int] = {}
    for path_id, totals in scrape.snapshot.totals.items():
        path = scrape.snapshot.paths.get(path_id)
        if path is None:
            continue
        labels = _path_labels(path)
        yield "probe_packets_sent_total", (labels, totals.sent)
        yield "probe_packets_lost_total", (labels, totals.lost)
        if path.source_port is not None:
            yield "one_way_packets_lost_total", ((*labels, "forward"), totals.forward_lost)
            yield "one_way_packets_lost_total", ((*labels, "reverse"), totals.reverse_lost)
        for outcome, count in zip(PACKET_OUTCOMES, totals.outcomes, strict=True):
            key = (totals.src, outcome)
            outcomes[key] = outcomes.get(key, 0) + count
    for key, count in outcomes.items():
        yield "probe_outcomes_total", (key, count)
    for path in scrape.snapshot.paths.values():
        if path.window_start_time_ns is None:
            continue
        labels = _path_labels(path)
        if path.loss_ratio is not None:
            yield "path_loss_ratio", (labels, path.loss_ratio)
        for quantile, delay in (("0.5", path.delay_p50_ns), ("0.99", path.delay_p99_ns)):
            if delay is not None:
                yield "path_delay_seconds", ((*labels, quantile), delay * NS)
        if path.loaded is not None:
            yield "path_loaded", (labels, int(path.loaded))


def throughput(scrape: Scrape) -> Iterator[tuple[str, Sample]]:
    for path in scrape.snapshot.paths.values():
        status = path.throughput
        if status is None:
            continue
        labels = _path_labels(path)
        figures = (
            ("throughput_bytes_per_second", status.last_bps, 1 / 8),
            ("throughput_result_timestamp_seconds", status.last_time_ns, NS),
            ("peak_throughput_bytes_per_second", status.peak_bps, 1 / 8),
            ("offpeak_throughput_bytes_per_second", status.offpeak_bps, 1 / 8),
            ("swing_ratio", status.swing_ratio, 1),
        )
        for name, value, factor in figures:
            if value is not None:
                yield name, (labels, value * factor)
    for labels, count in scrape.snapshot.attempts.items():
        yield "throughput_tests_total", (labels, count)


def incidents(scrape: Scrape) -> Iterator[tuple[str, Sample]]:
    # Two incidents of one rule on one element differ in when they opened; the series says that one is open.
    for labels in {
        (incident.rule, incident.severity, incident.element.kind, incident.element.name)
        for incident in scrape.snapshot.incidents
    }:
        yield "incident_active", (labels, 1)


def nics(scrape: Scrape) -> Iterator[tuple[str, Sample]]:
    for nic in scrape.snapshot.nics:
        labels = (nic.node, nic.nic)
        yield "nic_receive_bytes_total", (labels, nic.receive_bytes_total)
        yield "nic_transmit_bytes_total", (labels, nic.transmit_bytes_total)
        for counter, count in nic.errors.items():
            yield "nic_errors_total", ((*labels, counter), count)
        for name, peak in (
            ("nic_receive_peak_bytes_per_second", nic.receive_peak_bytes_per_second),
            ("nic_transmit_peak_bytes_per_second", nic.transmit_peak_bytes_per_second),
        ):
            if peak is not None:
                yield name, (labels, peak)
        if nic.speed_bps is not None:
            yield "nic_speed_bytes_per_second", (labels, nic.speed_bps / 8)


def agents(scrape: Scrape) -> Iterator[tuple[str, Sample]]:
    for node in scrape.nodes:
        labels = (node.name, node.site, node.rack)
        yield "agent_connected", (labels, int(node.connected))
        figures = (
            ("agent_last_seen_timestamp_seconds", node.last_received_time_ns, NS),
            ("agent_clock_error_seconds", node.clock_error_bound_ns, NS),
            ("agent_clock_synchronised", node.clock_synchronised, 1),
            ("agent_spool_bytes", node.spool_bytes, 1),
            ("agent_records_dropped_total", node.records_dropped, 1),
        )
        for name, value, factor in figures:
            if value is not None:
                yield name, (labels, value * factor)
        for part in node.parts:
            yield "agent_part_working", ((*labels, part["part"], part["state"]), 0)


def collector_itself(scrape: Scrape) -> Iterator[tuple[str, Sample]]:
    snapshot = scrape.snapshot
    yield "collector_build_info", ((VERSION,), 1)
    for batch_class, count in snapshot.batches.items():
        yield "collector_batches_total", ((batch_class,), count)
    for reason, count in snapshot.quarantined.items():
        yield "collector_batches_quarantined_total", ((reason,), count)
    for rule, count in snapshot.rule_errors.items():
        yield "collector_rule_errors_total", ((rule,), count)
    yield "collector_records_unreadable_total", ((), snapshot.unreadable_records)
    yield "collector_analysis_errors_total", ((), snapshot.step_errors)
    yield "collector_analysis_lag_seconds", ((), snapshot.lag_ns * NS)
    if snapshot.made_time_ns:
        yield "collector_snapshot_age_seconds", ((), max(0, scrape.now_ns - snapshot.made_time_ns) * NS)


PARTS: tuple[Part, ...] = (round_trips, throughput, incidents, nics, agents, collector_itself)


def delay_histograms(snapshot: Snapshot) -> str:
    """The one histogram family, rendered apart: its lines have suffixes that plain families lack."""
    metric = BY_NAME["round_trip_delay_seconds"]
    lines = [f"# HELP {metric.full_name} {metric.help}", f"# TYPE {metric.full_name} histogram"]
    bounds = [format_value(bound / 1e9) for bound in DELAY_BOUNDS_NS] + ["+Inf"]
    for histogram in snapshot.delays:
        labels = label_pairs(metric, (histogram.src_rack, histogram.dst_rack, histogram.lane))
        total = 0
        for bound, total in zip(bounds, accumulate(histogram.counts), strict=True):
            lines.append(f'{metric.full_name}_bucket{{{labels},le="{bound}"}} {total}')
        lines.append(f"{metric.full_name}_sum{{{labels}}} {format_value(histogram.sum_ns / 1e9)}")
        lines.append(f"{metric.full_name}_count{{{labels}}} {total}")
    return "\n".join(lines) + "\n"


class Exporter:
    """Renders ``/metrics``; one instance serves all scrapes."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        complete_node: Callable[[NodeRow], NodeRow],
        wall_ns: Callable[[], int] = time.time_ns,
        parts: Sequence[Part] = PARTS,
    ) -> None:
        self._snapshot, self._complete_node, self._wall_ns, self._parts = snapshot, complete_node, wall_ns, parts
        self._renderer = Renderer()

    def render(self) -> str:
        """The whole text. Reads one snapshot, starts nothing."""
        begun = time.perf_counter()
        snapshot = self._snapshot()
        nodes = [self._complete_node(node) for node in snapshot.nodes]
        scrape = Scrape(snapshot, nodes, self._wall_ns())
        samples: dict[str, list[Sample]] = {metric.name: [] for metric in METRICS}
        failed: list[str] = []
        for part in self._parts:
            self._collect(part, scrape, samples, failed)
        histograms = ""
        try:
            histograms = delay_histograms(snapshot)
        except Exception:
            failed.append("delay_histograms")
            log.exception("a part of the scrape failed: delay_histograms")
        samples["collector_scrape_errors"] = [((name,), 1) for name in failed]
        samples["collector_scrape_duration_seconds"] = [((), time.perf_counter() - begun)]
        families: Iterable[tuple[Metric, Iterable[Sample]]] = (
            (metric, samples[metric.name]) for metric in METRICS if metric.kind != "histogram"
        )
        return self._renderer.render(families) + histograms

    @staticmethod
    def _collect(part: Part, scrape: Scrape, samples: dict[str, list[Sample]], failed: list[str]) -> None:
        """Adds what one part yields, all or nothing: half a part would look like series that vanished."""
        try:
            built = list(part(scrape))
        except Exception:
            log.exception("a part of the scrape failed: %s", part.__name__)
            failed.append(part.__name__)
            return
        for metric, sample in built:
            samples[metric].append(sample)
