"""One stream, from Hello to its end."""

import asyncio
from dataclasses import dataclass

import grpc

from agent.clock import Clock
from agent.plan import KeptPlan, PlanError, PlanKeeper
from agent.spool import Spool
from agent.uplink.channel import UplinkSettings
from agent.uplink.window import Window
from bandwitness import PROTOCOL_VERSION
from bandwitness.v1.record_pb2 import BATCH_CLASS_EVIDENCE, BATCH_CLASS_TELEMETRY, SignedBatch
from bandwitness.v1.uplink_pb2 import Ack, ChainTip, Hello, UplinkRequest, UplinkResponse, Welcome

SEND_ORDER = (BATCH_CLASS_EVIDENCE, BATCH_CLASS_TELEMETRY)
READ_COUNT = 16  # batches read from the spool at a time, so that new evidence soon goes before old telemetry
WATCH_INTERVAL_NS = 5_000_000_000

Stream = grpc.aio.StreamStreamCall[UplinkRequest, UplinkResponse]


@dataclass(frozen=True, slots=True)
class Introduction:
    """Who says Hello."""

    agent_id: str
    software_version: str
    boot_id: bytes
    run_id: bytes


@dataclass(slots=True)
class Contact:
    """What is known of the collector, through all streams."""

    collector_id: str = ""
    last_monotonic_ns: int | None = None  # something came from it
    last_acknowledged_ns: int | None = None  # wall clock
    witnessed_head: bytes = b""
    acknowledged: int = 0  # acknowledgements that were news, since the start
    plan_trouble: str = ""  # why the last plan was not taken


