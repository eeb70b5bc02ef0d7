"""Flags in any order make incidents that cannot contradict themselves."""

from hypothesis import given
from hypothesis import strategies as st

from collector.analysis.incidents import Book, Change, incident_id
from collector.model import Element, Flag, Incident

ELEMENTS = [Element("path", "a"), Element("uplink", "r1"), Element("fabric", "all")]


def loss_values(lost: int) -> dict[str, float | int | str]:
    return {"lost": lost, "sent": 100, "loss_ratio": lost / 100, "over_s": 10, "opening_ratio": 0.1}


flags = st.lists(
    st.builds(
        lambda element, raised, severity, replaces: (element, raised, severity, replaces),
        st.sampled_from(ELEMENTS),
        st.booleans(),
        st.sampled_from(["warning", "critical"]),
        st.lists(st.sampled_from(ELEMENTS), max_size=2, unique=True),
    ),
    max_size=30,
)


def played(said: list[tuple[Element, bool, str, list[Element]]]) -> tuple[Book, dict[str, Change]]:
    book, last = Book(), {}
    for step, (element, raised, severity, replaces) in enumerate(said, 1):
        flag = Flag(
            rule="loss",
            rule_version=1,
            element=element,
            time_ns=step * 2_000_000_000,
            severity=severity,
            raised=raised,
            values=loss_values(step) if raised else {"clean_since_ns": (step - 1) * 2_000_000_000},
            replaces=[other for other in replaces if other != element],
        )
        for change in book.apply([flag]):
            last[change.incident.incident_id] = change
    return book, last


@given(flags)
def test_each_element_has_at_most_one_open_incident(said: list[tuple[Element, bool, str, list[Element]]]) -> None:
    book, last = played(said)
    opened = book.open()
    assert len({incident.element for incident in opened}) == len(opened)
    on_record = [
        change.incident for change in last.values() if not change.withdrawn and change.incident.closed_time_ns is None
    ]
    assert sorted(on_record, key=by_id) == sorted(opened, key=by_id)


@given(flags)
def test_identity_follows_from_element_and_opening(said: list[tuple[Element, bool, str, list[Element]]]) -> None:
    _, last = played(said)
    for key, change in last.items():
        incident = change.incident
        assert key == incident_id(incident.rule, incident.element, incident.opened_time_ns)
        if incident.closed_time_ns is not None:
            assert incident.closed_time_ns >= incident.opened_time_ns


@given(flags)
def test_played_twice_it_is_the_same(said: list[tuple[Element, bool, str, list[Element]]]) -> None:
    assert played(said)[1] == played(said)[1]


def by_id(incident: Incident) -> str:
    return incident.incident_id
