"""Traces and path MTU against the kernel: five hosts in a row, of which three route.

The link in the middle takes 1400 bytes. Sockets are opened inside a namespace by a thread that visits it (setns), so
the probers themselves run in the test.
"""

import asyncio
import json
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from random import Random

import pytest

from agent.app import adhoc_way
from agent.app.adhoc_way import Wish
from agent.clock import SystemClock
from agent.probe.binding import socket_address
from agent.probe.icmp_socket import DATAGRAM, RAW, Source, hold_receive_stamping
from agent.probe.path_mtu import MtuCheck
from agent.probe.route_sweep import ROUNDS, Sweep
from agent.probe.route_trace import trace
from agent.probe.sounding import KernelSoundingSocket, Sounding, SoundingSocket, To
from agent.probe.sounding_packet import SoundingPackets
from agent.probe.stamp_paths import StampPath
from agent.probe.stamp_reflector import StampReflector
from agent.probe.stamp_reflector_socket import KernelReflectorSocket
from agent.probe.stamp_sender import StampSession
from agent.probe.stamp_socket import KernelSenderSocket, PortSource
from agent.probe.stamp_way import StampWay
from bandwitness.v1.record_pb2 import (
    HOP_OUTCOME_REPLIED,
    MTU_OUTCOME_LOCAL,
    MTU_OUTCOME_REPLIED,
    MTU_OUTCOME_SILENT,
    MTU_OUTCOME_TOO_BIG,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_SKIPPED,
)
from tests.fakes.netns import inside, ip
from tests.fakes.network import samples

SECOND = 1_000_000_000
HOSTS = [f"bwway-{name}-{os.getpid()}" for name in ("near", "r1", "r2", "r3", "far")]
NEAR, R2, FAR = HOSTS[0], HOSTS[2], HOSTS[4]
MTUS = (9000, 9000, 1400, 9000)  # of the four links
FAR_OF = {4: "10.79.4.2", 6: "fd79:4::2"}
ROUTERS = {4: ["10.79.1.2", "10.79.2.2", "10.79.3.2"], 6: ["fd79:1::2", "fd79:2::2", "fd79:3::2"]}


def inside_run(namespace: str, *words: str) -> None:
    subprocess.run(["ip", "netns", "exec", namespace, *words], check=True, capture_output=True)


def link(number: int, mtu: int) -> None:
    """Between one host and the next; number counts from 1."""
    ends = ((HOSTS[number - 1], f"bwway{number}a", 1), (HOSTS[number], f"bwway{number}b", 2))
    ip("-n", ends[0][0], "link", "add", ends[0][1], "type", "veth", "peer", "name", ends[1][1], "netns", ends[1][0])
    for host, device, last in ends:
        ip("-n", host, "link", "set", device, "mtu", str(mtu), "up")
        ip("-n", host, "address", "add", f"10.79.{number}.{last}/24", "dev", device)
        ip("-n", host, "address", "add", f"fd79:{number}::{last}/64", "dev", device, "nodad")


@pytest.fixture(scope="module")
def chain() -> Iterator[None]:
    """The hosts and their routes, each the shortest way."""
    try:
        for host in HOSTS:
            ip("netns", "add", host)
            ip("-n", host, "link", "set", "lo", "up")
        for number, mtu in enumerate(MTUS, 1):
            link(number, mtu)
        for at, host in enumerate(HOSTS):
            if 0 < at < 4:
                inside_run(host, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
            for number in range(1, 5):
                if number > at + 1:
                    ip("-n", host, "route", "add", f"10.79.{number}.0/24", "via", f"10.79.{at + 1}.2")
                    ip("-n", host, "route", "add", f"fd79:{number}::/64", "via", f"fd79:{at + 1}::2")
                elif number < at:
                    ip("-n", host, "route", "add", f"10.79.{number}.0/24", "via", f"10.79.{at}.1")
                    ip("-n", host, "route", "add", f"fd79:{number}::/64", "via", f"fd79:{at}::1")
        group = os.getgid()
        inside_run(NEAR, "sysctl", "-qw", f"net.ipv4.ping_group_range={group} {group}")
        for version in (4, 6):
            await_answer(version)
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "delete", host], check=False, capture_output=True)


