"""Checkpoints in a lab: every node of a rack writes its part through the shared uplink, over real TCP."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.lab.configuration import mark_socket
from tests.lab.lab import Lab, wait_for
from tests.lab.topology import DATA_NIC

PORT = 6000

SINK = """
import selectors, socket, sys
server = socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=256)
chooser = selectors.DefaultSelector()
chooser.register(server, selectors.EVENT_READ)
while True:
    for key, _ in chooser.select():
        if key.fileobj is server:
            chooser.register(server.accept()[0], selectors.EVENT_READ)
        elif not key.fileobj.recv(1 << 18):
            chooser.unregister(key.fileobj)
            key.fileobj.close()
"""

# Writes so many bytes to an address over several connections, at most so fast, and prints when it began and ended.
WRITER = """
import json, os, socket, subprocess, sys, threading, time
address, port, total, streams, rate, socket_path, job, step = sys.argv[1:]
total, streams, rate = int(total), int(streams), float(rate)
sys.path[:0] = ["proto/mark"]
def mark(phase):
    if socket_path:
        words = [sys.executable, "-m", "agent", "mark", phase, "--kind", "checkpoint", "--job", job, "--step", step]
        subprocess.run([*words, "--socket", socket_path], check=True)
conns = [socket.create_connection((address, int(port))) for _ in range(streams)]
for conn in conns:
    if rate:  # by the kernel: blocks of all streams at once would fill the queue that is to stay empty
        conn.setsockopt(socket.SOL_SOCKET, 47, int(rate / streams / 8))  # SO_MAX_PACING_RATE
mark("begin")
def write(conn, count):
    sent, block = 0, bytes(65536)
    while sent < count:
        part = min(len(block), count - sent)
        conn.sendall(block[:part])
        sent += part
    conn.shutdown(socket.SHUT_WR)
    conn.recv(1)
start = time.time()
threads = [threading.Thread(target=write, args=(conn, total // streams)) for conn in conns]
for thread in threads: thread.start()
for thread in threads: thread.join()
end = time.time()
mark("end")
print(json.dumps({"start": start, "end": end}))
"""


@dataclass(frozen=True, slots=True)
class Written:
    """What one node wrote: payload, when, and what its NIC counted meanwhile."""

    node: str
    bytes: int
    start_s: float
    end_s: float
    counted: int


class Checkpoint:
    """Writers that run; ``join`` waits for them."""

    def __init__(self, lab: Lab, writers: dict[str, "subprocess.Popen[bytes]"], size: int) -> None:
        self._lab, self._writers, self._size = lab, writers, size
        self._before = {node: transmitted(lab, node) for node in writers}

    @property
    def running(self) -> bool:
        return any(process.poll() is None for process in self._writers.values())

    def join(self, within: float) -> list[Written]:
        wait_for("the end of the checkpoint", lambda: not self.running, within=within)
        done = []
        for node, process in self._writers.items():
            assert process.stdout is not None
            text = process.stdout.read().decode()
            assert process.returncode == 0, f"{node}: {text}"
            told = json.loads(text.splitlines()[-1])
            counted = transmitted(self._lab, node) - self._before[node]
            done.append(Written(node, self._size, told["start"], told["end"], counted))
        return done


def transmitted(lab: Lab, node: str) -> int:
    """Octets the data NIC has sent."""
    link = json.loads(lab.run(node, ["ip", "-j", "-s", "link", "show", "dev", DATA_NIC]))[0]
    return int(link["stats64"]["tx"]["bytes"])


@contextmanager
def sinks(lab: Lab, nodes: Sequence[str], port: int = PORT) -> Iterator[None]:
    """Somebody on each of these nodes who takes whatever is written."""
    running = [lab.start(node, [sys.executable, "-c", SINK, str(port)]) for node in nodes]

    def listen() -> bool:
        return all(lab.run(node, ["ss", "-Hltn", f"sport = :{port}"]).strip() for node in nodes)

    wait_for("the sinks", listen, within=10)
    try:
        yield
    finally:
        for process in running:
            lab.stop(process)


def checkpoint(
    lab: Lab,
    pairs: Sequence[tuple[str, str]],
    size: int,
    *,
    streams: int = 4,
    rate_bps: float = 0,
    job: str = "",
    step: int = 0,
) -> Checkpoint:
    """Starts ``size`` bytes from the first to the second node of each pair; with ``job`` each writer marks it."""
    writers = {}
    for source, destination in pairs:
        words = [sys.executable, "-c", WRITER, lab.topology.host(destination).address, str(PORT), str(size)]
        words += [str(streams), str(rate_bps), mark_socket(source) if job else "", job, str(step)]
        writers[source] = lab.start(source, words, output=subprocess.PIPE)
    return Checkpoint(lab, writers, size)
