"""What holds throughput tests off."""

from agent.app.quiet import Load, Quiet
from agent.sample.mark_book import OpenMark
from agent.schedule import Hold


class World:
    def __init__(self) -> None:
        self.marks: list[OpenMark] = []
        self.bursts: set[Load] = set()
        self.loads: set[Load] = set()
        self.paused = ""
        self.quiet = Quiet(
            marks=lambda: self.marks,
            bursts=lambda: self.bursts,
            own_loads=lambda: self.loads,
            paused=lambda: self.paused,
        )


def test_nothing_holds_in_quiet_times() -> None:
    assert World().quiet.hold() is None


def test_marks_and_bursts_are_named_and_counted() -> None:
    world = World()
    world.marks = [OpenMark(7, "checkpoint", f"j{number}", 0, None, 0) for number in range(5)]
    world.bursts = {("eth1", "transmit")}
    hold = world.quiet.hold()
    assert hold is not None
    assert (hold.paused, hold.count) == (False, 6)
    assert hold.detail == (
        "mark open: checkpoint of job j0 (user 7); mark open: checkpoint of job j1 (user 7); "
        "mark open: checkpoint of job j2 (user 7); burst on eth1 (transmit); and 2 more"
    )


def test_what_our_own_tests_do_is_no_burst() -> None:
    world = World()
    world.loads = {("eth0", "transmit")}
    world.bursts = {("eth0", "transmit")}
    assert world.quiet.hold() is None
    world.bursts |= {("eth0", "receive")}
    hold = world.quiet.hold()
    assert hold is not None
    assert hold.detail == "burst on eth0 (receive)"


def test_a_pause_is_named_before_all_else() -> None:
    world = World()
    world.paused = "paused by user 0"
    world.bursts = {("eth0", "receive")}
    assert world.quiet.hold() == Hold("paused by user 0", paused=True, count=0)
