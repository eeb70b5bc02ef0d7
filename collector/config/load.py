"""Reads collector.yaml."""

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from bandwitness.settings import Fault, Place, SettingsError, load
from collector.config.check import faults
from collector.config.schema import Config, HttpTls, Tls
from collector.config.tls_files import date_faults, file_faults, http_file_faults


def read_config(text: str, source: str) -> Config:
    """The configuration in ``text``. Pure but for a look into the time zone database.

    Raises:
        SettingsError: with every fault, each at its line.
    """
    return load(text, Config, source, check=faults, check_partial=True)


def load_config(path: Path | str, *, now: datetime | None = None) -> Config:
    """The configuration in the file at ``path``; files that it names are taken relative to it, and those of
    ``collector.tls`` looked into.

    Args:
        path: of collector.yaml.
        now: aware; that certificates are not valid then is a fault too. None: at the start a host's clock may be off,
            and a collector without agents still shows what it has.

    Raises:
        SettingsError: with every fault, each at its line; also where the file cannot be read.
    """
    base = Path(path).resolve().parent

    def check(config: Config) -> Iterator[tuple[Place, str]]:
        yield from faults(config)
        if config.collector.http_tls is not None:
            for key, message in http_file_faults(_http_placed(config.collector.http_tls, base)):
                yield ("collector", "http_tls", key), message
        if config.collector.tls is None:
            return
        tls = _placed(config.collector.tls, base)
        for found in (file_faults(tls), date_faults(tls, now) if now is not None else ()):
            for key, message in found:
                yield ("collector", "tls", key), message

    config = load(_decoded(path), Config, str(path), check=check, check_partial=True)
    collector = replace(config.collector, state_dir=str(base / config.collector.state_dir))
    if collector.tls is not None:
        collector = replace(collector, tls=_placed(collector.tls, base))
    if collector.http_tls is not None:
        collector = replace(collector, http_tls=_http_placed(collector.http_tls, base))
    authorities = tuple(replace(one, ca=str(base / one.ca)) for one in collector.timestamp_authorities)
    remotes = tuple(
        replace(
            one,
            ca=one.ca and str(base / one.ca),
            bearer_token_file=one.bearer_token_file and str(base / one.bearer_token_file),
        )
        for one in collector.remote_write
    )
    collector = replace(collector, timestamp_authorities=authorities, remote_write=remotes)
    return replace(config, collector=collector)


def _placed(tls: Tls, base: Path) -> Tls:
    """With whole paths; a name that could not be read stays None."""
    names = {key: getattr(tls, key) for key in ("ca", "certificate", "key", "ca_key")}
    return replace(tls, **{key: None if name is None else str(base / name) for key, name in names.items()})


def _http_placed(tls: HttpTls, base: Path) -> HttpTls:
    """As ``_placed``."""
    names = {key: getattr(tls, key) for key in ("certificate", "key")}
    return replace(tls, **{key: None if name is None else str(base / name) for key, name in names.items()})


def configuration_hash(path: Path | str) -> bytes:
    """SHA-256 of the file's bytes, for the header of each batch of the control chain.

    Raises:
        SettingsError: the file cannot be read.
    """
    return sha256(_bytes(path)).digest()


def _bytes(path: Path | str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(
            str(path), [Fault(1, 1, "", f"cannot be read: {error.strerror or error}; --config names another")]
        ) from None


def _decoded(path: Path | str) -> str:
    data = _bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise SettingsError(str(path), [Fault(line, column, "", "not UTF-8 text")]) from None
