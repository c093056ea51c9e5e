"""The content of the files that a batch with edits touches: the rows that it found, and what the files become."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from service.catalog.files.data_files import DataFile
from service.catalog.files.key_lookup import KeyHits
from service.catalog.tables import Table
from service.engine.jobs.append import SharedReplacement
from service.engine.session.rows import plain_columns
from service.model.keyed.apply import AppliedChanges, KeyedRows
from service.model.keyed.changes import RowPlace
from service.model.keyed.pool import without
from service.writes.keyed.cost import FileChoice

ReadFiles: TypeAlias = Callable[
    [Table, Iterable[str], pa.Schema, Mapping[str, Sequence[int]] | None], dict[str, pa.Table]
]
"""Reads columns of files: all rows, or those at positions."""


@dataclass(frozen=True)
class FileContents:
    """What was read of the files with rows that a batch may change."""

    found: KeyedRows
    whole: Mapping[str, pa.Table]
    """All rows of the files that are written again."""
    files: Mapping[str, DataFile]
    """The files with such rows, and those that are merged."""
    merged: Set[str]
    deleted: Mapping[str, frozenset[int]]
    """The positions of rows that delete files have deleted already."""

    @classmethod
    def read(cls, table: Table, hits: KeyHits, choice: FileChoice, read: ReadFiles) -> "FileContents":
        """Read the files that the edits of a batch touch: whole, or only the rows with its keys."""
        columns = plain_columns(table.schema)
        positions = hits.positions(choice.touched)
        whole = read(table, sorted({*choice.rewritten, *choice.merged}), columns, None)
        others = {path: at for path, at in positions.items() if path not in whole}
        some = read(table, sorted(others), columns, others)
        places, parts = list[RowPlace](), [columns.empty_table()]
        for path, at in positions.items():
            places += [RowPlace(path, position) for position in at]
            parts.append(some[path] if path in some else whole[path].take(pa.array(at, pa.int64())))
        found = KeyedRows(pa.concat_tables(parts), places)
        return cls(found, whole, {**hits.files, **choice.merged}, choice.merged.keys(), hits.deleted)

    def replacement(self, table: Table, done: AppliedChanges, summary: dict[str, str]) -> SharedReplacement:
        """The files and places that lose rows, and the rows that take their place."""
        gone: dict[str, set[int]] = {}
        for place in done.gone:
            gone.setdefault(place.file, set()).add(place.position)
        again = sorted((gone.keys() & self.whole.keys()) | self.merged, key=self._age)
        dead = {path: self.deleted.get(path, frozenset()) for path in again}
        out = {path: dead[path].union(gone.get(path, ())) for path in again}
        kept = [without(self.whole[path], out[path]) for path in again]
        expected = sum(self.files[path].rows - len(out[path]) for path in again) + done.new.num_rows
        return SharedReplacement(
            table.current_snapshot_id,
            {path: self.files[path].rows for path in again},
            {path: sorted(positions) for path, positions in gone.items() if path not in self.whole},
            pa.concat_tables([*kept, done.new]).combine_chunks(),
            expected,
            summary,
        )

    def _age(self, path: str) -> tuple[int, str]:
        """So that rows are written again in the order in which they were written."""
        return self.files[path].sequence_number, path
