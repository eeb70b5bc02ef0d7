"""Links that fall in speed or rise in errors; and those of which nobody knows anything."""

import pytest

from collector.analysis.incidents import Book
from collector.analysis.links import LinkHistory
from collector.analysis.rules.link_degraded import SECOND, judge
from collector.model import Element, Flag

T0 = 1_767_225_600 * SECOND
WINDOW_NS = 10 * SECOND
G = 1_000_000_000
ELEMENT = Element("endpoint", "n1/eth0")


class Story:
    """One NIC, window by window."""

    def __init__(self) -> None:
        self.history, self.book, self.time_ns = LinkHistory(), Book(), T0
        self.flags: list[Flag] = []

    def windows(self, number: int, speed_bps: int | None = 100 * G, *, again: bool = False, **counts: int) -> None:
        for _ in range(number):
            self.time_ns += WINDOW_NS
            self.history.add(self.time_ns, speed_bps, counts)
            if again:  # through the store
                self.history = LinkHistory.decode(self.history.encode())
            link = self.history.now("n1", "eth0", self.time_ns)
            self.flags = judge([link], self.book.find)
            self.book.apply(self.flags)

    def open(self) -> list[str]:
        return [str(incident.summary) for incident in self.book.open()]


def test_case_27_speed_falling_raises_link_degraded_and_ends_when_it_is_back() -> None:
    story = Story()
    story.windows(20)
    assert story.open() == []
    story.windows(1, 25 * G)
    assert story.open() == ["Link at n1/eth0 is degraded: speed fell to 25 Gbit/s from 100 Gbit/s"]
    assert story.book.open()[0].element == ELEMENT
    story.windows(100, 25 * G, again=True)
    assert len(story.open()) == 1
    story.windows(1, None)  # down: nobody knows the speed, so nothing is over
    assert len(story.open()) == 1
    story.windows(1, 100 * G)
    assert story.open() == []


@pytest.mark.parametrize("speed", [None])
def test_case_27_a_speed_nobody_knows_says_nothing(speed: int | None) -> None:
    story = Story()
    story.windows(30, speed)
    assert story.open() == []
    story.windows(10, 40 * G)
    story.windows(10, speed)
    assert story.open() == []


def test_a_higher_speed_than_ever_is_no_trouble_and_one_that_showed_for_seconds_no_measure() -> None:
    story = Story()
    story.windows(20, 25 * G)
    story.windows(2, 100 * G)
    story.windows(20, 25 * G)
    assert story.open() == []


def test_a_speed_that_is_lower_for_a_day_is_what_the_link_has() -> None:
    story = Story()
    story.windows(20)
    story.windows(6 * 60 * 24 - 2, 25 * G)
    assert len(story.open()) == 1
    story.windows(3, 25 * G)
    assert story.open() == []


def test_errors_of_the_link_rise() -> None:
    story = Story()
    story.windows(400, again=True)
    story.windows(4, crc_errors=2)
    assert story.open() == []
    story.windows(1, crc_errors=2)
    assert story.open() == ["Link at n1/eth0 is degraded: 10 errors in 600 s (crc_errors)"]
    story.windows(50)
    assert len(story.open()) == 1
    story.windows(10)
    assert story.open() == []  # ten minutes without one


def test_errors_that_are_usual_are_not_news_until_there_are_ten_times_as_many() -> None:
    story = Story()
    story.windows(400, crc_errors=1)
    assert len(story.open()) == 1  # of the first hour nobody knows better
    story.windows(1200, crc_errors=1)
    assert story.open() == []
    story.windows(60, crc_errors=11)
    assert len(story.open()) == 1


def test_errors_are_over_only_where_there_are_no_more_than_twice_the_usual() -> None:
    story = Story()
    story.windows(1600, crc_errors=1)
    story.windows(60, crc_errors=11)
    assert len(story.open()) == 1
    story.windows(70, crc_errors=4)
    assert len(story.open()) == 1
    story.windows(70, crc_errors=1)
    assert story.open() == []


def test_congestion_is_not_the_links_fault() -> None:
    story = Story()
    story.windows(400, receive_discards=50, rx_dropped=100, receive_pause_frames=100)
    assert story.open() == []


def test_a_link_that_went_down_is_told() -> None:
    story = Story()
    story.windows(20)
    story.windows(1, link_down_events=2)
    assert story.open() == ["Link at n1/eth0 is degraded: the link went down 2 times"]
