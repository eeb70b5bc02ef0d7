"""Taking batches in: who sends, does the batch stand in its chain, is it durable; only then is it acknowledged."""

from collector.ingest.service import Ingest, ListenError, start_server
from collector.ingest.sessions import IngestStatistics, Session, Sessions
from collector.ingest.stream import StreamEndError
from collector.ingest.tls import ServerFiles, TlsError, server_credentials

__all__ = [
    "Ingest",
    "IngestStatistics",
    "ListenError",
    "ServerFiles",
    "Session",
    "Sessions",
    "StreamEndError",
    "TlsError",
    "server_credentials",
    "start_server",
]
