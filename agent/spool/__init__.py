"""What is signed and not yet acknowledged, on disk: one SQLite file with a limit.

``database`` is the file, ``core`` the rules (all of it blocking, in one thread), ``spool`` the awaitable face, and
``journal`` ties the recorder to it.
"""

from agent.spool.core import Limits, SpoolStats, StaleChainError
from agent.spool.database import SpoolError
from agent.spool.journal import Journal
from agent.spool.spool import Spool

__all__ = ["Journal", "Limits", "Spool", "SpoolError", "SpoolStats", "StaleChainError"]
