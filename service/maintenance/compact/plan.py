"""Which small files a compaction merges together. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Protocol, TypeVar

from service.catalog.files.data_files import DataFile
from service.catalog.files.small import is_small, partition_group


class SmallFileGroup(Protocol):
    """Small files of one partition that a compaction would merge at one go; a partition may have several."""

    @property
    def partition(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def files(self) -> int: ...
    @property
    def expected_files(self) -> int: ...
    @property
    def heavy(self) -> bool: ...


B = TypeVar("B", bound=SmallFileGroup)


def core_shares(sizes: Sequence[int], at_once: int) -> list[int]:
    """Of pieces of work of these sizes, so many at once: how many each shares the cores with, itself among them.

    One that is larger than the others together goes on when they are done, and is to use all cores.
    """
    total = sum(sizes)
    return [min(at_once, max(1, total // max(1, size))) for size in sizes]


def small_files_beside(files: Iterable[DataFile], small_bytes: int, paths: Set[str]) -> dict[str, int]:
    """How many small files the partition has that a file lies in, for each of some files."""
    in_group = Counter[tuple[Any, ...]]()
    group = {}
    for file in files:
        of = partition_group(file)
        in_group[of] += is_small(file, small_bytes)
        if file.path in paths:
            group[file.path] = of
    return {path: in_group[of] for path, of in group.items()}


def choose(
    bundles: Sequence[B], min_files: int, max_files: int, small_beside: Mapping[str, int]
) -> list[tuple[B, int]]:
    """The bundles worth merging, as they come, each with how many of its files are: at most so many in all.

    A partition is worth it with enough small files; files of which much is deleted are worth it by themselves.
    `small_beside` counts, by a file of each bundle, those too that fit into no bundle.
    """
    in_partition = Counter[str]()
    for bundle in bundles:
        in_partition[bundle.partition] += bundle.files
    chosen: list[tuple[B, int]] = []
    left = max_files
    for bundle in bundles:
        small = max(in_partition[bundle.partition], small_beside.get(bundle.path, 0))
        fewer = bundle.expected_files < bundle.files and small >= min_files
        take = min(bundle.files, left)
        if (fewer and take >= 2) or (bundle.heavy and take):
            chosen.append((bundle, take))
            left -= take
    return chosen
