"""The agent's stream against a real gRPC server over real sockets: mTLS, loss of acks, of servers, of the network."""

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from agent import result
from agent.clock import Anchor, SystemClock
from agent.config import Address, IdentityFiles
from agent.identity import load_or_create
from agent.plan import PlanKeeper
from agent.record import Author, HeaderContext, Recorder
from agent.spool import Journal, Limits, Spool
from agent.uplink import Introduction, Uplink, UplinkSettings
from bandwitness import chain
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1 import uplink_pb2 as wire
from bandwitness.v1.plan_pb2 import Plan
from bandwitness.v1.uplink_pb2_grpc import UplinkServicer, add_UplinkServicer_to_server
from tests.fakes.proxy import Proxy

SCRIPT = Path(__file__).parents[2] / "deploy/make_certificates.py"
NODE = "gpu-r1-01"
SECOND = 1_000_000_000
EVIDENCE, TELEMETRY = int(pb.BATCH_CLASS_EVIDENCE), int(pb.BATCH_CLASS_TELEMETRY)
KEY = Ed25519PrivateKey.from_private_bytes(b"c" * 32)
PUBLIC_KEY = KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
FAST = UplinkSettings(backoff_first_ns=SECOND // 100, backoff_max_ns=SECOND // 10, welcome_timeout_s=5)
SERVER_OPTIONS = (  # as the collector's: pings as often as the agent sends them, also on an idle stream
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 50),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
)


# ---------------------------------------------------------------- a collector for tests


