"""From the newest snapshot to Prometheus families: the only place where nanoseconds become seconds.

Each part of the scrape is built on its own: one that fails is left out and counted, the others are served.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import add

from bandwitness import VERSION
from collector.analysis.snapshot import DELAY_BOUNDS_NS, PACKET_OUTCOMES, Snapshot
from collector.export.exposition import Renderer, Sample, format_value, label_pairs, text_of
from collector.export.views import enum_name
from collector.model import BurstScore, Incident, NodeRow, PathStatus, SelfCheckStatus
from collector.vocabulary import BY_NAME, METRICS

NS = 1e-9
STALE_NS = 300 * 1_000_000_000  # what is older is not how a path is now; as long as Prometheus itself holds on
log = logging.getLogger(__name__)

# Yields samples, or ready lines, by the name of their metric.
Part = Callable[["Scrape"], Iterator[tuple[str, Sample]] | Iterator[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one scrape reads."""

    snapshot: Snapshot
    nodes: Sequence[NodeRow]  # completed with live sessions
    now_ns: int


Labels = tuple[str, ...]


def _path_labels(path: PathStatus) -> Labels:
    return _labels(path.src, path.dst, path.lane, path.protocol, path.path_id)


@lru_cache(200_000)  # the same tuple at every scrape: there are tens of thousands, and making them is most of the time
def _labels(src: str, dst: str, lane: str, protocol: int, path_id: int) -> Labels:
    return (src, dst, lane, enum_name("protocol", protocol), f"{path_id:016x}")


@lru_cache(400_000)
def _with(labels: Labels, value: str) -> Labels:
    return (*labels, value)


def _probed(scrape: Scrape) -> Iterator[PathStatus]:
    """Round-trip paths that have a window of late: not those of a source port or of an address of a name that is no
    longer used, nor of an agent that is gone. Late is told by event time, so a backlog keeps its own."""
    through_ns = scrape.snapshot.through_time_ns
    since_ns = None if through_ns is None else through_ns - STALE_NS
    for path in scrape.snapshot.paths.values():
        start_ns = path.window_start_time_ns
        if start_ns is not None and (since_ns is None or start_ns >= since_ns):
            yield path


def round_trips(scrape: Scrape) -> Iterator[tuple[str, Sample]]:
    outcomes: dict[str, list[int]] = {}
    for path_id, totals in scrape.snapshot.totals.items():
        path = scrape.snapshot.paths.get(path_id)
        if path is None:
            continue
        labels = _path_labels(path)
        yield "probe_packets_sent_total", (labels, totals.sent)
        yield "probe_packets_lost_total", (labels, totals.lost)
        if path.source_port is not None:
            yield "one_way_packets_lost_total", (_with(labels, "forward"), totals.forward_lost)
            yield "one_way_packets_lost_total", (_with(labels, "reverse"), totals.reverse_lost)
        known = outcomes.get(totals.src)
        outcomes[totals.src] = list(totals.outcomes if known is None else map(add, known, totals.outcomes))
    for src, counts in outcomes.items():
        for outcome, count in zip(PACKET_OUTCOMES, counts, strict=True):
            yield "probe_outcomes_total", ((src, outcome), count)
    for path in _probed(scrape):
        labels = _path_labels(path)
        if path.loss_ratio is not None:
            yield "path_loss_ratio", (labels, path.loss_ratio)
        for quantile, delay in (("0.5", path.delay_p50_ns), ("0.99", path.delay_p99_ns)):
            if delay is not None:
                yield "path_delay_seconds", (_with(labels, quantile), delay * NS)
        if path.loaded is not None:
            yield "path_loaded", (labels, int(path.loaded))
            yield "path_doubtful", (labels, int(path.doubtful is not None))


def ways(scrape: Scrape) -> Iterator[tuple[str, Sample]]:
    for path in _probed(scrape):
        if path.hop_count is not None:
            yield "path_hops", (_path_labels(path), path.hop_count)
        if path.path_mtu_bytes is not None:
            yield "path_mtu_bytes", (_path_labels(path), path.path_mtu_bytes)


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
    for labels, bps in scrape.snapshot.hours.items():
        yield "hourly_throughput_bytes_per_second", (labels, bps / 8)
    for labels, count in scrape.snapshot.attempts.items():
        yield "throughput_tests_total", (labels, count)
    for correction, count in scrape.snapshot.corrections.items():
        yield "throughput_tests_corrected_total", (correction, count)


