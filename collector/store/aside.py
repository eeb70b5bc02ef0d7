"""A store that cannot be used is moved aside, never repaired: all in it but the history of alerts is derived.

That history begins anew; what was said before stays in the file moved aside. The same goes for a store made by a newer
version of the software: its schema cannot be taken back, and the log holds what it was made from.
"""

import sqlite3
from pathlib import Path

from alembic.util.exc import CommandError
from sqlalchemy.exc import DatabaseError

KEPT = 3
_WRECKED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_UNKNOWN_REVISION = "Can't locate revision"  # alembic has one kind of error for all
_FOREIGN = sqlite3.SQLITE_ERROR  # tables that are there already, or not there, while the schema is brought up to date


def unusable(error: BaseException, *, opening: bool = False) -> str:
    """Why a store cannot be used, from what was raised; empty if that is no fault of the file (a full disk, a lock).

    Args:
        error: what was raised.
        opening: while the schema was brought up to date.
    """
    if isinstance(error, CommandError):
        return "it was made by a newer version" if _UNKNOWN_REVISION in str(error) else ""
    if not isinstance(error, DatabaseError):
        return ""
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    if code in _WRECKED:
        return f"it is damaged: {error.orig}"
    return f"it has another schema: {error.orig}" if opening and code == _FOREIGN else ""


def move_aside(path: Path) -> Path:
    """Renames the file and what belongs to it. Of those moved aside before, the newest two are kept."""
    names = [path.with_name(f"{path.name}.unusable-{number}") for number in range(1, KEPT + 1)]
    for suffix in ("", "-wal", "-shm"):
        Path(f"{names[-1]}{suffix}").unlink(missing_ok=True)
        for older, newer in zip(reversed(names), reversed([path, *names[:-1]]), strict=True):
            if Path(f"{newer}{suffix}").exists():
                Path(f"{newer}{suffix}").rename(f"{older}{suffix}")
    return names[0]


def what_it_costs(path: Path, aside: Path, why: str) -> str:
    """One line for the operator."""
    return (
        f"{path} cannot be used ({why}): moved to {aside.name}, and made anew from the log; "
        "the history of alerts begins anew"
    )
