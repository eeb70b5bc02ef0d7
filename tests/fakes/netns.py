"""Network namespaces that tests make and visit."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)  # os.setns is there from Python 3.12 on


def ip(*words: str) -> None:
    """The program ``ip``, which must succeed."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextmanager
def namespace(name: str) -> Iterator[str]:
    """A network namespace with nothing but loopback, gone when the block is left."""
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@contextmanager
def inside(name: str) -> Iterator[None]:
    """This thread visits a namespace; sockets made meanwhile belong to it."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        assert LIBC.setns(there, CLONE_NEWNET) == 0
        yield
    finally:
        assert LIBC.setns(home, CLONE_NEWNET) == 0
        os.close(home)
        os.close(there)
