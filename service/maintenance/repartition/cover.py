"""Which files of a table have been rewritten, while others go on changing the table. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from service.catalog.files.data_files import DataFile

W = TypeVar("W")
Deletes = tuple[str, ...]
"""The delete files that say which rows of a data file are deleted."""


@dataclass(frozen=True)
class RewrittenBatch(Generic[W]):
    """Files that were rewritten together, with their deletes at that time, and what was written."""

    files: tuple[DataFile, ...]
    deletes: Mapping[str, Deletes]
    written: W

    def is_valid(self, present: Mapping[str, DataFile], deletes: Mapping[str, Deletes]) -> bool:
        """Whether its files are still present, with the same rows deleted."""
        paths = [file.path for file in self.files]
        return all(path in present and self.deletes.get(path, ()) == deletes.get(path, ()) for path in paths)


@dataclass(frozen=True)
class RemainingWork(Generic[W]):
    """What to do until the rewritten files have the table's current rows. Files of spoilt batches come again, apart
    from new ones: so files that change often are rewritten together."""

    spoilt: tuple[RewrittenBatch[W], ...]
    again: tuple[DataFile, ...]
    new: tuple[DataFile, ...]

    @property
    def files(self) -> tuple[DataFile, ...]:
        return self.again + self.new

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass
class RewriteCoverage(Generic[W]):
    """The batches that were written so far."""

    batches: list[RewrittenBatch[W]] = field(default_factory=list)

    def compare(self, files: Iterable[DataFile], deletes: Mapping[str, Deletes]) -> RemainingWork[W]:
        """Compare with the table's current files and their delete files. If a file of a batch was removed or has other
        rows deleted, the whole batch is spoilt: the rows of its files cannot be told apart."""
        present = {file.path: file for file in files}
        spoilt = [batch for batch in self.batches if not batch.is_valid(present, deletes)]
        covered = {file.path for batch in self.batches for file in batch.files}
        again = [present[file.path] for batch in spoilt for file in batch.files if file.path in present]
        new = [file for path, file in present.items() if path not in covered]
        return RemainingWork(tuple(spoilt), tuple(again), tuple(new))


def bundles(files: Iterable[DataFile], most_rows: int | None, most_bytes: int) -> Iterator[tuple[DataFile, ...]]:
    """Files to rewrite together, up to a number of rows and bytes, but at least one file. Files of one partition, whose
    rows often go to few new files, are adjacent."""
    bundle: list[DataFile] = []
    rows = size = 0
    for file in sorted(files, key=_by_partition):
        too_many = most_rows is not None and rows + file.rows > most_rows
        if bundle and (too_many or size + file.bytes > most_bytes):
            yield tuple(bundle)
            bundle, rows, size = [], 0, 0
        bundle.append(file)
        rows, size = rows + file.rows, size + file.bytes
    if bundle:
        yield tuple(bundle)


def parts_of(bundle: Sequence[DataFile], most_rows: int | None) -> int:
    """In how many parts a bundle is rewritten: more than one if it is a file with more rows than `most_rows`."""
    if most_rows is None or len(bundle) != 1:
        return 1
    return max(1, -(-bundle[0].rows // most_rows))


def slices(rows: int, parts: int) -> Iterator[range]:
    """The positions of a file's rows in each of several parts."""
    return (range(n * rows // parts, (n + 1) * rows // parts) for n in range(parts))


def _by_partition(file: DataFile) -> tuple[object, ...]:
    # Files of one spec have values of the same types, and the spec's id comes first.
    return (*((False,) if value is None else (True, value) for value in file.group), file.path)
