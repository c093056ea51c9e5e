"""The ingestion table of the examples."""

from typing import Any

ADDRESS = {"tenant_id": "acme", "namespace": "shop", "table": "orders"}
DATASET: dict[str, Any] = {
    "columns": [
        {"name": "order_id", "type": "BIGINT", "nullable": False},
        {"name": "ordered_on", "type": "DATE"},
        {"name": "amount", "type": "DECIMAL(10,2)"},
        {"name": "country", "type": "VARCHAR", "transform": "upper"},
    ]
}
CREATE: dict[str, Any] = {
    "operation": "CREATE_TABLE",
    "tenant_id": "acme",
    "namespace": "shop",
    "config": {"name": "orders", "description": "one file a day"},
    "dataset": DATASET,
}
