"""How every planned test ended: planned = ok + failed + skipped + lost, exactly. Pure.

The client's record is the attempt, the server's joins it. Without the client's, a slot that a later plan withdrew is
skipped, and one whose time has passed is lost: ten seconds behind its margin, once the evidence of both ends is
complete up to there. An end of which nothing has come for 15 minutes is not waited for; if its record comes after all
the attempt is corrected.

A server that stayed away from a test, or ended it, because of a burst or a pause on its node leaves its client with
nothing but a refusal or a peer that left: then the server's word is the reason.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from bandwitness.v1.record_pb2 import (
    RUN_OUTCOME_ABORTED_BURST,
    RUN_OUTCOME_ABORTED_PAUSED,
    RUN_OUTCOME_LOST,
    RUN_OUTCOME_OK,
    RUN_OUTCOME_SKIPPED_BURST,
    RUN_OUTCOME_SKIPPED_PAUSED,
    RUN_OUTCOME_SKIPPED_WITHDRAWN,
    RUN_OUTCOME_UNSPECIFIED,
    RUN_ROLE_CLIENT,
)
from collector.model import RunRow, SlotRow
from collector.store.counting import outcome_name

SECOND = 1_000_000_000
GRACE_NS = 10 * SECOND
SILENT_NS = 900 * SECOND
OUTSIDE_NS = 600 * SECOND  # a run this far from its slot is not the one that was planned
BYTES_TOLERANCE = 0.01
FIRST_SKIPPED, FIRST_LOST = 40, 60

# An end kept out of the way, on purpose.
OUT_OF_THE_WAY = frozenset(
    {
        RUN_OUTCOME_SKIPPED_BURST,
        RUN_OUTCOME_SKIPPED_PAUSED,
        RUN_OUTCOME_ABORTED_BURST,
        RUN_OUTCOME_ABORTED_PAUSED,
    }
)
# Told by the report or the agent, and no reason to doubt the figure.
HARMLESS_FLAGS = frozenset(
    {
        *("retried", "port_not_released", "invalid_jitter", "repaired_text"),
        *("several_processes", "deferred", "no_numa_cpus", "libiperf"),
    }
)


@dataclass(frozen=True, slots=True)
class End:
    """What is known of one end's agent."""

    watermark_ns: int | None  # of its evidence
    last_received_time_ns: int | None


def category(outcome: int) -> str:
    """ok, failed, skipped or lost."""
    if outcome == RUN_OUTCOME_OK:
        return "ok"
    if outcome >= FIRST_LOST:
        return "lost"
    return "skipped" if outcome >= FIRST_SKIPPED else "failed"


def speaks(run: RunRow, slot: SlotRow) -> bool:
    """Whether a record comes from the node at that end of the slot. Nobody else can tell how its test ended."""
    end = slot.client if run.role == RUN_ROLE_CLIENT else slot.server
    return run.source.agent_id == end.node


def inside(run: RunRow, slot: SlotRow) -> bool:
    """Whether a run began near its slot; agents start tests within seconds of the plan."""
    return slot.start_time_ns - OUTSIDE_NS <= run.start_time_ns <= slot.end_time_ns + OUTSIDE_NS


def resolve(client: RunRow | None, server: RunRow | None = None, *, withdrawn: bool, overdue: bool) -> tuple[str, int]:
    """Category and outcome of one slot."""
    if client is not None:
        if category(client.outcome) == "failed" and server is not None and server.outcome in OUT_OF_THE_WAY:
            return category(server.outcome), server.outcome
        return category(client.outcome), client.outcome
    if withdrawn:
        return "skipped", RUN_OUTCOME_SKIPPED_WITHDRAWN
    if overdue:
        return "lost", RUN_OUTCOME_LOST
    return "pending", RUN_OUTCOME_UNSPECIFIED


def overdue(slot: SlotRow, ends: Iterable[End], received_time_ns: int) -> bool:
    """Whether no record can be expected any more; ``received_time_ns`` is how far the log reaches."""
    deadline = slot.end_time_ns + GRACE_NS
    if received_time_ns < deadline:
        return False
    return all(
        (end.watermark_ns is not None and end.watermark_ns >= deadline)
        or (
            received_time_ns - deadline >= SILENT_NS
            and (end.last_received_time_ns is None or received_time_ns - end.last_received_time_ns >= SILENT_NS)
        )
        for end in ends
    )


def disagreement(client: RunRow | None, server: RunRow | None) -> str:
    """What the two ends say differently; empty when they agree or one is missing."""
    if client is None or server is None:
        return ""
    if (client.outcome == RUN_OUTCOME_OK) != (server.outcome == RUN_OUTCOME_OK):
        return f"client {outcome_name(client.outcome)}, server {outcome_name(server.outcome)}"
    mine, theirs = client.receiver_bytes, server.receiver_bytes
    if mine and theirs and abs(mine - theirs) > BYTES_TOLERANCE * max(mine, theirs):
        return f"receiver bytes: client {mine}, server {theirs}"
    return ""


def valid(client: RunRow | None, server: RunRow | None, *, settled: bool, contended: bool) -> bool:
    """Whether a result may enter a verdict: ok at the client, not contradicted by the server, no gate tripped and no
    doubt flagged at either end, no collision with another test of ours. ``settled``: no server record is to come."""
    if client is None or client.outcome != RUN_OUTCOME_OK or client.throughput_bps is None or contended:
        return False
    if server is None and not settled:
        return False
    return not doubts(client, server)


def doubts(client: RunRow | None, server: RunRow | None) -> list[str]:
    """What keeps a result that the client calls ok out of verdicts, as far as the records of its two ends say."""
    found = []
    if server is not None and server.outcome != RUN_OUTCOME_OK:
        found.append(f"server {outcome_name(server.outcome)}")
    for end, run in (("client", client), ("server", server)):
        if run is not None:
            found += [f"{end} {gate}" for gate in run.gates_tripped]
            found += [f"{end} {flag}" for flag in sorted(set(run.flags) - HARMLESS_FLAGS)]
    return found
