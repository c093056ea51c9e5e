"""Dynamic tables on DuckDB: sources, the whole result of a query, and the steps of a refresh. No Spark."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import sqlglot

from service.dynamic.query.compile import Compiled, compile_query
from service.dynamic.query.tables import tables_named, with_views
from service.errors import InvalidQuery
from service.model.dynamic.plan import RESULT, WEIGHT, ChangedRows, delta, new, old
from service.model.schema.types import ColumnType, DecimalType, Field, Primitive

_TYPES = {
    "VARCHAR": "string",
    "INTEGER": "integer",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
}
_NAMES = {name: kind for kind, name in _TYPES.items()}


def to_duck(sql: str) -> str:
    """Spark's SQL as DuckDB's."""
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0].replace("RAISE_ERROR(", "error(")


def column_type(name: str) -> ColumnType:
    if name.startswith("DECIMAL("):
        precision, scale = name.removeprefix("DECIMAL(").removesuffix(")").split(",")
        return DecimalType(int(precision), int(scale))
    return Primitive(_TYPES.get(name, "long" if name in ("HUGEINT", "UBIGINT") else "string"))


class Duck:
    """Sources by name, with rows that tests change, and dynamic tables over them."""

    def __init__(self, schemas: Mapping[str, Sequence[Field]]) -> None:
        self.db = duckdb.connect()
        self.schemas = schemas
        self.rows: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in schemas}

    def compile(self, query: str, **options: Any) -> "DuckTable":
        return DuckTable(self, query, **options)

    def change(
        self, table: str, added: Iterable[tuple[Any, ...]] = (), removed: Iterable[tuple[Any, ...]] = ()
    ) -> None:
        rows = self.rows[table]
        rows.update(added)
        for row in removed:
            assert rows[row] > 0, f"{row} is not in {table}"
            rows[row] -= 1
        self.rows[table] = +rows


class DuckTable:
    """A dynamic table: its result as it is kept, refreshed by plans."""

    def __init__(self, duck: Duck, query: str, **options: Any) -> None:
        self.duck, self.db, self.query = duck, duck.db, query
        self.tables = tables_named(query)
        self.fields = [duck.schemas[one.table] for one in self.tables]
        self._views(dict(self.snapshot()))
        self.compiled: Compiled = compile_query(query, self.fields, self.types, **options)
        self.seen = self.snapshot()
        self.db.execute(f"CREATE OR REPLACE TABLE {RESULT} AS {to_duck(self.compiled.full)}")

    def types(self, sql: str) -> tuple[Field, ...]:
        try:
            found = self.db.execute(f"DESCRIBE {to_duck(sql)}").fetchall()
        except duckdb.Error as error:
            raise InvalidQuery(str(error)) from error
        return tuple(Field(name, column_type(kind)) for name, kind, *_ in found)

    def snapshot(self) -> dict[str, Counter[tuple[Any, ...]]]:
        return {one.table: Counter(self.duck.rows[one.table]) for one in self.tables}

    def refresh(self) -> set[int]:
        """Apply the change since the last refresh; which sources changed."""
        now = self.snapshot()
        changed = {i for i, one in enumerate(self.tables) if now[one.table] != self.seen[one.table]}
        if changed:
            self._views(now)
            self._apply(changed)
        self.seen = now
        return changed

    def _apply(self, changed: set[int]) -> None:
        plan = self.compiled.plan(changed)
        for step in plan.steps:
            self.db.execute(f"CREATE OR REPLACE TEMP TABLE {step.view} AS {to_duck(step.sql)}")
        columns = [row[0] for row in self.db.execute(f"DESCRIBE {RESULT}").fetchall()]
        shown = ", ".join(f'"{name}"' for name in columns)
        before = bag(self.db.execute(f"SELECT {shown} FROM {RESULT}").fetchall())
        if isinstance(plan.change, ChangedRows):
            after = Counter(before)
            for *row, weight in self.db.execute(f"SELECT {shown}, {WEIGHT} FROM {plan.change.view}").fetchall():
                after[plain(row)] += weight
            assert all(count >= 0 for count in after.values()), f"rows that were not there: {after - before}"
        else:
            rows = self.db.execute(f"SELECT {shown} FROM {plan.change.rows}").fetchall()
            names = ", ".join(f'"{name}"' for name in plan.change.columns) or "1"
            keys = {plain(row) for row in self.db.execute(f"SELECT {names} FROM {plan.change.keys}").fetchall()}
            places = [columns.index(name) for name in plan.change.columns]
            kept = Counter(
                {
                    row: n
                    for row, n in before.items()
                    if not keys or (places and tuple(row[i] for i in places) not in keys)
                }
            )
            after = kept + (bag(rows) if keys else Counter())
        self.db.execute(f"DELETE FROM {RESULT}")
        self._insert(RESULT, [row for row, count in after.items() for _ in range(count)])

    def result(self) -> Counter[tuple[Any, ...]]:
        """The result without its hidden columns."""
        hidden = set(self.compiled.hidden)
        columns = [row[0] for row in self.db.execute(f"DESCRIBE {RESULT}").fetchall() if row[0] not in hidden]
        shown = ", ".join(f'"{name}"' for name in columns)
        return bag(self.db.execute(f"SELECT {shown} FROM {RESULT}").fetchall())

    def recomputed(self) -> Counter[tuple[Any, ...]]:
        """The rows of the query's own text."""
        return bag(self.db.execute(to_duck(with_views(self.query, self.tables))).fetchall())

    def _views(self, now: Mapping[str, Counter[tuple[Any, ...]]]) -> None:
        for i, one in enumerate(self.tables):
            fields = self.fields[i]
            before = self.seen[one.table] if hasattr(self, "seen") else now[one.table]
            difference = Counter(now[one.table])
            difference.subtract(before)
            self._table(new(i), fields, [row for row, n in now[one.table].items() for _ in range(n)])
            self._table(old(i), fields, [row for row, n in before.items() for _ in range(n)])
            weighted = [(*row, n) for row, n in difference.items() if n]
            self._table(delta(i), [*fields, Field(WEIGHT, Primitive("long"))], weighted)

    def _table(self, name: str, fields: Sequence[Field], rows: list[tuple[Any, ...]]) -> None:
        columns = ", ".join(
            f'"{one.name}" {_NAMES[str(one.type)] if isinstance(one.type, Primitive) else one.type}' for one in fields
        )
        self.db.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
        self._insert(name, rows)

    def _insert(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            marks = ", ".join("?" for _ in rows[0])
            values = ", ".join(f"({marks})" for _ in rows)
            self.db.execute(f"INSERT INTO {name} VALUES {values}", [each for row in rows for each in row])


def plain(row: Iterable[Any]) -> tuple[Any, ...]:
    """A row whose values are equal if SQL says so: NaN equals NaN, -0.0 equals 0.0."""
    return tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def bag(rows: Iterable[Iterable[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(map(plain, rows))
