"""Frozen rows passed between decode, store, analysis and export. No behaviour; imports nothing of the collector.

Times are integer nanoseconds since the epoch on the measuring node's wall clock unless a name says otherwise
(``received_time_ns`` is the collector's). ``None`` means absent, never 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One batch as received, at its place in the log."""

    position: int  # rises with every entry, over all chains
    received_time_ns: int
    agent_id: str
    chain_id: bytes
    batch_class: int
    seq: int
    quarantine: str  # a ChainFault, or empty: the batch stands in its chain
    header: bytes
    payload: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Source:
    """Which signed record a row was decoded from."""

    agent_id: str
    chain_id: bytes
    batch_class: int
    seq: int
    record_index: int
    position: int


@dataclass(frozen=True, slots=True)
class EndpointRow:
    node: str
    nic: str
    address: str
    lane: str


@dataclass(frozen=True, slots=True)
class PathRow:
    """What a path id means. Exactly one of ``destination`` and ``target`` is given."""

    path_id: int
    source: EndpointRow
    destination: EndpointRow | None
    target: str | None
    target_address: str | None
    protocol: int
    ip_version: int
    payload_bytes: int
    dscp: int
    profile_id: int | None
    definition: bytes  # the serialised Path the id is the hash of
    source_port: int = 0  # 0 where the protocol has none or it changes from probe to probe
    destination_port: int = 0


@dataclass(frozen=True, slots=True)
class RoundTripSamples:
    """Columns of one record, decoded; numpy arrays (one entry a sample unless said). Delay is -1 where absent."""

    source: Source
    method: int
    stamp_source: int
    interval_ns: int
    waiting_time_ns: int
    path_ids: object  # uint64, one entry a path
    first_sequences: object  # uint64, one entry a path
    sample_counts: object  # int64, one entry a path
    send_times_ns: object  # int64
    outcomes: object  # uint8
    round_trip_delays_ns: object  # int64
    marks: Sequence[tuple[int, int, int, int | None]] = ()  # path id, sequence, PacketMark, delay
    hop_limits: object = None  # uint8, one entry a path: of the newest reply, 0 where not known; None: of none is it


@dataclass(frozen=True, slots=True)
class OneWayLossRow:
    """Packets of one path lost in one direction between two that came back."""

    source: Source
    entry: int  # place in the record
    path_id: int
    direction: int  # LossDirection
    first_sequence: int
    last_sequence: int
    lost: int
    send_time_ns: int  # of the first


@dataclass(frozen=True, slots=True)
class OneWayDelays:
    """Delay columns of one OneWayColumns, decoded (RFC 7679); numpy arrays, one entry a replied packet. Delays are
    signed: each is true within the sum of both clock errors."""

    source: Source
    path_ids: object  # uint64
    sequences: object  # uint64
    send_times_ns: object  # int64
    forward_delays_ns: object  # int64
    reverse_delays_ns: object  # int64
    sender_clock_errors_ns: object  # int64
    reflector_clock_errors_ns: object  # int64


@dataclass(frozen=True, slots=True)
class NicSamples:
    """Counters of one NIC over one record; ``values`` and ``present`` are [counter, tick]."""

    source: Source
    node: str
    nic: str
    counters: Sequence[str]
    tick_times_ns: object  # int64 wall clock: base time + monotonic distance, so a clock step bends nothing
    values: object  # uint64
    present: object  # bool
    speed_bps: int | None
    mtu_bytes: int | None
    carrier: bool | None
    fault: str
    counter_source: int = 0  # CounterSource; UNSPECIFIED is NETDEV
    driver: str = ""  # of the NIC
    device: str = ""  # RDMA device and port, such as mlx5_0/1
    coverage: Sequence[str] = ()  # why what is counted is not all that passes
    interval_ns: int = 0  # between ticks, nominal
    kind: str = ""  # physical, vf, bond, vlan, bridge …; empty: not known
    lower: Sequence[str] = ()  # devices that carry it and are counted by themselves
    link_layer: str = ""  # RDMA: Ethernet or InfiniBand
    carrier_changes: int | None = None
    full_duplex: bool | None = None


