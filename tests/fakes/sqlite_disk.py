"""A real SQLite file on a disk that fails when the test says so."""

import sqlite3
from pathlib import Path
from typing import Any

PLENTY = 1 << 40


class Disk:
    """What a spool is given as ``connect`` and ``free_bytes``.

    ``fault`` is the SQLite error code (``sqlite3.SQLITE_FULL``, ``SQLITE_IOERR`` …) that statements which write end
    with while it is set; with ``good_statements`` only from that many statements on, counted down.
    """

    def __init__(self) -> None:
        self.free = PLENTY
        self.fault: int | None = None
        self.good_statements = 0
        self.heals_when_opened = False
        self.opening_fault: int | None = None  # connect itself ends with this code while it is set
        self.statements = 0
        self.opened = 0

    def connect(self, path: Path) -> sqlite3.Connection:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
                disk.before(sql)
                return super().execute(sql, *arguments)

            def executemany(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
                disk.before(sql)
                return super().executemany(sql, *arguments)

        self.opened += 1
        if self.opening_fault is not None:
            raise self.error(self.opening_fault)
        if self.heals_when_opened:
            self.fault = None
        return sqlite3.connect(path, isolation_level=None, timeout=0.05, factory=Connection)

    def before(self, sql: str) -> None:
        if sql.startswith(("SELECT", "PRAGMA", "ROLLBACK")):
            return
        self.statements += 1
        if self.fault is None:
            return
        if self.good_statements:
            self.good_statements -= 1
            return
        raise self.error(self.fault)

    @staticmethod
    def error(code: int) -> sqlite3.OperationalError:
        error = sqlite3.OperationalError(f"fault {code} of the test's disk")
        error.sqlite_errorcode = code
        return error

    def free_bytes(self, directory: Path) -> int:
        return self.free
