"""The durable log: batches as received, append-only, acknowledged only once they are on disk.

``log/<class>/<YYYY-MM-DD>.log`` holds frames (``frame``), one file per class and UTC day of receipt;
``log/index.sqlite`` says where each is and where every chain ends (``index``). The frames are the truth: the index can
be rebuilt from them.
"""

from collector.log.entry import Arrival, ChainKey, ChainState, Kept, LogError, LogUnavailableError, arrival
from collector.log.log import Appender, Log
from collector.log.writer import LogStatistics

__all__ = [
    "Appender",
    "Arrival",
    "ChainKey",
    "ChainState",
    "Kept",
    "Log",
    "LogError",
    "LogStatistics",
    "LogUnavailableError",
    "arrival",
]
