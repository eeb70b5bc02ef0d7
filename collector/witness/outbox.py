"""What was given to whom: a folder a day, ``state_dir/witness/2026-12-01``, with the statement and a file for each who
has it. ``NAME.taken`` says when; ``NAME.tsr`` is a stamp as the authority sent it.

What is not there is still to be given, so nothing is lost with the process, and the queue is the folder.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

STATEMENT = "statement.txt"
STAMP, TAKEN = ".tsr", ".taken"
MAX_DAYS = 400  # of which anything is still tried; older folders stay


@dataclass(frozen=True, slots=True)
class Given:
    """What one has of one day."""

    to: str
    stamped: bool  # an RFC 3161 stamp; else taken by mail or HTTP
    time: str  # when, RFC 3339: in the stamp's own words, or by our clock


class Outbox:
    """The folder. Calls block for small files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def state(self, day: str, content: bytes) -> None:
        """Keeps the statement of a day.

        Raises:
            OSError: it cannot be written.
            FileExistsError: there is another statement of that day: a head was made twice.
        """
        path = self._directory / day / STATEMENT
        if not path.exists():
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            _write_whole(path, content)
        elif path.read_bytes() != content:
            raise FileExistsError(f"{path} says otherwise: two heads of one day")

    def statement(self, day: str) -> bytes:
        """What was stated.

        Raises:
            OSError: it cannot be read.
        """
        return (self._directory / day / STATEMENT).read_bytes()

    def keep(self, day: str, name: str, time: str, *, stamp: bytes | None = None) -> None:
        """Notes that ``name`` has it.

        Raises:
            OSError: it cannot be written.
        """
        folder = self._directory / day
        if stamp is not None:
            _write_whole(folder / f"{name}{STAMP}", stamp)
        _write_whole(folder / f"{name}{TAKEN}", f"{time}\n".encode())

    def given(self, day: str) -> list[Given]:
        """Who has it, in order of name."""
        folder = self._directory / day
        found = []
        for path in sorted(folder.glob(f"*{TAKEN}")):
            name = path.name.removesuffix(TAKEN)
            time = path.read_text(encoding="ascii", errors="replace").strip()[:40]
            found.append(Given(name, (folder / f"{name}{STAMP}").exists(), time))
        return found

    def due(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Days and names that are still to be served, oldest day first."""
        wanted = tuple(names)
        try:
            days = sorted(path.name for path in self._directory.iterdir() if (path / STATEMENT).exists())
        except FileNotFoundError:
            return []
        missing = []
        for day in days[-MAX_DAYS:]:
            have = {given.to for given in self.given(day)}
            missing += [(day, name) for name in wanted if name not in have]
        return missing


def _write_whole(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
