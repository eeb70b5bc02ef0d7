"""Keeps the process small and the collector of cycles idle, once what lives for long has been built."""

import ctypes
import gc
from contextlib import suppress


def settle() -> None:
    """To call after something large and lasting was built: the agent itself, what a plan asks for.

    Cycles are collected once, what is left is not walked over again, and what it took to build goes back to the kernel.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    with suppress(AttributeError):  # only glibc keeps freed memory like this, and has the call
        ctypes.CDLL(None).malloc_trim(0)
