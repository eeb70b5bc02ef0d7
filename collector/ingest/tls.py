"""Whose certificate it is: mutual TLS, and the node's name in the certificate's URI."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from collector.config import Tls, file_faults

NODE_URI = "bandwitness://node/"

logger = logging.getLogger(__name__)


class TlsError(RuntimeError):
    """Certificate or key files that cannot be used; a line for each fault, which names the file."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the connection proved to be. An empty name: plain text, nothing was proved."""

    name: str
    certificate_sha256: bytes
    not_after_ns: int | None = None  # when the certificate ends


NOBODY = Identity("", b"")


class ServerFiles:
    """The listener's certificate, key and authority, read again when the files have changed: a certificate that is
    renewed is shown to the next connection, and those that stand go on.

    Args:
        tls: the files.
        above: certificates in PEM that are sent behind our own, for clients that have only a fingerprint of them.
        ask_clients: whether clients need a certificate of ``tls.ca``.

    Raises:
        TlsError: a file is missing, unreadable, damaged or open to others, or they do not belong together.
    """

    def __init__(self, tls: Tls, *, above: bytes = b"", ask_clients: bool = True) -> None:
        self._tls = tls
        self._above = above
        self._ask_clients = ask_clients
        self._lock = Lock()
        if faults := self._faults():
            raise TlsError(faults)
        self._seen = self._look()
        self._first = self._configuration()
        self.trouble = ""  # why files that have changed are not used

    def credentials(self) -> grpc.ServerCredentials:
        """For ``add_secure_port``."""
        fetch: Any = self.renewed  # None is allowed, whatever the stubs say
        return grpc.dynamic_ssl_server_credentials(self._first, fetch, self._ask_clients)

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked by gRPC before each handshake, in a thread of its own: what to use from now on, None for no change."""
        with self._lock:
            try:
                seen = self._look()
                if seen == self._seen:
                    return None
                self._seen = seen
                self.trouble = self._faults()
                if not self.trouble:
                    return self._configuration()
            except OSError as error:
                self.trouble = f"collector.tls: {error}"
            if self.trouble:
                logger.warning("the certificate in use stays, for what is there now cannot be used: %s", self.trouble)
            return None

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        facts = [Path(path).stat() for path in (self._tls.ca, self._tls.certificate, self._tls.key)]
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in facts)

    def _faults(self) -> str:
        return "\n".join(f"collector.tls.{key}: {message}" for key, message in file_faults(self._tls))

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        ca, certificate, key = (
            Path(path).read_bytes() for path in (self._tls.ca, self._tls.certificate, self._tls.key)
        )
        roots = ca if self._ask_clients else None
        return grpc.ssl_server_certificate_configuration([(key, certificate + self._above)], root_certificates=roots)


def server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """Credentials that ask every client for a certificate of ``tls.ca``.

    Raises:
        TlsError: as ``ServerFiles``.
    """
    return ServerFiles(tls).credentials()


def identity_of(auth_context: Mapping[str, Iterable[bytes]]) -> Identity | None:
    """The identity in a connection's authentication context; None where a certificate names no node of ours."""
    if b"ssl" not in auth_context.get("transport_security_type", ()):
        return NOBODY
    names = [uri.decode("utf-8", "replace") for uri in auth_context.get("peer_uri", ())]
    nodes = [uri.removeprefix(NODE_URI) for uri in names if uri.startswith(NODE_URI)]
    pem = next(iter(auth_context.get("x509_pem_cert", ())), b"")
    if len(nodes) != 1 or not nodes[0] or not pem:
        return None
    certificate = x509.load_pem_x509_certificate(pem)
    digest = sha256(certificate.public_bytes(Encoding.DER)).digest()
    return Identity(nodes[0], digest, int(certificate.not_valid_after_utc.timestamp()) * 1_000_000_000)
