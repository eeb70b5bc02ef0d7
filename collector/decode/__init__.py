"""Log entries into rows: the one place where the wire format is read. Pure; never raises on bad input.

What cannot be read becomes a ``Quarantined`` row with its reason, and costs only itself: one bad record leaves the
others of its batch alone.
"""

from collector.decode.batch import Decoded, decode
from collector.decode.definitions import Definitions

__all__ = ["Decoded", "Definitions", "decode"]
