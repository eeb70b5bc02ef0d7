"""agent.yaml: what it may hold, its defaults, and every fault at its line.

``parse`` is pure but for the ``look`` it is given; ``read`` is the one that touches the disk. Files named in the file
are taken relative to it. There is no reload: a restart is the reload.

As a program (``python -m agent.config.file FILE``) it is the child of ``agent.config.apart``.
"""

import os
import pickle
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import msgspec

from agent.config import Address, AgentConfig, Engine, IdentityFiles, LogLevel, MarkConfig, enrolled_files
from bandwitness.settings import Duration, Fault, Place, SettingsError, Size, load

DAY_NS = 86_400_000_000_000
MAX_COLLECTORS = 16
MIN_MARK_EXPIRY_NS, MAX_MARK_EXPIRY_NS = 1_000_000_000, DAY_NS
MAX_SOCKET_PATH_BYTES = 107  # sun_path without its closing zero
Name = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z",
        description="up to 63 letters, digits, dots, hyphens, underscores, not beginning with a mark",
    ),
]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class IdentitySection(msgspec.Struct, frozen=True, kw_only=True):
    """Files of the mTLS identity, all three or none: then those that `enrol` put into the state directory.
    ``server_name``: the collector's name in its certificate, where the address is not in it."""

    ca: Text | None = None
    certificate: Text | None = None
    key: Text | None = None
    server_name: str = ""


class SpoolSection(msgspec.Struct, frozen=True, kw_only=True):
    """How much may wait for the collector."""

    max_bytes: Size = Size(2**30)
    max_age: Duration = Duration(14 * DAY_NS)


class MarkSection(msgspec.Struct, frozen=True, kw_only=True):
    """Where trainers say that a checkpoint begins or ends. An empty ``socket``: /run/bandwitness/mark.sock, or
    mark.sock in the state directory where that cannot be had."""

    enabled: bool = True
    socket: str = ""
    expiry: Duration = Duration(1_800_000_000_000)