@dataclass(frozen=True, slots=True)
class RunRow:
    """One end's record of one throughput attempt."""

    source: Source
    slot_id: bytes
    role: int
    path_id: int
    profile_id: int
    outcome: int
    outcome_detail: str
    start_time_ns: int
    end_time_ns: int
    engine_version: str
    throughput_bps: float | None  # receiver_bytes × 8 / receiver_duration; None for all that is not ok
    sender_bytes: int | None
    receiver_bytes: int | None
    receiver_duration_ns: int | None
    receiver_derived: bool
    retransmits: int | None
    gates_tripped: Sequence[str] = ()
    flags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One planned throughput test."""

    slot_id: bytes
    group_id: bytes
    purpose: int
    window: int  # WindowKind
    day: str  # local date of the window's start, YYYY-MM-DD
    start_time_ns: int
    end_time_ns: int  # when its tokens are free again: start + duration + omit + margin
    margin_ns: int
    client: EndpointRow
    server: EndpointRow
    port: int
    reverse: bool
    path_id: int
    profile_id: int
    tokens: Sequence[str]
    reason: str


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One plan as issued: what was planned for a node, and until when."""

    source: Source
    node: str
    version: int
    plan_hash: bytes
    issued_time_ns: int
    expiry_time_ns: int
    frozen_until_ns: int
    slots: Sequence[SlotRow]


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """What a profile id means."""

    profile_id: int
    engine: int
    streams: int
    duration_ns: int
    omit_ns: int
    congestion_control: str
    mss_bytes: int
    dscp: int
    udp_rate_bps: int
    definition: bytes  # the serialised Profile the id is the hash of


@dataclass(frozen=True, slots=True)
class CounterSetRow:
    """What a counter set id means: the columns of NicColumns, in order."""

    counter_set_id: int
    counters: Sequence[str]
    definition: bytes  # the serialised CounterSet the id is the hash of


@dataclass(frozen=True, slots=True)
class BatchRow:
    """What a header says of its batch and of the agent that sealed it."""

    agent_id: str
    chain_id: bytes
    batch_class: int
    seq: int
    position: int
    received_time_ns: int
    first_event_time_ns: int
    last_event_time_ns: int  # watermark of the class: all up to here is in this batch or an earlier one
    sealed_time_ns: int  # the agent's wall clock when it sealed
    boot_id: bytes
    run_id: bytes
    plan_hash: bytes
    software_version: str
    clock_synchronised: bool
    clock_offset_ns: int | None
    clock_error_bound_ns: int | None
    clock_steps: Sequence[tuple[int, int]] = ()  # wall clock right after the step, size; since the batch before


@dataclass(frozen=True, slots=True)
class SelfCheckRow:
    """An agent measured against itself over ``[from, to)``. ``reasons``: why its delays are doubtful; empty: not."""

    source: Source
    node: str
    from_time_ns: int
    to_time_ns: int
    loopback_sent: int
    loopback_lost: int
    loopback_delay_p50_ns: int | None
    loopback_delay_max_ns: int | None
    lateness_p50_ns: int | None  # of the probes' timer
    lateness_max_ns: int | None
    cpu_pressure_ratio: float | None
    own_wait_ratio: float | None
    steal_ratio: float | None
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class GapRow:
    """From here to there an agent recorded nothing, and it was our doing."""

    source: Source
    reason: int  # GapReason
    batch_class: int
    from_time_ns: int
    to_time_ns: int
    records: int | None
    detail: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class StatusRow:
    """An agent's own state. ``parts`` are (part, working, state, detail)."""

    source: Source
    time_ns: int
    spool_bytes: int
    spool_oldest_time_ns: int | None
    records_dropped: int
    parts: Sequence[tuple[str, bool, str, str]]
    resident_memory_bytes: int | None
    cpu_time_ns: int | None
    iperf3_version: str


@dataclass(frozen=True, slots=True)
class ChainOpenedRow:
    source: Source
    agent_id: str
    chain_id: bytes
    batch_class: int
    public_key: bytes
    certificate_sha256: bytes


