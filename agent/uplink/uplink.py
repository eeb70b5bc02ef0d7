"""Tries the collectors in turn, for ever."""

import asyncio
import random
from collections.abc import Sequence

from agent.clock import Clock
from agent.config import Address, IdentityFiles
from agent.plan import KeptPlan, PlanKeeper
from agent.result import PartState
from agent.spool import Spool
from agent.uplink import diagnosis
from agent.uplink.channel import Backoff, PlainTextRefusedError, UplinkSettings, open_channel
from agent.uplink.diagnosis import Trouble
from agent.uplink.session import SEND_ORDER, Contact, Introduction, Session, StreamEndedError
from bandwitness.v1.uplink_pb2_grpc import UplinkStub

MAX_PLANS = 4
PLAIN_TEXT = "plain text is for a collector on this host only: give agent.identity, or a loopback address"


class Uplink:
    """The agent's side of the one stream.

    Args:
        introduction: who says Hello.
        collectors: tried in this order, each time from the first.
        identity: mTLS files; None: plain text, loopback only.
        spool, keeper: where batches come from and plans go to.
        clock: ours; waits between attempts go by it.
        source: of the jitter.
        settings: times and limits.
    """

    def __init__(
        self,
        *,
        introduction: Introduction,
        collectors: Sequence[Address],
        identity: IdentityFiles | None,
        spool: Spool,
        keeper: PlanKeeper,
        clock: Clock,
        source: random.Random,
        settings: UplinkSettings | None = None,
    ) -> None:
        assert collectors
        self._introduction = introduction
        self._collectors = collectors
        self._identity = identity
        self._spool = spool
        self._keeper = keeper
        self._clock = clock
        self._settings = settings or UplinkSettings()
        self._backoff = Backoff(source, self._settings.backoff_first_ns, self._settings.backoff_max_ns)
        self._keepalive_time_ms = self._settings.keepalive_time_ms
        self._contact = Contact()
        self._connected: Address | None = None
        self._trouble = Trouble("connecting", "no stream yet")
        self._session: Session | None = None
        self.plans: asyncio.Queue[KeptPlan] = asyncio.Queue(MAX_PLANS)
        self._remember()

    def _remember(self) -> None:
        """Takes over from the run before when the collector last acknowledged something: a restart is no contact."""
        times = [at_ns for at_ns in (self._spool.acknowledged(batch_class)[1] for batch_class in SEND_ORDER) if at_ns]
        if times:
            self._contact.last_acknowledged_ns = max(times)
            away_ns = max(0, self._clock.wall_ns() - max(times))
            self._contact.last_monotonic_ns = self._clock.monotonic_ns() - away_ns
        if self._keeper.current is not None:
            self._contact.witnessed_head = self._keeper.current.head

    # ------------------------------------------------------------ what others ask

    @property
    def connected(self) -> bool:
        """Whether a collector has welcomed us on a stream that stands."""
        return self._session is not None and self._session.welcomed

    @property
    def last_contact_monotonic_ns(self) -> int | None:
        """When something last came from a collector; may lie before the start; None: never."""
        return self._contact.last_monotonic_ns

    def offline_ns(self) -> int:
        """How long the collector has been away; 0 while connected. Never in contact counts as away since for ever."""
        if self.connected:
            return 0
        last_ns = self._contact.last_monotonic_ns
        return 1 << 62 if last_ns is None else max(0, self._clock.monotonic_ns() - last_ns)

    @property
    def witnessed_head(self) -> bytes:
        """Hash of the newest control header seen; empty before the first."""
        return self._contact.witnessed_head

    def state(self) -> PartState:
        """For the agent's status."""
        contact = self._contact
        last = "nothing acknowledged yet"
        if contact.last_acknowledged_ns is not None:
            away_s = max(0, self._clock.wall_ns() - contact.last_acknowledged_ns) / 1e9
            last = f"last acknowledgement {away_s:.0f} s ago"
        if self.connected:
            if contact.plan_trouble:
                return PartState("uplink", False, "plan_refused", f"{contact.plan_trouble}; {last}")
            return PartState("uplink", True, "connected", f"to {contact.collector_id} at {self._connected}; {last}")
        return PartState("uplink", False, self._trouble.state, f"{self._trouble.detail}; {last}")

    # ------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Never returns. Nothing that the network or a collector does ends it."""
        while True:
            for address in self._collectors:
                acknowledged = self._contact.acknowledged
                welcomed = await self._attempt(address)
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise asyncio.CancelledError  # gRPC may report its own end in place of our cancellation
                if self._contact.acknowledged > acknowledged:
                    self._backoff.reset()
                if welcomed:
                    break  # it worked until now: begin again with the first
            wait_ns = self._backoff.next_ns()
            await self._clock.sleep_until(self._clock.monotonic_ns() + wait_ns)

    async def _attempt(self, address: Address) -> bool:
        """One stream from beginning to end; whether it got as far as a Welcome. Leaves behind why it ended."""
        self._connected = address
        session = Session(
            introduction=self._introduction,
            spool=self._spool,
            keeper=self._keeper,
            clock=self._clock,
            contact=self._contact,
            plans=self.plans,
            settings=self._settings,
        )
        self._session = session
        try:
            async with open_channel(address, self._identity, self._settings, self._keepalive_time_ms) as channel:
                call = UplinkStub(channel).Stream()  # type: ignore[no-untyped-call]
                try:
                    await session.run(call)
                finally:
                    call.cancel()
        except StreamEndedError as ended:
            self._session = None
            self._trouble = await self._explain(ended, address, look=not session.welcomed)
        except TimeoutError as error:
            self._session = None
            seen = None if session.welcomed else await self._look(address)
            self._trouble = seen or Trouble("no_answer", f"{address}: {str(error) or 'no Welcome in time'}")
        except PlainTextRefusedError:
            self._trouble = Trouble("plain_text_refused", f"{address}: {PLAIN_TEXT}")
        except OSError as error:
            self._trouble = Trouble("identity_unreadable", f"{error.filename}: {error.strerror or error}")
        finally:
            self._session = None
        return session.welcomed

    async def _look(self, address: Address) -> Trouble | None:
        return await diagnosis.look(address, self._identity, self._clock.wall_ns(), self._settings.look_timeout_s)

    async def _explain(self, ended: StreamEndedError, address: Address, *, look: bool) -> Trouble:
        if diagnosis.too_many_pings(ended.details):
            # The server's minimum is not told; gRPC's own answer is to double as well (proposal A8).
            self._keepalive_time_ms = min(2 * self._keepalive_time_ms, self._settings.keepalive_time_max_ms)
        trouble = diagnosis.of_status(ended.code, ended.details)
        if trouble is None and look:
            trouble = await self._look(address)
        return trouble or Trouble("connecting", f"the stream to {address} ended: {ended.details}")
