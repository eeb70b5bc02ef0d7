"""Daily tree heads over the whole log, signed in the control chain."""

import asyncio
import logging
from datetime import UTC, datetime

from bandwitness.chain import ChainError, read_header, read_payload
from bandwitness.merkle import Peaks
from bandwitness.v1.record_pb2 import Record, TreeHead
from collector.clock import Clock
from collector.control.chain import Control
from collector.log import Log, LogError
from collector.log.tree import grow

SECOND = 1_000_000_000
DAY_NS = 86_400 * SECOND
GRACE_NS = 60 * SECOND  # after midnight
LOOK_EVERY_NS = 600 * SECOND  # the clock may be set
_CHUNK = 200

logger = logging.getLogger(__name__)


class InconsistentLogError(RuntimeError):
    """The log does not continue what the newest head says of it: entries are gone. Nothing is signed over that."""


def day_of(time_ns: int) -> str:
    """The UTC day, YYYY-MM-DD."""
    return f"{datetime.fromtimestamp(time_ns // SECOND, UTC):%Y-%m-%d}"


class TreeHeads:
    """Makes a head once a day. One event loop."""

    def __init__(self, log: Log, control: Control, clock: Clock) -> None:
        self._log = log
        self._control = control
        self._clock = clock
        self._newest = TreeHead()
        self.trouble = ""  # why there is no head of yesterday

    async def run(self) -> None:
        """Makes heads for ever; the first at once, where that of yesterday is missing."""
        self._newest = await asyncio.to_thread(self._look_back)
        while True:
            yesterday = day_of(self._clock.wall_ns() - GRACE_NS - DAY_NS)
            if self._newest.day < yesterday:
                await self._try(yesterday)
            await self._clock.sleep_until(self._clock.monotonic_ns() + self._until_next_ns())

    async def make(self, day: str) -> TreeHead:
        """Signs the head over all that the log holds now.

        Raises:
            InconsistentLogError: entries that the newest head covers are gone.
            LogError: it could not be written.
        """
        head = await asyncio.to_thread(self._grown, day)
        await self._control.write([Record(tree_head=head)])
        self._newest = head
        logger.info("log: tree head of %s: %d headers, root %s", day, head.tree_size, head.root.hex())
        return head

    async def _try(self, day: str) -> None:
        try:
            await self.make(day)
            self.trouble = ""
        except (InconsistentLogError, LogError) as error:
            self.trouble = f"no tree head of {day}: {error}"
            logger.error("log: %s", self.trouble)

    def _until_next_ns(self) -> int:
        now_ns = self._clock.wall_ns() - GRACE_NS
        return min(DAY_NS - now_ns % DAY_NS, LOOK_EVERY_NS)

    def _grown(self, day: str) -> TreeHead:
        before = self._newest
        last_position = self._log.last_position
        if last_position < before.last_position:
            words = f"the head of {before.day} covers {before.last_position} entries, the log has {last_position}"
            raise InconsistentLogError(words)
        peaks = Peaks(before.tree_size, before.peak)
        assert not before.day or peaks.root() == before.root
        newest = grow(self._log, peaks, before.last_position, last_position)
        return TreeHead(day=day, tree_size=peaks.size, root=peaks.root(), last_position=newest, peak=peaks.hashes)

    def _look_back(self) -> TreeHead:
        """The newest head in the control chain; an empty one where there is none yet."""
        before = self._control.next_seq
        while before > 1:
            entries = self._log.newest_of(self._control.key, before, _CHUNK)
            for entry in entries:
                try:
                    records = read_payload(read_header(entry.header), entry.payload)
                except ChainError:
                    continue
                for encoded in records:
                    record = Record.FromString(encoded)
                    if record.HasField("tree_head"):
                        return record.tree_head
            if not entries:
                break
            before = entries[-1].seq
        return TreeHead()
