"""The files of ``collector.tls``: are they there, do they hold what they should, do they belong together. Reads them.

gRPC says no more of a file it cannot use than that the address cannot be listened on, or nothing until the first agent
fails.
"""

import os
import ssl
import stat
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from collector.config.schema import Tls

Faults = Iterator[tuple[str, str]]  # key below collector.tls, message
_FILES = ("ca", "certificate", "key")


def file_faults(tls: Tls) -> Faults:
    """Everything for which the listener could not be opened, or no agent could connect."""
    contents: dict[str, bytes] = {}
    for name in _FILES:
        path = getattr(tls, name)
        if path is None:  # could not be read in the configuration, and is at fault there
            continue
        try:
            with Path(path).open("rb") as file:
                facts, contents[name] = os.fstat(file.fileno()), file.read()
        except OSError as error:
            yield name, f"{path} cannot be read: {error.strerror or error}"
            continue
        if name == "key" and (words := _open_to_others(path, stat.S_IMODE(facts.st_mode), facts.st_uid)):
            yield name, words
    held: dict[str, Any] = {}
    for name, content in contents.items():
        try:
            held[name] = _content(name, content)
        except ValueError as error:
            yield name, f"{getattr(tls, name)} {error}"
    yield from _together(tls, held)


def _content(name: str, content: bytes) -> Any:
    """The first certificate, or the private key.

    Raises:
        ValueError: what the file lacks, as the end of a sentence that begins with its name.
    """
    try:
        if name == "key":
            return load_pem_private_key(content, password=None)
        return x509.load_pem_x509_certificates(content)[0]
    except TypeError:
        raise ValueError("is under a password: write it without one, and let only the collector read it") from None
    except Exception:  # noqa: BLE001 - several libraries' kinds, one meaning
        what = "private key" if name == "key" else "certificate"
        raise ValueError(f"holds no {what} in PEM, or a damaged one") from None


def _together(tls: Tls, held: Mapping[str, Any]) -> Faults:
    certificate, key = held.get("certificate"), held.get("key")
    if certificate is not None and (words := _no_server(certificate)):
        yield "certificate", f"{tls.certificate} {words}"
    if certificate is None or key is None:
        return
    if _bytes_of(certificate.public_key()) != _bytes_of(key.public_key()):
        yield "key", f"{tls.key} is not the key of {tls.certificate}"
    elif "ca" in held and (words := _refused(tls)):
        yield "certificate", f"{tls.certificate} with {tls.key} cannot be used: {words}"


def date_faults(tls: Tls, now: datetime) -> Faults:
    """Certificates that are not valid at ``now`` (aware). Files at fault otherwise are passed over."""
    for name in ("ca", "certificate"):
        path = getattr(tls, name)
        try:
            certificates = x509.load_pem_x509_certificates(Path(path).read_bytes())
        except Exception:  # noqa: BLE001, S112 - told by file_faults
            continue
        for certificate in certificates[:1] if name == "certificate" else certificates:
            if certificate.not_valid_after_utc <= now:
                yield name, f"{path} has expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC: make it anew"
            elif certificate.not_valid_before_utc > now:
                since = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
                yield name, f"{path} is not valid before {since}: is this host's clock right ({now:%Y-%m-%d %H:%M})?"


def _open_to_others(path: str, mode: int, uid: int) -> str:
    """The rule for the agents' keys too: 0600, or 0640 where root owns it and the collector is its group."""
    allowed = 0o640 if uid == 0 else 0o600
    return f"{path} can be read by others (mode {mode:04o}): chmod 600 {path}" if mode & ~allowed & 0o077 else ""


def _no_server(certificate: x509.Certificate) -> str:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return ""
    except ValueError:
        return "has extensions that cannot be read"
    allowed = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)
    if any(purpose in usage for purpose in allowed):
        return ""
    return "is not for a server (extended key usage without serverAuth): is it an agent's?"


def _bytes_of(public_key: Any) -> bytes:
    return bytes(public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _refused(tls: Tls) -> str:
    """What OpenSSL has against the pair or the authority, such as a key that is too short."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key, password="")
        context.load_verify_locations(tls.ca)
    except (ssl.SSLError, OSError) as error:
        return str(getattr(error, "reason", None) or error)
    return ""
