import json
from pathlib import Path

import iperf3  # its TestResult reads JSON without loading libiperf
import pytest

from agent.probe import iperf3_report as report
from agent.probe.iperf3_intervals import INTERVALS_DISAGREE
from agent.probe.iperf3_report import parse_report
from agent.result import Report
from bandwitness.v1 import record_pb2 as pb

GOLDEN = Path(__file__).parents[3] / "golden" / "iperf3"
CLIENT, SERVER = pb.RUN_ROLE_CLIENT, pb.RUN_ROLE_SERVER


def golden(name: str, role: int = CLIENT) -> Report:
    return parse_report((GOLDEN / name).read_text(), role)


def mbps(found: Report) -> float:
    assert found.receiver_bytes is not None
    assert found.receiver_duration_ns is not None
    return found.receiver_bytes * 8_000 / found.receiver_duration_ns


@pytest.mark.parametrize(
    ("name", "outcome", "detail"),
    [
        ("refused", pb.RUN_OUTCOME_REFUSED, "unable to connect to server: Connection refused"),
        ("busy", pb.RUN_OUTCOME_BUSY, "the server is busy running a test. try again later"),
    ],
)
def test_case_01_failed_test_that_exits_0(name: str, outcome: int, detail: str) -> None:
    check_case_01(golden(f"rec-3.12-{name}-rc0.json"), outcome, detail)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("unable to connect to server: Name or service not known", pb.RUN_OUTCOME_DNS),
        ("unable to connect to server: Temporary failure in name resolution", pb.RUN_OUTCOME_DNS),
        ("unable to connect to server: Connection timed out", pb.RUN_OUTCOME_TIMEOUT),
        ("unable to connect to server: Operation now in progress", pb.RUN_OUTCOME_TIMEOUT),
    ],
)
def test_case_01_failed_test_that_exits_0_for_want_of_a_name_or_an_answer(said: str, outcome: int) -> None:
    """The same document with another error, as the case has it."""
    document = json.loads((GOLDEN / "rec-3.12-refused-rc0.json").read_text())
    document["error"] = said
    check_case_01(parse_report(json.dumps(document), CLIENT), outcome, said)


def check_case_01(found: Report, outcome: int, detail: str) -> None:
    assert (found.outcome, found.detail, found.version) == (outcome, detail, "3.12")
    assert found.receiver_bytes is None
    assert found.receiver_duration_ns is None
    assert found.sender_bytes is None
    assert found.sender_duration_ns is None
    assert found.local_cpu_ratio is None


def test_case_03_server_dies_in_mid_test() -> None:
    found = golden("rec-3.12-server-died-rc0.json")
    assert found.outcome == pb.RUN_OUTCOME_FAILED_PARTIAL
    assert [round(i.bytes * 8_000 / i.duration_ns, 2) for i in found.intervals] == [20.97, 20.97]
    assert found.receiver_bytes is None


def test_case_05_numbers_that_are_not_json() -> None:
    found = golden("made-3.1.3-udp-nan.txt")
    assert report.REPAIRED_TEXT in found.flags
    assert report.INVALID_JITTER in found.flags
    assert found.interarrival_jitter_ns is None
    assert found.local_cpu_ratio is None
    assert found.remote_cpu_ratio == 0.005
    assert [i.bytes for i in found.intervals] == [740_500]
    assert found.sender_bytes == 740_500
    assert found.udp_packets == 0
    # Loss unknown: what arrived is unknown too, and no NaN stands in for it.
    assert found.receiver_bytes is None
    assert found.outcome == pb.RUN_OUTCOME_OTHER


def test_case_05_text_that_cannot_be_repaired() -> None:
    found = parse_report('{"start": {"connected": [', CLIENT)
    assert found.outcome == pb.RUN_OUTCOME_UNPARSABLE


def test_case_07_a_udp_reverse_overrun_gives_what_arrived() -> None:
    found = golden("made-3.7-udp-reverse-overrun.json")
    assert found.outcome == pb.RUN_OUTCOME_OK
    assert mbps(found) == pytest.approx(956)
    assert not found.receiver_derived
    assert (found.udp_lost_packets, found.udp_packets) == (665_000, 1_000_000)
    assert INTERVALS_DISAGREE not in found.flags


