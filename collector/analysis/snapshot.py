"""What is hot: one immutable picture of the newest figures, made by the analysis thread for ``/metrics`` and the API.

A reader takes the whole object once and never sees half a step. Counters start with the process and move only on
samples that arrived within ``YOUNG_NS`` of being measured: a drained backlog must not make ``rate()`` explode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collector.model import Burst, BurstScore, CarrierStatus, ClusterBurst, Incident, NodeRow, PathStatus, Swing

YOUNG_NS = 120 * 1_000_000_000
PACKET_OUTCOMES = ("replied", "lost", "unreachable", "corrupt", "unresolved", "send_failed", "skipped")

# Upper bounds of the delay histogram in ns; the last bucket is +Inf.
DELAY_BOUNDS_NS = tuple(round(1_000 * 10 ** (step / 3)) for step in range(22))  # 1 µs … 10 s, three a decade


@dataclass(frozen=True, slots=True)
class PathTotals:
    """Packets of one round-trip path since the process started; ``outcomes`` in the order of PACKET_OUTCOMES."""

    path_id: int
    src: str
    outcomes: Sequence[int]
    duplicates: int
    late: int
    forward_lost: int = 0  # STAMP, where the direction is known
    reverse_lost: int = 0

    @property
    def sent(self) -> int:
        """Inside the loss ratio: replied, lost, unreachable, corrupt."""
        return sum(self.outcomes[:4])

    @property
    def lost(self) -> int:
        """Lost, unreachable or corrupt (RFC 6673, RFC 7680)."""
        return sum(self.outcomes[1:4])


@dataclass(frozen=True, slots=True)
class DelayHistogram:
    """Round-trip delays between two racks on one lane since the process started; loaded samples included."""

    src_rack: str
    dst_rack: str  # a rack, or a target's name
    lane: str
    counts: Sequence[int]  # one more than DELAY_BOUNDS_NS; not cumulative
    sum_ns: int


@dataclass(frozen=True, slots=True)
class NicStatus:
    """One NIC. Totals count from first sight in this process, resets left out; peaks are of the newest 10 s."""

    node: str
    nic: str
    time_ns: int  # of the newest tick
    receive_bytes_total: int
    transmit_bytes_total: int
    receive_peak_bytes_per_second: float | None
    transmit_peak_bytes_per_second: float | None
    speed_bps: int | None
    resets: int
    counters: Mapping[str, int] = field(default_factory=dict)  # raw values of those counted, by the kernel's names
    errors: Mapping[str, int] = field(default_factory=dict)  # totals of those that count errors and drops
    congestion: Mapping[str, int] = field(default_factory=dict)  # totals of ECN marks and congestion notifications
    kind: str = ""  # physical, bond, vlan …: only physical ones and virtual functions make a sum
    driver: str = ""
    coverage: Sequence[str] = ()  # why what is counted is not all that passes
    receive_pause_ratio: float | None = None  # share of the newest 10 s in which the port was not allowed to send
    transmit_pause_ratio: float | None = None  # and in which it stopped its neighbour


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that ``/metrics`` and the hot part of the API need."""

    made_time_ns: int = 0  # collector's clock
    through_time_ns: int | None = None  # event time through which loss and delay have been judged
    position: int = 0  # log position through which everything is counted
    lag_ns: int = 0  # age of the oldest log entry not read yet; 0 when there is none
    lag_entries: int = 0
    nodes: Sequence[NodeRow] = ()
    paths: Mapping[int, PathStatus] = field(default_factory=dict)
    totals: Mapping[int, PathTotals] = field(default_factory=dict)
    delays: Sequence[DelayHistogram] = ()
    carriers: Sequence[CarrierStatus] = ()  # over the last minute that was judged
    swings: Sequence[Swing] = ()
    hours: Mapping[tuple[str, str, str, str], float] = field(default_factory=dict)
    """Median valid throughput in bit/s by (rack, rack, lane, hour of the local day at the first, two digits)."""
    attempts: Mapping[tuple[str, str, str, str], int] = field(default_factory=dict)
    """Settled slots by (source, destination, lane, outcome in lower case), in the direction of the data: of a reverse
    test the server's node is the source. ``lost`` included, pending not. Each slot is in one of these for ever."""
    corrections: Mapping[tuple[str, str, str, str, str], int] = field(default_factory=dict)
    """Slots that a record made something else after they were counted: what they stood as, what they became."""
    incidents: Sequence[Incident] = ()  # open ones
    nics: Sequence[NicStatus] = ()
    open_bursts: Sequence[Burst] = ()
    open_clusters: Sequence[ClusterBurst] = ()
    forecasts: Sequence[ClusterBurst] = ()  # the newest of each place, lane and kind that tells when the next one comes
    burst_counts: Mapping[tuple[str, str], int] = field(default_factory=dict)  # ended ones, by lane and kind
    burst_bytes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    cluster_burst_counts: Mapping[tuple[str, str, str, str], int] = field(default_factory=dict)
    """Ended ones, by scope, lane, kind and whether a mark speaks of them (yes, no)."""
    burst_score: BurstScore | None = None
    burst_steps_waited_out: int = 0
    batches: Mapping[str, int] = field(default_factory=dict)  # by class in lower case, in the log
    quarantined: Mapping[str, int] = field(default_factory=dict)  # batches, by ChainFault
    unreadable_records: int = 0
    rule_errors: Mapping[str, int] = field(default_factory=dict)
    step_errors: int = 0  # steps of analysis that failed as a whole and were tried again
