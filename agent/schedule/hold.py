"""Why no throughput test may run just now. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.result import Gate, ThroughputRun
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import TestPause


@dataclass(frozen=True, slots=True)
class Hold:
    """What keeps tests out: marks and bursts that are open on this node, or somebody's word that tests pause."""

    detail: str
    paused: bool = False
    count: int = 1  # of marks and bursts

    @property
    def skipped(self) -> int:
        """Outcome of a test that was not begun for it."""
        return pb.RUN_OUTCOME_SKIPPED_PAUSED if self.paused else pb.RUN_OUTCOME_SKIPPED_BURST

    @property
    def aborted(self) -> int:
        """Outcome of a test that was ended for it."""
        return pb.RUN_OUTCOME_ABORTED_PAUSED if self.paused else pb.RUN_OUTCOME_ABORTED_BURST


def burst_gate(hold: Hold | None, phase: int) -> Gate:
    """Trips when a mark or a burst was open; the value is how many. A pause is nobody's traffic."""
    met = hold is not None and not hold.paused
    count, detail = (hold.count, hold.detail) if hold is not None and met else (0, "")
    return Gate(pb.GATE_KIND_BURST, phase, tripped=met, value=float(count), limit=0.0, detail=detail)


def held(run: ThroughputRun, hold: Hold) -> ThroughputRun:
    """The record of a run that was told to stop, with the outcome that says why. One that had come to its own end by
    then keeps it."""
    if run.report.outcome == pb.RUN_OUTCOME_SKIPPED_PAUSED:
        outcome = hold.skipped
    elif run.report.outcome == pb.RUN_OUTCOME_ABORTED_PAUSED:
        outcome = hold.aborted
    else:
        return run
    said = f"; {run.report.detail}" if run.report.detail else ""
    return replace(run, report=replace(run.report, outcome=outcome, detail=f"{hold.detail}{said}"))


def pause_of_plan(pauses: Iterable[TestPause], now_ns: int) -> str:
    """What to record of a test that is left out because the plan says that tests pause; empty when it does not.

    ``now_ns``: wall clock. A pause without an end holds until a plan comes without it.
    """
    for pause in pauses:
        if not pause.until_time_ns or now_ns < pause.until_time_ns:
            where = f"at site {pause.site}" if pause.site else "everywhere"
            return f"paused {where} by the collector" + (f": {pause.reason}" if pause.reason else "")
    return ""
