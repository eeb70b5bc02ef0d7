"""What is signed and not yet acknowledged, on disk: one SQLite file with a limit.

``database`` is the file, ``retention`` how much is kept, ``core`` the rules (all of these blocking, in one thread),
``spool`` the awaitable face, and ``journal`` ties the recorder to it.
"""

from agent.spool.core import SpoolStats, StaleChainError
from agent.spool.database import SpoolError
from agent.spool.journal import Journal
from agent.spool.retention import Limits
from agent.spool.spool import Spool

__all__ = ["Journal", "Limits", "Spool", "SpoolError", "SpoolStats", "StaleChainError"]