@dataclass
class Log:
    """What the collector has on disk: outlives its process, so it is kept outside the server."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # as received: class, seq, header
    tips: dict[tuple[bytes, int], chain.Tip] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def take(self, batch: pb.SignedBatch) -> pb.Header:
        header = chain.read_header(batch.header)
        key = (header.chain_id, header.batch_class)
        tip = self.tips.get(key, chain.ORIGIN)
        self.batches.append((header.batch_class, header.seq, batch.header))
        try:
            chain.check_signature(batch.header, header, batch.signature)
            if header.seq > tip.seq:
                chain.check_link(header, tip)
                chain.read_payload(header, batch.payload)
                self.tips[key] = chain.Tip(header.seq, chain.header_hash(batch.header))
        except chain.ChainError as error:
            self.faults.append(str(error))
        return header

    def seqs(self, batch_class: int) -> list[int]:
        return [seq for kept, seq, _ in self.batches if kept == batch_class]


class Servicer(UplinkServicer):
    """Stores, acknowledges, sends plans; each fault of a collector is a switch."""

    def __init__(self, log: Log, *, name: str = "collector") -> None:
        self.log = log
        self.name = name
        self.acknowledges = True
        self.welcomes = True
        self.tells_durable = True
        self.ends_after: int | None = None
        self.refuses: tuple[grpc.StatusCode, str] | None = None
        self.plan: pb.SignedBatch | None = None
        self.hellos: list[wire.Hello] = []
        self.peers: list[list[bytes]] = []

    async def Stream(self, requests: AsyncIterator[wire.UplinkRequest], context: Any) -> AsyncIterator[Any]:
        taken = 0
        async for request in requests:
            if request.HasField("hello"):
                self.hellos.append(request.hello)
                self.peers.append(list(context.auth_context().get("x509_subject_alternative_name", [])))
                if self.refuses:
                    await context.abort(*self.refuses)
                if not self.welcomes:
                    continue
                yield self.welcome(request.hello)
                if self.plan is not None:
                    yield wire.UplinkResponse(plan=self.plan)
                continue
            header = self.log.take(request.batch)
            taken += 1
            if self.ends_after is not None and taken >= self.ends_after:
                return  # stored, and gone before the acknowledgement
            if self.acknowledges:
                yield wire.UplinkResponse(
                    ack=wire.Ack(
                        chain_id=header.chain_id,
                        batch_class=header.batch_class,
                        durable_through_seq=header.seq,
                        head=b"head after ".ljust(32, b"."),
                    )
                )

    def welcome(self, hello: wire.Hello) -> wire.UplinkResponse:
        welcome = wire.Welcome(collector_id=self.name, protocol_version=1, public_key=PUBLIC_KEY, head=b"h" * 32)
        for tip in hello.chain if self.tells_durable else ():
            known = self.log.tips.get((tip.chain_id, tip.batch_class))
            if known is not None:
                welcome.durable.add(chain_id=tip.chain_id, batch_class=tip.batch_class, seq=known.seq)
        return wire.UplinkResponse(welcome=welcome)


def plan_batch(version: int = 1) -> pb.SignedBatch:
    plan = Plan(version=version, node=NODE, expiry_time_ns=1 << 62)
    record = pb.Record(plan_issued=pb.PlanIssued(node=NODE, plan=plan.SerializeToString()))
    header = pb.Header(
        agent_id="collector", chain_id=b"c" * 16, batch_class=pb.BATCH_CLASS_CONTROL, public_key=PUBLIC_KEY
    )
    return chain.seal(header, [record.SerializeToString()], chain.ORIGIN, KEY.sign)


@asynccontextmanager
async def collector(
    servicer: Servicer,
    *,
    tls: Path | None = None,
    port: int = 0,
    stem: str = "collector",
    options: Sequence[tuple[str, int]] = SERVER_OPTIONS,
) -> AsyncIterator[int]:
    """A running server; its port."""
    server = grpc.aio.server(options=list(options))
    add_UplinkServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    if tls is None:
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
    else:
        pair = ((tls / f"{stem}.key").read_bytes(), (tls / f"{stem}.pem").read_bytes())
        credentials = grpc.ssl_server_credentials([pair], (tls / "ca.pem").read_bytes(), require_client_auth=True)
        bound = server.add_secure_port(f"127.0.0.1:{port}", credentials)
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(None)


# ---------------------------------------------------------------- an agent for tests


class Agent:
    """Identity, spool and uplink; a flush writes one batch a class."""

    def __init__(self, spool: Spool, journal: Journal, recorder: Recorder, keeper: PlanKeeper) -> None:
        self.spool, self.journal, self.recorder, self.keeper = spool, journal, recorder, keeper
        self.clock = SystemClock()
        self.uplink: Uplink

    async def flush(self, count: int = 1, *, telemetry_bytes: int = 0) -> None:
        for _ in range(count):
            now_ns = self.clock.wall_ns()
            if telemetry_bytes:
                parts = [result.PartState("nic", True, "ok", "d" * telemetry_bytes)]
                self.recorder.add_status(result.Status(now_ns, 0, None, 0, parts))
            context = HeaderContext(Anchor(now_ns, 1, 1), result.ClockReading(1, True))
            await self.journal.flush(context, {EVIDENCE: now_ns, TELEMETRY: now_ns})


@asynccontextmanager
async def agent(
    directory: Path,
    ports: Sequence[int],
    *,
    identity: IdentityFiles | None = None,
    settings: UplinkSettings = FAST,
    host: str = "127.0.0.1",
) -> AsyncIterator[Agent]:
    clock = SystemClock()
    spool = Spool(directory / "spool.sqlite", Limits(), wall_ns=clock.wall_ns)
    await spool.open()
    keeper = PlanKeeper(directory, NODE)
    keeper.load()
    key = load_or_create(directory)
    author = Author(NODE, key.public_key, key.sign, b"B" * 16, b"R" * 16, b"C" * 32, "0.1.0")
    recorder = Recorder(author, spool.tips())
    subject = Agent(spool, Journal(recorder, spool, clock.wall_ns()), recorder, keeper)
    subject.uplink = Uplink(
        introduction=Introduction(NODE, "0.1.0", b"B" * 16, b"R" * 16),
        collectors=[Address(host, port) for port in ports],
        identity=identity,
        spool=spool,
        keeper=keeper,
        clock=clock,
        source=random.Random(3),
        settings=settings,
    )
    running = asyncio.create_task(subject.uplink.run())
    try:
        async with asyncio.timeout(45):
            yield subject
    finally:
        assert not running.done(), running.exception()
        running.cancel()
        async with asyncio.timeout(10):
            await asyncio.gather(running, return_exceptions=True)
        await spool.close()


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - gRPC has no event for what another process sees
            await asyncio.sleep(0.005)


def all_acknowledged(subject: Agent) -> bool:
    return all(
        subject.spool.acknowledged(batch_class)[0] == subject.spool.tip(batch_class).tip.seq
        for batch_class in (EVIDENCE, TELEMETRY)
    )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two authorities; the second has a collector of another name and a node of the same."""
    root = tmp_path_factory.mktemp("certificates")
    make(root / "site", "--collector", "collector", "--address", "127.0.0.1", "--node", NODE, "--node", "other")
    make(root / "foreign", "--collector", "collector", "--address", "127.0.0.1", "--node", NODE)
    make(root / "elsewhere", "--collector", "elsewhere", "--address", "10.9.9.9", "--node", NODE)
    return root


