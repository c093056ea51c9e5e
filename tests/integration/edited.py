"""A table that is edited, asked and looked at."""

from pathlib import Path
from typing import Any

from service.names import TableName
from tests.harness import Firn


class Table:
    def __init__(self, firn: Firn, tenant: str) -> None:
        self.firn = firn
        self.tenant = tenant
        self.address = {"tenant_id": tenant, "table": "t"}

    def ok(self, operation: str, **fields: Any) -> dict[str, Any]:
        return self.firn.ok({"operation": operation, **self.address, **fields})

    def fail(self, code: str, operation: str, **fields: Any) -> dict[str, Any]:
        before = self.state()
        error = self.firn.fail({"operation": operation, **self.address, **fields}, code)
        assert self.state() == before, "a refused request changed the table"
        return error

    def rows(self, **query: Any) -> list[dict[str, Any]]:
        return self.firn.rows(self.tenant, "t", sort=["id"], **query)

    def state(self) -> Any:
        return self.ok("DESCRIBE_TABLE")["description"]

    def files(self) -> set[Path]:
        loaded = self.firn.app.context.catalog.load(TableName(self.tenant, "default", "t"))
        return set(Path(loaded.location.removeprefix("file://")).rglob("*.parquet"))
