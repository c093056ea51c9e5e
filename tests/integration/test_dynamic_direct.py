"""Refreshes without a Spark job give exactly the rows that Spark gives, for all types that they read."""

from typing import Any

import pytest

from service.engine.jobs.dynamic import refresh
from tests.harness import Firn
from tests.integration.test_dynamic_refresh import Dynamic, schema_of
from tests.support.tables import ServedTable

TYPES = {
    "id": "long",
    "k": "string",
    "n": "integer",
    "small": "decimal(9,2)",
    "large": "decimal(24,6)",
    "wide": "decimal(27,2)",
    "day": "date",
    "moment": "timestamp",
    "instant": "timestamptz",
    "flag": "boolean",
    "bytes": "binary",
}
QUERIES = {
    "totals": "SELECT k, count(*) AS n, sum(id) AS i, sum(n) AS s, sum(small) AS a, sum(large) AS b, sum(wide) AS c "
    "FROM facts GROUP BY k",
    "averages": "SELECT flag, avg(n) AS n, avg(id) AS i, avg(small) AS a, avg(large) AS b, avg(wide) AS c "
    "FROM facts GROUP BY flag",
    "extremes": "SELECT day, moment, min(k) AS a, max(small) AS b, min(instant) AS c, max(day) AS d, count(n) AS e "
    "FROM facts GROUP BY day, moment",
    "whole": "SELECT count(*) AS n, count(k) AS m, sum(n) AS s, avg(small) AS a FROM facts "
    "WHERE NOT (n = 1 OR k = 'a')",
    "each": "SELECT DISTINCT k, day, flag FROM facts",
    "rows": "SELECT * FROM facts WHERE small > 1.5 AND n BETWEEN 1 AND 7 AND (k <> 'b' OR day >= DATE '2024-02-01')",
    "joined": "SELECT f.id, f.bytes, f.moment, g.k, g.large FROM facts f JOIN others g ON f.k = g.k AND f.day = g.day "
    "WHERE f.n < 6",
    "moments": "SELECT f.instant, count(*) AS n, max(g.id) AS m FROM facts f JOIN others g ON f.instant = g.instant "
    "GROUP BY f.instant",
    "both": "SELECT id, k FROM facts WHERE n IN (1, 2) UNION ALL SELECT id, k FROM others WHERE k IS NULL",
}
TEXTS = ("a", "b", "ä", "\U0001f41d", "", "\uffff", None)


def record(number: int) -> dict[str, Any]:
    sign = -1 if number % 5 == 0 else 1
    day = f"20{10 + number % 3}-0{1 + number % 4}-15"
    values = {
        "k": TEXTS[number % len(TEXTS)],
        "n": number % 8,
        "small": f"{sign * number * 7919 % 10_000_000}.{number % 100:02d}",
        "large": f"{sign * number * 104_729}.{number * 333_333 % 1_000_000:06d}",
        "wide": f"{sign * 10**20 * (number % 97)}.{number % 7}1",
        "day": day,
        "moment": f"{day}T0{number % 3}:00:00.00000{number % 10}",
        "instant": f"{day}T0{number % 2}:00:00Z",
        "flag": (True, False, None)[number % 3],
        "bytes": ("AA==", "/w==", None)[number % 3],
    }
    absent = [name for place, name in enumerate(values) if number % 11 == place]
    return {"id": number, **{name: None if name in absent else value for name, value in values.items()}}


@pytest.mark.thorough
def test_refreshes_without_spark_give_the_rows_of_the_query(
    firn: Firn, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [ServedTable(firn, tenant, name, schema=schema_of(TYPES)) for name in ("facts", "others")]
    for table in tables:
        table.write(*map(record, range(60)))
    results = {name: Dynamic(firn, tenant, name, query) for name, query in QUERIES.items()}
    by_spark = set[str]()

    def changes_of(name: str) -> Any:
        def opened(*some: Any) -> Any:
            by_spark.add(name)
            return open_changes(*some)

        return opened

    def check() -> None:
        by_spark.clear()
        for name, result in results.items():
            monkeypatch.setattr(refresh, "open_changes", changes_of(name))
            assert result.mode() in ("INCREMENTAL REFRESH_MODE", "NO_DATA NO_CHANGES")
            result.check()

    open_changes = refresh.open_changes
    facts, others = tables
    facts.write(*map(record, range(60, 90)), *map(record, range(5)))
    check()
    assert not by_spark
    for file in results["rows"].loaded.iceberg.inspect.files().to_pylist():
        assert file["split_offsets"], file
        assert file["lower_bounds"], file
    others.write(*map(record, range(50, 70)))
    facts.ok("UPDATE", filter={"n": 3}, updates={"k": "ä", "n": 2, "small": "0.05"})
    check()
    assert by_spark <= {"extremes"}  # which may have lost one
    facts.ok("DELETE", filter={"k": "b"})
    others.ok("DELETE", filter={"n": {"gte": 6}})
    facts.ok("COMPACT", force=True)
    facts.write(*map(record, range(200, 203)))
    check()
    assert by_spark <= {"extremes", "moments"}


def test_a_sum_that_overflows_fails_as_in_spark(firn: Firn, tenant: str) -> None:
    facts = ServedTable(firn, tenant, "facts", schema=schema_of({"id": "long"}))
    facts.write({"id": 2**63 - 1})
    total = Dynamic(firn, tenant, "total", "SELECT sum(id) AS s FROM facts")
    facts.write({"id": 1})
    assert "overflow" in total.fail("INVALID_QUERY", "REFRESH_DYNAMIC_TABLE")["message"].lower()
    facts.write({"id": -5})
    assert total.mode() == "INCREMENTAL REFRESH_MODE"
    assert total.rows() == [{"s": 2**63 - 5}]
