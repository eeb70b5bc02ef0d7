"""What must be there before an agent can be built: a place to keep things, a key, and which boot this is."""

import os
from pathlib import Path

from agent.identity import Identity, IdentityError, load_or_create, read_boot_id


class StartError(Exception):
    """The agent cannot run at all on this host; the message says why and what to do."""


def boot_id(root: Path) -> bytes:
    """16 bytes of this boot; random where the kernel's are hidden: then each start counts as a boot."""
    try:
        return read_boot_id(root)
    except (OSError, ValueError):
        return os.urandom(16)


def identity(state_dir: Path) -> Identity:
    """The agent's key; the directory and it are made where they are not there yet.

    Raises:
        StartError: neither can be had.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return load_or_create(state_dir)
    except OSError as error:
        raise StartError(f"{state_dir}: {error.strerror}: give it to this user, or change agent.state_dir") from None
    except IdentityError as error:
        raise StartError(str(error)) from None
