"""Entry point of alembic: the connection comes from ``collector.store.database``, never from a file."""

from alembic import context

from collector.store.tables import METADATA


def _run() -> None:
    context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
    with context.begin_transaction():
        context.run_migrations()


_run()
