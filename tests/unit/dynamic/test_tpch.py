"""The 22 queries of TPC-H as dynamic tables: five rounds of changes to facts, dimensions and foreign keys."""

from pathlib import Path

import pytest

from tests.tpch.rounds import ROUNDS
from tests.tpch.tpch import TABLES, generate, queries
from tests.unit.dynamic.duck import Duck


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tpch")
    generate(folder, 0.01)
    return folder


def test_the_queries_of_tpch_equal_recomputation_after_each_round(files: Path) -> None:
    duck = _loaded(files)
    tables = {name: duck.table(text) for name, text in queries().items()}
    assert {name for name, one in tables.items() if one.compiled.not_incremental} == set()
    changed_results: dict[str, int] = dict.fromkeys(tables, 0)
    for statements in ROUNDS:
        for statement in statements:
            duck.db.execute(statement)
        duck.commit()
        for name, table in tables.items():
            before = table.result()
            table.refresh()
            after = table.result()
            assert after == table.recomputed(), name
            changed_results[name] += before != after
    incremental = sum(one.compiled.not_incremental is None for one in tables.values())
    print(f"\nTPC-H: {len(tables)} queries equal in {len(ROUNDS)} rounds, {incremental} incremental")
    print("; ".join(f"{name}: {', '.join(one.compiled.classes)}" for name, one in tables.items()))
    assert [name for name, rounds in changed_results.items() if rounds < 2] == []


def _loaded(files: Path) -> Duck:
    duck = Duck()
    for name in TABLES:
        duck.db.execute(f"CREATE TABLE {name} AS FROM '{files / name}.parquet'")
        duck.add(name)
    return duck
