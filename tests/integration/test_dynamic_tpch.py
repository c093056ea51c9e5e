"""The queries of TPC-H as dynamic tables of the service: after each round of changes they equal DuckDB's results."""

import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.harness import Firn
from tests.support.dynamic_served import ServedDynamicTable
from tests.support.tables import ServedTable
from tests.tpch.rounds import ROUNDS
from tests.tpch.tpch import TABLES, generate, queries
from tests.unit.dynamic.duck import to_duck

# An outer join, EXISTS and NOT EXISTS over joins, a subquery in an expression. DuckDB runs the plans of all queries in
# tests/unit/dynamic/test_tpch.py.
_SOME = ("Q13", "Q21", "Q22")
# Parts of the test of all queries, each with data of its own.
_PARTS = 4
_PARQUET = "application/vnd.apache.parquet"


class Tpch:
    """The tables of TPC-H in the service, and dynamic tables over them."""

    def __init__(self, firn: Firn, tenant: str, folder: Path, scale: float, names: tuple[str, ...]) -> None:
        self.firn, self.tenant = firn, tenant
        generate(folder, scale)
        self.sources = {name: self._loaded(folder / f"{name}.parquet", name) for name in TABLES}
        self.queries = {name: queries()[name] for name in names}
        self.tables = {name: ServedDynamicTable(firn, tenant, name, text) for name, text in self.queries.items()}
        self.changed = dict.fromkeys(names, 0)
        self.modes: dict[str, list[str]] = {name: [] for name in names}

    def _loaded(self, file: Path, name: str) -> ServedTable:
        described = duckdb.sql(f"DESCRIBE FROM '{file}'").fetchall()
        kinds = {"BIGINT": "long", "INTEGER": "integer", "DATE": "date", "VARCHAR": "string"}
        fields = {column: {"type": kinds.get(kind, kind.lower())} for column, kind, *_ in described}
        table = ServedTable(self.firn, self.tenant, name, schema={"fields": fields})
        table.bulk_load(file.read_bytes(), _PARQUET)
        return table

    def change(self, statements: tuple[str, ...]) -> None:
        """Run statements as another program would, then COMPACT the largest tables."""
        for statement in statements:
            name = re.match(r"(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)", statement)
            assert name is not None
            table = self.sources[name[1]]
            table.sql(_of_spark(statement, table))
        for name in ("lineitem", "supplier"):
            self.sources[name].ok("COMPACT", force=True)

    def check(self, round_number: int) -> None:
        """Refresh every table by its change, and compare it with what DuckDB makes of the sources."""
        duck = duckdb.connect()
        for name, source in self.sources.items():
            duck.register(name, source.loaded.iceberg.scan().to_arrow())
        for name, table in self.tables.items():
            refreshed = table.refresh()
            assert refreshed["mode"] in ("INCREMENTAL", "NO_DATA"), (name, refreshed)
            self.modes[name].append(refreshed["mode"])
            self.changed[name] += refreshed["records_inserted"] + refreshed["records_deleted"] > 0
            expected = duck.sql(to_duck(self.queries[name])).fetchall()
            found = duck.from_arrow(table.visible()).fetchall()
            assert _in_order(found) == _in_order(expected), f"{name} in round {round_number}"

    def line(self, name: str) -> str:
        """What its refreshes were like, as a line of the table in docs/reference/dynamic-tables.md."""
        explained = self.tables[name].ok("EXPLAIN_DYNAMIC_TABLE")
        shown = [", ".join(explained["classes"]), explained["incremental_plan"]["applied"]]
        modes = Counter(self.modes[name])
        return (
            f"| {name[1:]} | {' | '.join(shown)} | {modes['INCREMENTAL']} | {modes['NO_DATA']} | {self.changed[name]} |"
        )


def _in_order(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """The rows in one order. DuckDB's averages of decimals are floating-point numbers, Spark's have six digits."""
    numbers = (float, Decimal)
    shown = [[float(value) if isinstance(value, numbers) else value for value in row] for row in rows]
    shown.sort(key=lambda row: [f"{value:.4g}" if isinstance(value, float) else str(value) for value in row])
    return [[pytest.approx(v, rel=1e-9, abs=1e-6) if isinstance(v, float) else v for v in row] for row in shown]


def _of_spark(statement: str, table: ServedTable) -> str:
    """The statement with the table's name in Spark, and without DuckDB's REPLACE."""
    replaced = re.search(r"\* REPLACE \((.*?) AS (\w+)\)", statement)
    if replaced:
        columns = (replaced[1] if column == replaced[2] else column for column in table.loaded.schema.names)
        statement = statement.replace(replaced[0], ", ".join(columns))
    return re.sub(rf"\b{table.name.table}\b", "{t}", statement)


def _follows(tpch: Tpch, rounds: int) -> None:
    for number, statements in enumerate(ROUNDS[:rounds], 1):
        tpch.change(statements)
        tpch.check(number)


def test_queries_of_tpch_follow_changes_of_every_kind(firn: Firn, tenant: str, tmp_path: Path) -> None:
    _follows(Tpch(firn, tenant, tmp_path, 0.001, _SOME), 2)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(_PARTS))
def test_all_queries_of_tpch_follow_changes_of_every_kind(firn: Firn, tenant: str, tmp_path: Path, part: int) -> None:
    tpch = Tpch(firn, tenant, tmp_path, 0.1, tuple(queries())[part::_PARTS])
    _follows(tpch, len(ROUNDS))
    print(f"\nTPC-H: {len(tpch.tables)} of {len(queries())} queries incremental and equal in {len(ROUNDS)} rounds")
    for name in tpch.tables:
        print(tpch.line(name))
    assert [name for name, rounds in tpch.changed.items() if rounds < 2] == []
