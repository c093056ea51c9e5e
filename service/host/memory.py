"""The memory of this machine or container, and whether it suffices for a process for queries."""

import os
from collections.abc import Iterable
from pathlib import Path

from service.settings import Settings

GB = 1 << 30
# Beside the heaps: what two JVMs and two Python processes need, and a little for files.
_BESIDE_HEAPS = 3 * GB
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": GB}
# Of cgroups version 2 and version 1.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def query_process(settings: Settings, *, serves_others: bool, memory: int | None = None) -> bool:
    """Whether queries get a process of their own.

    By default, if the service serves others, runs Spark on this machine, and the memory suffices for two heaps. A Spark
    cluster's cores have to be divided by someone who knows them.
    """
    spark = settings.spark
    if spark.processes != "auto":
        return spark.processes == "2"
    if not serves_others or not spark.master.startswith("local"):
        return False
    heaps = size(spark.driver_memory) + size(spark.query_memory or spark.driver_memory)
    return (total() if memory is None else memory) >= heaps + _BESIDE_HEAPS


def size(text: str) -> int:
    """The bytes of a heap such as `2g`."""
    return int(text[:-1]) * _UNITS[text[-1].lower()]


def total(limits: Iterable[Path] = _LIMITS) -> int:
    """The machine's memory in bytes, or less if a container's limit is lower."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in limits:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    return min(found)
