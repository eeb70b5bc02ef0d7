"""One agent's stream: Hello, then batches in and acknowledgements and plans out.

Reading and answering are two tasks. What is read waits in order until it is durable; an acknowledgement covers the
newest of each chain whose predecessors on this stream are durable too. Numbers that were never sent do not hold it
back: an agent whose spool has lost them would send all that follows again for ever. They are a gap on record (the
batch behind them is quarantined), and are welcome later. Reading stops while too much waits: gRPC's
flow control then stops the agent.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

import grpc
from google.protobuf.message import DecodeError

from bandwitness import PROTOCOL_VERSION, VERSION
from bandwitness.v1.record_pb2 import ChainOpened
from bandwitness.v1.uplink_pb2 import Ack, ChainTip, Hello, UplinkRequest, UplinkResponse, Welcome
from collector.clock import Clock
from collector.control import Control
from collector.ingest.chains import AgentChains, ChainBook, Judged, WrongAgentError
from collector.ingest.sessions import Session, Sessions
from collector.log import ChainKey, Log, LogError

IN_FLIGHT_LIMIT = 128
IN_FLIGHT_LIMIT_BYTES = 8 * 1024 * 1024


class StreamEndError(Exception):
    """The stream has to end; the code and the words are for the agent."""

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


class Wire(Protocol):
    """What a stream needs of gRPC: whole messages."""

    def read(self) -> Awaitable[object]: ...
    def write(self, message: bytes) -> Awaitable[None]: ...


@dataclass(slots=True)
class _Taken:
    """A batch that is not acknowledged yet."""

    judged: Judged
    size: int
    future: "asyncio.Future[int] | None"  # None: a duplicate, durable before


class AgentStream:
    """See the module. ``run`` once."""

    def __init__(
        self,
        wire: Wire,
        session: Session,
        hello: Hello,
        *,
        certificate_sha256: bytes,
        log: Log,
        control: Control,
        clock: Clock,
        book: ChainBook,
        sessions: Sessions,
    ) -> None:
        self._wire = wire
        self._session = session
        self._hello = hello
        self._certificate_sha256 = certificate_sha256
        self._log = log
        self._control = control
        self._clock = clock
        self._book = book
        self._statistics = sessions.statistics
        self._chains: AgentChains = book.of(session.agent_id)
        self._appender = log.appender()
        self._taken: deque[_Taken] = deque()
        self._taken_bytes = 0
        self._plan_hash = hello.plan_hash
        self._all_read = False
        self._answer_now = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def run(self) -> None:
        """Returns when the agent has closed its side and everything it sent is answered.

        Raises:
            StreamEndError: the stream has to be ended with this status.
        """
        await self._welcome()
        self._control.subscribe(self._session.agent_id, self._answer_now)
        self._answer_now.set()
        reading, answering, replaced = tasks = (
            asyncio.ensure_future(self._read()),
            asyncio.ensure_future(self._answer()),
            asyncio.ensure_future(self._session.replaced.wait()),
        )
        try:
            await asyncio.wait((reading, answering, replaced), return_when=asyncio.FIRST_COMPLETED)
            if replaced.done():
                raise StreamEndError(*self._session.why)
            if answering.done():
                answering.result()
            reading.result()
            self._all_read = True
            self._answer_now.set()
            await asyncio.wait((answering, replaced), return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            self._control.unsubscribe(self._session.agent_id, self._answer_now)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _welcome(self) -> None:
        durable = self._book.durable(self._session.agent_id)
        tips = []
        for tip in self._hello.chain:
            state = durable.get(ChainKey(self._session.agent_id, tip.chain_id, tip.batch_class))
            if state is not None:
                tips.append(ChainTip(chain_id=tip.chain_id, batch_class=tip.batch_class, seq=state.tip.seq))
        welcome = Welcome(
            collector_id=self._control.name,
            software_version=VERSION,
            protocol_version=PROTOCOL_VERSION,
            public_key=self._control.public_key,
            durable=tips,
            wall_time_ns=self._clock.wall_ns(),
            head=self._control.head(),
        )
        await self._wire.write(UplinkResponse(welcome=welcome).SerializeToString())

    # ---------------------------------------------------------------- in

    async def _read(self) -> None:
        while True:
            await self._room.wait()
            await self._log.room()
            message = await self._wire.read()
            if not isinstance(message, bytes):  # grpc.aio.EOF
                return
            await self._take(message)

    async def _take(self, message: bytes) -> None:
        try:
            request = UplinkRequest.FromString(message)
        except DecodeError:
            raise StreamEndError(grpc.StatusCode.INVALID_ARGUMENT, "not an UplinkRequest") from None
        if request.WhichOneof("message") != "batch":
            raise StreamEndError(grpc.StatusCode.INVALID_ARGUMENT, "after Hello only batches are expected")
        now_ns = self._clock.wall_ns()
        try:
            judged = await self._chains.judge(request.batch, now_ns)
            if judged.first_sight:
                await self._open_chain(judged)
        except WrongAgentError as error:
            raise StreamEndError(grpc.StatusCode.PERMISSION_DENIED, str(error)) from None
        except LogError as error:
            raise _not_durable(error) from None
        future = None if judged.duplicate else self._append(judged)
        self._count(judged, now_ns)
        self._taken.append(_Taken(judged, len(message), future))
        self._taken_bytes += len(message)
        if len(self._taken) >= IN_FLIGHT_LIMIT or self._taken_bytes >= IN_FLIGHT_LIMIT_BYTES:
            self._room.clear()
        if future is None:
            self._answer_now.set()

    def _append(self, judged: Judged) -> "asyncio.Future[int]":
        future = self._appender.append(judged.arrival)
        self._session.on_the_way.add(future)
        future.add_done_callback(lambda done: self._settled(judged, done))
        return future

    def _settled(self, judged: Judged, future: "asyncio.Future[int]") -> None:
        self._session.on_the_way.discard(future)
        if not future.cancelled() and future.exception() is None:
            self._book.became_durable(judged.arrival)
            self._chains.settled(judged.arrival)
        self._answer_now.set()

    async def _open_chain(self, judged: Judged) -> None:
        header = judged.arrival.header
        assert header is not None
        await self._control.open_chain(
            ChainOpened(
                agent_id=header.agent_id,
                chain_id=header.chain_id,
                batch_class=header.batch_class,
                public_key=header.public_key,
                certificate_sha256=self._certificate_sha256,
            )
        )

    def _count(self, judged: Judged, now_ns: int) -> None:
        self._session.last_received_ns = now_ns
        if judged.duplicate:
            self._statistics.duplicates += 1
        elif judged.arrival.quarantine:
            self._statistics.quarantined[str(judged.arrival.quarantine)] += 1
        elif judged.late:
            self._statistics.late += 1
        else:
            self._statistics.new += 1

    # ---------------------------------------------------------------- out

    async def _answer(self) -> None:
        while self._taken or not self._all_read:
            await self._answer_now.wait()
            self._answer_now.clear()
            issued = self._control.plan_for(self._session.agent_id)
            if issued is not None and issued.plan_hash != self._plan_hash:
                self._plan_hash = issued.plan_hash
                await self._wire.write(UplinkResponse(plan=issued.batch).SerializeToString())
            for ack in self._due():
                await self._wire.write(UplinkResponse(ack=ack).SerializeToString())

    def _due(self) -> list[Ack]:
        """Acknowledgements for what is durable, one a chain."""
        acks: dict[ChainKey, Ack] = {}
        head = self._control.head()
        while self._taken and (self._taken[0].future is None or self._taken[0].future.done()):
            taken = self._taken.popleft()
            self._taken_bytes -= taken.size
            failure = taken.future.exception() if taken.future is not None else None
            if isinstance(failure, LogError):
                raise _not_durable(failure)
            arrival = taken.judged.arrival
            if arrival.header is not None:
                acks[arrival.key] = Ack(
                    chain_id=arrival.header.chain_id,
                    batch_class=arrival.header.batch_class,
                    durable_through_seq=arrival.seq,
                    head=head,
                    receive_time_ns=arrival.received_time_ns,
                )
        self._room.set()
        return list(acks.values())


def _not_durable(error: LogError) -> StreamEndError:
    return StreamEndError(grpc.StatusCode.UNAVAILABLE, f"nothing can be made durable here: {error}; send again later")
