"""Cases that broke other systems, one by one, and the values that SQL treats in a way of its own."""

import math
import re
from collections import Counter
from collections.abc import Sequence

import pytest

from service.model.dynamic.plan import IncrementalPlan, ReplacedKeys, WeightedRows
from service.model.schema.types import DecimalType, Field, Primitive
from tests.unit.dynamic.duck import Duck, DuckTable, Row

LONG, TEXT, DOUBLE = Primitive("long"), Primitive("string"), Primitive("double")
ORDERS = [Field("id", LONG), Field("customer", LONG), Field("amount", LONG)]
CUSTOMERS = [Field("id", LONG), Field("name", TEXT), Field("region", TEXT)]
PAYMENTS = [Field("order_id", LONG), Field("paid", LONG)]


@pytest.fixture
def duck() -> Duck:
    found = Duck({"orders": ORDERS, "customers": CUSTOMERS, "payments": PAYMENTS})
    found.insert("orders", [(1, 1, 10), (2, 1, 20), (3, 2, 30), (4, None, 40)])
    found.insert("customers", [(1, "Ann", "north"), (2, "Bo", "south")])
    found.insert("payments", [(1, 4), (1, 6), (3, 30)])
    found.commit()
    return found


def refreshed(table: DuckTable, added: dict[str, Sequence[Row]], removed: dict[str, Sequence[Row]]) -> Counter[Row]:
    """The result after rows came and went."""
    for name, rows in removed.items():
        for row in rows:
            table.duck.delete(name, row)
    for name, rows in added.items():
        table.duck.insert(name, rows)
    table.duck.commit()
    table.refresh()
    assert table.result() == table.recomputed()
    return table.result()


def test_both_sides_of_a_join_change_in_one_pass(duck: Duck) -> None:
    table = duck.table("SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id")
    found = refreshed(
        table,
        {"orders": [(5, 3, 50), (6, 1, 60)], "customers": [(3, "Cy", "west"), (1, "Anna", "north")]},
        {"orders": [(3, 2, 30)], "customers": [(1, "Ann", "north")]},
    )
    assert found == Counter([(1, "Anna"), (2, "Anna"), (6, "Anna"), (5, "Cy")])


def test_a_dynamic_and_a_base_table_of_it_change_in_one_pass(duck: Duck) -> None:
    sums = duck.table("SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer")
    duck.db.execute("CREATE TABLE sums (customer BIGINT, total BIGINT)")
    duck.db.execute(f"INSERT INTO sums SELECT customer, total FROM {sums.result_table}")
    duck.add("sums")
    duck.db.execute("CREATE OR REPLACE TABLE sums_v1 AS FROM sums")
    above = duck.table("SELECT o.id, o.amount, s.total FROM orders o JOIN sums s ON o.customer = s.customer")
    duck.delete("orders", (1, 1, 10))
    duck.insert("orders", [(1, 1, 15), (7, 2, 1)])
    duck.commit()
    sums.refresh()
    duck.db.execute("DELETE FROM sums")
    duck.db.execute(f"INSERT INTO sums SELECT customer, total FROM {sums.result_table}")
    duck.db.execute(f"CREATE OR REPLACE TABLE sums_v{duck.version} AS FROM sums")
    above.refresh()
    assert above.result() == Counter([(1, 15, 35), (2, 20, 35), (3, 30, 31), (7, 1, 31)])


def test_a_join_on_a_column_that_is_not_a_key_and_not_selected(duck: Duck) -> None:
    table = duck.table("SELECT c.name FROM customers c JOIN orders o ON c.id = o.customer")
    found = refreshed(table, {"orders": [(9, 2, 1)]}, {"orders": [(1, 1, 10)]})
    assert found == Counter({("Ann",): 1, ("Bo",): 2})


def test_two_chained_left_joins_one_with_max(duck: Duck) -> None:
    table = duck.table(
        "SELECT c.name, o.id, p.most FROM customers c LEFT JOIN orders o ON o.customer = c.id "
        "LEFT JOIN (SELECT order_id, MAX(paid) AS most FROM payments GROUP BY order_id) p ON p.order_id = o.id"
    )
    assert table.result() == Counter([("Ann", 1, 6), ("Ann", 2, None), ("Bo", 3, 30)])
    found = refreshed(
        table,
        {"payments": [(2, 5)], "customers": [(3, "Cy", "west")]},
        {"payments": [(1, 6)], "orders": [(3, 2, 30)]},
    )
    assert found == Counter([("Ann", 1, 4), ("Ann", 2, 5), ("Bo", None, None), ("Cy", None, None)])
    # A row of the middle goes together with the maximum that it was joined with.
    found = refreshed(table, {"payments": [(2, 9)]}, {"orders": [(2, 1, 20)]})
    assert found == Counter([("Ann", 1, 4), ("Bo", None, None), ("Cy", None, None)])


