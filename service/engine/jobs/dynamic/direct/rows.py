"""The rows of a change, computed in this process with Arrow. Pure, but for the reading of rows by their values."""

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from service.engine.jobs.dynamic.direct.conditions import NeedsSpark, is_plain, matching
from service.engine.jobs.dynamic.job import RefreshSource
from service.engine.session.rows import plain_columns
from service.model.dynamic.direct import DeltaRows, DirectRows, JoinedRows, MatchingRows, RenamedRows, UnitedRows
from service.model.dynamic.plan import WEIGHT
from service.model.schema.types import has_uuid

# More rows than this are joined by Spark.
_MOST_ROWS = 1_000_000
_COUNT = f"{WEIGHT}s"


def delta_rows(sources: Mapping[int, RefreshSource], one: DirectRows) -> pa.Table:
    """The rows with their weights; raises NeedsSpark."""
    match one:
        case DeltaRows():
            source = sources[one.source]
            changed = source.changed
            if changed is None:
                changed = plain_columns(source.change_schema).empty_table()
                changed = changed.append_column(WEIGHT, pa.array([], pa.int64()))
            return _renamed(_plain(changed, source), {**one.columns, WEIGHT: WEIGHT})
        case RenamedRows():
            return _renamed(delta_rows(sources, one.rows), {**one.columns, WEIGHT: WEIGHT})
        case MatchingRows():
            return matching(delta_rows(sources, one.rows), one.conditions)
        case JoinedRows():
            return _joined(delta_rows(sources, one.rows), sources[one.source], one)
        case UnitedRows():
            parts = [delta_rows(sources, part) for part in one.parts]
            if any(part.schema != parts[0].schema for part in parts):
                raise NeedsSpark
            return pa.concat_tables(parts)


def netted(rows: pa.Table, columns: Iterable[str]) -> pa.Table:
    """Rows with these columns, added up by content, without those that come as often as they go."""
    names = list(dict.fromkeys(columns))
    if not names:
        return rows
    found = rows.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum")]).rename_columns([*names, WEIGHT])
    return found.filter(pc.not_equal(found[WEIGHT], 0))


def _plain(rows: pa.Table, source: RefreshSource) -> pa.Table:
    if has_uuid(source.change_schema) or not all(is_plain(field.type) for field in rows.schema):
        raise NeedsSpark
    return rows


def _renamed(rows: pa.Table, columns: Mapping[str, str]) -> pa.Table:
    return pa.Table.from_arrays([rows[name] for name in columns.values()], names=list(columns))


def _joined(rows: pa.Table, source: RefreshSource, one: JoinedRows) -> pa.Table:
    here, there = map(list, zip(*one.pairs, strict=True))
    columns = plain_columns(source.change_schema)
    others = columns.empty_table()
    if rows.num_rows:
        wanted = pc.drop_null(pc.unique(rows[here[0]]))
        if wanted.type != columns.field(one.columns[there[0]]).type or source.stored is None:
            raise NeedsSpark
        found = source.stored.having(one.columns[there[0]], wanted, old=one.old)
        if found is None:
            raise NeedsSpark
        others = found
    others = matching(_renamed(_plain(others, source), one.columns), one.conditions)
    if any(rows.schema.field(a).type != others.schema.field(b).type for a, b in one.pairs):
        raise NeedsSpark
    if _matches(rows, here, others, there) > _MOST_ROWS:
        raise NeedsSpark
    return rows.join(others, here, there, "inner", coalesce_keys=False, use_threads=False)


def _matches(rows: pa.Table, here: Sequence[str], others: pa.Table, there: Sequence[str]) -> int:
    """How many rows a join has."""
    left = rows.group_by(here, use_threads=False).aggregate([([], "count_all")]).rename_columns([*here, WEIGHT])
    right = others.group_by(there, use_threads=False).aggregate([([], "count_all")]).rename_columns([*there, _COUNT])
    both = left.join(right, list(here), list(there), "inner", use_threads=False)
    return pc.sum(pc.multiply(both[WEIGHT], both[_COUNT])).as_py() or 0
