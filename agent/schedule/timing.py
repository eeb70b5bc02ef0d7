"""When each end of a slot must act, and what is to be done with a slot now. Pure; wall clock, ns."""

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from agent.schedule.hold import Hold
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Slot

GATE_LEAD_NS = 300_000_000  # the NIC's own traffic is measured this long before an end acts
MAX_SLOT_NS = 600_000_000_000  # longer is a fault in the plan


@dataclass(frozen=True, slots=True)
class SlotTimes:
    """One end's times. The server listens from ``begin_ns`` (margin before the start), the client connects then."""

    act_ns: int  # gates begin
    begin_ns: int
    start_ns: int  # of the slot, as planned
    last_attempt_ns: int  # no new try of the client after it; a quarter of the margin is left for the closing exchange
    missed_ns: int  # past it the start is missed
    deadline_ns: int  # the processes are ended


def slot_times(slot: Slot, role: int) -> SlotTimes:
    """Times of one end of a slot.

    Raises:
        ValueError: the slot's profile cannot be read, or the slot is longer than ten minutes.
    """
    try:
        profile = pb.Profile.FromString(slot.profile)
    except DecodeError as error:
        raise ValueError(f"profile cannot be read: {error}") from None
    start_ns, margin_ns = slot.start_time_ns, slot.margin_ns
    length_ns = profile.omit_ns + profile.duration_ns
    if length_ns + 2 * margin_ns > MAX_SLOT_NS:
        raise ValueError(f"slot of {length_ns} ns with margin {margin_ns} ns: at most {MAX_SLOT_NS} ns in all")
    begin_ns = start_ns - margin_ns if role == pb.RUN_ROLE_SERVER else start_ns
    return SlotTimes(
        act_ns=begin_ns - GATE_LEAD_NS,
        begin_ns=begin_ns,
        start_ns=start_ns,
        last_attempt_ns=start_ns + margin_ns - margin_ns // 4,
        missed_ns=start_ns + margin_ns,
        deadline_ns=start_ns + length_ns + margin_ns,
    )


@dataclass(frozen=True, slots=True)
class Skip:
    """Not run: a ``RunOutcome`` of the skipped ones, and why."""

    outcome: int
    detail: str


WAIT = "wait"
RUN = "run"


def decide(
    times: SlotTimes,
    now_ns: int,
    *,
    expiry_ns: int,
    offline_ns: int,
    offline_grace_ns: int,
    nic_busy: bool,
    hold: Hold | None = None,
) -> str | Skip:
    """``WAIT``, ``RUN``, or why the slot is left out.

    Args:
        times: of this end.
        now_ns: wall clock.
        expiry_ns: of the plan; a slot that starts then or later does not run, nor does any once it has passed.
        offline_ns: how long the collector has been away; 0 while connected.
        offline_grace_ns: how long that may be.
        nic_busy: another slot holds the NIC; waited for until the start.
        hold: what keeps tests out just now; waited for until the start.
    """
    if now_ns < times.act_ns:
        return WAIT
    if times.start_ns >= expiry_ns:
        return Skip(pb.RUN_OUTCOME_SKIPPED_PLAN_EXPIRED, "the plan had expired before the start")
    if now_ns > times.missed_ns:
        late_s = (now_ns - times.start_ns) / 1e9
        return Skip(pb.RUN_OUTCOME_SKIPPED_MISSED_START, f"seen {late_s:.3f} s after the start")
    if offline_ns > offline_grace_ns:
        away_s, grace_s = offline_ns / 1e9, offline_grace_ns / 1e9
        return Skip(
            pb.RUN_OUTCOME_SKIPPED_PLAN_EXPIRED,
            f"no collector for {away_s:.0f} s, offline_test_grace is {grace_s:.0f} s",
        )
    if hold is not None:
        return WAIT if now_ns < times.start_ns else Skip(hold.skipped, hold.detail)
    if nic_busy:
        if now_ns < times.start_ns:
            return WAIT
        return Skip(pb.RUN_OUTCOME_SKIPPED_OVERLAP, "another test of ours held the NIC at the start")
    return RUN
