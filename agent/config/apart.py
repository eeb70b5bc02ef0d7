"""Reads agent.yaml in a child, so that an agent that runs for months does not carry the reader with it: YAML, msgspec
and what they import are 2 MB of the 56 that it is allowed."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

from agent.config import AgentConfig


class RefusedError(Exception):
    """The file cannot be used; the message lists every fault, one a line."""


def read_apart(path: Path) -> AgentConfig:
    """``agent.config.file.read``, but for where it happens.

    Raises:
        RefusedError: with every fault.
        subprocess.CalledProcessError: the child failed, which no file should make it do.
    """
    # -P, and the modules from where ours came from: never from a directory that this happens to be started in.
    done = subprocess.run(
        [sys.executable, "-P", "-m", "agent.config.file", str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    if done.returncode == 2:
        raise RefusedError(done.stderr.decode(errors="replace").rstrip("\n"))
    if done.returncode:
        sys.stderr.write(done.stderr.decode(errors="replace"))
    done.check_returncode()
    config = pickle.loads(done.stdout)  # noqa: S301 - of our own child
    assert isinstance(config, AgentConfig)
    return config
