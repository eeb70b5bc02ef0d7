"""Whose certificate it is: mutual TLS, and the node's name in the certificate's URI."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from collector.config import Tls, file_faults

NODE_URI = "bandwitness://node/"


class TlsError(RuntimeError):
    """Certificate or key files that cannot be used; a line for each fault, which names the file."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the connection proved to be. An empty name: plain text, nothing was proved."""

    name: str
    certificate_sha256: bytes


NOBODY = Identity("", b"")


def server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """Credentials that ask every client for a certificate of ``tls.ca``.

    Raises:
        TlsError: a file is missing, unreadable, damaged or open to others, or they do not belong together.
    """
    if faults := [f"collector.tls.{key}: {message}" for key, message in file_faults(tls)]:
        raise TlsError("\n".join(faults))
    ca, certificate, key = (Path(path).read_bytes() for path in (tls.ca, tls.certificate, tls.key))
    return grpc.ssl_server_credentials([(key, certificate)], root_certificates=ca, require_client_auth=True)


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
    return Identity(nodes[0], sha256(certificate.public_bytes(Encoding.DER)).digest())
