"""A collector's enrolment and ingest on real ports, over a log in a directory, and what nodes do with them."""

import asyncio
import contextlib
import datetime
import importlib.util
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.config import Address, IdentityFiles, enrolled_files
from agent.enrol.files import Request, keep, make_request
from agent.enrol.issue import enrol
from bandwitness.chain import read_header, read_payload
from bandwitness.v1.record_pb2 import BATCH_CLASS_CONTROL, NodeIdentity, Record, SignedBatch
from bandwitness.v1.uplink_pb2 import IssuedIdentity
from collector.clock import Clock, SystemClock
from collector.config import Tls
from collector.control import Control
from collector.enrol.authority import Authority
from collector.enrol.identities import Identities, Place, RefusedError
from collector.enrol.registry import Registry
from collector.enrol.service import Enrolment, enrolment_server, renewal
from collector.ingest import Ingest, ServerFiles, Sessions, StreamEndError, start_server
from collector.log import Log

_PATH = Path(__file__).parents[2] / "deploy/make_certificates.py"
DAY_NS = 86_400 * 10**9


def make_certificates(directory: Path, nodes: tuple[str, ...] = (), days: int = 30) -> Tls:
    """By the script that operators use, with the authority's key at the collector."""
    spec = importlib.util.spec_from_file_location("make_certificates", _PATH)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make(
        directory,
        collector="collector",
        addresses=["127.0.0.1"],
        nodes=nodes,
        days=days,
        now=datetime.datetime.now(datetime.UTC),
    )
    files = {name: str(directory / f"{name}.pem") for name in ("ca",)}
    return Tls(
        ca=files["ca"],
        certificate=str(directory / "collector.pem"),
        key=str(directory / "collector.key"),
        ca_key=str(directory / "ca.key"),
    )


@dataclass
class Trusting:
    log: Log
    control: Control
    sessions: Sessions
    identities: Identities
    stream: Address
    enrolment: Address
    authority: Authority
    tls: Tls

    def events(self) -> list[NodeIdentity]:
        """Who was let in and put out, by the control chain."""
        found = []
        for entry in self.log.read(0, 10_000):
            if entry.batch_class == BATCH_CLASS_CONTROL:
                batch = SignedBatch(header=entry.header, payload=entry.payload)
                records = [Record.FromString(one) for one in read_payload(read_header(batch.header), batch.payload)]
                found += [one.node_identity for one in records if one.HasField("node_identity")]
        return found

    async def token(self, node: str, ttl_ns: int = DAY_NS) -> str:
        return (await self.identities.create_token("enrol", node, ttl_ns))[1]

    async def ask(self, token: str, request: Request, node: str = "") -> IssuedIdentity:
        """What a node does; raises what it would."""
        ca = self.authority.pem.decode()
        return await asyncio.to_thread(
            enrol, self.enrolment, ca, token=token, node=node, request=request, sleep=lambda _: None
        )

    async def enrolled(self, node: str, state_dir: Path) -> IdentityFiles:
        """A node with its files."""
        request, files = make_request(node), enrolled_files(state_dir)
        issued = await self.ask(await self.token(node), request, node)
        keep(files, request, issued.certificate, issued.ca)
        return files


def credentials(files: IdentityFiles) -> grpc.ChannelCredentials:
    own = files.key.read_bytes()
    return grpc.ssl_channel_credentials(files.ca.read_bytes(), own, files.certificate.read_bytes())


@contextlib.asynccontextmanager
async def trusting(
    directory: Path, tls: Tls, *, key: Ed25519PrivateKey | None = None, clock: Clock | None = None
) -> AsyncIterator[Trusting]:
    """Nodes n1 to n3 are configured."""
    clock, sessions = clock or SystemClock(), Sessions()
    log = Log.open(directory / "log")
    control = Control(log, key or Ed25519PrivateKey.generate(), "collector", clock)
    await control.start([], ["n1", "n2", "n3"])
    registry, authority = Registry(directory / "identity.sqlite"), Authority.load(tls)
    looks: list[Callable[[], None]] = []

    def changed() -> None:
        for look in looks:
            look()

    identities = Identities(registry, control, log, clock, authority=authority, changed=changed)
    await identities.catch_up()
    answer = renewal(identities)

    async def renew(node: str, certificate_sha256: bytes, message: bytes) -> bytes:
        try:
            return await answer(node, certificate_sha256, message)
        except RefusedError as error:
            raise StreamEndError(error.code, error.words) from None

    ingest = Ingest(log, control, clock, sessions, refusal=identities.refusal, renew=renew)
    looks.append(ingest.look)
    server, port = await start_server(ingest, "127.0.0.1:0", ServerFiles(tls).credentials())
    files = ServerFiles(tls, above=authority.pem, ask_clients=False)
    enrolling, enrol_port = await enrolment_server(Enrolment(identities, clock), "127.0.0.1:0", files.credentials())
    identities.place = Place("collector", port, authority.pem)
    try:
        yield Trusting(
            log,
            control,
            sessions,
            identities,
            Address("127.0.0.1", port),
            Address("127.0.0.1", enrol_port),
            authority,
            tls,
        )
    finally:
        await enrolling.stop(0.1)
        await server.stop(0.1)
        await asyncio.to_thread(log.close)
        registry.close()
