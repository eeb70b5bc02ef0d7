"""Ingest in a process of its own, to be killed.

    python -m tests.fakes.ingest_process DIRECTORY [--kill-at N]

prints its port on one line and ends on SIGTERM.
With ``--kill-at`` it kills itself at the N-th moment at which the disk is touched: before
a write, in the middle of one, behind it, behind a sync.
"""

import argparse
import asyncio
import os
import signal
from pathlib import Path

from collector.clock import SystemClock
from collector.control import Control, load_or_create_key
from collector.ingest import Ingest, Sessions, start_server
from collector.log import Log
from collector.log.disk import Disk


class KillingDisk(Disk):
    """Kills its own process at a chosen moment."""

    def __init__(self, kill_at: int | None) -> None:
        self._left = kill_at

    def write(self, descriptor: int, buffers: list[bytes], offset: int) -> None:
        self._moment()
        content = b"".join(buffers)
        half = len(content) // 2
        super().write(descriptor, [content[:half]], offset)
        self._moment()
        super().write(descriptor, [content[half:]], offset + half)
        self._moment()

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self._moment()

    def _moment(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kill-at", type=int)
    arguments = parser.parse_args()
    log = Log.open(arguments.directory / "log", disk=KillingDisk(arguments.kill_at))
    control = Control(log, load_or_create_key(arguments.directory / "control.key"), "collector", SystemClock())
    await control.start([], [])
    server, port = await start_server(Ingest(log, control, SystemClock(), Sessions()), "127.0.0.1:0", None)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(port, flush=True)
    await stop.wait()
    await server.stop(1)
    log.close()


if __name__ == "__main__":
    asyncio.run(main())
