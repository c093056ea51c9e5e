"""Send the files of dates to a service that cannot read them by their paths."""

from collections.abc import Iterator
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from service.cli.command import Request, Response, UsageError
from service.cli.connection.jobs import upload_as_job
from service.cli.connection.remote import Connection
from service.cli.terminal.progress import OnProgress, report

_CHUNK = 1 << 20
_STATES = ("ingested", "unchanged", "missing", "failed")
_COUNTS = ("read", "ingested", "rejected", "quarantined", "replaced")


def upload(connection: Connection, request: Request, file: Path, on_progress: OnProgress) -> Response:
    """Send a file to a service that cannot read it by its path, and wait until it is ingested."""
    if "dataset" in request:
        raise UsageError(
            "--dataset-config cannot be sent with a file that is uploaded; `firn table apply` gives the table the "
            "dataset, or run the command on the machine of the service"
        )
    parameters = {"name": file.name, "date": request["date"]}
    parameters |= {name: str(request[name]) for name in ("mode", "plan_token") if name in request}
    parameters |= {name: "true" for name in ("dry_run", "accept_drift") if request.get(name)}
    return upload_as_job(
        connection,
        request,
        "ingest",
        "application/octet-stream",
        partial(_chunks, file, on_progress),
        on_progress,
        parameters=parameters,
        cancels=True,
    )


def _chunks(file: Path, on_progress: OnProgress) -> Iterator[bytes]:
    total = file.stat().st_size
    with file.open("rb") as opened:
        while piece := opened.read(_CHUNK):
            report(on_progress, "sending", bytes_done=opened.tell(), bytes_total=total)
            yield piece


def upload_range(
    connection: Connection, request: Request, bounds: list[date], date_format: str, on_progress: OnProgress
) -> Response:
    """Send the file of each date to a service that cannot read it by its path. The response is as INGEST_RANGE's."""
    from service.model.ingest.patterns import check_paths_of_days, fill

    try:
        check_paths_of_days(request["source"])
    except ValueError as e:
        raise UsageError(f"{request['source']!r} cannot be used: {e}") from e
    days: list[dict[str, Any]] = []
    first, last = bounds
    total = (last - first).days + 1
    for i in range(total):
        report(on_progress, "ingesting", days_done=i, days_total=total)
        day = first + timedelta(days=i)
        path = Path(fill(request["source"], day, date_format))
        if not path.is_file():
            days.append({"date": str(day), "state": "missing", "source": str(path)})
            continue
        single = {**{k: v for k, v in request.items() if k not in ("from", "to")}, "date": str(day)}
        response = upload(connection, single, path, lambda job: None)
        if not response["success"] and response["error"]["code"] in ("TABLE_NOT_FOUND", "INVALID_REQUEST"):
            return response  # every other day would be refused for the same reason
        days.append({"date": str(day), "source": str(path), **_state(response)})
    counts = {f"days_{state}": sum(day["state"] == state for day in days) for state in _STATES}
    records = {f"records_{name}": sum(day.get(f"records_{name}") or 0 for day in days) for name in _COUNTS}
    return {"success": True, **counts, **records, "days": days}


def _state(response: Response) -> dict[str, Any]:
    if not response["success"]:
        return {"state": "failed", "error": response["error"]}
    response = response.get("plan") or response
    if response.get("unchanged"):
        return {"state": "unchanged"}
    return {"state": "ingested", **{k: v for k, v in response.items() if k.startswith(("records_", "rejects"))}}