@pytest.mark.parametrize(
    "query", ["SELECT * FROM orders", "SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer"]
)
def test_a_row_is_deleted_and_the_identical_row_added_again(duck: Duck, query: str) -> None:
    table = duck.table(query)
    before = table.result()
    refreshed(table, {}, {"orders": [(3, 2, 30)]})
    assert refreshed(table, {"orders": [(3, 2, 30)]}, {}) == before


def test_a_changed_foreign_key_moves_the_row(duck: Duck) -> None:
    table = duck.table(
        "SELECT c.region, SUM(o.amount) AS s FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.region"
    )
    found = refreshed(table, {"orders": [(2, 2, 20)]}, {"orders": [(2, 1, 20)]})
    assert found == Counter([("north", 10), ("south", 50)])


def test_a_group_goes_with_its_last_row_and_comes_back(duck: Duck) -> None:
    table = duck.table("SELECT customer, SUM(amount) AS s, MAX(amount) AS m FROM orders GROUP BY customer")
    found = refreshed(table, {}, {"orders": [(4, None, 40)]})
    assert found == Counter([(1, 30, 20), (2, 30, 30)])
    assert (None, 7, 7) in refreshed(table, {"orders": [(8, None, 7)]}, {})


def test_a_global_aggregate_always_has_one_row(duck: Duck) -> None:
    table = duck.table("SELECT COUNT(*) AS n, SUM(amount) AS s, MIN(amount) AS m, AVG(amount) AS a FROM orders")
    assert refreshed(table, {}, {"orders": duck.rows("orders")}) == Counter([(0, None, None, None)])
    assert refreshed(table, {"orders": [(1, 1, None)]}, {}) == Counter([(1, None, None, None)])
    assert refreshed(table, {"orders": [(2, 1, 4)]}, {}) == Counter([(2, 4, 4, 4.0)])


def test_an_extreme_that_goes_is_found_again_only_in_its_group(duck: Duck) -> None:
    table = duck.table("SELECT customer, MAX(amount) AS m FROM orders GROUP BY customer")
    assert refreshed(table, {}, {"orders": [(2, 1, 20)]}) == Counter([(1, 10), (2, 30), (None, 40)])
    assert refreshed(table, {"orders": [(9, 1, 10)]}, {"orders": [(1, 1, 10)]})[1, 10] == 1


def test_not_in_a_set_that_gets_a_null_has_no_rows(duck: Duck) -> None:
    table = duck.table("SELECT id FROM customers WHERE id NOT IN (SELECT customer FROM orders)")
    assert table.result() == Counter()
    assert refreshed(table, {"customers": [(3, "Cy", "west")]}, {"orders": [(4, None, 40)]}) == Counter([(3,)])
    assert refreshed(table, {"orders": [(4, None, 40)]}, {}) == Counter()
    assert refreshed(table, {}, {"orders": duck.rows("orders")}) == Counter([(1,), (2,), (3,)])


def test_not_in_with_several_columns_is_unknown_if_no_column_differs(duck: Duck) -> None:
    # DuckDB compares rows with nulls in another way, so the rows are named here.
    table = duck.table(
        "SELECT id FROM orders "
        "WHERE (customer, amount) NOT IN (SELECT order_id, paid FROM payments WHERE paid IS NULL OR paid > 9)"
    )
    assert table.compiled.not_incremental is None
    assert table.result() == Counter([(1,), (2,), (3,), (4,)])
    duck.insert("payments", [(2, None)])
    duck.commit()
    table.refresh()
    # The third order could be the payment without an amount, and so could the fourth.
    assert table.result() == Counter([(1,), (2,)])


def test_a_condition_on_one_side_of_an_outer_join_keeps_the_row(duck: Duck) -> None:
    table = duck.table(
        "SELECT o.id, c.name FROM orders o "
        "LEFT JOIN customers c ON o.customer = c.id AND o.amount > 15 AND c.region = 'north'"
    )
    assert table.result() == Counter([(1, None), (2, "Ann"), (3, None), (4, None)])
    found = refreshed(
        table, {"customers": [(1, "Ann", "south"), (2, "Bo", "north")]}, {"customers": duck.rows("customers")}
    )
    assert found == Counter([(1, None), (2, None), (3, "Bo"), (4, None)])


def test_count_of_a_correlated_subquery_is_0_without_rows(duck: Duck) -> None:
    table = duck.table(
        "SELECT id, (SELECT COUNT(*) FROM payments p WHERE p.order_id = o.id) AS n, "
        "(SELECT COALESCE(SUM(paid), -1) FROM payments p WHERE p.order_id = o.id) AS s FROM orders o"
    )
    assert table.result() == Counter([(1, 2, 10), (2, 0, -1), (3, 1, 30), (4, 0, -1)])
    found = refreshed(table, {}, {"payments": [(1, 4), (1, 6)]})
    assert (1, 0, -1) in found


