"""Dynamic tables on DuckDB: sources with versions, and results that are refreshed by plans. No Spark."""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import sqlglot

from service.dynamic.query.compile import CompiledPlans, compile_query
from service.dynamic.query.tables import tables_named, with_views
from service.errors import InvalidQuery
from service.model.dynamic.plan import RESULT, WEIGHT, ReplacedKeys, WeightedRows, delta, new, old
from service.model.schema.types import ColumnType, DecimalType, Field, Primitive

Row = tuple[Any, ...]
_numbers = itertools.count(1)
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
    "HUGEINT": "long",
}
_NAMES = {name: kind for kind, name in _TYPES.items() if kind != "HUGEINT"}


@functools.lru_cache(maxsize=4096)
def to_duck(sql: str) -> str:
    """Spark's SQL as DuckDB's."""
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0].replace("RAISE_ERROR(", "error(")


def column_type(name: str) -> ColumnType:
    if name.startswith("DECIMAL("):
        precision, scale = name.removeprefix("DECIMAL(").removesuffix(")").split(",")
        return DecimalType(int(precision), int(scale))
    return Primitive(_TYPES.get(name, "string"))


def fields_of(db: duckdb.DuckDBPyConnection, table: str) -> tuple[Field, ...]:
    return tuple(Field(name, column_type(kind)) for name, kind, *_ in db.execute(f"DESCRIBE {table}").fetchall())


class Duck:
    """Sources by name. Tests change their tables by SQL or by rows; `commit` makes that a version."""

    def __init__(self, schemas: Mapping[str, Sequence[Field]] | None = None) -> None:
        self.db = duckdb.connect(config={"threads": 1})
        self.schemas: dict[str, Sequence[Field]] = {}
        self.version = 0
        self._changes: dict[tuple[str, int, int], bool] = {}
        for name, fields in (schemas or {}).items():
            columns = ", ".join(
                f'"{one.name}" {_NAMES[str(one.type)] if isinstance(one.type, Primitive) else one.type}'
                for one in fields
            )
            self.db.execute(f"CREATE TABLE {name} ({columns})")
            self.add(name, fields)

    def add(self, name: str, fields: Sequence[Field] | None = None) -> None:
        """Make a table of the database a source."""
        self.schemas[name] = fields or fields_of(self.db, name)
        self.db.execute(f"CREATE TABLE {name}_v0 AS FROM {name}")

    def insert(self, table: str, rows: Iterable[Row]) -> None:
        there = list(rows)
        if there:
            values = ", ".join(f"({', '.join('?' for _ in row)})" for row in there)
            self.db.execute(f"INSERT INTO {table} VALUES {values}", [value for row in there for value in row])

    def delete(self, table: str, row: Row) -> None:
        """Delete one row of all that are equal to it."""
        names = [one.name for one in self.schemas[table]]
        same = " AND ".join(f'"{name}" IS NOT DISTINCT FROM ?' for name in names)
        self.db.execute(f"DELETE FROM {table} WHERE rowid = (SELECT MIN(rowid) FROM {table} WHERE {same})", list(row))

    def rows(self, table: str) -> list[Row]:
        return self.db.execute(f"FROM {table} ORDER BY ALL").fetchall()

    def commit(self) -> None:
        self.version += 1
        for name in self.schemas:
            self.db.execute(f"CREATE TABLE {name}_v{self.version} AS FROM {name}")

    def changed(self, name: str, before: int) -> bool:
        """Whether the table's rows changed since a version."""
        key = (name, before, self.version)
        if key not in self._changes:
            columns = ", ".join(f'"{one.name}"' for one in self.schemas[name])
            there = self.db.execute(f"SELECT 1 FROM ({self.difference(name, before, columns)}) LIMIT 1").fetchone()
            self._changes[key] = there is not None
        return self._changes[key]

    def difference(self, name: str, before: int, columns: str) -> str:
        """The change of the table since a version, in some columns."""
        return (
            f"SELECT {columns}, SUM({WEIGHT})::BIGINT AS {WEIGHT} FROM ("
            f"SELECT {columns}, 1 AS {WEIGHT} FROM {name}_v{self.version} "
            f"UNION ALL SELECT {columns}, -1 FROM {name}_v{before}) GROUP BY ALL HAVING SUM({WEIGHT}) <> 0"
        )

    def table(self, query: str, **options: Any) -> "DuckTable":
        return DuckTable(self, query, **options)


