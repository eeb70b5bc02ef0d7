"""Daily heads over the log: signed, shown with proofs, and given out."""

import asyncio
from pathlib import Path

from fastapi import APIRouter

from collector.clock import Clock
from collector.config import Config
from collector.control import Control, TreeHeads
from collector.export.log_proofs import router
from collector.log import Log
from collector.store.reader import Reader
from collector.witness import Giving, Head, Outbox


class Trees:
    """The parts that deal with heads, put together."""

    def __init__(
        self, config: Config, state: Path, log: Log, control: Control, *, reader: Reader, clock: Clock
    ) -> None:
        def heads() -> list[Head]:
            return [Head(row.day, row.tree_size, row.root, row.signed_time_ns) for row in reader.tree_heads()]

        outbox = Outbox(state / "witness")
        self._heads = TreeHeads(log, control, clock)
        self._giving = Giving(config.collector, control.public_key, heads, outbox, clock)
        self.router: APIRouter = router(reader.tree_heads, log, outbox.given)

    async def run(self) -> None:
        """Signs and gives out for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._heads.run())
            group.create_task(self._giving.run())

    def warnings(self) -> dict[str, str]:
        """What somebody should look at, by part."""
        return {"tree": self._heads.trouble, "witnesses": self._giving.trouble}
