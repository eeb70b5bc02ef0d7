"""Configured nodes joined with what is known of their agents. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from collector.config import Config
from collector.model import EndpointRow, NodeRow, SelfCheckStatus


def node_rows(config: Config, agents: Mapping[str, Mapping[str, Any]]) -> list[NodeRow]:
    """Configured nodes with what is known of their agents (table rows, by name). Who is connected, ingest knows."""
    rows = []
    for node in config.nodes:
        known = agents.get(node.name, {})
        rows.append(
            NodeRow(
                name=node.name,
                site=node.site,
                rack=node.rack,
                endpoints=[EndpointRow(node.name, end.nic, end.address, end.lane) for end in node.endpoints],
                connected=False,
                last_received_time_ns=known.get("last_received_time_ns"),
                last_event_time_ns=known.get("watermark_ns"),
                software_version=known.get("software_version"),
                iperf3_version=known.get("iperf3_version"),
                clock_synchronised=known.get("clock_synchronised"),
                clock_error_bound_ns=known.get("clock_error_bound_ns"),
                spool_bytes=known.get("spool_bytes"),
                records_dropped=known.get("records_dropped"),
                parts=json.loads(known["parts"]) if known else (),
                chains=json.loads(known["chains"]) if known else {},
                quarantined=known.get("quarantined", 0),
                self_check=_self_check(json.loads(known["self_check"])) if known else None,
                gaps=known.get("gaps", 0),
                last_gap_time_ns=known.get("last_gap_time_ns"),
            )
        )
    return rows


def _self_check(values: Mapping[str, Any]) -> SelfCheckStatus | None:
    return SelfCheckStatus(**values) if values else None
