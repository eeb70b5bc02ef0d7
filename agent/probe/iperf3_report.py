"""An iperf3 report (``-J``, 3.0 to 3.20, either end) read into ``result.Report``. Pure; any text gives a report.

The outcome is that of the ``error`` text, whatever the exit code. The result is the receiver's bytes and seconds, and
only where they are known: iperf3 exchanges results towards the client only, so a server that sends prints a
``sum_received`` of 0 bytes that means "not told". 3.1 prints one ``sum`` for UDP, the sender's; the receiver's share
follows from the loss and is marked derived. Under ``--bidir`` (3.7 on) the plain sums are those of client to server;
the other way has sums of its own, with the same rules.
"""

import re
from collections.abc import Sequence
from typing import Any

from agent.probe.iperf3_errors import MAX_DETAIL_CHARS, classify, plain_error, tidy
from agent.probe.iperf3_fields import Json, count, inner, nanoseconds, ratio, real, words
from agent.probe.iperf3_intervals import STALL_NS, cross_check, read_intervals, silent_tail_ns, stalled
from agent.probe.iperf3_text import assemble_events, read_documents
from agent.result import Interval, Report
from bandwitness.v1 import record_pb2 as pb

_RETURN = "_bidir_reverse"  # ends the names of sums of the way from server to client
MAX_JITTER_MS = 60_000.0  # above: a broken counter (esnet/iperf#613)

# Names of ``Report.flags``, beside those of iperf3_intervals.
REPAIRED_TEXT = "repaired_text"  # some value was no JSON and is taken as absent
SEVERAL_DOCUMENTS = "several_documents"
INVALID_JITTER = "invalid_jitter"
STALLED_TAIL = "stalled_tail"  # the last half or more, and at least 3 s, without a byte
NO_RECEIVER_RESULT = "no_receiver_result"  # client: the other end's result is not in the report