def test_duplicates_keep_their_number(duck: Duck) -> None:
    table = duck.table("SELECT name FROM customers UNION ALL SELECT name FROM customers")
    found = refreshed(table, {"customers": [(7, "Ann", "east"), (7, "Ann", "east")]}, {})
    assert found == Counter({("Ann",): 6, ("Bo",): 2})


def test_a_table_may_be_read_twice(duck: Duck) -> None:
    table = duck.table(
        "SELECT a.id FROM orders a JOIN orders b ON a.customer = b.customer AND a.amount < b.amount "
        "WHERE EXISTS (SELECT 1 FROM orders c WHERE c.id = b.id + 1)"
    )
    assert [one.table for one in table.compiled.sources] == ["orders"]
    refreshed(table, {"orders": [(3, 1, 15), (5, 2, 31)]}, {"orders": [(3, 2, 30)]})


def test_nan_and_minus_zero_are_one_key() -> None:
    duck = Duck({"t": [Field("x", DOUBLE), Field("v", LONG)]})
    duck.insert("t", [(math.nan, 1), (0.0, 2), (None, 3)])
    duck.commit()
    table = duck.table("SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    assert refreshed(table, {"t": [(-0.0, 4), (math.nan, 5)]}, {"t": [(None, 3)]}) == Counter([("NaN", 2), (0.0, 2)])


def test_sums_of_decimals_keep_their_digits() -> None:
    duck = Duck({"t": [Field("k", LONG), Field("d", DecimalType(20, 8))]})
    duck.db.execute("INSERT INTO t VALUES (1, 0.00000001), (1, 999999999999.99999999)")
    duck.commit()
    table = duck.table("SELECT k, SUM(d) AS s, AVG(d) AS a FROM t GROUP BY k")
    assert "aggregate by adding" in table.compiled.classes
    duck.db.execute("INSERT INTO t VALUES (1, 0.00000001)")
    duck.commit()
    table.refresh()
    assert table.result() == table.recomputed()
    assert [str(row[1]) for row in table.result()] == ["1000000000000.00000001"]


def test_a_row_may_come_and_go_very_often() -> None:
    duck = Duck({"t": [Field("k", LONG), Field("d", DecimalType(12, 2))]})
    duck.db.execute("INSERT INTO t VALUES (1, 0.01)")
    duck.commit()
    table = duck.table("SELECT k, SUM(d) AS s, SUM(d * d) AS q FROM t GROUP BY k")
    assert "aggregate by adding" in table.compiled.classes
    duck.db.execute("INSERT INTO t SELECT 1, 1.25 FROM range(250001)")
    duck.commit()
    table.refresh()
    assert table.result() == table.recomputed()
    duck.db.execute("DELETE FROM t WHERE d = 1.25")
    duck.commit()
    table.refresh()
    assert table.result() == table.recomputed()


def test_only_what_changed_is_in_the_plan(duck: Duck) -> None:
    query = (
        "SELECT o.id, c.name, p.s FROM orders o JOIN customers c ON o.customer = c.id "
        "JOIN (SELECT order_id, SUM(paid) AS s FROM payments GROUP BY order_id) p ON p.order_id = o.id"
    )
    compiled = duck.table(query).compiled
    sql = _text(compiled.plan({0}))
    assert "s0_delta" in sql
    assert "s1_delta" not in sql
    assert "_old" not in sql
    assert isinstance(compiled.plan({0}).change, WeightedRows)


def test_an_aggregate_that_is_joined_is_limited_to_the_keys_of_the_change(duck: Duck) -> None:
    query = (
        "SELECT o.id, p.s FROM orders o "
        "JOIN (SELECT order_id, SUM(paid) AS s FROM payments GROUP BY order_id) p ON p.order_id = o.id"
    )
    (limited,) = [step for step in duck.table(query).compiled.plan({0}).steps if "s1_new" in step.sql]
    assert limited.sql.index("LEFT SEMI JOIN") < limited.sql.index("GROUP BY")


def test_an_aggregate_by_adding_does_not_read_the_rows_of_its_sources(duck: Duck) -> None:
    plan = duck.table("SELECT customer, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY customer").compiled.plan(
        {0}
    )
    assert "s0_new" not in _text(plan)
    assert "s0_old" not in _text(plan)
    assert isinstance(plan.change, ReplacedKeys)
    assert plan.change.columns == ("customer",)


def test_views_that_are_read_several_times_are_kept(duck: Duck) -> None:
    plan = duck.table("SELECT name FROM customers c LEFT JOIN orders o ON o.customer = c.id").compiled.plan({0, 1})
    for step in plan.steps:
        reads = sum(len(re.findall(rf"\b{step.view}\b", other.sql)) for other in plan.steps)
        assert step.kept == (reads > 1), step


def _text(plan: IncrementalPlan) -> str:
    return " ".join(step.sql for step in plan.steps)
