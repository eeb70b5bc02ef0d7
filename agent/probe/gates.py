"""Checks before, during and after a test that tell our own faults from the network's.

The readings come from ``/proc`` and ``/sys`` under a given root; what they mean is decided by pure functions that give
``result.Gate`` values. A value that cannot be read is absent and trips nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent import netdev
from agent.clock import STEP_TOLERANCE_NS, Anchor
from agent.result import Gate, Interval
from bandwitness.v1 import record_pb2 as pb

CPU_LIMIT_RATIO = 0.95  # of one core: iperf3 at its own limit, not the network's
CLOCK_TICKS_PER_SECOND = 100  # USER_HZ, the same on every Linux
WINDOW_LIMIT_RATIO = 0.5  # of the intervals
_BUFFER_RATIO = 0.9  # the rest is the kernel's own bookkeeping
_UNDER_WAY_RATIO = 0.7  # rate and smoothed round trip are means: their product is a little low
_FULL_PORT_RATIO = 0.9
_HEADERS_RATIO = 1.10  # bytes on the NIC over bytes of payload: headers and retransmissions
_LINK_ERRORS = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors", "tx_carrier_errors")


@dataclass(frozen=True, slots=True)
class NicReading:
    """One NIC at one moment; each value None where the kernel does not tell."""

    received_bytes: int | None = None
    transmitted_bytes: int | None = None
    speed_bps: int | None = None
    carrier_changes: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)


def read_nic(root: Path, nic: str) -> NicReading:
    """Reads ``proc/net/dev`` (always of the process's own network namespace) and ``sys/class/net`` below ``root``."""
    octets = netdev.parse(_text(root / "proc/net/dev")).get(nic, {})
    device = root / "sys/class/net" / nic
    errors = {name: _number(device / "statistics" / name) for name in _LINK_ERRORS}
    return NicReading(
        received_bytes=octets.get("rx_bytes"),
        transmitted_bytes=octets.get("tx_bytes"),
        speed_bps=netdev.parse_speed(_text(device / "speed")),
        carrier_changes=_number(device / "carrier_changes"),
        errors={name: value for name, value in errors.items() if value is not None},
    )


def read_thread_ticks(root: Path, pid: int) -> dict[int, int]:
    """CPU time of each thread of a process in clock ticks (``proc/<pid>/task/*/stat``, fields utime and stime)."""
    ticks: dict[int, int] = {}
    try:
        threads = sorted((root / "proc" / str(pid) / "task").iterdir())
    except OSError:
        return ticks
    for thread in threads:
        fields = _text(thread / "stat").rpartition(")")[2].split()  # the name in brackets may hold anything
        if len(fields) > 12 and fields[11].isdigit() and fields[12].isdigit() and thread.name.isdigit():
            ticks[int(thread.name)] = int(fields[11]) + int(fields[12])
    return ticks


# ---------------------------------------------------------------- gates


def own_traffic_gate(
    first: NicReading, last: NicReading, elapsed_ns: int, limit_ratio: float, *, phase: int, test_bytes: int = 0
) -> Gate:
    """Bytes of the busier direction over the NIC's speed; where the speed is unknown, bit/s, recorded and no limit.

    Args:
        first: reading at the begin.
        last: reading at the end, ``elapsed_ns`` later.
        elapsed_ns: between the readings.
        limit_ratio: share of the speed; 0 for no limit.
        phase: ``GatePhase``.
        test_bytes: payload of our own test in the time, left out with its headers.
    """
    counts = [
        after - before
        for before, after in (
            (first.received_bytes, last.received_bytes),
            (first.transmitted_bytes, last.transmitted_bytes),
        )
        if before is not None and after is not None and after >= before  # below: a reset, not traffic
    ]
    if not counts or elapsed_ns <= 0:
        return Gate(pb.GATE_KIND_OWN_TRAFFIC, phase, tripped=False, detail="counters could not be read")
    rate_bps = max(0.0, max(counts) - test_bytes * _HEADERS_RATIO) * 8 / (elapsed_ns / 1e9)
    if last.speed_bps is None:
        return Gate(pb.GATE_KIND_OWN_TRAFFIC, phase, tripped=False, value=rate_bps, detail="bit/s; NIC speed unknown")
    ratio = rate_bps / last.speed_bps
    limit = limit_ratio if limit_ratio > 0 else None
    return Gate(pb.GATE_KIND_OWN_TRAFFIC, phase, tripped=limit is not None and ratio > limit, value=ratio, limit=limit)


def cpu_gate(thread_ratio: float | None, softirq: tuple[float, int] | None = None) -> Gate:
    """Trips when a core was (nearly) full of our own test: then the host was measured. Other processes do not count.

    Args:
        thread_ratio: share of a core that iperf3's busiest thread took.
        softirq: the same of the interrupts of the busiest core that serves the NIC, and which core that is.
    """
    ratio, detail = thread_ratio, ""
    if softirq is not None and (ratio is None or softirq[0] > ratio):
        ratio, detail = softirq[0], f"interrupts on cpu{softirq[1]}, which serves the NIC"
    tripped = ratio is not None and ratio > CPU_LIMIT_RATIO
    return Gate(
        pb.GATE_KIND_TEST_CPU, pb.GATE_PHASE_DURING, tripped=tripped, value=ratio, limit=CPU_LIMIT_RATIO, detail=detail
    )


def window_gate(
    intervals: Sequence[Interval], rate_bps: float | None, speed_bps: int | None, send_buffer_bytes: int | None
) -> Gate:
    """Trips when the receiver's window or the own send buffer held TCP back in more than half of the seconds: then a
    setting of a host was measured, and not the network.

    The sender's end reports what it takes to know: it was held by the receiver where its congestion window was no
    smaller than the offered one (``snd_wnd``, 3.12 on), by its buffer where the congestion window had outgrown what
    that may hold; and the bytes under way (rate × round trip) came near that limit, which they do not while nobody
    wants to send more. At 90 % of the port's speed nothing more was to be had.
    """
    held, known, why = 0, 0, set()
    for interval in intervals:
        found = _limits(interval, send_buffer_bytes)
        if found is not None:
            known += 1
            held += bool(found)
            why |= found
    if not known:
        detail = "the report does not tell"
        return Gate(pb.GATE_KIND_TCP_WINDOW, pb.GATE_PHASE_DURING, tripped=False, detail=detail)
    ratio, detail = held / known, " and ".join(sorted(why))
    full = rate_bps is not None and speed_bps is not None and rate_bps >= _FULL_PORT_RATIO * speed_bps
    return Gate(
        pb.GATE_KIND_TCP_WINDOW,
        pb.GATE_PHASE_DURING,
        tripped=ratio > WINDOW_LIMIT_RATIO and not full,
        value=ratio,
        limit=WINDOW_LIMIT_RATIO,
        detail=f"{detail}; the port was full" if full and detail else detail,
    )


def _limits(interval: Interval, send_buffer_bytes: int | None) -> set[str] | None:
    """What held back this interval; None: it does not tell."""
    own, offered, delay_ns = (
        interval.congestion_window_bytes,
        interval.receive_window_bytes,
        interval.round_trip_delay_ns,
    )
    if interval.omitted or not own or not delay_ns or not interval.duration_ns:
        return None
    under_way = interval.bytes * delay_ns / interval.duration_ns
    found = set()
    if offered is not None and own >= offered and under_way >= _UNDER_WAY_RATIO * offered:
        found.add("receiver's window")
    buffers = send_buffer_bytes * interval.senders if send_buffer_bytes is not None else None
    if buffers and own >= _BUFFER_RATIO * buffers and under_way >= _UNDER_WAY_RATIO * buffers:
        found.add("send buffer")
    return None if offered is None and buffers is None else found


def send_buffer_limit(root: Path) -> int | None:
    """Bytes that a TCP send buffer may grow to by itself (the last of ``tcp_wmem``)."""
    last = _text(root / "proc/sys/net/ipv4/tcp_wmem").split()[-1:]
    return int(last[0]) if last and last[0].isdigit() else None


def link_gate(first: NicReading, last: NicReading) -> Gate:
    """Trips when speed, carrier or error counters moved during the test; the value is how many of them did."""
    changes: list[str] = []
    known = False
    pairs: list[tuple[str, int | None, int | None]] = [
        ("speed_bps", first.speed_bps, last.speed_bps),
        ("carrier_changes", first.carrier_changes, last.carrier_changes),
        *((name, first.errors.get(name), last.errors.get(name)) for name in _LINK_ERRORS),
    ]
    for name, before, after in pairs:
        known = known or before is not None
        if before != after:
            changes.append(f"{name} {before} -> {after}")
    if not known:
        return Gate(pb.GATE_KIND_LINK, pb.GATE_PHASE_AFTER, tripped=False, detail="link state could not be read")
    value = float(len(changes))
    detail = ", ".join(changes)
    return Gate(pb.GATE_KIND_LINK, pb.GATE_PHASE_AFTER, tripped=bool(changes), value=value, limit=0.0, detail=detail)


def clock_gate(first: Anchor, last: Anchor) -> Gate:
    """Trips when the wall clock was set between two readings (or the host slept); the value is the size in ns."""
    moved_ns = (last.wall_ns - last.monotonic_ns) - (first.wall_ns - first.monotonic_ns)
    limit_ns = STEP_TOLERANCE_NS + first.uncertainty_ns + last.uncertainty_ns
    return Gate(
        pb.GATE_KIND_CLOCK,
        pb.GATE_PHASE_AFTER,
        tripped=abs(moved_ns) > limit_ns,
        value=float(moved_ns),
        limit=float(limit_ns),
    )


# ---------------------------------------------------------------- files


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not there, or EINVAL from a link that is down
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None
