"""Which files a table's rows have been written anew from, while others go on changing the table. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from service.catalog.files.data_files import DataFile

W = TypeVar("W")
Deletes = tuple[str, ...]
"""The delete files that say which rows of a data file are gone."""


@dataclass(frozen=True)
class RewrittenBatch(Generic[W]):
    """Files whose rows were written anew together, as they were then, and what was written."""

    files: tuple[DataFile, ...]
    deletes: Mapping[str, Deletes]
    written: W


@dataclass(frozen=True)
class RemainingWork(Generic[W]):
    """What is to be done so that what was written is what the table holds now.

    Files that nobody has taken yet stand apart from those whose batch was spoilt: what changes often stays together.
    """

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

    def look(self, files: Iterable[DataFile], deletes: Mapping[str, Deletes]) -> RemainingWork[W]:
        """Compare with a table that holds these files, some with delete files. A batch of which a file is not there any
        more, or has other rows deleted, is spoilt: the rows of several files cannot be told apart in it."""
        there = {file.path: file for file in files}
        spoilt = [batch for batch in self.batches if not _stands(batch, there, deletes)]
        covered = {file.path for batch in self.batches for file in batch.files}
        again = [there[file.path] for batch in spoilt for file in batch.files if file.path in there]
        new = [file for path, file in there.items() if path not in covered]
        return RemainingWork(tuple(spoilt), tuple(again), tuple(new))

    def drop(self, batch: RewrittenBatch[W]) -> None:
        self.batches.remove(batch)


def bundles(files: Iterable[DataFile], most_rows: int | None, most_bytes: int) -> Iterator[tuple[DataFile, ...]]:
    """Files to be written anew together: so many rows and bytes at most, but at least a file.

    Those of one partition, which often go to few new ones, stand together.
    """
    bundle: list[DataFile] = []
    rows = size = 0
    for file in sorted(files, key=_place):
        too_many = most_rows is not None and rows + file.rows > most_rows
        if bundle and (too_many or size + file.bytes > most_bytes):
            yield tuple(bundle)
            bundle, rows, size = [], 0, 0
        bundle.append(file)
        rows, size = rows + file.rows, size + file.bytes
    if bundle:
        yield tuple(bundle)


def _stands(batch: RewrittenBatch[W], there: Mapping[str, DataFile], deletes: Mapping[str, Deletes]) -> bool:
    return all(f.path in there and batch.deletes.get(f.path, ()) == deletes.get(f.path, ()) for f in batch.files)


def _place(file: DataFile) -> tuple[object, ...]:
    # Files of one spec have values of the same types, and the spec's id comes first.
    return (*((False,) if value is None else (True, value) for value in file.group), file.path)