class DuckTable:
    """A dynamic table: its result as it is kept, refreshed by plans."""

    def __init__(self, duck: Duck, query: str, **options: Any) -> None:
        self.duck, self.db, self.query = duck, duck.db, query
        self.deduplicated = bool(options.get("deduplicated"))
        self.tables = tables_named(query)
        self.fields = [duck.schemas[one.table] for one in self.tables]
        self.seen = duck.version
        for i, one in enumerate(self.tables):
            self.db.execute(f"CREATE OR REPLACE VIEW {new(i)} AS FROM {one.table}_v{self.seen}")
        self.compiled: CompiledPlans = compile_query(query, self.fields, self.types, **options)
        self.result_table = f"result_{next(_numbers)}"
        self.db.execute(f"CREATE TABLE {self.result_table} AS {to_duck(self.compiled.full)}")
        self.columns = [row[0] for row in self.db.execute(f"DESCRIBE {self.result_table}").fetchall()]

    def types(self, sql: str) -> tuple[Field, ...]:
        try:
            return fields_of(self.db, to_duck(sql))
        except duckdb.Error as error:
            raise InvalidQuery(str(error)) from error

    def refresh(self) -> set[int]:
        """Apply the change since the last refresh; which sources changed."""
        changed = {i for i, one in enumerate(self.tables) if self.duck.changed(one.table, self.seen)}
        self._views()
        if changed:
            self._apply(changed)
        self.seen = self.duck.version
        return changed

    def _views(self) -> None:
        """The views of the sources, with only the columns that the query reads."""
        for i, (one, source) in enumerate(zip(self.tables, self.compiled.sources, strict=True)):
            columns = ", ".join(f'"{name}"' for name in source.columns)
            for view, version in ((new(i), self.duck.version), (old(i), self.seen)):
                self.db.execute(f"CREATE OR REPLACE VIEW {view} AS SELECT {columns} FROM {one.table}_v{version}")
            difference = self.duck.difference(one.table, self.seen, columns)
            self.db.execute(f"CREATE OR REPLACE TEMP TABLE {delta(i)} AS {difference}")

    def _apply(self, changed: set[int]) -> None:
        self.db.execute(f"CREATE OR REPLACE TEMP VIEW {RESULT} AS FROM {self.result_table}")
        plan = self.compiled.plan(changed)
        for step in plan.steps:
            self.db.execute(f"CREATE OR REPLACE TEMP TABLE {step.view} AS {to_duck(step.sql)}")
        shown = ", ".join(f'"{name}"' for name in self.columns)
        if isinstance(plan.change, WeightedRows):
            self._add(shown, plan.change.view)
        else:
            self._replace(shown, plan.change)

    def _add(self, shown: str, change: str) -> None:
        rows = (
            f"SELECT {shown}, 1 AS {WEIGHT} FROM {self.result_table} UNION ALL SELECT {shown}, {WEIGHT} FROM {change}"
        )
        self.db.execute(
            f"CREATE OR REPLACE TEMP TABLE after AS SELECT {shown}, SUM({WEIGHT})::BIGINT AS {WEIGHT} FROM ({rows}) "
            f"GROUP BY ALL HAVING SUM({WEIGHT}) <> 0"
        )
        negative = self.db.execute(f"FROM after WHERE {WEIGHT} < 0").fetchall()
        assert not negative, f"rows that were not there: {negative}"
        self.db.execute(f"CREATE OR REPLACE TABLE {self.result_table} AS SELECT {shown} FROM after, range({WEIGHT})")

    def _replace(self, shown: str, change: ReplacedKeys) -> None:
        same = " AND ".join(f'k."{name}" IS NOT DISTINCT FROM r."{name}"' for name in change.columns) or "TRUE"
        touched = f"EXISTS (SELECT 1 FROM {change.keys} AS k WHERE {same})"
        strange = self.db.execute(f"FROM {change.rows} AS r WHERE NOT {touched}").fetchall() if change.columns else []
        assert not strange, f"rows whose key has not changed: {strange}"
        nothing = self.db.execute(f"SELECT 1 FROM {change.keys} LIMIT 1").fetchone() is None
        self.db.execute(f"DELETE FROM {self.result_table} AS r WHERE {touched}")
        if not nothing:
            self.db.execute(f"INSERT INTO {self.result_table} SELECT {shown} FROM {change.rows}")

    def _rows(self, sql: str) -> Counter[Row]:
        return Counter(self.db.execute(sql).fetchall())

    def result(self) -> Counter[Row]:
        """The result without its hidden columns."""
        shown = ", ".join(f'"{name}"' for name in self.columns if name not in self.compiled.hidden)
        return folded(self._rows(f"SELECT {shown} FROM {self.result_table}"))

    def recomputed(self) -> Counter[Row]:
        """The rows of the query's own text, at the version of the last refresh."""
        for i, one in enumerate(self.tables):
            self.db.execute(f"CREATE OR REPLACE VIEW {new(i)} AS FROM {one.table}_v{self.seen}")
        rows = folded(self._rows(to_duck(with_views(self.query, self.tables))))
        return Counter(set(rows)) if self.deduplicated else rows


def folded(rows: Counter[Row]) -> Counter[Row]:
    """The rows with values that are equal if SQL says so, and with sums that are equal but for the last digits."""
    found: Counter[Row] = Counter()
    for row, count in rows.items():
        found[tuple(map(_folded, row))] += count
    return Counter({row: count for row, count in found.items() if count})


def _folded(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.12g}") + 0.0
    return value