def test_case_07_b_only_a_sum_gives_a_derived_receiver() -> None:
    found = golden("made-3.1.3-udp.json")
    assert found.outcome == pb.RUN_OUTCOME_OK
    assert found.sender_bytes == 14_480_000
    assert found.receiver_bytes == 14_480_000 * 3 // 4
    assert found.receiver_derived


@pytest.mark.parametrize("name", ["made-3.6-server-tcp-reverse.json", "rec-3.12-server-tcp-reverse.json"])
def test_case_07_c_a_server_that_sends_is_not_told_what_arrived(name: str) -> None:
    found = golden(name, SERVER)
    assert found.outcome == pb.RUN_OUTCOME_OK
    assert found.sender_bytes
    assert found.receiver_bytes is None
    assert found.receiver_duration_ns is None
    assert found.remote_cpu_ratio is None


def test_case_09_omitted_seconds_and_restarted_interval_clocks() -> None:
    found = golden("rec-3.12-tcp-P4-omit1-rc0.json")
    assert [i.omitted for i in found.intervals] == [True, False, False]
    assert [i.start_ns for i in found.intervals] == [0, 61_000, 1_000_025_000]
    assert found.intervals[0].bytes == 5_242_880
    usable = [i for i in found.intervals if not i.omitted]
    assert sum(i.bytes for i in usable) == found.sender_bytes == 9_961_472
    assert sum(i.bytes * 8_000 / i.duration_ns for i in usable) / 2 == pytest.approx(39.85, abs=0.01)
    assert found.flags == ()
    assert found.intervals[1].round_trip_delay_ns == (153 + 166 + 151 + 132) * 250
    assert found.intervals[1].congestion_window_bytes == 4 * 1_178_694


def test_case_09_a_total_that_counts_the_warm_up_is_flagged() -> None:
    found = golden("made-3.1.3-tcp-omit-counted-in.json")
    assert found.outcome == pb.RUN_OUTCOME_OK
    assert INTERVALS_DISAGREE in found.flags


def test_case_11_large_packets_vanish() -> None:
    found = golden("made-3.12-mtu-black-hole.json")
    assert found.outcome == pb.RUN_OUTCOME_STALLED_SUSPECT_MTU
    assert found.receiver_bytes is None  # kept out of every median
    assert len(found.intervals) == 10
    assert report.STALLED_TAIL in found.flags


def test_case_11_one_good_second_of_udp_then_none() -> None:
    document = json.loads((GOLDEN / "made-3.1.3-udp.json").read_text())
    for interval in document["intervals"][1:]:
        interval["sum"]["bytes"] = interval["streams"][0]["bytes"] = 0
    assert parse_report(json.dumps(document), CLIENT).outcome == pb.RUN_OUTCOME_STALLED_SUSPECT_MTU


def test_a_short_silence_under_loss_is_no_black_hole() -> None:
    """One stream in its third retransmission timeout on an oversold uplink: slow, and a valid result."""
    document = json.loads((GOLDEN / "rec-3.12-tcp-P2-250ms.json").read_text())
    for interval in document["intervals"][1:]:
        for each in (interval["sum"], *interval["streams"]):
            each["bytes"] = 0
    found = parse_report(json.dumps(document), CLIENT)
    assert found.outcome == pb.RUN_OUTCOME_OK


def test_nothing_arrived_is_a_failure_not_0_bits() -> None:
    document = json.loads((GOLDEN / "rec-3.12-tcp-P2-250ms.json").read_text())
    document["end"]["sum_received"]["bytes"] = 0
    found = parse_report(json.dumps(document), CLIENT)
    assert (found.outcome, found.receiver_bytes) == (pb.RUN_OUTCOME_FAILED_PARTIAL, None)


