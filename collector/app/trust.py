"""Enrolment, renewal and revocation, put together: who is let in, and who is not any longer."""

import asyncio
import logging
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from collector.clock import Clock
from collector.config import Config, Tls, date_faults
from collector.control import Control
from collector.enrol.actions import actions
from collector.enrol.admin import SOCKET_FILE, Admin
from collector.enrol.authority import Authority
from collector.enrol.identities import Identities, Place, RefusedError
from collector.enrol.registry import Registry, RegistryError
from collector.enrol.service import Enrolment, enrolment_server, renewal
from collector.ingest import Ingest, ListenError, ServerFiles, Sessions, StreamEndError
from collector.log import Log

REGISTRY_FILE = "identity.sqlite"
LOOK_EVERY_NS = 2 * 1_000_000_000
NOTE_EVERY = 300  # looks
WARN_BEFORE = timedelta(days=14)

logger = logging.getLogger(__name__)


class Trust:
    """One collector's. ``start`` before anybody is let in.

    Raises:
        RegistryError: its file cannot be used.
        TlsError: likewise those of ``collector.tls``.
    """

    def __init__(self, config: Config, control: Control, log: Log, clock: Clock, sessions: Sessions) -> None:
        self._config = config
        self._tls: Tls | None = config.collector.tls
        self._clock = clock
        self._sessions = sessions
        self._ingest: Ingest | None = None
        self.files = ServerFiles(self._tls) if self._tls is not None else None
        authority = Authority.load(self._tls) if self._tls is not None and self._tls.ca_key is not None else None
        registry = Registry(Path(config.collector.state_dir) / REGISTRY_FILE)
        self.identities = Identities(registry, control, log, clock, authority=authority, changed=self._look)
        self._enrolling: tuple[str, ServerFiles] | None = None
        if self._tls is not None and authority is not None:
            above = ServerFiles(self._tls, above=authority.pem, ask_clients=False)
            self._enrolling = self._tls.enrol_address(config.collector.grpc_listen), above
        self.enrol_address = ""

    def ingest(self, log: Log, control: Control) -> Ingest:
        """The Uplink service, with our word on who is let in."""
        answer = renewal(self.identities)

        async def renew(node: str, certificate_sha256: bytes, message: bytes) -> bytes:
            try:
                return await answer(node, certificate_sha256, message)
            except RefusedError as error:
                raise StreamEndError(error.code, error.words) from None

        self._ingest = Ingest(log, control, self._clock, self._sessions, refusal=self.identities.refusal, renew=renew)
        return self._ingest

    async def start(self, parts: AsyncExitStack, stream_port: int) -> None:
        """Opens the enrolment port, where there is one.

        Raises:
            ListenError: it cannot be had.
        """
        if self._tls is None or self._enrolling is None:
            return
        address, files = self._enrolling
        ca = await asyncio.to_thread(Path(self._tls.ca).read_bytes)
        self.identities.place = Place(self._config.collector.name, stream_port, ca)
        try:
            enrolment = Enrolment(self.identities, self._clock)
            server, port = await enrolment_server(enrolment, address, files.credentials())
        except OSError as error:
            raise ListenError(f"collector.tls.enrol_listen: {error}") from error
        parts.push_async_callback(server.stop, 0.2)
        self.enrol_address = f"{address.rpartition(':')[0]}:{port}"

    async def run(self) -> None:
        """Answers the operator, and ends streams whose certificate counts no more or has ended."""
        nodes = [node.name for node in self._config.nodes]
        asked = actions(
            self.identities,
            nodes=lambda: nodes,
            connected=lambda node: self._sessions.get(node) is not None,
            seen_expiry_ns=self._sessions.expiry_ns.get,
            now_ns=self._clock.wall_ns,
            address=self.enrol_address,
        )
        admin = Admin(Path(self._config.collector.state_dir) / SOCKET_FILE, asked)
        async with asyncio.TaskGroup() as group:
            group.create_task(admin.run())
            group.create_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        looks = 0
        while True:
            await self._clock.sleep_until(self._clock.monotonic_ns() + LOOK_EVERY_NS)
            self._look()
            looks += 1
            if looks % NOTE_EVERY == 0:
                try:
                    await self.identities.note_passed()
                except RegistryError as error:
                    logger.warning("%s", error)

    def _look(self) -> None:
        if self._ingest is not None:
            self._ingest.look()

    # ------------------------------------------------------------ what is said of it

    def expiry_ns(self, node: str) -> int | None:
        """When the certificate of ``node`` ends, as far as is known."""
        found = (self.identities.expiry_ns(node), self._sessions.expiry_ns.get(node))
        return max((one for one in found if one is not None), default=None)

    def warnings(self) -> dict[str, str]:
        """What somebody should look at, by part."""
        now_ns = self._clock.wall_ns()
        now = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)
        words = []
        if self._tls is not None:
            words += [f"collector.tls.{key}: {what}" for key, what in date_faults(self._tls, now + WARN_BEFORE)]
        if self.files is not None and self.files.trouble:
            words.append(self.files.trouble)
        # Agents renew after two thirds of the time: who is past five sixths does not manage to.
        late = []
        for node in self._config.nodes:
            valid = self.identities.registry.valid_of(node.name, now_ns)
            if valid and 6 * (valid[-1].not_after_ns - now_ns) < valid[-1].not_after_ns - valid[-1].issued_ns:
                late.append(node.name)
        if late:
            words.append(f"certificates that end soon and are not renewed: {', '.join(late[:20])}")
        fighting = self._sessions.in_conflict(now_ns)
        if fighting:
            words.append(f"two agents run under one name: {', '.join(fighting[:20])}")
        return {"identity": "; ".join(words)}

    def close(self) -> None:
        self.identities.registry.close()