def make(directory: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, str(SCRIPT), str(directory), *arguments], check=True, capture_output=True)


def files(directory: Path, node: str = NODE, *, ca: Path | None = None, server_name: str = "") -> IdentityFiles:
    return IdentityFiles(
        (ca or directory) / "ca.pem", directory / f"{node}.pem", directory / f"{node}.key", server_name
    )


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# ---------------------------------------------------------------- the plain course of things


async def test_batches_go_up_and_plans_come_down_over_mutual_tls(tmp_path: Path, certificates: Path) -> None:
    site = certificates / "site"
    servicer = Servicer(Log())
    servicer.plan = plan_batch()
    async with (
        collector(servicer, tls=site) as port,
        agent(tmp_path, [port], identity=files(site)) as subject,
    ):
        await subject.flush(5)
        await until(lambda: all_acknowledged(subject))
        kept = await subject.uplink.plans.get()
        assert kept.plan.version == 1
        await subject.flush()
        await until(lambda: all_acknowledged(subject))
        assert servicer.log.seqs(EVIDENCE) == servicer.log.seqs(TELEMETRY) == [1, 2, 3, 4, 5, 6]
        assert servicer.log.faults == []
        assert [f"bandwitness://node/{NODE}".encode()] in servicer.peers
        [hello] = servicer.hellos
        assert (hello.agent_id, hello.protocol_version, len(hello.chain)) == (NODE, 1, 2)
        assert subject.uplink.connected
        assert subject.uplink.offline_ns() == 0
        assert subject.uplink.witnessed_head == b"head after ".ljust(32, b".")
        state = subject.uplink.state()
        assert (state.working, state.state) == (True, "connected")
        assert "to collector at 127.0.0.1" in state.detail


async def test_a_backlog_is_sent_evidence_first_within_the_window(tmp_path: Path) -> None:
    servicer = Servicer(Log())
    servicer.acknowledges = False
    port = free_port()
    async with agent(tmp_path, [port]) as subject:
        await subject.flush(40, telemetry_bytes=100)
        async with collector(servicer, port=port):
            await until(lambda: len(servicer.log.batches) == 64)
            await subject.flush(3)  # a collector that takes nothing more does not slow recording
            assert servicer.log.seqs(EVIDENCE) == list(range(1, 41))
            assert servicer.log.seqs(TELEMETRY) == list(range(1, 25))
        servicer.acknowledges = True
        async with collector(servicer, port=port):
            await until(lambda: all_acknowledged(subject))
        assert servicer.log.faults == []
        assert {*servicer.log.seqs(TELEMETRY)} == set(range(1, 44))


# ---------------------------------------------------------------- what is lost comes again, once


async def test_case_39_an_acknowledgement_lost_makes_a_resend_of_the_same_bytes(tmp_path: Path) -> None:
    servicer = Servicer(Log())
    servicer.tells_durable = False  # as if the collector had not yet seen that it has them
    servicer.acknowledges = False
    port = free_port()
    async with agent(tmp_path, [port]) as subject:
        await subject.flush(3)
        async with collector(servicer, port=port):
            await until(lambda: len(servicer.log.batches) == 6)
        servicer.acknowledges = True
        async with collector(servicer, port=port):
            await until(lambda: all_acknowledged(subject))
        first, second = servicer.log.batches[:6], servicer.log.batches[6:]
        assert first == second
        assert servicer.log.faults == []


async def test_what_the_collector_has_is_not_sent_again(tmp_path: Path) -> None:
    """The acknowledgement was lost, the Welcome of the next stream says the same."""
    servicer = Servicer(Log())
    servicer.ends_after = 4
    async with collector(servicer) as port, agent(tmp_path, [port]) as subject:
        for _ in range(10):
            await subject.flush()
        await until(lambda: all_acknowledged(subject))
        assert servicer.log.seqs(EVIDENCE) == servicer.log.seqs(TELEMETRY) == list(range(1, 11))
        assert len(servicer.hellos) > 4
        assert servicer.log.faults == []


