"""``rtt``: how far reported round-trip delays are from what a packet capture on the same host shows.

Two namespaces and one cable (veth); the far end has one address a target. tcpdump on the near end, in nanoseconds, is
the truth; each prober pings every target once a second, one after the other through the same cable. The kernel's
receive stamp is the one that tcpdump sees: this checks the software path of the sender, no NIC and no real network. CPU
is that of the whole process, start included, and has the far end's kernel work in it (a veth's reply is made inside the
sender's call), for all probers alike.

bandwitness and fping ping 1,000 targets. ping is a process a target, so it has fewer. smokeping_prober has 1,000 too,
without privileges: with them each of its raw sockets gets the replies to all others, and both cores are full. It tells
no single round trip, only a histogram: of each target the mean (sum by count) is held against the mean of the same
target's first so many replies in the capture. Means hide what single packets are off by, so that is to its advantage.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.pcap import round_trips

ROOT = Path(__file__).parents[2]
NEAR, FAR = f"bwrtt-near-{os.getpid()}", f"bwrtt-far-{os.getpid()}"
CABLE = "bwrtt0"
TARGETS = 1000
PING_TARGETS = 50  # one process each
SECOND_NS = 1_000_000_000
NOTE = (
    "software path only: stamps of a capture on the same host, two namespaces, no NIC; "
    "smokeping_prober: means of targets, all others: single packets"
)

Reported = dict[int, list[float | None]]  # far address -> ns, in the order of the requests
Truth = dict[int, list[int | None]]  # the same, by the capture
# Name -> program, and how many rounds are enough.
PEERS = {"fping": ("fping", 30), "ping": ("ping", 10), "smokeping_prober": ("prometheus-smokeping-prober", 30)}
SCRAPE = (
    "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9374/metrics', timeout=10).read().decode())"
)


class BenchError(Exception):
    """It could not be held."""


def addresses(count: int) -> list[IPv4Address]:
    """The far end's."""
    return [IPv4Address("10.98.0.1") + 256 * (number // 250) + number % 250 for number in range(count)]


def run(quick: bool) -> dict[str, Any]:
    """All probers; within 60 s when quick."""
    rounds = 8 if quick else 30
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bwrtt-")))
        stack.enter_context(network())
        figures: dict[str, Any] = {"note": NOTE, "targets": TARGETS, "rounds": rounds}
        figures["bandwitness"] = measure(directory, "bandwitness", [sys.executable, "-m", "tests.bench.rtt"], rounds)
        for name, (program, most_rounds) in PEERS.items():
            if shutil.which(program) is None:
                raise BenchError(f"{program} is missing: run deploy/setup.sh --tests")
            figures[name] = measure(directory, name, [program], min(rounds, most_rounds))
    return figures


@contextmanager
def network() -> Iterator[None]:
    """Near and far end, removed afterwards."""
    try:
        for name in (NEAR, FAR):
            ip("netns", "add", name)
        ip("-n", NEAR, "link", "add", CABLE, "type", "veth", "peer", "name", "far0", "netns", FAR)
        for name, device, address in ((NEAR, CABLE, "10.97.0.1/24"), (FAR, "far0", "10.97.0.2/24")):
            ip("-n", name, "address", "add", address, "dev", device)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", device, "up")
        ip("-n", NEAR, "route", "add", "10.98.0.0/16", "via", "10.97.0.2")
        lines = "".join(f"address add {address}/32 dev lo\n" for address in addresses(TARGETS))
        subprocess.run(["ip", "-n", FAR, "-batch", "-"], input=lines, text=True, check=True, capture_output=True)
        for setting in ("net.ipv4.icmp_ratelimit=0", "net.ipv4.icmp_msgs_per_sec=1000000"):
            subprocess.run(["ip", "netns", "exec", FAR, "sysctl", "-qw", setting], check=False, capture_output=True)
        groups = f"net.ipv4.ping_group_range={os.getegid()} {os.getegid()}"
        subprocess.run(["ip", "netns", "exec", NEAR, "sysctl", "-qw", groups], check=True, capture_output=True)
        yield
    finally:
        for name in (NEAR, FAR):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def measure(directory: Path, name: str, program: Sequence[str], rounds: int) -> dict[str, Any]:
    """One prober beside a capture: its errors, CPU and memory."""
    print(f"{name}: {rounds} rounds", file=sys.stderr)
    capture = directory / f"{name}.pcap"
    with capturing(capture):
        reported, cpu_s, rss_bytes = PROBERS[name](program, rounds)
    truth = round_trips(capture.read_bytes())
    sent = sum(len(trips) for trips in truth.values())
    if name == "smokeping_prober":
        errors, wanted = errors_of_means(reported, truth), len(truth)
    else:
        errors, wanted = errors_of_each(reported, truth), sent
    if len(errors) < 0.9 * wanted or not errors:
        raise BenchError(f"{name}: {len(errors)} delays to compare, expected about {wanted}")
    sizes = sorted(abs(error) for error in errors)
    trips = sorted(trip for values in truth.values() for trip in values if trip is not None)
    return {
        "median_error_us": round(median(sizes), 2),
        "p99_error_us": round(sizes[int(len(sizes) * 0.99)], 2),
        "signed_median_error_us": round(median(errors), 2),
        "cpu_s_per_10k": round(cpu_s / sent * 10_000, 3),
        "rss_mb": round(rss_bytes / 1e6, 1),
        "packets": sent,
        "compared": len(errors),
        "true_median_us": round(trips[len(trips) // 2] / 1000, 1),
    }


def errors_of_each(reported: Reported, truth: Truth) -> list[float]:
    """Reported − real of each packet in µs, sorted."""
    return sorted(
        (seen - real) / 1000
        for address, values in reported.items()
        for seen, real in zip(values, truth.get(address, ()), strict=False)
        if seen is not None and real is not None
    )


def errors_of_means(reported: Reported, truth: Truth) -> list[float]:
    """Reported − real mean of each target in µs, sorted. ``reported`` has sum and count of each."""
    errors: list[float] = []
    for address, (total, count) in reported.items():
        trips = [trip for trip in truth.get(address, ()) if trip is not None]
        if total is not None and count and len(trips) >= count:
            errors.append((total / count - sum(trips[: int(count)]) / count) / 1000)
    return sorted(errors)


@contextmanager
def capturing(capture: Path) -> Iterator[None]:
    """tcpdump on the near end, from before the first packet to after the last."""
    command = ["ip", "netns", "exec", NEAR, "tcpdump", "-i", CABLE, "-j", "host", "--time-stamp-precision=nano"]
    command += ["-B", "65536", "-s", "80", "-Z", "root", "-U", "-w", str(capture), "icmp"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "listening" in line:
                break
        else:
            raise BenchError("tcpdump did not start")
        try:
            yield
            time.sleep(1)  # the kernel hands over what it has gathered
        finally:
            process.terminate()
            rest = process.stderr.read()
    if not re.search(r"\b0 packets dropped by kernel", rest):
        raise BenchError(f"tcpdump: {rest.strip()}")


def spawn(command: Sequence[str]) -> tuple[str, str, float, int]:
    """Runs it at the near end. Returns what it printed, its CPU seconds and largest resident size in bytes."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(["ip", "netns", "exec", NEAR, *command], stdout=out, stderr=err, cwd=ROOT, text=True)
        cpu_s, rss_bytes = finish([process])
        out.seek(0)
        err.seek(0)
        return out.read(), err.read(), cpu_s, rss_bytes


def finish(processes: Sequence[subprocess.Popen[str]]) -> tuple[float, int]:
    """Waits for all. CPU seconds, and the sum of their largest resident sizes in bytes.

    ru_maxrss will not do: it holds what this process had when it forked.
    """
    left = {process.pid: process for process in processes}
    largest = dict.fromkeys(left, 0)
    cpu_s = 0.0
    while left:
        for pid in list(left):
            largest[pid] = max(largest[pid], largest_resident_bytes(pid))
            ended, code, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                left.pop(pid).returncode = os.waitstatus_to_exitcode(code)
                cpu_s += usage.ru_utime + usage.ru_stime
        time.sleep(0.1)  # between two looks at who has ended
    return cpu_s, sum(largest.values())


def largest_resident_bytes(pid: int) -> int:
    """So far; 0 once it has ended."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) * 1024 if match else 0


def probe_bandwitness(program: Sequence[str], rounds: int) -> tuple[Reported, float, int]:
    out, err, cpu_s, rss = spawn([*program, "--targets", str(TARGETS), "--rounds", str(rounds)])
    if not out:
        raise BenchError(f"prober: {err.strip()[-2000:]}")
    return {int(address): values for address, values in json.loads(out).items()}, cpu_s, rss


def probe_fping(program: Sequence[str], rounds: int) -> tuple[Reported, float, int]:
    names = [str(address) for address in addresses(TARGETS)]
    # -i is the gap between any two packets: the targets spread over the second.
    command = [*program, "-q", "-C", str(rounds), "-p", "1000", "-i", f"{max(1, 900 // TARGETS)}", *names]
    _, err, cpu_s, rss = spawn(command)
    found: Reported = {}
    for line in err.splitlines():
        name, colon, values = line.partition(" : ")
        with suppress(ValueError):
            address = int(IPv4Address(name.strip()))
            found[address] = [None if value == "-" else float(value) * 1e6 for value in values.split() if colon]
    return found, cpu_s, rss


def probe_ping(program: Sequence[str], rounds: int) -> tuple[Reported, float, int]:
    """iputils: a process a target, so fewer targets; memory is that of all together."""
    found: Reported = {}
    processes = []
    for address in addresses(PING_TARGETS):
        command = ["ip", "netns", "exec", NEAR, *program, "-n", "-c", str(rounds), "-i", "1", str(address)]
        processes.append((address, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
        time.sleep(1 / PING_TARGETS)  # starts are spread over the interval, as its user would
    cpu_s, rss = finish([process for _, process in processes])  # what they print fits in their pipes
    for address, process in processes:
        assert process.stdout is not None
        text = process.stdout.read()
        process.stdout.close()
        values: list[float | None] = [None] * rounds
        for sequence, milliseconds in re.findall(r"icmp_seq=(\d+) .*time=([\d.]+) ms", text):
            values[int(sequence) - 1] = float(milliseconds) * 1e6
        found[int(address)] = values
    return found, cpu_s, rss


def probe_smokeping_prober(program: Sequence[str], rounds: int) -> tuple[Reported, float, int]:
    """Unprivileged datagram sockets; sum in ns, and count, of each target's histogram."""
    hosts = [str(address) for address in addresses(TARGETS)]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file, tempfile.TemporaryFile("w+") as said:
        group = {"hosts": hosts, "interval": "1s", "network": "ip4", "protocol": "udp", "size": 56}
        json.dump({"targets": [group]}, file)  # JSON is YAML
        file.flush()
        words = [*program, f"--config.file={file.name}", "--web.listen-address=127.0.0.1:9374", "--buckets=1"]
        process = subprocess.Popen(["ip", "netns", "exec", NEAR, *words], stdout=said, stderr=said, text=True)
        try:
            # It starts its targets one by one over a second or more, and listens when the last one has started.
            deadline = time.monotonic() + 20
            while not (text := scrape()):
                if process.poll() is not None or time.monotonic() > deadline:
                    said.seek(0)
                    raise BenchError(f"smokeping_prober: {said.read().strip()[-2000:]}")
                time.sleep(0.2)  # between two looks
            time.sleep(rounds - 1)  # real packets take real time
            text = scrape()
            rss = largest_resident_bytes(process.pid)
        finally:
            process.terminate()
            cpu_s, _ = finish([process])
    found: Reported = {}
    pattern = r'^smokeping_response_duration_seconds_(sum|count)\{host="[^"]*",ip="([^"]*)"\} (\S+)'
    for what, name, value in re.findall(pattern, text, re.M):
        pair = found.setdefault(int(IPv4Address(name)), [None, None])
        pair[what == "count"] = float(value) * (1 if what == "count" else 1e9)
    return found, cpu_s, rss


def scrape() -> str:
    """What smokeping_prober serves at the near end; empty while it does not."""
    command = ["ip", "netns", "exec", NEAR, sys.executable, "-c", SCRAPE]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


PROBERS = {
    "bandwitness": probe_bandwitness,
    "fping": probe_fping,
    "ping": probe_ping,
    "smokeping_prober": probe_smokeping_prober,
}


# ---------------------------------------------------------------- our prober, in a process of its own


async def probe(targets: int, rounds: int) -> Reported:
    """Delays of our own session, drained every 2 s as the agent does."""
    # Imported here: the measuring process is not to carry the prober.
    from agent.clock import SystemClock
    from agent.probe.icmp import EchoSession
    from bandwitness.v1.plan_pb2 import RoundTripTarget
    from bandwitness.v1.record_pb2 import PACKET_OUTCOME_REPLIED, PROTOCOL_ICMP_ECHO, Path

    clock = SystemClock()
    session = EchoSession(clock)
    plan = []
    for address in addresses(targets):
        target = RoundTripTarget(protocol=PROTOCOL_ICMP_ECHO, payload_bytes=56)
        target.interval_ns = target.waiting_time_ns = SECOND_NS
        target.target.name = target.target.address = str(address)
        plan.append(target)
    session.configure(plan)
    names: dict[int, int] = {}
    found: Reported = {}

    def drain() -> None:
        batches = session.drain(clock.monotonic_ns())
        for path_id, definition in session.definitions.items():
            if path_id not in names:
                names[path_id] = int(IPv4Address(Path.FromString(definition).target.address))
        for batch in batches:
            faults = {position for position, _ in batch.delay_faults}
            delays = iter(batch.round_trip_delays_ns)
            position = 0
            for path_id, count in zip(batch.path_ids, batch.sample_counts, strict=True):
                for at in range(position, position + count):
                    usable = batch.outcomes[at] == PACKET_OUTCOME_REPLIED and at not in faults
                    found.setdefault(names[path_id], []).append(next(delays) if usable else None)
                position += count

    task = asyncio.create_task(session.run())
    end = clock.monotonic_ns() + rounds * SECOND_NS
    while clock.monotonic_ns() < end:
        await clock.sleep_until(clock.monotonic_ns() + 2 * SECOND_NS)
        drain()
    session.configure([])
    await clock.sleep_until(clock.monotonic_ns() + 1_600_000_000)
    drain()
    task.cancel()
    await asyncio.wait([task])
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="our prober alone; python -m tests.bench rtt measures it")
    parser.add_argument("--targets", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(probe(options.targets, options.rounds))))
