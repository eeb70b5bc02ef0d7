"""The few things the log asks of a disk, in one place so that tests can make each of them fail."""

import os
from pathlib import Path

_MAX_BUFFERS = 512  # below IOV_MAX of every Linux


class Disk:
    """Real files."""

    def open(self, path: Path) -> int:
        """A descriptor for reading and appending at given places; the file and its name are on disk on return."""
        new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        if new:
            self.sync_directory(path.parent)
        return descriptor

    def write(self, descriptor: int, buffers: list[bytes], offset: int) -> None:
        """Writes all of ``buffers`` from ``offset`` on.

        Raises:
            OSError: also after a part was written.
        """
        for start in range(0, len(buffers), _MAX_BUFFERS):
            part = buffers[start : start + _MAX_BUFFERS]
            wanted = sum(map(len, part))
            written = os.pwritev(descriptor, part, offset)
            while written < wanted:  # a disk that fills up, or a signal
                rest = b"".join(part)[written:]
                written += os.pwrite(descriptor, rest, offset + written)
            offset += wanted

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def sync_directory(self, directory: Path) -> None:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
