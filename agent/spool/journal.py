"""Recorder and spool together: what the agent calls at each flush."""

from collections.abc import Iterable, Mapping

from agent import result
from agent.clock import ClockEvent, ClockStep, Suspension
from agent.record import HeaderContext, Recorder, SealedBatch
from agent.spool.core import StaleChainError
from agent.spool.spool import Spool
from bandwitness.v1.record_pb2 import (
    GAP_REASON_DISK_FULL,
    GAP_REASON_RESTART,
    GAP_REASON_SPOOL_FAULT,
    GAP_REASON_SUSPENDED,
)

MAX_WAITING_RECORDS = 1_000  # of a class, while the spool cannot be opened: some minutes of a busy agent


class Journal:
    """Seals what the recorder holds and spools it; writes the gaps that belong in the chain.

    Args:
        recorder: made with ``spool.tips()``.
        spool: open.
        now_ns: wall clock. A chain that goes on after a restart begins with a gap up to now.
    """

    def __init__(self, recorder: Recorder, spool: Spool, now_ns: int) -> None:
        self._recorder = recorder
        self._spool = spool
        self._started_ns = now_ns
        self._begun = False
        self._begin()

    def _begin(self) -> None:
        """Once, as soon as it is known which chains go on: says from when to when this process was not there."""
        if self._begun or not self._spool.opened:
            return
        self._begun = True
        for batch_class, state in self._spool.tips().items():
            if state.tip.seq:
                last_ns = state.last_event_time_ns
                gap = result.Gap(GAP_REASON_RESTART, batch_class, last_ns, max(self._started_ns, last_ns))
                self._recorder.add_gap(gap)

    def note_clock(self, events: Iterable[ClockEvent]) -> None:
        """Puts what ``Clock.tick`` reported into the next headers (steps) and records (time asleep)."""
        for event in events:
            if isinstance(event, ClockStep):
                self._recorder.note_step(event)
            elif isinstance(event, Suspension):
                for batch_class in self._recorder.batch_classes:
                    self._recorder.add_gap(
                        result.Gap(GAP_REASON_SUSPENDED, batch_class, event.from_time_ns, event.to_time_ns)
                    )

    async def flush(self, context: HeaderContext, watermarks: Mapping[int, int]) -> None:
        """Seals and spools one batch of each class in ``watermarks`` (or more, where one would be too large). Returns
        once they are durable, or wait in memory for a disk that takes nothing. One call at a time."""
        if not self._spool.opened:
            await self._spool.append(())
            if not self._spool.opened:
                await self._wait(watermarks)
                return
        self._begin()
        settled: list[int] = []
        if self._spool.stats().gaps:
            for identity, gap in await self._spool.gaps():
                if gap.batch_class in watermarks:
                    self._recorder.add_gap(gap)
                    settled.append(identity)
        for batch_class in self._spool.forgotten:
            self._recorder.repeat_definitions(batch_class)
        self._spool.forgotten.clear()
        sealed: list[SealedBatch] = []
        for batch_class, watermark_ns in watermarks.items():
            if not self._spool.accepting:
                await self._discard(batch_class, GAP_REASON_DISK_FULL, "no room for more, on disk or in memory")
                continue
            tip = self._spool.tip(batch_class)
            if tip.chain_id != self._recorder.chain_state(batch_class).chain_id:
                self._recorder.resume(batch_class, tip)  # the spool began a new chain and noted why
            sealed += self._recorder.seal(batch_class, context, watermark_ns)
        try:
            await self._spool.append(sealed, settled)
        except StaleChainError as error:  # a new chain began since: what was sealed cannot follow it
            await self._lose(sealed, str(error))

    async def _wait(self, batch_classes: Iterable[int]) -> None:
        """Records wait unsealed for a disk that takes nothing, up to a bound."""
        for batch_class in batch_classes:
            if self._recorder.pending(batch_class) > MAX_WAITING_RECORDS:
                await self._discard(batch_class, GAP_REASON_DISK_FULL, "the spool could not be opened")

    async def _discard(self, batch_class: int, reason: int, why: str) -> None:
        records, first_ns, last_ns = self._recorder.discard(batch_class)
        if records:
            await self._spool.lose(result.Gap(reason, batch_class, first_ns, last_ns, records, why))

    async def _lose(self, sealed: Iterable[SealedBatch], why: str) -> None:
        for batch in sealed:
            self._recorder.resume(batch.batch_class, self._spool.tip(batch.batch_class))
            first_ns, newest_ns = batch.first_event_time_ns, batch.newest_event_time_ns
            await self._spool.lose(
                result.Gap(GAP_REASON_SPOOL_FAULT, batch.batch_class, first_ns, newest_ns, batch.records, why)
            )
