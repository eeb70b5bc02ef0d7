"""Backoff, window and diagnosis; the stream itself is in ``tests/integration``."""

import asyncio
import random
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import grpc
import pytest

from agent.config import Address, IdentityFiles
from agent.plan import PlanKeeper
from agent.record import SealedBatch
from agent.spool import Limits, Spool
from agent.uplink import Introduction, Uplink, UplinkSettings
from agent.uplink.channel import Backoff
from agent.uplink.diagnosis import look, of_error, of_status, too_many_pings
from agent.uplink.session import Contact, Session, Stream
from agent.uplink.window import Window
from bandwitness import chain
from bandwitness.v1 import record_pb2 as pb
from bandwitness.v1.uplink_pb2 import Ack, UplinkRequest, UplinkResponse, Welcome
from tests.fakes.batches import FakeChain
from tests.fakes.clock import FakeClock

SECOND = 1_000_000_000
ADDRESS = Address("10.0.0.1", 7443)
FILES = IdentityFiles(Path("/k/ca.pem"), Path("/k/a.pem"), Path("/k/a.key"), "")
EVIDENCE, TELEMETRY = pb.BATCH_CLASS_EVIDENCE, pb.BATCH_CLASS_TELEMETRY


# ---------------------------------------------------------------- backoff


def test_waits_are_random_up_to_a_bound_that_doubles_to_a_limit() -> None:
    waits = [[Backoff(random.Random(seed), SECOND // 2, 60 * SECOND) for seed in range(200)]]
    drawn = [[backoff.next_ns() for backoff in waits[0]] for _ in range(12)]
    bounds = [min(60.0, 0.5 * 2**i) for i in range(12)]
    for row, bound_s in zip(drawn, bounds, strict=True):
        assert max(row) <= bound_s * SECOND
        assert max(row) > 0.9 * bound_s * SECOND
        assert min(row) < 0.1 * bound_s * SECOND  # full jitter: agents do not come back in step


def test_success_starts_the_backoff_anew() -> None:
    backoff = Backoff(random.Random(1), SECOND // 2, 60 * SECOND)
    for _ in range(100):
        backoff.next_ns()
    backoff.reset()
    assert backoff.next_ns() <= SECOND // 2


# ---------------------------------------------------------------- window


def test_the_window_is_bounded_by_batches_and_by_bytes() -> None:
    window = Window(max_batches=3, max_bytes=1_000)
    assert window.has_room(5_000)  # one always fits
    window.sent(EVIDENCE, b"e", 1, 600, 10)
    assert window.has_room(400)
    assert not window.has_room(401)
    window.sent(TELEMETRY, b"t", 1, 10, 20)
    window.sent(TELEMETRY, b"t", 2, 10, 30)
    assert not window.has_room(1)
    assert window.oldest_sent_ns() == 10
    assert window.acknowledged(TELEMETRY, b"t", 2)
    assert window.has_room(380)
    assert window.acknowledged(EVIDENCE, b"e", 1)
    assert window.oldest_sent_ns() is None


def test_acknowledgements_of_nothing_in_flight_are_no_news() -> None:
    window = Window(3, 1_000)
    window.sent(EVIDENCE, b"e", 5, 10, 1)
    assert not window.acknowledged(EVIDENCE, b"e", 4)
    assert not window.acknowledged(EVIDENCE, b"x", 5)
    assert not window.acknowledged(TELEMETRY, b"e", 5)
    assert window.acknowledged(EVIDENCE, b"e", 9)
    assert not window.acknowledged(EVIDENCE, b"e", 9)


def test_a_new_chain_forgets_what_is_in_flight_of_the_old() -> None:
    window = Window(2, 1_000)
    window.sent(EVIDENCE, b"old", 8, 500, 1)
    window.sent(EVIDENCE, b"old", 9, 500, 2)
    assert not window.has_room(1)
    window.sent(EVIDENCE, b"new", 1, 10, 3)
    assert window.has_room(900)
    assert window.oldest_sent_ns() == 3


# ---------------------------------------------------------------- one stream, without a network


class FakeStream:
    """The collector's end: what the test tells it to answer; keeps what was sent."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[UplinkResponse] = asyncio.Queue()
        self.sent: list[UplinkRequest] = []
        self.changed = asyncio.Event()

    async def write(self, request: UplinkRequest) -> None:
        self.sent.append(request)
        self.changed.set()

    async def read(self) -> UplinkResponse:
        return await self.answers.get()

    async def until_sent(self, seq: int) -> None:
        """Waits for the batch with that number, the first being 1; before them goes the Hello."""
        while len(self.sent) < 1 + seq:
            self.changed.clear()
            await self.changed.wait()


@pytest.mark.parametrize("through_seq", [1_000_000, 5, 3])
async def test_an_acknowledgement_beyond_what_was_sent_covers_only_what_was_sent(
    tmp_path: Path, through_seq: int
) -> None:
    """A collector that acknowledges what it cannot have must not make the agent throw that away."""
    clock = FakeClock()
    spool = Spool(tmp_path / "spool.sqlite", Limits(), wall_ns=clock.wall_ns)
    await spool.open()
    own = FakeChain(chain_id=spool.tip(EVIDENCE).chain_id)
    await spool.append([as_sealed(own.next()) for _ in range(5)])
    stream = FakeStream()
    stream.answers.put_nowait(UplinkResponse(welcome=Welcome(collector_id="c", public_key=own.public_key)))
    session = Session(
        introduction=Introduction("n1", "0.1.0", b"B" * 16, b"R" * 16),
        spool=spool,
        keeper=PlanKeeper(tmp_path, "n1"),
        clock=clock,
        contact=Contact(),
        plans=asyncio.Queue(1),
        settings=UplinkSettings(window_batches=2),
    )
    running = asyncio.create_task(session.run(cast("Stream", stream)))
    try:
        async with asyncio.timeout(10):
            await stream.until_sent(2)  # the window is full
            ack = Ack(batch_class=EVIDENCE, chain_id=own.chain_id, durable_through_seq=through_seq)
            stream.answers.put_nowait(UplinkResponse(ack=ack))
            await stream.until_sent(4)
            while not spool.acknowledged(EVIDENCE)[0]:  # noqa: ASYNC110 - noted in the spool's thread
                await asyncio.sleep(0)
        assert spool.acknowledged(EVIDENCE)[0] == 2
        assert [seq for seq, _ in await spool.unsent(EVIDENCE, 0, 1 << 20)] == [3, 4, 5]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await spool.close()


def as_sealed(batch: pb.SignedBatch) -> SealedBatch:
    header = chain.read_header(batch.header)
    return SealedBatch(
        batch_class=header.batch_class,
        chain_id=header.chain_id,
        seq=header.seq,
        header=batch.header,
        payload=batch.payload,
        signature=batch.signature,
        previous_header_hash=header.previous_header_hash,
        first_event_time_ns=header.first_event_time_ns,
        last_event_time_ns=header.last_event_time_ns,
        newest_event_time_ns=header.last_event_time_ns,
        records=header.record_count,
    )


# ---------------------------------------------------------------- diagnosis


def verification(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "why"
    return error


def tls(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "state", "cure"),
    [
        (verification(10), "collector_expired", "make it a new one"),
        (verification(9), "clock", "is the clock of this host right"),
        (verification(62), "wrong_name", "does not name 10.0.0.1: make it with that --address"),
        (verification(64), "wrong_name", "agent.identity.server_name"),
        (verification(20), "unknown_ca", "not from the authority in /k/ca.pem: copy the ca.pem"),
        (verification(19), "unknown_ca", "copy the ca.pem"),
        (verification(99), "collector_untrusted", "why"),
        (tls("WRONG_VERSION_NUMBER"), "not_tls", "collector.tls"),
        (tls("TLSV1_ALERT_UNKNOWN_CA"), "certificate_refused", "does not accept /k/a.pem (tlsv1 alert unknown ca)"),
        (tls("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "certificate_refused", "/k/a.pem"),
        (tls("NO_SHARED_CIPHER"), "tls", "NO_SHARED_CIPHER"),
        (socket.gaierror(-2, "Name or service not known"), "dns", "cannot be resolved"),
        (ConnectionRefusedError(), "connection_refused", "nothing listens at 10.0.0.1:7443"),
        (TimeoutError(), "no_answer", "routes and firewalls"),
        (ConnectionResetError(), "closed", "is that a collector with collector.tls?"),
        (asyncio.IncompleteReadError(b"", 1), "closed", "closes the connection at once"),
        (OSError(113, "No route to host"), "unreachable", "No route to host"),
    ],
)
def test_a_failed_handshake_is_named_with_its_cure(error: Exception, state: str, cure: str) -> None:
    trouble = of_error(error, ADDRESS, FILES)
    assert trouble.state == state
    assert cure in trouble.detail


@pytest.mark.parametrize(
    ("code", "details", "state"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "agent_id is not the name in the certificate", "unauthenticated"),
        (grpc.StatusCode.UNAUTHENTICATED, "no certificate", "unauthenticated"),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found", "incompatible"),
        (grpc.StatusCode.FAILED_PRECONDITION, "protocol 2 wanted", "refused"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "message too large", "failed"),
        (grpc.StatusCode.UNAVAILABLE, "GOAWAY received; Debug Text: too_many_pings", "too_many_pings"),
    ],
)
def test_a_refusal_keeps_the_collectors_words(code: grpc.StatusCode, details: str, state: str) -> None:
    trouble = of_status(code, details)
    assert trouble is not None
    assert trouble.state == state
    assert state == "too_many_pings" or details in trouble.detail


def test_an_unavailable_collector_is_for_the_connection_to_be_looked_at() -> None:
    assert of_status(grpc.StatusCode.UNAVAILABLE, "Socket closed") is None
    assert too_many_pings("Too many pings")
    assert not too_many_pings("Socket closed")


async def test_identity_files_that_cannot_serve_are_named_before_any_connection(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path / "ca.pem", tmp_path / "a.pem", tmp_path / "a.key", "")
    trouble = await look(ADDRESS, files, 0)
    assert trouble is not None
    assert (trouble.state, str(tmp_path / "ca.pem") in trouble.detail) == ("identity_unreadable", True)
    for path in (files.ca, files.certificate, files.key):
        path.write_text("not PEM")
    trouble = await look(ADDRESS, files, 0)
    assert trouble is not None
    assert trouble.state == "identity_unreadable"
    assert "not a certificate in PEM" in trouble.detail


# ---------------------------------------------------------------- the loop, without a network


@asynccontextmanager
async def uplink(directory: Path, clock: FakeClock, identity: IdentityFiles | None = None) -> AsyncIterator[Uplink]:
    spool = Spool(directory / "spool.sqlite", Limits(), wall_ns=clock.wall_ns)
    await spool.open()
    try:
        yield Uplink(
            introduction=Introduction("gpu-r1-01", "0.1.0", b"B" * 16, b"R" * 16),
            collectors=[ADDRESS, Address("10.0.0.2", 7443)],
            identity=identity,
            spool=spool,
            keeper=PlanKeeper(directory, "gpu-r1-01"),
            clock=clock,
            source=random.Random(5),
        )
    finally:
        await spool.close()


async def test_plain_text_leaves_this_host_never(tmp_path: Path) -> None:
    clock = FakeClock()
    async with uplink(tmp_path, clock) as subject, asyncio.timeout(10):
        running = asyncio.create_task(subject.run())
        while not clock.sleepers:  # noqa: ASYNC110 - the fake has no event for it
            await asyncio.sleep(0)
        assert not subject.connected
        state = subject.state()
        assert (state.working, state.state) == (False, "plain_text_refused")
        assert "give agent.identity" in state.detail
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_missing_identity_files_are_a_state_and_tried_again(tmp_path: Path) -> None:
    clock = FakeClock()
    files = IdentityFiles(tmp_path / "ca.pem", tmp_path / "a.pem", tmp_path / "a.key", "")
    async with uplink(tmp_path, clock, files) as subject, asyncio.timeout(10):
        running = asyncio.create_task(subject.run())
        for _ in range(3):
            while not clock.sleepers:  # noqa: ASYNC110 - the fake has no event for it
                await asyncio.sleep(0)
            assert subject.state().state == "identity_unreadable"
            assert str(files.ca) in subject.state().detail
            await clock.advance(60 * SECOND)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_agent_that_never_had_contact_counts_as_away_for_ever(tmp_path: Path) -> None:
    async with uplink(tmp_path, FakeClock()) as subject:
        assert subject.last_contact_monotonic_ns is None
        assert subject.offline_ns() > 365 * 86_400 * SECOND
        assert "nothing acknowledged yet" in subject.state().detail


async def test_a_restart_is_no_contact(tmp_path: Path) -> None:
    """The offline grace of throughput tests runs on from the last acknowledgement before the restart."""
    clock = FakeClock()
    spool = Spool(tmp_path / "spool.sqlite", Limits(), wall_ns=clock.wall_ns)
    await spool.open()
    await spool.acknowledge(EVIDENCE, spool.tip(EVIDENCE).chain_id, 0, clock.wall_ns())
    await spool.append([])
    await spool.close()
    clock.move(3600 * SECOND)
    async with uplink(tmp_path, clock) as subject:
        assert subject.offline_ns() == 3600 * SECOND
        assert "last acknowledgement 3600 s ago" in subject.state().detail
