"""Opens the database: one connection that writes, any number that read."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.util.exc import CommandError
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import QueuePool, StaticPool

from collector.store.aside import move_aside, unusable, what_it_costs

logger = logging.getLogger(__name__)

BUSY_TIMEOUT_MS = 10_000
READERS = 8


def open_writer(path: Path) -> Engine:
    """Engine of the one writer; the schema is brought up to date first.

    The log is the truth and the cursor is written with the rows, so a commit lost in a power failure is only read
    again: WAL with ``synchronous=NORMAL`` keeps what there is consistent, and that is enough. A file that cannot be
    used is moved aside.
    """
    try:
        return _open_writer(path)
    except (CommandError, DatabaseError) as error:
        why = unusable(error, opening=True)
        if not why:
            raise
    aside = move_aside(path)
    logger.warning("%s", what_it_costs(path, aside, why))
    return _open_writer(path)


def _open_writer(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}", poolclass=StaticPool, connect_args={"check_same_thread": False})
    _on_connect(
        engine, "PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}"
    )
    try:
        with engine.begin() as connection:
            upgrade(connection)
    except BaseException:
        engine.dispose()
        raise
    return engine


def open_reader(path: Path) -> Engine:
    """Engine for reading only, safe from any thread."""
    engine = create_engine(
        f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true",
        poolclass=QueuePool,
        pool_size=READERS,
        connect_args={"check_same_thread": False},
    )
    _on_connect(engine, "PRAGMA query_only=1", f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    return engine


def upgrade(connection: Connection) -> None:
    """Brings the schema up to date."""
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _on_connect(engine: Engine, *statements: str) -> None:
    def run(connection: Any, _: object) -> None:
        # The driver's own transaction control would commit before every statement that is not DML.
        connection.isolation_level = None
        for statement in statements:
            connection.execute(statement)

    listener: Callable[..., None] = run
    event.listen(engine, "connect", listener)
    event.listen(engine, "begin", _begin)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")
