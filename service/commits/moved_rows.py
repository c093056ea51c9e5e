"""Where rows of old files are in the files that they were merged to: found in this process, by their contents."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from service.catalog.files.columns import TooManyRows, UnreadableFile
from service.catalog.files.few import MOST_ROWS, FewRows
from service.catalog.tables import Table
from service.commits.local_rows import probe_column
from service.model.keyed.contents import Content, contents

_Place = tuple[str, int]
_Places = Mapping[str, pa.Array]
# The columns that are searched stay in memory up to this size.
_MOST_KEPT = 64 << 20


@dataclass
class MovedRows:
    """Finds rows of a table in merged files, which no snapshot has yet.

    It remembers what it has found and read. So a compaction searches before it holds the table's lock, and under the
    lock only for what was deleted since.
    """

    table: Table
    columns: pa.Schema
    _found: dict[_Place, _Place] = field(default_factory=dict, init=False)
    _kept: tuple[_Places, _Places] = field(default=({}, {}), init=False)
    """What Spark has found: rows by their old places, and by their new ones."""
    _probe: str | None = field(default=None, init=False)
    _searched: dict[str, pa.ChunkedArray] = field(default_factory=dict, init=False)
    """The column by which rows are searched first, of merged files."""

    def find(self, places: _Places, files: Mapping[str, int]) -> _Places | None:
        """Where the rows at some places are now, in files with these numbers of rows. None if they are many, not all
        there, or only Spark can read them."""
        before, after = self._kept
        rest = _without(places, before)
        if _count(places) - _count(rest) != _count(before) or not after.keys() <= files.keys():
            rest, after = places, {}
        if _count(rest) > MOST_ROWS:
            return None
        wanted = [(path, position) for path, some in rest.items() for position in some.to_pylist()]
        new = [place for place in wanted if place not in self._found or self._found[place][0] not in files]
        try:
            if new and not self._search(new, files, after):
                return None
        except (TooManyRows, UnreadableFile, ValueError):
            return None
        found: dict[str, list[int]] = {}
        for path, position in map(self._found.__getitem__, wanted):
            found.setdefault(path, []).append(position)
        parts = {path: pa.array(some, pa.int64()) for path, some in found.items()}
        none = pa.array([], pa.int64())
        return {
            path: pa.concat_arrays([after.get(path, none), parts.get(path, none)]).sort() for path in {**after, **parts}
        }

    def keep(self, places: _Places, found: _Places) -> None:
        """Remember what Spark has found: later places are searched beside these."""
        self._kept = places, found
        self._found.clear()

    def _search(self, places: list[_Place], files: Mapping[str, int], taken_by_spark: _Places) -> bool:
        """Find the rows at some places, and return whether all are there, beside those that Spark has found."""
        reader = FewRows(self.table, self.table.schema_id, self.columns)
        by_file: dict[str, list[int]] = {}
        for path, position in places:
            by_file.setdefault(path, []).append(position)
        old = reader.places({path: pa.array(some, pa.int64()) for path, some in by_file.items()})
        self._probe = self._probe or probe_column(old.rows)
        if self._probe is None:
            return False
        near = reader.having_in(self._columns(reader, self._probe, files), pc.unique(old.rows[self._probe]))
        taken, free = set(self._found.values()), defaultdict[Content, list[_Place]](list)
        taken |= _both(near.by_file, taken_by_spark)
        for content, path, position in zip(contents(near.rows), near.files, near.positions, strict=True):
            if (path, position) not in taken:
                free[content].append((path, position))
        moved: dict[_Place, _Place] = {}
        for content, path, position in zip(contents(old.rows), old.files, old.positions, strict=True):
            if not free[content]:
                return False
            moved[path, position] = free[content].pop()
        self._found |= moved
        return True

    def _columns(self, reader: FewRows, name: str, files: Mapping[str, int]) -> dict[str, pa.ChunkedArray]:
        """A column of the merged files."""
        for path, rows in files.items():
            if path not in self._searched:
                self._searched[path] = reader.column(path, rows, name)
        found = {path: self._searched[path] for path in files}
        if sum(column.nbytes for column in self._searched.values()) > _MOST_KEPT:
            self._searched.clear()
        return found


def _count(places: _Places) -> int:
    return sum(map(len, places.values()))


def _without(places: _Places, others: _Places) -> _Places:
    """The places that are not among others."""
    rest = {
        path: some.filter(pc.invert(pc.is_in(some, others[path]))) for path, some in places.items() if path in others
    }
    return {path: left for path, some in places.items() if len(left := rest.get(path, some))}


def _both(some: Mapping[str, Sequence[int]], others: _Places) -> set[_Place]:
    """The places that are in both."""
    at = {path: pa.array(positions, pa.int64()) for path, positions in some.items() if path in others}
    hits = {path: positions.filter(pc.is_in(positions, others[path])) for path, positions in at.items()}
    return {(path, position) for path, found in hits.items() for position in found.to_pylist()}