async def test_a_collector_that_is_killed_and_comes_back_misses_nothing(tmp_path: Path, certificates: Path) -> None:
    site = certificates / "site"
    log = Log()
    port = free_port()
    async with agent(tmp_path, [port], identity=files(site)) as subject:
        for _ in range(4):
            async with collector(Servicer(log), tls=site, port=port):
                await subject.flush(3)
                await until(lambda: log.tips and all_acknowledged(subject))
            await subject.flush(2)
        async with collector(Servicer(log), tls=site, port=port):
            await until(lambda: all_acknowledged(subject))
    assert log.faults == []
    assert log.seqs(EVIDENCE) == log.seqs(TELEMETRY) == list(range(1, 21))


async def test_a_collector_that_lost_its_state_is_told_the_definitions_again_at_once(tmp_path: Path) -> None:
    port = free_port()
    async with agent(tmp_path, [port]) as subject:

        async def records_of_a_flush() -> int:
            now_ns = subject.clock.wall_ns()
            subject.recorder.add_nic(result.NicBatch("eth0", ["rx_bytes"], now_ns, 5, 1_000_000_000, [5], [[1]]))
            await subject.flush()
            [(_, batch)] = await subject.spool.unsent(TELEMETRY, subject.spool.tip(TELEMETRY).tip.seq - 1, 1 << 20)
            return chain.read_header(batch.header).record_count

        log = Log()
        assert await records_of_a_flush() == 2  # definition and columns
        for _ in range(2):  # the same log: nothing is told twice
            async with collector(Servicer(log), port=port):
                await until(lambda: log.tips and all_acknowledged(subject))
            await until(lambda: not subject.uplink.connected)
            assert await records_of_a_flush() == 1
        async with collector(Servicer(Log()), port=port):
            await until(lambda: subject.uplink.connected and all_acknowledged(subject))
        assert await records_of_a_flush() == 2
        assert await records_of_a_flush() == 1


async def test_an_agent_that_starts_again_sends_only_what_is_left(tmp_path: Path) -> None:
    servicer = Servicer(Log())
    servicer.plan = plan_batch()
    async with collector(servicer) as port:
        for _ in range(3):
            async with agent(tmp_path, [port]) as subject:
                await subject.flush(3)
                await until(lambda subject=subject: all_acknowledged(subject))  # type: ignore[misc]
    assert servicer.log.faults == []
    assert servicer.log.seqs(EVIDENCE) == list(range(1, 10))
    assert servicer.hellos[-1].plan_hash != b""  # the plan was kept
    assert servicer.hellos[-1].chain[0].seq in (6, 7)


async def test_an_agent_ends_when_told_whatever_the_stream_is_doing(tmp_path: Path) -> None:
    servicer = Servicer(Log())
    async with collector(servicer) as port:
        for seen in range(30):
            async with agent(tmp_path, [port]) as subject:
                await subject.flush(seen)
                await until(lambda seen=seen: len(servicer.log.batches) >= seen)  # type: ignore[misc]
    assert servicer.log.faults == []


async def test_a_spool_from_an_old_copy_begins_a_new_chain(tmp_path: Path) -> None:
    servicer = Servicer(Log())
    async with collector(servicer) as port:
        async with agent(tmp_path, [port]) as subject:
            await subject.flush()
            await until(lambda: all_acknowledged(subject))
        old = (tmp_path / "spool.sqlite").read_bytes()
        async with agent(tmp_path, [port]) as subject:
            await subject.flush(5)
            await until(lambda: all_acknowledged(subject))
        (tmp_path / "spool.sqlite").write_bytes(old)
        async with agent(tmp_path, [port]) as subject:
            before = subject.spool.tip(EVIDENCE).chain_id
            await until(lambda: subject.uplink.connected)
            assert subject.spool.tip(EVIDENCE).chain_id != before
            await subject.flush(2)
            await until(lambda: all_acknowledged(subject))
    assert servicer.log.faults == []


# ---------------------------------------------------------------- networks and collectors that fail


async def test_case_37_an_idle_stream_stays_up_under_frequent_pings(tmp_path: Path) -> None:
    settings = UplinkSettings(keepalive_time_ms=100, keepalive_timeout_ms=2_000)
    servicer = Servicer(Log())
    async with collector(servicer) as port, agent(tmp_path, [port], settings=settings) as subject:
        await until(lambda: subject.uplink.connected)
        await asyncio.sleep(4)  # four pings; the fault needs time to show, there is no event for its absence
        assert len(servicer.hellos) == 1
        assert subject.uplink.connected


