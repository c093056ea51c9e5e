"""Which files are small and worth merging: one rule for the check after a WRITE and for COMPACT."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from service.catalog.files.data_files import DataFile
from service.settings import CompactionSettings

MIB = 1024 * 1024

_MUCH_DELETED = 0.3
_NAN = float("nan")  # equal to itself only


def is_light(file: DataFile, small_bytes: int) -> bool:
    """Whether a file of a good size has delete files, but few deleted rows."""
    return bool(file.deletes) and not is_small(file, small_bytes)


def is_small(file: DataFile, small_bytes: int) -> bool:
    """Whether a file counts as small. A file with many deleted rows does, whatever its size."""
    # The same threshold as Iceberg's, which plans a COMPACT.
    return file.bytes < small_bytes or (file.deleted > 0 and file.deleted >= _MUCH_DELETED * file.rows)


def partition_group(file: DataFile) -> tuple[Any, ...]:
    """A file's group, equal for all files of one partition, even if its value is NaN."""
    return tuple(_NAN if value != value else value for value in file.group)


@dataclass(frozen=True)
class SmallFiles:
    """A table's small files, and those worth merging: small ones and ones with delete files, if there are enough small
    files and delete files in one partition."""

    small: tuple[DataFile, ...]
    worth_merging: tuple[DataFile, ...]
    heavy: int = 0
    """How many of these are large enough but have many deleted rows: each is worth rewriting alone."""
    light: int = 0
    """How many of these are large enough and have few deleted rows."""


def find_small_files(files: Iterable[DataFile], small_bytes: int, min_files: int) -> SmallFiles:
    small: list[DataFile] = []
    groups: dict[tuple[Any, ...], list[DataFile]] = defaultdict(list)
    for file in files:
        if is_small(file, small_bytes):
            small.append(file)
            groups[file.group].append(file)
        elif file.deletes:
            groups[file.group].append(file)
    worth: list[DataFile] = []
    for group in groups.values():
        if opened_needlessly(group, small_bytes) >= min_files and (len(group) > 1 or group[0].deletes):
            worth += group
        else:
            worth += [file for file in group if file.bytes >= small_bytes and not is_light(file, small_bytes)]
    light = sum(is_light(file, small_bytes) for file in worth)
    return SmallFiles(tuple(small), tuple(worth), sum(file.bytes >= small_bytes for file in worth) - light, light)


def opened_needlessly(files: Iterable[DataFile], small_bytes: int) -> int:
    """How many files of some there would not be after merging: small ones, and delete files, which readers open too."""
    return sum(is_small(file, small_bytes) + len(file.deletes) for file in files)


def small_bytes(policy: CompactionSettings, target_mb: int) -> int:
    """The size below which a file is small: the threshold, but not so near the target that merged files stay small."""
    return min(policy.small_file_threshold_mb * MIB, target_mb * MIB * 3 // 4)
