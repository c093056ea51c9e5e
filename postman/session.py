"""A session as the collection runs it: each request, and the answer approved for it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

TABLE = {"tenant_id": "{{tenant_id}}", "namespace": "{{namespace}}", "table": "{{table}}"}


class Step(NamedTuple):
    """`"<any>"` in an answer stands for a value that differs each time."""

    title: str
    request: dict[str, Any]
    answer: dict[str, Any]


def session() -> list[Step]:
    """From an empty service to a compacted table, and a query of it."""
    return [_create(), *_writes(), *_queries(), *_edits(), *_looks(), *_upkeep()]


def _step(title: str, operation: str, parts: dict[str, Any], said: dict[str, Any], **metadata: Any) -> Step:
    metadata = {"request_id": "<any>", "execution_time_ms": "<any>", **metadata}
    return Step(title, {"operation": operation, **parts}, {"success": True, **said, "metadata": metadata})


def _create() -> Step:
    parts = {
        **TABLE,
        "schema": {
            "fields": {
                "id": {"type": "long", "required": True},
                "name": {"type": "string", "required": True},
                "age": {"type": "integer"},
                "balance": {"type": "decimal(10,2)"},
                "joined": {"type": "timestamptz"},
                "address": {"type": "struct", "fields": {"city": {"type": "string"}}},
                "tags": {"type": "array", "items": "string"},
            },
            "primary_key": ["id"],
        },
        # So that the fifth write recommends compaction, whatever the settings of the environment.
        "properties": {"opportunistic_check_interval": 5, "min_files_to_compact": 3},
        "if_not_exists": True,
    }
    return _step("Create a table", "CREATE_TABLE", parts, {"table_created": True, "table_existed": False})


def _writes() -> Iterator[Step]:
    for i in range(1, 6):
        record = {
            "id": i,
            "name": f"User-{i}",
            "age": 20 + i,
            "balance": f"{i}.50",
            "joined": f"2024-0{i}-01T10:00:00Z",
            "address": {"city": "Bern" if i % 2 else "Oslo"},
            "tags": ["new", "odd" if i % 2 else "even"],
        }
        said = {
            "records_written": 1,
            "compaction_recommended": i == 5,
            **({"small_files_count": 5} if i == 5 else {}),
        }
        title = f"Write {i} of 5" + (": compaction is recommended" if i == 5 else "")
        yield _step(title, "WRITE", {**TABLE, "records": [record]}, said, snapshot_id="<any>")


def _query(title: str, parts: dict[str, Any], rows: list[dict[str, Any]], files: Any = "<any>", **more: Any) -> Step:
    metadata = {"snapshot_id": "<any>", "row_count": len(rows), "scanned_files": files, "scanned_bytes": "<any>"}
    return _step(title, "QUERY", parts, {"data": rows}, **metadata, has_more=False, **more)


def _queries() -> Iterator[Step]:
    yield _query(
        "Query: filter as a map",
        {
            **TABLE,
            "projection": ["name", "age", "address.city"],
            "filter": {"age": {"gt": 21, "lte": 24}, "name": {"in": ["User-2", "User-4", "User-5"]}},
            "sort": [{"field": "age", "order": "desc"}],
        },
        [
            {"name": "User-4", "age": 24, "address.city": "Oslo"},
            {"name": "User-2", "age": 22, "address.city": "Oslo"},
        ],
    )
    yield _query(
        "Query: filters as a list",
        {
            **TABLE,
            "projection": ["id", {"field": "joined", "date_format": "yyyy-MM", "alias": "month"}],
            "filters": [
                {"field": "tags", "operator": "array_contains", "value": "odd"},
                {"field": "joined", "operator": "gte", "value": "2024-02-01T00:00:00Z"},
            ],
            "sort": ["id"],
        },
        [{"id": 3, "month": "2024-03"}, {"id": 5, "month": "2024-05"}],
    )
    yield _query(
        "Query: group and aggregate",
        {
            **TABLE,
            "projection": [{"field": "address.city", "alias": "city"}],
            "group_by": ["city"],
            "aggregations": [
                {"op": "count"},
                {"op": "sum", "field": "balance", "alias": "total"},
                {"op": "max", "field": "age", "alias": "oldest"},
            ],
            "having": {"total": {"gt": 1}},
            "sort": ["city"],
        },
        [
            {"city": "Bern", "count": 3, "total": "10.50", "oldest": 25},
            {"city": "Oslo", "count": 2, "total": "7.00", "oldest": 24},
        ],
    )
    yield _query(
        "Query: SQL with parameters",
        {
            "tenant_id": "{{tenant_id}}",
            "namespace": "{{namespace}}",
            "sql": "SELECT name, balance FROM `{{table}}` WHERE balance > :least ORDER BY name",
            "params": {"least": "4"},
        },
        [{"name": "User-4", "balance": "4.50"}, {"name": "User-5", "balance": "5.50"}],
    )


def _edits() -> Iterator[Step]:
    yield _step(
        "Update",
        "UPDATE",
        {**TABLE, "updates": {"age": 40, "balance": "99.90"}, "filter": {"name": "User-3"}},
        {"records_updated": 1},
        snapshot_id="<any>",
    )
    yield _step(
        "Upsert",
        "UPSERT",
        {**TABLE, "records": [{"id": 1, "name": "User-1", "age": 31}, {"id": 6, "name": "User-6"}]},
        {"records_inserted": 1, "records_updated": 1},
        snapshot_id="<any>",
    )
    yield _step(
        "Delete",
        "DELETE",
        {**TABLE, "filter": [{"field": "age", "operator": "lt", "value": 23}]},
        {"records_deleted": 1},
        snapshot_id="<any>",
    )


def _looks() -> Iterator[Step]:
    yield _step(
        "List tables",
        "LIST_TABLES",
        {"tenant_id": "{{tenant_id}}", "namespace": "{{namespace}}"},
        {"tables": "<any>", "offline": "<any>", "dynamic": "<any>"},
    )
    description = dict.fromkeys(
        ("schema", "partition", "properties", "current_snapshot_id", "metadata_location", "file_count", "total_bytes"),
        "<any>",
    )
    yield _step(
        "Describe the table",
        "DESCRIBE_TABLE",
        TABLE,
        {
            "description": {
                **description,
                "online": True,
                "dynamic": False,
                "row_count": 5,
                "small_files_count": "<any>",
                "snapshot_count": "<any>",
            }
        },
        snapshot_id="<any>",
    )


def _upkeep() -> Iterator[Step]:
    stats = dict.fromkeys(
        ("files_before", "files_compacted", "files_removed", "bytes_before", "bytes_after", "bytes_saved"), "<any>"
    )
    yield _step(
        "Compact",
        "COMPACT",
        {**TABLE, "force": True},
        {
            "compacted": True,
            "stats": {
                **stats,
                "files_after": 1,
                "files_added": 1,
                "snapshots_expired": 0,
                "compaction_time_ms": "<any>",
                "small_files_remaining": 1,
            },
        },
        snapshot_id="<any>",
    )
    yield _query(
        "Query after the compaction",
        {**TABLE, "projection": ["id", "age", "balance"], "sort": ["id"]},
        [
            {"id": 1, "age": 31, "balance": "1.50"},
            {"id": 3, "age": 40, "balance": "99.90"},
            {"id": 4, "age": 24, "balance": "4.50"},
            {"id": 5, "age": 25, "balance": "5.50"},
            {"id": 6, "age": None, "balance": None},
        ],
        files=1,
    )
