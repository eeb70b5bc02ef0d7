"""Keeps the process small and the collector of cycles idle, once what lives for long has been built.

Only glibc has the calls; elsewhere nothing is done.
"""

import ctypes
import gc
from contextlib import suppress

_M_ARENA_MAX = -8  # malloc.h


def one_arena() -> None:
    """To call before there are threads: they share one heap. Else each of gRPC's would have one of its own and keep
    in it what the largest batch that passed through took, a megabyte each with thousands of targets."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def settle() -> None:
    """To call after something large and lasting was built: the agent itself, what a plan asks for.

    Cycles are collected once, what is left is not walked over again, and what it took to build goes back to the kernel.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