@pytest.mark.parametrize(
    ("name", "role", "sender", "receiver"),
    [
        ("made-3.0.11-tcp.json", CLIENT, 12_500_000, 12_400_000),
        ("rec-3.12-tcp-P2-250ms.json", CLIENT, 12_582_912, 12_582_912),
        ("rec-3.12-tcp-reverse.json", CLIENT, 6_291_456, 6_291_456),
        ("rec-3.12-server-tcp.json", SERVER, None, 12_582_912),
        ("rec-3.12-server-tcp-reverse.json", SERVER, 6_291_456, None),
        ("rec-3.12-udp.json", CLIENT, 2_523_136, 2_523_136),
        ("rec-3.12-udp-reverse.json", CLIENT, 2_523_136, 2_523_136),
        ("rec-3.12-server-udp.json", SERVER, None, 2_523_136),
        ("rec-3.12-server-udp-reverse.json", SERVER, 2_523_136, None),
        ("rec-3.12-tcp-bidir.json", CLIENT, 4_980_736, 4_980_736),
        ("rec-3.12-server-tcp-bidir.json", SERVER, None, 4_980_736),
        ("rec-3.12-udp-bidir.json", CLIENT, 655_360, 655_360),
        ("rec-3.12-server-udp-bidir.json", SERVER, None, 655_360),
    ],
)
def test_both_ends_in_both_directions(name: str, role: int, sender: int | None, receiver: int | None) -> None:
    found = golden(name, role)
    assert found.outcome == pb.RUN_OUTCOME_OK
    assert (found.sender_bytes, found.receiver_bytes) == (sender, receiver)
    assert (found.sender_duration_ns is None) == (sender is None)
    assert (found.receiver_duration_ns is None) == (receiver is None)
    assert found.flags == ()


@pytest.mark.parametrize(
    ("name", "role", "sender", "receiver"),
    [
        ("rec-3.12-tcp-bidir.json", CLIENT, 5_242_880, 5_242_880),
        ("rec-3.12-server-tcp-bidir.json", SERVER, 5_242_880, None),
        ("rec-3.12-udp-bidir.json", CLIENT, 655_360, 655_360),
        ("rec-3.12-server-udp-bidir.json", SERVER, 655_360, None),
        ("rec-3.12-udp.json", CLIENT, None, None),
    ],
)
def test_the_way_back_of_a_bidirectional_test(name: str, role: int, sender: int | None, receiver: int | None) -> None:
    found = golden(name, role)
    assert (found.return_sender_bytes, found.return_receiver_bytes) == (sender, receiver)
    assert (found.return_receiver_duration_ns is None) == (receiver is None)
    returned = [interval.return_bytes for interval in found.intervals]
    assert (None in returned) == (sender is None)
    if sender is not None:
        assert sum(each for each in returned if each is not None) == pytest.approx(sender, rel=0.1)


@pytest.mark.parametrize(
    ("name", "outcome", "peer"),
    [
        ("rec-3.12-server-empty-connection.json", pb.RUN_OUTCOME_ABORTED, ""),
        ("rec-3.12-server-terminated.json", pb.RUN_OUTCOME_ABORTED, ""),
        ("rec-3.12-server-client-gave-up.json", pb.RUN_OUTCOME_ABORTED, "127.0.0.1"),
    ],
)
def test_a_server_without_a_test(name: str, outcome: int, peer: str) -> None:
    found = golden(name, SERVER)
    assert (found.outcome, found.peer_address) == (outcome, peer)


@pytest.mark.parametrize(
    "name",
    [
        "made-3.0.11-tcp.json",
        "rec-3.12-tcp-P2-250ms.json",
        "rec-3.12-tcp-P4-omit1-rc0.json",
        "rec-3.12-tcp-reverse.json",
        "made-3.6-server-tcp-reverse.json",
        "rec-3.12-udp.json",
        "rec-3.12-udp-reverse.json",
    ],
)
def test_a_second_reader_agrees(name: str) -> None:
    text = (GOLDEN / name).read_text()
    theirs = iperf3.TestResult(text)
    ours = parse_report(text, CLIENT if theirs.type == "client" else SERVER)
    assert theirs.error is None
    assert theirs.version == f"iperf {ours.version}"
    assert theirs.remote_host == ours.peer_address
    assert theirs.local_cpu_total == pytest.approx((ours.local_cpu_ratio or 0) * 100)
    if theirs.protocol == "TCP":
        assert theirs.sent_bytes == ours.sender_bytes
        assert theirs.received_bytes == (ours.receiver_bytes or 0)  # it does not know "not told"
        assert theirs.retransmits == ours.retransmits
    else:
        assert theirs.bytes == ours.sender_bytes
        assert theirs.packets == ours.udp_packets
        assert theirs.lost_packets == ours.udp_lost_packets
        assert theirs.jitter_ms == pytest.approx((ours.interarrival_jitter_ns or 0) / 1e6, abs=1e-6)


