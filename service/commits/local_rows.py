"""Rows of tables read in this process, for changes of few rows: a Spark job takes longer than reading some files."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from service.catalog.files.data_files import DataFile, list_files
from service.catalog.files.key_lookup import UnreadableFile, read_files
from service.catalog.files.positions import positions
from service.catalog.tables import Table
from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.jobs.dynamic.job import RefreshSource, SnapshotRange
from service.engine.session.rows import arrow_schema
from service.model.dynamic.contents import contents, some_of
from service.model.dynamic.plan import WEIGHT
from service.model.names import PLACE_COLUMNS
from service.model.schema.types import TableSchema

# More values are read by Spark, on all cores.
_MOST_VALUES, _MOST_FILE_BYTES = 8_000_000, 256 << 20
_MOST_ROWS, _MOST_BYTES = 100_000, 32 << 20
# More files are opened by Spark.
_MOST_FILES = 64
_FEW_ROWS, _FEW_FILES = 10_000, 8


def changed_rows(table: Table, ranges: Sequence[SnapshotRange], schema: TableSchema) -> pa.Table | None:
    """The rows that came and went in some ranges of a table's history, in these columns, with their weights; those
    that only moved are left out. None if they are many, or only Spark can read them."""
    columns = _columns(schema)
    sides = []
    for one in ranges:
        if one.differing is None:
            return None
        sides += [(files, sign) for files, sign in zip(one.differing, (-1, 1), strict=True) if files.touched]
    files = {id(side): {file.path: file for file in list_files(table, side.snapshot_id).data} for side, _ in sides}
    touched = [files[id(side)][path] for side, _ in sides for path in side.touched]
    if not _is_small(touched, len(columns)):
        return None
    try:
        parts = [_weighted(part, s) for side, s in sides for part in _rows(table, side, files[id(side)], columns)]
        found = pa.concat_tables([_weighted(columns.empty_table(), 1), *parts])
        if any(sign < 0 for _, sign in sides):
            found = _net(found)
    except UnreadableFile:
        return None
    return None if found.num_rows > _MOST_ROWS or found.nbytes > _MOST_BYTES else found


def with_few_rows(source: RefreshSource, table: Table) -> RefreshSource:
    """A source of a refresh, with the rows that have changed if they are few."""
    if not source.changes:
        return source
    return replace(source, changed=changed_rows(table, source.changes, source.change_schema))


@dataclass(frozen=True)
class LocalResult:
    """The current rows of a table, with these columns."""

    table: Table
    schema: TableSchema

    def read(self, paths: Collection[str]) -> pa.Table | None:
        """See StoredRows."""
        columns = _columns(self.schema)
        try:
            files = [file for file in self._files if file.path in paths]
            if len(files) > _FEW_FILES or sum(file.rows for file in files) > _FEW_ROWS:
                return None
            found = read_files(self.table, [file.path for file in files], columns)
        except UnreadableFile:
            return None
        parts = [_placed(found[f.path], f.path).take(_live(self.table, f)) for f in files]
        return pa.concat_tables([_placed(columns.empty_table(), ""), *parts])

    def places(self, gone: pa.Table) -> Mapping[str, pa.Array] | None:
        """See StoredRows."""
        rows, wanted = gone.select(list(self.schema.names)), Counter[tuple[object, ...]]()
        probe = _probe(rows)
        try:
            files = self._files
            if probe is None or not _is_small(files, 1):
                return None
            for content, weight in zip(contents(rows), gone[WEIGHT].to_pylist(), strict=True):
                wanted[content] -= weight
            found = self._search(files, probe, pc.unique(rows[probe]), wanted)
        except (UnreadableFile, ValueError):
            return None
        return None if any(wanted.values()) else found

    @property
    def _files(self) -> tuple[DataFile, ...]:
        listed = list_files(self.table)
        if not listed.counted:
            raise UnreadableFile("the table has delete files that only Spark reads")
        return listed.data

    def _search(
        self, files: Sequence[DataFile], probe: str, values: pa.Array, wanted: Counter[tuple[object, ...]]
    ) -> dict[str, pa.Array]:
        """The places of rows with the wanted contents, by first looking at one column."""
        columns, places = _columns(self.schema), {}
        for file in files:
            one = read_files(self.table, [file.path], pa.schema([columns.field(probe)]))[file.path]
            near = pc.indices_nonzero(pc.is_in(one[probe], value_set=values)).cast(pa.int64())
            near = near.filter(pc.is_in(near, value_set=_live(self.table, file))) if file.deletes else near
            if not len(near):
                continue
            if len(near) > _MOST_ROWS:
                raise UnreadableFile("too many rows have these values")
            rows = read_files(self.table, [file.path], columns, {file.path: near.to_pylist()})[file.path]
            if found := some_of(rows, wanted):
                places[file.path] = near.take(pa.array(found, pa.int64()))
            if not any(wanted.values()):
                break
        return places


def _is_small(files: Sequence[DataFile], columns: int) -> bool:
    """Whether columns of some files are read faster here than by Spark."""
    values, size = sum(file.rows for file in files) * columns, sum(file.bytes for file in files)
    return len(files) <= _MOST_FILES and values <= _MOST_VALUES and size <= _MOST_FILE_BYTES


def _columns(schema: TableSchema) -> pa.Schema:
    """The columns as they are read: none is required."""
    return pa.schema([pa.field(column.name, column.type) for column in arrow_schema(schema)])


def _rows(table: Table, side: SnapshotFiles, files: Mapping[str, DataFile], columns: pa.Schema) -> Iterator[pa.Table]:
    """The rows of some files of a snapshot, and those at some places."""
    found = read_files(table, side.paths, columns)
    for path, rows in found.items():
        file = files[path]
        yield rows.take(_live(table, file)) if file.deletes else rows
    at = {path: pc.sort_indices(some) for path, some in side.places.items()}
    order = {path: side.places[path].take(indices).to_pylist() for path, indices in at.items()}
    yield from read_files(table, side.places.keys(), columns, order).values()


def _live(table: Table, file: DataFile) -> pa.Array:
    """The positions of a file's rows that are not deleted."""
    every = pa.arange(0, file.rows, 1)
    if not file.deletes:
        return every
    return every.filter(pc.invert(pc.is_in(every, value_set=positions(table, file.path, file.deletes))))


