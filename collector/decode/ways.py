"""What paths are made of into rows: traces and path MTU checks. Pure."""

from ipaddress import ip_address

from bandwitness.v1.record_pb2 import HopOutcome, MtuOutcome, PathMtu, RouteTrace, TraceReason
from collector.model import HopRow, MtuTrialRow, PathMtuRow, RouteTraceRow, Source

MAX_HOPS = 512  # packets of one trace
MAX_TRIALS = 128
MAX_TIME_NS = 1 << 62  # the year 2116
MAX_DELAY_NS = 600 * 1_000_000_000
MAX_TEXT = 200
MAX_MTU_BYTES = 1 << 20


class WayError(ValueError):
    """A record that contradicts itself; the text says how."""


def route_trace_row(source: Source, trace: RouteTrace) -> RouteTraceRow:
    """One sweep over hop limits.

    Raises:
        WayError: values that no trace can have.
    """
    if trace.reason not in TraceReason.values() or not trace.reason:
        raise WayError(f"a trace for reason {trace.reason}")
    if len(trace.hop) > MAX_HOPS or len(trace.request) > MAX_TEXT:
        raise WayError(f"a trace of {len(trace.hop)} packets, a request of {len(trace.request)} characters")
    hops = []
    for hop in trace.hop:
        if not 0 < hop.hop_limit < 256 or hop.outcome not in HopOutcome.values() or not hop.outcome:
            raise WayError(f"outcome {hop.outcome} at hop limit {hop.hop_limit}")
        delay_ns = hop.round_trip_delay_ns if hop.HasField("round_trip_delay_ns") else None
        if delay_ns is not None and delay_ns > MAX_DELAY_NS:
            raise WayError(f"a round trip of {delay_ns} ns")
        hops.append(HopRow(hop.hop_limit, hop.outcome, _address(hop.address), delay_ns))
    return RouteTraceRow(
        source, trace.path_id, _time(trace.time_ns), trace.reason, trace.request, trace.reached, tuple(hops)
    )


def path_mtu_row(source: Source, found: PathMtu) -> PathMtuRow:
    """One check of a path's MTU.

    Raises:
        WayError: values that no check can have.
    """
    if len(found.trial) > MAX_TRIALS:
        raise WayError(f"{len(found.trial)} sizes tried")
    trials = []
    for trial in found.trial:
        if trial.outcome not in MtuOutcome.values() or not trial.outcome or trial.replied > trial.sent:
            raise WayError(f"outcome {trial.outcome}, {trial.replied} of {trial.sent} replied")
        sizes = (_size(trial.payload_bytes), _size(trial.sent), _size(trial.replied), _size(trial.next_hop_mtu_bytes))
        payload, sent, replied, next_hop = sizes
        trials.append(MtuTrialRow(payload, trial.outcome, sent, replied, _address(trial.reporter), next_hop or None))
    mtu_bytes = _size(found.mtu_bytes) if found.HasField("mtu_bytes") else None
    if mtu_bytes is not None and mtu_bytes < 28:
        raise WayError(f"a path MTU of {mtu_bytes} bytes")
    return PathMtuRow(
        source=source,
        path_id=found.path_id,
        time_ns=_time(found.time_ns),
        mtu_bytes=mtu_bytes,
        interface_mtu_bytes=_size(found.interface_mtu_bytes) or None,
        black_hole=found.black_hole and mtu_bytes is not None,
        trials=tuple(trials),
    )


def _address(text: str) -> str | None:
    if not text:
        return None
    try:
        return str(ip_address(text))
    except ValueError:
        raise WayError(f"{text[:60]!r} is not an address") from None


def _size(value: int) -> int:
    if value > MAX_MTU_BYTES:
        raise WayError(f"a size of {value}")
    return value


def _time(value_ns: int) -> int:
    if not 0 <= value_ns < MAX_TIME_NS:
        raise WayError(f"a time of {value_ns} ns")
    return value_ns
