"""Who is connected, and what came of it. One event loop writes; any thread may look."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from bandwitness.v1.uplink_pb2 import Hello


@dataclass(slots=True)
class IngestStatistics:
    """Since the start, over all agents."""

    new: int = 0  # handed to the log without a fault
    late: int = 0  # likewise, but the chain had gone on without it or its payload: a recorded gap that was filled
    duplicates: int = 0
    quarantined: Counter[str] = field(default_factory=Counter)  # handed to the log, by fault
    refused_streams: Counter[str] = field(default_factory=Counter)  # by gRPC status


@dataclass(slots=True)
class Session:
    """One stream of one agent."""

    agent_id: str
    software_version: str
    last_received_ns: int  # collector's wall clock; of the Hello or the newest batch
    replaced: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    on_the_way: set["asyncio.Future[int]"] = field(default_factory=set)  # appends whose fate is not known


class Sessions:
    """The streams that are open, at most one an agent."""

    def __init__(self) -> None:
        self.statistics = IngestStatistics()
        self._open: dict[str, Session] = {}
        self._last_received: dict[str, int] = {}

    def get(self, agent_id: str) -> Session | None:
        return self._open.get(agent_id)

    def last_received_ns(self, agent_id: str) -> int | None:
        """When the agent was last heard of since the collector started; None: not yet."""
        session = self._open.get(agent_id)
        return session.last_received_ns if session is not None else self._last_received.get(agent_id)

    async def open(self, hello: Hello, now_ns: int) -> Session:
        """Registers a stream. One that the same agent has open is ended first, and the fate of its batches awaited:
        what the new stream is told about durable numbers must not change behind it."""
        while (old := self._open.get(hello.agent_id)) is not None:
            old.replaced.set()
            await old.ended.wait()
        session = Session(hello.agent_id, hello.software_version, last_received_ns=now_ns)
        self._open[hello.agent_id] = session
        return session

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
