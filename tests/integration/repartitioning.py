"""A table to be repartitioned: filled, asked, and looked at from outside."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession

from service.catalog.files.data_files import list_files
from service.maintenance.compact.compaction import Compactions
from service.maintenance.compact.report import CompactionOptions
from service.maintenance.repartition import rounds
from service.model.call import Call
from tests.harness import Firn
from tests.support.tables import TableById

SCHEMA = {
    "fields": {
        "id": {"type": "long", "required": True},
        "product": {"type": "string"},
        "at": {"type": "timestamp"},
        "day": {"type": "date"},
        "price": {"type": "double"},
    },
    "primary_key": ["id"],
}
BY_DAY = {"partitions": [{"field": "day"}]}
BY_PRODUCT = {"partitions": [{"field": "product"}, {"field": "at", "transform": "day"}]}


class Table(TableById):
    """A table of some products over some days, one file per WRITE and day."""

    def __init__(
        self, firn: Firn, tenant: str, name: str = "t", *, schema: Any = SCHEMA, partition: Any = BY_DAY, **create: Any
    ) -> None:
        super().__init__(firn, tenant, name, schema=schema, partition=partition, **create)

    def fail(
        self, code: str, operation: str = "REPARTITION", status: int | None = None, **fields: Any
    ) -> dict[str, Any]:
        """The error of a request that must be refused, while others may change the table."""
        return self.firn.fail(self.request(operation, **fields), code, status)

    def repartition(self, **fields: Any) -> dict[str, Any]:
        return self.ok("REPARTITION", **fields)

    def write_rows(self, *ids: int) -> None:
        self.write(*map(row, ids))

    def fill(self, writes: int = 3, rows: int = 10) -> None:
        for n in range(writes):
            self.write_rows(*range(n * rows, (n + 1) * rows))

    def delete_elsewhere(self, condition: str) -> None:
        """What another program does that deletes rows without rewriting their files."""
        name = self.loaded.spark_name

        def delete(session: SparkSession) -> None:
            session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
            session.sql(f"DELETE FROM {name} WHERE {condition}")

        self.firn.app.engine.run(delete)

    def compact(self) -> None:
        """A compaction beside the work that the threads for such requests have."""
        found = self.firn.app.parts[Compactions].compact(self.loaded, CompactionOptions(force=True), Call("r"))
        assert found.compacted

    def partitions(self) -> Counter[tuple[Any, ...]]:
        """Rows by partition, as metadata has them."""
        listed = self.ok("LIST_PARTITIONS")["partitions"]
        return Counter({tuple(one["partition"].items()): one["records"] for one in listed})

    def specs(self) -> set[int]:
        return {file.group[0] for file in list_files(self.loaded).data}

    def by_pyiceberg(self) -> list[int]:
        return sorted(self.loaded.iceberg.scan().to_arrow()["id"].to_pylist())


def row(i: int) -> dict[str, Any]:
    day = f"2024-05-{i % 5 + 1:02d}"
    return {"id": i, "product": f"p{i % 3}", "at": f"{day}T{i % 24:02d}:00:00", "day": day, "price": i / 4}


@contextmanager
def after_each_batch(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> Iterator[None]:
    """Have something happen when a batch's new files are written, and nothing of them is committed."""
    real = rounds.rewrite

    def rewrite(*args: Any) -> Any:
        written = real(*args)
        then()
        return written

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "rewrite", rewrite)
        yield


@contextmanager
def once_after_a_batch(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> Iterator[None]:
    left = iter([then])
    with after_each_batch(monkeypatch, lambda: next(left, lambda: None)()):
        yield