def open_near(method: int, source: Source, identifier: int, dont_fragment: bool) -> SoundingSocket:
    with inside(NEAR):
        return KernelSoundingSocket(method, source, identifier, dont_fragment)


def await_answer(version: int) -> None:
    """Until the whole way carries: carriers and neighbour discovery take a moment."""
    with inside(NEAR):
        opened = KernelSoundingSocket(RAW, Source(version, "", "", 0), 1, False)
    packets = SoundingPackets(ip_version=version, identifier=1, token=bytes(8))
    try:
        for turn in range(100):
            with suppress(OSError):
                opened.send_limited(packets.request(turn, 56), socket_address(FAR_OF[version], 0, version), 0)
            select.select([], [], [], 0.1)  # send stamps in the error queue would wake it at once
            if opened.read_replies(16):
                return
            opened.read_errors(16)
        raise AssertionError(f"{FAR_OF[version]} does not answer")
    finally:
        opened.close()


def sounding(clock: SystemClock, version: int, method: int, *, dont_fragment: bool) -> Sounding:
    to = To(FAR_OF[version], Source(version, "", "", 0))
    return Sounding(
        clock, to, method, opener=open_near, random=Random(1), payload_bytes=56, dont_fragment=dont_fragment
    )


async def check_mtu(version: int, method: int, *, waiting_ns: int = SECOND) -> MtuCheck:
    clock = SystemClock()
    opened = sounding(clock, version, method, dont_fragment=True)
    try:
        check = MtuCheck(clock, opened, ip_version=version, sizes=(1472, 8972), small=56, waiting_ns=waiting_ns)
        await check.run()
        return check
    finally:
        opened.close()


BOTH = pytest.mark.parametrize(("version", "method"), [(4, RAW), (4, DATAGRAM), (6, RAW), (6, DATAGRAM)])


@BOTH
async def test_every_router_on_the_way_is_named(chain: None, version: int, method: int) -> None:
    clock = SystemClock()
    way = sounding(clock, version, method, dont_fragment=False)
    sweep = Sweep(SECOND)
    with hold_receive_stamping():
        try:
            await trace(clock, way, sweep)
        finally:
            way.close()
    hops = sweep.hops()
    assert sweep.reached
    assert [hop.address for hop in hops[::ROUNDS]] == [*ROUTERS[version], FAR_OF[version]]
    assert {hop.outcome for hop in hops if hop.hop_limit == 4} == {HOP_OUTCOME_REPLIED}
    assert all(hop.round_trip_delay_ns and hop.round_trip_delay_ns < SECOND for hop in hops)


@BOTH
async def test_a_smaller_link_behind_two_routers_is_found_and_its_router_named(
    chain: None, version: int, method: int
) -> None:
    search = (await check_mtu(version, method)).search
    assert (search.mtu_bytes, search.black_hole) == (1400, False)
    assert search.trials[0].outcome == MTU_OUTCOME_TOO_BIG
    assert (search.trials[0].reporter, search.trials[0].next_hop_mtu_bytes) == (ROUTERS[version][1], 1400)
    assert search.trials[-1].outcome == MTU_OUTCOME_REPLIED


async def test_our_own_interface_is_told_from_the_network(chain: None) -> None:
    ip("-n", NEAR, "link", "set", "bwway1a", "mtu", "1380")
    try:
        check = await check_mtu(4, RAW)
    finally:
        ip("-n", NEAR, "link", "set", "bwway1a", "mtu", str(MTUS[0]))
    assert (check.search.mtu_bytes, check.interface_mtu_bytes, check.search.black_hole) == (1380, 1380, False)
    assert check.search.trials[0].outcome == MTU_OUTCOME_LOCAL


