"""Remote write into a real Prometheus and a real VictoriaMetrics, compared sample by sample with the store: through an
outage of the receiver, an agent's backlog, a restart in the middle and samples that are refused.

Analysis reads a log made by hand, so the truth is known; senders, store and receivers are the real ones.
"""

import contextlib
import json
import math
import subprocess
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.probe.process import die_with_parent
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.plan_pb2 import WINDOW_KIND_PEAK
from collector.config import RemoteWrite
from collector.export.remote_write import Sender, request
from collector.export.remote_write.post import Post
from collector.export.remote_write.samples import FAMILIES, Naming, Sample, samples_of
from collector.export.remote_write.sender import IDLE_S
from collector.store.outbox_reader import HOLD_NS, OutboxReader
from tests.fakes.analysis_bench import Bench, lossy
from tests.fakes.batches import START_NS
from tests.fakes.dashboards import free_port
from tests.fakes.measured_log import SECOND, MeasuredLog, fleet_config, planned_slot
from tests.fakes.traffic import FleetTraffic

SAMPLE = Path(__file__).parents[2] / "deploy/prometheus/prometheus.yaml"
WITHIN_S = 30.0
Points = Counter[tuple[str, int, float]]  # series, milliseconds, value


def until(what: str, look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not look():
        assert time.monotonic() < deadline, f"not within {WITHIN_S} s: {what}"
        time.sleep(0.05)  # between two looks at the condition


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def answers(url: str) -> bool:
    try:
        return bool(fetch(url))
    except OSError:
        return False


@dataclass
class Receiver:
    """A server that can be stopped and started again on its data."""

    kind: str
    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.address}/api/v1/write"

    def start(self) -> None:
        here = f"127.0.0.1:{self.port}"
        if self.kind == "prometheus":
            sample = yaml.safe_load(SAMPLE.read_text())
            configuration = {"storage": sample["storage"]}  # the window for what comes out of order
            (self.directory / "prometheus.yml").write_text(json.dumps(configuration))
            command = [
                "prometheus", f"--config.file={self.directory}/prometheus.yml", f"--web.listen-address={here}",
                f"--storage.tsdb.path={self.directory}/data", "--web.enable-remote-write-receiver",
            ]  # fmt: skip
        else:
            command = [
                "victoria-metrics", f"-storageDataPath={self.directory}/data", f"-httpListenAddr={here}",
                "-retentionPeriod=100y", "-dedup.minScrapeInterval=1ms", "-search.latencyOffset=0s",
            ]  # fmt: skip
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen([*die_with_parent(), *command], stdout=log, stderr=log)
        ready = "/-/ready" if self.kind == "prometheus" else "/health"
        until(f"{self.kind} is ready", lambda: answers(self.address + ready))

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)
            self.process = None

    def points(self) -> Points:
        """Every raw sample of ours that it holds."""
        return self._of_prometheus() if self.kind == "prometheus" else self._of_victoria_metrics()

    def _of_prometheus(self) -> Points:
        words = urllib.parse.urlencode({
            "query": '{origin="event_time"}[1h]', "time": str(START_NS // SECOND + 1800)
        })  # fmt: skip
        data = json.loads(fetch(f"{self.address}/api/v1/query?{words}"))["data"]
        return Counter(
            (series_name(row["metric"]), round(at * 1000), float(value))
            for row in data["result"]
            for at, value in row["values"]
        )

    def _of_victoria_metrics(self) -> Points:
        fetch(f"{self.address}/internal/force_flush")
        words = urllib.parse.urlencode({"match[]": '{origin="event_time"}', "start": "0", "reduce_mem_usage": "0"})
        rows = [json.loads(line) for line in fetch(f"{self.address}/api/v1/export?{words}").splitlines()]
        return Counter(
            (series_name(row["metric"]), at, float(value))
            for row in rows
            for at, value in zip(row["timestamps"], row["values"], strict=True)
        )


def series_name(labels: dict[str, str]) -> str:
    return json.dumps(labels, sort_keys=True)


@pytest.fixture(params=["prometheus", "victoria-metrics"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Receiver]:
    directory = tmp_path / "receiver"
    directory.mkdir()
    one = Receiver(request.param, directory, free_port())
    one.start()
    yield one
    one.stop()


class Collector:
    """Analysis with an outbox, and its sender, which a restart makes anew."""

    def __init__(self, directory: Path, receiver: Receiver) -> None:
        config = fleet_config()
        self.log = MeasuredLog(config, fate=lossy(20, since_s=0))
        self.log.traffic = FleetTraffic(START_NS)
        self.bench = Bench(directory / "store.sqlite", self.log, config)
        self.remote = RemoteWrite(name="it", url=receiver.url, labels={"team": '网络 "a"\\\n'})
        self.reader: OutboxReader | None = None
        self.restart()

    def restart(self) -> None:
        """As after SIGKILL: what is not in the store is not known."""
        if self.reader is not None:
            self.reader.close()
        outbox = self.bench.remote_write({"it": 100_000})
        self.reader = OutboxReader(self.bench.store.path)
        self.later_ns = HOLD_NS + SECOND
        self.sender = Sender(
            self.remote, "c1", outbox, self.reader, post=Post(self.remote),
            wall_ns=lambda: self.log.now_ns + self.later_ns,
        )  # fmt: skip
        self.bench.runner.step()

    def measure(self, seconds: float) -> None:
        for _ in range(round(seconds / 10)):
            self.log.pass_time(10)
            self.bench.drain()

    def send(self, requests: int = 1_000) -> None:
        """Rounds of the sender and steps of analysis in turn, until there is nothing to send."""
        for _ in range(requests):
            if self.sender.round() == IDLE_S:
                break
            self.bench.runner.step()

    def truth(self) -> Points:
        """What should be there in the end: all rows, as another reader of the same outbox sees them."""
        config = self.bench.config
        witness = Bench(self.bench.store.path.with_name("witness.sqlite"), self.log, config)
        witness.remote_write({"it": 100_000})
        witness.drain()
        reader = OutboxReader(witness.store.path)
        naming = Naming("c1", self.remote.labels)
        entries = reader.next(0, self.log.now_ns + 2 * HOLD_NS, 1 << 30)
        found: Points = Counter(
            (series_name(dict(sample.labels)), sample.time_ms, sample.value)
            for entry in entries
            for sample in samples_of(entry, reader.path, naming)
        )
        reader.close()
        witness.close()
        return found

    def close(self) -> None:
        assert self.reader is not None
        self.reader.close()
        self.bench.close()


@pytest.fixture
def collector(tmp_path: Path, receiver: Receiver) -> Iterator[Collector]:
    made = Collector(tmp_path, receiver)
    yield made
    made.close()


def same(found: Points, expected: Points) -> None:
    """Value by value, to the last bit but those that decimal text costs."""

    def rounded(points: Points) -> Points:
        result: Points = Counter()
        for (name, at, value), count in points.items():
            result[name, at, float(f"{value:.12g}")] += count
        return result

    found, expected = rounded(found), rounded(expected)
    assert set(found.values()) == {1}, "something is there twice"
    assert found - expected == Counter(), "something that was not measured"
    assert expected - found == Counter(), "something is missing"


@pytest.mark.timeout(180)
def test_nothing_is_lost_or_doubled_through_outage_backlog_and_restart(
    receiver: Receiver, collector: Collector
) -> None:
    one = collector
    slot = planned_slot(1, "r1n1", "r2n1", START_NS + 20 * SECOND, WINDOW_KIND_PEAK)
    one.log.plan([slot])
    one.measure(60)
    one.log.run(slot, pb.RUN_ROLE_CLIENT)
    one.log.run(slot, pb.RUN_ROLE_SERVER)
    one.send(2)

    one.log.cut_off("r1n2")  # an agent measures on without us …
    receiver.stop()  # … and nobody takes what the others bring
    one.measure(120)
    one.send(5)
    assert one.sender.statistics.failures > 0
    assert "no answer" in one.sender.statistics.trouble
    one.restart()
    one.measure(60)
    one.send(2)

    receiver.start()
    one.send(3)
    one.restart()  # in the middle of catching up: the newest request is not on record here, and is sent again
    one.send()
    one.log.reconnect("r1n2")  # older than what the others had: out of order for the receiver as a whole
    one.measure(60)
    one.send()

    expected = one.truth()
    names = {json.loads(name)["__name__"].removeprefix("bandwitness_") for name, _, _ in expected}
    assert names == set(FAMILIES) - {"nic_pause_ratio"}
    assert len(expected) > 1_500
    same(receiver.points(), expected)
    assert one.sender.statistics.refused == one.sender.statistics.expired == 0
    assert one.sender.statistics.trouble == ""


@pytest.mark.timeout(120)
def test_labels_arrive_as_they_are(receiver: Receiver, collector: Collector) -> None:
    collector.measure(30)
    collector.send()
    labels = [json.loads(name) for name, _, _ in receiver.points()]
    assert labels
    assert {one["team"] for one in labels} == {'网络 "a"\\\n'}
    assert {(one["origin"], one["collector"]) for one in labels} == {("event_time", "c1")}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("receiver", ["prometheus"], indirect=True)
def test_of_what_prometheus_refuses_only_that_is_dropped(receiver: Receiver, collector: Collector) -> None:
    """A sample older than the out-of-order window, among good ones, and another value for one that is there."""
    one = collector
    one.measure(60)
    one.send()
    expected = receiver.points()
    post, now_ms = Post(one.remote), START_NS // 1_000_000 + 60_000

    def sample(number: int, at_ms: int, value: float = 1.0) -> Sample:
        labels = Naming("c1", {})("nic_receive_peak_bytes_per_second", "x", f"e{number}")
        return Sample(labels, at_ms, value)

    good = [sample(number, now_ms) for number in range(20)]
    old = sample(0, now_ms - 30 * 24 * 3600 * 1000)
    one.sender._pieces = [[*good[:10], old, *good[10:]]]
    one.send()
    assert one.sender.statistics.refused == 1
    assert "too old sample" in one.sender.statistics.last_refusal  # as a 500, from Prometheus 2.42
    added: Points = Counter((series_name(dict(s.labels)), s.time_ms, s.value) for s in good)
    same(receiver.points(), expected + added)
    assert post(request.body(good)).status == 204  # the same again changes nothing
    assert post(request.body([sample(0, now_ms, 2.0)])).status == 400
    same(receiver.points(), expected + added)
    assert not any(math.isnan(value) for _, _, value in expected)


def test_a_receiver_behind_a_token_and_one_that_is_not_there(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        seen: list[str | None] = []
        port = stack.enter_context(asking(seen))
        token = tmp_path / "token"
        token.write_text("secret\n")
        remote = RemoteWrite(name="it", url=f"http://127.0.0.1:{port}/w", bearer_token_file=str(token))
        assert Post(remote)(b"x").status == 403
        assert Post(remote)(b"x").words == "not you: Bearer secret"
    gone = Post(remote)(b"x")
    assert (gone.status, "refused" in gone.words) == (0, True)
    token.unlink()
    assert "No such file" in Post(remote)(b"x").words


@contextlib.contextmanager
def asking(seen: list[str | None]) -> Iterator[int]:
    """A server that lets nobody in, and says what it was shown."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers["Authorization"])
            self.rfile.read(int(self.headers["Content-Length"]))
            body = f"not you:\n\x1b {self.headers['Authorization']}".encode()
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()
