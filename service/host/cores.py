"""The cores of this machine or container."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_UNLIMITED = 1_000_000.0
# Of cgroups version 2 and version 1: how much time in how long a period.
_CGROUP = Path("/sys/fs/cgroup")
_LIMITS = ((_CGROUP / "cpu.max",), (_CGROUP / "cpu/cpu.cfs_quota_us", _CGROUP / "cpu/cpu.cfs_period_us"))


def total() -> int:
    """How many of the machine's cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable() -> int:
    """How many cores' time this process may use: fewer than all if a container's limit is lower."""
    return min(total(), max(1, round(quota())))


def quota(limits: Iterable[tuple[Path, ...]] = _LIMITS) -> float:
    """How many cores' time a container may use, or as many as there can be if it has no such limit."""
    for files in limits:
        with suppress(OSError, ValueError):  # no such file, or "max"
            most, period = (int(text) for file in files for text in file.read_text().split())
            return most / period if most > 0 else _UNLIMITED
    return _UNLIMITED
