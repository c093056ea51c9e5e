"""UNDO in Spark: what a change did to rows, where they are now, and whether anybody touched them since.

As with edits, `find_undo` comes first and `publish_undo` follows in its block.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from service.engine.iceberg import chain, scan_tasks
from service.engine.iceberg.replace import EditedRows, FileReplacement, replace_files
from service.engine.iceberg.scan_tasks import NO_FILES, SnapshotFiles
from service.engine.iceberg.staging import StagedFiles, readable, stage_rows
from service.engine.iceberg.swap import CommitTarget, Gate, Tag
from service.engine.iceberg.tables import current
from service.engine.jobs.edit import SHUFFLED_BYTES, EditBase, RowSample, count_rows
from service.engine.session.rows import collect, frame, json_rows
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql import diff_sql
from service.engine.sql.content import comparable, same
from service.engine.sql.derived import fill
from service.engine.sql.frames import named
from service.engine.sql.past import nulls_in, under
from service.engine.sql.sql import identifier
from service.model.schema.derived import DerivedColumn
from service.model.schema.types import TableSchema

# So many later changes are compared in one job.
_AT_ONCE = 12
_NAMED = 100  # rows with a key in the way that are looked at, to say who wrote them
_N, _W, _X, _FILE, _POS = "_firn_n", "_firn_w", "_firn_x", "_firn_file", "_firn_pos"


@dataclass(frozen=True)
class ChangedRows:
    """What a change did: rows that came, less rows that went. Rows in both it only wrote again."""

    came: SnapshotFiles | pa.Table | None
    went: SnapshotFiles | None
    restores: bool = False
    """Whether the rows that came had been there before."""


@dataclass(frozen=True)
class UndoReversal:
    """What is to be undone in a table as it is."""

    base: EditBase
    schema: TableSchema
    change: ChangedRows
    within: frozenset[str]
    """The files that may hold the rows that came."""
    untouched: bool
    """Whether those hold nothing but these rows, as they were written."""
    suspects: tuple[ChangedRows, ...] = ()
    """Later changes that may have touched the rows that came, or have brought back those that went."""
    keys: tuple[tuple[str, ...], ...] = ()
    """Keys by which no row that comes back may equal one that came since."""
    fresh: SnapshotFiles = NO_FILES
    """The table's files that the state after the change did not have."""
    stale: SnapshotFiles = NO_FILES
    """The files that only that state had."""
    late: tuple[DerivedColumn, ...] = ()
    """Derived columns that were added since."""
    required: tuple[str, ...] = ()
    """Required columns that earlier rows may have no value for."""


@dataclass(frozen=True)
class UndoFigures:
    """What undoing it comes to."""

    came: int
    """Rows that the change brought."""
    removed: int
    """How many of them are still there, and go."""
    restored: int
    files: Mapping[str, int]
    """The files that hold the rows that go, and how many."""
    touched: tuple[int, ...] = ()
    """Which suspects touched them, or brought back what went, or touched what such a suspect brought, and so on."""
    met: pa.Table | None = None
    """Some rows that came since, with their files, and have the key of a row that would come back."""
    lacking: Mapping[str, int] = field(default_factory=dict)
    """Required columns that rows which would come back have no value for, and how many rows those are."""

    @property
    def changes_rows(self) -> bool:
        return bool(self.removed or self.restored)


def read_files(
    session: SparkSession, table: str, files: SnapshotFiles, schema_id: int, columns: Sequence[str]
) -> pa.Table:
    """Every row of some files, in order, in columns of a schema that the table has or had."""
    read = under(current(session, table), schema_id)
    with readable(read, scan_tasks.tasks(read, files.snapshot_id, files.paths)) as source:
        placed = f"SELECT {_listed(columns)}, _file AS {_FILE}, _pos AS {_POS} FROM {source}"
        return collect(session.sql(f"SELECT {_listed(columns)} FROM ({placed}) ORDER BY {_FILE}, {_POS}"))


def who_brought(
    session: SparkSession, reversal: UndoReversal, rows: pa.Table, laters: Sequence[ChangedRows]
) -> list[int]:
    """Which of several changes brought rows that hold what these do."""
    with ExitStack() as stack:
        undo = FoundUndo(session, stack, reversal)
        return undo.changed(enumerate(laters), undo.named(frame(session, rows)), "> 0")


