"""What the process may hold open, and what is said when that is not enough.

A connection costs a descriptor: a fleet of a thousand agents is past the 1,024 that a process gets unless it asks.
"""

import asyncio
import contextlib
import ctypes
import errno
import logging
import resource
from collections.abc import Callable
from typing import Any

OWN_DESCRIPTORS = 256  # HTTP connections at their limit, day files, databases, sockets, and room
SAY_EVERY_NS = 60 * 1_000_000_000
_PR_SET_DUMPABLE = 4  # linux/prctl.h
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

logger = logging.getLogger(__name__)


def keep_memory_private() -> None:
    """No core files, and no debugger of the same user: keys and tokens are in here (prctl(2), PR_SET_DUMPABLE)."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def raise_descriptor_limit(agents: int) -> int:
    """Raises the soft limit of open files to the hard one; says so where even that is too little for the fleet.

    Returns:
        The limit from now on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            logger.warning("the limit of open files stays at %d: %s", soft, error)
    needed = agents + OWN_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        logger.warning(
            "%d open files are allowed, %d agents need about %d: raise the hard limit (systemd: LimitNOFILE=%d)",
            soft,
            agents,
            needed,
            needed,
        )
    return soft


def agent_connections(at_most: int) -> int:
    """How many connections of agents there is room for under the limit in force, leaving enough for everything else:
    gRPC turns away what is beyond, instead of taking the descriptor that a day file needs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return at_most
    return min(at_most, max(soft // 4, soft - OWN_DESCRIPTORS))


class AcceptErrors:
    """An event loop's exception handler that says once a minute, in one line, that connections cannot be accepted.
    asyncio reports that for each attempt, hundreds of times a second, with a traceback."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._say_from_ns = 0
        self._unsaid = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _NO_ROOM or "accept" not in context["message"]:
            loop.default_exception_handler(context)
            return
        self._unsaid += 1
        now_ns = self._monotonic_ns()
        if now_ns < self._say_from_ns:
            return
        self._say_from_ns = now_ns + SAY_EVERY_NS
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        logger.warning(
            "HTTP: connections wait, they cannot be accepted: %s (%d attempts; %d open files are allowed, "
            "systemd: LimitNOFILE=)",
            error.strerror,
            self._unsaid,
            limit,
        )
        self._unsaid = 0
