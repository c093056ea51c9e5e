"""UNDO in Spark: which rows a change added and removed, where they are now, and whether later changes touched them.

As with edits, `find_undo` comes first, and the undo is published inside its block.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa

from service.engine.iceberg.row_replacement import RowReplacement, commit_rows
from service.engine.iceberg.scan_tasks import SnapshotFiles
from service.engine.iceberg.staging import StagedFiles, readable_files, stage_rows
from service.engine.iceberg.swap import CommitTarget, Gate, Tag
from service.engine.iceberg.tables import current
from service.engine.jobs.edit import SHUFFLED_BYTES, count_rows
from service.engine.jobs.edits.places import FoundPlaces
from service.engine.jobs.edits.preview import RowSample
from service.engine.jobs.edits.reversal import (
    FILE,
    MOST_MET,
    AddedAndRemoved,
    FewUndo,
    UndoFigures,
    UndoReversal,
    reached,
)
from service.engine.session.rows import collect, frame, json_rows
from service.engine.session.spark_types import DataFrame, SparkSession
from service.engine.sql import diff_sql
from service.engine.sql.content import comparable, same
from service.engine.sql.derived import fill
from service.engine.sql.past import nulls_in, under
from service.engine.sql.sql import identifier, named
from service.model.names import RESERVED_COLUMN_PREFIX

# How many later changes one job compares.
_AT_ONCE = 12
_MANY_ROWS = 1_000_000
_N, _W, _X, _POS = "_firn_n", "_firn_w", "_firn_x", "_firn_pos"


def read_files(
    session: SparkSession, table: str, files: SnapshotFiles, schema_id: int, columns: Sequence[str]
) -> pa.Table:
    """Every row of some files, in order, with columns of one of the table's schemas."""
    listed = ", ".join(identifier(name) for name in columns)
    with readable_files(session, under(current(session, table), schema_id), files) as source:
        placed = f"SELECT {listed}, _file AS {FILE}, _pos AS {_POS} FROM {source}"
        return collect(session.sql(f"SELECT {listed} FROM ({placed}) ORDER BY {FILE}, {_POS}"))


def changes_that_added(
    session: SparkSession, reversal: UndoReversal, rows: pa.Table, laters: Sequence[AddedAndRemoved]
) -> list[int]:
    """The numbers of the changes that added rows equal to these."""
    with ExitStack() as stack:
        undo = FoundUndo(session, stack, reversal)
        return undo.changed(enumerate(laters), undo.named(frame(session, rows)), "> 0")


@contextmanager
def find_undo(session: SparkSession, reversal: UndoReversal, few: FewUndo | None = None) -> Iterator["FoundUndo"]:
    """Find what undoing a change does, unless it was found already, for the block, in which it can be published."""
    with ExitStack() as stack:
        undo = FoundUndo(session, stack, reversal, few)
        undo.find()
        yield undo


