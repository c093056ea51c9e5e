"""A table of the running service: created, changed and read as a client does, and read by other programs."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from service.catalog.files.data_files import list_files
from service.catalog.tables import Catalog, Table
from service.model.names import TableName
from tests.harness import Firn


class ServedTable:
    """One table in a tenant's namespace `default`. Tests that do more with theirs build on this class."""

    def __init__(self, firn: Firn, tenant: str, name: str = "t", **create: Any) -> None:
        """With `schema` and what else CREATE_TABLE takes, the table is created."""
        self.firn = firn
        self.tenant = tenant
        self.name = TableName(tenant, "default", name)
        self.address = {"tenant_id": tenant, "table": name}
        if create:
            self.ok("CREATE_TABLE", **create)

    def request(self, operation: str, **fields: Any) -> dict[str, Any]:
        return {"operation": operation, **self.address, **fields}

    def ok(self, operation: str, **fields: Any) -> dict[str, Any]:
        """The response to a request that must succeed."""
        return self.firn.ok(self.request(operation, **fields))

    def fail(self, code: str, operation: str, status: int | None = None, **fields: Any) -> dict[str, Any]:
        """The error of a request that must be refused and must not change the table's state."""
        before = self.state()
        error = self.firn.fail(self.request(operation, **fields), code, status)
        assert self.state() == before, "a refused request changed the table"
        return error

    def state(self) -> Any:
        """What a refused request must leave as it is."""
        return self.description

    def write(self, *records: dict[str, Any], **fields: Any) -> int:
        """The snapshot that the records are in."""
        return int(self.ok("WRITE", records=list(records), **fields)["metadata"]["snapshot_id"])

    def bulk_load(self, body: bytes | str, kind: str) -> None:
        """Write the records of a body of this content type."""
        path = f"/tables/{self.tenant}/{self.name.namespace}/{self.name.table}/records"
        sent = self.firn.client.post(path, content=body, headers={"Content-Type": kind}, timeout=600)
        assert sent.status_code == 200, sent.text

    def rows(self, **query: Any) -> list[dict[str, Any]]:
        return self.firn.rows(self.tenant, self.name.table, **query)

    def ids(self, **query: Any) -> list[int]:
        return [row["id"] for row in self.firn.rows(self.tenant, self.name.table, sort=["id"], **query)]

    @property
    def description(self) -> dict[str, Any]:
        description: dict[str, Any] = self.ok("DESCRIBE_TABLE")["description"]
        return description

    @property
    def loaded(self) -> Table:
        """The table as the service's catalog has it now."""
        return self.firn.app.parts[Catalog].load(self.name)

    def sql(self, text: str) -> list[Any]:
        """Run a statement as another program on the same catalog may; `{t}` stands for the table."""
        statement = text.format(t=self.loaded.spark_name)

        def run(session: SparkSession) -> list[Any]:
            return session.sql(statement).collect()

        return self.firn.app.engine.run(run)

    @property
    def folder(self) -> Path:
        return Path(self.loaded.location.removeprefix("file://"))

    def on_disk(self, *patterns: str) -> set[str]:
        """The names of the Parquet files in the table's folder, or of those that match the patterns."""
        return {path.name for pattern in patterns or ("*.parquet",) for path in self.folder.rglob(pattern)}

    def compaction_folders(self) -> list[Path]:
        return list(self.folder.glob("data/compact-*"))

    def in_snapshots(self) -> set[str]:
        """The names of the data and delete files of every snapshot, by PyIceberg's account."""
        paths = self.loaded.iceberg.inspect.all_files()["file_path"].to_pylist()
        return {path.rpartition("/")[2] for path in paths}

    def current_files(self) -> dict[str, tuple[Any, ...]]:
        """The paths of the current data files, each with the values of its partition."""
        return {file.path: file.group[1:] for file in list_files(self.loaded).data}


class TableById(ServedTable):
    """Its rows are read in the order of their ids."""

    def rows(self, **query: Any) -> list[dict[str, Any]]:
        return super().rows(**{"sort": ["id"], **query})
