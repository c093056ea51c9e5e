"""Files and requests that most examples start with."""

from typing import Any

from service.cli.command import CommandExample, Request

ORDERS_YAML = """\
namespace: shop
table: orders
schema:
  fields:
    id: {type: long, required: true}
    customer: {type: string, required: true}
    amount: {type: "decimal(10,2)"}
    placed_at: {type: timestamptz}
  primary_key: [id]
partition:
  partitions:
    - {field: placed_at, transform: month}
properties:
  compression: zstd
  description: one row per order
"""
SCHEMA_YAML = """\
fields:
  page: {type: string, required: true}
  at: {type: timestamp}
"""
FILES = {"orders.yaml": ORDERS_YAML}
CREATE = "firn table create orders.yaml"


def write(*ids: int) -> dict[str, Any]:
    """A WRITE of orders."""
    customers = ("Ann", "Bo", "Cleo")
    records = [
        {"id": i, "customer": customers[i % 3], "amount": f"{i}.50", "placed_at": f"2026-03-{i:02}T10:00:00Z"}
        for i in ids
    ]
    return {"operation": "WRITE", "namespace": "shop", "table": "orders", "records": records}


ORDERS = (CREATE, write(1, 2, 3))


def example(
    title: str, line: str, output: str, setup: tuple[str | Request, ...] = ORDERS, **more: Any
) -> CommandExample:
    """An example beside the file `orders.yaml`. Its table has three rows, unless `setup` says otherwise."""
    return CommandExample(title, line, output, setup, FILES, **more)
