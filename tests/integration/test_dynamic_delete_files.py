"""Dynamic tables follow sources whose rows other programs delete by delete files of any kind: deletion vectors of
format version 3, and position deletes of version 2, for one data file or for several; copy-on-write between them."""

from collections.abc import Callable
from typing import Any

import pytest

from service.engine.sql.sql import identifier, spark_type
from tests.harness import Firn
from tests.integration.test_dynamic_model import Model, Source
from tests.support.dynamic_served import ServedDynamicTable
from tests.support.marks import thorough_after
from tests.support.tables import ServedTable

MODES = ("write.delete.mode", "write.update.mode", "write.merge.mode")
KINDS = {
    "vectors": {"format-version": "3", **dict.fromkeys(MODES, "merge-on-read")},
    "copies": {"format-version": "3", **dict.fromkeys(MODES, "copy-on-write")},
    "positions": {**dict.fromkeys(MODES, "merge-on-read"), "write.delete.granularity": "file"},
    "shared": {**dict.fromkeys(MODES, "merge-on-read"), "write.delete.granularity": "partition"},
}
QUERIES = {
    "rows": "SELECT id, customer, amount FROM orders WHERE amount > 1",
    "totals": "SELECT customer, count(*) AS n, sum(amount) AS total, max(amount) AS most FROM orders GROUP BY customer",
    "named": "SELECT o.id, c.region FROM orders o LEFT JOIN customers c ON o.customer = c.customer",
}


def set_kind(table: ServedTable, kind: str) -> None:
    """From now on, other programs delete rows of the table in this way."""
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in KINDS[kind].items())
    table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({properties})")


@pytest.mark.parametrize(("kind", "rounds"), thorough_after(1, [("vectors", 1), *((kind, 2) for kind in KINDS)]))
def test_results_follow_rows_that_others_delete(firn: Firn, tenant: str, kind: str, rounds: int) -> None:
    long = {"type": "long"}
    orders = ServedTable(
        firn, tenant, "orders", schema={"fields": {"id": long, "customer": long, "amount": {"type": "decimal(10,2)"}}}
    )
    customers = ServedTable(firn, tenant, "customers", schema={"fields": {"customer": long, "region": long}})
    customers.write(*({"customer": n, "region": n % 3} for n in range(7)))
    for start in (0, 40):
        orders.write(*({"id": n, "customer": n % 9, "amount": f"{n % 11}.50"} for n in range(start, start + 40)))
    for table in (orders, customers):
        set_kind(table, kind)
    orders.sql("DELETE FROM {t} WHERE id IN (3, 43)")
    queries = list(QUERIES.items())[-rounds - 1 :]
    tables = {name: ServedDynamicTable(firn, tenant, name, query) for name, query in queries}
    rewrites: list[Callable[[], Any]] = [lambda: None, lambda: orders.ok("COMPACT", force=True)]
    for number, rewrite in enumerate(rewrites[:rounds]):
        orders.sql(f"DELETE FROM {{t}} WHERE id IN ({number}, {45 + number})")
        orders.sql(f"UPDATE {{t}} SET customer = 1, amount = 7.25 WHERE id % 10 = {4 + number}")
        rewrite()
        orders.ok("UPDATE", filter={"id": 60 + number}, updates={"amount": "99.00"})
        orders.sql(f"DELETE FROM {{t}} WHERE id = {70 + number}")
        customers.sql(f"UPDATE {{t}} SET region = 9 WHERE customer = {2 + number}")
        for name, table in tables.items():
            assert table.refresh()["mode"] == "INCREMENTAL"
            assert table.ok("AUDIT_DYNAMIC_TABLE")["matches"], name


class OutsideSource(Source):
    """A table that other programs change as often as Firn does, in one of the ways of `KINDS`, which changes."""

    def __init__(self, *made: Any) -> None:
        super().__init__(*made)
        set_kind(self, self.draw.choice(list(KINDS)))

    def change(self) -> None:
        if self.draw.random() < 0.1:
            set_kind(self, self.draw.choice(list(KINDS)))
        if self.draw.random() < 0.4:
            super().change()
        else:
            self.draw.choice(
                [self.insert, self.delete_outside, self.update_outside, self.merge_outside, self.rewrite]
            )()

    def delete_outside(self) -> None:
        self.sql(f"DELETE FROM {{t}} WHERE {self._condition()} AND {self._condition()}")

    def update_outside(self) -> None:
        column = self.draw.choice(list(self.made.fields))
        new = self._literal(column.name)
        self.sql(f"UPDATE {{t}} SET {identifier(column.name)} = {new} WHERE {self._condition()}")

    def merge_outside(self) -> None:
        key, columns = identifier(self.made.id), [one.name for one in self.made.fields]
        row = self._literals()
        if row[self.made.id].startswith("CAST(NULL"):
            return
        values = ", ".join(f"{row[name]} AS {identifier(name)}" for name in columns)
        self.sql(
            f"MERGE INTO {{t}} t USING (SELECT {values}) s ON t.{key} = s.{key} "
            f"WHEN MATCHED AND t.{identifier(self.made.n)} = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *"
        )

    def rewrite(self) -> None:
        procedure = self.draw.choice(["rewrite_data_files", "rewrite_position_delete_files"])
        table = ".".join(self.loaded.spark_name.replace("`", "").split(".")[1:])
        options = "map('rewrite-all', 'true')"
        self.sql(f"CALL firn.system.{procedure}(table => '{table}', options => {options})")

    def _condition(self) -> str:
        name = self.draw.choice([self.made.id, self.made.k, self.made.v])
        return f"{identifier(name)} <=> {self._literal(name)}"

    def _literal(self, name: str) -> str:
        return self._literals()[name]

    def _literals(self) -> dict[str, str]:
        """A row in SQL."""
        found = {}
        for field, value in zip(self.made.fields, self._row(), strict=True):
            text = "NULL" if value is None else f"'{value}'"
            found[field.name] = f"CAST({text} AS {spark_type(field.type)})"
        return found


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(1000, 1008))
def test_results_of_every_class_follow_what_others_delete(
    firn: Firn, tenant: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firn.client, "timeout", 600)  # Spark looks for what other programs' delete files delete
    model = Model(firn, tenant, seed, OutsideSource, cases=12)
    for _ in range(2):
        model.change()
        model.check()
