"""The name is the one in the certificate's URI, or there is none."""

import datetime
from hashlib import sha256

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from collector.ingest.tls import NOBODY, Identity, identity_of

NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n1")])
KEY = Ed25519PrivateKey.generate()
CERTIFICATE = (
    x509.CertificateBuilder(NAME, NAME, KEY.public_key(), 1)
    .not_valid_before(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    .not_valid_after(datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC))
    .sign(KEY, None)
)


def context(*uris: str) -> dict[str, list[bytes]]:
    return {
        "transport_security_type": [b"ssl"],
        "peer_uri": [uri.encode() for uri in uris],
        "x509_common_name": [b"n9"],
        "x509_pem_cert": [CERTIFICATE.public_bytes(Encoding.PEM)],
    }


def test_the_uri_names_the_node_and_the_common_name_does_not() -> None:
    digest = sha256(CERTIFICATE.public_bytes(Encoding.DER)).digest()
    assert identity_of(context("https://example.com", "bandwitness://node/n1")) == Identity(
        "n1", digest, int(CERTIFICATE.not_valid_after_utc.timestamp()) * 10**9
    )


def test_plain_text_proves_nothing() -> None:
    assert identity_of({}) == NOBODY


@pytest.mark.parametrize(
    "uris",
    [
        (),
        ("bandwitness://collector/c",),
        ("bandwitness://node/",),
        ("bandwitness://node/n1", "bandwitness://node/n2"),
    ],
)
def test_a_certificate_without_exactly_one_node_is_nobodys(uris: tuple[str, ...]) -> None:
    assert identity_of(context(*uris)) is None
