"""Who is connected, and what came of it. One event loop writes; any thread may look."""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field

import grpc

from bandwitness.v1.uplink_pb2 import Hello
from collector.ingest.tls import NOBODY, Identity

CONFLICT_WITHIN_NS = 600 * 1_000_000_000
REPLACED = (grpc.StatusCode.ABORTED, "replaced by a newer stream of the same agent")

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class IngestStatistics:
    """Since the start, over all agents."""

    new: int = 0  # handed to the log without a fault
    late: int = 0  # likewise, but the chain had gone on without it or its payload: a recorded gap that was filled
    duplicates: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)  # handed to the log, by fault
    refused_streams: Counter[str] = field(default_factory=Counter)  # by gRPC status
    conflicts: int = 0  # streams of a node that another process of its name had just replaced


@dataclass(slots=True)
class Session:
    """One stream of one agent."""

    agent_id: str
    software_version: str
    last_received_ns: int  # collector's wall clock; of the Hello or the newest batch
    run_id: bytes = b""
    identity: Identity = NOBODY
    why: tuple[grpc.StatusCode, str] = REPLACED  # of the end, once ``replaced`` is set
    replaced: asyncio.Event = field(default_factory=asyncio.Event)  # it has to end, for another or for another reason
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    on_the_way: set["asyncio.Future[int]"] = field(default_factory=set)  # appends whose fate is not known

    def end(self, code: grpc.StatusCode, words: str) -> None:
        """Has the stream ended, with this status."""
        if not self.replaced.is_set():
            self.why = code, words
            self.replaced.set()


class Sessions:
    """The streams that are open, at most one an agent."""

    def __init__(self) -> None:
        self.statistics = IngestStatistics()
        self._open: dict[str, Session] = {}
        self._last_received: dict[str, int] = {}
        self._conflict_ns: dict[str, int] = {}
        self._turned_out: dict[str, tuple[bytes, int]] = {}  # per agent: run that was replaced last, and when
        self.expiry_ns: dict[str, int] = {}  # of the certificate that each agent last connected with

    def get(self, agent_id: str) -> Session | None:
        return self._open.get(agent_id)

    def last_received_ns(self, agent_id: str) -> int | None:
        """When the agent was last heard of since the collector started; None: not yet."""
        session = self._open.get(agent_id)
        return session.last_received_ns if session is not None else self._last_received.get(agent_id)

    def all(self) -> list[Session]:
        """Those that are open now."""
        return list(self._open.values())

    async def open(self, hello: Hello, now_ns: int, identity: Identity = NOBODY) -> Session:
        """Registers a stream. One that the same agent has open is ended first, and the fate of its batches awaited:
        what the new stream is told about durable numbers must not change behind it.

        The newer one wins, because the older one may be half open, and an agent that was restarted must get in. Two
        processes under one name would take turns for ever: that is counted and said."""
        while (old := self._open.get(hello.agent_id)) is not None:
            if old.run_id != hello.run_id and not old.replaced.is_set():
                self._note_conflict(hello, old, now_ns)
            old.end(*REPLACED)
            await old.ended.wait()
        session = Session(
            hello.agent_id, hello.software_version, last_received_ns=now_ns, run_id=hello.run_id, identity=identity
        )
        self._open[hello.agent_id] = session
        if identity.not_after_ns is not None:
            self.expiry_ns[hello.agent_id] = identity.not_after_ns
        return session

    def _note_conflict(self, hello: Hello, old: Session, now_ns: int) -> None:
        """A run that was turned out comes back and turns out its successor: both live."""
        run_id, at_ns = self._turned_out.get(hello.agent_id, (b"", 0))
        if hello.run_id and run_id == hello.run_id and now_ns - at_ns < CONFLICT_WITHIN_NS:
            self.statistics.conflicts += 1
            if now_ns - self._conflict_ns.get(hello.agent_id, 0) > CONFLICT_WITHIN_NS:
                logger.warning(
                    "two agents run as %s and replace each other's streams: stop one of them", hello.agent_id
                )
            self._conflict_ns[hello.agent_id] = now_ns
        self._turned_out[hello.agent_id] = old.run_id, now_ns

    def in_conflict(self, now_ns: int) -> list[str]:
        """Agents of whom two have run in the last minutes."""
        return sorted(name for name, at_ns in self._conflict_ns.items() if now_ns - at_ns < CONFLICT_WITHIN_NS)

    async def close(self, session: Session) -> None:
        """Unregisters a stream once the fate of its batches is known."""
        try:
            while session.on_the_way:
                await asyncio.wait(set(session.on_the_way))
        finally:
            self._last_received[session.agent_id] = session.last_received_ns
            if self._open.get(session.agent_id) is session:
                del self._open[session.agent_id]
            session.ended.set()
