"""Keeps what this process knows out of core files, and from debuggers of the same user."""

import ctypes
import resource
from contextlib import suppress

_PR_SET_DUMPABLE = 4  # linux/prctl.h


def keep_memory_private() -> None:
    """To call before a key is read (prctl(2), getrlimit(2)). Only Linux has the first; elsewhere only cores are off."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