class StreamEndedError(Exception):
    """The stream is over; ``code`` and ``details`` as the collector, or gRPC, gave them."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details


class Session:
    """Sends what the spool holds behind what the collector has, and takes what comes back.

    Args:
        introduction: who we are.
        spool, keeper: where batches come from and plans go to.
        clock: ours.
        contact: kept up to date.
        plans: taken plans are put here; the oldest goes when nobody takes them.
        settings: limits.
    """

    def __init__(
        self,
        *,
        introduction: Introduction,
        spool: Spool,
        keeper: PlanKeeper,
        clock: Clock,
        contact: Contact,
        plans: "asyncio.Queue[KeptPlan]",
        settings: UplinkSettings,
    ) -> None:
        self._introduction = introduction
        self._spool = spool
        self._keeper = keeper
        self._clock = clock
        self._contact = contact
        self._plans = plans
        self._settings = settings
        self._window = Window(settings.window_batches, settings.window_bytes)
        self._room = asyncio.Event()
        self._sent: dict[int, tuple[bytes, int]] = {}  # class -> chain, newest seq sent
        self._progress_ns = 0
        self.welcomed = False

    async def run(self, call: Stream) -> None:
        """Returns never; ends by an exception.

        Raises:
            StreamEndedError: the other end, the network or gRPC ended it.
            TimeoutError: no Welcome, or no acknowledgement for too long.
        """
        async with asyncio.timeout(self._settings.welcome_timeout_s):
            await self._write(call, UplinkRequest(hello=self._hello()))
            first = await self._read(call)
        if not first.HasField("welcome"):
            raise StreamEndedError(grpc.StatusCode.UNIMPLEMENTED, "the first answer was no Welcome")
        await self._welcome(first.welcome)
        # No TaskGroup: one that is cancelled while a child fails reports the child and forgets the cancellation
        # (until Python 3.13), and gRPC fails the others as soon as one is cancelled.
        tasks = [asyncio.create_task(part) for part in (self._send(call), self._receive(call), self._watch())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        done.pop().result()

    def _hello(self) -> Hello:
        who, current = self._introduction, self._keeper.current
        tips = self._spool.tips()
        return Hello(
            agent_id=who.agent_id,
            software_version=who.software_version,
            protocol_version=PROTOCOL_VERSION,
            boot_id=who.boot_id,
            run_id=who.run_id,
            wall_time_ns=self._clock.wall_ns(),
            chain=[
                ChainTip(chain_id=tips[batch_class].chain_id, batch_class=batch_class, seq=tips[batch_class].tip.seq)
                for batch_class in SEND_ORDER
            ],
            plan_hash=current.plan_hash if current else b"",
        )

    # ------------------------------------------------------------ down

    async def _welcome(self, welcome: Welcome) -> None:
        self._heard(welcome.head)
        self._contact.collector_id = welcome.collector_id
        try:
            await asyncio.to_thread(self._keeper.pin, welcome.collector_id, welcome.public_key)
            self._contact.plan_trouble = ""
        except (PlanError, OSError) as error:
            self._contact.plan_trouble = str(error)  # measurements are still sent: mTLS says who takes them
        self._note_forgotten(welcome)
        for durable in welcome.durable:
            tip = self._spool.tips().get(durable.batch_class)
            if tip is None or tip.chain_id != durable.chain_id:
                continue
            if durable.seq > tip.tip.seq:
                why = f"the collector has seq {durable.seq} of this chain, the spool only {tip.tip.seq}: an old copy?"
                await self._spool.renew_chain(durable.batch_class, why)
                continue
            self._sent[durable.batch_class] = (tip.chain_id, durable.seq)
            await self._spool.acknowledge(durable.batch_class, durable.chain_id, durable.seq, self._clock.wall_ns())
        self.welcomed = True

    def _note_forgotten(self, welcome: Welcome) -> None:
        """A collector that has less than was once acknowledged (another one, or one that lost its state) may lack
        definitions that are in the spool no more."""
        has = {(int(durable.batch_class), durable.chain_id): durable.seq for durable in welcome.durable}
        for batch_class, tip in self._spool.tips().items():
            if has.get((batch_class, tip.chain_id), 0) < self._spool.acknowledged(batch_class)[0]:
                self._spool.forgotten.add(batch_class)

    async def _receive(self, call: Stream) -> None:
        while True:
            response = await self._read(call)
            kind = response.WhichOneof("message")
            if kind == "ack":
                await self._acknowledged(response.ack)
            elif kind == "plan":
                self._heard(b"")
                await self._plan(response.plan)

    async def _acknowledged(self, ack: Ack) -> None:
        self._heard(ack.head)
        now_ns = self._clock.wall_ns()
        if self._window.acknowledged(ack.batch_class, ack.chain_id, ack.durable_through_seq):
            self._contact.acknowledged += 1
            self._progress_ns = self._clock.monotonic_ns()
            self._contact.last_acknowledged_ns = now_ns
            self._room.set()
            # Only what this stream sent counts: a number beyond it would throw away what was never received.
            _, newest = self._sent[ack.batch_class]
            seq = min(ack.durable_through_seq, newest)
            await self._spool.acknowledge(ack.batch_class, ack.chain_id, seq, now_ns)

    async def _plan(self, batch: SignedBatch) -> None:
        try:
            kept = await asyncio.to_thread(self._keeper.offer, batch, self._clock.wall_ns())
        except (PlanError, OSError) as error:
            self._contact.plan_trouble = f"a plan was not taken: {error}"
            return
        self._contact.plan_trouble = ""
        if kept is None:
            return
        self._contact.witnessed_head = kept.head
        if self._plans.full():
            self._plans.get_nowait()
        self._plans.put_nowait(kept)

    def _heard(self, head: bytes) -> None:
        self._contact.last_monotonic_ns = self._clock.monotonic_ns()
        if head:
            self._contact.witnessed_head = head

    async def _watch(self) -> None:
        """A collector that takes batches and acknowledges none is as good as away."""
        while True:
            now_ns = self._clock.monotonic_ns()
            oldest_ns = self._window.oldest_sent_ns()
            limit_ns = self._settings.acknowledgement_timeout_ns
            if oldest_ns is not None and now_ns - max(oldest_ns, self._progress_ns) > limit_ns:
                raise TimeoutError("the collector takes batches but acknowledges none")
            await self._clock.sleep_until(now_ns + min(WATCH_INTERVAL_NS, limit_ns))

    # ------------------------------------------------------------ up

    async def _send(self, call: Stream) -> None:
        while True:
            self._spool.appended.clear()  # before reading: what is appended meanwhile wakes us again
            if not await self._send_some(call):
                await self._spool.appended.wait()

    async def _send_some(self, call: Stream) -> bool:
        """Sends the next few batches of the first class that has any; whether there were any."""
        for batch_class in SEND_ORDER:
            chain_id = self._spool.tip(batch_class).chain_id
            known_chain, newest = self._sent.get(batch_class, (chain_id, 0))
            if known_chain != chain_id:  # the spool began a new chain
                newest = 0
            batches = await self._spool.unsent(batch_class, newest, self._settings.window_bytes, READ_COUNT)
            for seq, batch in batches:
                size_bytes = len(batch.header) + len(batch.payload) + len(batch.signature)
                while not self._window.has_room(size_bytes):
                    self._room.clear()
                    await self._room.wait()
                self._sent[batch_class] = (chain_id, seq)
                self._window.sent(batch_class, chain_id, seq, size_bytes, self._clock.monotonic_ns())
                await self._write(call, UplinkRequest(batch=batch))
            if batches:
                return True
        return False

    # ------------------------------------------------------------ gRPC

    async def _write(self, call: Stream, request: UplinkRequest) -> None:
        try:
            await call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            raise await _ended(call) from None

    async def _read(self, call: Stream) -> UplinkResponse:
        try:
            response = await call.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            raise await _ended(call) from None
        if not isinstance(response, UplinkResponse):  # grpc.aio.EOF
            raise await _ended(call)
        return response


async def _ended(call: Stream) -> StreamEndedError:
    code = await call.code()
    details = await call.details() or ""
    return StreamEndedError(code, details or "the collector ended the stream")