async def test_case_37_a_stricter_server_makes_the_agent_ping_less_and_resend(tmp_path: Path) -> None:
    strict = (("grpc.http2.min_ping_interval_without_data_ms", 60_000), ("grpc.http2.max_ping_strikes", 2))
    settings = UplinkSettings(
        keepalive_time_ms=100, keepalive_timeout_ms=2_000, backoff_first_ns=SECOND // 100, backoff_max_ns=SECOND // 10
    )
    servicer = Servicer(Log())
    async with collector(servicer, options=strict) as port, agent(tmp_path, [port], settings=settings) as subject:
        # gRPC sends at most one ping a second, so the third strike comes after some four seconds.
        await until(lambda: subject.uplink._keepalive_time_ms == 200)
        await subject.flush(3)
        await until(lambda: all_acknowledged(subject))
        assert len(servicer.hellos) >= 2
        assert servicer.log.faults == []


async def test_a_half_open_stream_ends_by_keepalive_and_the_next_collector_takes_over(tmp_path: Path) -> None:
    settings = UplinkSettings(
        keepalive_time_ms=300,
        keepalive_timeout_ms=500,
        backoff_first_ns=SECOND // 100,
        backoff_max_ns=SECOND // 10,
        welcome_timeout_s=0.5,
        look_timeout_s=0.2,
    )
    first, second = Servicer(Log()), Servicer(Log(), name="second")
    async with collector(first) as first_port, collector(second) as second_port:
        proxy = Proxy(first_port)
        async with proxy.running() as port, agent(tmp_path, [port, second_port], settings=settings) as subject:
            await subject.flush()
            await until(lambda: all_acknowledged(subject))
            proxy.cut = True
            await subject.flush(3)
            await until(lambda: all_acknowledged(subject))
            assert second.hellos
            assert {*second.log.seqs(EVIDENCE)} == {2, 3, 4}


async def test_collectors_are_tried_in_turn(tmp_path: Path) -> None:
    servicer = Servicer(Log())
    async with collector(servicer) as port, agent(tmp_path, [free_port(), free_port(), port]) as subject:
        await subject.flush()
        await until(lambda: all_acknowledged(subject))


async def test_a_collector_that_acknowledges_nothing_is_left(tmp_path: Path) -> None:
    settings = UplinkSettings(
        backoff_first_ns=SECOND // 100, backoff_max_ns=SECOND // 10, acknowledgement_timeout_ns=SECOND // 2
    )
    stuck = Servicer(Log())
    stuck.acknowledges = False
    async with collector(stuck) as port, agent(tmp_path, [port], settings=settings) as subject:
        await subject.flush()
        await until(lambda: len(stuck.hellos) >= 2)
        stuck.acknowledges = True
        await subject.flush()
        await until(lambda: all_acknowledged(subject))
    assert stuck.log.faults == []


