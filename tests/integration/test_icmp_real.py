"""Real packets: over loopback and through a pair of namespaces that the test makes.

Sockets are opened inside a namespace by a thread that visits it (setns), so the prober itself runs in the test.
"""

import asyncio
import errno
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path as FilePath
from random import Random
from struct import pack
from time import monotonic

import pytest

from agent.clock import SystemClock
from agent.probe import stamps
from agent.probe.binding import socket_address
from agent.probe.echo_packet import (
    EchoTemplate,
    checksum,
    message_offset,
    ones_complement_sum,
    parse_quote,
    parse_reply,
    pattern,
)
from agent.probe.icmp import EchoSession
from agent.probe.icmp_socket import (
    DATAGRAM,
    RAW,
    Arrived,
    EchoSocket,
    KernelEchoSocket,
    Rights,
    Source,
    hold_receive_stamping,
    warm_up,
)
from agent.probe.tcp_connect import TcpConnectSession
from agent.result import RoundTripBatch
from bandwitness.v1.plan_pb2 import RoundTripTarget
from bandwitness.v1.record_pb2 import (
    PACKET_OUTCOME_LOST,
    PACKET_OUTCOME_REPLIED,
    PACKET_OUTCOME_SEND_FAILED,
    PACKET_OUTCOME_SKIPPED,
    PACKET_OUTCOME_UNREACHABLE,
    PROTOCOL_TCP_CONNECT,
)
from tests.fakes.clock import FakeClock
from tests.fakes.netns import inside, ip
from tests.fakes.network import MILLISECOND, SECOND, FakeNetwork, Host, outcomes_by_address, round_trip_target

NEAR, FAR = f"bwicmp-near-{os.getpid()}", f"bwicmp-far-{os.getpid()}"
FAR_V4, FAR_SECOND, FAR_V6 = "10.77.0.2", "10.77.0.3", "fd77::2"
UNROUTED, REFUSED = "192.0.2.99", "10.78.0.1"
REPOSITORY = FilePath(__file__).parents[2]


def sysctl(namespace: str, *settings: str) -> None:
    subprocess.run(["ip", "netns", "exec", namespace, "sysctl", "-qw", *settings], check=True, capture_output=True)


