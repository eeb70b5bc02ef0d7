"""The store: schema, one writer, readers beside it, retention."""

from dataclasses import fields
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DatabaseError, OperationalError

from collector.decode import Definitions
from collector.model import Element, Incident, RoundTripWindow, Source, StoredWindow
from collector.store import tables
from collector.store.database import open_reader, upgrade
from collector.store.newest import newest_statement
from collector.store.reader import Reader
from collector.store.retention import DAY_NS, STEP_ROWS, sweep
from collector.store.rows import (
    incident_values,
    path_values,
    read_incident,
    read_source,
    signed,
    source_values,
    unsigned,
    window_values,
)
from collector.store.writer import Store
from tests.fakes.measured_log import echo_path, fleet_config

NOW = 1_767_225_600 * 1_000_000_000


def incident(number: int, closed: int | None = None) -> Incident:
    return Incident(
        incident_id=f"{number:064x}",
        rule="loss",
        rule_version=1,
        element=Element("uplink", "机架-1"),
        severity="critical",
        opened_time_ns=1000 + number,
        closed_time_ns=closed,
        updated_time_ns=1000 + number,
        summary="…",
        values={"lost": 3, "loss_ratio": 0.1, "state": "x"},
        children=("a", "b"),
        evidence=(Source("n", bytes(16), 1, 2, 3, 4),),
        revision=2,
    )


def row(number: int, closed: int | None = None) -> dict[str, object]:
    return incident_values(incident(number, closed)) | {"decided_time_ns": 1000 + number}


def window(path_id: int, start_ns: int) -> dict[str, object]:
    nothing = dict.fromkeys((field.name for field in fields(RoundTripWindow)), 0)
    row = RoundTripWindow(
        **nothing | {"path_id": path_id, "start_time_ns": start_ns, "loaded_by": None, "doubtful": None}  # type: ignore[arg-type]
    )
    return window_values(StoredWindow(row, b"", b""))


def test_migrations_make_exactly_the_tables_described() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        upgrade(connection)
        context = MigrationContext.configure(connection)
        differences = compare_metadata(context, tables.METADATA)
    engine.dispose()
    assert [entry for entry in differences if getattr(entry[1], "name", "") != "alembic_version"] == []


def test_opening_again_keeps_what_is_there(tmp_path: Path) -> None:
    for number in range(2):
        store = Store(tmp_path / "store.sqlite")
        with store.transaction() as tx:
            tx.put(tables.incidents, [row(number)])
        store.close()
    reader = Reader(tmp_path / "store.sqlite", fleet_config())
    assert reader.incidents(0, 1 << 62) == [incident(0), incident(1)]
    reader.close()


