"""What was given to whom, and what is still to be given."""

from pathlib import Path

import pytest

from collector.witness import Given, Head, Outbox, statement


def test_what_is_not_there_is_due_oldest_day_first(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "witness")
    assert outbox.due(["a"]) == []
    outbox.state("2026-12-02", b"two\n")
    outbox.state("2026-12-01", b"one\n")
    assert outbox.due(["a", "b"]) == [(day, name) for day in ("2026-12-01", "2026-12-02") for name in ("a", "b")]
    outbox.keep("2026-12-01", "a", "2026-12-02T00:01:05Z", stamp=b"tsr")
    outbox.keep("2026-12-02", "b", "2026-12-03T00:01:05Z")
    assert outbox.due(["a", "b"]) == [("2026-12-01", "b"), ("2026-12-02", "a")]
    assert outbox.given("2026-12-01") == [Given("a", True, "2026-12-02T00:01:05Z")]
    assert outbox.given("2026-12-02") == [Given("b", False, "2026-12-03T00:01:05Z")]
    assert outbox.given("2026-12-09") == []


def test_a_statement_can_be_read_by_people_and_holds_all_that_identifies_a_head() -> None:
    said = statement(Head("2026-12-01", 12, bytes(32), 1), "bw-1", bytes([255] * 32))
    assert said.decode("ascii") == (
        f"bandwitness tree head: day 2026-12-01, headers 12, root sha256:{'00' * 32}, "
        f"collector bw-1, key ed25519:{'ff' * 32}\n"
    )


def test_two_heads_of_one_day_are_not_passed_over(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.state("2026-12-01", b"one\n")
    outbox.state("2026-12-01", b"one\n")
    with pytest.raises(FileExistsError, match="two heads of one day"):
        outbox.state("2026-12-01", b"two\n")