def test_text_around_the_report() -> None:
    text = (GOLDEN / "rec-3.12-tcp-reverse.json").read_text()
    around = parse_report(f"warning: {{UDP}} block size\n{text}\niperf3: exiting\n", CLIENT)
    assert around == parse_report(text, CLIENT)


def test_the_report_printed_twice() -> None:
    text = (GOLDEN / "rec-3.12-tcp-reverse.json").read_text()
    twice = parse_report(text + text, CLIENT)
    assert twice.receiver_bytes == 6_291_456
    assert twice.flags == (report.SEVERAL_DOCUMENTS,)


def test_an_error_in_either_of_two_documents_counts() -> None:
    text = (GOLDEN / "rec-3.12-tcp-reverse.json").read_text()
    found = parse_report(text + '{"error": "control socket has closed unexpectedly"}', CLIENT)
    assert found.outcome == pb.RUN_OUTCOME_FAILED_PARTIAL
    assert found.receiver_bytes is None


def test_a_stream_of_events_is_put_together() -> None:
    document = json.loads((GOLDEN / "rec-3.12-tcp-reverse.json").read_text())
    events = [{"event": "start", "data": document["start"]}]
    events += [{"event": "interval", "data": interval} for interval in document["intervals"]]
    events += [{"event": "end", "data": document["end"]}]
    found = parse_report("\n".join(map(json.dumps, events)), CLIENT)
    assert found == parse_report(json.dumps(document), CLIENT)


def test_a_report_cut_in_the_middle_is_unparsable() -> None:
    text = (GOLDEN / "rec-3.12-tcp-reverse.json").read_text()
    found = parse_report(text[: len(text) // 2], CLIENT)
    assert found.receiver_bytes is None
    assert found.outcome != pb.RUN_OUTCOME_OK


def test_usage_text_on_the_error_channel() -> None:
    stderr = "iperf3: parameter error - client receive timeout is valid only in receiving mode: \n\nUsage: iperf3 …"
    found = parse_report("", CLIENT, stderr=stderr)
    assert found.outcome == pb.RUN_OUTCOME_BAD_PARAMETERS
    assert found.detail == "parameter error - client receive timeout is valid only in receiving mode"


def test_an_option_that_this_version_does_not_know() -> None:
    found = parse_report("", CLIENT, stderr="iperf3: unrecognized option '--rcv-timeout'\nUsage: iperf3 …")
    assert found.outcome == pb.RUN_OUTCOME_UNSUPPORTED_VERSION


def test_another_program_is_an_unsupported_version() -> None:
    assert parse_report('{"start": {"version": "iperf 2.1.9"}, "end": {}}', CLIENT).outcome == (
        pb.RUN_OUTCOME_UNSUPPORTED_VERSION
    )


def test_no_output() -> None:
    found = parse_report("", CLIENT)
    assert (found.outcome, found.detail) == (pb.RUN_OUTCOME_UNPARSABLE, "no output")


@pytest.mark.parametrize("text", ["{" * 100_000, "[" * 100_000, '{"start":' * 50_000, '"' * 100_000, "9" * 100_000])
def test_hostile_text_is_refused_quickly(text: str) -> None:
    assert parse_report(text, CLIENT).outcome == pb.RUN_OUTCOME_UNPARSABLE


def test_values_of_a_wrong_kind_are_absent() -> None:
    text = json.dumps(
        {
            "start": {"version": 3, "connected": "none", "test_start": []},
            "intervals": [1, {"sum": {"bytes": "7", "seconds": 1}}, {"sum": {"bytes": -1, "seconds": 1}}, {}],
            "end": {"sum_sent": {"bytes": True}, "sum_received": {"bytes": 1e30, "seconds": 1}, "sum": 5},
        }
    )
    found = parse_report(text, CLIENT)
    assert found.intervals == ()
    assert (found.sender_bytes, found.receiver_bytes, found.version) == (None, None, "")
    assert found.outcome == pb.RUN_OUTCOME_OTHER
