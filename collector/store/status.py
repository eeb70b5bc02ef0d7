"""Path rows joined with their newest figures. Pure."""

from collector.model import EndpointRow, PathRow, PathStatus, RoundTripWindow, Swing, ThroughputStatus


def round_trip_status(path: PathRow, window: RoundTripWindow | None) -> PathStatus:
    """Status of a round-trip path; figures are None where there is no window."""
    lost = None if window is None else window.lost + window.unreachable + window.corrupt
    return PathStatus(
        path_id=path.path_id,
        src=path.source.node,
        dst=path.destination.node if path.destination else path.target or "",
        src_endpoint=path.source,
        dst_endpoint=path.destination,
        dst_address=_address(path.destination, path.target_address),
        lane=path.source.lane,
        protocol=path.protocol,
        window_start_time_ns=window.start_time_ns if window else None,
        sent=window.sent if window else None,
        lost=lost,
        loss_ratio=lost / window.sent if window and window.sent and lost is not None else None,
        delay_p50_ns=window.delay_p50_ns if window else None,
        delay_p99_ns=window.delay_p99_ns if window else None,
        loaded=window.loaded_by is not None if window else None,
        doubtful=window.doubtful if window else None,
        throughput=None,
        source_port=path.source_port or None,
    )


def throughput_status(path: PathRow, throughput: ThroughputStatus) -> PathStatus:
    """Status of a throughput path."""
    return PathStatus(
        path_id=path.path_id,
        src=path.source.node,
        dst=path.destination.node if path.destination else path.target or "",
        src_endpoint=path.source,
        dst_endpoint=path.destination,
        dst_address=_address(path.destination, path.target_address),
        lane=path.source.lane,
        protocol=path.protocol,
        window_start_time_ns=None,
        sent=None,
        lost=None,
        loss_ratio=None,
        delay_p50_ns=None,
        delay_p99_ns=None,
        loaded=None,
        throughput=throughput,
    )


def swing_status(swing: Swing | None, last_bps: float | None, last_time_ns: int | None) -> ThroughputStatus:
    """Newest result and swing; with several engine classes the caller gives the one tested last."""
    return ThroughputStatus(
        last_bps=last_bps,
        last_time_ns=last_time_ns,
        offpeak_bps=swing.offpeak_bps if swing else None,
        peak_bps=swing.peak_bps if swing else None,
        swing_ratio=swing.swing_ratio if swing else None,
        flagged=swing.flagged if swing else False,
        tests_offpeak=swing.tests_offpeak if swing else 0,
        tests_peak=swing.tests_peak if swing else 0,
    )


def _address(endpoint: EndpointRow | None, target_address: str | None) -> str:
    return endpoint.address if endpoint else target_address or ""