class AgentSection(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    state_dir: Text
    collectors: tuple[str, ...]
    identity: IdentitySection | None = None
    spool: SpoolSection = SpoolSection()
    iperf3: Text = "iperf3"
    engine: Engine = "iperf3"
    log_level: LogLevel = "info"
    mark: MarkSection = MarkSection()


class AgentFile(msgspec.Struct, frozen=True, kw_only=True):
    agent: AgentSection


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What matters of a file that the configuration names: permission bits and owner."""

    mode: int
    uid: int


Look = Callable[[Path], FileFacts]  # raises OSError


def look(path: Path) -> FileFacts:
    """Opens the file for reading and says what it is.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
    return FileFacts(stat.S_IMODE(facts.st_mode), facts.st_uid)


def key_fault(facts: FileFacts, path: Path) -> str | None:
    """Why a private key must not be used; PostgreSQL's rule: 0600, or 0640 where root owns it and we are its group."""
    allowed = 0o640 if facts.uid == 0 else 0o600
    if facts.mode & 0o777 & ~allowed & 0o077:
        return f"{path} can be read by others (mode {facts.mode:04o}): chmod 600 {path}"
    return None


def parse_address(text: str) -> Address:
    """``10.0.0.1:7443``, ``[2001:db8::1]:7443`` or ``name:7443``.

    Raises:
        ValueError: anything else; the message says what is allowed.
    """
    host, colon, port = text.rpartition(":")
    wrong = f"expected HOST:PORT such as 10.0.0.1:7443, found {text[:60]!r}"
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 5 or not 1 <= int(port) <= 65535:
        raise ValueError(wrong)
    if host.startswith("[") and host.endswith("]"):
        try:
            return Address(str(ip_address(host[1:-1])), int(port))
        except ValueError:
            raise ValueError(f"no IPv6 address in the brackets of {text[:60]!r}") from None
    if ":" in host:
        raise ValueError(f"an IPv6 address stands in brackets: [{host[:60]}]:{port}")
    if not host or any(not (c.isalnum() or c in ".-_") for c in host):
        raise ValueError(wrong)
    return Address(host, int(port))


def parse(text: str, source: str, base: Path, *, look: Look = look, enrolling: bool = False) -> AgentConfig:
    """The configuration in ``text``.

    Args:
        text: the YAML document.
        source: the file's name, for messages.
        base: the directory that relative file names start from.
        look: reads the facts of a file that the configuration names.
        enrolling: the identity is about to be made, and is not looked at.

    Raises:
        SettingsError: with every fault found, each with line, column and key.
    """

    def check(file: AgentFile) -> Iterator[tuple[Place, str]]:
        # What could not be read is None here (check_partial), so that all faults are found in one go.
        if file.agent is not None:
            own = None if enrolling else _identity(file.agent, base, look)
            if file.agent.collectors is not None:
                yield from _collector_faults(file.agent, plain=own is None and not enrolling)
            yield from _file_faults(file.agent, base)
            if own is not None:
                yield from _identity_faults(own, look)

    section = load(text, AgentFile, source, check=check, check_partial=True).agent
    return AgentConfig(
        name=section.name,
        state_dir=base / section.state_dir,
        collectors=tuple(parse_address(entry) for entry in section.collectors),
        identity=None if enrolling else _identity(section, base, look),
        spool_max_bytes=int(section.spool.max_bytes),  # plain: the kinds of the grammar stay here
        spool_max_age_ns=int(section.spool.max_age),
        # A bare name is found on PATH, a path starts from the file like all others.
        iperf3=str(base / section.iperf3) if "/" in section.iperf3 else section.iperf3,
        engine=section.engine,
        log_level=section.log_level,
        sha256=sha256(text.encode()).digest(),
        mark=MarkConfig(
            section.mark.enabled, base / section.mark.socket if section.mark.socket else None, int(section.mark.expiry)
        ),
    )


def _identity(section: AgentSection, base: Path, look: Look) -> IdentityFiles | None:
    """The files that are named, or those of an enrolment where there are any; None: plain text."""
    given = section.identity
    if given is not None and (given.ca or given.certificate or given.key):
        # What is missing is a fault of its own, and stands for a file that is not there.
        ca, certificate, key = (base / (name or "") for name in (given.ca, given.certificate, given.key))
        return IdentityFiles(ca, certificate, key, given.server_name)
    if section.state_dir is None:
        return None
    files = enrolled_files(base / section.state_dir, given.server_name if given is not None else "")
    try:
        look(files.certificate)
    except (FileNotFoundError, NotADirectoryError):
        return None if given is None else files
    except OSError:
        return files
    return files


_CURE = "`bandwitness-agent enrol` gets one, or give identity (ca, certificate, key)"


def _collector_faults(section: AgentSection, *, plain: bool) -> Iterator[tuple[Place, str]]:
    place: Place = ("agent", "collectors")
    if not 1 <= len(section.collectors) <= MAX_COLLECTORS:
        yield place, f"expected 1 to {MAX_COLLECTORS} collectors, found {len(section.collectors)}"
    seen: set[Address] = set()
    for index, entry in enumerate(section.collectors):
        if entry is None:
            continue
        try:
            address = parse_address(entry)
        except ValueError as error:
            yield (*place, index), str(error)
            continue
        if address in seen:
            yield (*place, index), f"{address} stands here twice"
        seen.add(address)
        if plain and not address.loopback:
            yield (
                (*place, index),
                f"{address} is not on this host: without identity only loopback is allowed. {_CURE}",
            )


def _file_faults(section: AgentSection, base: Path) -> Iterator[tuple[Place, str]]:
    if section.spool.max_bytes < 2**20:
        yield ("agent", "spool", "max_bytes"), "expected 1MiB or more"
    if section.mark is not None:
        yield from _mark_faults(section.mark, base)
    given = section.identity
    if given is not None and any((given.ca, given.certificate, given.key)):
        for key in ("ca", "certificate", "key"):
            if not getattr(given, key):
                yield ("agent", "identity", key), "missing: ca, certificate and key go together"


def _identity_faults(files: IdentityFiles, look: Look) -> Iterator[tuple[Place, str]]:
    for key in ("ca", "certificate", "key"):
        path: Path = getattr(files, key)
        try:
            facts = look(path)
        except OSError as error:
            yield ("agent", "identity", key), f"{path} cannot be read: {error.strerror or error}"
            continue
        if key == "key" and (fault := key_fault(facts, path)):
            yield ("agent", "identity", key), fault


def _mark_faults(section: MarkSection, base: Path) -> Iterator[tuple[Place, str]]:
    if section.expiry is not None and not MIN_MARK_EXPIRY_NS <= section.expiry <= MAX_MARK_EXPIRY_NS:
        yield ("agent", "mark", "expiry"), "expected 1s to 1d"
    if section.socket is not None and len(os.fsencode(base / section.socket)) > MAX_SOCKET_PATH_BYTES:
        yield ("agent", "mark", "socket"), f"expected a path of at most {MAX_SOCKET_PATH_BYTES} bytes (unix(7))"


def read(path: Path, *, enrolling: bool = False) -> AgentConfig:
    """The configuration in the file ``path``. ``enrolling``: as of ``parse``.

    Raises:
        SettingsError: with every fault; a file that cannot be read is one fault at its first line.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise SettingsError(
            str(path), [Fault(1, 1, "", f"cannot be read: {error.strerror}; --config names another")]
        ) from None
    except UnicodeDecodeError as error:
        raise SettingsError(str(path), [Fault(1, 1, "", f"is not UTF-8 text (byte {error.start})")]) from None
    return parse(text, str(path), path.resolve().parent, enrolling=enrolling)


def main() -> None:
    """Writes the configuration pickled to standard output; faults go to standard error and exit with 2."""
    try:
        config = read(Path(sys.argv[1]))
    except SettingsError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    sys.stdout.buffer.write(pickle.dumps(config))


if __name__ == "__main__":
    main()