def incidents(scrape: Scrape) -> Iterator[tuple[str, Sample]]:
    # Two incidents of one rule on one element differ in when they opened; the series says that one is open.
    for labels in {
        (incident.rule, incident.severity, incident.element.kind, incident.element.name, during(incident))
        for incident in scrape.snapshot.incidents
    }:
        yield "incident_active", (labels, 1)


def during(incident: Incident) -> str:
    """``checkpoint`` (a trainer said so) or ``burst`` (inferred) where it began inside one; else empty."""
    return str(incident.values.get("during", ""))


def nics(scrape: Scrape) -> Iterator[tuple[str, Sample]]:
    for nic in scrape.snapshot.nics:
        labels = (nic.node, nic.nic)
        yield "nic_receive_bytes_total", (labels, nic.receive_bytes_total)
        yield "nic_transmit_bytes_total", (labels, nic.transmit_bytes_total)
        for counter, count in nic.errors.items():
            yield "nic_errors_total", ((*labels, counter), count)
        for counter, count in nic.congestion.items():
            yield "nic_congestion_total", ((*labels, counter), count)
        for name, peak in (
            ("nic_receive_peak_bytes_per_second", nic.receive_peak_bytes_per_second),
            ("nic_transmit_peak_bytes_per_second", nic.transmit_peak_bytes_per_second),
        ):
            if peak is not None:
                yield name, (labels, peak)
        if nic.speed_bps is not None:
            yield "nic_speed_bytes_per_second", (labels, nic.speed_bps / 8)
        for direction, paused in (("receive", nic.receive_pause_ratio), ("transmit", nic.transmit_pause_ratio)):
            if paused is not None:
                yield "nic_pause_ratio", ((*labels, direction), paused)
        yield "nic_info", ((*labels, nic.kind, nic.driver, ",".join(nic.coverage)), 1)


def bursts(scrape: Scrape) -> Iterator[tuple[str, Sample]]:
    snapshot = scrape.snapshot
    for labels in {(burst.node, burst.nic, burst.lane, burst.kind) for burst in snapshot.open_bursts}:
        yield "burst_active", (labels, 1)
    for place, count in snapshot.burst_counts.items():
        yield "bursts_total", (place, count)
        yield "burst_bytes_total", (place, snapshot.burst_bytes.get(place, 0))
    on: dict[tuple[str, ...], list[float]] = {}
    for cluster in snapshot.open_clusters:  # jobs' names are no labels: there is no end to them
        marked = "yes" if cluster.marked else "no"
        on.setdefault((cluster.site, cluster.scope, cluster.lane, cluster.kind, marked), []).append(
            cluster.achieved_bps
        )
    for place_of, rates in on.items():
        yield "cluster_burst_active", (place_of, len(rates))
        yield "cluster_burst_bytes_per_second", (place_of, sum(rates) / 8)
    for of, count in snapshot.cluster_burst_counts.items():
        yield "cluster_bursts_total", (of, count)
    expected: dict[tuple[str, str, str], int] = {}
    for cluster in snapshot.forecasts:
        if cluster.next_start_time_ns is not None:
            where = (cluster.site, cluster.lane, cluster.kind)
            expected[where] = min(expected.get(where, cluster.next_start_time_ns), cluster.next_start_time_ns)
    for where, time_ns in expected.items():
        yield "cluster_burst_next_start_timestamp_seconds", (where, time_ns * NS)
    yield "collector_burst_reads_waited_out_total", ((), snapshot.burst_steps_waited_out)
    if snapshot.burst_score is not None:
        yield from _score(snapshot.burst_score)


def _score(score: BurstScore) -> Iterator[tuple[str, Sample]]:
    for name, ratio in (("burst_precision_ratio", score.precision_ratio), ("burst_recall_ratio", score.recall_ratio)):
        if ratio is not None:
            yield name, ((), ratio)
    for quantile, error_ns in (("0.5", score.start_error_median_ns), ("0.9", score.start_error_p90_ns)):
        if error_ns is not None:
            yield "burst_start_error_seconds", ((quantile,), error_ns * NS)


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
            ("agent_gaps_total", node.gaps, 1),
            ("agent_certificate_expiry_timestamp_seconds", node.certificate_expiry_time_ns, NS),
        )
        for name, value, factor in figures:
            if value is not None:
                yield name, (labels, value * factor)
        if node.self_check is not None:
            yield from _self_check(labels, node.self_check)
        for part in node.parts:
            yield "agent_part_working", ((*labels, part["part"], part["state"]), 0)


