"""adjtimex(2): synchronised or not, units, and a kernel that does not say."""

import ctypes
import errno

import pytest

from agent.result import ClockReading
from agent.sample.clockstate import STA_NANO, STA_UNSYNC, TIME_ERROR, Timex, interpret, read_clock
from bandwitness.v1.record_pb2 import CLOCK_SOURCE_ADJTIMEX

UNSYNCHRONISED = ClockReading(source=CLOCK_SOURCE_ADJTIMEX, synchronised=False)


@pytest.mark.parametrize(("status", "offset_ns"), [(STA_NANO, -250), (0, -250_000)])
def test_offset_is_in_the_unit_the_status_names(status: int, offset_ns: int) -> None:
    timex = Timex(status=status, offset=-250, maxerror=1_500, esterror=12)
    assert interpret(0, timex) == ClockReading(
        source=CLOCK_SOURCE_ADJTIMEX, synchronised=True, offset_ns=offset_ns, error_bound_ns=1_500_000
    )


@pytest.mark.parametrize(("state", "status"), [(TIME_ERROR, 0), (0, STA_UNSYNC), (TIME_ERROR, STA_UNSYNC | STA_NANO)])
def test_an_unsynchronised_clock_has_no_figures(state: int, status: int) -> None:
    assert interpret(state, Timex(status=status, offset=5, maxerror=16_000_000, esterror=16_000_000)) == UNSYNCHRONISED


@pytest.mark.parametrize("error", [OSError(errno.EPERM, "refused"), AttributeError("no adjtimex")])
def test_a_refused_call_is_unsynchronised_without_figures(error: Exception) -> None:
    def refused(timex: Timex) -> int:
        raise error

    assert read_clock(refused) == UNSYNCHRONISED


def test_the_structure_has_the_kernels_size_and_the_kernel_fills_it() -> None:
    assert ctypes.sizeof(Timex) == 208  # x86-64 and aarch64
    seen: list[int] = []
    timex = Timex()
    seen.append(ctypes.CDLL(None).adjtimex(ctypes.byref(timex)))
    assert 0 <= seen[0] <= TIME_ERROR
    assert 9_000 <= timex.tick <= 11_000  # µs between kernel ticks, USER_HZ 100
    reading = read_clock()
    assert reading.source == CLOCK_SOURCE_ADJTIMEX
    assert reading.synchronised or reading.error_bound_ns is None
