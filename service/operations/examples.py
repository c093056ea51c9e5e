"""What the examples of many operations share."""

from typing import Any

ANY = "<any>"
"""Stands for a value that differs each time."""


def response(*, snapshot: bool = True, **fields: Any) -> dict[str, Any]:
    """A successful response with these fields, and its metadata with or without a snapshot id."""
    names = ("request_id", "execution_time_ms", "snapshot_id") if snapshot else ("request_id", "execution_time_ms")
    return {"success": True, **fields, "metadata": dict.fromkeys(names, ANY)}