@dataclass(frozen=True, slots=True)
class WindowsRow:
    """Windows of a site as fixed in the control chain; ranges in seconds after local midnight, end exclusive."""

    source: Source
    site: str
    time_zone: str
    peak: Sequence[tuple[int, int]]
    offpeak: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class TreeHeadRow:
    """The RFC 9162 head over all headers received up to ``last_position``, as signed in the control chain."""

    source: Source
    day: str  # the UTC day that ended, YYYY-MM-DD
    tree_size: int
    root: bytes
    last_position: int
    signed_time_ns: int  # collector's clock


@dataclass(frozen=True, slots=True)
class PauseRow:
    """An operator's word that throughput tests stop, or may go on."""

    source: Source
    site: str  # empty: everywhere
    paused: bool
    time_ns: int  # collector's clock
    until_time_ns: int | None  # None: until resumed
    reason: str


@dataclass(frozen=True, slots=True)
class SharedTestRow:
    """A test that saturates something shared was ordered, or called off."""

    source: Source
    ordered_time_ns: int  # collector's clock
    definition: bytes  # a serialised SharedTest


@dataclass(frozen=True, slots=True)
class ContentionView:
    """One contention test and what it shows so far."""

    test_id: bytes
    site: str
    rack: str
    approver: str
    ordered_time_ns: int
    start_time_ns: int  # as planned
    called_off: str  # why; empty: it was not
    predicted_bytes: int
    predicted_bill_windows: int  # of five minutes, of the busiest link and direction
    predicted_added_bps: float  # to the mean of the window with most of it
    runs: int
    ok: int
    doubts: Sequence[str]  # gates and flags of its runs
    result: object  # analysis.uplink_capacity.Capacity


@dataclass(frozen=True, slots=True)
class PauseView:
    """One pause of throughput tests."""

    site: str  # empty: everywhere
    start_time_ns: int
    until_time_ns: int | None  # as said; None: until resumed
    end_time_ns: int | None  # when it ended by another word, or had lapsed before that; None: nothing was said since
    reason: str


@dataclass(frozen=True, slots=True)
class CollectorStartedRow:
    source: Source
    collector_id: str
    configuration_hash: bytes
    software_version: str


@dataclass(frozen=True, slots=True)
class HopRow:
    """One packet of a trace."""

    hop_limit: int
    answer: int  # HopOutcome
    address: str | None  # None: nobody answered
    round_trip_delay_ns: int | None


@dataclass(frozen=True, slots=True)
class RouteTraceRow:
    """One sweep over hop limits of one path."""

    source: Source
    path_id: int
    time_ns: int
    trace_reason: int  # TraceReason
    request: str
    reached: bool
    hops: Sequence[HopRow]


@dataclass(frozen=True, slots=True)
class MtuTrialRow:
    """One size tried."""

    payload_bytes: int
    fate: int  # MtuOutcome
    sent: int
    replied: int
    reporter: str | None
    next_hop_mtu_bytes: int | None


@dataclass(frozen=True, slots=True)
class PathMtuRow:
    """One check of a path's MTU. ``mtu_bytes`` None: not enough came back to say."""

    source: Source
    path_id: int
    time_ns: int
    mtu_bytes: int | None
    interface_mtu_bytes: int | None
    black_hole: bool
    trials: Sequence[MtuTrialRow]


@dataclass(frozen=True, slots=True)
class RouteChange:
    """A path became another: its replies come over another number of routers, or others answer a trace."""

    path_id: int
    time_ns: int  # of the first packet that shows it
    change: str  # hop_count, responders
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class TraceView:
    """A trace as tables and the API show it. What is not known is None: ``vendor_edge`` needs private addresses that
    end somewhere."""

    path_id: int
    src: str
    dst: str
    lane: str
    protocol: int
    dst_address: str
    time_ns: int
    trace_reason: int
    request: str
    reached: bool
    near_side: str | None  # first router that answered
    vendor_edge: str | None  # first with a public address behind private ones
    far_side: str | None  # last router before the destination
    hops: Sequence[HopRow]


@dataclass(frozen=True, slots=True)
class PathMtuView:
    """A check of a path's MTU as tables and the API show it."""

    path_id: int
    src: str
    dst: str
    lane: str
    dst_address: str
    time_ns: int
    mtu_bytes: int | None
    interface_mtu_bytes: int | None
    black_hole: bool
    trials: Sequence[MtuTrialRow]


