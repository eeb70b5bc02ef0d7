"""The contract: all that agent and collector share, and nothing else.

``v1`` is the wire format, ``identity`` what a path is, ``chain`` and ``merkle`` what is signed and how it is checked,
``settings`` the language both configuration files are written in. Prose: ``proto/bandwitness/README.md``.
"""

VERSION = "0.1.0"  # of the distribution: pyproject.toml reads it here

PROTOCOL_VERSION = 1

# gRPC keepalive, agreed on both sides: a server that allows fewer pings than the client sends ends the connection
# with too_many_pings, so both read these.
KEEPALIVE_TIME_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 10_000
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