def carriers(scrape: Scrape) -> Iterator[tuple[str, Sample]]:
    for row in scrape.snapshot.carriers:
        labels = (row.site, row.carrier, enum_name("protocol", row.protocol))
        yield "carrier_targets", (labels, row.targets)
        yield "carrier_targets_reachable", (labels, row.targets_reachable)
        if row.loss_ratio is not None:
            yield "carrier_loss_ratio", (labels, row.loss_ratio)
        for quantile, delay in (("0.5", row.delay_p50_ns), ("0.99", row.delay_p99_ns)):
            if delay is not None:
                yield "carrier_delay_seconds", ((*labels, quantile), delay * NS)


def _self_check(labels: tuple[str, ...], check: SelfCheckStatus) -> Iterator[tuple[str, Sample]]:
    yield "agent_self_checks_total", (labels, check.checks)
    yield "agent_delays_doubtful", (labels, int(bool(check.reasons)))
    for reason, times in check.doubtful_checks.items():
        yield "agent_doubtful_self_checks_total", ((*labels, reason), times)
    for name, value in (
        ("agent_loopback_delay_seconds", check.loopback_delay_p50_ns),
        ("agent_timer_lateness_seconds", check.lateness_max_ns),
    ):
        if value is not None:
            yield name, (labels, value * NS)


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


def delay_histograms(scrape: Scrape) -> Iterator[tuple[str, str]]:
    """The one histogram family, in ready lines: they have suffixes that other families lack."""
    metric = BY_NAME["round_trip_delay_seconds"]
    bounds = [repr(bound / 1e9) for bound in DELAY_BOUNDS_NS] + ["+Inf"]  # 1.0, not 1: as OpenMetrics writes it
    for histogram in scrape.snapshot.delays:
        labels = label_pairs(metric, (histogram.src_rack, histogram.dst_rack, histogram.lane))
        total = 0
        for bound, total in zip(bounds, accumulate(histogram.counts), strict=True):
            yield metric.name, f'{metric.full_name}_bucket{{{labels},le="{bound}"}} {total}'
        yield metric.name, f"{metric.full_name}_sum{{{labels}}} {format_value(histogram.sum_ns / 1e9)}"
        yield metric.name, f"{metric.full_name}_count{{{labels}}} {total}"


PARTS: tuple[Part, ...] = (
    round_trips,
    ways,
    throughput,
    incidents,
    nics,
    carriers,
    bursts,
    agents,
    collector_itself,
    delay_histograms,
)


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

    def render(self, *, openmetrics: bool = False) -> str:
        """The whole text. Reads one snapshot, starts nothing."""
        begun = time.perf_counter()
        snapshot = self._snapshot()
        nodes = [self._complete_node(node) for node in snapshot.nodes]
        scrape = Scrape(snapshot, nodes, self._wall_ns())
        self._renderer.forget()
        lines: dict[str, list[str]] = {metric.name: [] for metric in METRICS}
        failed = [part.__name__ for part in self._parts if not self._add(lines, part, scrape)]

        def itself(_: Scrape) -> Iterator[tuple[str, Sample]]:
            for name in failed:
                yield "collector_scrape_errors", ((name,), 1)
            yield "collector_scrape_duration_seconds", ((), time.perf_counter() - begun)

        self._add(lines, itself, scrape)
        return text_of(((metric, lines[metric.name]) for metric in METRICS), openmetrics=openmetrics)

    def _add(self, lines: dict[str, list[str]], part: Part, scrape: Scrape) -> bool:
        """Adds what one part says, all or nothing: half a part would look like series that vanished."""
        built: dict[str, list[str]] = defaultdict(list)
        try:
            # Lines at once: a hundred thousand samples kept until later would slow the garbage collector.
            for name, said in part(scrape):
                built[name].append(said if isinstance(said, str) else self._renderer.line(BY_NAME[name], said))
        except Exception:
            log.exception("a part of the scrape failed: %s", part.__name__)
            return False
        for name, more in built.items():
            lines[name] += more
        return True