@contextmanager
def find_undo(session: SparkSession, reversal: UndoReversal) -> Iterator["FoundUndo"]:
    """What undoing a change comes to, for the block; in it the undo can be published."""
    with ExitStack() as stack:
        undo = FoundUndo(session, stack, reversal)
        undo.find()
        yield undo


class FoundUndo:
    """An undo in one session: views and what was found in them, until the stack unwinds."""

    def __init__(self, session: SparkSession, stack: ExitStack, reversal: UndoReversal) -> None:
        self._session = session
        self._stack = stack
        self._of = reversal
        self._target = CommitTarget(session, reversal.base.name, reversal.base.uuid, reversal.base.schema_id)
        self._iceberg = self._target.load()
        self._read = under(self._iceberg, reversal.base.schema_id)
        self._fields = reversal.schema.fields
        self._columns = _listed(reversal.schema.names)
        self._gone = self._back = self._places = ""
        self.figures = UndoFigures(0, 0, 0, {})

    def find(self) -> None:
        of = self._of
        if of.untouched:
            files = {path: of.base.rows[path] for path in of.within}
            rows = sum(files.values())
            self.figures = UndoFigures(rows, rows, 0, files)
            return
        came, restored = self._changes()
        touched = self._touched(came=bool(came), went=bool(restored))
        files = self._find_places() if came and of.within else {}
        met = self._met() if restored else None
        asked = restored and self._of.required
        lacking = nulls_in(self._session, self._back, self._of.required) if asked else {}
        self.figures = UndoFigures(came, sum(files.values()), restored, files, touched, met, lacking)

    def samples(self, limit: int) -> list[RowSample]:
        found = self.figures
        removed: list[Any] = []
        if found.removed and self._of.untouched:
            source = self._rows_of(SnapshotFiles(self._of.base.snapshot_id or 0, self._of.within))
            removed = self._shown(f"SELECT {self._columns} FROM {source}", limit)
        elif found.removed:
            removed = self._shown(f"SELECT {self._columns} FROM {self._gone}", limit)
        restored = self._shown(f"SELECT {self._columns} FROM {self._back}", limit) if found.restored else []
        kept = removed[: max(limit // 2, limit - len(restored))]
        added = restored[: limit - len(kept)]
        return [*(RowSample(row, None) for row in kept), *(RowSample(None, row) for row in added)]

    def publish(self, batch: str, summary: Mapping[str, str], gate: Gate, tag: Tag | None = None) -> int:
        """Undo the change in one commit, as `edit.publish` does; its snapshot's id."""
        found, base = self.figures, self._of.base
        whole = base.whole(found.files)
        old = None
        if found.files:
            assert base.snapshot_id is not None
            old = scan_tasks.files_of(scan_tasks.tasks(self._iceberg, base.snapshot_id, found.files))
        staged, live = self._staged(found.files.keys() - whole)
        listed = base.rows_in(found.files)
        held = listed if live is None else live + base.rows_in(whole)
        rows = EditedRows(held, listed, found.removed, found.restored, staged.records)
        what = FileReplacement(batch, base.snapshot_id, old, staged.files, rows, summary=summary, tag=tag)
        return replace_files(self._target, self._iceberg, what, gate, staged.discard)

    def changed(self, numbered: Iterable[tuple[int, ChangedRows]], rows: str, how: str) -> list[int]:
        """Which changes removed (`< 0`) or added (`> 0`) rows that hold what those of a view do."""
        every = list(numbered)
        return [n for i in range(0, len(every), _AT_ONCE) for n in self._changed(every[i : i + _AT_ONCE], rows, how)]

    def _touched(self, *, came: bool, went: bool) -> tuple[int, ...]:
        """Which later changes touched the rows that came, or brought back those that went; and which touched what those
        brought, since these must be undone first."""
        suspects = self._of.suspects
        found = self.changed(enumerate(suspects), self._gone, "< 0") if came else []
        if went:
            found += self._brought_back()
        if not found:
            return ()
        nets = []
        for start in range(min(found), len(suspects), _AT_ONCE):
            some = enumerate(suspects[start : start + _AT_ONCE], start)
            sides = [(n, view, sign) for n, change in some for view, sign in self._sides(change)]
            nets.append(self._persisted(chain.net(sides, self._of.schema)))
        return chain.reached(found, chain.follow(self._session, nets, self._of.schema))

    def _brought_back(self) -> list[int]:
        """Which restores brought back rows that went, unless others deleted all of these again."""
        restores = [(n, change) for n, change in enumerate(self._of.suspects) if change.restores]
        as_one = [(0, change) for _, change in restores]
        if len(restores) <= _AT_ONCE and not self._changed(as_one, self._back, "> 0"):
            return []
        return self.changed(restores, self._back, "> 0")

    def _changes(self) -> tuple[int, int]:
        """Make two views of what the change did: rows that came and rows that went, and how many of each."""
        net = self._persisted(self._net(self._of.change))
        self._gone = self.named(self._session.sql(f"SELECT * FROM {net} WHERE {_N} > 0"))
        self._back = self.named(
            self._session.sql(f"SELECT {self._columns}, explode(sequence(1, -{_N})) AS {_N} FROM {net} WHERE {_N} < 0")
        )
        counted = (
            f"SELECT coalesce(sum({_N}) FILTER (WHERE {_N} > 0), 0), coalesce(-sum({_N}) FILTER (WHERE {_N} < 0), 0)"
        )
        [row] = self._session.sql(f"{counted} FROM {net}").collect()
        return int(row[0]), int(row[1])

    def _sides(self, change: ChangedRows) -> list[tuple[str, int]]:
        """Names for the rows that came and those that went, with 1 and -1."""
        found: list[tuple[str, int]] = []
        for rows, sign in ((change.came, 1), (change.went, -1)):
            if isinstance(rows, pa.Table):
                found.append((self.named(self._filled(frame(self._session, rows))), sign))
            elif rows is not None and rows.paths:
                found.append((self._rows_of(rows), sign))
        return found

    def _net(self, change: ChangedRows) -> str:
        """Each content that a change made more or less frequent, and by how many rows."""
        columns = ", ".join(f"c{i} AS {identifier(name)}" for i, name in enumerate(self._of.schema.names))
        return f"SELECT {columns}, CAST(n AS INT) AS {_N} FROM ({diff_sql.net(self._sides(change), self._of.schema)})"

    def _changed(self, numbered: Iterable[tuple[int, ChangedRows]], rows: str, how: str) -> list[int]:
        legs = [
            f"SELECT {self._columns}, {sign} AS {_W}, {n} AS {_X} FROM {view}"
            for n, change in numbered
            for view, sign in self._sides(change)
        ]
        if not legs:
            return []
        alike = self._same("_firn_r", "_firn_g")
        counted = (
            f"SELECT {_X} FROM ({' UNION ALL '.join(legs)}) AS _firn_r LEFT SEMI JOIN {rows} AS _firn_g ON {alike} "
            f"GROUP BY {_X}, {self._content('_firn_r')} HAVING sum({_W}) {how}"
        )
        found = self._session.sql(f"SELECT DISTINCT {_X} FROM ({counted}) ORDER BY {_X}").collect()
        return [int(row[0]) for row in found]

    def _find_places(self) -> dict[str, int]:
        """Where the rows that came are: of several that hold the same, the first."""
        assert self._of.base.snapshot_id is not None
        source = self._rows_of(SnapshotFiles(self._of.base.snapshot_id, self._of.within), places=True)
        number = f"row_number() OVER (PARTITION BY {self._content('_firn_h')} ORDER BY _firn_h.{_FILE}, _firn_h.{_POS})"
        inner = (
            f"SELECT _firn_h.{_FILE} AS file, _firn_h.{_POS} AS pos, _firn_g.{_N} AS n, {number} AS k "
            f"FROM {source} AS _firn_h JOIN {self._gone} AS _firn_g ON {self._same('_firn_h', '_firn_g')}"
        )
        self._places = self._persisted(f"SELECT file, pos FROM ({inner}) WHERE k <= n")
        counted = self._session.sql(f"SELECT file, count(*) FROM {self._places} GROUP BY file").collect()
        return {str(row[0]): int(row[1]) for row in counted}

    def _met(self) -> pa.Table | None:
        """Some rows that came since and have the key of a row that would come back, and their files."""
        of = self._of
        if not of.keys or not of.fresh.paths:
            return None
        fresh = self._rows_of(of.fresh, places=True)
        parts = [f"SELECT {self._columns}, {_FILE}, 1 AS {_W} FROM {fresh}"]
        if of.stale.paths:
            stale = self._rows_of(of.stale)
            parts.append(f"SELECT {self._columns}, CAST(NULL AS STRING) AS {_FILE}, -1 AS {_W} FROM {stale}")
        # Rows that hold the same meet the same keys: one that meets several is counted as often on both sides.
        met = []
        for keys in of.keys:
            meets = " AND ".join(f"_firn_m.{identifier(key)} = _firn_b.{identifier(key)}" for key in keys)
            rows = f"({' UNION ALL '.join(parts)}) AS _firn_m"
            met.append(f"SELECT _firn_m.* FROM {rows} LEFT SEMI JOIN {self._back} AS _firn_b ON {meets}")
        kept = ", ".join(f"any_value(_firn_s.{identifier(f.name)}) AS {identifier(f.name)}" for f in self._fields)
        text = (
            f"SELECT {kept}, max(_firn_s.{_FILE}) AS {_FILE} FROM ({' UNION ALL '.join(met)}) AS _firn_s "
            f"GROUP BY {self._content('_firn_s')} HAVING sum(_firn_s.{_W}) > 0 LIMIT {_NAMED}"
        )
        found = collect(self._session.sql(text))
        return found if found.num_rows else None

    def _staged(self, rest: Iterable[str]) -> tuple[StagedFiles, int | None]:
        """What the files become, written; and how many rows they held if only reading them tells."""
        paths, base = frozenset(rest), self._of.base
        live: int | None = None
        parts = []
        if paths:
            assert base.snapshot_id is not None
            source = self._source(SnapshotFiles(base.snapshot_id, paths))
            same_place = "_firn_t._file = _firn_p.file AND _firn_t._pos = _firn_p.pos"
            kept = f"{source} AS _firn_t LEFT ANTI JOIN {self._places} AS _firn_p ON {same_place}"
            parts.append(f"SELECT {_listed(self._of.schema.names, '_firn_t')} FROM {kept}")
            if base.has_deletes:
                live = count_rows(self._session, source)
        if self.figures.restored:
            parts.append(f"SELECT {self._columns} FROM {self._back}")
        if not parts:
            return StagedFiles(self._iceberg.io(), ()), live
        rows = self._session.sql(" UNION ALL ".join(parts))
        if base.bytes_of(paths) > SHUFFLED_BYTES or self.figures.restored > 1_000_000:
            return stage_rows(self._session, self._iceberg, rows._jdf, {"distribution-mode": "hash"}), live
        return stage_rows(self._session, self._iceberg, rows.coalesce(1)._jdf), live

    def _rows_of(self, files: SnapshotFiles, *, places: bool = False) -> str:
        """A name for the rows of files under the table's present columns, with derived ones computed."""
        source = self._source(files)
        where_ = f", _file AS {_FILE}, _pos AS {_POS}" if places else ""
        return self.named(self._filled(self._session.sql(f"SELECT {self._columns}{where_} FROM {source}")))

    def _source(self, files: SnapshotFiles) -> str:
        return self._stack.enter_context(
            readable(self._read, scan_tasks.tasks(self._read, files.snapshot_id, files.paths))
        )

    def _filled(self, rows: DataFrame) -> DataFrame:
        return fill(self._session, rows, self._of.late) if self._of.late else rows

    def _persisted(self, text: str) -> str:
        from pyspark import StorageLevel

        rows = self._session.sql(text).persist(StorageLevel.DISK_ONLY)
        self._stack.callback(rows.unpersist)
        return self.named(rows)

    def named(self, rows: DataFrame) -> str:
        return self._stack.enter_context(named(self._session, rows))

    def _shown(self, text: str, limit: int) -> list[Any]:
        return list(json_rows(collect(self._session.sql(f"{text} LIMIT {limit}"))))

    def _content(self, alias: str) -> str:
        return ", ".join(comparable(f.type, f"{alias}.{identifier(f.name)}") for f in self._fields)

    def _same(self, one: str, other: str) -> str:
        return " AND ".join(
            same(f.type, f"{one}.{identifier(f.name)}", f"{other}.{identifier(f.name)}") for f in self._fields
        )


def _listed(columns: Iterable[str], alias: str = "") -> str:
    return ", ".join(f"{alias}.{identifier(name)}" if alias else identifier(name) for name in columns)
