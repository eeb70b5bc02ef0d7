"""The collector's own signed chain: what it planned, fixed and saw first, written before it takes effect.

The only writer of class CONTROL. The chain lies in the same log as those of the agents; after a restart the newest
plan of each node and the windows in force are read back from it.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bandwitness import VERSION
from bandwitness.chain import ORIGIN, ChainError, Tip, header_hash, read_header, read_payload, seal
from bandwitness.identity import canonical
from bandwitness.v1.plan_pb2 import Plan, TestPause
from bandwitness.v1.record_pb2 import (
    BATCH_CLASS_CONTROL,
    ChainOpened,
    CollectorStarted,
    Header,
    PlanIssued,
    Record,
    SignedBatch,
    TestsPaused,
    WindowsFixed,
)
from collector.clock import Anchor, Clock
from collector.log import Appender, Arrival, ChainKey, Log

DAY_NS = 86_400 * 1_000_000_000
LOOK_BACK_NS = 8 * DAY_NS  # what was said earlier is said again
_LOOK_BACK_BATCHES = 20_000
_CHUNK = 200


@dataclass(frozen=True, slots=True)
class IssuedPlan:
    """A plan as written: the batch that carries it, and what is known of it without reading it again."""

    node: str
    batch: SignedBatch
    plan: Plan
    plan_hash: bytes  # SHA-256 of the plan's bytes, as in Header.plan_hash and Hello.plan_hash


class Control:
    """Writes and remembers the control chain. One event loop."""

    def __init__(
        self,
        log: Log,
        key: Ed25519PrivateKey,
        name: str,
        clock: Clock,
        *,
        configuration_hash: bytes = b"",
        boot_id: bytes = bytes(16),
    ) -> None:
        """Takes up the chain of this name and key where the log has it, or begins one."""
        self.name = name
        self.public_key = key.public_key().public_bytes_raw()
        self._log = log
        self._key = key
        self._clock = clock
        self._configuration_hash = configuration_hash
        self._boot_id = boot_id
        self._run_id = secrets.token_bytes(16)
        self.nodes: frozenset[str] = frozenset()  # those that the configuration names
        self._plans: dict[str, IssuedPlan] = {}
        self._pauses: dict[str, TestsPaused] = {}  # by site, empty for everywhere: the newest word
        self._listeners: dict[str, set[asyncio.Event]] = {}
        own = {
            chain: state
            for chain, state in log.tips().items()
            if chain.agent_id == name
            and chain.batch_class == BATCH_CLASS_CONTROL
            and state.public_key == self.public_key
        }
        self._chain = max(own, key=lambda chain: own[chain].tip.seq, default=None) or ChainKey(
            name, secrets.token_bytes(16), BATCH_CLASS_CONTROL
        )
        self._durable: Tip = own[self._chain].tip if self._chain in own else ORIGIN
        self._tip: Tip = self._durable  # ahead of the durable one while batches are on their way
        self._appender: Appender = log.appender()

    def head(self) -> bytes:
        """Hash of the newest durable control header; empty before the first."""
        return self._durable.header_hash

    @property
    def key(self) -> ChainKey:
        """Where this chain lies in the log."""
        return self._chain

    @property
    def next_seq(self) -> int:
        """Of the batch to come."""
        return self._tip.seq + 1

    async def write(self, records: Sequence[Record]) -> SignedBatch:
        """Signs ``records`` as the next control batch; returns once it is durable.

        Raises:
            LogError: it could not be made durable and was not written; nothing may take effect.
        """
        for record in records:
            record.salt = record.salt or secrets.token_bytes(16)
        anchor = self._clock.anchor()
        now_ns, header = anchor.wall_ns, self._header(anchor)
        batch = seal(header, [record.SerializeToString() for record in records], self._tip, self._key.sign)
        tip = Tip(self._tip.seq + 1, header_hash(batch.header))
        appender = self._appender
        future = appender.append(Arrival(now_ns, self.name, "", batch, header, tip.header_hash))
        self._tip = tip
        future.add_done_callback(lambda done: self._settled(done, tip, appender))
        await asyncio.shield(future)  # on its way it cannot be taken back
        return batch

    async def start(self, windows: Sequence[WindowsFixed], nodes: Sequence[str]) -> None:
        """Writes that the collector started, and the windows that are not in force yet; takes up plans in force.

        Raises:
            LogError: as ``write``.
        """
        self.nodes = frozenset(nodes)
        in_force = await asyncio.to_thread(self._look_back, {site.site for site in windows}, set(nodes))
        records = [self._started()]
        records += [Record(windows_fixed=fixed) for fixed in windows if in_force.get(fixed.site) != fixed]
        await self.write(records)

    async def resumed(self) -> None:
        """Writes that the collector begins to listen anew, after it had stood still: as after a start.

        Raises:
            LogError: as ``write``.
        """
        await self.write([self._started()])

    def _started(self) -> Record:
        return Record(
            collector_started=CollectorStarted(
                collector_id=self.name, configuration_hash=self._configuration_hash, software_version=VERSION
            )
        )

    async def open_chain(self, opened: ChainOpened) -> None:
        """Writes the first sight of a chain; its batches may be acknowledged afterwards.

        Raises:
            LogError: as ``write``.
        """
        await self.write([Record(chain_opened=opened)])

    async def issue(self, plans: Mapping[str, Plan]) -> None:
        """Writes plans, each in a batch of its own, and lets the streams of their nodes know.

        Raises:
            LogError: as ``write``; plans written before the failure are in force.
        """
        results = await asyncio.gather(
            *[self._issue(node, plan) for node, plan in plans.items()], return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def say_pauses(self, words: Sequence[TestsPaused]) -> None:
        """Writes that tests pause or go on; in force once this returns.

        Raises:
            LogError: as ``write``.
        """
        await self.write([Record(tests_paused=said) for said in words])
        self._pauses.update({said.site: said for said in words})

    def pauses(self, site: str | None, now_ns: int) -> list[TestPause]:
        """What holds at ``now_ns`` for a site (None: for any), everywhere first; also after a restart."""
        return [
            TestPause(site=said.site, time_ns=said.time_ns, until_time_ns=said.until_time_ns, reason=said.reason)
            for said in sorted(self._pauses.values(), key=lambda said: said.site)
            if said.paused
            and (site is None or said.site in ("", site))
            and (not said.until_time_ns or now_ns < said.until_time_ns)
        ]

    def plan_for(self, node: str) -> IssuedPlan | None:
        """The newest plan written for ``node``, also before a restart."""
        return self._plans.get(node)

    def plans(self) -> Mapping[str, IssuedPlan]:
        """The newest plan of each node."""
        return self._plans

    def subscribe(self, node: str, event: asyncio.Event) -> None:
        """Sets ``event`` whenever a new plan for ``node`` is durable."""
        self._listeners.setdefault(node, set()).add(event)

    def unsubscribe(self, node: str, event: asyncio.Event) -> None:
        self._listeners.get(node, set()).discard(event)

    async def _issue(self, node: str, plan: Plan) -> None:
        encoded = canonical(plan)
        batch = await self.write([Record(plan_issued=PlanIssued(node=node, plan=encoded))])
        self._plans[node] = IssuedPlan(node, batch, plan, sha256(encoded).digest())
        for event in self._listeners.get(node, ()):
            event.set()

    def _settled(self, future: asyncio.Future[int], tip: Tip, appender: Appender) -> None:
        if future.exception() is None:
            self._durable = tip
        elif self._appender is appender:  # the first to fail; those behind it fail with the same appender
            self._appender = self._log.appender()
            self._tip = self._durable

    def _header(self, anchor: Anchor) -> Header:
        header = Header(
            agent_id=self.name,
            chain_id=self._chain.chain_id,
            batch_class=BATCH_CLASS_CONTROL,
            public_key=self.public_key,
            boot_id=self._boot_id,
            run_id=self._run_id,
            first_event_time_ns=anchor.wall_ns,
            last_event_time_ns=anchor.wall_ns,
            configuration_hash=self._configuration_hash,
            software_version=VERSION,
        )
        header.anchor.wall_time_ns = anchor.wall_ns
        header.anchor.monotonic_ns = anchor.monotonic_ns
        header.anchor.boottime_ns = anchor.boottime_ns
        return header

    def _look_back(self, sites: set[str], nodes: set[str]) -> dict[str, WindowsFixed]:
        """Newest plans and windows, newest batch first, until all are found or it is too long ago."""
        found: dict[str, WindowsFixed] = {}
        oldest_ns = self._clock.wall_ns() - LOOK_BACK_NS
        before, looked_at = self._tip.seq + 1, 0
        while before > 1 and looked_at < _LOOK_BACK_BATCHES:
            entries = self._log.newest_of(self._chain, before, _CHUNK)
            for entry in entries:
                batch = SignedBatch(header=entry.header, payload=entry.payload, signature=entry.signature)
                self._take_up(batch, sites, nodes, found)
            if not entries or entries[-1].received_time_ns < oldest_ns:
                break
            if sites <= found.keys() and nodes <= self._plans.keys():
                break
            before, looked_at = entries[-1].seq, looked_at + len(entries)
        return found

    def _take_up(self, batch: SignedBatch, sites: set[str], nodes: set[str], found: dict[str, WindowsFixed]) -> None:
        try:
            records = read_payload(read_header(batch.header), batch.payload)
        except ChainError:  # pruned, or damaged on disk: older ones are asked
            return
        for encoded in records:
            record = Record.FromString(encoded)
            issued, fixed = record.plan_issued, record.windows_fixed
            if record.HasField("tests_paused"):
                self._pauses.setdefault(record.tests_paused.site, record.tests_paused)
            if record.HasField("plan_issued"):
                self._take_up_pauses(issued)
            if record.HasField("plan_issued") and issued.node in nodes and issued.node not in self._plans:
                plan = Plan.FromString(issued.plan)
                self._plans[issued.node] = IssuedPlan(issued.node, batch, plan, sha256(issued.plan).digest())
            elif record.HasField("windows_fixed") and fixed.site in sites:
                found.setdefault(fixed.site, fixed)

    def _take_up_pauses(self, issued: PlanIssued) -> None:
        """Plans say what pauses, so a word that was written before the newest plans is found without going back to it.
        What has been said of a site since stands."""
        for pause in Plan.FromString(issued.plan).pause:
            said = TestsPaused(
                site=pause.site,
                paused=True,
                time_ns=pause.time_ns,
                until_time_ns=pause.until_time_ns,
                reason=pause.reason,
            )
            self._pauses.setdefault(pause.site, said)
