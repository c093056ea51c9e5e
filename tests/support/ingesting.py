"""A table that is made from a table file, and files for it."""

import hashlib
from pathlib import Path
from typing import Any

from tests.harness import Firn
from tests.support.tables import ServedTable

COLUMNS = [
    {"name": "id", "type": "BIGINT", "nullable": False},
    {"name": "sold_on", "type": "DATE"},
    {"name": "product", "type": "VARCHAR", "transform": "trim"},
    {"name": "quantity", "type": "INTEGER"},
    {"name": "price", "type": "DECIMAL(10,2)"},
]
DATASET: dict[str, Any] = {"columns": COLUMNS}
HEADER = "id,sold_on,product,quantity,price\n"


def row(number: int, **values: Any) -> str:
    given = {"id": number, "sold_on": "2024-01-01", "product": f"p{number}", "quantity": 1, "price": "1.50", **values}
    return ",".join(str(given[name]) for name in HEADER.strip().split(",")) + "\n"


class IngestedTable(ServedTable):
    """An ingestion table of a tenant, with a folder for its files."""

    def __init__(
        self, firn: Firn, tenant: str, folder: Path, name: str = "sales", dataset: Any = DATASET, **config: Any
    ) -> None:
        super().__init__(firn, tenant, name)
        self.files = folder
        self.config = {"name": name, **config}
        self.firn.ok(
            {"operation": "CREATE_TABLE", "tenant_id": tenant, "config": self.config}
            | ({} if dataset is None else {"dataset": dataset})
        )

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.files / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def ingest(self, day: str, content: str | bytes | Path, name: str = "", **fields: Any) -> dict[str, Any]:
        """The response to the ingest of a file with this content."""
        return self.ok("INGEST", **self._source(day, content, name), **fields)

    def refuse(self, code: str, day: str, content: str | bytes | Path, name: str = "", **fields: Any) -> dict[str, Any]:
        """The error of an ingest that must be refused."""
        return self.fail(code, "INGEST", **self._source(day, content, name), **fields)

    def _source(self, day: str, content: str | bytes | Path, name: str) -> dict[str, Any]:
        path = content if isinstance(content, Path) else self.file(name or f"sales_{day}.csv", content)
        return {"source": str(path), "date": day}

    def state(self) -> Any:
        description = self.description
        return {k: description.get(k) for k in ("schema", "row_count", "file_count", "current_snapshot_id")}

    def dated(self) -> list[dict[str, Any]]:
        """The rows with the internal columns."""
        names = ["id", "_firn_period", "_firn_date", "_firn_file"]
        return self.rows(projection=names, sort=["id"])

    def quarantined(self) -> list[dict[str, Any]]:
        return self.firn.rows(self.tenant, f"{self.name.table}__quarantine", sort=["ingest_date", "line"])


def sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
