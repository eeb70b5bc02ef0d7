"""What ``bandwitness-agent status`` shows, as a JSON object. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from agent.result import ClockReading, Status
from agent.sample.mark_book import OpenMark
from agent.schedule import Hold
from bandwitness import VERSION
from bandwitness.chain import Tip
from bandwitness.v1.plan_pb2 import Plan

MARKS_SHOWN = 8  # anybody on the host may open a thousand


def answer(
    status: Status,
    *,
    node: str,
    hold: Hold | None,
    marks: Sequence[OpenMark],
    plan: Plan | None,
    chains: Mapping[str, Tip],
    clock: ClockReading,
) -> dict[str, Any]:
    """The agent on itself; what is not known is null."""
    return {
        "node": node,
        "version": VERSION,
        "time": rfc3339(status.time_ns),
        "tests": "allowed" if hold is None else hold.detail,
        "marks": [str(mark) for mark in marks[:MARKS_SHOWN]]
        + ([f"and {len(marks) - MARKS_SHOWN} more"] if len(marks) > MARKS_SHOWN else []),
        "plan": None
        if plan is None
        else {
            "version": plan.version,
            "expires": rfc3339(plan.expiry_time_ns),
            "slots to come": sum(slot.start_time_ns > status.time_ns for slot in plan.slot),
        },
        "spool": {
            "bytes": status.spool_bytes,
            "oldest": None if status.spool_oldest_time_ns is None else rfc3339(status.spool_oldest_time_ns),
            "dropped": status.records_dropped,
        },
        "chains": {
            name.removeprefix("BATCH_CLASS_").lower(): f"{tip.seq} {tip.header_hash.hex()[:16]}"
            for name, tip in sorted(chains.items())
        },
        "clock": {"synchronised": clock.synchronised, "error_bound_ns": clock.error_bound_ns},
        "iperf3": status.iperf3_version or None,
        "parts": [asdict(part) for part in status.parts],
    }


def rfc3339(time_ns: int) -> str:
    """To the second, UTC."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
