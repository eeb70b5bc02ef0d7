"""Whether throughput tests are paused here, kept through restarts in one small file of the state directory."""

import contextlib
import json
from pathlib import Path

MAX_FILE_BYTES = 4096
MAX_REASON_CHARACTERS = 200


class Pause:
    """The pause. A file that cannot be read counts as a pause: somebody meant one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reason: str | None = None
        with contextlib.suppress(FileNotFoundError):
            self._reason = self._read()

    def _read(self) -> str:
        try:
            with self._path.open("rb") as file:
                found = json.loads(file.read(MAX_FILE_BYTES))["reason"]
        except FileNotFoundError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return f"{self._path.name} is there and cannot be read"
        return found if isinstance(found, str) else ""

    def why(self) -> str:
        """What to record of a test that is left out; empty when tests are not paused."""
        if self._reason is None:
            return ""
        return f"paused on this host: {self._reason}" if self._reason else "paused on this host"

    def set(self, reason: str) -> None:
        """Pauses.

        Raises:
            OSError: it cannot be kept; it holds until the agent ends all the same.
        """
        self._reason = "".join(letter for letter in reason if letter.isprintable())[:MAX_REASON_CHARACTERS]
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.write_text(json.dumps({"reason": self._reason}), encoding="utf-8")
        fresh.replace(self._path)

    def clear(self) -> None:
        """Resumes.

        Raises:
            OSError: the file cannot be removed: after a restart tests are paused again.
        """
        self._reason = None
        self._path.unlink(missing_ok=True)
