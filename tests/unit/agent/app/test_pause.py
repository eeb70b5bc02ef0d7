"""A pause is kept, and one that cannot be read is a pause all the same."""

from pathlib import Path

import pytest

from agent.app.control_command import show
from agent.app.pause import Pause


def test_a_pause_lasts_until_it_is_taken_back_also_through_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "paused.json"
    assert Pause(path).why() == ""
    pause = Pause(path)
    pause.set("acceptance\n test")
    assert pause.why() == Pause(path).why() == "paused on this host: acceptance test"
    pause.set("")
    assert Pause(path).why() == "paused on this host"
    pause.clear()
    pause.clear()
    assert pause.why() == Pause(path).why() == ""


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 4000, '{"other": 1}', '{"reason": 5}'])
def test_a_damaged_file_is_a_pause(tmp_path: Path, text: str) -> None:
    path = tmp_path / "paused.json"
    path.write_text(text)
    pause = Pause(path)
    assert pause.why().startswith("paused on this host")
    pause.clear()
    assert Pause(path).why() == ""


def test_the_pause_holds_though_the_disk_does_not_take_it(tmp_path: Path) -> None:
    pause = Pause(tmp_path / "missing" / "paused.json")
    with pytest.raises(FileNotFoundError):
        pause.set("x")
    assert pause.why() == "paused on this host: x"


def test_an_answer_for_people() -> None:
    answer = {
        "node": "n1",
        "plan": None,
        "marks": [],
        "spool": {"bytes": 5, "oldest": None},
        "parts": [{"part": "echo", "state": "ok", "detail": ""}, {"part": "marks", "state": "ok", "detail": "heard 2"}],
    }
    assert show(answer) == [
        "node             n1",
        "plan             –",
        "marks            none",
        "spool            bytes 5",
        "echo             ok",
        "marks            ok (heard 2)",
    ]
