"""The kernel's word on how good the wall clock is: adjtimex(2), read only.

chronyd, ntpd and ptp4l with phc2sys all keep the kernel's status and error bound up to date, so this needs none of
their programs. An unsynchronised kernel counts its bound up to 16 s and beyond; such figures mean nothing and are
left out.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache

from agent.result import ClockReading
from bandwitness.v1.record_pb2 import CLOCK_SOURCE_ADJTIMEX

STA_UNSYNC = 0x0040  # include/uapi/linux/timex.h
STA_NANO = 0x2000
TIME_ERROR = 5


class Timex(ctypes.Structure):
    """``struct timex`` of 64-bit Linux (include/uapi/linux/timex.h)."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),  # ns with STA_NANO, else µs
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),  # µs
        ("esterror", ctypes.c_long),  # µs
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", ctypes.c_long * 2),
        ("tick", ctypes.c_long),
        ("ppsfreq", ctypes.c_long),
        ("jitter", ctypes.c_long),
        ("shift", ctypes.c_int),
        ("stabil", ctypes.c_long),
        ("jitcnt", ctypes.c_long),
        ("calcnt", ctypes.c_long),
        ("errcnt", ctypes.c_long),
        ("stbcnt", ctypes.c_long),
        ("tai", ctypes.c_int),
        ("padding", ctypes.c_int * 11),
    )


def interpret(state: int, timex: Timex) -> ClockReading:
    """What a successful call says. Pure.

    Args:
        state: the call's return value (TIME_OK … TIME_ERROR).
        timex: what it filled in.
    """
    if state == TIME_ERROR or timex.status & STA_UNSYNC:
        return ClockReading(source=CLOCK_SOURCE_ADJTIMEX, synchronised=False)
    unit_ns = 1 if timex.status & STA_NANO else 1_000
    return ClockReading(
        source=CLOCK_SOURCE_ADJTIMEX,
        synchronised=True,
        offset_ns=timex.offset * unit_ns,
        # The maximum error is the bound; the estimated one, where a daemon sets it, may be the larger by mistake.
        error_bound_ns=max(timex.maxerror, timex.esterror) * 1_000,
    )


@cache
def _adjtimex() -> Callable[[Timex], int]:
    function = ctypes.CDLL(None, use_errno=True).adjtimex
    function.argtypes = (ctypes.POINTER(Timex),)
    function.restype = ctypes.c_int

    def call(timex: Timex) -> int:
        state: int = function(ctypes.byref(timex))
        if state < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return state

    return call


def read_clock(adjtimex: Callable[[Timex], int] | None = None) -> ClockReading:
    """The state of the wall clock; unsynchronised without figures where the kernel does not say (seccomp, gVisor).

    Args:
        adjtimex: fills in the structure and returns the state, or raises OSError. Without it, the C library's.
    """
    timex = Timex()  # modes 0: read, which needs no right
    try:
        return interpret((adjtimex or _adjtimex())(timex), timex)
    except (OSError, AttributeError):  # AttributeError: a C library without the function
        return ClockReading(source=CLOCK_SOURCE_ADJTIMEX, synchronised=False)
