"""The files that the examples of commands use."""

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
FILES = {
    "orders.yaml": ORDERS_YAML,
    "visits.yaml": """\
fields:
  page: {type: string, required: true}
  at: {type: timestamp}
""",
    "visits.properties": """\
# properties of the table
compression = zstd
compaction.min_files_to_compact = 5
""",
    "readings.yaml": """\
table: readings
schema:
  fields:
    sensor: {type: string, required: true}
    value: {type: double}
  primary_key: [sensor]
split_points: [h, p]
""",
    "policy.yaml": """\
reader:
  rows: {customer: {principal: id}}
  columns: {amount: "null"}
writer: {}
""",
    "splits.txt": "100\n200\n",
    "spending.sql": """\
CREATE DYNAMIC TABLE shop.spending TARGET_LAG = '5 minutes' AS
SELECT customer, sum(amount) AS spent
FROM orders GROUP BY customer;
""",
    "new.json": """\
{"id": 3, "customer": "Cleo", "amount": 30.25}
{"id": 4, "customer": "Di", "amount": 4.00}
""",
    "orders.csv": """\
id,customer,amount,placed_at
8,Ann,8.50,2026-03-08T10:00:00Z
9,Bo,9.50,2026-03-09T10:00:00Z
""",
    "changes.yaml": """\
add_columns:
  note: {type: string}
move_columns:
  - {column: note, after: customer}
set_properties:
  compaction: {mode: auto}
""",
    "sales_table.yaml": """\
name: sales
namespace: shop
description: what the tills sold
storage: {type: local, base_path: tables/sales/}
ingestion: {dataset_config: sales_dataset.yaml}
""",
    "sales_dataset.yaml": """\
columns:
  - {name: sale_id, type: BIGINT, nullable: false}
  - {name: product, type: VARCHAR, transform: trim}
  - {name: quantity, type: INTEGER}
filters:
  - {column: quantity, operator: ">", value: 0}
""",
    "corrected.yaml": """\
columns:
  - {name: sale_id, type: BIGINT, nullable: false}
  - {name: product, type: VARCHAR, transform: trim}
  - {name: quantity, type: INTEGER}
filters:
  - {column: quantity, operator: ">=", value: 0}
""",
    "watched.yaml": """\
name: watched_sales
ingestion:
  dataset_config: sales_dataset.yaml
  watch: {folder: ., pattern: "sales_{date}.csv", settle_seconds: 0}
""",
    "sales_2024-01-01.csv": """\
sale_id,product,quantity
1,Bagel,2
2,Coffee,1
3,Bagel,0
""",
    "sales_2024-01-02.csv": """\
sale_id,product,quantity
4,Coffee,3
5,Bagel,1
""",
    "stores_2024-01-03.csv": """\
sale_id,product,quantity,store
6,Coffee,3,north
""",
    "write.json": """\
{"operation": "WRITE", "namespace": "shop", "table": "orders",
 "records": [{"id": 7, "customer": "Di", "amount": 9.99}]}
""",
}
"""The files in the working directory of every example, by name."""
SHARED_FILES = ("orders.yaml", "sales_table.yaml", "sales_dataset.yaml", "sales_2024-01-01.csv")
"""Those that most examples use: documents show them once."""
