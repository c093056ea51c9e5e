"""The data files of an ingestion table, by period: from metadata alone."""

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass

from service.catalog.files.data_files import DataFile, list_files
from service.catalog.tables import Table


@dataclass(frozen=True)
class PeriodFiles:
    """The data files of one period."""

    paths: tuple[str, ...] = ()
    records: int = 0
    bytes: int = 0

    @property
    def count(self) -> int:
        return len(self.paths)

    def is_merged(self, days: int, target_bytes: int) -> bool:
        """Whether the files of so many days are as few as the target size allows."""
        return 0 < self.count <= fewest(self.bytes, target_bytes) and self.count < days


def fewest(size: int, target_bytes: int) -> int:
    """How many files of the target size hold so many bytes."""
    return max(1, -(-size // target_bytes))


def files_by_period(table: Table, snapshot_id: int | None = None) -> Mapping[str, PeriodFiles]:
    """The files of each period of the current (or the given) snapshot, in order of the periods."""
    found: dict[str, list[DataFile]] = defaultdict(list)
    for file in list_files(table, snapshot_id).data:
        found[str(file.group[1])].append(file)  # after the number of the partitioning
    return {
        period: PeriodFiles(
            tuple(file.path for file in files),
            sum(file.rows - file.deleted for file in files),
            sum(file.bytes for file in files),
        )
        for period, files in sorted(found.items())
    }


@dataclass(frozen=True)
class FilesBefore:
    """The files of each period before a merge. They are read before it, as old snapshots may expire with it."""

    current: Mapping[str, PeriodFiles]
    ever: Mapping[str, frozenset[str]]
    """The paths of those of all snapshots."""

    @classmethod
    def of(cls, table: Table, *, with_old_snapshots: bool) -> "FilesBefore":
        ever: dict[str, set[str]] = defaultdict(set)
        for snapshot in table.snapshots() if with_old_snapshots else ():
            for period, files in files_by_period(table, snapshot.snapshot_id).items():
                ever[period].update(files.paths)
        return cls(files_by_period(table), {period: frozenset(paths) for period, paths in ever.items()})

    def deleted(self, period: str, now: PeriodFiles, kept: Set[str]) -> int:
        """How many of the files that a merge of a period replaced are not `kept`. If the period was merged earlier,
        those of all its snapshots count."""
        then = self.current.get(period, PeriodFiles())
        return len(set(then.paths if then.paths != now.paths else self.ever.get(period, ())) - kept)


def kept_paths(table: Table) -> set[str]:
    """The paths of the data files of all snapshots."""
    return {file.path for snapshot in table.snapshots() for file in list_files(table, snapshot.snapshot_id).data}