def test_a_transaction_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    with store.transaction() as tx:
        tx.set_meta({"position": "1"})

    def fail() -> None:
        with store.transaction() as tx:
            tx.set_meta({"position": "2"})
            tx.put(tables.incidents, [row(1)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.transaction() as tx:
        assert tx.meta() == {"position": "1"}
        assert tx.all(tables.incidents) == []
    store.close()


def test_writing_the_same_row_twice_is_writing_it_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    with store.transaction() as tx:
        for _ in range(2):
            tx.put(tables.incidents, [row(1)])
        assert len(tx.all(tables.incidents)) == 1
        tx.put(tables.incidents, [row(1) | {"revision": 3}])
        assert tx.all(tables.incidents)[0]["revision"] == 3
        tx.add(tables.incidents, [row(1) | {"revision": 4}])
        assert tx.all(tables.incidents)[0]["revision"] == 3
    store.close()


def test_a_reader_sees_committed_rows_only_and_cannot_write(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    reader = Reader(tmp_path / "store.sqlite", fleet_config())
    with store.transaction() as tx:
        tx.put(tables.incidents, [row(1)])
        assert reader.incidents(0, 1 << 62) == []
    assert len(reader.incidents(0, 1 << 62)) == 1
    reader.close()
    engine = open_reader(tmp_path / "store.sqlite")
    with pytest.raises(OperationalError), engine.begin() as connection:
        connection.execute(tables.incidents.delete())
    engine.dispose()
    store.close()


def test_incidents_of_a_stretch_are_those_open_at_some_time_in_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    with store.transaction() as tx:
        tx.put(tables.incidents, [row(0, closed=2000), row(500)])
    reader = Reader(tmp_path / "store.sqlite", fleet_config())
    assert [one.opened_time_ns for one in reader.incidents(0, 1000)] == []
    assert [one.opened_time_ns for one in reader.incidents(0, 1001)] == [1000]
    assert [one.opened_time_ns for one in reader.incidents(1999, 3000)] == [1000, 1500]
    assert [one.opened_time_ns for one in reader.incidents(2001, 3000)] == [1500]
    assert [one.opened_time_ns for one in reader.incidents(0, 3000, True)] == [1500]
    reader.close()
    store.close()


def test_values_come_back_as_they_were() -> None:
    assert read_incident(row(3, closed=9)) == incident(3, closed=9)
    source = Source("n", bytes(range(16)), 1, 1 << 40, 7, 1 << 50)
    assert read_source(source_values(source)) == source
    for value in (0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        assert unsigned(signed(value)) == value
        assert -(1 << 63) <= signed(value) < 1 << 63


def test_nodes_without_an_agent_are_listed(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    reader = Reader(tmp_path / "store.sqlite", fleet_config())
    nodes = reader.nodes()
    assert [node.name for node in nodes] == ["r1n1", "r1n2", "r2n1", "r2n2"]
    assert {node.last_received_time_ns for node in nodes} == {None}
    assert reader.paths() == []
    assert reader.accounting(0, 1 << 62) == []
    reader.close()
    store.close()


def test_retention_deletes_in_steps_and_spares_what_is_open(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    old = NOW - 900 * DAY_NS
    with store.transaction() as tx:
        tx.put(tables.incidents, [row(number, closed=old) for number in range(STEP_ROWS + 10)])
        tx.put(tables.incidents, [row(STEP_ROWS + 10), row(STEP_ROWS + 11, closed=NOW)])
        assert sweep(tx, NOW) == STEP_ROWS
        assert sweep(tx, NOW) == 10
        assert sweep(tx, NOW) == 0
        assert len(tx.all(tables.incidents)) == 2
    store.close()


def test_the_newest_window_of_each_path_is_found_without_reading_all(tmp_path: Path) -> None:
    rows = [Definitions().path(echo_path("r1n1", peer)) for peer in ("r1n2", "r2n1", "r2n2")]
    store = Store(tmp_path / "store.sqlite")
    with store.transaction() as tx:
        tx.put(tables.paths, [path_values(path) for path in rows])
        for path, starts in zip(rows, ((10, 30, 20), (10,), ()), strict=True):
            tx.put(tables.round_trip_windows, [window(path.path_id, start) for start in starts])
        plan = tx.connection.execute(text(f"EXPLAIN QUERY PLAN {newest_statement()}")).all()
    assert not [step for *_, step in plan if step.startswith("SCAN round_trip_windows")]
    reader = Reader(tmp_path / "store.sqlite", fleet_config())
    found = {status.dst: status.window_start_time_ns for status in reader.paths()}
    assert found == {"r1n2": 30, "r2n1": 10, "r2n2": None}
    reader.close()
    store.close()


def fill(path: Path) -> None:
    store = Store(path)
    with store.transaction() as tx:
        tx.put(tables.incidents, [row(number) for number in range(200)])
    store.close()


def test_a_store_that_is_no_database_is_moved_aside_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"no database at all" * 1000)
    fill(path)
    (told,) = [record.getMessage() for record in caplog.records if record.name.startswith("collector.")]
    assert "store.sqlite.unusable-1" in told
    assert "made anew from the log" in told
    assert "history of alerts" in told
    assert "sqlalche.me" not in told
    assert (tmp_path / "store.sqlite.unusable-1").read_bytes().startswith(b"no database")


def test_a_store_of_a_newer_version_is_moved_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store.sqlite"
    fill(path)
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    fill(path)
    assert "newer version" in caplog.text
    assert (tmp_path / "store.sqlite.unusable-1").exists()


def test_a_store_with_tables_of_somebody_else_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE agents (x)"))
    engine.dispose()
    fill(path)
    assert (tmp_path / "store.sqlite.unusable-1").exists()


def test_a_store_that_may_not_be_written_stays_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(OperationalError):
        Store(tmp_path / "nowhere" / "store.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_only_the_newest_few_moved_aside_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    for number in range(5):
        path.write_bytes(b"%d is no database, whatever its name may say" % number * 100)
        Store(path).close()
    kept = sorted(tmp_path.glob("store.sqlite.unusable-*"))
    assert [file.name[-1] for file in kept] == ["1", "2", "3"]
    assert [file.read_bytes()[:1] for file in kept] == [b"4", b"3", b"2"]


def test_damage_met_at_work_moves_the_store_aside_for_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    fill(path)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    store = Store.__new__(Store)
    store.path, store._engine = path, create_engine(f"sqlite:///{path}")
    with pytest.raises(DatabaseError) as caught, store.transaction() as tx:
        tx.all(tables.incidents)
    told = store.give_up(caught.value)
    store.close()
    assert "damaged" in told
    assert (tmp_path / "store.sqlite.unusable-1").exists()
    assert not path.exists()
    assert store.give_up(ValueError("anything else")) == ""
