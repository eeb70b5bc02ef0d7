"""Every figure the collector exports, described once: HELP texts, docs and tests read this table.

Prometheus base units: seconds, bytes, ratios 0–1. A family whose figure does not exist yet has no sample: absent is
never 0.
"""

from dataclasses import dataclass
from typing import Literal

PREFIX = "bandwitness_"
PATH = ("src", "dst", "lane", "protocol", "path")
CARRIER = ("site", "carrier", "protocol")
NIC = ("node", "nic")
AGENT = ("node", "site", "rack")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family; ``name`` without the prefix."""

    name: str
    kind: Literal["counter", "gauge", "summary", "histogram"]
    help: str
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


METRICS: tuple[Metric, ...] = (
    # Round trips, per path.
    Metric("probe_packets_sent_total", "counter", "Probe packets inside the loss ratio: replied, lost, unreachable or corrupt.", PATH),
    Metric("probe_packets_lost_total", "counter", "Probe packets lost, unreachable or corrupt (RFC 6673).", PATH),
    Metric("one_way_packets_lost_total", "counter", "STAMP packets lost on the way there (forward) or back (reverse), where the reflector's count tells (RFC 7680).", (*PATH, "direction")),
    Metric("probe_outcomes_total", "counter", "Probe packets by outcome; unresolved, send_failed and skipped are our own faults.", ("src", "outcome")),
    Metric("round_trip_delay_seconds", "histogram", "Round-trip delays between two racks on one lane, loaded ones included (RFC 2681).", ("src_rack", "dst_rack", "lane")),
    Metric("path_loss_ratio", "gauge", "Round-trip loss ratio over the newest closed 10 s window; as all path_ gauges absent once that is 5 min old.", PATH),
    Metric("path_delay_seconds", "summary", "Round-trip delay quantiles over the newest closed 10 s window (RFC 2681).", (*PATH, "quantile")),
    Metric("path_hops", "gauge", "Routers on the way back, by the TTL or hop limit that replies come with.", PATH),
    Metric("path_mtu_bytes", "gauge", "Largest IP packet that gets there whole, by the newest check that could say.", PATH),
    Metric("path_loaded", "gauge", "1 if a throughput test of ours shared the path in the newest closed window; such windows enter no loss or delay verdict.", PATH),
    Metric("path_doubtful", "gauge", "1 if a host at either end doubted its delays in the newest closed window; such windows enter no delay verdict.", PATH),
    # Carriers: all targets of one, as the nodes of a site reach them.
    Metric("carrier_targets", "gauge", "Targets of a carrier that a site's nodes probed in the last minute judged.", CARRIER),
    Metric("carrier_targets_reachable", "gauge", "Of these, targets that answered at least once.", CARRIER),
    Metric("carrier_loss_ratio", "gauge", "Round-trip loss ratio over all targets of a carrier in the last minute judged.", CARRIER),
    Metric("carrier_delay_seconds", "summary", "Round-trip delay quantiles over all targets of a carrier in the last minute judged; loaded and doubtful windows left out, at most 9 % too high.", (*CARRIER, "quantile")),
    # Throughput.
    Metric("throughput_bytes_per_second", "gauge", "Newest valid throughput result, as counted by the receiver.", PATH),
    Metric("throughput_result_timestamp_seconds", "gauge", "When the newest valid throughput result was measured.", PATH),
    Metric("peak_throughput_bytes_per_second", "gauge", "Median of valid results in the peak window over the trailing period.", PATH),
    Metric("offpeak_throughput_bytes_per_second", "gauge", "Median of valid results in the off-peak window over the trailing period.", PATH),
    Metric("swing_ratio", "gauge", "1 - peak / off-peak throughput; absent until both windows have enough valid tests.", PATH),
    Metric("hourly_throughput_bytes_per_second", "gauge", "Median of valid results between two racks in one hour of the local day (of the first rack's site) over the trailing period.", ("src_rack", "dst_rack", "lane", "hour")),
    Metric("throughput_tests_total", "counter", "Planned throughput tests whose records are all there or not expected any more, by outcome; each is counted once.", ("src", "dst", "lane", "outcome")),
    Metric("throughput_tests_corrected_total", "counter", "Of these, tests that a late record made something else: outcome is what they were counted as, corrected what they are.", ("src", "dst", "lane", "outcome", "corrected")),
    # Incidents.
    Metric("incident_active", "gauge", "1 for each open incident; during says whether it began inside a checkpoint (marked), a burst (inferred) or neither (empty).", ("rule", "severity", "kind", "element", "during")),
    # NICs.
    Metric("nic_receive_bytes_total", "counter", "Bytes received since the collector first saw the NIC; resets of the device left out.", NIC),
    Metric("nic_transmit_bytes_total", "counter", "Bytes transmitted since the collector first saw the NIC; resets of the device left out.", NIC),
    Metric("nic_errors_total", "counter", "Errors and drops since the collector first saw the NIC: the kernel's own counts by its names, those of drivers and RDMA ports by one vocabulary; resets left out.", (*NIC, "counter")),
    Metric("nic_congestion_total", "counter", "Congestion notifications (CNP) and ECN marks of RDMA since the collector first saw the NIC: ecn_marked and cnp_sent by the receiver, cnp_handled by the sender that slowed down.", (*NIC, "counter")),
    Metric("nic_pause_ratio", "gauge", "Share of the newest closed 10 s window in which flow control stopped the port (receive: it was not allowed to send; transmit: it stopped its neighbour), by its longest-paused priority; absent where the driver does not count durations.", (*NIC, "direction")),
    Metric("nic_info", "gauge", "1 for each NIC: only physical ports and virtual functions (vf) make a sum; coverage says what its counters do not see.", (*NIC, "kind", "driver", "coverage")),
    Metric("nic_receive_peak_bytes_per_second", "gauge", "Highest one-second receive rate in the newest closed 10 s window.", NIC),
    Metric("nic_transmit_peak_bytes_per_second", "gauge", "Highest one-second transmit rate in the newest closed 10 s window.", NIC),
    Metric("nic_speed_bytes_per_second", "gauge", "Link speed; absent where the kernel does not know it.", NIC),
    # Bursts.
    Metric("burst_active", "gauge", "1 for each burst of a NIC that is on: save and restore go one way, exchange both.", (*NIC, "lane", "kind")),
    Metric("bursts_total", "counter", "Bursts of NICs that ended.", ("lane", "kind")),
    Metric("burst_bytes_total", "counter", "Bytes of bursts of NICs that ended, in the direction of the burst.", ("lane", "kind")),
    Metric("cluster_burst_active", "gauge", "Cluster bursts (many nodes at once) that are on; marked: whether a trainer said so.", ("site", "scope", "lane", "kind", "marked")),
    Metric("cluster_bursts_total", "counter", "Cluster bursts that ended.", ("scope", "lane", "kind", "marked")),
    Metric("cluster_burst_bytes_per_second", "gauge", "Rate of all nodes of the cluster bursts that are on, from their start.", ("site", "scope", "lane", "kind", "marked")),
    Metric("cluster_burst_next_start_timestamp_seconds", "gauge", "When the next cluster burst is to be expected; absent where they are not periodic.", ("site", "lane", "kind")),
    Metric("burst_precision_ratio", "gauge", "Share of the bursts of the last day, on nodes whose trainers mark checkpoints, of which a mark speaks."),
    Metric("burst_recall_ratio", "gauge", "Share of the checkpoints marked in the last day for which a burst was found."),
    Metric("burst_start_error_seconds", "summary", "Distance of a burst's start from what trainers said, over the last day.", ("quantile",)),
    # Agents.
    Metric("agent_last_seen_timestamp_seconds", "gauge", "When the collector last received a batch from the agent (collector's clock).", AGENT),
    Metric("agent_connected", "gauge", "1 while the agent's stream is open.", AGENT),
    Metric("agent_clock_error_seconds", "gauge", "Bound on the agent's clock error; absent where its source gives none.", AGENT),
    Metric("agent_clock_synchronised", "gauge", "1 if the agent's kernel calls its clock synchronised.", AGENT),
    Metric("agent_self_checks_total", "counter", "Checks of the agent by itself, one a flush.", AGENT),
    Metric("agent_doubtful_self_checks_total", "counter", "Checks in which the agent doubted its own delays, by reason; one check can have several. Windows they touch enter no delay verdict.", (*AGENT, "reason")),
    Metric("agent_delays_doubtful", "gauge", "1 while the agent's newest check of itself doubts its delays.", AGENT),
    Metric("agent_loopback_delay_seconds", "gauge", "Median round trip over the agent's own loopback in its newest check of itself.", AGENT),
    Metric("agent_timer_lateness_seconds", "gauge", "How late the probes' timer ran at worst in the agent's newest check of itself.", AGENT),
    Metric("agent_gaps_total", "counter", "Stretches that the agent says it did not record, in any class.", AGENT),
    Metric("agent_spool_bytes", "gauge", "Bytes in the agent's spool that wait for the collector.", AGENT),
    Metric("agent_records_dropped_total", "counter", "Records the agent dropped to stay inside its spool's limits.", AGENT),
    Metric("agent_certificate_expiry_timestamp_seconds", "gauge", "When the agent's newest known certificate ends; absent for plain text and for agents not seen since the collector's start whose certificates come from elsewhere.", AGENT),
    Metric("agent_part_working", "gauge", "0 for each part of an agent that does not work, with its state.", (*AGENT, "part", "state")),
    # The collector itself.
    Metric("collector_build_info", "gauge", "Always 1; the version is a label.", ("version",)),
    Metric("collector_received_batches_total", "counter", "Batches received since the start: new, late (its chain had gone on without it or its payload), duplicate (sent again, kept once) or quarantined.", ("result",)),
    Metric("collector_enrolments_total", "counter", "What nodes asked of the authority: enrolled, renewed, or why not.", ("result",)),
    Metric("collector_stream_conflicts_total", "counter", "Streams of an agent replaced by another process of its name that had been replaced by it before: two agents run as one node."),
    Metric("collector_refused_streams_total", "counter", "Agents' streams that the collector ended, by gRPC status.", ("status",)),
    Metric("collector_log_bytes_total", "counter", "Bytes appended to the log since the start."),
    Metric("collector_log_commits_total", "counter", "Groups of batches made durable since the start."),
    Metric("collector_log_commit_seconds_total", "counter", "Time taken to make them durable."),
    Metric("collector_log_failures_total", "counter", "Groups of batches that could not be made durable; agents send them again."),
    Metric("collector_log_failing", "gauge", "1 while nothing can be made durable; /healthz says why."),
    Metric("collector_log_unreadable_total", "counter", "Entries of the log met damaged or gone when they were to be read."),
    Metric("collector_batches_total", "counter", "Batches in the log, by class.", ("class",)),
    Metric("collector_batches_quarantined_total", "counter", "Batches stored that do not stand in their chain, by reason.", ("reason",)),
    Metric("collector_records_unreadable_total", "counter", "Records in good batches that could not be decoded."),
    Metric("collector_analysis_lag_seconds", "gauge", "Age of the oldest log entry that analysis has not read."),
    Metric("collector_analysis_errors_total", "counter", "Steps of analysis that failed as a whole and were tried again."),
    Metric("collector_burst_reads_waited_out_total", "counter", "Counter reads judged though it was not known yet whether a test of ours ran."),
    Metric("collector_remote_write_samples_total", "counter", "Samples of remote write since the start: sent, refused (the receiver will never take them) or expired (measured too long ago); dropped entries are counted by themselves.", ("remote", "result")),
    Metric("collector_remote_write_entries_dropped_total", "counter", "Entries that gave way unsent because too many waited; one is a window of 10 s of one node, or a throughput test.", ("remote",)),
    Metric("collector_remote_write_entries_waiting", "gauge", "Entries on disk that are still to be sent; half a minute's worth is always held back.", ("remote",)),
    Metric("collector_remote_write_failures_total", "counter", "Requests of remote write that did not go through and are tried again.", ("remote",)),
    Metric("collector_remote_write_working", "gauge", "0 while the newest request of remote write has failed or was refused; /healthz says why.", ("remote",)),
    Metric("collector_remote_write_last_success_timestamp_seconds", "gauge", "When a receiver last took samples; absent until it has.", ("remote",)),
    Metric("collector_snapshot_age_seconds", "gauge", "Age of the figures in this scrape."),
    Metric("collector_rule_errors_total", "counter", "Runs of a rule that raised an error.", ("rule",)),
    Metric("collector_scrape_errors", "gauge", "1 for each part of this scrape that failed and is left out.", ("part",)),
    Metric("collector_scrape_duration_seconds", "gauge", "Time taken to render this scrape."),
)  # fmt: skip

BY_NAME = {metric.name: metric for metric in METRICS}
