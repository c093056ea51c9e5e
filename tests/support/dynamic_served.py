"""A dynamic table of the running service, refreshed only by request."""

from typing import Any

import pyarrow as pa

from tests.harness import Firn
from tests.support.tables import ServedTable


class ServedDynamicTable(ServedTable):
    """It is refreshed by its changes only, unless it is created with another mode."""

    def __init__(self, firn: Firn, tenant: str, name: str, query: str, **options: Any) -> None:
        super().__init__(firn, tenant, name)
        self.query = query
        given = {"target_lag": "1 day", "refresh_mode": "INCREMENTAL_STRICT", "scheduler": "DISABLED", **options}
        self.ok("CREATE_DYNAMIC_TABLE", query=query, **given)

    def refresh(self, **fields: Any) -> dict[str, Any]:
        return self.ok("REFRESH_DYNAMIC_TABLE", **fields)

    def visible(self) -> pa.Table:
        """Its rows as another reader has them, without hidden columns."""
        table = self.loaded
        return table.iceberg.scan().to_arrow().select(list(table.schema.names))
