"""What a sender sees of a table, as SQL: the rows and values that a policy shows, and a barrier around them.

The policy decides before anything else is computed. Otherwise `1 / (salary - 5000)` in a filter would fail if there is
such a row, visible or not, and the error would tell. Spark reorders conditions, moves them to the files, and computes
aggregates from statistics, but it never moves a condition past a filter that it takes for a random one. So each filter
of a policy has a condition that is always true, and that Spark does not know to be.
"""

from collections.abc import Sequence

from service.engine.sql.sql import Parameters, identifier, literal, spark_type, where
from service.model.policy.masks import STARS, ConstantMask, Hashed, Mask, Null, Redacted
from service.model.policy.view import Cases, RowView
from service.model.schema.types import ColumnType

_BARRIER = "monotonically_increasing_id() >= 0"


def visible_rows(
    view: RowView, source: str, parameters: Parameters, places: Sequence[str] = (), *, barrier: bool = True
) -> str:
    """A relation of what is visible of another one, in parentheses, with the columns `places` beside those of the view.

    Without the barrier it must not run; Spark can tell from it whether a query of it depends on chance.
    """
    columns = [*(_column(view, f.name, f.type, parameters) for f in view.schema.fields), *map(identifier, places)]
    condition = f"({where(view.rows, parameters)})" + (f" AND {_BARRIER}" if barrier else "")
    # A table of which nothing is visible has no columns; rows of it still count.
    return f"(SELECT {', '.join(columns) or '1 AS `_firn_none`'} FROM {source} WHERE {condition})"


def _column(view: RowView, name: str, kind: ColumnType, parameters: Parameters) -> str:
    column = identifier(name)
    masked = view.masked.get(name)
    return column if masked is None else f"{_masked(column, kind, masked.cases, parameters)} AS {column}"


def _masked(column: str, kind: ColumnType, cases: Cases, parameters: Parameters) -> str:
    *before, (_, last) = [(rows, _shown(column, kind, mask, parameters)) for rows, mask in cases]
    whens = "".join(f" WHEN {where(rows, parameters)} THEN {value}" for rows, value in before)
    return f"CASE{whens} ELSE {last} END" if whens else last


def _shown(column: str, kind: ColumnType, mask: Mask, parameters: Parameters) -> str:
    match mask:
        case Redacted(0):
            return f"CASE WHEN {column} IS NOT NULL THEN {parameters.add(STARS)} END"
        case Redacted(keep):
            stars, last = parameters.add(STARS), f"right({column}, {keep})"
            return f"CASE WHEN length({column}) >= {2 * keep} THEN concat({stars}, {last}) " + (
                f"WHEN {column} IS NOT NULL THEN {stars} END"
            )
        case Hashed(salt):
            return f"sha2(concat({parameters.add(salt)}, {column}), 256)"
        case ConstantMask(value):
            return f"TRY_CAST({literal(kind, value, parameters)} AS {spark_type(kind)})"
        case Null():
            return f"CAST(NULL AS {spark_type(kind)})"
    return column
