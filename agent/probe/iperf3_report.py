"""An iperf3 report (``-J``, 3.0 to 3.20, either end) read into ``result.Report``. Pure; any text gives a report.

The outcome is that of the ``error`` text, whatever the exit code. The result is the receiver's bytes and seconds, and
only where they are known: iperf3 exchanges results towards the client only, so a server that sends prints a
``sum_received`` of 0 bytes that means "not told". 3.1 prints one ``sum`` for UDP, the sender's; the receiver's share
follows from the loss and is marked derived. Intervals under ``--omit`` run on a clock of their own, which starts anew
when the warm-up ends; they are kept as printed, marked, and counted nowhere.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent.probe.iperf3_errors import MAX_DETAIL_CHARS, classify, plain_error, tidy
from agent.probe.iperf3_text import assemble_events, read_documents
from agent.result import Interval, Report
from bandwitness.v1 import record_pb2 as pb

CROSS_CHECK_RATIO = 0.01  # intervals against end, both as the same end counted them
MAX_JITTER_MS = 60_000.0  # above: a broken counter (esnet/iperf#613)
MAX_INTERVALS = 4_096
STALL_NS = 3_000_000_000  # shorter silences happen under loss: 0.2 + 0.4 + 0.8 s are three retransmission timeouts

# Names of ``Report.flags``.
INTERVALS_DISAGREE = "intervals_disagree"  # sum of the intervals is off the total by more than 1 %
REPAIRED_TEXT = "repaired_text"  # some value was no JSON and is taken as absent
SEVERAL_DOCUMENTS = "several_documents"
INVALID_JITTER = "invalid_jitter"
STALLED_TAIL = "stalled_tail"  # the last half or more, and at least 3 s, without a byte
NO_RECEIVER_RESULT = "no_receiver_result"  # client: the other end's result is not in the report

_Json = Mapping[str, Any]


def parse_report(text: str, role: int, *, reverse: bool = False, udp: bool = False, stderr: str = "") -> Report:
    """Reads what one iperf3 process printed.

    Args:
        text: its standard output.
        role: ``RunRole`` of that process.
        reverse: the server sends; used where the report does not say.
        udp: as ``reverse``.
        stderr: usage and parameter errors go there, without JSON.
    """
    reading = read_documents(text)
    documents = assemble_events(reading.documents)
    if not documents:
        return _without_json(text, stderr)
    document = max(documents, key=_fullness)
    flags = [REPAIRED_TEXT] if reading.repaired else []
    if len(documents) > 1:
        flags.append(SEVERAL_DOCUMENTS)
    errors = [error for error in (_text(each, "error") for each in documents) if error]
    return _read(document, errors[0] if errors else "", role, reverse=reverse, udp=udp, flags=flags)


def _without_json(text: str, stderr: str) -> Report:
    error = plain_error(stderr) or plain_error(text)
    if error is not None:
        return Report(outcome=classify(error), detail=tidy(error))
    shown = " ".join((text or stderr)[:MAX_DETAIL_CHARS].split())
    return Report(outcome=pb.RUN_OUTCOME_UNPARSABLE, detail=f"no JSON report: {shown}" if shown else "no output")


def _fullness(document: _Json) -> tuple[bool, int]:
    intervals = document.get("intervals")
    return bool(document.get("end")), len(intervals) if isinstance(intervals, list) else 0


def _read(document: _Json, error: str, role: int, *, reverse: bool, udp: bool, flags: list[str]) -> Report:
    start, end = _object(document, "start"), _object(document, "end")
    test = _object(start, "test_start")
    reverse = bool(test["reverse"]) if isinstance(test.get("reverse"), int) else reverse
    udp = _text(test, "protocol").upper() == "UDP" if "protocol" in test else udp
    sends = reverse == (role == pb.RUN_ROLE_SERVER)  # this end sends
    intervals = _intervals(document.get("intervals"))
    figures = _figures(end, role, sends=sends, udp=udp, flags=flags) if end and not error else {}
    stalled = _silent_tail_ns(intervals)
    if figures:
        _cross_check(intervals, figures["sender_bytes" if sends else "receiver_bytes"], flags)
    if 2 * stalled >= sum(i.duration_ns for i in intervals) and stalled >= STALL_NS:
        flags.append(STALLED_TAIL)
    version = re.match(r"iperf (\S+)", _text(start, "version"))
    outcome, detail = _outcome(error, start, intervals, figures, client=role == pb.RUN_ROLE_CLIENT, udp=udp)
    if outcome != pb.RUN_OUTCOME_OK:
        # A failed test has no throughput, not a small one.
        figures |= {"receiver_bytes": None, "receiver_duration_ns": None, "receiver_derived": False}
    cpu = _object(end, "cpu_utilization_percent")
    return Report(
        outcome=outcome,
        detail=detail,
        version=version[1] if version else "",
        congestion_control=_text(end, "sender_tcp_congestion") or _text(end, "receiver_tcp_congestion"),
        **figures,
        local_cpu_ratio=_ratio(cpu, "host_total"),
        remote_cpu_ratio=_ratio(cpu, "remote_total") if role == pb.RUN_ROLE_CLIENT else None,
        intervals=intervals,
        flags=tuple(flags),
        peer_address=_peer(start, role),
    )


def _outcome(
    error: str, start: _Json, intervals: Sequence[Interval], figures: _Json, *, client: bool, udp: bool
) -> tuple[int, str]:
    version = _text(start, "version")
    if version and not version.startswith("iperf 3"):
        return pb.RUN_OUTCOME_UNSUPPORTED_VERSION, f"speaks {version!r:.60}"
    moved = any(interval.bytes for interval in intervals)
    if _stalled(intervals, udp=udp):
        unsaid = "data at the start, then none: packets of full size vanish"
        return pb.RUN_OUTCOME_STALLED_SUSPECT_MTU, tidy(error) or unsaid
    if error:
        outcome = classify(error)
        if moved and outcome in (pb.RUN_OUTCOME_ABORTED, pb.RUN_OUTCOME_OTHER):
            outcome = pb.RUN_OUTCOME_FAILED_PARTIAL
        return outcome, tidy(error)
    if not figures:
        outcome = pb.RUN_OUTCOME_FAILED_PARTIAL if moved else pb.RUN_OUTCOME_ABORTED
        return outcome, "the report ends without totals"
    if figures["receiver_bytes"] == 0:
        return pb.RUN_OUTCOME_FAILED_PARTIAL, "nothing arrived"
    if client and (figures["receiver_bytes"] is None or figures["receiver_duration_ns"] is None):
        return pb.RUN_OUTCOME_OTHER, "the report does not say what the receiver got"
    return pb.RUN_OUTCOME_OK, ""


# ---------------------------------------------------------------- totals


def _figures(end: _Json, role: int, *, sends: bool, udp: bool, flags: list[str]) -> dict[str, Any]:
    """The fields of ``Report`` that count; a total of the far end is 0 in a server's report because it was not told."""
    client = role == pb.RUN_ROLE_CLIENT
    sent, received = _object(end, "sum_sent"), _object(end, "sum_received")
    whole = _object(end, "sum") if udp else {}
    derived = False
    sender = (_count(sent or whole, "bytes"), _nanoseconds(sent or whole, "seconds"))
    receiver = (_count(received, "bytes"), _nanoseconds(received, "seconds"))
    if not received and whole and client:
        arrived = _arrived(whole)
        derived = arrived is not None
        receiver = (arrived, _nanoseconds(whole, "seconds") if derived else None)
    if not client and sends and not receiver[0]:
        receiver = (None, None)
    if not client and not sends and not sender[0]:
        sender = (None, None)
    if client and receiver[0] is None:
        flags.append(NO_RECEIVER_RESULT)
    figures: dict[str, Any] = {
        "sender_bytes": sender[0],
        "sender_duration_ns": sender[1],
        "receiver_bytes": receiver[0],
        "receiver_duration_ns": receiver[1],
        "receiver_derived": derived,
        "retransmits": _count(sent, "retransmits"),
    }
    if udp and (client or not sends):  # the receiver's counters
        arrivals = received if "packets" in received else whole
        figures |= {
            "udp_packets": _count(arrivals, "packets"),
            "udp_lost_packets": _count(arrivals, "lost_packets"),
            "interarrival_jitter_ns": _jitter(received if "jitter_ms" in received else whole, flags),
        }
    return figures


