"""Windows of round trips as the collector has stored them, read while it runs."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def windows(state_dir: Path, path_ids: Iterable[str], from_s: float, to_s: float) -> dict[str, list[dict[str, Any]]]:
    """Rows of ``round_trip_windows`` that begin between two moments, by path id as the API spells it."""
    connection = sqlite3.connect(f"{(state_dir / 'store.sqlite').absolute().as_uri()}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        found: dict[str, list[dict[str, Any]]] = {}
        for name in path_ids:
            path_id = int(name, 16)
            rows = connection.execute(
                "SELECT * FROM round_trip_windows WHERE path_id = ? AND start_time_ns BETWEEN ? AND ?",
                (path_id - (1 << 64 if path_id >> 63 else 0), int(from_s * 1e9), int(to_s * 1e9)),
            )
            found[name] = [dict(row) for row in rows]
        return found
    finally:
        connection.close()
