"""Ingest over real sockets: certificates, limits, resends, replaced streams, full disks."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bandwitness import KEEPALIVE_TIME_MS, MAX_MESSAGE_BYTES
from bandwitness.chain import header_hash
from bandwitness.v1.plan_pb2 import Plan
from bandwitness.v1.record_pb2 import BATCH_CLASS_CONTROL, BATCH_CLASS_TELEMETRY, Record, SignedBatch
from bandwitness.v1.uplink_pb2 import UplinkRequest
from collector.clock import SystemClock
from collector.config import Tls
from collector.control import Control
from collector.decode import Definitions, decode
from collector.ingest import Ingest, ListenError, Sessions, TlsError, server_credentials, start_server
from collector.ingest.service import server_options
from collector.ingest.stream import IN_FLIGHT_LIMIT
from collector.log import Log
from collector.model import LogEntry
from tests.fakes.batches import FakeChain
from tests.fakes.disk import FailingDisk
from tests.fakes.proxy import Proxy
from tests.fakes.uplink_client import UplinkClient

ROOT = Path(__file__).parents[2]


@dataclass
class Running:
    log: Log
    control: Control
    sessions: Sessions
    address: str
    disk: FailingDisk

    def entries(self, agent_id: str = "n1") -> list[LogEntry]:
        return [entry for entry in self.log.read(0, 10_000) if entry.agent_id == agent_id]

    def seqs(self, agent_id: str = "n1") -> list[int]:
        return [entry.seq for entry in self.entries(agent_id)]


@contextlib.asynccontextmanager
async def running(
    directory: Path,
    credentials: grpc.ServerCredentials | None = None,
    options: list[tuple[str, int]] | None = None,
    hello_timeout_s: float = 10,
) -> AsyncIterator[Running]:
    disk = FailingDisk()
    log = Log.open(directory / "log", disk=disk)
    sessions = Sessions()
    control = Control(log, Ed25519PrivateKey.generate(), "collector", SystemClock())
    await control.start([], [])
    ingest = Ingest(log, control, SystemClock(), sessions, hello_timeout_s=hello_timeout_s)
    server, port = await start_server(ingest, "127.0.0.1:0", credentials, options=options)
    try:
        yield Running(log, control, sessions, f"127.0.0.1:{port}", disk)
    finally:
        await server.stop(0.2)
        await asyncio.to_thread(log.close)


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as one:
        yield one


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition that work in threads and sockets brings about."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


# ---------------------------------------------------------------- the stream


async def test_batches_are_acknowledged_once_they_can_be_read_back(plain: Running) -> None:
    evidence = FakeChain()
    telemetry = FakeChain(batch_class=BATCH_CLASS_TELEMETRY)
    async with UplinkClient(plain.address) as client:
        welcome = await client.hello("n1", [evidence])
        assert list(welcome.durable) == []
        assert welcome.public_key == plain.control.public_key
        assert welcome.head == plain.control.head()
        for _ in range(5):
            await client.send(evidence.next())
            await client.send(telemetry.next())
        newest: dict[int, int] = {}
        while newest != {1: 5, 2: 5}:
            ack = (await client.receive()).ack
            newest[ack.batch_class] = ack.durable_through_seq
            assert ack.head
            assert len(plain.entries()) >= sum(newest.values())
    assert plain.seqs() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert {entry.quarantine for entry in plain.entries()} == {""}


async def test_a_chain_is_on_record_before_its_first_batch(plain: Running) -> None:
    chain = FakeChain()
    async with UplinkClient(plain.address) as client:
        await client.hello("n1")
        await client.send(chain.next())
        await client.acknowledged(1)
    entries = plain.log.read(0, 10)
    opened = [row for entry in entries for row in decode(entry, Definitions()).chains_opened]
    assert [(row.agent_id, row.chain_id, row.public_key) for row in opened] == [
        ("n1", chain.chain_id, chain.public_key)
    ]
    assert opened[0].source.position < entries[-1].position
    assert entries[-1].agent_id == "n1"


async def test_case_39_an_acknowledgement_lost_and_the_batches_sent_again(plain: Running) -> None:
    chain = FakeChain()
    batches = [chain.next() for _ in range(150)]
    async with UplinkClient(plain.address) as client:
        await client.hello("n1")
        for batch in batches[:100]:
            await client.send(batch)
        await client.acknowledged(100)
    async with UplinkClient(plain.address) as client:
        welcome = await client.hello("n1", [chain])
        assert [tip.seq for tip in welcome.durable] == [100]
        for batch in batches[:100]:  # as if that had not been said either
            await client.send(batch)
        assert (await client.acknowledged(100))[-1].durable_through_seq == 100
        assert len(plain.entries()) == 100
        for batch in batches[50:]:
            await client.send(batch)
        assert (await client.acknowledged(150))[-1].durable_through_seq == 150
    assert plain.seqs() == list(range(1, 151))
    assert {entry.quarantine for entry in plain.entries()} == {""}
    assert plain.sessions.statistics.duplicates == 150


async def test_bad_batches_are_kept_and_acknowledged_and_the_stream_goes_on(plain: Running) -> None:
    chain = FakeChain()
    async with UplinkClient(plain.address) as client:
        await client.hello("n1")
        await client.send(chain.next())
        forged = chain.next()
        forged.signature = bytes(64)
        await client.send(forged)
        await client.send(SignedBatch(header=b"\xff"))
        for _ in range(2):
            await client.send(chain.next())
        await client.acknowledged(4)
    quarantined = [(entry.seq, entry.quarantine) for entry in plain.entries()]
    assert quarantined == [(1, ""), (2, "bad_signature"), (0, "unreadable_header"), (3, "gap"), (4, "")]
    assert dict(plain.sessions.statistics.quarantined) == {"bad_signature": 1, "unreadable_header": 1, "gap": 1}


async def test_an_acknowledgement_passes_a_gap_which_is_on_record_and_can_be_filled(plain: Running) -> None:
    chain = FakeChain()
    batches = [chain.next() for _ in range(5)]
    async with UplinkClient(plain.address) as client:
        await client.hello("n1")
        for batch in (*batches[:2], batches[4]):
            await client.send(batch)
        assert (await client.acknowledged(5))[-1].durable_through_seq == 5
    assert [(entry.seq, entry.quarantine) for entry in plain.entries()] == [(1, ""), (2, ""), (5, "gap")]
    async with UplinkClient(plain.address) as client:
        welcome = await client.hello("n1", [chain])
        assert [tip.seq for tip in welcome.durable] == [5]
        for batch in batches[2:4]:
            await client.send(batch)
        await client.acknowledged(4)
    assert [(entry.seq, entry.quarantine) for entry in plain.entries()][3:] == [(3, ""), (4, "")]
    assert plain.sessions.statistics.late == 2


async def test_a_payload_damaged_or_left_out_is_taken_later_and_counts_once(plain: Running) -> None:
    chain = FakeChain()
    sent = [chain.next() for _ in range(4)]
    bad = [SignedBatch.FromString(batch.SerializeToString()) for batch in sent]
    bad[1].payload = b""
    bad[2].payload = bad[2].payload[:-1]
    for batches in (bad, bad, sent, sent, bad):
        async with UplinkClient(plain.address) as client:
            await client.hello("n1", [chain])
            for batch in batches:
                await client.send(batch)
            await client.acknowledged(4)
    entries = plain.entries()
    assert [entry.seq for entry in entries] == [1, 2, 3, 4, 2, 3]
    assert [entry.quarantine for entry in entries] == ["", "", "unreadable_payload", "", "", ""]
    gaps = [gap.from_time_ns for entry in entries for gap in decode(entry, Definitions()).gaps]
    assert sorted(gaps) == [0, 1, 2, 3]
    statistics = plain.sessions.statistics
    assert (statistics.new, statistics.late, statistics.duplicates) == (3, 2, 14)


async def test_what_was_sent_before_the_agent_closes_is_still_answered(plain: Running) -> None:
    chain = FakeChain()
    async with UplinkClient(plain.address) as client:
        await client.hello("n1")
        for _ in range(20):
            await client.send(chain.next())
        await client.call.done_writing()
        await client.acknowledged(20)
        assert (await client.status())[0] == grpc.StatusCode.OK
    await until(lambda: plain.sessions.get("n1") is None)
    assert plain.sessions.last_received_ns("n1") is not None


async def test_a_second_stream_of_a_node_replaces_the_first(plain: Running) -> None:
    chain = FakeChain()
    async with UplinkClient(plain.address) as first, UplinkClient(plain.address) as second:
        await first.hello("n1")
        for _ in range(10):
            await first.send(chain.next())
        await first.acknowledged(1)
        welcome = await second.hello("n1", [chain])
        assert await first.status() == (grpc.StatusCode.ABORTED, "replaced by a newer stream of the same agent")
        durable = welcome.durable[0].seq
        assert durable == len(plain.seqs())
        resent = FakeChain()
        batches = [resent.next() for _ in range(11)]
        for batch in batches[durable:]:
            await second.send(batch)
        await second.acknowledged(11)
    assert plain.seqs() == list(range(1, 12))


async def test_plans_reach_the_agent_at_hello_and_when_they_change_but_never_twice(plain: Running) -> None:
    await plain.control.issue({"n1": Plan(version=1, node="n1")})
    first = plain.control.plan_for("n1")
    assert first is not None
    async with UplinkClient(plain.address) as client:
        await client.hello("n1")
        received = (await client.receive()).plan
        assert received == first.batch
        await plain.control.issue({"n1": Plan(version=2, node="n1"), "n2": Plan(version=2, node="n2")})
        newer = Record.FromString(_records((await client.receive()).plan)[0]).plan_issued
        assert Plan.FromString(newer.plan).version == 2
    second = plain.control.plan_for("n1")
    assert second is not None
    chain = FakeChain()
    async with UplinkClient(plain.address) as client:
        await client.hello("n1", plan_hash=second.plan_hash)
        await client.send(chain.next())
        ack = (await client.receive()).ack  # no plan before it
        assert ack.head == plain.control.head() == header_hash(_newest_control(plain).header)


def _records(batch: SignedBatch) -> list[bytes]:
    from bandwitness.chain import read_header, read_payload

    return read_payload(read_header(batch.header), batch.payload)


def _newest_control(plain: Running) -> LogEntry:
    return [entry for entry in plain.log.read(0, 1000) if entry.batch_class == BATCH_CLASS_CONTROL][-1]


# ---------------------------------------------------------------- strangers and limits


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
        (b"", grpc.StatusCode.INVALID_ARGUMENT),
        (UplinkRequest(batch=SignedBatch(header=b"x")).SerializeToString(), grpc.StatusCode.INVALID_ARGUMENT),
        (b"\x0a\x06\x0a\x02n1\x18\x09", grpc.StatusCode.FAILED_PRECONDITION),  # protocol version 9
        (b"\x0a\x09\x0a\x05../..\x18\x01", grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_a_stream_that_begins_wrongly_is_ended_with_a_reason(
    plain: Running, message: bytes, code: grpc.StatusCode
) -> None:
    async with UplinkClient(plain.address) as client:
        await client.call.write(message)
        assert (await client.status())[0] == code
    assert plain.sessions.statistics.refused_streams == {code.name: 1}


async def test_a_stream_without_hello_is_ended(tmp_path: Path) -> None:
    async with running(tmp_path, hello_timeout_s=0.1) as one, UplinkClient(one.address) as client:
        assert await client.status() == (grpc.StatusCode.DEADLINE_EXCEEDED, "no Hello within 0.1 s")


async def test_a_message_over_the_limit_is_refused_and_the_collector_goes_on(plain: Running) -> None:
    chain = FakeChain()
    async with UplinkClient(plain.address) as client:
        await client.hello("n1")
        await client.send(SignedBatch(payload=bytes(MAX_MESSAGE_BYTES + 1)))
        assert (await client.status())[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    async with UplinkClient(plain.address) as client:
        await client.hello("n1")
        await client.send(chain.next())
        await client.acknowledged(1)


async def test_a_batch_in_another_agents_name_ends_the_stream(plain: Running) -> None:
    async with UplinkClient(plain.address) as client:
        await client.hello("n1")
        await client.send(FakeChain("n2").next())
        code, words = await client.status()
    assert (code, words) == (grpc.StatusCode.PERMISSION_DENIED, "this is n1's stream, the batch is of n2")
    assert plain.entries("n2") == []


async def test_an_agent_that_sends_more_than_becomes_durable_is_made_to_wait(plain: Running) -> None:
    """The log stands still; what the collector holds stays bounded while the agent goes on sending."""
    release = asyncio.Event()
    loop = asyncio.get_running_loop()
    write = plain.disk.write
    blocked = asyncio.Event()

    def stuck(descriptor: int, buffers: list[bytes], offset: int) -> None:
        loop.call_soon_threadsafe(blocked.set)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        write(descriptor, buffers, offset)

    chain = FakeChain()
    async with UplinkClient(plain.address) as client:
        await client.hello("n1")
        await client.send(chain.next())
        await client.acknowledged(1)
        plain.disk.write = stuck  # type: ignore[method-assign]
        await client.send(chain.next())
        await blocked.wait()

        async def flood() -> None:
            for _ in range(400):
                await client.send(chain.next([bytes(50_000)]))

        flooding = asyncio.ensure_future(flood())
        session = plain.sessions.get("n1")
        assert session is not None
        await until(lambda: len(session.on_the_way) == IN_FLIGHT_LIMIT)
        for _ in range(20):  # and no more come in
            await asyncio.sleep(0.01)
            assert len(session.on_the_way) == IN_FLIGHT_LIMIT
        assert not flooding.done()
        release.set()
        await flooding
        await client.acknowledged(402)
    assert plain.seqs() == list(range(1, 403))


# ---------------------------------------------------------------- a full disk


async def test_case_41_a_full_disk_ends_streams_and_they_go_on_by_themselves(plain: Running) -> None:
    chain = FakeChain()
    async with UplinkClient(plain.address) as client:
        await client.hello("n1")
        await client.send(chain.next())
        await client.acknowledged(1)
        plain.disk.room = 0
        await client.send(chain.next())
        code, words = await client.status()
        assert code == grpc.StatusCode.UNAVAILABLE
        assert "disk_full" in words
    assert plain.log.failing is not None
    async with UplinkClient(plain.address) as client:  # still full, and a chain nobody knows
        welcome = await client.hello("n1", [chain])
        assert welcome.durable[0].seq == 1
        await client.send(FakeChain(chain_id=b"z" * 16).next())
        assert (await client.status())[0] == grpc.StatusCode.UNAVAILABLE
    plain.disk.room = None
    again = FakeChain()
    again.next()
    async with UplinkClient(plain.address) as client:
        await client.hello("n1", [chain])
        for _ in range(3):
            await client.send(again.next())
        await client.acknowledged(4)
    assert plain.seqs() == [1, 2, 3, 4]
    assert plain.log.failing is None


async def test_case_41_on_a_real_file_system_that_is_full(tmp_path: Path) -> None:
    """16 MB in a mount of its own, so that SQLite meets the full disk too."""
    script = 'mount -t tmpfs -o size=16m tmpfs "$1" && exec "$2" -m tests.fakes.ingest_process "$1"'
    command = ["unshare", "-Urm", "sh", "-c", script, "sh", str(tmp_path), sys.executable]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        try:
            address = "127.0.0.1:" + (await asyncio.to_thread(process.stdout.readline)).decode().strip()
            inside = Path(f"/proc/{process.pid}/root{tmp_path}")
            chain, sent = FakeChain(), list[SignedBatch]()
            await _send_until_refused(address, chain, sent)
            log_file = next((inside / "log/evidence").iterdir())
            full_at = log_file.stat().st_size
            assert full_at > 10_000_000
            await _send_until_refused(address, chain, sent)  # still, and nothing by half
            assert log_file.stat().st_size <= 16 * 1024 * 1024
            resize = ["nsenter", "-t", str(process.pid), "-U", "-m", "--preserve-credentials"]
            subprocess.run([*resize, "mount", "-o", "remount,size=32m", str(tmp_path)], check=True)  # noqa: ASYNC221
            async with UplinkClient(address) as client:
                durable = (await client.hello("n1", [chain])).durable[0].seq
                for batch in sent[durable:]:
                    await client.send(batch)
                await client.acknowledged(len(sent))
        finally:
            process.kill()


async def _send_until_refused(address: str, chain: FakeChain, sent: list[SignedBatch]) -> None:
    """Goes on behind what is durable until the stream is ended."""
    async with UplinkClient(address) as client:
        durable = [tip.seq for tip in (await client.hello("n1", [chain])).durable]
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for number in range(durable[0] if durable else 0, 100):
                if number == len(sent):
                    sent.append(chain.next([bytes(400_000)]))
                await client.send(sent[number])
        assert len(sent) < 100


# ---------------------------------------------------------------- certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    for name, nodes in (("ours", ("n1", "n2")), ("theirs", ("n1",))):
        arguments = ["--collector", "collector", "--address", "127.0.0.1"]
        for node in nodes:
            arguments += ["--node", node]
        tool = [sys.executable, str(ROOT / "deploy/make_certificates.py"), str(directory / name), *arguments]
        subprocess.run(tool, check=True, capture_output=True)
    return directory


def client_credentials(directory: Path, stem: str, ca: str = "ca") -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        (directory / f"{ca}.pem").read_bytes(),
        (directory / f"{stem}.key").read_bytes(),
        (directory / f"{stem}.pem").read_bytes(),
    )


def tls_of(directory: Path, *, ca: str = "ca.pem", key: str = "collector.key") -> Tls:
    return Tls(ca=str(directory / ca), certificate=str(directory / "collector.pem"), key=str(directory / key))


async def test_over_tls_the_certificate_says_who_it_is(tmp_path: Path, certificates: Path) -> None:
    ours = certificates / "ours"
    async with running(tmp_path, server_credentials(tls_of(ours))) as one:
        chain = FakeChain()
        async with UplinkClient(one.address, client_credentials(ours, "n1")) as client:
            await client.hello("n1")
            await client.send(chain.next())
            await client.acknowledged(1)
        (opened,) = [row for entry in one.log.read(0, 10) for row in decode(entry, Definitions()).chains_opened]
        assert len(opened.certificate_sha256) == 32
        async with UplinkClient(one.address, client_credentials(ours, "n2")) as client:
            await client.call.write(b"\x0a\x06\x0a\x02n1\x18\x01")
            code, words = await client.status()
            assert (code, words) == (grpc.StatusCode.PERMISSION_DENIED, "the certificate is of n2, Hello of n1")


async def test_a_certificate_of_another_authority_gets_no_stream(tmp_path: Path, certificates: Path) -> None:
    ours, theirs = certificates / "ours", certificates / "theirs"
    async with running(tmp_path, server_credentials(tls_of(ours))) as one:
        stranger = grpc.ssl_channel_credentials(
            (ours / "ca.pem").read_bytes(), (theirs / "n1.key").read_bytes(), (theirs / "n1.pem").read_bytes()
        )
        for credentials in (stranger, grpc.ssl_channel_credentials((ours / "ca.pem").read_bytes()), None):
            async with UplinkClient(one.address, credentials) as client:
                assert (await client.status())[0] == grpc.StatusCode.UNAVAILABLE


def test_certificate_files_that_cannot_be_used_are_named(tmp_path: Path, certificates: Path) -> None:
    with pytest.raises(TlsError, match=r"collector.tls.ca: .*missing.pem cannot be read: No such file"):
        server_credentials(tls_of(certificates / "ours", ca="missing.pem"))
    with pytest.raises(TlsError, match=r"collector.tls.key: .*collector.pem holds no private key in PEM"):
        server_credentials(tls_of(certificates / "ours", key="collector.pem"))


async def test_an_address_in_use_is_named(plain: Running, tmp_path: Path) -> None:
    ingest = Ingest(plain.log, plain.control, SystemClock(), plain.sessions)
    with pytest.raises(ListenError, match=plain.address):
        await start_server(ingest, plain.address, None)


# ---------------------------------------------------------------- keepalive


async def test_connections_beyond_the_limit_are_turned_away_and_the_others_go_on(tmp_path: Path) -> None:
    async with running(tmp_path, options=server_options(max_connections=2)) as one, contextlib.AsyncExitStack() as held:
        clients = [await held.enter_async_context(UplinkClient(one.address)) for _ in range(2)]
        for number, client in enumerate(clients):
            await client.hello(f"n{number}")
        async with UplinkClient(one.address) as third:
            assert (await third.status())[0] == grpc.StatusCode.UNAVAILABLE
        await clients[0].send(FakeChain("n0").next())
        await clients[0].acknowledged(1)


def test_case_37_what_the_collector_allows_is_at_or_below_what_agents_do() -> None:
    options = dict(server_options())
    assert options["grpc.http2.min_ping_interval_without_data_ms"] <= KEEPALIVE_TIME_MS
    assert options["grpc.keepalive_permit_without_calls"] == 1


async def test_case_37_an_idle_stream_with_pings_outlives_one_to_grpcs_default(tmp_path: Path) -> None:
    """Played at 1 s between pings, the most a client sends, and with one strike allowed: a server with gRPC's own
    minimum of 300 s ends the stream, ours with the same pings does not."""
    strict = [("grpc.http2.max_ping_strikes", 1)]
    pings = [("grpc.keepalive_time_ms", 1000)]
    async with (
        running(tmp_path / "ours", options=server_options(1000) + strict) as ours,
        running(tmp_path / "theirs", options=strict) as theirs,
        UplinkClient(ours.address, options=pings) as kept,
        UplinkClient(theirs.address, options=pings) as cut,
    ):
        await kept.hello("n1")
        await cut.hello("n1")
        assert await cut.status() == (grpc.StatusCode.UNAVAILABLE, "Too many pings")
        await kept.send(FakeChain().next())
        await kept.acknowledged(1)


async def test_a_stream_whose_host_has_vanished_ends_by_keepalive(tmp_path: Path) -> None:
    """Cut right behind a batch, when a ping of gRPC's own is on its way and will never be answered."""
    async with running(tmp_path, options=server_options(1000, 500)) as one:
        proxy, chain = Proxy(int(one.address.rpartition(":")[2])), FakeChain()
        async with proxy.running() as port, UplinkClient(f"127.0.0.1:{port}") as client:
            await client.hello("n1")
            for number in range(20):
                await client.send(chain.next([bytes(100_000)]))
                await client.acknowledged(number + 1)
            await client.send(chain.next())
            await until(lambda: one.seqs() == list(range(1, 22)))
            proxy.cut = True
            await until(lambda: one.sessions.get("n1") is None)
