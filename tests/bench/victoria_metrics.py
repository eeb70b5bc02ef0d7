"""What one core of VictoriaMetrics takes of the same samples by remote write, for the bench ``ingest`` to print beside.

Not like for like: VictoriaMetrics checks no signature and no chain, answers before anything is on disk, and judges
nothing; its samples are floats of named series, and it goes on to compress and index them. One request holds what one
batch holds (NICs × counters × ticks). CPU is that of its process, all threads, from the first request until all is
flushed to its storage.
"""

import contextlib
import http.client
import os
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import cramjam

from agent.probe.process import die_with_parent
from collector.export.remote_write.request import HEADERS
from collector.export.remote_write.write_pb2 import Label, Sample, TimeSeries, WriteRequest

START_WITHIN_S = 30.0


def samples_per_core_s(
    directory: Path, *, agents: int, batches: int, nics: int, counters: Sequence[str], ticks: int
) -> int:
    """Samples a second and core; every one of them is accounted for, or it raises."""
    total = agents * batches * nics * len(counters) * ticks
    with _running(directory) as (pid, port):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        before_s = _cpu_s(pid)
        names = [_names(f"n{agent:04d}", nics, counters) for agent in range(agents)]
        begun_ms = int(time.time() * 1000) - batches * ticks * 1000
        for batch in range(batches):
            points = [
                TimeSeries(
                    samples=[
                        Sample(timestamp=begun_ms + at * 1000, value=float(_count(counter, batch, at % ticks)))
                        for at in range(batch * ticks, (batch + 1) * ticks)
                    ]
                ).SerializeToString()
                for counter in range(len(counters))
            ] * nics
            for of_agent in names:
                client.request("POST", "/api/v1/write", _body(of_agent, points), HEADERS)
                answer = client.getresponse()
                answer.read()
                assert answer.status == 204, answer.status
        _get(port, "/internal/force_flush")
        cpu_s = _cpu_s(pid) - before_s
        taken = _figure(_get(port, "/metrics"), 'vm_rows_inserted_total{type="promremotewrite"}')
        client.close()
    assert taken == total, (taken, total)
    return round(total / cpu_s)


def _names(node: str, nics: int, counters: Sequence[str]) -> list[bytes]:
    """Serialised labels of each series; protobuf adds up, so these and the samples are one TimeSeries."""
    return [
        TimeSeries(
            labels=[
                Label(name="__name__", value=f"bandwitness_nic_{counter}"),
                Label(name="nic", value=f"ens{nic}f0"),
                Label(name="node", value=node),
            ]
        ).SerializeToString()
        for nic in range(nics)
        for counter in counters
    ]


def _body(names: Sequence[bytes], points: Sequence[bytes]) -> bytes:
    request = WriteRequest()
    for name, of_series in zip(names, points, strict=True):
        request.timeseries.add().MergeFromString(name + of_series)
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def _count(counter: int, batch: int, tick: int) -> int:
    """As the batches of the bench have it: busy, slow and idle counters."""
    step = (900_000_000, 3, 0)[counter % 3]
    return counter * 10**9 + (batch * 10 + tick) * step + (step and tick * 104_729 % (step // 20 + 1))


@contextlib.contextmanager
def _running(directory: Path) -> Iterator[tuple[int, int]]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
    command = [
        *die_with_parent(), "victoria-metrics", f"-storageDataPath={directory}/victoria-metrics",
        f"-httpListenAddr=127.0.0.1:{port}", "-retentionPeriod=1y",
    ]  # fmt: skip
    with (directory / "victoria-metrics.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_WITHIN_S
        while True:
            try:
                _get(port, "/health")
                break
            except OSError:
                assert process.poll() is None, (directory / "victoria-metrics.log").read_text()
                assert time.monotonic() < deadline, "VictoriaMetrics does not start"
                time.sleep(0.1)  # between two looks
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(30)


def _get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return str(answer.read().decode())


def _figure(text: str, name: str) -> int:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return int(float(found[1])) if found else 0


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
