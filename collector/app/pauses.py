"""Notices that the process stood still (stopped, or on a machine that was suspended), and puts it on record.

In that time it heard nobody. Analysis notices the same by itself; the record lets it judge the same when it reads the
log again.
"""

import logging

from collector.clock import Clock
from collector.control import Control
from collector.log import LogError

LOOK_EVERY_NS = 1_000_000_000
PAUSE_NS = 10 * 1_000_000_000

logger = logging.getLogger(__name__)


async def note_pauses(control: Control, clock: Clock) -> None:
    """Runs until cancelled."""
    looked_ns = clock.wall_ns()
    while True:
        await clock.sleep_until(clock.monotonic_ns() + LOOK_EVERY_NS)
        before_ns, looked_ns = looked_ns, clock.wall_ns()
        if looked_ns - before_ns > PAUSE_NS:
            try:
                await control.resumed()
            except LogError as error:
                logger.warning("that the collector stood still could not be put on record: %s", error)
