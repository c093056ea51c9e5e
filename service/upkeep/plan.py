"""Which files a compaction would merge: one rule, for the check after a WRITE and for COMPACT itself. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from service.catalog.files import DataFile
from service.settings import CompactionSettings

MIB = 1024 * 1024


@dataclass(frozen=True)
class Plan:
    """The small files there are, and those of them worth merging: enough within one partition."""

    small: tuple[DataFile, ...]
    worth_merging: tuple[DataFile, ...]


def plan(files: Iterable[DataFile], small_bytes: int, min_files: int) -> Plan:
    small = tuple(f for f in files if f.bytes < small_bytes)
    groups: dict[tuple[Any, ...], list[DataFile]] = defaultdict(list)
    for file in small:
        groups[file.group].append(file)
    worth = [file for group in groups.values() if len(group) >= min_files for file in group]
    return Plan(small, tuple(worth))


def small_bytes(policy: CompactionSettings, target_mb: int) -> int:
    """Below what size a file is small: the threshold, but never so near the target that merged files stay small."""
    return min(policy.small_file_threshold_mb * MIB, target_mb * MIB * 3 // 4)
