"""Rows of tables read in this process, for changes of few rows: a Spark job takes longer than reading some files."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from service.catalog.files.columns import TooManyRows, UnreadableFile
from service.catalog.files.data_files import DataFile, list_files
from service.catalog.files.few import FewRows, searchable
from service.catalog.tables import Table
from service.commits.compared import files_of, read_rows_of
from service.engine.jobs.dynamic.direct.rows import netted
from service.engine.jobs.dynamic.job import RefreshSource, SnapshotRange
from service.engine.session.rows import plain_columns
from service.model.dynamic.plan import WEIGHT
from service.model.keyed.contents import Content, contents, some_of
from service.model.names import PLACE_COLUMNS
from service.model.schema.types import TableSchema

# More values are read by Spark, on all cores.
_MOST_VALUES, _MOST_FILE_BYTES = 8_000_000, 256 << 20
_MOST_ROWS, _MOST_BYTES = 100_000, 32 << 20
# The same for a change that is not given to Spark, but computed in this process.
_MOST_ROWS_HERE, _MOST_BYTES_HERE = 1_000_000, 128 << 20
# More rows than this are found by Arrow instead of Python, if it finds all their values equal as Spark does.
_MANY_ROWS = 5_000
# More files are opened by Spark.
_MOST_FILES = 64
_FEW_FILES = 8


def changed_rows(
    table: Table, ranges: Sequence[SnapshotRange], schema: TableSchema, *, computed_here: bool = False
) -> pa.Table | None:
    """The rows that came and went in some ranges of a table's history, in these columns, with their weights; those
    that only moved are left out. None if they are many, or only Spark can read them. They may be more if the change is
    `computed_here`: then they need not be sent to Spark."""
    columns = plain_columns(schema)
    sides = []
    for one in ranges:
        if one.differing is None:
            return None
        sides += [(files, sign) for files, sign in zip(one.differing, (-1, 1), strict=True) if files.touched]
    touched = [file for side, _ in sides for file in files_of(table, side)]
    if not _is_small(touched, len(columns)):
        return None
    reader = FewRows(table, table.schema_id, columns, most_rows=_MOST_VALUES)
    try:
        parts = [_weighted(read_rows_of(reader, side), sign) for side, sign in sides]
        found = pa.concat_tables([_weighted(columns.empty_table(), 1), *parts])
        if any(sign < 0 for _, sign in sides):
            found = _net(found)
    except (TooManyRows, UnreadableFile):
        return None
    rows, size = (_MOST_ROWS_HERE, _MOST_BYTES_HERE) if computed_here else (_MOST_ROWS, _MOST_BYTES)
    return None if found.num_rows > rows or found.nbytes > size else found


def with_few_rows(source: RefreshSource, table: Table, *, computed_here: bool = False) -> RefreshSource:
    """A source of a refresh as this process reads it, with the rows that have changed if they are few; or not too many
    for this process, if the change of the result is `computed_here`."""
    old_id = source.old_id if source.changes else source.new_id
    source = replace(source, stored=LocalSource(table, source.change_schema, source.new_id, old_id))
    if not source.changes:
        return source
    rows = changed_rows(table, source.changes, source.change_schema, computed_here=computed_here)
    return replace(source, changed=rows)


@dataclass(frozen=True)
class LocalSource:
    """The rows of a source of a refresh, with these columns, at two snapshots."""

    table: Table
    schema: TableSchema
    new_id: int | None
    old_id: int | None

    def having(self, column: str, values: pa.Array, *, old: bool) -> pa.Table | None:
        """See SourceValues."""
        snapshot_id, columns = self.old_id if old else self.new_id, plain_columns(self.schema)
        if snapshot_id is None:
            return columns.empty_table()
        reader = FewRows(self.table, self.table.schema_id, columns, most_rows=_MOST_ROWS)
        return _having(reader, snapshot_id, list_files(self.table, snapshot_id).data, column, values)


@dataclass(frozen=True)
class LocalResult:
    """The current rows of a table, with these columns."""

    table: Table
    schema: TableSchema

    def read(self, paths: Collection[str]) -> pa.Table | None:
        """See StoredRows."""
        if len(paths) > _FEW_FILES:
            return None
        file, pos = PLACE_COLUMNS
        try:
            found = self._reader().whole(self.table.current_snapshot_id or 0, paths)
        except (TooManyRows, UnreadableFile):
            return None
        rows = found.rows.append_column(file, pa.array(found.files, pa.string()))
        return rows.append_column(pos, pa.array(found.positions, pa.int64()))

    def having(self, column: str, values: pa.Array) -> pa.Table | None:
        """See StoredRows."""
        files, snapshot_id = list_files(self.table).data, self.table.current_snapshot_id
        return _having(self._reader(_MOST_ROWS), snapshot_id or 0, files, column, values)

    def places(self, gone: pa.Table) -> Mapping[str, pa.Array] | None:
        """See StoredRows."""
        rows, wanted = gone.select(list(self.schema.names)), Counter[Content]()
        probe = probe_column(rows)
        files = list_files(self.table).data
        if probe is None or not _is_small(files, 1):
            return None
        if gone.num_rows > _MANY_ROWS and all(searchable(field.type) for field in rows.schema):
            return self._places_of_many(files, probe, gone)
        try:
            for content, weight in zip(contents(rows), gone[WEIGHT].to_pylist(), strict=True):
                wanted[content] -= weight
            found = self._search(files, probe, pc.unique(rows[probe]), wanted)
        except (TooManyRows, UnreadableFile, ValueError):
            return None
        return None if any(wanted.values()) else found

    def _places_of_many(self, files: Sequence[DataFile], probe: str, gone: pa.Table) -> Mapping[str, pa.Array] | None:
        reader, values = self._reader(_MOST_ROWS_HERE), pc.unique(gone[probe])
        try:
            near = reader.having(self.table.current_snapshot_id or 0, [file.path for file in files], probe, values)
        except (TooManyRows, UnreadableFile):
            return None
        numbers = _some_of(near.rows, gone, self.schema.names)
        if numbers is None:
            return None
        at = pa.table({"file": near.files, "pos": pa.array(near.positions, pa.int64())}).take(numbers).sort_by("pos")
        grouped = at.group_by("file", use_threads=False).aggregate([("pos", "list")])
        lists = grouped["pos_list"].combine_chunks()
        return {path: lists[i].values for i, path in enumerate(grouped["file"].to_pylist())}

    def _search(
        self, files: Sequence[DataFile], probe: str, values: pa.Array, wanted: Counter[Content]
    ) -> dict[str, pa.Array]:
        """The places of rows with the wanted contents, by first looking at one column."""
        reader, places = self._reader(_MOST_ROWS), {}
        for file in files:
            if not any(wanted.values()):
                break
            near = reader.having(self.table.current_snapshot_id or 0, [file.path], probe, values)
            if found := some_of(contents(near.rows), wanted):
                places[file.path] = pa.array([near.positions[number] for number in found], pa.int64())
        return places

    def _reader(self, most_rows: int | None = None) -> FewRows:
        return FewRows(self.table, self.table.schema_id, plain_columns(self.schema), most_rows=most_rows)


def _some_of(rows: pa.Table, gone: pa.Table, names: Sequence[str]) -> pa.Array | None:
    """The numbers of rows with the contents of those that go, each as often as its weight is below 0: of equal rows,
    the first. None if not all are there."""
    number, wanted = "_firn_number", "_firn_wanted"
    there = rows.append_column(number, pa.array(range(rows.num_rows), pa.int64()))
    there = there.append_column(wanted, pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows))
    going = gone.select(list(names)).cast(rows.schema)
    going = going.append_column(number, pa.nulls(gone.num_rows, pa.int64()))
    going = going.append_column(wanted, pc.negate(gone[WEIGHT]))
    how = [(number, "min"), (number, "count"), (wanted, "sum")]
    if pc.max(going[wanted]).as_py() > 1:
        how.append((number, "list"))
    found = pa.concat_tables([there, going]).group_by(list(names), use_threads=False).aggregate(how)
    found = found.filter(pc.greater(found[f"{wanted}_sum"], 0))
    if pc.any(pc.less(found[f"{number}_count"], found[f"{wanted}_sum"])).as_py():
        return None
    if (number, "list") not in how:
        return found[f"{number}_min"]
    pairs = zip(found[f"{number}_list"].to_pylist(), found[f"{wanted}_sum"].to_pylist(), strict=True)
    some = (one for numbers, count in pairs for one in sorted(n for n in numbers if n is not None)[:count])
    return pa.array(some, pa.int64())


def _having(
    reader: FewRows, snapshot_id: int, files: Sequence[DataFile], column: str, values: pa.Array
) -> pa.Table | None:
    """The rows of some files of a snapshot with one of some values in a column; None if Spark should read them."""
    if not searchable(values.type):
        return None
    try:
        return reader.having(snapshot_id, [file.path for file in files], column, values).rows
    except (TooManyRows, UnreadableFile):
        return None


def _is_small(files: Sequence[DataFile], columns: int) -> bool:
    """Whether columns of some files are read faster here than by Spark."""
    values, size = sum(file.rows for file in files) * columns, sum(file.bytes for file in files)
    return len(files) <= _MOST_FILES and values <= _MOST_VALUES and size <= _MOST_FILE_BYTES


def _weighted(rows: pa.Table, sign: int) -> pa.Table:
    return rows.append_column(WEIGHT, pa.repeat(pa.scalar(sign, pa.int64()), rows.num_rows))


def _net(rows: pa.Table) -> pa.Table:
    """Rows with the sum of their weights, if it is not 0."""
    names = [name for name in rows.column_names if name != WEIGHT]
    if any(kinds.is_nested(rows.schema.field(name).type) for name in names):
        return _net_by_contents(rows, names)
    return netted(rows, names).cast(rows.schema)


def _net_by_contents(rows: pa.Table, names: list[str]) -> pa.Table:
    """The same, for values that Arrow does not group."""
    if rows.num_rows > _MOST_ROWS:
        raise UnreadableFile("many rows with nested values are compared by Spark")
    first: dict[Content, int] = {}
    weights: Counter[int] = Counter()
    try:
        found = zip(contents(rows, names), rows[WEIGHT].to_pylist(), strict=True)
        for number, (content, weight) in enumerate(found):
            weights[first.setdefault(content, number)] += weight
    except ValueError as e:
        raise UnreadableFile("Python cannot hold a value") from e
    numbers = [number for number, weight in weights.items() if weight]
    column = pa.array([weights[number] for number in numbers], pa.int64())
    return rows.select(names).take(pa.array(numbers, pa.int64())).append_column(rows.schema.field(WEIGHT), column)


def probe_column(rows: pa.Table) -> str | None:
    """The column with the most values, of those whose values Arrow looks up."""
    exact = [field.name for field in rows.schema if searchable(field.type)]
    return max(exact, key=lambda name: pc.count_distinct(rows[name]).as_py(), default=None)
