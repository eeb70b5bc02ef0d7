"""Reads collector.yaml."""

from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from bandwitness.settings import Fault, SettingsError, load
from collector.config.check import faults
from collector.config.schema import Config, Tls


def read_config(text: str, source: str) -> Config:
    """The configuration in ``text``. Pure but for a look into the time zone database.

    Raises:
        SettingsError: with every fault, each at its line.
    """
    return load(text, Config, source, check=faults, check_partial=True)


def load_config(path: Path | str) -> Config:
    """The configuration in the file at ``path``; files that it names are taken relative to it.

    Raises:
        SettingsError: with every fault, each at its line; also where the file cannot be read.
    """
    config = read_config(_decoded(path), str(path))
    base = Path(path).resolve().parent
    collector = replace(config.collector, state_dir=str(base / config.collector.state_dir))
    if collector.tls is not None:
        files = {name: str(base / getattr(collector.tls, name)) for name in ("ca", "certificate", "key")}
        collector = replace(collector, tls=Tls(**files))
    return replace(config, collector=collector)


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
        raise SettingsError(str(path), [Fault(1, 1, "", f"cannot be read: {error.strerror or error}")]) from None


def _decoded(path: Path | str) -> str:
    data = _bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise SettingsError(str(path), [Fault(line, column, "", "not UTF-8 text")]) from None
