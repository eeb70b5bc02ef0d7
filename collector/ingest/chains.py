"""The chains of one agent while its stream is open: judges each batch against the ones before it.

States run ahead of the disk, because the next batch links to one that may still be on its way. They belong to one
stream: when an append fails the stream ends, and the next one begins from what is durable.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bandwitness.chain import (
    ORIGIN,
    ChainError,
    ChainFault,
    Tip,
    check_signature,
    header_hash,
    read_payload,
)
from bandwitness.v1.record_pb2 import BATCH_CLASS_EVIDENCE, BATCH_CLASS_TELEMETRY, Header, SignedBatch
from collector.ingest.cursor import DUPLICATE, UNTRUSTED, Stored, Verdict, completes, is_known, place
from collector.log import Arrival, ChainKey, ChainState, Kept, Log
from collector.log.entry import moves_tip, payload_stands, readable_header

AGENT_CLASSES = (BATCH_CLASS_EVIDENCE, BATCH_CLASS_TELEMETRY)


class WrongAgentError(ValueError):
    """A batch in another agent's name."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A batch with its verdict. ``first_sight``: its chain is new and has to be put on record first. ``late``: its
    chain had gone on without it, or without its payload."""

    arrival: Arrival
    duplicate: bool
    first_sight: bool
    late: bool = False


class ChainBook:
    """Durable ends of all chains, by agent."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._durable: dict[str, dict[ChainKey, ChainState]] = {}
        for key, state in log.tips().items():
            self._durable.setdefault(key.agent_id, {})[key] = state

    def durable(self, agent_id: str) -> dict[ChainKey, ChainState]:
        """A copy of the agent's chain ends."""
        return dict(self._durable.get(agent_id, {}))

    def became_durable(self, arrival: Arrival) -> None:
        """Notes an append that succeeded."""
        chains = self._durable.setdefault(arrival.source, {})
        moved = _moved(chains.get(arrival.key), arrival)
        if moved is not None:
            chains[arrival.key] = moved

    def of(self, agent_id: str) -> "AgentChains":
        """The agent's chains for one stream."""
        return AgentChains(agent_id, self.durable(agent_id), self._look_up)

    async def _look_up(self, key: ChainKey, seq: int) -> Stored:
        return await asyncio.to_thread(self._log.kept, key, seq)


class AgentChains:
    """See the module."""

    def __init__(
        self,
        agent_id: str,
        states: dict[ChainKey, ChainState],
        look_up: Callable[[ChainKey, int], Awaitable[Stored]],
    ) -> None:
        """``look_up`` gives what is durable under a chain and seq."""
        self._agent_id = agent_id
        self._states = states
        self._look_up = look_up
        self._on_the_way: dict[tuple[ChainKey, int], list[Kept]] = {}

    async def judge(self, batch: SignedBatch, received_time_ns: int) -> Judged:
        """Judges a batch behind all those judged before it, and takes it for stored unless it is a duplicate.

        Raises:
            WrongAgentError: its header names another agent.
        """
        header = readable_header(batch.header)
        digest = header_hash(batch.header)
        if header is not None and header.agent_id != self._agent_id:
            raise WrongAgentError(f"this is {self._agent_id}'s stream, the batch is of {header.agent_id}")
        if header is None:
            verdict = Verdict(fault=ChainFault.UNREADABLE_HEADER)
        else:
            verdict = await self._verdict(header, digest, batch)
        arrival = Arrival(received_time_ns, self._agent_id, verdict.fault, batch, header, digest)
        if verdict.fault in UNTRUSTED and await self._is_kept(arrival):
            verdict = DUPLICATE
        if verdict.duplicate:
            return Judged(arrival, duplicate=True, first_sight=False)
        first_sight = arrival.key not in self._states and verdict.fault not in UNTRUSTED
        self._on_the_way.setdefault((arrival.key, arrival.seq), []).append(arrival.kept)
        moved = _moved(self._states.get(arrival.key), arrival)
        if moved is not None:
            self._states[arrival.key] = moved
        late = moved is None and not verdict.fault
        return Judged(arrival, duplicate=False, first_sight=first_sight, late=late)

    def settled(self, arrival: Arrival) -> None:
        """The batch is durable: the log answers for it from now on."""
        waiting = self._on_the_way[arrival.key, arrival.seq]
        waiting.remove(arrival.kept)
        if not waiting:
            del self._on_the_way[arrival.key, arrival.seq]

    async def _verdict(self, header: Header, digest: bytes, batch: SignedBatch) -> Verdict:
        if header.batch_class not in AGENT_CLASSES:
            return Verdict(fault=ChainFault.WRONG_CLASS)
        key = ChainKey(header.agent_id, header.chain_id, header.batch_class)
        state = self._states.get(key)
        tip: Tip = state.tip if state is not None else ORIGIN
        stored: Stored = ()
        if header.seq <= tip.seq:
            stored = await self._stored(key, header.seq)
            if is_known(digest, stored):
                return _again(header, digest, batch, stored)
        if state is not None and header.public_key != state.public_key:
            return Verdict(fault=ChainFault.WRONG_KEY)
        try:
            check_signature(batch.header, header, batch.signature)
            before: Stored = await self._stored(key, header.seq - 1) if 1 < header.seq <= tip.seq else ()
            verdict = place(header, tip, stored, before)
            if not verdict.fault and (batch.payload or not header.record_count):  # else dropped by the agent: allowed
                read_payload(header, batch.payload)
        except ChainError as error:
            return Verdict(fault=error.fault)
        return verdict

    async def _stored(self, key: ChainKey, seq: int) -> Stored:
        on_the_way = self._on_the_way.get((key, seq), ())  # before asking the log, where they may arrive meanwhile
        return [*on_the_way, *await self._look_up(key, seq)]

    async def _is_kept(self, arrival: Arrival) -> bool:
        """Whether this bad batch is kept already: sent again it is not kept twice."""
        stored = await self._stored(arrival.key, arrival.seq)
        return any((kept.header_hash, kept.quarantine) == (arrival.header_hash, arrival.quarantine) for kept in stored)


def _again(header: Header, digest: bytes, batch: SignedBatch, stored: Stored) -> Verdict:
    """A header that is known: of use only where it brings the payload at last."""
    verdict = completes(digest, stored)
    if verdict is None or not payload_stands(header, batch.payload):
        return DUPLICATE
    try:
        check_signature(batch.header, header, batch.signature)  # it is kept as evidence too
    except ChainError:
        return DUPLICATE
    return verdict


def _moved(state: ChainState | None, arrival: Arrival) -> ChainState | None:
    """Where the chain ends behind ``arrival``; None where it does not move."""
    if arrival.header is None or not moves_tip(arrival.quarantine, arrival.seq, state.tip.seq if state else 0):
        return None
    public_key = state.public_key if state is not None else arrival.header.public_key
    return ChainState(Tip(arrival.seq, arrival.header_hash), public_key)
