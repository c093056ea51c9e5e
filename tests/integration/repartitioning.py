"""A table to be repartitioned: filled, asked, and looked at from outside."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from service.catalog.files import list_files
from service.catalog.tables import Table as Loaded
from service.commits.ask import Ask
from service.names import TableName
from service.upkeep import rounds
from service.upkeep.compaction import Call
from service.upkeep.report import Wish
from tests.harness import Firn

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


class Table:
    """A table of some products over some days, one file per WRITE and day."""

    def __init__(
        self,
        firn: Firn,
        tenant: str,
        *,
        schema: Any = SCHEMA,
        partition: Any = BY_DAY,
        name: str = "t",
        properties: Any = None,
    ) -> None:
        self.firn = firn
        self.name = TableName(tenant, "default", name)
        self.address = {"tenant_id": tenant, "table": name}
        self.ok("CREATE_TABLE", schema=schema, partition=partition, properties=properties or {})

    def ok(self, operation: str, **fields: Any) -> dict[str, Any]:
        return self.firn.ok({"operation": operation, **self.address, **fields})

    def fail(self, code: str, operation: str = "REPARTITION", **fields: Any) -> dict[str, Any]:
        return self.firn.fail({"operation": operation, **self.address, **fields}, code)

    def repartition(self, **fields: Any) -> dict[str, Any]:
        return self.ok("REPARTITION", **fields)

    def write(self, *ids: int) -> None:
        self.ok("WRITE", records=[row(i) for i in ids])

    def fill(self, writes: int = 3, rows: int = 10) -> None:
        for n in range(writes):
            self.write(*range(n * rows, (n + 1) * rows))

    def delete_elsewhere(self, condition: str) -> None:
        """What another program does that deletes rows without rewriting their files."""
        name = self.loaded.spark_name

        def delete(session: SparkSession) -> None:
            session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
            session.sql(f"DELETE FROM {name} WHERE {condition}")

        self.firn.app.engine.run(delete)

    def compact(self) -> None:
        """A compaction beside the work that the threads for such requests have."""
        found = self.firn.app.context.compactions.compact(self.loaded, Wish(force=True), Call(Ask("r")))
        assert found.compacted

    def rows(self, **query: Any) -> list[dict[str, Any]]:
        return self.firn.rows(self.address["tenant_id"], self.address["table"], sort=["id"], **query)

    def ids(self) -> list[int]:
        return [found["id"] for found in self.rows()]

    @property
    def loaded(self) -> Loaded:
        return self.firn.app.context.catalog.load(self.name)

    @property
    def described(self) -> dict[str, Any]:
        description: dict[str, Any] = self.ok("DESCRIBE_TABLE")["description"]
        return description

    def partitions(self) -> Counter[tuple[Any, ...]]:
        """Rows by partition, as metadata has them."""
        listed = self.ok("LIST_PARTITIONS")["partitions"]
        return Counter({tuple(one["partition"].items()): one["rows"] for one in listed})

    def specs(self) -> set[int]:
        return {file.group[0] for file in list_files(self.loaded).data}

    def files_on_disk(self) -> set[str]:
        folder = Path(self.loaded.location.removeprefix("file://"))
        return {path.name for path in folder.rglob("*.parquet")}

    def data_files_on_disk(self) -> set[str]:
        """Without what other programs write of rows that they delete."""
        return {name for name in self.files_on_disk() if not name.endswith("-deletes.parquet")}

    def files_in_snapshots(self) -> set[str]:
        paths = self.loaded.iceberg.inspect.all_data_files()["file_path"].to_pylist()
        return {path.rpartition("/")[2] for path in paths}

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
