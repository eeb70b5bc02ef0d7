"""Tree heads given out of this house: to time-stamp authorities (RFC 3161), by mail, by HTTP. Whoever holds one can
tell later whether the log was changed, the vendor as well as we.

``statement`` what is given (pure) · ``stamp`` RFC 3161 request and answer (pure) · ``carry`` the network · ``outbox``
what was given to whom, on disk · ``giving`` the loop.
"""

from collector.witness.giving import Giving
from collector.witness.outbox import Given, Outbox
from collector.witness.statement import Head, statement

__all__ = ["Given", "Giving", "Head", "Outbox", "statement"]
