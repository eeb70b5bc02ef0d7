from agent.app.answer import MARKS_SHOWN, answer
from agent.result import ClockReading, Status
from agent.sample.mark_book import OpenMark


def shown(count: int) -> list[str]:
    marks = [OpenMark(7, "checkpoint", "llm", None, step, 0) for step in range(count)]
    said = answer(
        Status(0, 0, None, 0),
        node="n",
        hold=None,
        marks=marks,
        plan=None,
        chains={},
        clock=ClockReading(0, synchronised=False),
    )
    return list(said["marks"])


def test_of_a_thousand_open_marks_some_are_shown_and_the_rest_counted() -> None:
    assert shown(MARKS_SHOWN) == [f"checkpoint of job llm, step {step} (user 7)" for step in range(MARKS_SHOWN)]
    assert shown(1000) == [*shown(MARKS_SHOWN), f"and {1000 - MARKS_SHOWN} more"]
