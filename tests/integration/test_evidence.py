"""From an incident to the bytes that were signed: the records it stands on are in the log, and hold what it says."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from agent.result import NicBatch
from bandwitness.chain import check_signature, read_header, read_payload
from bandwitness.identity import short_id
from bandwitness.v1 import record_pb2 as pb
from collector.analysis.runner import Runner
from collector.decode import Definitions, decode
from collector.export import evidence_api
from collector.export.evidence_api import Evidence
from collector.export.http import Sources, create_app
from collector.export.views import parse_time
from collector.log import Log
from collector.model import LogEntry
from collector.store.reader import Reader
from collector.store.writer import Store
from tests.fakes.analysis_bench import lossy
from tests.fakes.batches import START_NS
from tests.fakes.measured_log import SECOND, MeasuredLog, Packet, echo_path, fleet_config, replied
from tests.integration.test_analysis_replay import write

CONFIG = fleet_config()


class Asked:
    """A collector's log, store and API over a log made by hand."""

    def __init__(self, directory: Path) -> None:
        self.log = Log.open(directory / "log")
        self.store = Store(directory / "store.sqlite")
        runner = Runner(self.log, self.store, CONFIG, lambda: 0)
        while runner.step():
            pass
        self.reader = Reader(directory / "store.sqlite", CONFIG)
        evidence = Evidence(self.log, self.reader)
        sources = Sources(self.reader, lambda **_: "", dict, lambda row: row, evidence=evidence)
        self.client = TestClient(create_app(sources))

    def close(self) -> None:
        self.reader.close()
        self.store.close()
        self.log.close()

    def incident(self, rule: str) -> dict[str, Any]:
        found: dict[str, Any]
        (found,) = (
            item
            for item in self.client.get("/api/v1/incidents", params={"from": "2025-12-31T00:00:00Z"}).json()["items"]
            if item["rule"] == rule
        )
        return found

    def evidence(self, incident: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.get(f"/api/v1/incidents/{incident['incident_id']}/evidence")
        assert answer.status_code == 200
        return answer.json()  # type: ignore[no-any-return]

    def entry(self, source: dict[str, Any]) -> LogEntry:
        """The log's entry, with its signature and payload checked by the key in its header."""
        (entry,) = self.log.read(source["position"] - 1, 1)
        assert (entry.agent_id, entry.chain_id.hex(), entry.seq) == (
            *(source["agent_id"], source["chain_id"], source["seq"]),
        )
        header = read_header(entry.header)
        check_signature(entry.header, header, entry.signature)
        assert len(read_payload(header, entry.payload)) > source["record_index"]
        return entry


@pytest.fixture
async def asked(tmp_path: Path, made: Callable[[], MeasuredLog]) -> AsyncIterator[Asked]:
    (tmp_path / "log").mkdir()
    await write(tmp_path / "log", made())
    found = Asked(tmp_path)
    yield found
    found.close()


def with_loss() -> MeasuredLog:
    log = MeasuredLog(CONFIG, fate=lossy(5, source="r1n1", since_s=60, until_s=100))
    log.signed = True
    log.pass_time(240)
    return log


def with_delay() -> MeasuredLog:
    def slower(source: str, destination: str, sequence: int, time_ns: int) -> Packet:
        outcome, delay = replied(source, destination, sequence, time_ns)
        hit = {source, destination} == {"r1n1", "r2n1"} and 700 <= (time_ns - START_NS) / SECOND < 800
        return outcome, (delay or 0) * (20 if hit else 1)

    log = MeasuredLog(CONFIG, fate=slower)
    log.signed = True
    log.pass_time(1000)
    return log


def packets(entry: LogEntry, source: dict[str, Any], children: list[str]) -> Iterator[tuple[int, int, int]]:
    """Time, outcome and delay of the paths' packets in one record."""
    (samples,) = (
        found
        for found in decode(entry, Definitions()).round_trips
        if found.source.record_index == source["record_index"]
    )
    ids = np.repeat(np.asarray(samples.path_ids), np.asarray(samples.sample_counts)).tolist()
    columns = (samples.send_times_ns, samples.outcomes, samples.round_trip_delays_ns)
    for path_id, *packet in zip(ids, *(np.asarray(column).tolist() for column in columns), strict=True):
        if f"{path_id:016x}" in children:
            yield tuple(packet)


@pytest.mark.parametrize("made", [with_loss], ids=["loss"])
def test_each_lost_packet_of_an_incident_is_in_a_signed_record_that_it_names(asked: Asked) -> None:
    incident = asked.incident("loss")
    found = asked.evidence(incident)
    assert found["complete"]
    assert len(found["items"]) == min(found["records"], evidence_api.SHOWN)
    lost = 0
    for item in found["items"]:
        entry = asked.entry(item["source"])
        from_ns, to_ns = (parse_time(name, found[name]) for name in ("from_time", "to_time"))
        mine = [
            packet for packet in packets(entry, item["source"], incident["children"]) if from_ns <= packet[0] < to_ns
        ]
        assert item["lost"] == sum(outcome == pb.PACKET_OUTCOME_LOST for _, outcome, _ in mine) > 0
        assert item["sent"] == len(mine)
        lost += item["lost"]
    if found["records"] <= evidence_api.SHOWN:
        windows = [asked.reader.round_trips(int(child, 16), 0, 1 << 62) for child in incident["children"]]
        assert lost == sum(window.lost for rows in windows for window in rows)
    newest = [parse_time("to", item["to_time"]) for item in found["items"]]
    assert newest == sorted(newest, reverse=True)


@pytest.mark.parametrize("made", [with_delay], ids=["delay"])
def test_slow_round_trips_of_an_incident_are_in_signed_records(asked: Asked) -> None:
    incident = asked.incident("delay")
    found = asked.evidence(incident)
    assert found["records"] >= 50
    for item in found["items"]:
        entry = asked.entry(item["source"])
        delays = [delay for _, _, delay in packets(entry, item["source"], incident["children"])]
        assert item["delay_max_ns"] == max(delays) > incident["values"]["baseline_p99_ns"]
        assert item["slow"] == sum(delay > incident["values"]["baseline_p99_ns"] for delay in delays)


@pytest.mark.parametrize("made", [with_loss], ids=["loss"])
def test_what_one_answer_reads_is_limited_and_said(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asked.evidence(asked.incident("loss"))
    monkeypatch.setattr(evidence_api, "MOST_ENTRIES", 300)
    monkeypatch.setattr(evidence_api, "SHOWN", 3)
    part = asked.evidence(asked.incident("loss"))
    assert not part["complete"]
    assert 0 < part["records"] < whole["records"]
    assert len(part["items"]) == 3


def with_path_mtu() -> MeasuredLog:
    log = MeasuredLog(CONFIG)
    log.signed = True
    for size in (9000, 1500):
        log.path_mtu("r1n1", "r2n1", size)
        log.pass_time(10)
    return log


@pytest.mark.parametrize("made", [with_path_mtu], ids=["path_mtu"])
def test_the_check_behind_a_path_mtu_incident_is_in_the_log(asked: Asked) -> None:
    (item,) = asked.evidence(asked.incident("path_mtu"))["items"]
    (check,) = decode(asked.entry(item["source"]), Definitions()).path_mtus
    assert check.source.record_index == item["source"]["record_index"]
    assert (check.path_id, check.mtu_bytes) == (short_id(echo_path("r1n1", "r2n1")), 1500)


def with_slow_link() -> MeasuredLog:
    log = MeasuredLog(CONFIG)
    log.signed = True
    for second in range(0, 300, 2):
        log.pass_time(2)
        speed = 100_000_000_000 if second < 200 else 25_000_000_000
        base_ns = log.now_ns - 2 * SECOND
        read = [[second * 1000, second * 1000 + 1000]]
        log.nic("r1n1", NicBatch("eth0", ["rx_bytes"], base_ns, 0, SECOND, [0, SECOND], read, speed))
    return log


@pytest.mark.parametrize("made", [with_slow_link], ids=["link"])
def test_a_link_that_fell_is_in_the_counters_that_were_signed(asked: Asked) -> None:
    found = asked.evidence(asked.incident("link_degraded"))
    assert found["records"]
    (newest, *_) = found["items"]
    entry = asked.entry(newest["source"])
    assert entry.batch_class == pb.BATCH_CLASS_TELEMETRY
    definitions = Definitions(asked.reader.counter_sets())
    assert [nic.speed_bps for nic in decode(entry, definitions).nics] == [25_000_000_000]


@pytest.mark.parametrize("made", [lambda: MeasuredLog(CONFIG)], ids=["nothing"])
def test_an_incident_that_is_not_there_is_said(asked: Asked) -> None:
    answer = asked.client.get(f"/api/v1/incidents/{'0' * 64}/evidence")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"
