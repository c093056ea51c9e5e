"""Which small files a compaction merges together. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from service.catalog.files.data_files import DataFile
from service.catalog.files.small import opened_needlessly, partition_group
from service.engine.iceberg.compaction import FileGroup


def core_shares(sizes: Sequence[int], at_once: int) -> list[int]:
    """Among how many pieces of work, itself included, each piece shares the cores, if `at_once` run in parallel. A
    piece that is larger than the others together goes on after them, and then uses all cores."""
    total = sum(sizes)
    return [min(at_once, max(1, total // max(1, size))) for size in sizes]


def small_files_beside(files: Iterable[DataFile], small_bytes: int, paths: Set[str]) -> dict[str, int]:
    """For each of some files: the number of small files and delete files in its partition."""
    small = Counter[tuple[Any, ...]]()
    partitions = {}
    for file in files:
        partition = partition_group(file)
        small[partition] += opened_needlessly([file], small_bytes)
        if file.path in paths:
            partitions[file.path] = partition
    return {path: small[partition] for path, partition in partitions.items()}


def choose(
    groups: Sequence[FileGroup], min_files: int, max_files: int, small_beside: Mapping[str, int]
) -> list[tuple[FileGroup, int]]:
    """The groups worth merging, in the given order, each with the number of files to take: `max_files` in all.

    A partition is worth it if it has enough small files. Heavy groups, to be rewritten for their deletes, always are.
    `small_beside` is the number of small files by the path of a group, including those in no group.
    """
    in_partition = Counter[str]()
    for group in groups:
        in_partition[group.partition] += group.files
    chosen: list[tuple[FileGroup, int]] = []
    left = max_files
    for group in groups:
        small = max(in_partition[group.partition], small_beside.get(group.path, 0))
        fewer = group.expected_files < group.files and small >= min_files
        take = min(group.files, left)
        if (fewer and take >= 2) or (group.heavy and take):
            chosen.append((group, take))
            left -= take
    return chosen
