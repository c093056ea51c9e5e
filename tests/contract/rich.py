"""One table with every type, and requests that use every field: what there is to put junk into."""

from typing import Any

TYPES = {
    "id": {"type": "long", "required": True},
    "name": {"type": "string", "required": True},
    "small": {"type": "integer"},
    "price": {"type": "decimal(10,2)"},
    "ratio": {"type": "double"},
    "real": {"type": "float"},
    "good": {"type": "boolean"},
    "day": {"type": "date"},
    "at": {"type": "timestamp"},
    "seen": {"type": "timestamptz"},
    "raw": {"type": "binary"},
    "key": {"type": "uuid"},
    "tags": {"type": "array", "items": {"type": "string", "required": True}},
    "sizes": {"type": "map", "key_type": "string", "value_type": "long"},
    "home": {"type": "struct", "fields": {"city": {"type": "string"}, "floors": {"type": "array", "items": "integer"}}},
}
ROW = {
    "id": 1,
    "name": "Ann",
    "small": -7,
    "price": "19.90",
    "ratio": 0.5,
    "real": "NaN",
    "good": True,
    "day": "2024-01-31",
    "at": "2024-01-31T10:00:00.5",
    "seen": "2024-01-31T10:00:00+02:00",
    "raw": "AAE=",
    "key": "123e4567-e89b-12d3-a456-426614174000",
    "tags": ["a", "b"],
    "sizes": {"s": 1},
    "home": {"city": "Bern", "floors": [1, None]},
}
TABLE = {"namespace": "default", "table": "rich"}
CREATE = {
    "operation": "CREATE_TABLE",
    **TABLE,
    "schema": {"fields": TYPES, "primary_key": ["id"]},
    "partition": {
        "partitions": [
            {"field": "day", "transform": "month", "name": "month"},
            {"field": "id", "transform": "bucket", "num_buckets": 2},
        ]
    },
    "properties": {
        "compression": "zstd",
        "description": "rich",
        "file_format": "parquet",
        "target_file_size_mb": 64,
        "compaction": {"enabled": True, "small_file_threshold_mb": 8, "min_files_to_compact": 2},
        "opportunistic_check_interval": 2,
        "max_files_per_compaction": 10,
    },
}
WRITE = {"operation": "WRITE", **TABLE, "records": [ROW, {"id": 2, "name": "Bo"}], "mode": "append"}
GIVEN = (CREATE, WRITE)
FILTER = {
    "name": {"like": "A%", "ilike": "%N", "regex": "^A.*", "starts_with": "A", "contains": "n", "ne": {"field": "key"}},
    "or": [
        {"small": {"lt": 0, "between": [-10, 10]}},
        {"not": {"price": {"in": ["19.90", 5, None]}}},
        [{"field": "tags", "operator": "array_contains", "value": "a"}],
    ],
    "ratio": {"gte": 0.25},
    "day": "2024-01-31",
    "seen": {"lt": "2025-01-01T00:00:00Z"},
    "raw": {"is_not_null": True},
    "home.city": {"eq": "Bern"},
    "sizes.s": 1,
    "good": True,
}
REQUESTS: dict[str, tuple[dict[str, Any], ...]] = {
    "CREATE_TABLE": ({**CREATE, "table": "other"},),
    "WRITE": (WRITE,),
    "QUERY": (
        {
            "operation": "QUERY",
            **TABLE,
            "projection": [
                "id",
                {"field": "home.city", "alias": "city", "trim": True, "upper": True, "substring": [1, 3]},
                {"field": "at", "alias": "month", "date_trunc": "month", "date_format": "yyyy-MM"},
                {"field": "seen", "alias": "hour", "extract": "hour"},
                {"field": "price", "alias": "cost", "cast": "double"},
            ],
            "filter": FILTER,
            "sort": [{"field": "city", "order": "desc", "nulls_first": True}, "id"],
            "distinct": False,
            "limit": 10,
            "offset": 0,
            "explain": False,
        },
        {
            "operation": "QUERY",
            **TABLE,
            "join": [{"table": "rich", "alias": "r", "type": "left", "on": [{"left": "rich.id", "right": "r.id"}]}],
            "projection": [{"field": "rich.name", "alias": "who"}],
            "group_by": ["who"],
            "aggregations": [
                {"op": "sum", "field": "r.price", "alias": "spent"},
                {"function": "count", "field": "r.id", "distinct": True},
                {"op": "median", "field": "r.small"},
                {"op": "max", "field": "r.seen", "alias": "last"},
            ],
            "having": {"spent": {"gt": 1}},
            "sort": [{"field": "spent"}],
        },
        {
            "operation": "QUERY",
            "sql": "SELECT name, :n + 1 AS n FROM rich WHERE day > :d AND array_contains(tags, :t)",
            "params": {"n": 1, "d": "2024-01-01", "t": "a"},
            "limit": 5,
            "as_of": None,
        },
    ),
    "UPDATE": (
        {
            "operation": "UPDATE",
            **TABLE,
            "updates": {k: v for k, v in ROW.items() if k not in ("id", "day")},
            "filter": FILTER,
            "all": False,
        },
    ),
    "DELETE": ({"operation": "DELETE", **TABLE, "filter": {"and": [FILTER, {"id": {"gt": 5}}]}},),
    "UPSERT": (
        {
            "operation": "UPSERT",
            **TABLE,
            "records": [ROW, {"id": 3, "name": "Cy"}],
            "key_cols": ["id", "name"],
            "update_cols": ["price", "tags", "home"],
        },
    ),
    "COMPACT": (
        {
            "operation": "COMPACT",
            **TABLE,
            "force": True,
            "target_file_size_mb": 32,
            "max_files": 10,
            "partition_filter": {"day": {"gte": "2024-01-01", "lt": "2025-01-01"}, "id": {"in": [1, 2]}},
            "expire_snapshots": True,
            "snapshot_retention_hours": 168,
        },
    ),
    "SET_COMPACTION": (
        {
            "operation": "SET_COMPACTION",
            **TABLE,
            "enabled": True,
            "mode": "recommend",
            "target_file_size_mb": 64,
            "small_file_threshold_mb": 8,
            "min_files_to_compact": 2,
            "opportunistic_check_interval": 2,
            "max_files_per_compaction": 10,
            "snapshot_retention_hours": 24,
            "strategy": "sort",
            "sort_by": ["name", "home.city"],
            "window": "01:00-05:30 Europe/Zurich",
        },
    ),
    "LIST_PARTITIONS": (
        {
            "operation": "LIST_PARTITIONS",
            **TABLE,
            "partition_filter": {"day": {"gte": "2024-01-01", "lt": "2025-01-01"}, "id": {"in": [1, 2]}},
            "limit": 10,
        },
    ),
    "LIST_BACKUPS": ({"operation": "LIST_BACKUPS", **TABLE},),
    "RESTORE_BACKUP": (
        {
            "operation": "RESTORE_BACKUP",
            **TABLE,
            "name": "backup-20240501T101112045Z-update-1f0c9a7e",
            "dry_run": False,
            "create_backup": True,
            "backup_retention_hours": 48,
        },
    ),
    "DELETE_BACKUP": ({"operation": "DELETE_BACKUP", **TABLE, "name": "backup-20240501T101112045Z-update-1f0c9a7e"},),
    "COMPACTION_LOG": ({"operation": "COMPACTION_LOG", **TABLE, "limit": 10, "before": "2024-01-01T00:00:00Z"},),
    "CLEAN_ORPHANS": ({"operation": "CLEAN_ORPHANS", **TABLE, "older_than_hours": 48, "dry_run": True},),
    "DESCRIBE_TABLE": ({"operation": "DESCRIBE_TABLE", **TABLE},),
    "CREATE_SCHEDULE": (
        {
            "operation": "CREATE_SCHEDULE",
            **TABLE,
            "name": "rich",
            "cron": "0 2 29 2 *",
            "timezone": "Europe/Zurich",
            "delay": "15m",
            "scope": "table",
            "task": {"operation": "COMPACT", "force": True, "max_files": 10, "partition_filter": {"id": 1}},
            "enabled": True,
            "catch_up": False,
            "replace": True,
        },
    ),
    "LIST_SCHEDULES": ({"operation": "LIST_SCHEDULES", **TABLE, "name": "rich", "runs": 3},),
    "RUN_SCHEDULE": ({"operation": "RUN_SCHEDULE", "name": "rich", "wait": False},),
    "DELETE_SCHEDULE": ({"operation": "DELETE_SCHEDULE", "name": "rich", "if_exists": True},),
    "LIST_TABLES": ({"operation": "LIST_TABLES", "namespace": "default"},),
    "RECOMMEND": (
        {"operation": "RECOMMEND", "namespace": "default", "limit": 10},
        {"operation": "RECOMMEND", "namespace": None},
    ),
    "DROP_TABLE": ({"operation": "DROP_TABLE", **TABLE, "if_exists": True, "purge": True, "confirm": True},),
}
