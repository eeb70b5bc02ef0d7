"""One test by several iperf3 processes, each on a port of its own, and their reports made one. Pure.

Below 3.16 iperf3 serves all its streams in one thread: a test of four streams then measures one core and not the
network (13 against 81 Gbit/s on the loopback of two cores, 3.12). So a client below 3.16 that has more than one stream
starts a process for each port that the slot gives it. From 3.16 on one process has a thread a stream, and starts
them closer together than several could. A server cannot know which client will come: it opens all the ports.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent.probe.iperf3_command import MAX_PORTS, THREADED_VERSION, Lane, Version
from agent.result import Interval, Report
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import Slot

APART_NS = 250_000_000  # processes that begin further apart than this did not share their time

# Names of ``Report.flags``.
SEVERAL_PROCESSES = "several_processes"
PROCESSES_APART = "processes_apart"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one process gave. ``start_ns`` is monotonic; ``forced`` as in ``process.Ending``."""

    report: Report
    start_ns: int
    forced: str = ""
    raw: bytes = b""
    raw_cut: bool = False
    cpu_ratio: float | None = None  # of its busiest thread, seen from outside
    threaded: bool = False  # one thread a stream


def server_lanes(slot: Slot, profile: pb.Profile) -> list[Lane]:
    """One for each port that a client might come to; ``streams`` are those of a client that uses them all."""
    count = max(1, min(slot.ports, profile.streams, MAX_PORTS))
    each, more = divmod(profile.streams, count)
    return [Lane(slot.port + number, each + (number < more)) for number in range(count)]


def client_lanes(slot: Slot, profile: pb.Profile, version: Version) -> list[Lane]:
    """How the streams are shared out: one process from 3.16 on, else one for each port."""
    if version.number >= THREADED_VERSION:
        return [Lane(slot.port, profile.streams)]
    return server_lanes(slot, profile)


def combine(attempts: Sequence[Attempt]) -> Report:
    """One report of all processes. Bytes are sums, and so are rates: the duration is what makes them agree.

    A test of which one process failed has no result: what the others carried had more room than planned.
    """
    if len(attempts) == 1:
        return attempts[0].report
    reports = [attempt.report for attempt in attempts]
    first = next((report for report in reports if report.outcome != pb.RUN_OUTCOME_OK), reports[0])
    flags = list(dict.fromkeys([SEVERAL_PROCESSES, *(flag for report in reports for flag in report.flags)]))
    starts = [attempt.start_ns for attempt in attempts]
    if max(starts) - min(starts) > APART_NS:
        flags.append(PROCESSES_APART)
    whole = Report(
        outcome=first.outcome,
        detail=first.detail,
        version=_first(reports, lambda report: report.version),
        congestion_control=_first(reports, lambda report: report.congestion_control),
        receiver_derived=any(report.receiver_derived for report in reports),
        retransmits=_sum([report.retransmits for report in reports]),
        local_cpu_ratio=_most([report.local_cpu_ratio for report in reports]),
        remote_cpu_ratio=_most([report.remote_cpu_ratio for report in reports]),
        udp_packets=_sum([report.udp_packets for report in reports]),
        udp_lost_packets=_sum([report.udp_lost_packets for report in reports]),
        interarrival_jitter_ns=_mean([report.interarrival_jitter_ns for report in reports]),
        intervals=_intervals([report.intervals for report in reports]),
        flags=tuple(flags),
        peer_address=_first(reports, lambda report: report.peer_address),
        return_sender_bytes=_sum([report.return_sender_bytes for report in reports]),
    )
    worked = sum(report.outcome == pb.RUN_OUTCOME_OK for report in reports)
    if 0 < worked < len(reports):
        detail = f"{worked} of {len(reports)} processes worked; another: {first.detail}"
        whole = replace(whole, outcome=pb.RUN_OUTCOME_FAILED_PARTIAL, detail=detail)
    sent = [(report.sender_bytes, report.sender_duration_ns) for report in reports]
    whole = replace(whole, sender_bytes=_sum([octets for octets, _ in sent]), sender_duration_ns=_duration(sent))
    if worked < len(reports):
        return whole
    arrived = [(report.receiver_bytes, report.receiver_duration_ns) for report in reports]
    returned = [(report.return_receiver_bytes, report.return_receiver_duration_ns) for report in reports]
    return replace(
        whole,
        receiver_bytes=_sum([octets for octets, _ in arrived]),
        receiver_duration_ns=_duration(arrived),
        return_receiver_bytes=_sum([octets for octets, _ in returned]),
        return_receiver_duration_ns=_duration(returned),
    )


def carried(attempts: Sequence[Attempt]) -> int:
    """Bytes that went over the NIC, warm-up and both ways, as far as the intervals tell: also of a test that failed."""
    intervals = [interval for attempt in attempts for interval in attempt.report.intervals]
    return sum(interval.bytes + (interval.return_bytes or 0) for interval in intervals)


def _intervals(listed: Sequence[Sequence[Interval]]) -> tuple[Interval, ...]:
    """Sums of intervals of the same number, warm-up and the rest apart; no further than all processes went. Their
    clocks began within APART_NS of each other, or the result is flagged."""
    found: list[Interval] = []
    for omitted in (True, False):
        groups = [[interval for interval in intervals if interval.omitted == omitted] for intervals in listed]
        found += [_added(together) for together in zip(*groups, strict=False)]
    return tuple(found)


def _added(together: Sequence[Interval]) -> Interval:
    return Interval(
        start_ns=min(each.start_ns for each in together),
        duration_ns=round(sum(each.duration_ns for each in together) / len(together)),
        bytes=sum(each.bytes for each in together),
        omitted=together[0].omitted,
        retransmits=_sum([each.retransmits for each in together]),
        round_trip_delay_ns=_mean([each.round_trip_delay_ns for each in together]),
        congestion_window_bytes=_sum([each.congestion_window_bytes for each in together]),
        return_bytes=_sum([each.return_bytes for each in together]),
        receive_window_bytes=_sum([each.receive_window_bytes for each in together]),
        senders=sum(each.senders for each in together),
    )


def _duration(parts: Sequence[tuple[int | None, int | None]]) -> int | None:
    """What the sum of the bytes must be divided by to be the sum of the rates."""
    known = [(octets, took) for octets, took in parts if octets is not None and took]
    if len(known) < len(parts):
        return None
    rate = sum(octets / took for octets, took in known)
    total = sum(octets for octets, _ in known)
    return round(total / rate) if rate else max(took for _, took in known)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _mean(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known)) if known else None


def _most(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _first(reports: Sequence[Report], pick: Callable[[Report], str]) -> str:
    return next((pick(report) for report in reports if pick(report)), "")
