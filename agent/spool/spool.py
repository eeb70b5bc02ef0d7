"""The awaitable face of the spool: every call runs in one thread, so the event loop never waits for a disk."""

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from agent import result
from agent.record import ChainState, SealedBatch
from agent.spool.core import Core, SpoolStats
from agent.spool.database import Connect, connect
from agent.spool.retention import Limits
from bandwitness.v1.record_pb2 import SignedBatch

P = ParamSpec("P")
T = TypeVar("T")
CURES = {
    "disk_full": "measuring goes on and writing resumes by itself: free some space on the file system of the spool",
    "spool_fault": "measuring goes on and writing is tried again: see to the file system of the spool",
}


def free_bytes(directory: Path) -> int:
    """What an ordinary user may still write on the file system of ``directory``."""
    return shutil.disk_usage(directory).free


class Spool:
    """Signed batches until they are acknowledged.

    Args:
        path: the SQLite file.
        limits: see ``Limits``.
        wall_ns: wall clock, for ages.
        random_bytes, connect, free_bytes: the world, for tests.
    """

    def __init__(
        self,
        path: Path,
        limits: Limits,
        *,
        wall_ns: Callable[[], int],
        random_bytes: Callable[[int], bytes] = os.urandom,
        connect: Connect = connect,
        free_bytes: Callable[[Path], int] = free_bytes,
    ) -> None:
        self._core = Core(
            path, limits, wall_ns=wall_ns, random_bytes=random_bytes, connect=connect, free_bytes=free_bytes
        )
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spool")
        self.appended = asyncio.Event()  # set by each append and each new chain; the one reader clears it
        self.forgotten: set[int] = (
            set()
        )  # classes of which a collector lacks what was acknowledged; the journal clears it

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args, **kwargs))

    async def open(self) -> None:
        """Opens or makes the file. On a disk that is full, fails or is read-only ``opened`` stays False, and each
        append tries again.

        Raises:
            SpoolError: nothing can be kept at all; the message says why.
        """
        await self._call(self._core.open)

    async def close(self) -> None:
        """Writes what waits, closes the file, ends the thread."""
        await self._call(self._core.close)
        self._thread.shutdown()

    async def append(self, batches: Sequence[SealedBatch], settled_gaps: Sequence[int] = ()) -> None:
        """Keeps batches. They are durable on return, or wait in memory: ``stats().state`` says which.

        Raises:
            StaleChainError: a batch does not continue its chain.
        """
        await self._call(self._core.append, batches, settled_gaps)
        self.appended.set()

    def tip(self, batch_class: int) -> ChainState:
        """What the next batch of a class continues: chain id, seq and hash of the newest header, watermark."""
        return self._core.chains()[batch_class]

    def tips(self) -> dict[int, ChainState]:
        """``tip`` of every class."""
        return self._core.chains()

    async def unsent(
        self, batch_class: int, after_seq: int, max_bytes: int, max_count: int = 64
    ) -> list[tuple[int, SignedBatch]]:
        """The next durable batches behind ``after_seq``, at least one where there is one. A batch whose payload was
        dropped comes with its header alone."""
        return await self._call(self._core.unsent, batch_class, after_seq, max_bytes, max_count)

    async def acknowledge(self, batch_class: int, chain_id: bytes, seq: int, time_ns: int) -> None:
        """Notes that the collector has everything up to ``seq``, at ``time_ns`` (wall clock)."""
        await self._call(self._core.acknowledge, batch_class, chain_id, seq, time_ns)

    def acknowledged(self, batch_class: int) -> tuple[int, int | None]:
        """Newest acknowledged seq, and when (wall clock), also from before a restart."""
        return self._core.acknowledged()[batch_class]

    async def renew_chain(self, batch_class: int, why: str) -> None:
        """Begins a new chain because the old one cannot go on. Unsent batches of it are lost, visibly."""
        await self._call(self._core.renew_chain, batch_class, why)
        self.appended.set()

    async def gaps(self) -> list[tuple[int, result.Gap]]:
        """Losses without a record in the chain; ``append`` settles them by id."""
        return await self._call(self._core.gaps)

    async def lose(self, gap: result.Gap) -> None:
        """Notes records thrown away before they became a batch."""
        await self._call(self._core.lose, gap)

    @property
    def opened(self) -> bool:
        """False from a start on a disk that is full or read-only until it is well: nothing may be sealed until then."""
        return self._core.opened

    @property
    def accepting(self) -> bool:
        """Whether ``append`` has room, on disk or in memory."""
        return self._core.accepting

    def stats(self) -> SpoolStats:
        """As of the last thing the spool did; does not wait."""
        return self._core.stats

    def state(self) -> result.PartState:
        """For the agent's status."""
        stats = self.stats()
        if stats.state == "ok":
            return result.PartState("spool", True, "ok")
        return result.PartState("spool", False, stats.state, f"{stats.detail}; {CURES[stats.state]}")