async def test_a_collector_without_welcome_is_left(tmp_path: Path) -> None:
    settings = UplinkSettings(backoff_first_ns=SECOND // 100, backoff_max_ns=SECOND // 10, welcome_timeout_s=0.3)
    mute, good = Servicer(Log()), Servicer(Log())
    mute.welcomes = False
    async with (
        collector(mute) as first,
        collector(good) as second,
        agent(tmp_path, [first, second], settings=settings) as subject,
    ):
        await subject.flush()
        await until(lambda: all_acknowledged(subject))
    assert mute.hellos
    assert mute.log.batches == []


# ---------------------------------------------------------------- why it does not work, in plain words


async def trouble(directory: Path, port: int, identity: IdentityFiles | None, state: str) -> str:
    async with agent(directory, [port], identity=identity) as subject:
        await until(lambda: subject.uplink.state().state == state)
        assert not subject.uplink.connected
        return subject.uplink.state().detail


async def test_an_unknown_authority_is_named(tmp_path: Path, certificates: Path) -> None:
    async with collector(Servicer(Log()), tls=certificates / "foreign") as port:
        detail = await trouble(tmp_path, port, files(certificates / "site"), "unknown_ca")
    assert "copy the ca.pem" in detail


async def test_a_wrong_name_is_named_and_server_name_cures_it(tmp_path: Path, certificates: Path) -> None:
    elsewhere = certificates / "elsewhere"
    servicer = Servicer(Log())
    async with collector(servicer, tls=elsewhere) as port:
        detail = await trouble(tmp_path, port, files(elsewhere), "wrong_name")
        assert "does not name 127.0.0.1" in detail
        async with agent(tmp_path, [port], identity=files(elsewhere, server_name="elsewhere")) as subject:
            await until(lambda: subject.uplink.connected)


async def test_an_expired_collector_is_named(tmp_path: Path, certificates: Path) -> None:
    expire(certificates / "site", tmp_path / "expired.pem", tmp_path / "expired.key", server=True)
    (tmp_path / "ca.pem").write_bytes((certificates / "site/ca.pem").read_bytes())
    async with collector(Servicer(Log()), tls=tmp_path, stem="expired") as port:
        await trouble(tmp_path, port, files(certificates / "site"), "collector_expired")


async def test_our_own_expired_certificate_is_named(tmp_path: Path, certificates: Path) -> None:
    site = certificates / "site"
    expire(site, tmp_path / f"{NODE}.pem", tmp_path / f"{NODE}.key", server=False)
    async with collector(Servicer(Log()), tls=site) as port:
        detail = await trouble(tmp_path, port, files(tmp_path, ca=site), "certificate_expired")
    assert str(tmp_path / f"{NODE}.pem") in detail


async def test_our_certificate_from_another_authority_is_named(tmp_path: Path, certificates: Path) -> None:
    site, foreign = certificates / "site", certificates / "foreign"
    async with collector(Servicer(Log()), tls=site) as port:
        detail = await trouble(tmp_path, port, files(foreign, ca=site), "certificate_refused")
    assert "collector's authority" in detail


async def test_nothing_listening_is_named(tmp_path: Path, certificates: Path) -> None:
    detail = await trouble(tmp_path, free_port(), files(certificates / "site"), "connection_refused")
    assert "is the collector running" in detail


async def test_a_plain_text_collector_is_named(tmp_path: Path, certificates: Path) -> None:
    async with collector(Servicer(Log())) as port:
        detail = await trouble(tmp_path, port, files(certificates / "site"), "not_tls")
    assert "collector.tls" in detail


async def test_a_tls_collector_under_a_plain_text_agent_is_named(tmp_path: Path, certificates: Path) -> None:
    async with collector(Servicer(Log()), tls=certificates / "site") as port:
        detail = await trouble(tmp_path, port, None, "closed")
    assert "does it expect TLS? Then give agent.identity" in detail


async def test_the_collectors_refusal_is_shown_in_its_words(tmp_path: Path) -> None:
    servicer = Servicer(Log())
    servicer.refuses = (grpc.StatusCode.PERMISSION_DENIED, "gpu-r1-01 is not in the configuration")
    async with collector(servicer) as port:
        detail = await trouble(tmp_path, port, None, "unauthenticated")
    assert "is not in the configuration" in detail


async def test_a_changed_key_of_the_collector_refuses_plans_but_not_measurements(tmp_path: Path) -> None:
    PlanKeeper(tmp_path, NODE).pin("collector", b"another key".ljust(32))
    servicer = Servicer(Log())
    servicer.plan = plan_batch()
    async with collector(servicer) as port, agent(tmp_path, [port]) as subject:
        await subject.flush()
        await until(lambda: all_acknowledged(subject))
        assert subject.uplink.plans.empty()
        state = subject.uplink.state()
        assert (state.working, state.state) == (False, "plan_refused")


def expire(authority: Path, certificate: Path, key: Path, *, server: bool) -> None:
    """A certificate of the authority that ended yesterday."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    ca_key: Any = load_pem_private_key((authority / "ca.key").read_bytes(), None)
    kept = x509.load_pem_x509_certificate((authority / f"{'collector' if server else NODE}.pem").read_bytes())
    kept_key = authority / f"{'collector' if server else NODE}.key"
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=kept.issuer,
        subject_name=kept.subject,
        public_key=kept.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(days=9),
        not_valid_after=now - datetime.timedelta(days=1),
        extensions=list(kept.extensions),
    )
    certificate.write_bytes(builder.sign(ca_key, hashes.SHA256()).public_bytes(Encoding.PEM))
    key.write_bytes(kept_key.read_bytes())