def _arrived(whole: _Json) -> int | None:
    """UDP ``sum`` × (1 − loss): bytes that must have arrived. None where the loss is not known."""
    sent, percent = _count(whole, "bytes"), _real(whole, "lost_percent")
    packets, lost = _count(whole, "packets"), _count(whole, "lost_packets")
    if sent is None:
        return None
    if packets and lost is not None and lost <= packets:
        return round(sent * (packets - lost) / packets)
    if percent is not None and 0 <= percent <= 100:
        return round(sent * (1 - percent / 100))
    return None


def _jitter(totals: _Json, flags: list[str]) -> int | None:
    jitter_ms = _real(totals, "jitter_ms")
    if jitter_ms is None:
        return None
    if not 0 <= jitter_ms <= MAX_JITTER_MS:
        flags.append(INVALID_JITTER)
        return None
    return round(jitter_ms * 1e6)


# ---------------------------------------------------------------- intervals


def _intervals(listed: object) -> tuple[Interval, ...]:
    if not isinstance(listed, list):
        return ()
    found = (_interval(entry) for entry in listed[:MAX_INTERVALS] if isinstance(entry, dict))
    return tuple(interval for interval in found if interval is not None)


def _interval(entry: _Json) -> Interval | None:
    listed = entry.get("streams")
    streams = [stream for stream in listed if isinstance(stream, dict)] if isinstance(listed, list) else []
    total = _object(entry, "sum") or (streams[0] if streams else {})
    octets = _count(total, "bytes")
    if "sum" not in entry and streams:
        counts = [_count(stream, "bytes") for stream in streams]
        octets = None if None in counts else sum(count for count in counts if count is not None)
    duration_ns = _nanoseconds(total, "seconds")
    if octets is None or duration_ns is None:
        return None
    delays = [delay for delay in (_count(stream, "rtt") for stream in streams) if delay]
    windows = [window for window in (_count(stream, "snd_cwnd") for stream in streams) if window]
    return Interval(
        start_ns=_nanoseconds(total, "start") or 0,
        duration_ns=duration_ns,
        bytes=octets,
        omitted=total.get("omitted") is True,
        retransmits=_count(total, "retransmits"),
        round_trip_delay_ns=round(sum(delays) / len(delays) * 1_000) if delays else None,  # printed in µs
        congestion_window_bytes=sum(windows) if windows else None,
    )


