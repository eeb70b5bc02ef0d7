"""What probes and samplers hand over: frozen values, no behaviour. Imports nothing of the agent.

Enumerations are the contract's own (``bandwitness.v1.record_pb2``); the values here carry their plain integers.
Times are integer nanoseconds; ``None`` means absent, never 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class RoundTripBatch:
    """Resolved singletons of one flush and one method, flat, path after path, in order of sequence without holes."""

    method: int  # RoundTripMethod
    stamp_source: int  # StampSource
    interval_ns: int
    waiting_time_ns: int
    path_ids: Sequence[int]
    first_sequences: Sequence[int]
    sample_counts: Sequence[int]
    # One entry a sample.
    send_times_ns: Sequence[int]  # wall clock
    outcomes: Sequence[int]  # PacketOutcome
    # One entry a replied sample that has a usable delay.
    round_trip_delays_ns: Sequence[int]
    # Replied samples without a usable delay: position among all samples -> DelayFault.
    delay_faults: Sequence[tuple[int, int]] = ()
    marks: Sequence["Mark"] = ()
    # One entry a path, or none at all: TTL or hop limit with which its newest reply of this flush came; 0: not known.
    hop_limits: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A duplicate of, or a late reply to, one packet of this or an earlier flush."""

    path_id: int
    sequence: int
    kind: int  # PacketMark
    delay_ns: int | None


class OneWayLoss(NamedTuple):
    """Lost packets of one path between two that came back: RFC 7680 one-way loss in each direction, and those of which
    the reflector's count does not tell. Late replies have come back, and are in none."""

    path_id: int
    first_sequence: int
    last_sequence: int
    forward_lost: int
    reverse_lost: int
    either_lost: int = 0
    send_time_ns: int = 0  # of the first, wall clock


class OneWayDelay(NamedTuple):
    """RFC 7679, signed: the two clocks differ by up to the bounds of both ends."""

    path_id: int
    sequence: int
    forward_ns: int  # T2 minus our kernel's send stamp
    reverse_ns: int  # our kernel's receive stamp minus T3
    sender_error_ns: int
    reflector_error_ns: int
    send_time_ns: int = 0  # wall clock

    @property
    def clock_error_ns(self) -> int:
        """Both bounds added: within this the delays are true."""
        return self.sender_error_ns + self.reflector_error_ns


@dataclass(frozen=True, slots=True)
class OneWayBatch:
    """What a STAMP reflector's count and stamps said, on packets of this or an earlier flush."""

    losses: Sequence[OneWayLoss] = ()
    delays: Sequence[OneWayDelay] = ()


class Hop(NamedTuple):
    """One packet of a sweep over hop limits."""

    hop_limit: int
    outcome: int  # HopOutcome
    address: str = ""  # who answered; empty: nobody
    round_trip_delay_ns: int | None = None


@dataclass(frozen=True, slots=True)
class RouteTrace:
    """One sweep over hop limits with the flow of one path."""

    path: bytes  # serialised Path
    time_ns: int  # wall clock: sending of the first
    reason: int  # TraceReason
    request: str  # the plan's; empty: without one
    hops: Sequence[Hop]
    reached: bool


class MtuTrial(NamedTuple):
    """One size tried, don't-fragment set."""

    payload_bytes: int  # behind the ICMP header
    outcome: int  # MtuOutcome
    sent: int
    replied: int
    reporter: str = ""
    next_hop_mtu_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PathMtu:
    """The largest packet that a path carries whole."""

    path: bytes  # serialised Path
    time_ns: int  # wall clock: sending of the first
    trials: Sequence[MtuTrial]
    mtu_bytes: int | None  # None: nothing came back at all
    interface_mtu_bytes: int  # 0: not known
    black_hole: bool


@dataclass(frozen=True, slots=True)
class Interval:
    """One reporting interval of a throughput test, summed over its streams."""

    start_ns: int
    duration_ns: int
    bytes: int
    omitted: bool
    retransmits: int | None = None
    round_trip_delay_ns: int | None = None
    congestion_window_bytes: int | None = None
    return_bytes: int | None = None  # of bidirectional tests: server to client
    receive_window_bytes: int | None = None  # as the receiver offers it; of the streams that send
    senders: int = 0  # how many streams these are


