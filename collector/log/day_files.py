"""The files the log appends to: opened when a day begins, cut back to what is indexed after a failure."""

from datetime import UTC, datetime
from pathlib import Path

from bandwitness.v1.record_pb2 import BATCH_CLASS_CONTROL, BATCH_CLASS_EVIDENCE, BATCH_CLASS_TELEMETRY
from collector.log import frame
from collector.log.disk import Disk

DAY_NS = 86_400 * 1_000_000_000
SUFFIX = ".log"
FOLDERS: dict[int, str] = {
    BATCH_CLASS_EVIDENCE: "evidence",
    BATCH_CLASS_TELEMETRY: "telemetry",
    BATCH_CLASS_CONTROL: "control",
}
OTHER_FOLDER = "unreadable"  # no class can be read from the header


def file_name(batch_class: int, received_time_ns: int) -> str:
    """``evidence/2026-12-01.log``: by class and UTC day of receipt."""
    day = datetime.fromtimestamp(received_time_ns // DAY_NS * 86_400, UTC)
    return f"{FOLDERS.get(batch_class, OTHER_FOLDER)}/{day:%Y-%m-%d}{SUFFIX}"


class DayFiles:
    """Open files by name. One thread."""

    def __init__(self, directory: Path, disk: Disk, ends: dict[str, int]) -> None:
        """``ends``: per file, where the last indexed frame ends."""
        self._directory = directory
        self._disk = disk
        self._ends = ends
        self._descriptors: dict[str, int] = {}
        self._abandoned: set[str] = set()

    def write(self, name: str, frames: list[bytes]) -> int:
        """Appends and syncs; gives back the offset of the first. The end moves only with ``keep``.

        Raises:
            OSError: call ``abandon`` before going on.
        """
        # All of them, not only this one: a frame of a group that failed bears a position that the next group takes,
        # and after a kill the start could not tell which of the two was acknowledged.
        for left in self._abandoned - self._descriptors.keys():
            self._open(left)
        self._abandoned.clear()
        descriptor = self._descriptors.get(name)
        if descriptor is None:
            descriptor = self._open(name)
        offset = self._ends[name]
        self._disk.write(descriptor, frames, offset)
        self._disk.sync(descriptor)
        return offset

    def keep(self, name: str, end: int) -> None:
        """What was written up to ``end`` is indexed."""
        self._ends[name] = end

    def abandon(self) -> None:
        """After a failure: closes everything. The next write cuts off what was written and not indexed; what a
        failed sync left in the page cache is not trusted either."""
        for descriptor in self._descriptors.values():
            self._disk.close(descriptor)
        self._abandoned |= self._descriptors.keys()
        self._descriptors.clear()

    def close_before(self, day_name: str) -> None:
        """Closes files of earlier days."""
        for name in [name for name in self._descriptors if name.rpartition("/")[2] < day_name]:
            self._disk.close(self._descriptors.pop(name))

    def _open(self, name: str) -> int:
        path = self._directory / name
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o750)
            self._disk.sync_directory(self._directory)
        descriptor = self._disk.open(path)
        try:
            end = self._ends.get(name, 0)
            # Longer: frames nobody was told of. Shorter: a file that lost bytes it had; the hole keeps the places of
            # all others right, and reading it reports the damage.
            if self._disk.size(descriptor) != end:
                self._disk.truncate(descriptor, end)
                self._disk.sync(descriptor)
            if end == 0:
                self._disk.write(descriptor, [frame.MAGIC], 0)
                self._ends[name] = len(frame.MAGIC)
        except BaseException:
            self._disk.close(descriptor)
            raise
        self._descriptors[name] = descriptor
        return descriptor
