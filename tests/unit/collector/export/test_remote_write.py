"""What is sent by remote write, and what becomes of what a receiver does not take."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwitness.v1.record_pb2 import PROTOCOL_ICMP_ECHO
from collector.config import RemoteWrite
from collector.export.remote_write import request, sender
from collector.export.remote_write.request import Answer, Fate
from collector.export.remote_write.samples import FAMILIES, Naming, Sample, samples_of
from collector.export.remote_write.sender import FIRST_BACKOFF_S, LAST_BACKOFF_S, MAX_SAMPLES, Sender
from collector.export.remote_write.write_pb2 import WriteRequest
from collector.model import EndpointRow, PathRow, RoundTripWindow
from collector.store.outbox import Outbox
from collector.store.outbox_reader import Noted, Throughput
from collector.vocabulary import BY_NAME

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
PATH = PathRow(
    0xAB, EndpointRow("n1", "e0", "10.0.0.1", "rail0"), EndpointRow("n2", "e0", "10.0.0.2", "rail0"),
    None, None, PROTOCOL_ICMP_ECHO, 4, 56, 0, None, b"",
)  # fmt: skip


def window(start_ns: int = NOW, **changes: object) -> RoundTripWindow:
    values: dict[str, object] = {
        "path_id": 0xAB, "start_time_ns": start_ns, "length_ns": 10 * SECOND, "sent": 50, "replied": 48, "lost": 1,
        "unreachable": 1, "corrupt": 0, "unresolved": 0, "send_failed": 0, "skipped": 0, "duplicates": 0, "late": 0,
        "delay_samples": 48, "delay_min_ns": 1, "delay_p50_ns": 100_000, "delay_p99_ns": 250_000, "delay_max_ns": 9,
        "loaded_by": None,
    }  # fmt: skip
    return RoundTripWindow(**values | changes)  # type: ignore[arg-type]


def said(noted: Noted, **own: str) -> dict[str, tuple[float, int]]:
    """Value and time by family and what tells its series apart."""
    found = {}
    for sample in samples_of(noted, lambda _: PATH, Naming("c1", own)):
        labels = dict(sample.labels)
        assert labels.pop("origin") == "event_time"
        assert labels.pop("collector") == "c1"
        name = labels.pop("__name__").removeprefix("bandwitness_")
        told = [labels[key] for key in ("quantile", "direction") if key in labels]
        found[" ".join([name, *told])] = (sample.value, sample.time_ms)
    return found


def test_a_window_is_sent_with_the_time_of_its_end() -> None:
    end_ms = (NOW + 10 * SECOND) // 1_000_000
    assert said(Noted(1, NOW, windows=[window()])) == {
        "path_loss_ratio": (0.04, end_ms),
        "path_delay_seconds 0.5": (pytest.approx(100e-6), end_ms),
        "path_delay_seconds 0.99": (pytest.approx(250e-6), end_ms),
        "path_loaded": (0.0, end_ms),
        "path_doubtful": (0.0, end_ms),
    }


def test_what_is_absent_is_not_sent() -> None:
    nothing = window(sent=0, delay_p50_ns=None, delay_p99_ns=None, loaded_by=b"x", doubtful="cpu_busy")
    found = said(Noted(1, NOW, windows=[nothing]))
    assert {name: value for name, (value, _) in found.items()} == {"path_loaded": 1.0, "path_doubtful": 1.0}
    assert not list(samples_of(Noted(1, NOW, windows=[window()]), lambda _: None, Naming("c", {})))


def test_nics_and_results() -> None:
    row = {
        "start_time_ns": NOW, "node": "n1", "nic": "e0", "receive_peak_bytes_per_second": 5.0,
        "transmit_peak_bytes_per_second": None, "receive_pause_ratio": 0.25, "transmit_pause_ratio": None,
    }  # fmt: skip
    noted = Noted(1, NOW, nics=[row], results=[Throughput(0xAB, NOW + 1_500_000, 8e9)])
    end_ms = NOW // 1_000_000 + 10_000
    assert said(noted) == {
        "nic_receive_peak_bytes_per_second": (5.0, end_ms),
        "nic_pause_ratio receive": (0.25, end_ms),
        "throughput_bytes_per_second": (1e9, NOW // 1_000_000 + 1),
    }


def test_all_that_is_sent_is_in_the_vocabulary() -> None:
    assert all(BY_NAME[family].kind in ("gauge", "summary") for family in FAMILIES)
    assert {name for family in FAMILIES for name in BY_NAME[family].labels}.isdisjoint({"origin", "collector"})


@given(st.dictionaries(st.from_regex(r"[a-z]{1,9}\Z"), st.text(), max_size=4), st.text())
def test_labels_are_sorted_valid_and_never_empty(own: dict[str, str], nic: str) -> None:
    labels = Naming("c1", own)("nic_receive_peak_bytes_per_second", "n1", nic)
    assert list(labels) == sorted(labels)
    assert len(dict(labels)) == len(labels)
    for _, value in labels:
        assert 0 < len(value) <= 256
        value.encode()
    read = WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(request.body([Sample(labels, 5, 1.5)]))))
    assert [(label.name, label.value) for label in read.timeseries[0].labels] == list(labels)


def test_lone_surrogates_of_a_name_are_replaced() -> None:
    assert ("nic", "e?0") in Naming("c1", {})("nic_receive_peak_bytes_per_second", "n1", "e\udcff0")


def test_a_series_stands_once_in_a_request_with_its_samples_in_order() -> None:
    labels = (("__name__", "a"),)
    others = (("__name__", "b"),)
    samples = [Sample(labels, 3, 3.0), Sample(others, 1, math.inf), Sample(labels, 1, 1.0), Sample(labels, 2, 2.0)]
    read = WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(request.body(samples))))
    assert [[(one.timestamp, one.value) for one in series.samples] for series in read.timeseries] == [
        [(1, 1.0), (2, 2.0), (3, 3.0)],
        [(1, math.inf)],
    ]


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        (200, Fate.TAKEN), (204, Fate.TAKEN), (0, Fate.AGAIN), (429, Fate.AGAIN), (500, Fate.AGAIN), (503, Fate.AGAIN),
        (400, Fate.SPLIT), (413, Fate.SPLIT), (401, Fate.REFUSED), (404, Fate.REFUSED), (302, Fate.REFUSED),
    ],
)  # fmt: skip
def test_what_an_answer_means(status: int, fate: Fate) -> None:
    assert request.fate(Answer(status)) is fate


def test_a_fault_of_the_samples_that_calls_itself_the_servers_is_not_tried_for_ever() -> None:
    assert request.fate(Answer(500, "too old sample")) is Fate.SPLIT
    assert request.fate(Answer(503, "too old sample")) is Fate.AGAIN


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7.0), ("99999", 300.0), ("Fri, 31 Dec 2027 23:59:59 GMT", None), ("-1", None), ("", None), (None, None)],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert request.retry_after(text) == seconds


# ---------------------------------------------------------------- the sender


@dataclass
class Receiver:
    """Answers as told, and keeps what it took."""

    refuses: Callable[[str, int], bool] = lambda _, __: False  # NIC, time
    answers: list[Answer] = field(default_factory=list)  # before anything else
    taken: list[tuple[str, int]] = field(default_factory=list)
    requests: int = 0

    def __call__(self, body: bytes) -> Answer:
        self.requests += 1
        if self.answers:
            return self.answers.pop(0)
        read = WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(body)))
        samples = [
            ({label.name: label.value for label in series.labels}["nic"], sample.timestamp)
            for series in read.timeseries
            for sample in series.samples
        ]
        if any(self.refuses(*sample) for sample in samples):
            return Answer(400, "out of bounds")
        self.taken += samples
        return Answer(204)


class Queue:
    """Entries of one NIC sample for each NIC named."""

    def __init__(self, entries: Iterable[int], nics: int = 1) -> None:
        self.entries = [
            Noted(entry_id, NOW + entry_id * SECOND, nics=[self.row(entry_id, nic) for nic in range(nics)])
            for entry_id in entries
        ]

    @staticmethod
    def row(entry_id: int, nic: int) -> dict[str, object]:
        return {
            "start_time_ns": NOW + entry_id * SECOND, "node": "n1", "nic": f"e{nic}",
            "receive_peak_bytes_per_second": float(entry_id), "transmit_peak_bytes_per_second": None,
            "receive_pause_ratio": None, "transmit_pause_ratio": None,
        }  # fmt: skip

    def next(self, after_id: int, _: int, limit: int, /) -> list[Noted]:
        return [entry for entry in self.entries if entry.entry_id > after_id][:limit]

    def path(self, _: int, /) -> None:
        return None


def made(receiver: Receiver, queue: Queue, now_ns: int = NOW) -> tuple[Sender, Outbox]:
    outbox = Outbox({"p": 1000})
    outbox.taken_up = True
    remote = RemoteWrite(name="p", url="http://127.0.0.1:1/")
    one = Sender(
        remote, "c1", outbox, queue, post=receiver, wall_ns=lambda: now_ns, random_ratio=lambda: 1.0
    )  # fmt: skip
    return one, outbox


def emptied(one: Sender, rounds: int = 500) -> None:
    for _ in range(rounds):
        if one.round() == sender.IDLE_S:
            return
    raise AssertionError("it never comes to rest")


def test_everything_is_sent_once_and_in_order() -> None:
    receiver, queue = Receiver(), Queue(range(1, 121))
    one, outbox = made(receiver, queue)
    emptied(one)
    assert [time for _, time in receiver.taken] == [(NOW + n * SECOND) // 1_000_000 + 10_000 for n in range(1, 121)]
    assert (outbox.sent["p"], one.statistics.sent, one.statistics.last_success_ns) == (120, 120, NOW)


def test_requests_are_limited_in_size_and_an_entry_counts_once_all_of_it_is_there() -> None:
    receiver = Receiver()
    one, outbox = made(receiver, Queue([1], nics=2 * MAX_SAMPLES + 10))
    one.round()
    one.round()
    assert (len(receiver.taken), outbox.sent["p"]) == (2 * MAX_SAMPLES, 0)
    one.round()
    assert (len(set(receiver.taken)), outbox.sent["p"], receiver.requests) == (2 * MAX_SAMPLES + 10, 1, 3)


@pytest.mark.parametrize("answer", [Answer(503, "busy"), Answer(0, "Connection refused"), Answer(429, "slow down")])
def test_what_cannot_be_taken_now_is_tried_again_ever_more_rarely(answer: Answer) -> None:
    receiver = Receiver(answers=[answer] * 9)
    one, outbox = made(receiver, Queue([1, 2]))
    pauses = [one.round() for _ in range(9)]
    assert pauses == [FIRST_BACKOFF_S * 2**n for n in range(7)] + [LAST_BACKOFF_S] * 2
    assert answer.words in one.statistics.trouble
    assert (one.statistics.failures, outbox.sent["p"], receiver.taken) == (9, 0, [])
    emptied(one)
    assert (one.statistics.trouble, len(receiver.taken), outbox.sent["p"]) == ("", 2, 2)
    receiver.answers = [answer]
    queue_again, _ = made(receiver, Queue([1]))
    assert queue_again.round() == FIRST_BACKOFF_S


def test_a_receiver_says_how_long_to_wait() -> None:
    one, _ = made(Receiver(answers=[Answer(429, "", 30.0)]), Queue([1]))
    assert one.round() == 30.0


def test_of_a_request_only_what_is_refused_is_dropped() -> None:
    bad = {("e3", (NOW + SECOND) // 1_000_000 + 10_000), ("e901", (NOW + SECOND) // 1_000_000 + 10_000)}
    receiver = Receiver(refuses=lambda *sample: sample in bad)
    one, outbox = made(receiver, Queue([1], nics=1000))
    emptied(one)
    assert (len(receiver.taken), len(set(receiver.taken))) == (998, 998)
    assert (one.statistics.sent, one.statistics.refused, outbox.sent["p"]) == (998, 2, 1)
    assert "out of bounds" in one.statistics.last_refusal


def test_what_is_refused_altogether_costs_a_limited_number_of_requests() -> None:
    receiver = Receiver(refuses=lambda *_: True)
    one, outbox = made(receiver, Queue([1], nics=MAX_SAMPLES))
    emptied(one)
    assert (one.statistics.refused, outbox.sent["p"]) == (MAX_SAMPLES, 1)
    assert receiver.requests <= 2 * sender.HALVINGS + 1


def test_a_receiver_that_lets_nobody_in_does_not_empty_the_queue() -> None:
    receiver = Receiver(answers=[Answer(401, "who are you?")])
    one, outbox = made(receiver, Queue(range(1, 200)))
    assert one.round() == LAST_BACKOFF_S
    assert (one.statistics.refused, outbox.sent["p"]) == (sender.ENTRIES, sender.ENTRIES)
    assert "401: who are you?" in one.statistics.trouble
    emptied(one)
    assert len(receiver.taken) == 199 - sender.ENTRIES


def test_what_was_measured_too_long_ago_is_not_sent() -> None:
    receiver = Receiver()
    one, outbox = made(receiver, Queue([1, 2]), now_ns=NOW + (86_400 + 2) * SECOND)
    emptied(one)
    assert (one.statistics.expired, one.statistics.sent, outbox.sent["p"]) == (1, 1, 2)
    late, outbox = made(receiver, Queue([1, 2]), now_ns=NOW + 100_000 * SECOND)
    emptied(late)
    assert (late.statistics.expired, outbox.sent["p"], late.statistics.last_success_ns) == (2, 2, None)


def test_what_overflowed_meanwhile_is_not_asked_for_again() -> None:
    receiver = Receiver(answers=[Answer(503)])
    one, outbox = made(receiver, Queue([1, 60]))
    one.round()
    outbox.sent["p"] = 50  # analysis let the oldest go
    emptied(one)
    assert outbox.sent["p"] == 60


def test_nothing_is_sent_before_it_is_known_what_was() -> None:
    receiver = Receiver()
    one, outbox = made(receiver, Queue([1]))
    outbox.taken_up = False
    assert one.round() == sender.IDLE_S
    assert receiver.requests == 0