@pytest.fixture
def silence(chain: None) -> Iterator[None]:
    """No router says that a packet was too big."""
    rules = (
        "add table inet bwway; add chain inet bwway say { type filter hook output priority 0; };"
        "add rule inet bwway say icmp type destination-unreachable drop;"
        "add rule inet bwway say icmpv6 type packet-too-big drop"
    )
    inside_run(R2, "nft", rules)
    for version in ("-4", "-6"):
        inside_run(NEAR, "ip", version, "route", "flush", "cache")
    try:
        yield
    finally:
        inside_run(R2, "nft", "delete table inet bwway")


async def test_case_11_a_real_black_hole(silence: None) -> None:
    """The middle link takes 1400 bytes and its router keeps quiet."""
    search = (await check_mtu(4, RAW, waiting_ns=SECOND // 5)).search
    assert (search.mtu_bytes, search.black_hole) == (1400, True)
    assert {trial.outcome for trial in search.trials} == {MTU_OUTCOME_SILENT, MTU_OUTCOME_REPLIED}


@pytest.mark.long
@pytest.mark.parametrize(("version", "method"), [(4, DATAGRAM), (6, RAW), (6, DATAGRAM)])
async def test_case_11_a_real_black_hole_in_every_mode(silence: None, version: int, method: int) -> None:
    search = (await check_mtu(version, method, waiting_ns=SECOND // 5)).search
    assert (search.mtu_bytes, search.black_hole) == (1400, True)


async def test_a_stamp_path_is_traced_over_its_own_ports_beside_its_session(chain: None) -> None:
    """The session's packets are not disturbed: none of them is lost, unreachable or taken for a stranger's."""
    clock = SystemClock()

    def open_port(source: PortSource) -> KernelSenderSocket:
        with inside(NEAR):
            return KernelSenderSocket(source)

    with inside(FAR):
        reflecting = KernelReflectorSocket("", 8620, ip_version=4)
    reflector = StampReflector(clock, [reflecting])
    reflector.allow(["10.79.1.1"])
    session = StampSession(clock, opener=open_port, random=Random(1))
    interval_ns = SECOND // 20
    session.configure([StampPath(7, FAR_OF[4], 4, 61_000, interval_ns=interval_ns, waiting_ns=SECOND, stateful=True)])
    batches = []
    tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(session.run())]
    try:
        while session.session_of(7) is None:
            await clock.sleep_until(clock.monotonic_ns() + interval_ns)
        found = session.session_of(7)
        assert found is not None
        way = StampWay(clock, found, session.read)
        sweep = Sweep(SECOND)
        await trace(clock, way, sweep)
        way.close()
        session.configure([])
        await clock.sleep_until(clock.monotonic_ns() + 3 * SECOND // 2)
        batches = session.drain(clock.monotonic_ns())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert [hop.address for hop in sweep.hops()[::ROUNDS]] == [*ROUTERS[4], FAR_OF[4]]
    assert sweep.reached
    assert {outcome for _, _, outcome in samples(batches)} <= {PACKET_OUTCOME_REPLIED, PACKET_OUTCOME_SKIPPED}
    assert not session.drain_losses()
    assert "stranger" not in session.state().detail


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_ad_hoc_commands_over_loopback(host: str) -> None:
    wish = Wish(host, SECOND, 0, 0, "", as_json=True)
    said = StringIO()
    assert await adhoc_way.trace(wish, said, max_hops=5, payload_bytes=56) == 0
    found = json.loads(said.getvalue())
    assert (found["reached"], {hop["address"] for hop in found["hops"]}) == (True, {host})
    said = StringIO()
    assert await adhoc_way.mtu(replace(wish, as_json=False), said, sizes=[1472, 8972]) == 0
    assert "path MTU 9000 bytes or more" in said.getvalue()


async def test_ad_hoc_commands_say_what_they_cannot() -> None:
    wish = Wish("none.invalid", SECOND, 0, 0, "", as_json=True)
    said = StringIO()
    assert await adhoc_way.trace(wish, said, max_hops=5, payload_bytes=56) == 1
    assert "none.invalid" in json.loads(said.getvalue())["error"]
