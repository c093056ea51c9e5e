"""Orders, customers and a dynamic table over both, for the handlers' EXAMPLES."""

from typing import Any

from service.operations.examples import create_table, write

TENANT = {"tenant_id": "acme", "namespace": "shop"}
ORDERS, CUSTOMERS = {**TENANT, "table": "orders"}, {**TENANT, "table": "customers"}
DETAILS = {**TENANT, "table": "order_details"}
QUERY = "SELECT o.order_id, o.amount, c.customer_name\nFROM orders o JOIN customers c ON o.customer_id = c.customer_id"
SQL = f"CREATE DYNAMIC TABLE order_details TARGET_LAG = '5 minutes' AS\n{QUERY};"
CREATE = {"operation": "CREATE_DYNAMIC_TABLE", **TENANT, "sql": SQL}
BASES = (
    create_table(ORDERS, {"order_id": "long", "customer_id": "long", "amount": "decimal(10,2)"}),
    create_table(CUSTOMERS, {"customer_id": "long", "customer_name": "string"}),
    write(ORDERS, {"order_id": 1, "customer_id": 1, "amount": "19.90"}),
    write(CUSTOMERS, {"customer_id": 1, "customer_name": "Ann"}),
)
"""Requests that make the tables that it reads."""
CREATED = (*BASES, CREATE)
ADDRESSES = [{"namespace": "shop", "table": "orders"}, {"namespace": "shop", "table": "customers"}]
SCHEMA: dict[str, Any] = {
    "fields": {
        "order_id": {"type": "long", "required": False},
        "amount": {"type": "decimal(10,2)", "required": False},
        "customer_name": {"type": "string", "required": False},
    }
}
OPTIONS: dict[str, Any] = {
    "target_lag": "5 minutes",
    "refresh_mode": "AUTO",
    "initialize": "ON_CREATE",
    "deduplication": False,
    "cardinality_threshold": "<any>",
    "scheduler": "ENABLED",
}
REFRESH: dict[str, Any] = {
    "refresh_id": "<any>",
    "pass_id": "<any>",
    "namespace": "shop",
    "table": "order_details",
    "state": "done",
    "mode": "FULL",
    "reason": "FIRST_BUILD",
    "records_inserted": 1,
    "records_deleted": 0,
    "records_unchanged": 0,
    "records_changed_in_sources": 0,
    "snapshot_id": "<any>",
    "sources": [{**address, "snapshot_id": "<any>", "is_base": True} for address in ADDRESSES],
    "requested_by": "<any>",
    "started_at": "<any>",
    "ended_at": "<any>",
    "duration_ms": "<any>",
}
"""Its first refresh."""
