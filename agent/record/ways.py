"""What a path is made of, into the messages of ``record.proto``. Pure."""

from typing import Any

from agent import result
from bandwitness.identity import short_id
from bandwitness.v1.record_pb2 import PathMtu, RouteTrace


def fill_route_trace(message: RouteTrace, trace: result.RouteTrace) -> None:
    """Writes one sweep over hop limits."""
    reason: Any = trace.reason
    message.path_id = short_id(trace.path)
    message.time_ns = trace.time_ns
    message.reason = reason
    message.request = trace.request
    message.reached = trace.reached
    for hop in trace.hops:
        outcome: Any = hop.outcome
        message.hop.add(
            hop_limit=hop.hop_limit,
            outcome=outcome,
            address=hop.address,
            round_trip_delay_ns=hop.round_trip_delay_ns,
        )


def fill_path_mtu(message: PathMtu, found: result.PathMtu) -> None:
    """Writes one check of a path's MTU."""
    message.path_id = short_id(found.path)
    message.time_ns = found.time_ns
    message.interface_mtu_bytes = found.interface_mtu_bytes
    message.black_hole = found.black_hole
    if found.mtu_bytes is not None:
        message.mtu_bytes = found.mtu_bytes
    for trial in found.trials:
        outcome: Any = trial.outcome
        message.trial.add(
            payload_bytes=trial.payload_bytes,
            outcome=outcome,
            sent=trial.sent,
            replied=trial.replied,
            reporter=trial.reporter,
            next_hop_mtu_bytes=trial.next_hop_mtu_bytes,
        )
