"""The reporting intervals of an iperf3 report: sums over the streams, and what silence among them means. Pure.

Intervals under ``--omit`` run on a clock of their own, which starts anew when the warm-up ends; they are kept as
printed, marked, and counted nowhere.
"""

from collections.abc import Sequence

from agent.probe.iperf3_fields import Json, count, inner, nanoseconds
from agent.result import Interval

CROSS_CHECK_RATIO = 0.01  # intervals against end, both as the same end counted them
MAX_INTERVALS = 4_096
STALL_NS = 3_000_000_000  # shorter silences happen under loss: 0.2 + 0.4 + 0.8 s are three retransmission timeouts
INTERVALS_DISAGREE = "intervals_disagree"  # sum of the intervals is off the total by more than 1 %


def read_intervals(listed: object) -> tuple[Interval, ...]:
    """The entries of ``intervals`` that say how much in what time; at most ``MAX_INTERVALS``."""
    if not isinstance(listed, list):
        return ()
    found = (_interval(entry) for entry in listed[:MAX_INTERVALS] if isinstance(entry, dict))
    return tuple(interval for interval in found if interval is not None)


def _interval(entry: Json) -> Interval | None:
    listed = entry.get("streams")
    streams = [stream for stream in listed if isinstance(stream, dict)] if isinstance(listed, list) else []
    total = inner(entry, "sum") or (streams[0] if streams else {})
    octets = count(total, "bytes")
    if "sum" not in entry and streams:
        counts = [count(stream, "bytes") for stream in streams]
        octets = None if None in counts else sum(each for each in counts if each is not None)
    duration_ns = nanoseconds(total, "seconds")
    if octets is None or duration_ns is None:
        return None
    delays = [delay for delay in (count(stream, "rtt") for stream in streams) if delay]
    windows = [window for window in (count(stream, "snd_cwnd") for stream in streams) if window]
    offered = [count(stream, "snd_wnd") for stream in streams if count(stream, "snd_cwnd")]
    return Interval(
        start_ns=nanoseconds(total, "start") or 0,
        duration_ns=duration_ns,
        bytes=octets,
        omitted=total.get("omitted") is True,
        retransmits=count(total, "retransmits"),
        round_trip_delay_ns=round(sum(delays) / len(delays) * 1_000) if delays else None,  # printed in µs
        congestion_window_bytes=sum(windows) if windows else None,
        return_bytes=count(inner(entry, "sum_bidir_reverse"), "bytes"),
        receive_window_bytes=sum(each for each in offered if each is not None)
        if offered and None not in offered
        else None,
        senders=len(windows),
    )


def cross_check(intervals: Sequence[Interval], total: int | None, flags: list[str]) -> None:
    """Adds INTERVALS_DISAGREE where the counted intervals are not ``total``."""
    counted = [interval.bytes for interval in intervals if not interval.omitted]
    if total is not None and counted and abs(sum(counted) - total) > CROSS_CHECK_RATIO * total:
        flags.append(INTERVALS_DISAGREE)


def silent_tail_ns(intervals: Sequence[Interval]) -> int:
    """How long nothing came at the end."""
    silent_ns = 0
    for interval in reversed(intervals):
        if interval.bytes:
            break
        silent_ns += interval.duration_ns
    return silent_ns


def stalled(intervals: Sequence[Interval], *, udp: bool) -> bool:
    """A connection that stood, and after its first interval (or from the start) carried nothing for 3 s or more.

    Small packets pass (the handshake did), full ones vanish. UDP datagrams above the MTU: one good second, then none.
    """
    silent_ns = silent_tail_ns(intervals)
    speaking = next((n for n, interval in enumerate(reversed(intervals)) if interval.bytes), len(intervals))
    loud = len(intervals) - speaking
    loud_ns = sum(interval.duration_ns for interval in intervals[:loud])
    return silent_ns >= STALL_NS and (loud <= 1 or (not udp and loud_ns <= silent_ns // 8))