def _cross_check(intervals: Sequence[Interval], total: int | None, flags: list[str]) -> None:
    counted = [interval.bytes for interval in intervals if not interval.omitted]
    if total is not None and counted and abs(sum(counted) - total) > CROSS_CHECK_RATIO * total:
        flags.append(INTERVALS_DISAGREE)


def _silent_tail_ns(intervals: Sequence[Interval]) -> int:
    silent_ns = 0
    for interval in reversed(intervals):
        if interval.bytes:
            break
        silent_ns += interval.duration_ns
    return silent_ns


def _stalled(intervals: Sequence[Interval], *, udp: bool) -> bool:
    """A connection that stood, and after its first interval (or from the start) carried nothing for 3 s or more.

    Small packets pass (the handshake did), full ones vanish. UDP datagrams above the MTU: one good second, then none.
    """
    silent_ns = _silent_tail_ns(intervals)
    speaking = next((n for n, interval in enumerate(reversed(intervals)) if interval.bytes), len(intervals))
    loud = len(intervals) - speaking
    loud_ns = sum(interval.duration_ns for interval in intervals[:loud])
    return silent_ns >= STALL_NS and (loud <= 1 or (not udp and loud_ns <= silent_ns // 8))


# ---------------------------------------------------------------- fields


def _peer(start: _Json, role: int) -> str:
    connected = start.get("connected")
    first = connected[0] if isinstance(connected, list) and connected and isinstance(connected[0], dict) else {}
    accepted = _text(_object(start, "accepted_connection"), "host") if role == pb.RUN_ROLE_SERVER else ""
    return accepted or _text(first, "remote_host")


def _object(holder: _Json, key: str) -> _Json:
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def _text(holder: _Json, key: str) -> str:
    value = holder.get(key)
    return value if isinstance(value, str) else ""


def _real(holder: _Json, key: str) -> float | None:
    value = holder.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _count(holder: _Json, key: str) -> int | None:
    """A whole number from 0 to 2^63; iperf3 prints large ones as floats, and -1 for "not supported"."""
    value = holder.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        return None
    return int(value)


def _nanoseconds(holder: _Json, key: str) -> int | None:
    seconds = _real(holder, key)
    return round(seconds * 1e9) if seconds is not None and 0 <= seconds < 1e6 else None


def _ratio(holder: _Json, key: str) -> float | None:
    percent = _real(holder, key)
    return percent / 100 if percent is not None and 0 <= percent < 1e6 else None
