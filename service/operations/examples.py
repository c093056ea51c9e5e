"""Parts of the handlers' EXAMPLES."""

from collections.abc import Collection, Mapping
from typing import Any

DEFAULT_COMPACTION = {
    "enabled": True,
    "mode": "recommend",
    "target_file_size_mb": 128,
    "small_file_threshold_mb": 64,
    "min_files_to_compact": "<any>",
    "opportunistic_check_interval": "<any>",
    "max_files_per_compaction": 100,
    "snapshot_retention_hours": 168,
    "strategy": "binpack",
    "sort_by": [],
    "snapshots": {"keep_last": 100, "hourly_for_hours": 168, "keep_at_most": 300},
    "overridden": [],
}


def response(*, snapshot: bool = True, **fields: Any) -> dict[str, Any]:
    """A successful response with these fields, and its metadata with or without a snapshot id."""
    names = ("request_id", "execution_time_ms", "snapshot_id") if snapshot else ("request_id", "execution_time_ms")
    return {"success": True, **fields, "metadata": dict.fromkeys(names, "<any>")}


def accepted(**fields: Any) -> dict[str, Any]:
    """The response to work that goes on as a job."""
    return response(snapshot=False, job_id="<any>", status_url="<any>", **fields)


def planned(*, snapshot: bool = True, **plan: Any) -> dict[str, Any]:
    """The response to a dry run with this plan."""
    return response(snapshot=snapshot, dry_run=True, plan=plan)


def edit_response(
    *, scanned_files: int = 1, sample: list[dict[str, Any]] | None = None, **counts: Any
) -> dict[str, Any]:
    """The response to an edit that affects one file of one partition; with a sample, to its dry run."""
    counts |= {"files_affected": 1, "partitions_affected": 1, "scanned_files": scanned_files}
    return response(**counts) if sample is None else planned(**counts, sample=sample, plan_token="<any>")


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


def of_tenant(request: Mapping[str, Any], tenant: str) -> dict[str, Any]:
    """An example's request for another tenant, whose tables export files to a folder of their own."""
    return {**exporting_to(request, tenant), "tenant_id": tenant}


def exporting_to(request: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """An example's request whose table, if it exports files, does so to a folder of its own: no two may share one."""
    config = request.get("config")
    if not isinstance(config, dict) or "storage" not in config:
        return dict(request)
    storage = {**config["storage"], "base_path": f"{config['storage']['base_path']}/{folder}"}
    return {**request, "config": {**config, "storage": storage}}