@dataclass(frozen=True, slots=True)
class RouteChangeView:
    """A change as tables and the API show it."""

    path_id: int
    src: str
    dst: str
    lane: str
    time_ns: int
    change: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A batch or a record that is kept but not used. ``record_index`` of the source is -1 for a whole batch."""

    source: Source
    reason: str  # a ChainFault for a batch; bad_record, bad_definition, undefined_counters … for a record
    detail: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """A slot with how it ended. ``category`` is pending, ok, failed, skipped or lost."""

    slot: SlotRow
    category: str
    outcome: int  # RunOutcome; UNSPECIFIED while pending
    client_run: RunRow | None
    server_run: RunRow | None
    disagreement: str = ""  # what the two ends say differently
    valid: bool = False  # its result enters verdicts
    advice: str = ""  # what is known of the path's MTU, where a test stalled


@dataclass(frozen=True, slots=True)
class RoundTripWindow:
    """Statistics of one path over ``[start, start + length)`` by time of sending."""

    path_id: int
    start_time_ns: int
    length_ns: int
    sent: int  # inside the loss ratio: replied + lost + unreachable + corrupt
    replied: int
    lost: int
    unreachable: int
    corrupt: int
    unresolved: int  # from here to skipped: ours, outside the ratio
    send_failed: int
    skipped: int
    duplicates: int
    late: int
    delay_samples: int
    delay_min_ns: int | None
    delay_p50_ns: int | None
    delay_p99_ns: int | None
    delay_max_ns: int | None
    loaded_by: bytes | None  # slot id of a test of ours that shared a token
    doubtful: str | None = None  # why the hosts at its ends doubted delays then, words parted by blanks; None: not


@dataclass(frozen=True, slots=True)
class OneWayWindow:
    """One-way delays of one path over ``[start, start + length)`` by time of sending. Quantiles are at most 1.6 %
    farther from 0 than what was measured; histograms are those of ``collector.store.spread``."""

    path_id: int
    start_time_ns: int
    length_ns: int
    samples: int
    sender_clock_error_ns: int  # the largest bound of all samples
    reflector_clock_error_ns: int
    forward_delay_min_ns: int
    forward_delay_p50_ns: int
    forward_delay_p99_ns: int
    reverse_delay_min_ns: int
    reverse_delay_p50_ns: int
    reverse_delay_p99_ns: int
    forward_histogram: bytes
    reverse_histogram: bytes


@dataclass(frozen=True, slots=True)
class StoredWindow:
    """A window with what is needed to judge it again: windows add up through these, and not through quantiles."""

    row: RoundTripWindow
    buckets: bytes  # <u2: packets in the loss ratio by 2 s bucket, then lost ones
    histogram: bytes  # <u4: bucket * bins + bin of the delays there are, then their counts


@dataclass(frozen=True, slots=True)
class Element:
    """A part of the network at the granularity the labels support."""

    kind: str  # path, pair, endpoint, node, target, carrier, rack_pair, uplink, rack, site_link, fabric, agent
    name: str


@dataclass(frozen=True, slots=True)
class Flag:
    """What one rule says of one element at one moment of event time."""

    rule: str
    rule_version: int
    element: Element
    time_ns: int
    severity: str  # warning, critical
    raised: bool  # False: the rule looked and the element is inside its clearing threshold
    values: Mapping[str, float | int | str]  # figures with units in their names, N included
    children: Sequence[str] = ()  # path ids (hex) or nodes it stands on
    evidence: Sequence[Source] = ()
    replaces: Sequence["Element"] = ()  # smaller or larger elements that the same cause was laid to before
    since_ns: int | None = None  # when it began, if before ``time_ns``: a new incident opens then


@dataclass(frozen=True, slots=True)
class Alert:
    """What was said, and when, by the collector's clock. Never rewritten: verdicts are, alerts are not."""

    said_time_ns: int
    incident_id: str
    status: str  # raised, changed, cleared, withdrawn
    rule: str
    element: Element
    severity: str
    opened_time_ns: int
    summary: str


