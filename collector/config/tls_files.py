"""The files of ``collector.tls``: are they there, do they hold what they should, do they belong together. Reads them.

gRPC says no more of a file it cannot use than that the address cannot be listened on, or nothing until the first agent
fails.
"""

import os
import ssl
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from collector.config.schema import HttpTls, Tls

Faults = Iterator[tuple[str, str]]  # key below collector.tls, message
_FILES = ("ca", "certificate", "key")
MIN_LIFETIME_NS, MAX_LIFETIME_NS = 60 * 1_000_000_000, 825 * 86_400 * 1_000_000_000


def file_faults(tls: Tls) -> Faults:
    """Everything for which the listener could not be opened, or no agent could connect."""
    yield from _lifetime(tls)
    held: dict[str, Any] = {}
    yield from _read(tls, (*_FILES, "ca_key"), held)
    yield from _together(tls, held)
    yield from _signer(tls, held)


def http_file_faults(tls: HttpTls) -> Faults:
    """Everything for which the HTTP listener could not be opened."""
    held: dict[str, Any] = {}
    yield from _read(tls, ("certificate", "key"), held)
    yield from _together(tls, held)


def _lifetime(tls: Tls) -> Faults:
    if tls.certificate_lifetime is not None and not MIN_LIFETIME_NS <= tls.certificate_lifetime <= MAX_LIFETIME_NS:
        yield "certificate_lifetime", "expected 1m to 825d"


def _read(tls: Tls | HttpTls, names: Sequence[str], held: dict[str, Any]) -> Faults:
    """What the files hold, put into ``held``."""
    contents: dict[str, bytes] = {}
    for name in names:
        path = getattr(tls, name)
        if path is None:  # not given, or could not be read in the configuration, and is at fault there
            continue
        try:
            with Path(path).open("rb") as file:
                facts, contents[name] = os.fstat(file.fileno()), file.read()
        except OSError as error:
            yield name, f"{path} cannot be read: {error.strerror or error}"
            continue
        if name.endswith("key") and (words := _open_to_others(path, stat.S_IMODE(facts.st_mode), facts.st_uid)):
            yield name, words
    for name, content in contents.items():
        try:
            held[name] = _content(name, content)
        except ValueError as error:
            yield name, f"{getattr(tls, name)} {error}"


def _content(name: str, content: bytes) -> Any:
    """The first certificate, or the private key.

    Raises:
        ValueError: what the file lacks, as the end of a sentence that begins with its name.
    """
    try:
        if name.endswith("key"):
            return load_pem_private_key(content, password=None)
        return x509.load_pem_x509_certificates(content)[0]
    except TypeError:
        raise ValueError("is under a password: write it without one, and let only the collector read it") from None
    except Exception:  # noqa: BLE001 - several libraries' kinds, one meaning
        what = "private key" if name.endswith("key") else "certificate"
        raise ValueError(f"holds no {what} in PEM, or a damaged one") from None


def signer_of(ca: bytes, key: Any) -> x509.Certificate | None:
    """The authority among those in ``ca`` (PEM) that ``key`` signs for."""
    public = _bytes_of(key.public_key())
    return next((one for one in x509.load_pem_x509_certificates(ca) if _bytes_of(one.public_key()) == public), None)


def _signer(tls: Tls, held: Mapping[str, Any]) -> Faults:
    """Whether nodes can be enrolled with ``ca_key``, and would then trust this collector."""
    key = held.get("ca_key")
    if key is None or "ca" not in held:
        return
    authority = signer_of(Path(tls.ca).read_bytes(), key)
    if authority is None:
        yield "ca_key", f"{tls.ca_key} is not the key of an authority in {tls.ca}"
    elif not isinstance(key, ec.EllipticCurvePrivateKey):
        yield "ca_key", f"{tls.ca_key} is no ECDSA key: make an authority with deploy/make_certificates.py"
    elif "certificate" in held:
        try:
            held["certificate"].verify_directly_issued_by(authority)
        except Exception:  # noqa: BLE001 - several kinds, one meaning
            words = "enrolled nodes would not trust it: it has to be from the authority of ca_key"
            yield "certificate", f"{tls.certificate} is not from the authority of {tls.ca_key}; {words}"


def _together(tls: Tls | HttpTls, held: Mapping[str, Any]) -> Faults:
    certificate, key = held.get("certificate"), held.get("key")
    if certificate is not None and (words := _no_server(certificate)):
        yield "certificate", f"{tls.certificate} {words}"
    if certificate is None or key is None:
        return
    if _bytes_of(certificate.public_key()) != _bytes_of(key.public_key()):
        yield "key", f"{tls.key} is not the key of {tls.certificate}"
    elif ("ca" in held or isinstance(tls, HttpTls)) and (words := _refused(tls)):
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


def _refused(tls: Tls | HttpTls) -> str:
    """What OpenSSL has against the pair or the authority, such as a key that is too short."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key, password="")
        if isinstance(tls, Tls):
            context.load_verify_locations(tls.ca)
    except (ssl.SSLError, OSError) as error:
        return str(getattr(error, "reason", None) or error)
    return ""