def _placed(rows: pa.Table, path: str) -> pa.Table:
    """All rows of a file with their places."""
    file, pos = PLACE_COLUMNS
    rows = rows.append_column(file, pa.repeat(pa.scalar(path), rows.num_rows))
    return rows.append_column(pos, pa.arange(0, rows.num_rows, 1))


def _weighted(rows: pa.Table, sign: int) -> pa.Table:
    return rows.append_column(WEIGHT, pa.repeat(pa.scalar(sign, pa.int64()), rows.num_rows))


def _net(rows: pa.Table) -> pa.Table:
    """Rows with the sum of their weights, if it is not 0."""
    names = [name for name in rows.column_names if name != WEIGHT]
    if any(kinds.is_nested(rows.schema.field(name).type) for name in names):
        return _net_by_contents(rows, names)
    grouped = rows.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum")])
    net = grouped.select([*names, f"{WEIGHT}_sum"]).rename_columns([*names, WEIGHT])
    return net.filter(pc.not_equal(net[WEIGHT], 0)).cast(rows.schema)


def _net_by_contents(rows: pa.Table, names: list[str]) -> pa.Table:
    """The same, for values that Arrow does not group."""
    if rows.num_rows > _MOST_ROWS:
        raise UnreadableFile("many rows with nested values are compared by Spark")
    first: dict[tuple[object, ...], int] = {}
    weights: Counter[int] = Counter()
    try:
        found = zip(contents(rows.select(names)), rows[WEIGHT].to_pylist(), strict=True)
        for number, (content, weight) in enumerate(found):
            weights[first.setdefault(content, number)] += weight
    except ValueError as e:
        raise UnreadableFile("Python cannot hold a value") from e
    numbers = [number for number, weight in weights.items() if weight]
    column = pa.array([weights[number] for number in numbers], pa.int64())
    return rows.select(names).take(pa.array(numbers, pa.int64())).append_column(rows.schema.field(WEIGHT), column)


def _probe(rows: pa.Table) -> str | None:
    """The column with the most values, of those whose values Arrow looks up."""
    exact = [field.name for field in rows.schema if not (kinds.is_nested(field.type) or kinds.is_floating(field.type))]
    return max(exact, key=lambda name: pc.count_distinct(rows[name]).as_py(), default=None)
