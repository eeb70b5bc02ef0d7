"""What is left of a report when it was us who ended the process. Pure."""

from dataclasses import replace

from agent.probe.iperf3_several import Attempt
from agent.result import Report
from bandwitness.v1 import record_pb2 as pb

BEFORE_THE_TEST = (pb.RUN_OUTCOME_REFUSED, pb.RUN_OUTCOME_BUSY, pb.RUN_OUTCOME_ABORTED)


def stopped(attempt: Attempt) -> Attempt:
    """A test that we ended before its time. What its intervals counted stays; sums over a part of it are no result."""
    said = _said(attempt.report)
    return replace(attempt, report=_without_sums(attempt.report, pb.RUN_OUTCOME_ABORTED_PAUSED, f"stopped{said}"))


def ended_by_us(attempt: Attempt) -> Attempt:
    """A test that had not ended at its deadline."""
    report = attempt.report
    if report.outcome == pb.RUN_OUTCOME_STALLED_SUSPECT_MTU:
        return attempt  # says more than that we ended it
    detail = f"ended at its deadline ({attempt.forced}){_said(report)}"
    return replace(attempt, report=_without_sums(report, pb.RUN_OUTCOME_TIMEOUT, detail))


def _said(report: Report) -> str:
    return f"; it said: {report.detail}" if report.detail and report.detail != "no output" else ""


def _without_sums(report: Report, outcome: int, detail: str) -> Report:
    return replace(
        report,
        outcome=outcome,
        detail=detail,
        sender_bytes=None,
        sender_duration_ns=None,
        receiver_bytes=None,
        receiver_duration_ns=None,
        return_sender_bytes=None,
        return_receiver_bytes=None,
        return_receiver_duration_ns=None,
    )
