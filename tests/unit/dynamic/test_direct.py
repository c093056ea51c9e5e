"""What is computed without Spark is what the plan computes, for all that it computes at all."""

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from service.engine.jobs.dynamic.direct.net import direct_net
from service.engine.jobs.dynamic.job import RefreshJob, RefreshSource, SnapshotRange
from service.engine.session.rows import plain_columns
from service.model.dynamic.plan import WEIGHT, delta, new, old
from service.model.schema.types import Field, Primitive, TableSchema
from tests.support.marks import thorough_after
from tests.unit.dynamic.duck import Duck, DuckTable
from tests.unit.dynamic.random_queries import a_case, changes

_PLAIN = ("plain rows", "plain groups")
_ROUNDS = 3


class Source:
    """The rows of a source in DuckDB."""

    def __init__(self, table: DuckTable, number: int, columns: pa.Schema) -> None:
        self.table, self.number, self.columns = table, number, columns

    def having(self, column: str, values: pa.Array, *, old: bool) -> pa.Table:
        return self._some((_old if old else new)(self.number), column, values)

    def _some(self, view: str, column: str, values: pa.Array) -> pa.Table:
        rows = self.table.rows_of(view, self.columns)
        return rows.filter(pa.array([value in values.to_pylist() for value in rows[column].to_pylist()], pa.bool_()))


_old = old


class Stored:
    """The rows of a result in DuckDB."""

    def __init__(self, table: "DirectTable") -> None:
        self.table = table

    def having(self, column: str, values: pa.Array) -> pa.Table:
        rows = self.table.stored()
        return rows.filter(pa.array([value in values.to_pylist() for value in rows[column].to_pylist()], pa.bool_()))


class DirectTable(DuckTable):
    """A dynamic table that is refreshed without a plan of SQL if it can be."""

    def __init__(self, duck: Duck, query: str, *, reads_all: bool) -> None:
        super().__init__(duck, query)
        self.reads_all = reads_all
        self.schema = TableSchema(self.types(self.compiled.full))
        self.direct = 0

    def rows_of(self, view: str, columns: pa.Schema) -> pa.Table:
        shown = ", ".join(f'"{name}"' for name in columns.names)
        return self.db.execute(f"SELECT {shown} FROM {view}").to_arrow_table().cast(columns)

    def stored(self) -> pa.Table:
        return self.rows_of(self.result_table, plain_columns(self.schema))

    def _apply(self, changed: set[int]) -> None:
        plan = self.compiled.plan(changed)
        net = None
        if plan.direct is not None:
            net = direct_net(self._job(changed), plan.direct, self.stored() if self.reads_all else None)
        if net is None:
            super()._apply(changed)
            return
        self.direct += 1
        self.db.register("net", net[0])
        self._add(", ".join(f'"{name}"' for name in self.columns), "net")
        self.db.unregister("net")

    def _job(self, changed: set[int]) -> RefreshJob:
        base: Any = None
        return RefreshJob(
            base, self.schema, tuple(self._source(i, changed) for i in range(len(self.tables))), stored=Stored(self)
        )

    def _source(self, number: int, changed: set[int]) -> RefreshSource:
        needed = self.compiled.sources[number].columns
        schema = TableSchema(tuple(one for one in self.fields[number] if one.name in needed))
        one = RefreshSource(number, "", 0, schema, tuple(needed), 1, 0)
        columns = plain_columns(one.change_schema)
        more = {"stored": Source(self, number, columns)}
        if number in changed:
            columns = columns.append(pa.field(WEIGHT, pa.int64()))
            more |= {"changes": (SnapshotRange(0, 1, None),), "changed": self.rows_of(delta(number), columns)}
        return RefreshSource(number, "", 0, schema, tuple(needed), 1, 0, **more)


@pytest.mark.parametrize("kind", _PLAIN)
@pytest.mark.parametrize("seeds", thorough_after(1, [range(15), range(15, 200)]))
def test_a_result_that_is_refreshed_without_spark_equals_recomputation(kind: str, seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        draw = Random(f"{kind} {seed}")
        case = a_case(draw, kind)
        duck = Duck({one.name: one.fields for one in case.tables})
        for name, rows in case.rows.items():
            duck.insert(name, rows)
        duck.commit()
        table = DirectTable(duck, case.query, reads_all=draw.random() < 0.5)
        for _ in range(_ROUNDS):
            for change in changes(draw, case.tables, {one.name: duck.rows(one.name) for one in case.tables}):
                for row in change.removed:
                    duck.delete(change.table, row)
                duck.insert(change.table, change.added)
            duck.commit()
            seen["refreshes"] += bool(table.refresh())
            assert table.result() == table.recomputed(), case.query
        seen["direct"] += table.direct
        duck.db.close()
    print(f"{kind}: {dict(seen)}")
    assert seen["direct"] > seen["refreshes"] / 2


@pytest.mark.parametrize("selected", ["k", "k, s", "s, s AS again, k, k AS key", "s, a, k"])
@pytest.mark.parametrize("reads_all", [True, False])
def test_aggregates_below_a_projection_are_added_whether_or_not_it_selects_them(
    selected: str, *, reads_all: bool
) -> None:
    duck = Duck({"t": (Field("k", Primitive("string")), Field("x", Primitive("long")))})
    duck.insert("t", [("a", 1), ("a", 4), (None, 2)])
    duck.commit()
    query = f"SELECT {selected} FROM (SELECT k, AVG(x) AS a, SUM(x) AS s FROM t GROUP BY k) AS u"
    table = DirectTable(duck, query, reads_all=reads_all)
    duck.delete("t", ("a", 4))
    duck.insert("t", [("b", None), (None, 3)])
    duck.commit()
    assert table.refresh()
    assert table.result() == table.recomputed()
    assert table.direct == 1
    duck.db.close()