@dataclass(frozen=True, slots=True)
class Incident:
    """One cause, from opening to closing, in event time."""

    incident_id: str  # hash(rule, element kind, element name, opening event time)
    rule: str
    rule_version: int
    element: Element
    severity: str
    opened_time_ns: int
    closed_time_ns: int | None
    updated_time_ns: int
    summary: str
    values: Mapping[str, float | int | str]
    children: Sequence[str] = ()
    evidence: Sequence[Source] = ()
    revision: int = 1


@dataclass(frozen=True, slots=True)
class EvidenceRecord:
    """A signed record that an incident stands on, and what it holds of it. None: the rule counts no such thing."""

    source: Source
    from_time_ns: int | None = None  # of what speaks against the element
    to_time_ns: int | None = None
    sent: int | None = None  # in the loss ratio, of the incident's paths
    lost: int | None = None
    slow: int | None = None  # above the usual p99
    delay_max_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Swing:
    """Peak against off-peak of one path and version class; medians over the trailing period."""

    path_id: int
    engine_version: str
    peak_bps: float | None
    offpeak_bps: float | None
    tests_peak: int  # valid ones: ok, no gate tripped, no excluding flag
    tests_offpeak: int
    swing_ratio: float | None  # 1 − peak / off-peak, signed
    flagged: bool
    through_time_ns: int  # event time the verdict holds for
    evidence: Sequence[Source] = ()


@dataclass(frozen=True, slots=True)
class AccountingRow:
    """planned = ok + failed + skipped + lost; ``pending`` slots are not planned yet in this sense: not due."""

    source: str  # node
    destination: str
    lane: str
    window: int  # WindowKind
    planned: int
    ok: int
    failed: int
    skipped: int
    lost: int
    pending: int
    outcomes: Mapping[str, int] = field(default_factory=dict)  # outcome name in lower case -> count


