"""The 22 queries of TPC-H as dynamic tables: five rounds of changes to facts, dimensions and foreign keys."""

from pathlib import Path

import pytest

from tests.tpch.tpch import TABLES, generate, queries
from tests.unit.dynamic.duck import Duck

ROUNDS = (
    # Facts: orders with their lines come and go, lines are corrected.
    (
        "INSERT INTO lineitem SELECT * REPLACE (l_orderkey + 1 AS l_orderkey) FROM lineitem WHERE l_orderkey % 97 = 1",
        "INSERT INTO orders SELECT * REPLACE (o_orderkey + 1 AS o_orderkey) FROM orders WHERE o_orderkey % 97 = 1",
        "DELETE FROM lineitem WHERE l_orderkey % 89 = 2",
        "DELETE FROM orders WHERE o_orderkey % 89 = 2",
        "UPDATE lineitem SET l_quantity = l_quantity + 1, l_discount = 0.05 WHERE l_orderkey % 83 = 3",
    ),
    # Dimensions: names, regions and prices.
    (
        "UPDATE nation SET n_regionkey = (n_regionkey + 1) % 5 WHERE n_nationkey % 5 = 2",
        "UPDATE supplier SET s_acctbal = s_acctbal + 10, s_comment = 'Customer or Complaints' WHERE s_suppkey % 31 = 3",
        "UPDATE part SET p_size = 15, p_type = 'LARGE BRASS' WHERE p_partkey % 41 = 5",
        "UPDATE part SET p_type = 'ECONOMY ANODIZED STEEL', p_name = 'forest green' WHERE p_partkey % 17 = 5",
        "UPDATE part SET p_container = 'SM BOX', p_brand = 'Brand#12', p_size = 3 WHERE p_partkey % 13 = 6",
        "UPDATE part SET p_container = 'MED BOX', p_brand = 'Brand#23' WHERE p_partkey % 53 = 6",
        "UPDATE customer SET c_mktsegment = 'BUILDING', c_acctbal = c_acctbal * 2 WHERE c_custkey % 29 = 7",
    ),
    # Foreign keys: lines and orders move.
    (
        "UPDATE lineitem SET l_shipinstruct = 'DELIVER IN PERSON', l_shipmode = 'AIR' WHERE l_orderkey % 7 = 4",
        "UPDATE supplier SET s_nationkey = CASE WHEN s_suppkey % 2 = 0 THEN 3 ELSE 20 END WHERE s_suppkey % 9 < 5",
        "UPDATE lineitem SET l_suppkey = l_suppkey % 100 + 1 WHERE l_orderkey % 71 = 8",
        "UPDATE lineitem SET l_partkey = l_partkey % 2000 + 1 WHERE l_orderkey % 73 = 9",
        "UPDATE orders SET o_custkey = o_custkey % 1500 + 1 WHERE o_orderkey % 67 = 10",
        "UPDATE customer SET c_nationkey = (c_nationkey + 1) % 25 WHERE c_custkey % 61 = 11",
        "UPDATE partsupp SET ps_supplycost = ps_supplycost / 2 WHERE ps_partkey % 59 = 12",
    ),
    # Rows that occur twice, and dimensions that go.
    (
        "INSERT INTO lineitem SELECT * FROM lineitem WHERE l_orderkey % 101 = 13",
        "INSERT INTO nation SELECT * FROM nation WHERE n_nationkey = 3",
        "DELETE FROM supplier WHERE s_suppkey % 37 = 14",
        "UPDATE supplier SET s_nationkey = 7 WHERE s_suppkey % 19 = 6",
        "DELETE FROM customer WHERE c_custkey % 43 = 15",
        "DELETE FROM part WHERE p_partkey % 47 = 16",
    ),
    # Everything at once, with nulls.
    (
        "UPDATE lineitem SET l_quantity = 320, l_shipmode = NULL WHERE l_orderkey % 103 = 17",
        "UPDATE orders SET o_orderdate = o_orderdate + 30, o_orderpriority = NULL WHERE o_orderkey % 107 = 18",
        "UPDATE orders SET o_custkey = NULL WHERE o_orderkey % 109 = 19",
        "UPDATE supplier SET s_nationkey = NULL WHERE s_suppkey % 11 = 4",
        "INSERT INTO supplier SELECT * REPLACE (NULL AS s_suppkey) FROM supplier WHERE s_suppkey = 5",
        "INSERT INTO partsupp SELECT * REPLACE (ps_suppkey % 9 AS ps_suppkey) FROM partsupp WHERE ps_partkey % 7 = 1",
        "DELETE FROM region WHERE r_name = 'AFRICA'",
    ),
)


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
