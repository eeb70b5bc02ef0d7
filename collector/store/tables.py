"""The store's tables. Everything in them but ``alerts`` and what remote write has sent is derived from the log and can
be made again.

Times are integer nanoseconds, 64-bit ids are stored as signed integers, lists and mappings as JSON text. Statements
are SQLAlchemy Core, so another database is a matter of the address and of the upsert's dialect.
"""

from sqlalchemy import Boolean, Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text
from sqlalchemy.types import BigInteger

METADATA = MetaData()

meta = Table(
    "meta",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

paths = Table(
    "paths",
    METADATA,
    Column("path_id", BigInteger, primary_key=True, autoincrement=False),
    Column("source", Text, nullable=False),  # [node, nic, address, lane]
    Column("destination", Text),
    Column("target", Text),
    Column("target_address", Text),
    Column("protocol", Integer, nullable=False),
    Column("ip_version", Integer, nullable=False),
    Column("payload_bytes", Integer, nullable=False),
    Column("dscp", Integer, nullable=False),
    Column("profile_id", BigInteger),
    Column("definition", LargeBinary, nullable=False),
    Column("position", BigInteger, nullable=False),  # in the log, of the batch that defined it first
    Column("source_port", Integer, nullable=False, server_default="0"),
    Column("destination_port", Integer, nullable=False, server_default="0"),
)

profiles = Table(
    "profiles",
    METADATA,
    Column("profile_id", BigInteger, primary_key=True, autoincrement=False),
    Column("definition", LargeBinary, nullable=False),
)

counter_sets = Table(
    "counter_sets",
    METADATA,
    Column("counter_set_id", BigInteger, primary_key=True, autoincrement=False),
    Column("definition", LargeBinary, nullable=False),
)

agents = Table(
    "agents",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("first_received_time_ns", BigInteger, nullable=False),
    Column("last_received_time_ns", BigInteger, nullable=False),
    Column("watermark_ns", BigInteger),  # of the evidence chain
    Column("round_trip_watermark_ns", BigInteger),
    Column("closed_through_ns", BigInteger),  # all windows up to here are rows
    Column("software_version", Text),
    Column("iperf3_version", Text),
    Column("clock_synchronised", Boolean),
    Column("clock_error_bound_ns", BigInteger),
    Column("spool_bytes", BigInteger),
    Column("records_dropped", BigInteger),
    Column("parts", Text, nullable=False),
    Column("chains", Text, nullable=False),
    Column("quarantined", Integer, nullable=False),
    Column("self_check", Text, nullable=False, server_default="{}"),
    Column("gaps", Integer, nullable=False, server_default="0"),
    Column("last_gap_time_ns", BigInteger),
)

slots = Table(
    "slots",
    METADATA,
    Column("slot_id", LargeBinary, primary_key=True),
    Column("group_id", LargeBinary, nullable=False),
    Column("purpose", Integer, nullable=False),
    Column("window", Integer, nullable=False),
    Column("day", Text, nullable=False),
    Column("start_time_ns", BigInteger, nullable=False),
    Column("end_time_ns", BigInteger, nullable=False),
    Column("margin_ns", BigInteger, nullable=False),
    Column("client", Text, nullable=False),
    Column("server", Text, nullable=False),
    Column("port", Integer, nullable=False),
    Column("reverse", Boolean, nullable=False),
    Column("path_id", BigInteger, nullable=False),
    Column("profile_id", BigInteger, nullable=False),
    Column("tokens", Text, nullable=False),
    Column("reason", Text, nullable=False),
    # What analysis says of it.
    Column("withdrawn", Boolean, nullable=False),
    Column("category", Text, nullable=False),
    Column("outcome", Integer, nullable=False),
    Column("disagreement", Text, nullable=False),
    Column("contended", Boolean, nullable=False),
    Column("settled", Boolean, nullable=False),
    Column("valid", Boolean, nullable=False),
    Column("counted", Text, nullable=False, server_default=""),  # outcomes, the one it stood under first before others
    Index("slots_by_start", "start_time_ns"),
    Index("slots_pending", "category", "end_time_ns"),
)

plans = Table(
    "plans",
    METADATA,
    Column("node", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("plan_hash", LargeBinary, nullable=False),
    Column("issued_time_ns", BigInteger, nullable=False),
    Column("expiry_time_ns", BigInteger, nullable=False),
)

runs = Table(
    "runs",
    METADATA,
    Column("slot_id", LargeBinary, primary_key=True),
    Column("role", Integer, primary_key=True, autoincrement=False),
    Column("agent_id", Text, primary_key=True),  # before the plan is known anybody may claim to be an end of the slot
    Column("source", Text, nullable=False),
    Column("path_id", BigInteger, nullable=False),
    Column("profile_id", BigInteger, nullable=False),
    Column("outcome", Integer, nullable=False),
    Column("outcome_detail", Text, nullable=False),
    Column("start_time_ns", BigInteger, nullable=False),
    Column("end_time_ns", BigInteger, nullable=False),
    Column("engine_version", Text, nullable=False),
    Column("throughput_bps", Float),
    Column("sender_bytes", BigInteger),
    Column("receiver_bytes", BigInteger),
    Column("receiver_duration_ns", BigInteger),
    Column("receiver_derived", Boolean, nullable=False),
    Column("retransmits", BigInteger),
    Column("gates_tripped", Text, nullable=False),
    Column("flags", Text, nullable=False),
    Index("runs_by_end", "end_time_ns"),
)

swings = Table(
    "swings",
    METADATA,
    Column("path_id", BigInteger, primary_key=True, autoincrement=False),
    Column("engine_version", Text, primary_key=True),
    Column("peak_bps", Float),
    Column("offpeak_bps", Float),
    Column("tests_peak", Integer, nullable=False),
    Column("tests_offpeak", Integer, nullable=False),
    Column("swing_ratio", Float),
    Column("flagged", Boolean, nullable=False),
    Column("through_time_ns", BigInteger, nullable=False),
    Column("evidence", Text, nullable=False),
    Column("last_bps", Float),
    Column("last_time_ns", BigInteger),
)

round_trip_windows = Table(
    "round_trip_windows",
    METADATA,
    Column("start_time_ns", BigInteger, primary_key=True, autoincrement=False),
    Column("path_id", BigInteger, primary_key=True, autoincrement=False),
    Column("length_ns", BigInteger, nullable=False),
    Column("sent", Integer, nullable=False),
    Column("replied", Integer, nullable=False),
    Column("lost", Integer, nullable=False),
    Column("unreachable", Integer, nullable=False),
    Column("corrupt", Integer, nullable=False),
    Column("unresolved", Integer, nullable=False),
    Column("send_failed", Integer, nullable=False),
    Column("skipped", Integer, nullable=False),
    Column("duplicates", Integer, nullable=False),
    Column("late", Integer, nullable=False),
    Column("delay_samples", Integer, nullable=False),
    Column("delay_min_ns", BigInteger),
    Column("delay_p50_ns", BigInteger),
    Column("delay_p99_ns", BigInteger),
    Column("delay_max_ns", BigInteger),
    Column("loaded_by", LargeBinary),
    Column("doubtful", Text),
    Column("buckets", LargeBinary, nullable=False),
    Column("histogram", LargeBinary, nullable=False),
    Index("round_trip_windows_by_path", "path_id", "start_time_ns"),
    sqlite_with_rowid=False,
)

one_way_losses = Table(
    "one_way_losses",
    METADATA,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("record_index", Integer, primary_key=True, autoincrement=False),
    Column("entry", Integer, primary_key=True, autoincrement=False),
    Column("path_id", BigInteger, nullable=False),
    Column("direction", Integer, nullable=False),
    Column("first_sequence", BigInteger, nullable=False),
    Column("last_sequence", BigInteger, nullable=False),
    Column("lost", Integer, nullable=False),
    Column("send_time_ns", BigInteger, nullable=False),
    Index("one_way_losses_by_time", "send_time_ns"),
)

one_way_delays = Table(
    "one_way_delays",
    METADATA,
    Column("start_time_ns", BigInteger, primary_key=True, autoincrement=False),
    Column("path_id", BigInteger, primary_key=True, autoincrement=False),
    Column("length_ns", BigInteger, nullable=False),
    Column("samples", Integer, nullable=False),
    Column("sender_clock_error_ns", BigInteger, nullable=False),
    Column("reflector_clock_error_ns", BigInteger, nullable=False),
    Column("forward_delay_min_ns", BigInteger, nullable=False),
    Column("forward_delay_p50_ns", BigInteger, nullable=False),
    Column("forward_delay_p99_ns", BigInteger, nullable=False),
    Column("reverse_delay_min_ns", BigInteger, nullable=False),
    Column("reverse_delay_p50_ns", BigInteger, nullable=False),
    Column("reverse_delay_p99_ns", BigInteger, nullable=False),
    Column("forward_histogram", LargeBinary, nullable=False),  # see store/spread.py
    Column("reverse_histogram", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

doubts = Table(
    "doubts",
    METADATA,
    Column("start_time_ns", BigInteger, primary_key=True, autoincrement=False),
    Column("node", Text, primary_key=True),
    Column("reasons", Text, nullable=False),  # words parted by blanks
    sqlite_with_rowid=False,
)

marks = Table(
    "marks",
    METADATA,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("record_index", Integer, primary_key=True, autoincrement=False),
    Column("source", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("time_ns", BigInteger, nullable=False),
    Column("said_time_ns", BigInteger),
    Column("phase", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("step", BigInteger),
    Column("bytes", BigInteger),
    Column("rank", BigInteger),
    Column("labels", Text, nullable=False),
    Column("user_id", BigInteger, nullable=False),
    Column("process_id", BigInteger, nullable=False),
    Index("marks_by_time", "time_ns"),
)

route_traces = Table(
    "route_traces",
    METADATA,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("record_index", Integer, primary_key=True, autoincrement=False),
    Column("source", Text, nullable=False),
    Column("path_id", BigInteger, nullable=False),
    Column("time_ns", BigInteger, nullable=False),
    Column("trace_reason", Integer, nullable=False),
    Column("request", Text, nullable=False),
    Column("reached", Boolean, nullable=False),
    Column("hops", Text, nullable=False),  # [[hop limit, HopOutcome, address, delay], …]
    Index("route_traces_by_time", "time_ns"),
)

path_mtus = Table(
    "path_mtus",
    METADATA,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("record_index", Integer, primary_key=True, autoincrement=False),
    Column("source", Text, nullable=False),
    Column("path_id", BigInteger, nullable=False),
    Column("time_ns", BigInteger, nullable=False),
    Column("mtu_bytes", Integer),
    Column("interface_mtu_bytes", Integer),
    Column("black_hole", Boolean, nullable=False),
    Column("trials", Text, nullable=False),  # [[payload, MtuOutcome, sent, replied, reporter, next hop's MTU], …]
    Index("path_mtus_by_time", "time_ns"),
)

route_changes = Table(
    "route_changes",
    METADATA,
    Column("path_id", BigInteger, primary_key=True, autoincrement=False),
    Column("time_ns", BigInteger, primary_key=True, autoincrement=False),
    Column("change", Text, primary_key=True),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Index("route_changes_by_time", "time_ns"),
)

path_ways = Table(
    "path_ways",
    METADATA,
    Column("path_id", BigInteger, primary_key=True, autoincrement=False),
    Column("hop_limit", Integer),  # with which replies come
    Column("candidate", Integer),  # another one, seen of late
    Column("seen", Integer, nullable=False),
    Column("candidate_time_ns", BigInteger),
    Column("responders", Text, nullable=False),  # by hop: [[addresses], …]
    Column("trace_reached", Boolean, nullable=False),
    Column("trace_time_ns", BigInteger),
    Column("mtu_bytes", Integer),
    Column("usual_mtu_bytes", Integer),
    Column("black_hole", Boolean, nullable=False),
    Column("mtu_time_ns", BigInteger),
)

nics = Table(
    "nics",
    METADATA,
    Column("node", Text, primary_key=True),
    Column("nic", Text, primary_key=True),
    Column("state", Text, nullable=False),
)

nic_windows = Table(
    "nic_windows",
    METADATA,
    Column("start_time_ns", BigInteger, primary_key=True, autoincrement=False),
    Column("node", Text, primary_key=True),
    Column("nic", Text, primary_key=True),
    Column("receive_bytes", BigInteger),
    Column("transmit_bytes", BigInteger),
    Column("receive_span_ns", BigInteger, nullable=False),
    Column("transmit_span_ns", BigInteger, nullable=False),
    Column("receive_peak_bytes_per_second", Float),
    Column("transmit_peak_bytes_per_second", Float),
    Column("resets", Integer, nullable=False),
    Column("ticks", Integer, nullable=False),
    Column("speed_bps", BigInteger),
    Column("kind", Text, nullable=False, server_default=""),  # physical, bond, vlan …
    Column("receive_pause_ratio", Float),  # the longest-paused priority; absent where durations are not counted
    Column("transmit_pause_ratio", Float),
    Column("counts", Text, nullable=False, server_default="{}"),  # rises by names of the vocabulary; 0 left out
    sqlite_with_rowid=False,
)

incidents = Table(
    "incidents",
    METADATA,
    Column("incident_id", Text, primary_key=True),
    Column("rule", Text, nullable=False),
    Column("rule_version", Integer, nullable=False),
    Column("element_kind", Text, nullable=False),
    Column("element_name", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("opened_time_ns", BigInteger, nullable=False),
    Column("closed_time_ns", BigInteger),
    Column("updated_time_ns", BigInteger, nullable=False),
    Column("decided_time_ns", BigInteger, nullable=False),  # event time judged when the row last changed
    Column("summary", Text, nullable=False),
    Column("figures", Text, nullable=False),
    Column("children", Text, nullable=False),
    Column("evidence", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Index("incidents_by_opening", "opened_time_ns"),
    Index("incidents_by_decision", "decided_time_ns"),
)

alerts = Table(
    "alerts",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("said_time_ns", BigInteger, nullable=False),
    Column("incident_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("element_kind", Text, nullable=False),
    Column("element_name", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("opened_time_ns", BigInteger, nullable=False),
    Column("summary", Text, nullable=False),
    Index("alerts_by_time", "said_time_ns"),
    Index("alerts_by_incident", "incident_id"),
)

checkpoints = Table(
    "checkpoints",
    METADATA,
    Column("time_ns", BigInteger, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
)

bursts = Table(
    "bursts",
    METADATA,
    Column("burst_id", Text, primary_key=True),
    Column("node", Text, nullable=False),
    Column("nic", Text, nullable=False),
    Column("lane", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("start_time_ns", BigInteger, nullable=False),
    Column("end_time_ns", BigInteger),
    Column("opened_time_ns", BigInteger, nullable=False),
    Column("last_time_ns", BigInteger, nullable=False),
    Column("error_ns", BigInteger, nullable=False),
    Column("clock_error_ns", BigInteger),
    Column("bytes", BigInteger, nullable=False),
    Column("other_bytes", BigInteger, nullable=False),
    Column("peak_bps", Float, nullable=False),
    Column("mean_bps", Float, nullable=False),
    Column("usual_bps", Float, nullable=False),
    Column("threshold_bps", Float, nullable=False),
    Column("confirmed", Boolean, nullable=False),
    Column("cluster_id", Text, nullable=False),
    Index("bursts_by_start", "start_time_ns"),
    Index("bursts_by_end", "end_time_ns"),
)

cluster_bursts = Table(
    "cluster_bursts",
    METADATA,
    Column("burst_id", Text, primary_key=True),
    Column("scope", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("site", Text, nullable=False),
    Column("lane", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("start_time_ns", BigInteger, nullable=False),
    Column("end_time_ns", BigInteger),
    Column("opened_time_ns", BigInteger, nullable=False),
    Column("last_time_ns", BigInteger, nullable=False),
    Column("error_ns", BigInteger, nullable=False),
    Column("start_spread_ns", BigInteger, nullable=False),
    Column("end_spread_ns", BigInteger),
    Column("bytes", BigInteger, nullable=False),
    Column("achieved_bps", Float, nullable=False),
    Column("nodes", Text, nullable=False),
    Column("members", Text, nullable=False),
    Column("slowest_node", Text, nullable=False),
    Column("slowest_bps", Float, nullable=False),
    Column("marked", Boolean, nullable=False),
    Column("job", Text, nullable=False),
    Column("step", BigInteger),
    Column("labels", Text, nullable=False),
    Column("mark_time_ns", BigInteger),
    Column("next_start_time_ns", BigInteger),
    Column("interval_ns", BigInteger),
    Column("interval_spread_ns", BigInteger),
    Column("intervals", Integer, nullable=False),
    Index("cluster_bursts_by_start", "start_time_ns"),
    Index("cluster_bursts_by_end", "end_time_ns"),
)

burst_watches = Table(
    "burst_watches",
    METADATA,
    Column("node", Text, primary_key=True),
    Column("nic", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),  # in the log, through which the state goes
    Column("state", Text, nullable=False),
    Column("meter", Text, nullable=False),
)

gaps = Table(
    "gaps",
    METADATA,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("record_index", Integer, primary_key=True, autoincrement=False),
    Column("source", Text, nullable=False),
    Column("reason", Integer, nullable=False),
    Column("batch_class", Integer, nullable=False),
    Column("from_time_ns", BigInteger, nullable=False),
    Column("to_time_ns", BigInteger, nullable=False),
    Column("records", BigInteger),
    Column("detail", Text, nullable=False),
)

quarantine = Table(
    "quarantine",
    METADATA,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("record_index", Integer, primary_key=True, autoincrement=False),
    Column("source", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
)

tree_heads = Table(
    "tree_heads",
    METADATA,
    Column("position", BigInteger, primary_key=True, autoincrement=False),  # in the log, of the batch it is signed in
    Column("source", Text, nullable=False),
    Column("day", Text, nullable=False),
    Column("tree_size", BigInteger, nullable=False),
    Column("root", LargeBinary, nullable=False),
    Column("last_position", BigInteger, nullable=False),
    Column("signed_time_ns", BigInteger, nullable=False),
)

pauses = Table(
    "pauses",
    METADATA,
    Column("position", BigInteger, primary_key=True, autoincrement=False),  # in the log
    Column("record_index", Integer, primary_key=True, autoincrement=False),
    Column("time_ns", BigInteger, nullable=False),
    Column("site", Text, nullable=False),  # empty: everywhere
    Column("paused", Boolean, nullable=False),
    Column("until_time_ns", BigInteger),
    Column("reason", Text, nullable=False),
)

# What remote write is still to send: names rows of other tables, whose figures are read when they are sent.
remote_outbox = Table(
    "remote_outbox",
    METADATA,
    Column("id", Integer, primary_key=True),  # rises by one; only the oldest are ever deleted
    Column("kind", Text, nullable=False),  # round_trips, nics, throughput
    Column("time_ns", BigInteger, nullable=False),  # start of the window, end of the test
    Column("noted_time_ns", BigInteger, nullable=False),  # receipt of what it was made from
    Column("node", Text, nullable=False),
    Column("keys", Text, nullable=False),  # JSON list of path ids, NICs or the slot id in hex
    sqlite_autoincrement=True,  # so that no id comes twice, also once all are gone
)

remote_state = Table(
    "remote_state",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

shared_tests = Table(
    "shared_tests",
    METADATA,
    Column("position", BigInteger, primary_key=True, autoincrement=False),  # in the log
    Column("record_index", Integer, primary_key=True, autoincrement=False),
    Column("ordered_time_ns", BigInteger, nullable=False),
    Column("definition", LargeBinary, nullable=False),  # a serialised SharedTest
)

DERIVED = tuple(table for table in METADATA.sorted_tables if table not in (alerts, remote_outbox, remote_state))
