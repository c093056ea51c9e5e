"""Work that takes long: start it as a job and poll it until it ends. No connection stays open for that."""

import time
from collections.abc import Callable, Mapping

from service.cli.command import INTERRUPTED, Request, Response
from service.cli.connection.remote import Chunks, Connection, new_key
from service.cli.terminal.progress import OnProgress

_TIMEOUT_S = 6 * 3600
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0


class WaitInterrupted(KeyboardInterrupt):
    """Ctrl-C ended the wait for work that continues; the message says so, and what to do about it."""

    exit_code = INTERRUPTED


def run_as_job(
    connection: Connection, request: Request, on_progress: OnProgress, *, cancels: bool = False, keyed: bool = True
) -> Response:
    """Run a request as a job, and return its response when it has ended. With `cancels`, Ctrl-C cancels the job."""
    # With a key, a request whose response was lost is sent again and starts no second job.
    key = {"idempotency_key": new_key()} if keyed else {}
    started = connection.send({**request, "async": True, **key})
    return _result(connection, started, on_progress, cancels=cancels)


def upload_as_job(
    connection: Connection,
    table: Request,
    endpoint: str,
    media_type: str,
    chunks: Chunks,
    on_progress: OnProgress,
    *,
    parameters: Mapping[str, str] | None = None,
    cancels: bool = False,
) -> Response:
    """Upload a body of any size to an endpoint of a table, as a job; see `run_as_job`."""
    from urllib.parse import quote, urlencode

    address = "/".join(quote(table[part], safe="") for part in ("tenant_id", "namespace", "table"))
    path = f"/tables/{address}/{endpoint}?{urlencode({'async': 'true', **(parameters or {})})}"
    started = connection.upload(path, media_type, chunks, new_key())
    return _result(connection, started, on_progress, cancels=cancels)


def wait_for_job(connection: Connection, job_id: str, on_progress: OnProgress, *, cancels: bool = False) -> Response:
    """Return the response of a job when it has ended; raises `WaitInterrupted` on Ctrl-C."""

    def look() -> Response | None:
        response = connection.job(job_id)
        if not response["success"]:
            return response
        job = response["job"]
        if "result" in job:
            return dict(job["result"])
        if "error" in job:
            return {"success": False, "error": job["error"]}
        on_progress(job)
        return None

    try:
        return poll(look, f"job {job_id}")
    except KeyboardInterrupt as e:
        if cancels:
            connection.cancel(job_id)
            raise WaitInterrupted(f"cancelled job {job_id}") from e
        advice = f"`firn job cancel {job_id}` cancels it"
        raise WaitInterrupted(f"job {job_id} continues if a service runs; {advice}") from e


def _result(connection: Connection, started: Response, on_progress: OnProgress, *, cancels: bool) -> Response:
    """The response of what was started as a job."""
    if not started["success"] or "job_id" not in started:  # it was done at once
        return started
    return wait_for_job(connection, started["job_id"], on_progress, cancels=cancels)


def poll(look: Callable[[], Response | None], what: str) -> Response:
    """Call `look` until it returns a response, with growing pauses; an error response after six hours."""
    pause, waited = _FIRST_PAUSE_S, 0.0
    while (response := look()) is None:
        if waited >= _TIMEOUT_S:
            message = f"{what} has not ended in {_TIMEOUT_S // 3600} hours"
            return {"success": False, "error": {"code": "TIMEOUT", "message": message}}
        time.sleep(pause)
        waited, pause = waited + pause, min(1.5 * pause, _LONGEST_PAUSE_S)
    return response
