"""The one writer: whatever a step of analysis derived goes in with the log position it derives from, or not at all."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, delete, func, select
from sqlalchemy.dialects.sqlite import Insert, insert

from collector.store import rows, tables
from collector.store.aside import move_aside, unusable, what_it_costs
from collector.store.database import open_writer


@lru_cache(maxsize=256)
def _upsert(table: Table, columns: tuple[str, ...]) -> Insert:
    """Made once for each set of columns: making it takes longer than writing a row."""
    keys = [column.name for column in table.primary_key]
    statement = insert(table)
    changed = {name: statement.excluded[name] for name in columns if name not in keys}
    if not changed:
        return statement.on_conflict_do_nothing(index_elements=keys)
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


class Transaction:
    """Statements of one step."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def put(self, table: Table, values: Sequence[rows.Values]) -> None:
        """Inserts rows, or overwrites in those that exist the columns given. All rows have the same columns."""
        if not values:
            return
        self.connection.execute(_upsert(table, tuple(values[0])), list(values))

    def add(self, table: Table, values: Sequence[rows.Values]) -> None:
        """Inserts rows; those that exist stay as they are."""
        if values:
            self.connection.execute(insert(table).on_conflict_do_nothing(), list(values))

    def remove(self, table: Table, column: str, values: Sequence[Any]) -> None:
        """Deletes rows by one column."""
        for value in values:
            self.connection.execute(delete(table).where(table.c[column] == value))

    def set_meta(self, values: dict[str, str]) -> None:
        """Overwrites entries of ``meta``."""
        self.put(tables.meta, [{"key": key, "value": value} for key, value in values.items()])

    def meta(self) -> dict[str, str]:
        """All of ``meta``."""
        return {row.key: row.value for row in self.connection.execute(select(tables.meta))}

    def all(self, table: Table, *where: Any, order_by: Any = None) -> list[dict[str, Any]]:
        """Rows as mappings."""
        statement = select(table).where(*where)
        if order_by is not None:
            statement = statement.order_by(order_by)
        return [dict(row) for row in self.connection.execute(statement).mappings()]

    def newest(self, table: Table, column: str) -> int | None:
        """Largest value of a column."""
        found: int | None = self.connection.execute(select(func.max(table.c[column]))).scalar()
        return found

    def forget_derived(self) -> None:
        """Empties all that can be made again from the log; what was said stays said."""
        for table in tables.DERIVED:
            self.connection.execute(delete(table))


class Store:
    """The database file, opened for writing. One process, one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Creates the file or brings its schema up to date; one that cannot be used is moved aside.

        Raises:
            sqlalchemy.exc.DBAPIError: the file cannot be opened or written.
        """
        self.path = path
        self._engine = open_writer(path)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Commits at the end, or leaves everything as it was."""
        with self._engine.begin() as connection:
            yield Transaction(connection)

    def give_up(self, error: BaseException) -> str:
        """Moves the file aside if ``error`` says that it is damaged; the next start makes it anew. Gives back what to
        tell; empty if it is not damaged."""
        why = unusable(error)
        if not why:
            return ""
        return what_it_costs(self.path, move_aside(self.path), why)

    def close(self) -> None:
        """Closes the file."""
        self._engine.dispose()