@pytest.fixture(scope="module")
def namespaces() -> Iterator[None]:
    """Two hosts on one cable; the far one answers for an unreachable network behind it."""
    try:
        for name in (NEAR, FAR):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", NEAR, "link", "add", "bwicmp0", "type", "veth", "peer", "name", "bwicmp1", "netns", FAR)
        for name, device, number in ((NEAR, "bwicmp0", 1), (FAR, "bwicmp1", 2)):
            ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", device)
            ip("-n", name, "address", "add", f"fd77::{number}/64", "dev", device, "nodad")
            ip("-n", name, "link", "set", device, "up")
        ip("-n", FAR, "address", "add", f"{FAR_SECOND}/24", "dev", "bwicmp1")
        ip("-n", NEAR, "route", "add", "10.78.0.0/24", "via", FAR_V4)
        ip("-n", NEAR, "route", "add", "fd78::/64", "via", FAR_V6)
        # Not an "unreachable" route: the kernel answers for these once a second, whatever icmp_ratelimit says.
        ip("-n", FAR, "route", "add", "10.78.0.0/24", "dev", "lo")
        ip("-n", FAR, "route", "add", "fd78::/64", "dev", "lo")
        nft = "; ".join(
            (
                "add table inet behind",
                "add chain inet behind forward { type filter hook forward priority 0 ; }",
                "add rule inet behind forward ip daddr 10.78.0.0/24 reject with icmp type host-unreachable",
                "add rule inet behind forward ip6 daddr fd78::/64 reject with icmpv6 type addr-unreachable",
            )
        )
        subprocess.run(["ip", "netns", "exec", FAR, "nft", nft], check=True, capture_output=True)
        sysctl(FAR, "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        sysctl(FAR, "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0")
        sysctl(NEAR, f"net.ipv4.ping_group_range={os.getgid()} {os.getgid()}")  # no more is mapped in a user namespace
        for ip_version, address in ((4, FAR_V4), (6, FAR_V6)):
            await_answer(ip_version, address)
        yield
    finally:
        for name in (NEAR, FAR):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def await_answer(ip_version: int, address: str) -> None:
    """Until the cable carries: carrier, neighbour discovery and its timers take a moment."""
    opened = open_near(RAW, Source(ip_version, "", "", 0), 1)
    template = EchoTemplate(ip_version=ip_version, identifier=1, token=bytes(8), slot=0, fill=b"")
    try:
        for turn in range(100):
            with suppress(OSError):
                opened.send(template.request(turn, turn), socket_address(address, 0, ip_version))
            if select.select([opened.fileno()], [], [], 0.1)[0] and opened.read_replies(16):
                return
            opened.read_errors(16)
        raise AssertionError(f"{address} does not answer")
    finally:
        opened.close()


def open_near(method: int, source: Source, identifier: int) -> EchoSocket:
    with inside(NEAR):
        return KernelEchoSocket(method, source, identifier)


@asynccontextmanager
async def running(session: EchoSession | TcpConnectSession) -> AsyncIterator[None]:
    task = asyncio.create_task(session.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def collect(
    session: EchoSession | TcpConnectSession, clock: SystemClock, enough: Callable[[dict[str, list[int]]], bool]
) -> tuple[dict[str, list[int]], list[RoundTripBatch]]:
    """Outcomes by address until there is enough, at most 20 s. Turns that a starved machine skipped are left out:
    what is tested here happens to packets that had their turn."""
    found: dict[str, list[int]] = {}
    batches: list[RoundTripBatch] = []
    end = monotonic() + 20
    while not enough(found) and monotonic() < end:
        await asyncio.sleep(0.02)
        batches += session.drain(clock.monotonic_ns())
        found = {
            address: [outcome for outcome in outcomes if outcome != PACKET_OUTCOME_SKIPPED]
            for address, outcomes in outcomes_by_address(batches, session.definitions).items()
        }
    assert enough(found), found
    return found, batches


def at_least(count: int, *addresses: str) -> Callable[[dict[str, list[int]]], bool]:
    return lambda found: all(len(found.get(address, ())) >= count for address in addresses)


def targets(*addresses: str, source: str = "", nic: str = "") -> Sequence[RoundTripTarget]:
    return [
        round_trip_target(address, source=source, nic=nic, interval_ns=50 * MILLISECOND, waiting_ns=500 * MILLISECOND)
        for address in addresses
    ]


@pytest.mark.parametrize("method", [RAW, DATAGRAM])
@pytest.mark.usefixtures("namespaces")
async def test_echo_between_hosts_is_stamped_by_the_kernel_at_both_ends(method: int) -> None:
    clock = SystemClock()
    session = EchoSession(clock, opener=open_near, rights=Rights(method, method))
    session.configure(
        [*targets(FAR_V4, source="10.77.0.1", nic="bwicmp0"), *targets(FAR_V6, source="fd77::1", nic="bwicmp0")]
    )
    async with running(session):
        found, batches = await collect(session, clock, at_least(20, FAR_V4, FAR_V6))
    assert {outcome for outcomes in found.values() for outcome in outcomes} == {PACKET_OUTCOME_REPLIED}
    delays = [delay for batch in batches for delay in batch.round_trip_delays_ns]
    faults = [fault for batch in batches for fault in batch.delay_faults]
    assert faults == []
    assert sorted(delays)[len(delays) // 2] < MILLISECOND  # one veth pair; a busy machine may stretch some
    assert {batch.method for batch in batches} == {method}
    assert [mark for batch in batches for mark in batch.marks] == []


@pytest.mark.parametrize("method", [RAW, DATAGRAM])
@pytest.mark.usefixtures("namespaces")
async def test_case_15_icmp_errors_are_unreachable(method: int) -> None:
    clock = SystemClock()
    session = EchoSession(clock, opener=open_near, rights=Rights(method, method))
    session.configure(targets(REFUSED, "fd78::1", FAR_V4))
    async with running(session):
        found, batches = await collect(session, clock, at_least(10, REFUSED, "fd78::1", FAR_V4))
    assert set(found[REFUSED]) == {PACKET_OUTCOME_UNREACHABLE}
    assert set(found["fd78::1"]) == {PACKET_OUTCOME_UNREACHABLE}
    # The pending errors of others never cost this path a packet or a stamp.
    assert set(found[FAR_V4]) == {PACKET_OUTCOME_REPLIED}
    assert [fault for batch in batches for fault in batch.delay_faults] == []


@pytest.mark.usefixtures("namespaces")
async def test_no_route_is_our_own_failure_and_the_stamps_stay_right() -> None:
    clock = SystemClock()
    session = EchoSession(clock, opener=open_near, rights=Rights(RAW, RAW))
    session.configure(targets(UNROUTED, FAR_V4))
    async with running(session):
        found, batches = await collect(session, clock, at_least(20, UNROUTED, FAR_V4))
    assert set(found[UNROUTED]) == {PACKET_OUTCOME_SEND_FAILED}
    assert set(found[FAR_V4]) == {PACKET_OUTCOME_REPLIED}
    delays = [delay for batch in batches for delay in batch.round_trip_delays_ns]
    # A stamp taken for another packet would be an interval off.
    assert sorted(delays)[len(delays) // 2] < MILLISECOND
    assert [fault for batch in batches for fault in batch.delay_faults] == []


@pytest.mark.usefixtures("namespaces")
async def test_case_17_two_probers_share_one_icmp_id() -> None:
    """Same seed, so same identifiers: one host alive, one dead, each prober sees its own packets only."""
    clock = SystemClock()
    sessions = [EchoSession(clock, opener=open_near, rights=Rights(RAW, RAW), random=Random(7)) for _ in range(2)]
    # The tokens' key comes from the same seed too: make them differ, as those of two processes do.
    sessions[1]._wire._key = bytes(16)
    for session in sessions:
        session.configure(targets(FAR_V4, "10.77.0.9"))
    async with running(sessions[0]), running(sessions[1]):
        results = await asyncio.gather(
            *(collect(session, clock, at_least(15, FAR_V4, "10.77.0.9")) for session in sessions)
        )
        identifiers = [[link.socket.identifier for link in session._wire.links.values()] for session in sessions]
    assert len(identifiers[0]) == 1  # one socket for both hosts
    assert identifiers[0] == identifiers[1]
    for found, batches in results:
        assert set(found[FAR_V4]) == {PACKET_OUTCOME_REPLIED}
        assert set(found["10.77.0.9"]) <= {PACKET_OUTCOME_LOST, PACKET_OUTCOME_UNREACHABLE}
        assert [mark for batch in batches for mark in batch.marks] == []


@pytest.mark.usefixtures("namespaces")
async def test_a_source_that_is_not_on_this_host_fails_to_send() -> None:
    clock = SystemClock()
    session = EchoSession(clock, opener=open_near, rights=Rights(RAW, RAW))
    session.configure([*targets(FAR_V4, source="10.77.0.77"), *targets("10.77.0.3", nic="bwicmp9")])
    async with running(session):
        found, _ = await collect(session, clock, at_least(3, FAR_V4, "10.77.0.3"))
        assert session.state().state == "source_missing"
    assert {outcome for outcomes in found.values() for outcome in outcomes} == {PACKET_OUTCOME_SEND_FAILED}


@pytest.mark.parametrize(
    ("groups", "drop", "wanted"),
    [
        ("", "-net_raw", "None None CAP_NET_RAW"),
        ("", "-sys_boot", f"{RAW} {RAW} "),
        (f"{os.getgid()} {os.getgid()}", "-net_raw", f"{DATAGRAM} {DATAGRAM} "),
    ],
)
@pytest.mark.usefixtures("namespaces")
def test_case_57_no_right_to_send_icmp(groups: str, drop: str, wanted: str) -> None:
    """The bounding set decides, whoever runs it: what a container without the capability sees.

    A new namespace has the range "1 0"; in a user namespace it could not be set, group 1 not being mapped.
    """
    program = (
        "from agent.probe.icmp_socket import KernelEchoSocket, find_rights\n"
        "rights = find_rights(KernelEchoSocket)\n"
        "print(rights.ipv4, rights.ipv6, rights.missing)\n"
    )
    if groups:
        sysctl(FAR, f"net.ipv4.ping_group_range={groups}")
    ran = subprocess.run(
        ["ip", "netns", "exec", FAR, "setpriv", "--bounding-set", drop, sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
    )
    assert ran.stdout.startswith(wanted)
    if "None" in wanted:
        assert "net.ipv4.ping_group_range (now '" in ran.stdout


@pytest.mark.usefixtures("namespaces")
def test_case_17_two_ordinary_users_pingers_on_one_host_see_their_own_replies_only() -> None:
    """Datagram sockets, to the same two hosts at the same time: the kernel's identifiers tell them apart."""
    program = [sys.executable, "-m", "agent", "probe", "ping", FAR_V4, "10.77.0.9"]
    command = ["ip", "netns", "exec", NEAR, "setpriv", "--bounding-set", "-net_raw", *program]
    command += ["--count", "30", "--interval", "20ms", "--wait", "500ms", "--json"]
    pingers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) for _ in range(2)]
    for pinger in pingers:
        said = json.loads(pinger.communicate(timeout=50)[0])
        alive, dead = said["paths"]
        assert (alive["address"], alive["lost"], alive["duplicates"], alive["late"]) == (FAR_V4, 0, 0, 0)
        assert alive["replied"] > 0
        assert (dead["address"], dead["replied"], dead["duplicates"]) == ("10.77.0.9", 0, 0)
        assert said["remarks"] == []


FLOOD = """
import socket, sys, time
from random import Random
from struct import pack
source, near, identifier, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
random = Random(1)
# The right identifier, slot and sequence and a wrong token, and (every other one) a wrong identifier.
def forged(number):
    name = identifier if number % 2 else random.randrange(65536)
    place = (number % 3).to_bytes(4, "big") + (number % 250).to_bytes(8, "big")
    message = bytes(4) + name.to_bytes(2, "big") + random.randbytes(10) + place + bytes(range(0x10, 0x34))
    total = sum(int.from_bytes(message[i : i + 2], "big") for i in range(0, len(message), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return message[:2] + (0xFFFF ^ total).to_bytes(2, "big") + message[4:]
packets = [forged(number) for number in range(1000)]
raw.bind((source, 0))
raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
end, sent = time.monotonic() + seconds, 0
while time.monotonic() < end:
    for packet in packets:
        sent += raw.sendto(packet, (near, 0)) > 0
    time.sleep(0.02)  # bursts, so that the flood leaves the other core some time
print(sent)
"""


@pytest.mark.usefixtures("namespaces")
async def test_a_flood_of_forged_replies_costs_the_other_paths_nothing_and_no_memory() -> None:
    """From the address of a probed host and with our identifier: only the token is not ours."""
    clock = SystemClock()
    session = EchoSession(clock, opener=open_near, rights=Rights(RAW, RAW))
    session.configure(targets(FAR_V4, FAR_SECOND, "10.77.0.9"))
    async with running(session):
        quiet, _ = await collect(session, clock, at_least(10, FAR_V4, FAR_SECOND))
        assert set(quiet[FAR_SECOND]) == {PACKET_OUTCOME_REPLIED}
        (link,) = session._wire.links.values()
        words = [sys.executable, "-c", FLOOD, FAR_V4, "10.77.0.1", str(link.socket.identifier), "2"]
        before = resident_bytes()
        flood = await asyncio.create_subprocess_exec("ip", "netns", "exec", FAR, *words, stdout=subprocess.PIPE)
        found, batches = await collect(session, clock, at_least(60, FAR_V4, FAR_SECOND))
        sent, _ = await flood.communicate()
        assert int(sent) > 20_000
        assert resident_bytes() - before < 16 << 20
    for address in (FAR_V4, FAR_SECOND):
        assert set(found[address]) == {PACKET_OUTCOME_REPLIED}
    assert PACKET_OUTCOME_REPLIED not in found.get("10.77.0.9", ())
    assert [mark for batch in batches for mark in batch.marks] == []
    assert [fault for batch in batches for _, fault in batch.delay_faults] == []


def resident_bytes() -> int:
    return int(FilePath("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def icmp_error(quoted: bytes, ip_version: int) -> bytes:
    """Host unreachable; the kernel computes ICMPv6's checksum itself."""
    kind = b"\x03\x01" if ip_version == 4 else b"\x01\x03"
    message = kind + bytes(6) + quoted
    return message[:2] + checksum(ones_complement_sum(message)).to_bytes(2, "big") + message[4:]


def quote_of(ip_version: int, request: bytes, between: bytes) -> bytes:
    """The request's packet as a router quotes it; ``between``: IPv4 options, or an IPv6 extension header."""
    if ip_version == 4:
        length = 20 + len(between)
        head = pack("!BBHHHBBH", 0x40 | length // 4, 0, length + len(request), 0, 0, 60, 1, 0)
        return head + socket.inet_aton("10.77.0.1") + socket.inet_aton(FAR_V4) + between + request
    head = pack("!IHBB", 6 << 28, len(between) + len(request), 60 if between else 58, 60)
    addresses = socket.inet_pton(socket.AF_INET6, "fd77::1") + socket.inet_pton(socket.AF_INET6, FAR_V6)
    return head + addresses + between + request


@pytest.mark.parametrize("cut", [8, 28, 84])  # of the ICMP message: RFC 792's least, our own fields, all
@pytest.mark.parametrize(
    ("ip_version", "between"),
    [(4, b""), (4, b"\x01" * 8), (6, b""), (6, bytes([58, 0, 1, 4, 0, 0, 0, 0]))],
    ids=["ipv4", "ipv4-options", "ipv6", "ipv6-destination-options"],
)
@pytest.mark.usefixtures("namespaces")
def test_icmp_errors_quote_our_packet_cut_and_behind_other_headers(ip_version: int, between: bytes, cut: int) -> None:
    """The kernel finds the ICMP part behind whatever IP header the quote has, and hands over as much as there is."""
    far, near = (FAR_V4, "10.77.0.1") if ip_version == 4 else (FAR_V6, "fd77::1")
    opened = open_near(RAW, Source(ip_version, near, "", 0), 77)
    token = bytes(range(8))
    try:
        template = EchoTemplate(ip_version=ip_version, identifier=77, token=token, slot=5, fill=pattern(56))
        message = template.request(9, 9)
        with inside(FAR):
            family, protocol = (
                (socket.AF_INET, socket.IPPROTO_ICMP) if ip_version == 4 else (socket.AF_INET6, socket.IPPROTO_ICMPV6)
            )
            router = socket.socket(family, socket.SOCK_RAW, protocol)
        with router:
            router.sendto(icmp_error(quote_of(ip_version, message[:cut], between), ip_version), (near, 0))
        errors: list[tuple[bytes, str, stamps.ErrorReport]] = read_some(opened.read_errors, 1)  # type: ignore[assignment]
        ((quoted, address, report),) = errors
        assert address == far  # what the packet was sent to, not who complains
        assert report.origin == (stamps.ORIGIN_ICMP if ip_version == 4 else stamps.ORIGIN_ICMP6)
        quote = parse_quote(quoted, ip_version)
        assert quote is not None
        assert (quote.identifier, quote.wire_sequence) == (77, 9)
        assert (quote.token, quote.slot, quote.sequence) == ((None, 0, 0) if cut < 28 else (token, 5, 9))
    finally:
        opened.close()


# ---------------------------------------------------------------- one socket: the kernel's and the fake


def real_loopback(method: int, source: Source, identifier: int) -> EchoSocket:
    return KernelEchoSocket(method, source, identifier)


def fake_loopback(method: int, source: Source, identifier: int) -> EchoSocket:
    network = FakeNetwork(FakeClock())
    network.hosts = {"127.0.0.1": Host(delays=(0,)), "::1": Host(delays=(0,))}
    return network.open(method, source, identifier)


def read_some(read: Callable[[int], Sequence[object]], count: int) -> list[object]:
    """What arrives within 5 s, at least ``count``."""
    found: list[object] = []
    end = monotonic() + 5
    while len(found) < count and monotonic() < end:
        found += read(16)
    return found


@pytest.mark.parametrize("opener", [real_loopback, fake_loopback])
@pytest.mark.parametrize(("ip_version", "address"), [(4, ("127.0.0.1", 0)), (6, ("::1", 0, 0, 0))])
def test_the_fake_socket_behaves_as_the_kernels(
    opener: Callable[[int, Source, int], EchoSocket],
    ip_version: int,
    address: tuple[str, int] | tuple[str, int, int, int],
) -> None:
    held = hold_receive_stamping()
    assert warm_up(opener, RAW, ip_version, 1) == ""
    opened = opener(RAW, Source(ip_version, "", "", 0), 0x1234)
    other = opener(RAW, Source(ip_version, "", "", 0), 0x4321)
    try:
        template = EchoTemplate(ip_version=ip_version, identifier=0x1234, token=bytes(8), slot=1, fill=pattern(56))
        opened.expect(56)
        for sequence in range(3):
            opened.send(template.request(sequence, sequence), address)
        errors: list[tuple[bytes, str, stamps.ErrorReport]] = read_some(opened.read_errors, 3)  # type: ignore[assignment]
        assert [report.key for _, _, report in errors] == [0, 1, 2]
        assert {report.origin for _, _, report in errors} == {stamps.ORIGIN_TIMESTAMPING}
        assert all(quoted == b"" and report.stamp_ns for quoted, _, report in errors)
        replies: list[Arrived] = read_some(opened.read_replies, 3)  # type: ignore[assignment]
        for sequence, (packet, sender, stamp, hop_limit) in enumerate(replies):
            assert sender == address[0]
            assert hop_limit == 64  # net.ipv4.ip_default_ttl, net.ipv6.conf.*.hop_limit
            assert stamp is not None
            sent = errors[sequence][2].stamp_ns
            assert sent is not None
            assert stamp >= sent
            offset = message_offset(packet) if ip_version == 4 else 0
            reply = parse_reply(packet, offset, ip_version)
            assert reply is not None
            assert reply.sequence == sequence
            assert template.intact(reply, packet, offset)
        opened.restart_keys()
        opened.send(template.request(9, 9), address)
        again: list[tuple[bytes, str, stamps.ErrorReport]] = read_some(opened.read_errors, 1)  # type: ignore[assignment]
        assert [report.key for _, _, report in again] == [0]
        assert other.read_replies(16) == []  # another identifier: the filter keeps them out
    finally:
        opened.close()
        other.close()
        held.close()


def test_a_damaged_filter_or_missing_device_closes_the_socket() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(OSError, match="No such device"):
        KernelEchoSocket(RAW, Source(4, "", "no-such-nic", 0), 1)
    with pytest.raises(OSError, match="Cannot assign requested address") as caught:
        KernelEchoSocket(RAW, Source(4, "192.0.2.200", "", 0), 1)
    assert caught.value.errno == errno.EADDRNOTAVAIL
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


# ---------------------------------------------------------------- TCP


async def test_tcp_connects_over_loopback_accepted_and_refused() -> None:
    clock = SystemClock()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_server(("127.0.0.2", 0)) as closed:
        ports = [listening.getsockname()[1], closed.getsockname()[1]]
        closed.close()
        session = TcpConnectSession(clock)
        session.configure(
            [
                round_trip_target(address, protocol=PROTOCOL_TCP_CONNECT, port=port, interval_ns=50 * MILLISECOND)
                for address, port in zip(("127.0.0.1", "127.0.0.2"), ports, strict=True)
            ]
        )
        async with running(session):
            found, batches = await collect(session, clock, at_least(5, "127.0.0.1", "127.0.0.2"))
    assert {outcome for outcomes in found.values() for outcome in outcomes} == {PACKET_OUTCOME_REPLIED}
    assert all(0 < delay < SECOND for batch in batches for delay in batch.round_trip_delays_ns)


@pytest.mark.usefixtures("namespaces")
async def test_a_name_resolved_by_the_host_is_probed() -> None:
    clock = SystemClock()
    session = EchoSession(clock)
    session.configure([round_trip_target("localhost", interval_ns=50 * MILLISECOND)])
    async with running(session):
        found, _ = await collect(session, clock, lambda found: any(len(outcomes) >= 3 for outcomes in found.values()))
    assert set(found) <= {"127.0.0.1", "::1"}
    assert {outcome for outcomes in found.values() for outcome in outcomes} == {PACKET_OUTCOME_REPLIED}
