"""The agent's status: every part has its line, whatever the others do."""

from functools import partial

from agent.result import PartState, Status
from agent.sample.hostload import ProcessLoad
from agent.status import MAX_DETAIL_CHARACTERS, collect, describe


def broken() -> PartState:
    raise RuntimeError("two\nlines")


def test_all_figures_come_through() -> None:
    echo = PartState("echo", False, "icmp_unavailable", "needs CAP_NET_RAW")
    assert collect(
        time_ns=5,
        parts=[lambda: echo],
        load=ProcessLoad(resident_memory_bytes=50, cpu_time_ns=7),
        spool_bytes=100,
        spool_oldest_time_ns=3,
        records_dropped=2,
        iperf3_version="3.12",
    ) == Status(
        time_ns=5,
        spool_bytes=100,
        spool_oldest_time_ns=3,
        records_dropped=2,
        parts=(echo,),
        resident_memory_bytes=50,
        cpu_time_ns=7,
        iperf3_version="3.12",
    )


def test_a_part_that_cannot_say_how_it_is_costs_only_its_own_line() -> None:
    fine = PartState("nic", True, "ok")
    long = PartState("spool", False, "corrupt", "x" * 10_000)
    empty = partial(
        collect, time_ns=5, spool_bytes=0, spool_oldest_time_ns=None, records_dropped=0, iperf3_version="", load=None
    )
    status = empty(parts=[broken, lambda: fine, lambda: long])
    assert status.parts[0] == PartState("broken", False, "state_failed", "RuntimeError: two lines")
    assert status.parts[1] == fine
    assert len(status.parts[2].detail) == MAX_DETAIL_CHARACTERS
    assert status.resident_memory_bytes is None
    assert status.cpu_time_ns is None


def test_an_exception_in_one_line() -> None:
    assert describe(ValueError()) == "ValueError"
    assert describe(ValueError("a\n  b")) == "ValueError: a b"
