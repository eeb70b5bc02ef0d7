"""STAMP with real packets: over loopback in this process, and between namespaces with the program's own commands."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from struct import unpack
from typing import Any

import pytest

from agent.clock import SystemClock
from agent.probe.stamp_packet import build_request, encode_error, parse_reply, request_tail, residence_ns, to_ntp
from agent.probe.stamp_paths import StampPath
from agent.probe.stamp_reflector import StampReflector
from agent.probe.stamp_reflector_socket import KernelReflectorSocket
from agent.probe.stamp_sender import StampSession
from agent.probe.stamp_socket import KernelSenderSocket, PortSource
from agent.result import RoundTripBatch
from bandwitness.v1.record_pb2 import PACKET_OUTCOME_REPLIED
from tests.fakes.network import MILLISECOND, SECOND, samples

NEAR, FAR = f"bwstamp-near-{os.getpid()}", f"bwstamp-far-{os.getpid()}"
FAR_V4, FAR_SECOND, FAR_V6 = "10.80.0.2", "10.80.0.3", "fd80::2"
REPOSITORY = Path(__file__).parents[2]
AGENT = [sys.executable, "-m", "agent"]


def run(*words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, check=check, capture_output=True, text=True, cwd=REPOSITORY, timeout=50)


@pytest.fixture(scope="module")
def namespaces() -> Iterator[None]:
    """Two hosts on one cable, the far one with two addresses."""
    try:
        for name in (NEAR, FAR):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", NEAR, "link", "add", "bwstamp0", "type", "veth", "peer", "name", "bwstamp1", "netns", FAR)
        for name, device, number in ((NEAR, "bwstamp0", 1), (FAR, "bwstamp1", 2)):
            run("ip", "-n", name, "address", "add", f"10.80.0.{number}/24", "dev", device)
            run("ip", "-n", name, "address", "add", f"fd80::{number}/64", "dev", device, "nodad")
            run("ip", "-n", name, "link", "set", device, "up")
        run("ip", "-n", FAR, "address", "add", f"{FAR_SECOND}/24", "dev", "bwstamp1")
        yield
    finally:
        for name in (NEAR, FAR):
            run("ip", "netns", "delete", name, check=False)


@contextmanager
def reflecting(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """``probe reflect`` in the far namespace, once it answers."""
    child = subprocess.Popen(
        ["ip", "netns", "exec", FAR, *AGENT, "probe", "reflect", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline().startswith("answering")
        yield child
    finally:
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        child.communicate(timeout=20)


def ended(child: "subprocess.Popen[str]") -> str:
    """Interrupts it; what it says at its end."""
    child.send_signal(signal.SIGINT)
    assert child.stdout is not None
    last = child.stdout.read()
    assert child.wait(20) == 0
    return last


def probe(*arguments: str, code: int = 0) -> Any:
    """A probe from the near namespace; what it prints as JSON."""
    done = run("ip", "netns", "exec", NEAR, *AGENT, "probe", *arguments, "--json", check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def nft(namespace: str, *rules: str) -> None:
    chain = "add table inet t; add chain inet t in { type filter hook input priority 0; }; flush chain inet t in"
    run("ip", "netns", "exec", namespace, "nft", "; ".join((chain, *(f"add rule inet t in {rule}" for rule in rules))))


# ---------------------------------------------------------------- over loopback


async def measure(
    paths: list[StampPath], reflector: StampReflector, *, wanted: int
) -> tuple[StampSession, list[RoundTripBatch]]:
    """Probes over loopback until so many packets are resolved."""
    clock = SystemClock()
    session = StampSession(clock, clock_error=lambda: 7_000)
    session.configure(paths)
    batches: list[RoundTripBatch] = []
    tasks = [asyncio.create_task(part.run()) for part in (reflector, session)]
    try:
        async with asyncio.timeout(30):
            while len(list(samples(batches))) < wanted:
                await asyncio.sleep(0.02)
                batches += session.drain(clock.monotonic_ns())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return session, batches


@pytest.mark.parametrize(("address", "ip_version"), [("127.0.0.1", 4), ("::1", 6)])
async def test_sender_and_reflector_over_loopback(address: str, ip_version: int) -> None:
    opened = KernelReflectorSocket("", 0, ip_version=ip_version)
    reflector = StampReflector(SystemClock(), [opened], clock_error=lambda: 5_000)
    reflector.allow([address])
    usual = StampPath(0, address, ip_version, 0, interval_ns=50 * MILLISECOND, waiting_ns=SECOND, stateful=True)
    usual = replace(usual, destination_port=opened.port, turns=10)
    paths = [replace(usual, path_id=1), replace(usual, path_id=2, payload_bytes=1200, dscp=10)]
    session, batches = await measure(paths, reflector, wanted=20)
    assert Counter(outcome for _, _, outcome in samples(batches))[PACKET_OUTCOME_REPLIED] >= 18  # some may be skipped
    delays = [delay for batch in batches for delay in batch.round_trip_delays_ns]
    assert len(delays) >= 18
    assert all(0 < delay < SECOND for delay in delays)
    one_way = session.drain_delays()
    assert {delay.path_id for delay in one_way} == {1, 2}
    assert all(
        delay.forward_ns > 0 and delay.reverse_ns > 0 for delay in one_way
    )  # one clock: no error but the stamps'
    assert reflector.without_stamp == 0


@pytest.mark.parametrize(("address", "ip_version"), [("127.0.0.1", 4), ("::1", 6)])
def test_a_reply_comes_in_the_class_and_from_the_address_it_was_asked_at(address: str, ip_version: int) -> None:
    opened = KernelReflectorSocket("", 0, ip_version=ip_version)
    reflector = StampReflector(SystemClock(), [opened])
    reflector.allow([address])
    with socket.socket(socket.AF_INET if ip_version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        if ip_version == 4:
            sender.setsockopt(socket.SOL_IP, 13, 1)  # IP_RECVTOS
            sender.setsockopt(socket.SOL_IP, socket.IP_TOS, (46 << 2) | 1)
        else:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, (46 << 2) | 1)
        sender.settimeout(10)
        sender.connect((address, opened.port))  # the kernel drops what comes from elsewhere
        request = build_request(0, to_ntp(1), encode_error(None), 7, request_tail(44))
        sender.send(request)
        select.select([opened.fileno()], [], [], 10)
        reflector.read(opened)
        data, ancillary, _, _ = sender.recvmsg(100, 256)
    opened.close()
    reply = parse_reply(data)
    assert reply.sender_timestamp == to_ntp(1)
    assert residence_ns(reply) is not None
    ((_, _, mark),) = ancillary
    assert (mark[0] if ip_version == 4 else unpack("@i", mark)[0]) == 46 << 2  # the ECN bits are the network's


def test_a_port_in_use_is_an_error_and_nothing_stays_open() -> None:
    first = KernelSenderSocket(PortSource(4, "127.0.0.1", "", 0, 0))
    with pytest.raises(OSError, match="in use"):
        KernelSenderSocket(PortSource(4, "127.0.0.1", "", 0, first.port))
    with pytest.raises(OSError, match="in use"):
        KernelReflectorSocket("127.0.0.1", first.port, ip_version=4)
    first.close()


# ---------------------------------------------------------------- between namespaces


@pytest.mark.usefixtures("namespaces")
def test_forward_and_reverse_loss_by_port() -> None:
    """One packet of 3 from one port and one of 5 to another: the figures are the injected ones."""
    nft(FAR, "udp sport 61001 numgen inc mod 3 0 drop")
    nft(NEAR, "udp sport 8620 udp dport 61002 numgen inc mod 5 1 drop")
    try:
        with reflecting("--allow", "10.80.0.1"):
            found = probe("stamp", FAR_V4, "--ports", "4", "--count", "40", "--interval", "50ms")
    finally:
        nft(FAR)
        nft(NEAR)
    ports = {port["source_port"]: port for port in found["ports"]}
    assert sorted(ports) == [61_000, 61_001, 61_002, 61_003]
    for clean in (61_000, 61_003):
        assert ports[clean]["lost"] == 0
    there, back = ports[61_001], ports[61_002]
    assert there["lost"] == -(-there["sent"] // 3)
    assert back["lost"] == (back["sent"] + 3) // 5
    # What is lost at the very end may have been lost either way.
    assert there["forward_lost"] + there["undirected_lost"] == there["lost"] <= there["forward_lost"] + 1
    assert back["reverse_lost"] + back["undirected_lost"] == back["lost"] <= back["reverse_lost"] + 1
    assert found["arrival_ttls"] == [64]


@pytest.mark.usefixtures("namespaces")
def test_ipv6_and_the_second_address_of_a_reflector_that_listens_on_all() -> None:
    with reflecting("--allow", "10.80.0.1", "fd80::1") as reflector:
        for address in (FAR_SECOND, FAR_V6):
            found = probe("stamp", address, "--ports", "2", "--count", "5", "--interval", "50ms", "--payload", "300")
            assert found["all"]["lost"] == 0
            assert found["all"]["replied"] >= 8
        said = ended(reflector)
    assert "refused" not in said


@pytest.mark.usefixtures("namespaces")
def test_a_stranger_gets_nothing_and_is_counted() -> None:
    with reflecting("--allow", "10.80.0.99") as reflector:
        found = probe("stamp", FAR_V4, "--ports", "2", "--count", "3", "--interval", "50ms", code=1)
        said = ended(reflector)
    assert found["all"]["replied"] == 0
    assert f"{found['all']['sent']} refused: not an allowed sender" in said
    assert said.startswith("0 answered")


@pytest.mark.usefixtures("namespaces")
def test_where_no_reflector_runs_the_far_host_says_so() -> None:
    run("ip", "netns", "exec", FAR, "sysctl", "-qw", "net.ipv4.icmp_ratelimit=0")
    found = probe("stamp", FAR_V4, "--ports", "2", "--count", "4", "--interval", "100ms", code=1)
    assert found["all"]["outcomes"].get("unreachable", 0) >= 1
    assert found["all"]["forward_lost"] == found["all"]["reverse_lost"] == 0


@pytest.mark.usefixtures("namespaces")
def test_ping_of_several_addresses_and_a_name_that_is_none() -> None:
    found = probe("ping", FAR_V4, FAR_V6, "nosuch.invalid", "--count", "3", "--interval", "100ms", code=1)
    paths = {path["address"]: path for path in found["paths"]}
    assert sorted(paths) == [FAR_V4, FAR_V6]
    for path in paths.values():
        assert path["replied"] >= 2
        assert 0 < path["delay_min_ns"] <= path["delay_p50_ns"] <= path["delay_p99_ns"] <= path["delay_max_ns"] < SECOND
    assert list(found["unresolved"]) == ["nosuch.invalid"]


@pytest.mark.usefixtures("namespaces")
def test_ping_without_rights_says_which_and_with_the_group_range_needs_none() -> None:
    without = ["ip", "netns", "exec", NEAR, "setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw", *AGENT]
    arguments = ["probe", "ping", FAR_V4, "--count", "2", "--interval", "100ms"]
    run("ip", "netns", "exec", NEAR, "sysctl", "-qw", "net.ipv4.ping_group_range=1 0")
    done = run(*without, *arguments, check=False)
    assert done.returncode == 1
    assert "CAP_NET_RAW" in done.stderr
    assert "ping_group_range" in done.stderr
    assert "Traceback" not in done.stderr
    run("ip", "netns", "exec", NEAR, "sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647")
    done = run(*without, *arguments, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 sent, 2 replied, 0 lost" in done.stdout


@pytest.mark.usefixtures("namespaces")
def test_an_interrupted_probe_ends_with_its_summary() -> None:
    words = ["ip", "netns", "exec", NEAR, *AGENT, "probe", "ping", FAR_V4, "--count", "0", "--interval", "50ms"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as child:
        assert child.stdout is not None
        for _ in range(3):
            assert FAR_V4 in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read()
        assert child.wait(20) == 0
    assert " sent, " in rest
    assert "min/p50/p99/max" in rest
