"""A table's partitions and their files, those that need a compaction most first."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from service.catalog.files.data_files import DataFile
from service.catalog.files.small import is_small, partition_group


@dataclass(frozen=True)
class PartitionFiles:
    """The files of one partition; `group` identifies it, as `DataFile.group` does."""

    group: tuple[Any, ...]
    rows: int
    files: int
    bytes: int
    small_files: int

    @property
    def average_file_bytes(self) -> int:
        return self.bytes // self.files


def by_partition(files: Iterable[DataFile], small_bytes: int) -> list[PartitionFiles]:
    """Every partition that holds files: most small files first, then most files, then by value, nulls first."""
    groups: dict[tuple[Any, ...], list[DataFile]] = defaultdict(list)
    for file in files:
        groups[partition_group(file)].append(file)
    found = [
        PartitionFiles(
            group,
            sum(f.live_rows for f in of_one),
            len(of_one),
            sum(f.bytes for f in of_one),
            sum(is_small(f, small_bytes) for f in of_one),
        )
        for group, of_one in groups.items()
    ]
    return sorted(found, key=lambda p: (-p.small_files, -p.files, _in_order(p.group)))


def _in_order(group: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [(0,) if value is None else (2,) if value != value else (1, value) for value in group]