@dataclass(frozen=True, slots=True)
class Gate:
    """One recorded check that could make a result ours and not the network's."""

    kind: int  # GateKind
    phase: int  # GatePhase
    tripped: bool
    value: float | None = None
    limit: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """An iperf3 report as read: the outcome from its ``error`` text, whatever the exit code, and what it counts."""

    outcome: int  # RunOutcome
    detail: str = ""
    version: str = ""
    congestion_control: str = ""
    sender_bytes: int | None = None
    sender_duration_ns: int | None = None
    receiver_bytes: int | None = None
    receiver_duration_ns: int | None = None
    receiver_derived: bool = False
    retransmits: int | None = None
    local_cpu_ratio: float | None = None
    remote_cpu_ratio: float | None = None
    udp_packets: int | None = None
    udp_lost_packets: int | None = None
    interarrival_jitter_ns: int | None = None
    intervals: Sequence[Interval] = ()
    flags: Sequence[str] = ()
    peer_address: str = ""
    return_sender_bytes: int | None = None  # of bidirectional tests: server to client
    return_receiver_bytes: int | None = None
    return_receiver_duration_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ThroughputRun:
    """One end's view of one attempt at a slot."""

    slot_id: bytes
    group_id: bytes
    role: int  # RunRole
    path: bytes  # serialised Path, in the direction of the data
    profile: bytes  # serialised Profile
    report: Report
    start_time_ns: int
    end_time_ns: int
    elapsed_ns: int
    reverse: bool
    port: int
    gates: Sequence[Gate] = ()
    raw_report: bytes = b""
    raw_report_cut: bool = False
    strangers: Sequence[str] = ()
    processes: int = 0  # of iperf3 at this end
    port_bytes: int | None = None  # the NIC's count in the test's direction, the test included
    port_duration_ns: int | None = None


@dataclass(frozen=True, slots=True)
class NicBatch:
    """Counters of one NIC over one flush. ``values[c][t]`` is counter ``c`` at tick ``t``, None where missed."""

    nic: str
    counters: Sequence[str]
    base_time_ns: int
    base_monotonic_ns: int
    interval_ns: int
    tick_times_ns: Sequence[int]  # monotonic; the first equals base_monotonic_ns
    values: Sequence[Sequence[int | None]]
    speed_bps: int | None = None
    mtu_bytes: int | None = None
    carrier: bool | None = None
    carrier_changes: int | None = None
    fault: str = ""
    source: int = 0  # CounterSource
    driver: str = ""
    device: str = ""  # RDMA device and port
    coverage: Sequence[str] = ()
    full_duplex: bool | None = None
    kind: str = ""
    lower: Sequence[str] = ()
    link_layer: str = ""
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class TrainerMark:
    """A process on this host said that something began or ended."""

    time_ns: int  # receipt, wall clock
    said_time_ns: int | None  # the sender's clock
    phase: int  # MarkPhase
    kind: str
    job: str
    step: int | None
    bytes: int | None
    rank: int | None
    labels: Sequence[tuple[str, str]]
    user_id: int  # of the sender, as the kernel says
    process_id: int  # 0: not visible from here


@dataclass(frozen=True, slots=True)
class PartState:
    """How one part of the agent is. ``state`` is one word, ``detail`` says what is missing and how to cure it."""

    part: str
    working: bool
    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The kernel's or chrony's word on the wall clock."""

    source: int  # ClockSource
    synchronised: bool
    offset_ns: int | None = None
    error_bound_ns: int | None = None


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Running totals of waiting for a CPU; each None where the kernel does not say."""

    pressure_ns: int | None  # some task of this host waited (PSI)
    steal_ticks: int | None  # the hypervisor ran somebody else, over all CPUs
    total_ticks: int | None  # all that /proc/stat counts, over all CPUs
    own_wait_ns: int | None  # this process's main thread could run and waited


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The agent measured against itself over ``[from, to)``, wall clock. ``reasons``: why its delays are doubtful."""

    from_time_ns: int
    to_time_ns: int
    loopback_sent: int
    loopback_lost: int
    loopback_delay_p50_ns: int | None = None
    loopback_delay_max_ns: int | None = None
    lateness_p50_ns: int | None = None
    lateness_max_ns: int | None = None
    cpu_pressure_ratio: float | None = None
    own_wait_ratio: float | None = None
    steal_ratio: float | None = None
    reasons: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """From here to there nothing of this class was recorded, and it was our doing."""

    reason: int  # GapReason
    batch_class: int  # BatchClass
    from_time_ns: int
    to_time_ns: int
    records: int | None = None  # None: not known how many
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """The agent on itself, once a flush."""

    time_ns: int
    spool_bytes: int
    spool_oldest_time_ns: int | None
    records_dropped: int
    parts: Sequence[PartState] = field(default=())
    resident_memory_bytes: int | None = None
    cpu_time_ns: int | None = None
    iperf3_version: str = ""
