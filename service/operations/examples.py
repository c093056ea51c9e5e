"""Parts of the handlers' EXAMPLES."""

from collections.abc import Collection
from typing import Any


def response(*, snapshot: bool = True, **fields: Any) -> dict[str, Any]:
    """A successful response with these fields, and its metadata with or without a snapshot id."""
    names = ("request_id", "execution_time_ms", "snapshot_id") if snapshot else ("request_id", "execution_time_ms")
    return {"success": True, **fields, "metadata": dict.fromkeys(names, "<any>")}


def create_table(
    address: dict[str, str],
    columns: dict[str, str],
    *,
    required: Collection[str] = (),
    primary_key: Collection[str] = (),
    **more: Any,
) -> dict[str, Any]:
    """A CREATE_TABLE of columns, given with their types, and with more fields of the request."""
    fields = {
        name: {"type": column_type, **({"required": True} if name in required else {})}
        for name, column_type in columns.items()
    }
    key = {"primary_key": list(primary_key)} if primary_key else {}
    return {"operation": "CREATE_TABLE", **address, "schema": {"fields": fields, **key}, **more}


def write(address: dict[str, str], *records: dict[str, Any]) -> dict[str, Any]:
    return {"operation": "WRITE", **address, "records": list(records)}
