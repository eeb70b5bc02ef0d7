"""Which CPUs a process may run on, set from outside."""

import os
from collections.abc import Set
from typing import Protocol


class Affinity(Protocol):
    """The kernel's, or one that only notes what is asked of it."""

    def allowed(self) -> frozenset[int]:
        """CPUs that this process may use."""

    def set(self, pid: int, cpus: Set[int]) -> bool:
        """Binds a process and what it starts; False when that cannot be done."""


class KernelAffinity:
    """``sched_setaffinity(2)``."""

    def allowed(self) -> frozenset[int]:
        return frozenset(os.sched_getaffinity(0))

    def set(self, pid: int, cpus: Set[int]) -> bool:
        try:
            os.sched_setaffinity(pid, cpus)
        except OSError:
            return False
        return True
