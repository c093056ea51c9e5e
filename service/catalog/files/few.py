"""Read few rows of states of a table in this process, without a Spark job: whole small files, rows at places, and rows
that have one of some values in a column."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from pyiceberg.utils.concurrent import ExecutorFactory

from service.catalog.files.columns import TooManyRows, UnreadableFile, read_columns
from service.catalog.files.data_files import DataFile, TableFiles, list_files
from service.catalog.files.positions import positions as positions_of
from service.catalog.tables import Table

# More rows than this are compared by Spark, and more values than this are searched by it.
MOST_ROWS = 10_000
_MOST_SEARCHED = 20_000_000
# More values than this in row groups that have one of the rows.
_MOST_VALUES = 60_000_000
_MOST_FILES = 500


@dataclass(frozen=True)
class PlacedRows:
    """Rows, with the file that each of them is in and its position there; both are empty if nobody needs them."""

    rows: pa.Table
    by_file: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The positions of the rows of each file, in the order of the rows."""

    @cached_property
    def files(self) -> list[str]:
        return [path for path, some in self.by_file.items() for _ in some]

    @cached_property
    def positions(self) -> list[int]:
        return [number for some in self.by_file.values() for number in some]


@dataclass
class FewRows:
    """Reads rows of states of a table, with columns of one of its schemas.

    It raises TooManyRows once it has read so much that Spark would be faster, and UnreadableFile for what only Spark
    reads. Rows that delete files delete are left out.
    """

    table: Table
    schema_id: int
    columns: pa.Schema
    check: Callable[[], object] = lambda: None
    """Called before each file; raises if the work must not go on."""
    most_rows: int | None = None
    """Instead of MOST_ROWS."""
    rows_read: int = field(default=0, init=False)
    _searched: int = field(default=0, init=False)
    _files: int = field(default=0, init=False)
    _states: dict[int, TableFiles] = field(default_factory=dict, init=False)

    def whole(self, snapshot_id: int, paths: Iterable[str]) -> PlacedRows:
        """All rows of some files of a snapshot."""
        files = self._of(snapshot_id, paths)
        self._expect(sum(file.live_rows for file in files))
        live = {file.path: _live(range(file.rows), self._deleted(file)) for file in files}
        return self._at(live, every=frozenset(file.path for file in files if not file.deletes))

    def places(self, places: Mapping[str, pa.Array]) -> PlacedRows:
        """The rows at some places."""
        self._expect(sum(map(len, places.values())))
        return self._at({path: sorted(positions.to_pylist()) for path, positions in places.items()})

    def having(self, snapshot_id: int, paths: Iterable[str], column: str, values: pa.Array) -> PlacedRows:
        """The rows of some files of a snapshot that have one of some values in a column, which `searchable` allows."""
        found = {}
        for file in self._of(snapshot_id, paths):
            if hits := self._having(self.column(file.path, file.rows, column), values):
                found[file.path] = _live(hits, self._deleted(file))
        return self._at(found)

    def having_in(self, columns: Mapping[str, pa.ChunkedArray], values: pa.Array) -> PlacedRows:
        """The same, of files whose values in the column were read: no snapshot need have them."""
        hits = {path: self._having(searched, values) for path, searched in columns.items()}
        return self._at({path: found for path, found in hits.items() if found})

    def column(self, path: str, rows: int, name: str) -> pa.ChunkedArray:
        """The values of all rows of a file, which has this number of rows, in a column."""
        self._searched += rows
        if self._searched > _MOST_SEARCHED:
            raise TooManyRows
        self._open(1)
        return self._read(path, pa.schema([self.columns.field(name)]))[name]

    def _having(self, searched: pa.ChunkedArray, values: pa.Array) -> list[int]:
        """The positions of rows that have one of some values."""
        hits = pc.indices_nonzero(pc.is_in(searched, value_set=values.cast(searched.type)))
        self._expect(len(hits))
        return list(hits.to_pylist())

    def _at(self, positions: Mapping[str, Sequence[int]], every: Collection[str] = ()) -> PlacedRows:
        """The rows at some positions, by file and position; `every` names files whose rows are all among them."""
        paths = sorted(positions)
        self._open(len(paths))

        def read(path: str) -> pa.Table:
            return self._read(path, self.columns, None if path in every else positions[path])

        side_by_side = ExecutorFactory.get_or_create().map if len(paths) > 1 else map
        parts = [self.columns.empty_table(), *side_by_side(read, paths)]
        return PlacedRows(pa.concat_tables(parts), {path: positions[path] for path in paths})

    def _read(self, path: str, columns: pa.Schema, positions: Sequence[int] | None = None) -> pa.Table:
        self.check()
        schema = self.table.iceberg.schemas().get(self.schema_id)
        if schema is None or not set(columns.names) <= {field.name for field in schema.fields}:
            raise UnreadableFile("a column is not in the schema")
        return read_columns(self.table.iceberg.io, path, columns, schema, positions, _MOST_VALUES)

    def _open(self, files: int) -> None:
        self._files += files
        if self._files > _MOST_FILES:
            raise TooManyRows

    def _expect(self, rows: int) -> None:
        self.rows_read += rows
        if self.rows_read > (self.most_rows or MOST_ROWS):
            raise TooManyRows

    def _of(self, snapshot_id: int, paths: Iterable[str]) -> list[DataFile]:
        wanted = set(paths)
        if not wanted:
            return []
        state = self._states.get(snapshot_id)
        if state is None:  # a table may be searched file by file
            state = self._states[snapshot_id] = list_files(self.table, snapshot_id)
        files = [file for file in state.data if file.path in wanted]
        if not state.counted or len(files) != len(wanted):
            raise UnreadableFile("the state has delete files that only Spark reads")
        return files

    def _deleted(self, file: DataFile) -> set[int]:
        return set(positions_of(self.table, file.path, file.deletes).to_pylist()) if file.deletes else set()


def searchable(kind: pa.DataType) -> bool:
    """Whether Arrow finds values of a type equal just as Spark does."""
    return not (kinds.is_nested(kind) or kinds.is_floating(kind))


def _live(positions: Sequence[int], deleted: set[int]) -> Sequence[int]:
    return [position for position in positions if position not in deleted] if deleted else positions