def parse_report(text: str, role: int, *, reverse: bool = False, udp: bool = False, stderr: str = "") -> Report:
    """Reads what one iperf3 process printed.

    Args:
        text: its standard output.
        role: ``RunRole`` of that process.
        reverse: the slot's path leads from the server to the client; where a test goes one way, the report knows.
        udp: used where the report does not say.
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
    errors = [error for error in (words(each, "error") for each in documents) if error]
    return _read(document, errors[0] if errors else "", role, reverse=reverse, udp=udp, flags=flags)


def _without_json(text: str, stderr: str) -> Report:
    error = plain_error(stderr) or plain_error(text)
    if error is not None:
        return Report(outcome=classify(error), detail=tidy(error))
    shown = " ".join((text or stderr)[:MAX_DETAIL_CHARS].split())
    return Report(outcome=pb.RUN_OUTCOME_UNPARSABLE, detail=f"no JSON report: {shown}" if shown else "no output")


def _fullness(document: Json) -> tuple[bool, int]:
    intervals = document.get("intervals")
    return bool(document.get("end")), len(intervals) if isinstance(intervals, list) else 0


def _read(document: Json, error: str, role: int, *, reverse: bool, udp: bool, flags: list[str]) -> Report:
    both_ways = any(key.endswith(_RETURN) for key in inner(document, "end"))
    if both_ways and reverse:
        document = _turned(document)
    start, end = inner(document, "start"), inner(document, "end")
    test = inner(start, "test_start")
    reverse = bool(test["reverse"]) if isinstance(test.get("reverse"), int) and not both_ways else reverse
    udp = words(test, "protocol").upper() == "UDP" if "protocol" in test else udp
    sends = reverse == (role == pb.RUN_ROLE_SERVER)  # this end sends
    intervals = read_intervals(document.get("intervals"))
    figures = _figures(end, role, sends=sends, udp=udp, flags=flags) if end and not error else {}
    silent_ns = silent_tail_ns(intervals)
    if figures:
        cross_check(intervals, figures["sender_bytes" if sends else "receiver_bytes"], flags)
    if 2 * silent_ns >= sum(i.duration_ns for i in intervals) and silent_ns >= STALL_NS:
        flags.append(STALLED_TAIL)
    version = re.match(r"iperf (\S+)", words(start, "version"))
    outcome, detail = _outcome(error, start, intervals, figures, client=role == pb.RUN_ROLE_CLIENT, udp=udp)
    if outcome != pb.RUN_OUTCOME_OK:
        # A failed test has no throughput, not a small one.
        figures |= {"receiver_bytes": None, "receiver_duration_ns": None, "receiver_derived": False}
        figures |= {"return_receiver_bytes": None, "return_receiver_duration_ns": None}
    cpu = inner(end, "cpu_utilization_percent")
    return Report(
        outcome=outcome,
        detail=detail,
        version=version[1] if version else "",
        congestion_control=words(end, "sender_tcp_congestion") or words(end, "receiver_tcp_congestion"),
        **figures,
        local_cpu_ratio=ratio(cpu, "host_total"),
        remote_cpu_ratio=ratio(cpu, "remote_total") if role == pb.RUN_ROLE_CLIENT else None,
        intervals=intervals,
        flags=tuple(flags),
        peer_address=_peer(start, role),
    )


def _turned(document: Json) -> Json:
    """A bidirectional report whose first way is that of the slot's path, server to client."""

    def swapped(sums: Json) -> Json:
        return {
            key.removesuffix(_RETURN)
            if key.endswith(_RETURN)
            else key + _RETURN
            if key.startswith("sum")
            else key: value
            for key, value in sums.items()
        }

    listed = document.get("intervals")
    intervals = [swapped(entry) for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else listed
    return {**document, "end": swapped(inner(document, "end")), "intervals": intervals}


def _outcome(
    error: str, start: Json, intervals: Sequence[Interval], figures: Json, *, client: bool, udp: bool
) -> tuple[int, str]:
    version = words(start, "version")
    if version and not version.startswith("iperf 3"):
        return pb.RUN_OUTCOME_UNSUPPORTED_VERSION, f"speaks {version!r:.60}"
    moved = any(interval.bytes for interval in intervals)
    if stalled(intervals, udp=udp):
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


def _figures(end: Json, role: int, *, sends: bool, udp: bool, flags: list[str]) -> dict[str, Any]:
    """The fields of ``Report`` that count; a total of the far end is 0 in a server's report because it was not told."""
    client = role == pb.RUN_ROLE_CLIENT
    sent, received = inner(end, "sum_sent"), inner(end, "sum_received")
    whole = inner(end, "sum") if udp else {}
    derived = False
    sender = (count(sent or whole, "bytes"), nanoseconds(sent or whole, "seconds"))
    receiver = (count(received, "bytes"), nanoseconds(received, "seconds"))
    if not received and whole and client:
        arrived = _arrived(whole)
        derived = arrived is not None
        receiver = (arrived, nanoseconds(whole, "seconds") if derived else None)
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
        "retransmits": count(sent, "retransmits"),
    }
    figures |= _returned(end, told=(client or not sends, client or sends))
    if udp and (client or not sends):  # the receiver's counters
        arrivals = received if "packets" in received else whole
        figures |= {
            "udp_packets": count(arrivals, "packets"),
            "udp_lost_packets": count(arrivals, "lost_packets"),
            "interarrival_jitter_ns": _jitter(received if "jitter_ms" in received else whole, flags),
        }
    return figures


def _returned(end: Json, *, told: tuple[bool, bool]) -> dict[str, Any]:
    """The other way of ``--bidir``. ``told``: whether this end knows what was sent, and what arrived."""
    sent, received = inner(end, "sum_sent" + _RETURN), inner(end, "sum_received" + _RETURN)
    return {
        "return_sender_bytes": count(sent, "bytes") if told[0] else None,
        "return_receiver_bytes": count(received, "bytes") if told[1] else None,
        "return_receiver_duration_ns": nanoseconds(received, "seconds") if told[1] else None,
    }


def _arrived(whole: Json) -> int | None:
    """UDP ``sum`` × (1 − loss): bytes that must have arrived. None where the loss is not known."""
    sent, percent = count(whole, "bytes"), real(whole, "lost_percent")
    packets, lost = count(whole, "packets"), count(whole, "lost_packets")
    if sent is None:
        return None
    if packets and lost is not None and lost <= packets:
        return round(sent * (packets - lost) / packets)
    if percent is not None and 0 <= percent <= 100:
        return round(sent * (1 - percent / 100))
    return None


def _jitter(totals: Json, flags: list[str]) -> int | None:
    jitter_ms = real(totals, "jitter_ms")
    if jitter_ms is None:
        return None
    if not 0 <= jitter_ms <= MAX_JITTER_MS:
        flags.append(INVALID_JITTER)
        return None
    return round(jitter_ms * 1e6)


def _peer(start: Json, role: int) -> str:
    connected = start.get("connected")
    first = connected[0] if isinstance(connected, list) and connected and isinstance(connected[0], dict) else {}
    accepted = words(inner(start, "accepted_connection"), "host") if role == pb.RUN_ROLE_SERVER else ""
    return accepted or words(first, "remote_host")
