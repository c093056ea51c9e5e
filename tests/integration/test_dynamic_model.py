"""Dynamic tables of every class equal recomputation by Spark after each refresh, whatever changes their sources."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from itertools import cycle, islice
from math import isnan
from random import Random
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from service.catalog.lineage import lineage
from service.dynamic.freshness import missing_changes
from service.model.dynamic.state import state_of
from tests.harness import Firn
from tests.support.dynamic_served import ServedDynamicTable
from tests.support.marks import thorough_after
from tests.support.tables import ServedTable
from tests.unit.dynamic.duck import folded
from tests.unit.dynamic.random_queries import CLASSES, Row, Table, a_query, a_schema

T = TypeVar("T")
_SOURCES = ("source_0", "source_1", "source_2", "source_3")
_CASES = 40
_ROUNDS = 3
# 1,000 cases: a run of `make test-all` has 25 schemas, of which `make test` has the first.
_SEEDS = range(25)
_seen: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def _counts() -> object:
    yield
    print("\ncases per class: " + ", ".join(f"{name} {count}" for name, count in sorted(_seen.items())))


class Source(ServedTable):
    """A table with random columns, changed by random operations."""

    def __init__(self, firn: Firn, tenant: str, made: Table, draw: Random) -> None:
        self.made, self.draw = made, draw
        fields = {one.name: {"type": str(one.type), "required": one.required} for one in made.fields}
        properties = {"row_level": draw.choice(["copy_on_write", "merge_on_read"])}
        super().__init__(firn, tenant, made.name, schema={"fields": fields}, properties=properties)
        self.insert(6)

    def change(self) -> None:
        """One operation. Most rows are those of few ids, so that each changes some."""
        operations = [self.insert, self.insert_copies, self.update, self.update, self.delete, self.upsert, self.compact]
        self.draw.choice(operations)()

    def insert(self, most: int = 3) -> None:
        self.write(*(self._record(self._row()) for _ in range(self.draw.randint(1, most))))

    def insert_copies(self) -> None:
        """Rows that are equal to each other."""
        self.write(*[self._record(self._row())] * 2)

    def update(self) -> None:
        """One column of some rows: of a key at times, or of a value."""
        record = self._record(self._row())
        column = self.draw.choice(list(record))
        self.ok("UPDATE", filter=self._filter(), updates={column: record[column]})

    def delete(self) -> None:
        self.ok("DELETE", filter={"and": [self._filter(), self._filter()]})

    def upsert(self) -> None:
        key = self.made.id
        records = [self._record(self._row()) for _ in range(3)]
        records = [one for one in records if one[key] is not None]
        if records:
            self.ok("UPSERT", records=records, key_cols=[key], on_duplicate="last")

    def compact(self) -> None:
        self.ok("COMPACT", force=True)

    def _row(self) -> Row:
        return self.made.row(self.draw)

    def _filter(self) -> dict[str, Any]:
        column = self.draw.choice([self.made.id, self.made.k, self.made.v])
        value = self._record(self._row())[column]
        return {column: value}

    def _record(self, row: Row) -> dict[str, Any]:
        return {one.name: _as_json(value) for one, value in zip(self.made.fields, row, strict=True)}


def _as_json(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return "NaN" if isnan(value) else value
    return str(value) if isinstance(value, Decimal) else value


class Model:
    """Dynamic tables over a few sources."""

    def __init__(self, firn: Firn, tenant: str, seed: int, source: type[Source] = Source, cases: int = _CASES) -> None:
        self.firn, self.draw = firn, Random(seed)
        made = a_schema(self.draw, _SOURCES)
        self.sources = [source(firn, tenant, one, self.draw) for one in made]
        kinds = list(CLASSES)
        self.draw.shuffle(kinds)
        self.cases = [(kind, a_query(self.draw, kind, made)) for kind in islice(cycle(kinds), cases)]
        self.tables = self._each(
            lambda i: ServedDynamicTable(
                firn, tenant, f"result_{i}", self.cases[i][1], deduplication=_is_deduplicated(i)
            )
        )

    def change(self) -> None:
        """Several operations on most sources."""
        for source in self.sources:
            for _ in range(self.draw.choice([0, 1, 2, 3])):
                source.change()

    def check(self) -> Counter[str]:
        """Refresh all tables and compare each with its query's rows, recomputed by Spark; the modes."""
        refreshed = self._each(lambda i: self.tables[i].refresh())
        sources = {one.name.table: one.loaded for one in self.sources}
        pinned = {table.uuid: table for table in sources.values()}
        expected = self.firn.app.engine.run(self._recomputed, sources)
        wrong = []
        for (kind, query), table, done, rows in zip(self.cases, self.tables, refreshed, expected, strict=True):
            loaded = table.loaded
            if done["records_inserted"] + done["records_deleted"]:  # without, the table is not written
                state = state_of(lineage(loaded)[-1].summary)
                assert state is not None
                behind = [one.table for one in state.all if missing_changes(pinned[one.uuid], one.snapshot_id).since_ms]
                if behind:
                    wrong.append(f"{kind}: {query}\n  stands for an old state of {behind}: {done}")
            found = _bag(loaded.iceberg.scan().to_arrow().select(list(loaded.schema.names)))
            if found != rows:
                wrong.append(f"{kind}: {query}\n  by {done['mode']}: missing {rows - found}, unexpected {found - rows}")
        assert not wrong, "\n".join(wrong)
        return Counter(one["mode"] for one in refreshed)

    def _recomputed(self, session: SparkSession, sources: dict[str, Any]) -> list[Counter[Row]]:
        for name, table in sources.items():
            rows = table.iceberg.scan(snapshot_id=table.current_snapshot_id).to_arrow()
            schema = session.table(table.spark_name).schema
            session.createDataFrame(rows, schema).createOrReplaceTempView(name)
        try:
            return [_once(_bag(session.sql(query).toArrow()), i) for i, (_, query) in enumerate(self.cases)]
        finally:
            for name in sources:
                session.catalog.dropTempView(name)

    def _each(self, work: Callable[[int], T]) -> list[T]:
        with ThreadPoolExecutor(2) as pool:
            all = [pool.submit(work, i) for i in range(len(self.cases))]
        if failures := [error for one in all if isinstance(error := one.exception(), Exception)]:
            raise ExceptionGroup("of some tables", failures)
        return [one.result() for one in all]


def _is_deduplicated(case: int) -> bool:
    return case % 10 == 0


def _once(rows: Counter[Row], case: int) -> Counter[Row]:
    return Counter(set(rows)) if _is_deduplicated(case) else rows


def _bag(rows: pa.Table) -> Counter[Row]:
    """The rows, each with how often it is there: two of them are equal exactly if EXCEPT ALL both ways is empty."""
    return folded(Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True)))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "rounds"), thorough_after(1, [(seed, _ROUNDS if seed else 1) for seed in _SEEDS]))
def test_results_equal_recomputation_after_each_refresh(firn: Firn, tenant: str, seed: int, rounds: int) -> None:
    model = Model(firn, tenant, seed)
    modes: Counter[str] = Counter()
    for _ in range(rounds):
        model.change()
        modes += model.check()
    assert set(modes) <= {"INCREMENTAL", "NO_DATA"}
    assert modes["INCREMENTAL"] >= rounds * _CASES // 2
    _seen.update(kind for kind, _ in model.cases)