@dataclass(frozen=True, slots=True)
class SelfCheckStatus:
    """An agent's newest check of itself, and counts of those that came within two minutes, since the log began."""

    to_time_ns: int
    loopback_sent: int
    loopback_lost: int
    loopback_delay_p50_ns: int | None
    lateness_p50_ns: int | None
    lateness_max_ns: int | None
    cpu_pressure_ratio: float | None
    own_wait_ratio: float | None
    steal_ratio: float | None
    reasons: Sequence[str]  # empty: no doubt
    checks: int
    doubtful_checks: Mapping[str, int]  # by reason; a check can have several


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A configured node and what is known of its agent."""

    name: str
    site: str
    rack: str
    endpoints: Sequence[EndpointRow]
    connected: bool
    last_received_time_ns: int | None  # collector's clock
    last_event_time_ns: int | None
    software_version: str | None
    iperf3_version: str | None
    clock_synchronised: bool | None
    clock_error_bound_ns: int | None
    spool_bytes: int | None
    records_dropped: int | None
    parts: Sequence[Mapping[str, str]] = ()  # part, state, detail of those that do not work
    chains: Mapping[str, int] = field(default_factory=dict)  # batch class in lower case -> durable seq
    quarantined: int = 0
    self_check: "SelfCheckStatus | None" = None
    gaps: int = 0  # on record
    last_gap_time_ns: int | None = None  # where the newest of them ends
    certificate_expiry_time_ns: int | None = None  # of the newest that it is known to have


@dataclass(frozen=True, slots=True)
class ThroughputStatus:
    """Newest valid result of a throughput path, and its swing where both windows have enough tests."""

    last_bps: float | None
    last_time_ns: int | None
    offpeak_bps: float | None
    peak_bps: float | None
    swing_ratio: float | None
    flagged: bool
    tests_offpeak: int
    tests_peak: int


@dataclass(frozen=True, slots=True)
class PathStatus:
    """One path as tables and the API show it. Round-trip figures are of the newest closed window; a throughput path
    has none, and a round-trip path no ``throughput``."""

    path_id: int
    src: str  # node
    dst: str  # node or target
    src_endpoint: EndpointRow
    dst_endpoint: EndpointRow | None
    dst_address: str
    lane: str
    protocol: int
    window_start_time_ns: int | None
    sent: int | None
    lost: int | None  # lost + unreachable + corrupt
    loss_ratio: float | None
    delay_p50_ns: int | None
    delay_p99_ns: int | None
    loaded: bool | None
    throughput: ThroughputStatus | None
    source_port: int | None = None  # None where it is no part of the path
    doubtful: str | None = None  # as of RoundTripWindow, of the same window
    hop_count: int | None = None  # routers on the way back, by the hop limit that replies come with
    path_mtu_bytes: int | None = None  # by the newest check that could say


@dataclass(frozen=True, slots=True)
class PortLoss:
    """STAMP packets of one pair over one source port."""

    source_port: int
    sent: int
    lost: int
    forward_lost: int
    reverse_lost: int


@dataclass(frozen=True, slots=True)
class TargetHops:
    """Routers that replies of a target pass to a site, by the newest hop limits; several where its ways differ."""

    target: str
    hop_counts: Sequence[int]  # rising


@dataclass(frozen=True, slots=True)
class CarrierStatus:
    """All targets of one carrier as a site's nodes reach them by one kind of probe, over a stretch of time.

    Delays are those of windows that no test of ours loaded and no host doubted; a quantile is at most 9 % too high.
    """

    site: str
    carrier: str
    protocol: int
    from_time_ns: int
    to_time_ns: int
    targets: int  # to which anything was sent
    targets_reachable: int  # of these, with an answer from at least one address to at least one node
    unreachable_targets: Sequence[str]
    sent: int
    lost: int  # lost + unreachable + corrupt
    loss_ratio: float | None
    not_sent: int  # unresolved, send_failed, skipped: ours
    delay_samples: int
    delay_p50_ns: int | None
    delay_p99_ns: int | None
    hops: Sequence[TargetHops] = ()  # as they are now; targets of which nothing is known are left out


@dataclass(frozen=True, slots=True)
class PairOneWay:
    """One-way delays of one pair over a stretch of time; each is true within ``clock_error_ns`` of what is said.

    A direction is ``known`` where its median is larger than that bound; otherwise the figure means nothing.
    """

    from_time_ns: int  # of very many windows only the newest are read
    samples: int
    sender_clock_error_ns: int  # the largest bound of all samples
    reflector_clock_error_ns: int
    clock_error_ns: int  # their sum
    forward_delay_p50_ns: int
    forward_delay_p99_ns: int
    forward_known: bool
    reverse_delay_p50_ns: int
    reverse_delay_p99_ns: int
    reverse_known: bool


@dataclass(frozen=True, slots=True)
class PairLoss:
    """STAMP between two endpoints over a stretch of time, all source ports together and each by itself.

    What of ``lost`` is in neither direction is not known to be in one: lost across a reflector's new start, or with no
    reply behind it yet. A gap counts to the time of its first packet, once that window is closed. ``pattern`` is what
    the loss rule calls ``ports_pattern``: ``none`` (nothing lost), ``some`` (a stable subset of the ports loses),
    ``all``, or ``unclear`` (too little lost, or too few ports, to say).
    """

    src: str
    dst: str
    lane: str
    src_address: str
    dst_address: str
    sent: int
    lost: int
    loss_ratio: float | None
    forward_lost: int
    reverse_lost: int
    either_lost: int
    ports: Sequence[PortLoss]
    pattern: str = "none"
    one_way: PairOneWay | None = None  # None: of no packet do both ends know how well their clocks keep time


@dataclass(frozen=True, slots=True)
class MarkRow:
    """What a trainer said: something began or ended. ``labels`` are those of its job (Slurm, Kubernetes)."""

    source: Source
    node: str
    time_ns: int  # the agent's wall clock at receipt
    said_time_ns: int | None
    phase: int  # MarkPhase
    kind: str
    job: str
    step: int | None
    bytes: int | None
    rank: int | None
    labels: Mapping[str, str] = field(default_factory=dict)
    user_id: int = 0  # of the process that said it, as its kernel says
    process_id: int = 0


@dataclass(frozen=True, slots=True)
class Burst:
    """One NIC far above its usual rate, in event time. ``end_time_ns`` is None while it is open.

    A burst stands from the moment it has opened, and is not ``confirmed`` before it has lasted 3 s or brought 1 GB;
    one that ends unconfirmed is withdrawn, as if it had never been.
    """

    burst_id: str  # hash(node, NIC, signal, start)
    node: str
    nic: str
    lane: str
    kind: str  # save, restore, exchange
    start_time_ns: int  # back-dated: the tick before the first sample above the threshold
    end_time_ns: int | None  # the last tick not below the closing level
    opened_time_ns: int  # the tick at which it was known
    last_time_ns: int  # newest tick not below the closing level; the end, once it has ended
    error_ns: int  # of start and end: sample period, and the agent's bound on its clock's error where it has one
    clock_error_ns: int | None  # that bound; None: the agent's clock source gives none
    bytes: int  # in the direction of the burst (exchange: transmitted) from start to end, our own tests left out
    other_bytes: int  # in the other direction
    peak_bps: float  # over one second
    mean_bps: float
    usual_bps: float  # median of the 10 minutes before, outside bursts
    threshold_bps: float
    confirmed: bool
    cluster_id: str = ""  # of the cluster burst it is part of


@dataclass(frozen=True, slots=True)
class ClusterBurst:
    """Many nodes of a job or rack at once. ``marked``: a trainer said so; otherwise inferred from counters alone."""

    burst_id: str  # hash(the member that was known first): the same however the cluster grows
    scope: str  # job, rack, site
    name: str  # of the job, rack or site
    site: str
    lane: str
    kind: str  # save, restore, exchange
    start_time_ns: int
    end_time_ns: int | None
    opened_time_ns: int  # when there were enough members to know
    last_time_ns: int
    error_ns: int
    start_spread_ns: int  # first to last start of its nodes
    end_spread_ns: int | None
    bytes: int
    achieved_bps: float  # of all together, from first start to last end
    nodes: Sequence[str]
    members: Sequence[str]  # burst ids
    slowest_node: str  # lowest mean rate
    slowest_bps: float
    marked: bool
    job: str = ""
    step: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    mark_time_ns: int | None = None  # the first begin that was said of it
    next_start_time_ns: int | None = None  # forecast, where starts are periodic
    interval_ns: int | None = None  # median interval between starts that it stands on
    interval_spread_ns: int | None = None  # largest distance of an interval from that median
    intervals: int = 0  # number of them


@dataclass(frozen=True, slots=True)
class BurstEvent:
    """One event as it is shown: a cluster burst with its members, or a burst of one node in the same shape (scope
    ``node``)."""

    burst: ClusterBurst
    members: Sequence[Burst]


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """What a NIC carried between two reads."""

    time_ns: int  # of the later one
    span_ns: int
    receive_bytes: int | None
    transmit_bytes: int | None
    receive_bps: float | None
    transmit_bps: float | None


@dataclass(frozen=True, slots=True)
class BurstScore:
    """Bursts against trainers' marks, over some time; a ratio of nothing is absent."""

    detections: int
    detections_marked: int
    events: int
    events_detected: int
    precision_ratio: float | None
    recall_ratio: float | None
    start_error_median_ns: int | None  # of the size of the error
    start_error_p90_ns: int | None
    start_error_mean_ns: int | None  # with its sign: above 0, bursts are seen later than they were said to begin
    unmarked: Sequence[str] = ()  # detections without a mark, at most a hundred
    unseen: Sequence[str] = ()  # events without a burst, in words, at most a hundred


@dataclass(frozen=True, slots=True)
class LaneBurst:
    """One burst as an experiment on the other lanes of its site."""

    burst_id: str
    site: str
    lane: str
    start_time_ns: int
    measured: frozenset[str]  # lanes with round trips while it ran
    hurt: Mapping[str, str]  # lane -> incident


@dataclass(frozen=True, slots=True)
class LaneVerdict:
    """Whether bursts on one lane of a site reach another one."""

    site: str
    lane: str
    other_lane: str
    verdict: str  # shared, separate so far, not known
    bursts: int  # during which the other lane was measured
    hurting: int
    answer: str
    first_time_ns: int | None
    last_time_ns: int | None
    incidents: Sequence[str]