class FoundUndo:
    """An undo in one session: its views and what was found in them, until the stack unwinds."""

    def __init__(
        self, session: SparkSession, stack: ExitStack, reversal: UndoReversal, few: FewUndo | None = None
    ) -> None:
        self._session = session
        self._stack = stack
        self._of = reversal
        self._few = few
        self._target = CommitTarget(session, reversal.base.name, reversal.base.uuid, reversal.base.schema_id)
        self._iceberg = self._target.load()
        self._read = under(self._iceberg, reversal.base.schema_id)
        self._columns = ", ".join(identifier(name) for name in reversal.schema.names)
        # Views of the rows that the change added, of those that it removed, and of the places of the former.
        self._added = self._removed = self._places = ""
        self.figures = UndoFigures(0, 0, 0, {})

    def find(self) -> None:
        of = self._of
        if self._few:
            self.figures = self._few.figures
            return
        if of.untouched:
            files = {path: of.base.rows[path] for path in of.within}
            rows = sum(files.values())
            self.figures = UndoFigures(rows, rows, 0, files)
            return
        added, removed = self._changes()
        touched = self._touched(added=bool(added), removed=bool(removed))
        files = self._find_places() if added and of.within else {}
        met = self._rows_with_their_keys() if removed else None
        lacking = nulls_in(self._session, self._removed, of.required) if removed and of.required else {}
        self.figures = UndoFigures(added, sum(files.values()), removed, files, touched, met, lacking)

    @property
    def rows_to_write(self) -> int:
        """How many rows `publish` writes, by the metadata."""
        rewritten, found = self._rewritten, self.figures
        rows = self._of.base.rows_in(rewritten) - sum(found.files[path] for path in rewritten)
        return rows + found.restored

    @property
    def _rewritten(self) -> frozenset[str]:
        """The files to write again, of those that keep some rows."""
        base, files = self._of.base, self.figures.files
        whole = base.whole(files)
        return base.rewritten({path: count for path, count in files.items() if path not in whole})

    def samples(self, limit: int) -> list[RowSample]:
        found, few = self.figures, self._few
        removed: list[Any] = []
        if found.removed and few:
            removed = self._shown(few.added.slice(0, limit))
        elif found.removed:
            files = SnapshotFiles(self._of.base.snapshot_id or 0, self._of.within)
            removed = self._sample(self._rows_of(files) if self._of.untouched else self._added, limit)
        restored: list[Any] = []
        if found.restored:
            restored = self._shown(few.removed.slice(0, limit)) if few else self._sample(self._removed, limit)
        kept = removed[: max(limit // 2, limit - len(restored))]
        return [
            *(RowSample(row, None) for row in kept),
            *(RowSample(None, row) for row in restored[: limit - len(kept)]),
        ]

    def publish(self, batch: str, summary: Mapping[str, str], gate: Gate, tag: Tag | None = None) -> int:
        """Undo the change in one commit, as an edit is published, and return its snapshot's id."""
        found, base = self.figures, self._of.base
        whole, rewritten = base.whole(found.files), self._rewritten
        if self._few and rewritten:
            self._places = self.named(frame(self._session, self._few.places))
        if self._few and found.restored:
            self._removed = self.named(frame(self._session, self._few.removed))
        staged, live = self._staged(rewritten)
        change = RowReplacement(
            batch,
            base.snapshot_id,
            staged,
            live - sum(found.files[path] for path in rewritten) + found.restored,
            self._places_in(found.files.keys() - whole - rewritten),
            {path: base.rows[path] for path in whole | rewritten},
            summary,
            tag,
        )
        return commit_rows(self._target, change, gate, iceberg=self._iceberg)

    def changed(self, numbered: Iterable[tuple[int, AddedAndRemoved]], rows: str, how: str) -> list[int]:
        """The changes that removed (`< 0`) or added (`> 0`) rows equal to those of a view."""
        found: list[int] = []
        every = list(numbered)
        for start in range(0, len(every), _AT_ONCE):
            legs = [
                f"SELECT {self._columns}, {sign} AS {_W}, {n} AS {_X} FROM {view}"
                for n, view, sign in self._sides(every[start : start + _AT_ONCE])
            ]
            if legs:
                counted = (
                    f"SELECT {_X} FROM ({' UNION ALL '.join(legs)}) AS _firn_r LEFT SEMI JOIN {rows} AS _firn_g "
                    f"ON {self._same('_firn_r', '_firn_g')} "
                    f"GROUP BY {_X}, {self._content('_firn_r')} HAVING sum({_W}) {how}"
                )
                every_x = self._session.sql(f"SELECT DISTINCT {_X} FROM ({counted}) ORDER BY {_X}").collect()
                found += [int(row[0]) for row in every_x]
        return found

    def named(self, rows: DataFrame) -> str:
        return self._stack.enter_context(named(rows))

    def _changes(self) -> tuple[int, int]:
        """Make views of the rows that the change added and of those that it removed; returns how many of each."""
        columns = ", ".join(f"c{i} AS {identifier(name)}" for i, name in enumerate(self._of.schema.names))
        sides = ((view, sign) for _, view, sign in self._sides([(0, self._of.change)]))
        net = self._persisted(f"SELECT {columns}, CAST(n AS INT) AS {_N} FROM ({diff_sql.net(sides, self._of.schema)})")
        self._added = self.named(self._session.sql(f"SELECT * FROM {net} WHERE {_N} > 0"))
        copies = f"explode(sequence(1, -{_N})) AS {_N}"
        self._removed = self.named(self._session.sql(f"SELECT {self._columns}, {copies} FROM {net} WHERE {_N} < 0"))
        sums = f"coalesce(sum(greatest({_N}, 0)), 0), coalesce(sum(greatest(-{_N}, 0)), 0)"
        [row] = self._session.sql(f"SELECT {sums} FROM {net}").collect()
        return int(row[0]), int(row[1])

    def _touched(self, *, added: bool, removed: bool) -> tuple[int, ...]:
        """The later changes that touched the added rows or restored the removed ones, and those that touched what
        these added: they must be undone first."""
        suspects = self._of.suspects
        found = self.changed(enumerate(suspects), self._added, "< 0") if added else []
        if removed:
            found += self._restored_since()
        if not found:
            return ()
        nets = []
        for start in range(min(found), len(suspects), _AT_ONCE):
            sides = self._sides(enumerate(suspects[start : start + _AT_ONCE], start))
            nets.append(self._persisted(diff_sql.net_by_change(sides, self._of.schema)))
        return reached(found, self._follow(nets))

    def _restored_since(self) -> list[int]:
        """The restores that added removed rows again, unless later changes deleted all of these."""
        restores = [(n, change) for n, change in enumerate(self._of.suspects) if change.restores]
        as_one = [(0, change) for _, change in restores]
        if len(restores) <= _AT_ONCE and not self.changed(as_one, self._removed, "> 0"):
            return []
        return self.changed(restores, self._removed, "> 0")

    def _follow(self, nets: Sequence[str]) -> list[tuple[int, int]]:
        """Pairs of changes, by views of `net_by_change`: the later one removed rows that the earlier one added."""
        every = " UNION ALL ".join(f"SELECT * FROM {view}" for view in nets)
        equal = " AND ".join(f"b.{c} <=> a.{c}" for c in diff_sql.contents_of(self._of.schema))
        text = (
            f"SELECT DISTINCT a.x AS a, b.x AS b FROM ({every}) AS a JOIN ({every}) AS b "
            f"ON {equal} AND a.n > 0 AND b.n < 0 AND a.x < b.x"
        )
        return [(int(row[0]), int(row[1])) for row in self._session.sql(text).collect()]

    def _sides(self, numbered: Iterable[tuple[int, AddedAndRemoved]]) -> Iterator[tuple[int, str, int]]:
        """For each change, views of the rows that it added (1) and removed (-1)."""
        for n, change in numbered:
            for rows, sign in ((change.came, 1), (change.went, -1)):
                if isinstance(rows, pa.Table):
                    yield n, self.named(fill(frame(self._session, rows), self._of.late)), sign
                elif rows is not None and rows.touched:
                    yield n, self._rows_of(rows), sign

    def _find_places(self) -> dict[str, int]:
        """Find the places of the added rows, and return how many are in each file. Of equal rows, the first count."""
        source = self._rows_of(SnapshotFiles(self._of.base.snapshot_id or 0, self._of.within), places=True)
        number = f"row_number() OVER (PARTITION BY {self._content('_firn_h')} ORDER BY _firn_h.{FILE}, _firn_h.{_POS})"
        inner = (
            f"SELECT _firn_h.{FILE} AS file, _firn_h.{_POS} AS pos, _firn_g.{_N} AS n, {number} AS k "
            f"FROM {source} AS _firn_h JOIN {self._added} AS _firn_g ON {self._same('_firn_h', '_firn_g')}"
        )
        self._places = self._persisted(f"SELECT file, pos FROM ({inner}) WHERE k <= n")
        counted = self._session.sql(f"SELECT file, count(*) FROM {self._places} GROUP BY file").collect()
        return {str(row[0]): int(row[1]) for row in counted}

    def _rows_with_their_keys(self) -> pa.Table | None:
        """Some rows that were added since and have the key of a row to restore, and their files."""
        of = self._of
        if not of.keys or not (of.fresh.touched or of.beside.came is not None):
            return None
        parts, nowhere = [], f"CAST(NULL AS STRING) AS {FILE}"
        if of.fresh.touched:
            parts.append(f"SELECT {self._columns}, {FILE}, 1 AS {_W} FROM {self._rows_of(of.fresh, places=True)}")
        if of.stale.touched:
            parts.append(f"SELECT {self._columns}, {nowhere}, -1 AS {_W} FROM {self._rows_of(of.stale)}")
        for _, view, sign in self._sides([(0, of.beside)]):
            parts.append(f"SELECT {self._columns}, {nowhere}, {sign} AS {_W} FROM {view}")
        # Equal rows have the same keys: a row that has several of them is counted as often on both sides.
        met = []
        for keys in of.keys:
            meets = " AND ".join(f"_firn_m.{identifier(key)} = _firn_b.{identifier(key)}" for key in keys)
            rows = f"({' UNION ALL '.join(parts)}) AS _firn_m"
            met.append(f"SELECT _firn_m.* FROM {rows} LEFT SEMI JOIN {self._removed} AS _firn_b ON {meets}")
        kept = ", ".join(f"any_value(_firn_s.{identifier(n)}) AS {identifier(n)}" for n in of.schema.names)
        text = (
            f"SELECT {kept}, max(_firn_s.{FILE}) AS {FILE} FROM ({' UNION ALL '.join(met)}) AS _firn_s "
            f"GROUP BY {self._content('_firn_s')} HAVING sum(_firn_s.{_W}) > 0 LIMIT {MOST_MET}"
        )
        found = collect(self._session.sql(text))
        return found if found.num_rows else None

    def _places_in(self, paths: Collection[str]) -> dict[str, pa.Array]:
        """The positions of the rows to remove, in each of these files."""
        if not paths:
            return {}
        few = self._few
        rows = few.places if few else collect(self._session.sql(f"SELECT file, pos FROM {self._places}"))
        return FoundPlaces(rows=rows).in_files(paths)

    def _staged(self, paths: frozenset[str]) -> tuple[StagedFiles, int]:
        """Write the new versions of files, and rows to restore. Also returns how many rows the files have now."""
        base, live = self._of.base, 0
        parts = []
        if paths:
            source = self._source(SnapshotFiles(base.snapshot_id or 0, paths))
            columns = ", ".join(f"_firn_t.{identifier(name)}" for name in self._of.schema.names)
            same_place = "_firn_t._file = _firn_p.file AND _firn_t._pos = _firn_p.pos"
            kept = f"{source} AS _firn_t LEFT ANTI JOIN {self._places} AS _firn_p ON {same_place}"
            parts.append(f"SELECT {columns} FROM {kept}")
            counted = [base.live(path) for path in paths]
            live = count_rows(self._session, source) if None in counted else sum(count or 0 for count in counted)
        if self.figures.restored:
            parts.append(f"SELECT {self._columns} FROM {self._removed}")
        if not parts:
            return StagedFiles(self._iceberg.io(), ()), live
        rows = self._session.sql(" UNION ALL ".join(parts))
        if base.bytes_of(paths) > SHUFFLED_BYTES or self.figures.restored > _MANY_ROWS:
            return stage_rows(self._iceberg, rows, {"distribution-mode": "hash"}), live
        return stage_rows(self._iceberg, rows.coalesce(1)), live

    def _rows_of(self, files: SnapshotFiles, *, places: bool = False) -> str:
        """A view of the rows of files, with the table's current columns, derived ones computed."""
        place = f", _file AS {FILE}, _pos AS {_POS}" if places else ""
        rows = self._session.sql(f"SELECT {self._columns}{place} FROM {self._source(files)}")
        return self.named(fill(rows, self._of.late))

    def _source(self, files: SnapshotFiles) -> str:
        return self._stack.enter_context(readable_files(self._session, self._read, files))

    def _persisted(self, text: str) -> str:
        from pyspark import StorageLevel

        rows = self._session.sql(text).persist(StorageLevel.DISK_ONLY)
        self._stack.callback(rows.unpersist)
        return self.named(rows)

    def _sample(self, view: str, limit: int) -> list[Any]:
        return self._shown(collect(self._session.sql(f"SELECT {self._columns} FROM {view} LIMIT {limit}")))

    def _shown(self, rows: pa.Table) -> list[Any]:
        names = [name for name in self._of.schema.names if not name.startswith(RESERVED_COLUMN_PREFIX)]
        return list(json_rows(rows.select(names)))

    def _content(self, alias: str) -> str:
        return ", ".join(comparable(f.type, f"{alias}.{identifier(f.name)}") for f in self._of.schema.fields)

    def _same(self, one: str, other: str) -> str:
        names = [(field.type, identifier(field.name)) for field in self._of.schema.fields]
        return " AND ".join(same(kind, f"{one}.{name}", f"{other}.{name}") for kind, name in names)
