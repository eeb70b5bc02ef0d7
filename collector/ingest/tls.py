"""Whose certificate it is: mutual TLS, and the node's name in the certificate's URI."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from collector.config import Tls

NODE_URI = "bandwitness://node/"


class TlsError(RuntimeError):
    """A certificate or key file that cannot be used; the text names it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the connection proved to be. An empty name: plain text, nothing was proved."""

    name: str
    certificate_sha256: bytes


NOBODY = Identity("", b"")


def server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """Credentials that ask every client for a certificate of ``tls.ca``.

    Raises:
        TlsError: a file is missing, unreadable or not PEM.
    """
    texts = {}
    for name, begin in (("ca", b"CERTIFICATE"), ("certificate", b"CERTIFICATE"), ("key", b"PRIVATE KEY")):
        path = Path(getattr(tls, name))
        try:
            texts[name] = path.read_bytes()
        except OSError as error:
            raise TlsError(f"collector.tls.{name}: {path}: {error.strerror}") from error
        if begin not in texts[name]:
            raise TlsError(f"collector.tls.{name}: {path}: no PEM {begin.decode()} in it")
    return grpc.ssl_server_credentials(
        [(texts["key"], texts["certificate"])], root_certificates=texts["ca"], require_client_auth=True
    )


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
