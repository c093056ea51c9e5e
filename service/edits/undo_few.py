"""An UNDO that concerns few rows: what it does, found in this process and without a Spark job.

It means exactly what `engine/jobs/undo.py` means, and gives up if only Spark can read or compare the rows.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import compress, islice

import pyarrow as pa
import pyarrow.compute as pc

from service.catalog.files.columns import TooManyRows, UnreadableFile
from service.catalog.files.few import FewRows, PlacedRows, searchable
from service.catalog.tables import Table
from service.commits.compared import read_rows_of
from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.jobs.edits.reversal import (
    FILE,
    MOST_MET,
    AddedAndRemoved,
    FewUndo,
    UndoFigures,
    UndoReversal,
    reached,
)
from service.engine.session.rows import plain_columns
from service.model.keyed.contents import Content, contents, some_of

# Files with no more rows than this in all are compared whole; in others, rows are searched for.
_FEW = 1000


class Net:
    """How much more often each content was added than removed, and a row that has it."""

    def __init__(self) -> None:
        self.counts: Counter[Content] = Counter()
        self._rows: dict[Content, tuple[pa.Table, int]] = {}

    def add(self, rows: pa.Table, sign: int) -> None:
        for number, content in enumerate(_contents(rows)):
            self.counts[content] += sign
            self._rows.setdefault(content, (rows, number))

    def take(self, found: Iterable[Content], columns: pa.Schema) -> pa.Table:
        """A row for each of these contents."""
        rows = [self._rows[content] for content in found]
        return pa.concat_tables([columns.empty_table(), *(some.slice(number, 1) for some, number in rows)])

    def came(self) -> dict[Content, int]:
        return {content: count for content, count in self.counts.items() if count > 0}

    def went(self) -> dict[Content, int]:
        return {content: -count for content, count in self.counts.items() if count < 0}


def find_few(table: Table, of: UndoReversal, check: Callable[[], object] = lambda: None) -> FewUndo | None:
    """What an undo does; None if Spark has to find it, or if the metadata alone says it."""
    if of.untouched or of.late:
        return None
    try:
        return _Finding(table, of, check).found()
    except (TooManyRows, UnreadableFile):
        return None


class _Finding:
    def __init__(self, table: Table, of: UndoReversal, check: Callable[[], object]) -> None:
        self._of = of
        self._columns = plain_columns(of.schema)
        self._read = FewRows(table, of.base.schema_id, self._columns, check)

    def found(self) -> FewUndo:
        of = self._of
        change = self._net([of.change])
        came, went = change.came(), change.went()
        removed = change.take((content for content, count in went.items() for _ in range(count)), self._columns)
        places = self._places(came, change)
        files = Counter(places["file"].to_pylist())
        figures = UndoFigures(
            sum(came.values()),
            places.num_rows,
            removed.num_rows,
            dict(files),
            self._touched(came, went),
            self._met(removed) if removed.num_rows else None,
            {name: nulls for name in of.required if (nulls := removed[name].null_count)},
        )
        return FewUndo(figures, change.take(came, self._columns), removed, places)

    def _net(self, changes: Iterable[AddedAndRemoved]) -> Net:
        net = Net()
        for change in changes:
            for rows, sign in ((change.came, 1), (change.went, -1)):
                for part in self._rows(rows):
                    net.add(part, sign)
        return net

    def _rows(self, rows: SnapshotFiles | pa.Table | None) -> Iterator[pa.Table]:
        if isinstance(rows, SnapshotFiles):
            yield read_rows_of(self._read, rows)
        elif rows is not None:
            if not set(self._columns.names) <= set(rows.column_names):
                raise UnreadableFile("the ledger does not have all columns")
            try:
                yield rows.select(self._columns.names).cast(self._columns)
            except pa.ArrowException as e:
                raise UnreadableFile("the ledger has other types") from e

    def _places(self, came: dict[Content, int], change: Net) -> pa.Table:
        """The places of the added rows. Of equal rows, the first count."""
        found, numbers = PlacedRows(self._columns.empty_table()), list[int]()
        if came and self._of.within:
            found = self._equal(change.take(came, self._columns))
            numbers = some_of(_contents(found.rows), Counter(came))
        files, positions = ([some[number] for number in numbers] for some in (found.files, found.positions))
        schema = pa.schema({"file": pa.string(), "pos": pa.int64()})
        return pa.table({"file": files, "pos": positions}, schema)

    def _equal(self, wanted: pa.Table) -> PlacedRows:
        """The rows of the files within which the added rows are that may equal some rows: by one of their columns."""
        snapshot_id, within = self._of.base.snapshot_id or 0, self._of.within
        if sum(self._of.base.rows[path] for path in within) <= _FEW:
            return self._read.whole(snapshot_id, within)
        column = self._searched((*self._of.schema.primary_key, *self._columns.names))
        return self._read.having(snapshot_id, within, column, _distinct(wanted, column))

    def _searched(self, names: Sequence[str]) -> str:
        """A column by which rows are searched for."""
        fit = [name for name in names if searchable(self._columns.field(name).type)]
        if not fit:
            raise UnreadableFile("no column can be searched")
        return fit[0]

    def _touched(self, came: Collection[Content], went: Collection[Content]) -> tuple[int, ...]:
        """As `FoundUndo._touched`: the later changes that must be undone first."""
        suspects = self._of.suspects
        if not suspects:
            return ()
        nets = [self._net([suspect]).counts for suspect in suspects]
        found = {n for n, net in enumerate(nets) if any(net[content] < 0 for content in came)}
        restores = [n for n, suspect in enumerate(suspects) if suspect.restores]
        if any(sum(nets[n][content] for n in restores) > 0 for content in went):
            found |= {n for n in restores if any(nets[n][content] > 0 for content in went)}
        return reached(found, _pairs(nets, min(found))) if found else ()

    def _met(self, removed: pa.Table) -> pa.Table | None:
        """As `FoundUndo._rows_with_their_keys`: some rows that were added since and have the key of a row to restore,
        and their files."""
        of = self._of
        if not of.keys or not (of.fresh.touched or of.beside.came is not None):
            return None
        net, files = Net(), dict[Content, str]()
        for keys in of.keys:
            wanted = {key for key in _contents(removed, keys) if None not in key}
            for found, sign in self._since(removed, self._searched(keys)):
                has_key = [key in wanted for key in _contents(found.rows, keys)]
                rows = found.rows.filter(pa.array(has_key, pa.bool_()))
                net.add(rows, sign)
                for content, file in zip(_contents(rows), compress(found.files, has_key), strict=False):
                    files[content] = max(file, files.get(content, ""))
        met = list(islice(net.came(), MOST_MET))
        paths = pa.array([files.get(content) for content in met], pa.string())
        return net.take(met, self._columns).append_column(FILE, paths) if met else None

    def _since(self, removed: pa.Table, column: str) -> Iterator[tuple[PlacedRows, int]]:
        """The rows that were added (1) and removed (-1) since; of many, those with a value that removed rows have."""
        values = _distinct(removed, column)
        for files, sign in ((self._of.fresh, 1), (self._of.stale, -1)):
            found = self._read.having(files.snapshot_id, files.paths, column, values)
            yield found if sign > 0 else PlacedRows(found.rows), sign
            found = self._read.places(files.places)
            yield found if sign > 0 else PlacedRows(found.rows), sign
        for rows, sign in ((self._of.beside.came, 1), (self._of.beside.went, -1)):
            for part in self._rows(rows):
                yield PlacedRows(part), sign


def _pairs(nets: Sequence[Counter[Content]], first: int) -> Iterator[tuple[int, int]]:
    """Pairs of changes: the later one removed rows that the earlier one added."""
    adding: dict[Content, list[int]] = {}
    for n, net in enumerate(nets[first:], first):
        for content, count in net.items():
            if count < 0:
                yield from ((earlier, n) for earlier in adding.get(content, ()))
        for content, count in net.items():
            if count > 0:
                adding.setdefault(content, []).append(n)


def _contents(rows: pa.Table, columns: Sequence[str] | None = None) -> list[Content]:
    try:
        return contents(rows, columns)
    except ValueError as e:
        raise UnreadableFile("Python cannot hold some of the values") from e


def _distinct(rows: pa.Table, column: str) -> pa.Array:
    return pc.unique(rows[column])
