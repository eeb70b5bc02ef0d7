"""A disk that fills up, or whose sync fails, when a test says so."""

import errno
import os

from collector.log.disk import Disk


class FailingDisk(Disk):
    """Real files with a limit: past ``room`` bytes written in all, a write stores what still fits and fails."""

    def __init__(self, room: int | None = None) -> None:
        self.room = room
        self.sync_error: int | None = None
        self.syncs = 0
        self.writes = 0

    def write(self, descriptor: int, buffers: list[bytes], offset: int) -> None:
        self.writes += 1
        content = b"".join(buffers)
        if self.room is not None and len(content) > self.room:
            super().write(descriptor, [content[: self.room]], offset)
            self.room = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.room is not None:
            self.room -= len(content)
        super().write(descriptor, buffers, offset)

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        if self.sync_error is not None:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        super().sync(descriptor)
