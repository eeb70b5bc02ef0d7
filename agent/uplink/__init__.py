"""The one stream to the collector: batches up, acknowledgements and plans down. It never holds up measuring.

``uplink`` tries collectors in turn and comes back for ever, ``session`` is one stream from Hello to its end,
``window`` what is in flight, ``channel`` how a connection is made, ``diagnosis`` says in plain words why one failed.
"""

from agent.uplink.channel import UplinkSettings
from agent.uplink.session import Introduction
from agent.uplink.uplink import Uplink

__all__ = ["Introduction", "Uplink", "UplinkSettings"]
